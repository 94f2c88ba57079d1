//! Compares two states of a trial after the same batch: every tensor by its hash, and the rest
//! member by member.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::verify::observe::{State, TensorFact};

/// Printed output is compared as text: its length depends on clocks.
const LEFT_OUT: [&str; 1] = ["/output"];

/// Names of optimizers that occur in names of variables.
const OPTIMIZERS: [&str; 16] = [
    "adam",
    "adamw",
    "adamax",
    "nadam",
    "adadelta",
    "adagrad",
    "adafactor",
    "sgd",
    "rmsprop",
    "ftrl",
    "lion",
    "lamb",
    "muon",
    "loss_scale_optimizer",
    "momentum",
    "optimizer",
];

/// Last parts of the names of variables that accumulate metrics.
const ACCUMULATORS: [&str; 6] = [
    "total",
    "count",
    "true_positives",
    "true_negatives",
    "false_positives",
    "false_negatives",
];

/// The purpose of a tensor, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The position of a random stream.
    Stream,
    /// A count of batches.
    Counter,
    /// A value that an optimizer keeps for a weight.
    Slot,
    /// A weight of a model.
    Weight,
    /// An accumulator of a metric.
    Metric,
}

impl Class {
    fn of(key: &str, name: &str, fact: &TensorFact) -> Self {
        let lower = name.to_lowercase();
        let lower = lower.split(':').next().unwrap_or_default();
        let is_numbered = |part: &str| {
            part.trim_end_matches(|it: char| it.is_ascii_digit())
                .trim_end_matches('_')
                .to_owned()
        };
        let last = is_numbered(lower.rsplit('/').next().unwrap_or_default());
        let is_integer = fact.dtype.contains("int");
        let mut parts = lower.split('/').map(is_numbered);
        if key.starts_with("streams/")
            || lower.contains("seed_generator")
            || lower.contains("pedl_random")
        {
            Self::Stream
        } else if is_integer
            && fact.shape.is_empty()
            && ["iteration", "iterations", "step", "counter"].contains(&&*last)
        {
            Self::Counter
        } else if parts.any(|part| OPTIMIZERS.contains(&&*part)) {
            Self::Slot
        } else if ACCUMULATORS.contains(&&*last) {
            Self::Metric
        } else {
            Self::Weight
        }
    }
}

/// A tensor that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorDifference {
    pub(crate) class: Class,
    /// Its name for people.
    pub(crate) name: String,
    /// `17, not 18`, if it is a number.
    pub(crate) values: Option<String>,
}

/// The differences between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateDifference {
    pub(crate) batch: u64,
    /// The most important ones first.
    pub(crate) tensors: Vec<TensorDifference>,
    /// Members of the rest, as JSON pointers.
    pub(crate) rest: Vec<String>,
    /// How many tensors were compared.
    pub(crate) compared: usize,
}

impl StateDifference {
    /// Compares the state of an undisturbed run with another one. `excluded` members of the rest
    /// are not compared.
    pub(crate) fn new(expected: &State, found: &State, excluded: &BTreeSet<String>) -> Self {
        let mut difference = Self {
            batch: expected.batch,
            compared: expected.tensors.len(),
            ..Self::default()
        };
        let keys: BTreeSet<_> = expected
            .tensors
            .keys()
            .chain(found.tensors.keys())
            .collect();
        for key in keys {
            let (one, other) = (expected.tensors.get(key), found.tensors.get(key));
            let Some(fact) = one.or(other).filter(|_| one != other) else {
                continue;
            };
            let name = if one.is_some() { expected } else { found }.name_of(key);
            let values = match (one, other) {
                (Some(one), Some(other)) => one
                    .scalar
                    .as_ref()
                    .zip(other.scalar.as_ref())
                    .map(|(one, other)| format!("{other}, not {one}")),
                (None, _) => Some("no undisturbed run has it".to_owned()),
                (_, None) => Some("it is missing".to_owned()),
            };
            difference.tensors.push(TensorDifference {
                class: Class::of(key, &name, fact),
                name,
                values,
            });
        }
        difference
            .tensors
            .sort_by(|one, other| (one.class, &one.name).cmp(&(other.class, &other.name)));
        differing_members(&expected.rest, &found.rest, "", &mut difference.rest);
        let is_left_out = |member: &String| {
            excluded.contains(member)
                || LEFT_OUT.iter().any(|left_out| member.starts_with(left_out))
        };
        difference.rest.retain(|member| !is_left_out(member));
        difference
    }

    /// Whether the two are equal.
    pub(crate) fn is_none(&self) -> bool {
        self.tensors.is_empty() && self.rest.is_empty()
    }

    /// The tensors of a class.
    pub(crate) fn of(&self, class: Class) -> Vec<&TensorDifference> {
        self.tensors.iter().filter(|it| it.class == class).collect()
    }
}

fn differing_members(one: &Value, other: &Value, path: &str, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<_> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let member = |of: &serde_json::Map<String, Value>| {
                    of.get(key).cloned().unwrap_or(Value::Null)
                };
                differing_members(
                    &member(one),
                    &member(other),
                    &format!("{path}/{key}"),
                    found,
                );
            }
        }
        _ if one != other => found.push(path.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// A state of scalars, by their names for people.
    pub(crate) fn state(batch: u64, tensors: &[(&str, f32)], rest: Value) -> State {
        let fact = |value: f32, name: &str| TensorFact {
            dtype: if name.contains("iteration") {
                "int64"
            } else {
                "float32"
            }
            .to_owned(),
            shape: Vec::new(),
            hash: blake3::hash(&value.to_le_bytes()),
            scalar: Some(value.to_string()),
        };
        let mut rest = rest;
        let mut facts = BTreeMap::new();
        for (number, (name, value)) in tensors.iter().enumerate() {
            if name.starts_with("streams/") {
                facts.insert((*name).to_owned(), fact(*value, name));
                continue;
            }
            facts.insert(format!("keras/{number}"), fact(*value, name));
            rest["keras"]["paths"][number.to_string()] = json!(name);
        }
        State {
            batch,
            tensors: facts,
            rest,
        }
    }

    #[test]
    fn tensors_are_told_by_what_they_are_for() {
        let one = [
            ("dense/kernel", 1.0),
            ("adam/iteration", 17.0),
            ("adam/dense_kernel_momentum", 0.5),
            ("dropout/seed_generator/seed_generator_state", 4.0),
            ("accuracy/total", 3.0),
            ("streams/numpy", 1.0),
            ("training/Adam/m_0", 1.0),
        ];
        let other = one.map(|(name, value)| (name, value + 1.0));
        let excluded = BTreeSet::from(["/clock/now".to_owned()]);
        let expected = state(
            9,
            &one,
            json!({"output": {"stdout": 7}, "clock": {"now": 1}, "streams": {"draws": 3}}),
        );
        let found = state(
            9,
            &other,
            json!({"output": {"stdout": 9}, "clock": {"now": 2}, "streams": {"draws": 4}}),
        );
        let difference = StateDifference::new(&expected, &found, &excluded);
        let names: Vec<_> = difference
            .tensors
            .iter()
            .map(|it| (it.class, it.name.as_str()))
            .collect();
        let right = [
            (Class::Stream, "dropout/seed_generator/seed_generator_state"),
            (Class::Stream, "the stream of `numpy.random`"),
            (Class::Counter, "adam/iteration"),
            (Class::Slot, "adam/dense_kernel_momentum"),
            (Class::Slot, "training/Adam/m_0"),
            (Class::Weight, "dense/kernel"),
            (Class::Metric, "accuracy/total"),
        ];
        assert_eq!(names, right);
        assert_eq!(difference.tensors[2].values.as_deref(), Some("18, not 17"));
        assert_eq!(difference.rest, ["/streams/draws"]);
        assert!(StateDifference::new(&expected, &expected, &excluded).is_none());
    }
}
