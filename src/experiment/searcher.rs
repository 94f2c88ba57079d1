//! Searchers: which trials an experiment has, and how long each trains.

use serde::Deserialize;

/// How an experiment searches for good hyperparameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Searcher {
    /// One trial.
    Single {
        /// Steps of the trial.
        max_steps: u64,
    },
    /// Trials with hyperparameters that are drawn independently.
    Random {
        /// Steps of each.
        max_steps: u64,
        /// How many.
        max_trials: u64,
    },
    /// A trial for each point of a grid.
    Grid {
        /// Steps of each.
        max_steps: u64,
    },
    /// Brackets of successive halving, with a budget of steps.
    Adaptive {
        /// Steps of the longest trials.
        target_trial_steps: u64,
        /// Steps of all trials together.
        step_budget: u64,
        /// Which brackets it has.
        mode: Mode,
        /// One of this many trials continues from rung to rung.
        divisor: f64,
        /// Rungs of the longest bracket.
        max_rungs: u64,
    },
    /// Brackets of successive halving, with a number of trials.
    AdaptiveSimple {
        /// Steps of the longest trials.
        max_steps: u64,
        /// Trials of all brackets.
        max_trials: u64,
        /// Which brackets it has.
        mode: Mode,
        /// One of this many trials continues from rung to rung.
        divisor: f64,
        /// Rungs of the longest bracket.
        max_rungs: u64,
    },
    /// Population-based training.
    Pbt {},
}

/// How early trials are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Brackets of 1 to `max_rungs` rungs.
    Conservative,
    /// The longer half of them.
    Standard,
    /// The longest only.
    Aggressive,
}

/// The rungs of one bracket: at each, trials have trained `steps` in total, more than at the
/// previous rung, and this many `trials` are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bracket(pub Vec<(u64, u64)>);

impl Searcher {
    /// The word in a configuration.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Single { .. } => "single",
            Self::Random { .. } => "random",
            Self::Grid { .. } => "grid",
            Self::Adaptive { .. } => "adaptive",
            Self::AdaptiveSimple { .. } => "adaptive_simple",
            Self::Pbt {} => "pbt",
        }
    }

    /// Steps of each trial, if all train equally long.
    #[must_use]
    pub fn max_steps(&self) -> Option<u64> {
        match self {
            Self::Single { max_steps }
            | Self::Random { max_steps, .. }
            | Self::Grid { max_steps } => Some(*max_steps),
            Self::Adaptive { .. } | Self::AdaptiveSimple { .. } | Self::Pbt {} => None,
        }
    }

    /// The brackets of an adaptive search, the one with most rungs first; none for other searches.
    ///
    /// Source: Determined 4bff89a70b, `master/pkg/searcher/{adaptive,adaptive_simple,sha}.go`; the
    /// table in the documentation has other numbers than the code, and this follows the code.
    #[must_use]
    pub fn brackets(&self) -> Vec<Bracket> {
        match self {
            Self::Adaptive {
                target_trial_steps,
                step_budget,
                mode,
                divisor,
                max_rungs,
            } => {
                let rungs = mode.rungs(*max_rungs);
                let budget = step_budget / rungs.len() as u64;
                rungs
                    .iter()
                    .map(|rungs| with_budget(*rungs, *target_trial_steps, *divisor, budget))
                    .collect()
            }
            Self::AdaptiveSimple {
                max_steps,
                max_trials,
                mode,
                divisor,
                max_rungs,
            } => {
                let rungs = mode.rungs(*max_rungs);
                let brackets = rungs.len() as u64;
                (0..)
                    .zip(&rungs)
                    .map(|(index, rungs)| {
                        let one_more = u64::from(index < max_trials % brackets);
                        let trials = (max_trials / brackets + one_more).max(1);
                        with_trials(*rungs, *max_steps, *divisor, trials)
                    })
                    .collect()
            }
            Self::Single { .. } | Self::Random { .. } | Self::Grid { .. } | Self::Pbt {} => {
                Vec::new()
            }
        }
    }
}

impl Mode {
    /// The number of rungs of each bracket, most first.
    fn rungs(self, max_rungs: u64) -> Vec<u64> {
        let fewest = match self {
            Self::Conservative => 1,
            Self::Standard => (max_rungs - 1) / 2 + 1,
            Self::Aggressive => max_rungs,
        };
        (fewest..=max_rungs).rev().collect()
    }
}

/// `number / divisor^power`, rounded down, at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "as in the reference; counts of steps and trials are small"
)]
fn divided(number: u64, divisor: f64, power: u64) -> u64 {
    ((number as f64 / divisor.powf(power as f64)) as u64).max(1)
}

/// A bracket with as many trials as the budget allows.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "as in the reference; counts of steps and trials are small"
)]
fn with_budget(rungs: u64, max_steps: u64, divisor: f64, budget: u64) -> Bracket {
    let shape: Vec<(u64, u64)> = (0..rungs)
        .map(|rung| {
            let power = rungs - rung - 1;
            let trials = (divisor.powf(power as f64) as u64).max(1);
            (divided(max_steps, divisor, power), trials)
        })
        .collect();
    let mut before = 0;
    let mut steps_of_all: u64 = 0;
    for (steps, trials) in &shape {
        steps_of_all = steps
            .saturating_sub(before)
            .saturating_mul(*trials)
            .saturating_add(steps_of_all);
        before = *steps;
    }
    let multiplier = budget as f64 / steps_of_all as f64;
    let mut bracket: Vec<(u64, u64)> = Vec::new();
    for (steps, trials) in shape {
        let trials = (multiplier * trials as f64) as u64;
        bracket.push(match bracket.last() {
            None => (steps, trials),
            Some(below) => (
                steps.max(below.0.saturating_add(1)),
                trials.min(below.1).max(1),
            ),
        });
    }
    Bracket(bracket)
}

/// A bracket that begins with this many trials.
fn with_trials(rungs: u64, max_steps: u64, divisor: f64, trials: u64) -> Bracket {
    let mut bracket: Vec<(u64, u64)> = Vec::new();
    for rung in 0..rungs {
        let steps = divided(max_steps, divisor, rungs - rung - 1);
        let more = bracket.last().map_or(0, |below| below.0.saturating_add(1));
        bracket.push((steps.max(more), divided(trials, divisor, rung)));
    }
    Bracket(bracket)
}

#[cfg(test)]
mod tests {
    use super::{Bracket, Searcher};

    fn brackets(text: &str) -> Vec<Vec<(u64, u64)>> {
        let searcher: Searcher = serde_json::from_str(text).expect("a searcher");
        searcher
            .brackets()
            .into_iter()
            .map(|Bracket(rungs)| rungs)
            .collect()
    }

    fn simple(max_steps: u64, max_trials: u64, mode: &str, max_rungs: u64) -> Vec<Vec<(u64, u64)>> {
        brackets(&format!(
            r#"{{"name": "adaptive_simple", "max_steps": {max_steps}, "max_trials": {max_trials},
                 "mode": "{mode}", "divisor": 4.0, "max_rungs": {max_rungs}}}"#
        ))
    }

    fn adaptive(target: u64, budget: u64, mode: &str, max_rungs: u64) -> Vec<Vec<(u64, u64)>> {
        brackets(&format!(
            r#"{{"name": "adaptive", "target_trial_steps": {target}, "step_budget": {budget},
                 "mode": "{mode}", "divisor": 4.0, "max_rungs": {max_rungs}}}"#
        ))
    }

    /// Acceptance vectors, computed from the reference algorithm.
    #[test]
    fn the_brackets_are_those_of_the_examples() {
        // mnist_keras_simple/adaptive.yaml
        assert_eq!(
            simple(64, 16, "standard", 2),
            [vec![(16, 8), (64, 2)], vec![(64, 8)]]
        );
        // mnist_keras_simple and imdb_keras, adaptive-advanced.yaml
        assert_eq!(
            adaptive(4, 24, "standard", 2),
            [vec![(1, 6), (4, 1)], vec![(4, 3)]]
        );
        // imdb_keras/adaptive.yaml
        assert_eq!(
            simple(8, 16, "standard", 2),
            [vec![(2, 8), (8, 2)], vec![(8, 8)]]
        );
        // cifar10_cnn_keras/adaptive-advanced.yaml
        assert_eq!(
            adaptive(800, 4800, "aggressive", 5),
            [[(3, 389), (12, 97), (50, 24), (200, 6), (800, 1)]]
        );
        // cifar10_cnn_keras/adaptive.yaml
        assert_eq!(
            simple(800, 16, "aggressive", 5),
            [[(3, 16), (12, 4), (50, 1), (200, 1), (800, 1)]]
        );
        // mnist_estimator and mnist_pytorch, adaptive-advanced.yaml
        assert_eq!(
            adaptive(16, 80, "aggressive", 3),
            [[(1, 32), (4, 8), (16, 2)]]
        );
        // mnist_estimator/adaptive.yaml
        assert_eq!(
            simple(64, 16, "aggressive", 3),
            [[(4, 16), (16, 4), (64, 1)]]
        );
        // mnist_pytorch/adaptive.yaml
        assert_eq!(
            simple(32, 16, "aggressive", 3),
            [[(2, 16), (8, 4), (32, 1)]]
        );
        // mnist_keras/adaptive.yaml
        assert_eq!(
            simple(64, 16, "standard", 5),
            [
                vec![(1, 6), (2, 1), (4, 1), (16, 1), (64, 1)],
                vec![(1, 5), (4, 1), (16, 1), (64, 1)],
                vec![(4, 5), (16, 1), (64, 1)],
            ]
        );
        // iris_tf_keras/adaptive.yaml
        assert_eq!(
            simple(64, 512, "standard", 5),
            [
                vec![(1, 171), (2, 42), (4, 10), (16, 2), (64, 1)],
                vec![(1, 171), (4, 42), (16, 10), (64, 2)],
                vec![(4, 170), (16, 42), (64, 10)],
            ]
        );
    }

    #[test]
    fn a_conservative_search_has_brackets_of_every_length() {
        let lengths: Vec<_> = simple(64, 12, "conservative", 3)
            .iter()
            .map(Vec::len)
            .collect();
        assert_eq!(lengths, [3, 2, 1]);
    }
}
