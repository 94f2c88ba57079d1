//! An experiment: its configuration in the form that this program uses, and its trials.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::check::check;
use crate::fields::{FIELDS, MAX_SEED};
use crate::hyperparameter::{self, Hyperparameter};
use crate::problem::{Problem, Source};
use crate::random::RandomState;
use crate::searcher::{Bracket, Searcher};
use crate::yaml::{self, Content, Node};

/// Trials of the largest grid.
const MAX_GRID: u64 = 2_000;

/// The content of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// The whole configuration, with defaults: what `pedl.get_experiment_config()` returns.
    pub configuration: Value,
    /// The model code.
    pub entrypoint: Option<Entrypoint>,
    /// Batches in one step.
    pub batches_per_step: u64,
    /// Validate at least every this many steps.
    pub min_validation_period: Option<u64>,
    /// Take a checkpoint at least every this many steps.
    pub min_checkpoint_period: Option<u64>,
    /// After which validations a checkpoint is taken.
    pub checkpoint_policy: CheckpointPolicy,
    /// How many checkpoints are kept.
    pub retention: Retention,
    /// How often a trial that fails is started again.
    pub max_restarts: u64,
    /// The seed that the configuration names.
    pub experiment_seed: Option<u32>,
    /// The metric by which validations are compared.
    pub metric: String,
    /// Whether a smaller value is better.
    pub smaller_is_better: bool,
    /// Which trials the experiment has.
    pub searcher: Searcher,
    /// By name.
    pub hyperparameters: BTreeMap<String, Hyperparameter>,
    /// `NAME=VALUE`, to be set in this order.
    pub environment_variables: Vec<String>,
    /// Fields that are set, but have no meaning on one machine, as dotted paths.
    pub unused: Vec<String>,
}

/// After which validations a checkpoint is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointPolicy {
    /// After those that are the best so far.
    Best,
    /// After all.
    All,
    /// After none.
    None,
}

/// How many checkpoints are kept: the union of what each number keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Retention {
    /// The best of the whole experiment.
    #[serde(rename = "save_experiment_best")]
    pub experiment_best: u64,
    /// The best of each trial.
    #[serde(rename = "save_trial_best")]
    pub trial_best: u64,
    /// The latest of each trial.
    #[serde(rename = "save_trial_latest")]
    pub trial_latest: u64,
}

/// The model code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entrypoint {
    /// A script, run as it is: a simple model definition.
    Script {
        /// Its path, below the model definition.
        script: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// `module:TrialClass`: a trial class.
    Trial(String),
}

/// One trial of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The values of its hyperparameters, by name.
    pub hyperparameters: Map<String, Value>,
    /// A UUID of version 4, drawn from the seed of the experiment.
    pub id: String,
    /// The seed of everything in it, below 2³¹.
    pub seed: u32,
}

/// The part of the complete JSON that has simple types.
#[derive(Deserialize)]
struct Simple {
    batches_per_step: u64,
    min_validation_period: Option<u64>,
    min_checkpoint_period: Option<u64>,
    checkpoint_policy: CheckpointPolicy,
    max_restarts: u64,
    reproducibility: Reproducibility,
    searcher: Metric,
}

#[derive(Deserialize)]
struct Reproducibility {
    experiment_seed: Option<u32>,
}

#[derive(Deserialize)]
struct Metric {
    metric: String,
    smaller_is_better: bool,
}

impl Experiment {
    /// Reads a configuration.
    ///
    /// Args:
    ///     `name`: the name of the file, for messages.
    ///     `text`: YAML 1.2.
    ///
    /// # Errors
    ///
    /// The first problem in it.
    pub fn read(name: &str, text: &str) -> Result<Self, Problem> {
        let source = Source { name, text };
        let root = yaml::read(source)?;
        let checked = check(source, &root, FIELDS)?;
        let value = checked.value;
        let searcher: Searcher = typed(&value["searcher"]);
        let simple: Simple = typed(&value);
        let experiment = Self {
            entrypoint: entrypoint(&value),
            batches_per_step: simple.batches_per_step,
            min_validation_period: simple.min_validation_period,
            min_checkpoint_period: simple.min_checkpoint_period,
            checkpoint_policy: simple.checkpoint_policy,
            retention: typed(&value["checkpoint_storage"]),
            max_restarts: simple.max_restarts,
            experiment_seed: simple.reproducibility.experiment_seed,
            metric: simple.searcher.metric,
            smaller_is_better: simple.searcher.smaller_is_better,
            searcher,
            hyperparameters: value["hyperparameters"]
                .as_object()
                .map(hyperparameter::nested)
                .unwrap_or_default(),
            environment_variables: environment_variables(&value),
            unused: checked.unused,
            configuration: value,
        };
        experiment.check_search(source, &root)?;
        experiment.check_variables(source, &root)?;
        Ok(experiment)
    }

    /// Checks of searches that the table of fields cannot express.
    fn check_search(&self, source: Source<'_>, root: &Node) -> Result<(), Problem> {
        let at = place(root, &["searcher"]);
        match &self.searcher {
            Searcher::Grid { .. } => match hyperparameter::grid_size(&self.hyperparameters) {
                Err(name) => {
                    let at = place(root, &["hyperparameters", &name]);
                    let what = format!("`hyperparameters.{name}` has no `count`");
                    return Err(source
                        .problem(at, what)
                        .expected("how many values the grid has of it"));
                }
                Ok(size) if size > MAX_GRID => {
                    let what = format!("the grid has {size} trials");
                    return Err(source
                        .problem(at, what)
                        .expected(format_args!("at most {MAX_GRID}")));
                }
                Ok(_) => {}
            },
            Searcher::Adaptive {
                target_trial_steps,
                step_budget,
                ..
            } if step_budget <= target_trial_steps => {
                let what = format!("`searcher.step_budget` is `{step_budget}`");
                let at = place(root, &["searcher", "step_budget"]);
                let expected =
                    format!("more than `target_trial_steps`, which is {target_trial_steps}");
                return Err(source.problem(at, what).expected(expected));
            }
            _ => {}
        }
        let is_empty = |bracket: &Bracket| bracket.0.first().is_some_and(|rung| rung.1 == 0);
        if let Some(bracket) = self
            .searcher
            .brackets()
            .iter()
            .find(|bracket| is_empty(bracket))
        {
            let rungs = bracket.0.len();
            let at = place(root, &["searcher", "step_budget"]);
            let what =
                format!("`searcher.step_budget` has no trial for the bracket of {rungs} rungs");
            return Err(source
                .problem(at, what)
                .expected("a larger budget, or fewer `max_rungs`"));
        }
        Ok(())
    }

    fn check_variables(&self, source: Source<'_>, root: &Node) -> Result<(), Problem> {
        let is_variable =
            |text: &&String| text.split_once('=').is_none_or(|(name, _)| name.is_empty());
        if self
            .environment_variables
            .iter()
            .any(|text| is_variable(&text))
        {
            let at = place(root, &["environment", "environment_variables"]);
            let what = "`environment.environment_variables` has an item without a name and `=`";
            return Err(source.problem(at, what).expected("NAME=VALUE"));
        }
        Ok(())
    }

    /// The number of trials in the search; `None` if it depends on their results.
    #[must_use]
    pub fn number_of_trials(&self) -> Option<u64> {
        match &self.searcher {
            Searcher::Single { .. } => Some(1),
            Searcher::Random { max_trials, .. } => Some(*max_trials),
            Searcher::Grid { .. } => hyperparameter::grid_size(&self.hyperparameters).ok(),
            Searcher::Adaptive { .. } | Searcher::AdaptiveSimple { .. } | Searcher::Pbt {} => None,
        }
    }

    /// The first trials of the search, in order, as an iterator.
    ///
    /// For each, hyperparameters are drawn in the order of their names, then the id, then the seed;
    /// all from one generator, so trial 7 is always the same, whoever requests it, and whether or
    /// not trial 6 was requested.
    pub fn trials(&self, experiment_seed: u32) -> impl Iterator<Item = Trial> {
        let mut random = RandomState::new(experiment_seed);
        let mut grid = match &self.searcher {
            Searcher::Grid { .. } => Some(
                hyperparameter::grid(&self.hyperparameters)
                    .unwrap_or_default()
                    .into_iter(),
            ),
            _ => None,
        };
        let number = self.number_of_trials().unwrap_or_else(|| {
            let first_rung = |bracket: &Bracket| bracket.0.first().map_or(0, |rung| rung.1);
            self.searcher.brackets().iter().map(first_rung).sum()
        });
        (0..number).map_while(move |_| {
            let hyperparameters = match &mut grid {
                Some(points) => points.next()?,
                None => hyperparameter::sample(&self.hyperparameters, &mut random),
            };
            let id = uuid(random.bytes());
            let seed = u32::try_from(random.up_to(MAX_SEED.cast_unsigned())).unwrap_or(0);
            Some(Trial {
                hyperparameters,
                id,
                seed,
            })
        })
    }
}

/// A UUID of version 4 from random bytes (RFC 4122, 4.4).
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A part of the complete JSON, as one of the types of this module.
fn typed<T: for<'a> Deserialize<'a>>(value: &Value) -> T {
    T::deserialize(value).expect("what the table of fields lets through has this type")
}

fn entrypoint(value: &Value) -> Option<Entrypoint> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(class) = text(&value["entrypoints"]["trial_class"]) {
        return Some(Entrypoint::Trial(class));
    }
    match &value["entrypoint"] {
        Value::String(class) => Some(Entrypoint::Trial(class.clone())),
        Value::Object(fields) => Some(Entrypoint::Script {
            script: text(&fields["script"])?,
            arguments: typed(&fields["args"]),
        }),
        _ => None,
    }
}

fn environment_variables(value: &Value) -> Vec<String> {
    let variables = &value["environment"]["environment_variables"];
    match variables {
        Value::Object(by_device) => typed(&by_device["cpu"]),
        list => typed(list),
    }
}

/// The position of a field in the file; if it is absent, that of the map that lacks it.
fn place(root: &Node, path: &[&str]) -> crate::problem::Position {
    let mut node = root;
    for name in path {
        let Content::Map(entries) = &node.content else {
            break;
        };
        match entries.iter().find(|entry| entry.key == *name) {
            Some(entry) => node = &entry.value,
            None => break,
        }
    }
    node.at
}

#[cfg(test)]
mod tests;
