//! Which checkpoints of an experiment are kept: the union of what three numbers keep.
//!
//! | number | default | keeps |
//! |---|---|---|
//! | `save_experiment_best` | 0 | this many with the best metrics, of all trials together |
//! | `save_trial_best` | 1 | this many with the best metrics, of each trial |
//! | `save_trial_latest` | 1 | this many with the highest ids, of each trial |
//!
//! A checkpoint without a metric (its model was not validated, or the metric is not a number) is
//! never among the best. Of two with the same metric, the one with the lower id is better, because
//! it was first. A checkpoint that another trial began with is always kept.
//!
//! **When.** The cluster that these rules come from removes checkpoints at the end of an
//! experiment. Here each trial removes checkpoints after each commit, because a disk is smaller
//! than the storage of a cluster: those that no number can keep any more, whatever other trials do
//! ([`Retention::of_trial`]), and never the newest two, from which a killed run continues
//! (`checkpoint::retention`).
//!
//! Source: Determined 4bff89a70b, docs/reference/experiment-config.txt, "checkpoint storage".

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// How many checkpoints are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// `save_experiment_best`
    pub experiment_best: u64,
    /// `save_trial_best`
    pub trial_best: u64,
    /// `save_trial_latest`
    pub trial_latest: u64,
    /// Whether a smaller metric is better.
    pub smaller_is_better: bool,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            experiment_best: 0,
            trial_best: 1,
            trial_latest: 1,
            smaller_is_better: true,
        }
    }
}

impl Retention {
    /// The rule by which a trial may remove checkpoints without knowing the other trials: the best
    /// of an experiment are among the best of their trials.
    #[must_use]
    pub fn of_trial(&self) -> Self {
        Self {
            experiment_best: 0,
            trial_best: self.trial_best.max(self.experiment_best),
            ..*self
        }
    }

    /// The ids of the checkpoints that are kept.
    #[must_use]
    pub fn kept(&self, checkpoints: &[Candidate]) -> BTreeSet<u64> {
        let mut of_trials: BTreeMap<u64, Vec<&Candidate>> = BTreeMap::new();
        for candidate in checkpoints {
            of_trials
                .entry(candidate.trial)
                .or_default()
                .push(candidate);
        }
        let sources = checkpoints.iter().filter(|candidate| candidate.is_source);
        let mut kept: BTreeSet<_> = sources.map(|candidate| candidate.id).collect();
        kept.extend(self.best(checkpoints.iter(), self.experiment_best));
        for candidates in of_trials.values_mut() {
            kept.extend(self.best(candidates.iter().copied(), self.trial_best));
            candidates.sort_by_key(|candidate| candidate.id);
            let latest = candidates.iter().rev().take(count(self.trial_latest));
            kept.extend(latest.map(|candidate| candidate.id));
        }
        kept
    }

    fn best<'candidates>(
        &self,
        candidates: impl Iterator<Item = &'candidates Candidate>,
        number: u64,
    ) -> impl Iterator<Item = u64> {
        let measured = candidates.filter_map(|candidate| {
            let metric = candidate.metric.filter(|metric| !metric.is_nan())?;
            Some((metric, candidate.id))
        });
        let mut measured: Vec<_> = measured.collect();
        measured.sort_by(|left, right| {
            let order = left.0.partial_cmp(&right.0).unwrap_or(Ordering::Equal);
            let order = if self.smaller_is_better {
                order
            } else {
                order.reverse()
            };
            order.then(left.1.cmp(&right.1))
        });
        measured.into_iter().take(count(number)).map(|(_, id)| id)
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A checkpoint that may be kept or removed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Unique among all; a later checkpoint has a higher one.
    pub id: u64,
    /// The trial that it belongs to.
    pub trial: u64,
    /// The validation metric of its model, if the model was validated.
    pub metric: Option<f64>,
    /// Whether another trial began with it.
    pub is_source: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANDIDATES: [(u64, u64, Option<f64>); 10] = [
        (1, 1, None),
        (2, 1, None),
        (3, 1, Some(0.6)),
        (4, 1, Some(0.5)),
        (5, 1, Some(0.4)),
        (6, 2, None),
        (7, 2, Some(0.2)),
        (8, 2, Some(0.3)),
        (9, 2, None),
        (10, 2, None),
    ];

    fn candidates() -> Vec<Candidate> {
        let candidate = |(id, trial, metric)| Candidate {
            id,
            trial,
            metric,
            is_source: false,
        };
        CANDIDATES.map(candidate).to_vec()
    }

    fn retention(numbers: (u64, u64, u64), smaller_is_better: bool) -> Retention {
        Retention {
            experiment_best: numbers.0,
            trial_best: numbers.1,
            trial_latest: numbers.2,
            smaller_is_better,
        }
    }

    fn kept(candidates: &[Candidate], numbers: (u64, u64, u64)) -> Vec<u64> {
        let kept = retention(numbers, true).kept(candidates);
        kept.into_iter().rev().collect()
    }

    /// The table in the documentation of the cluster.
    #[test]
    fn what_stays_is_the_union_of_what_each_number_keeps() {
        let table: [(_, &[u64]); 8] = [
            ((2, 0, 0), &[8, 7]),
            ((0, 1, 0), &[7, 5]),
            ((0, 0, 1), &[10, 5]),
            ((0, 0, 3), &[10, 9, 8, 5, 4, 3]),
            ((2, 1, 0), &[8, 7, 5]),
            ((2, 0, 1), &[10, 8, 7, 5]),
            ((0, 1, 1), &[10, 7, 5]),
            ((2, 1, 1), &[10, 8, 7, 5]),
        ];
        for (numbers, expected) in table {
            assert_eq!(kept(&candidates(), numbers), expected, "{numbers:?}");
            let mut shuffled = candidates();
            shuffled.reverse();
            assert_eq!(
                kept(&shuffled, numbers),
                expected,
                "{numbers:?}, in another order"
            );
        }
        assert!(kept(&candidates(), (0, 0, 0)).is_empty());
        assert_eq!(
            kept(&candidates(), (9, 9, 9)),
            [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
        );
        assert_eq!(Retention::default(), retention((0, 1, 1), true));
    }

    #[test]
    fn the_best_are_the_largest_where_that_is_better() {
        let kept = retention((2, 0, 0), false).kept(&candidates());
        assert_eq!(kept, BTreeSet::from([3, 4]));
    }

    #[test]
    fn of_equals_the_lower_id_is_better_and_no_number_is_never_the_best() {
        let mut candidates = candidates();
        candidates[3].metric = Some(0.2);
        assert_eq!(kept(&candidates, (1, 0, 0)), [4]);
        candidates[2].metric = Some(f64::NAN);
        candidates[6].metric = Some(f64::NEG_INFINITY);
        assert_eq!(kept(&candidates, (9, 0, 0)), [8, 7, 5, 4]);
        assert_eq!(kept(&candidates, (1, 0, 0)), [7]);
    }

    #[test]
    fn what_a_trial_began_with_stays() {
        let mut candidates = candidates();
        candidates[1].is_source = true;
        assert_eq!(kept(&candidates, (0, 0, 0)), [2]);
        assert_eq!(kept(&candidates, (0, 1, 0)), [7, 5, 2]);
    }

    /// A trial alone removes nothing that the whole experiment would have kept.
    #[test]
    fn a_trial_alone_keeps_what_the_experiment_may() {
        for numbers in [(2, 0, 0), (1, 2, 0), (3, 0, 2), (0, 1, 1)] {
            let retention = retention(numbers, true);
            let of_all = retention.kept(&candidates());
            for trial in [1, 2] {
                let mut own = candidates();
                own.retain(|candidate| candidate.trial == trial);
                let of_trial = retention.of_trial().kept(&own);
                let wanted = own
                    .iter()
                    .filter(|candidate| of_all.contains(&candidate.id));
                assert!(
                    wanted
                        .into_iter()
                        .all(|candidate| of_trial.contains(&candidate.id))
                );
            }
        }
    }
}
