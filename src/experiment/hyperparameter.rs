//! Hyperparameters: how a value is drawn, and which values make up a grid.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::random::RandomState;

/// One hyperparameter of a configuration.
///
/// Source of the distributions and of the order of draws: Determined 4bff89a70b,
/// master/pkg/searcher/{hyperparameters,grid}.go.
#[derive(Clone, Debug, PartialEq)]
pub enum Hyperparameter {
    /// Always the same value.
    Const(Value),
    /// An integer from `minval` to `maxval`. As in PEDL, random search excludes `maxval` itself,
    /// and a grid includes it.
    Int {
        /// The smallest value.
        minval: i64,
        /// The end of the range, above `minval`.
        maxval: i64,
        /// The number of its values in a grid.
        count: Option<u64>,
    },
    /// A number, evenly distributed.
    Double {
        /// The smallest value.
        minval: f64,
        /// The end of the range, above `minval`.
        maxval: f64,
        /// The number of its values in a grid.
        count: Option<u64>,
    },
    /// A power of `base` whose exponent is evenly distributed.
    Log {
        /// Above 0.
        base: f64,
        /// The smallest exponent.
        minval: f64,
        /// The end of the range of exponents, above `minval`.
        maxval: f64,
        /// The number of its values in a grid.
        count: Option<u64>,
    },
    /// One of some values.
    Categorical(Vec<Value>),
    /// Hyperparameters by name.
    Nested(BTreeMap<String, Hyperparameter>),
}

impl Hyperparameter {
    /// From the JSON of a checked configuration.
    pub(crate) fn of(value: &Value) -> Self {
        let Value::Object(fields) = value else {
            return Self::Const(value.clone());
        };
        let real = |name: &str| fields[name].as_f64().expect("a checked number");
        let whole = |name: &str| fields[name].as_i64().expect("a checked integer");
        let count = fields.get("count").and_then(Value::as_u64);
        match fields.get("type").and_then(Value::as_str) {
            None => Self::Nested(nested(fields)),
            Some("const") => Self::Const(fields["val"].clone()),
            Some("int") => Self::Int {
                minval: whole("minval"),
                maxval: whole("maxval"),
                count,
            },
            Some("double") => Self::Double {
                minval: real("minval"),
                maxval: real("maxval"),
                count,
            },
            Some("log") => Self::Log {
                base: real("base"),
                minval: real("minval"),
                maxval: real("maxval"),
                count,
            },
            Some(_) => Self::Categorical(fields["vals"].as_array().cloned().unwrap_or_default()),
        }
    }

    /// Draws a value. Constants draw nothing.
    pub(crate) fn sample(&self, random: &mut RandomState) -> Value {
        match self {
            Self::Const(value) => value.clone(),
            Self::Int { minval, maxval, .. } => {
                let last = maxval.wrapping_sub(*minval).cast_unsigned() - 1;
                json!(minval.wrapping_add_unsigned(random.up_to(last)))
            }
            Self::Double { minval, maxval, .. } => json!(random.uniform(*minval, *maxval)),
            Self::Log {
                base,
                minval,
                maxval,
                ..
            } => json!(base.powf(random.uniform(*minval, *maxval))),
            Self::Categorical(values) => {
                let last = values.len() as u64 - 1;
                let chosen = usize::try_from(random.up_to(last)).expect("an index");
                values[chosen].clone()
            }
            Self::Nested(all) => Value::Object(sample(all, random)),
        }
    }

    /// The values of a grid, in order. `None` if a range has no `count`.
    pub(crate) fn grid(&self) -> Option<Vec<Value>> {
        match self {
            Self::Const(value) => Some(vec![value.clone()]),
            Self::Categorical(values) => Some(values.clone()),
            Self::Nested(all) => {
                let points = grid(all).ok()?;
                Some(points.into_iter().map(Value::Object).collect())
            }
            Self::Int {
                minval,
                maxval,
                count,
            } => {
                #[expect(clippy::cast_precision_loss, reason = "as in the reference")]
                let (low, high) = (*minval as f64, *maxval as f64);
                let integers = maxval
                    .wrapping_sub(*minval)
                    .cast_unsigned()
                    .saturating_add(1);
                let points = evenly((*count)?.min(integers), low, high);
                #[expect(clippy::cast_possible_truncation, reason = "within the range")]
                Some(points.map(|point| json!(point.round() as i64)).collect())
            }
            Self::Double {
                minval,
                maxval,
                count,
            } => Some(
                evenly((*count)?, *minval, *maxval)
                    .map(|point| json!(point))
                    .collect(),
            ),
            Self::Log {
                base,
                minval,
                maxval,
                count,
            } => {
                let points = evenly((*count)?, *minval, *maxval);
                Some(points.map(|point| json!(base.powf(point))).collect())
            }
        }
    }

    /// The number of its values in a grid; `None` if a range has no `count`.
    fn grid_size(&self) -> Option<u64> {
        match self {
            Self::Const(_) => Some(1),
            Self::Categorical(values) => Some(values.len() as u64),
            Self::Nested(all) => grid_size(all).ok(),
            Self::Int {
                minval,
                maxval,
                count,
            } => {
                let integers = maxval
                    .wrapping_sub(*minval)
                    .cast_unsigned()
                    .saturating_add(1);
                Some((*count)?.min(integers))
            }
            Self::Double { count, .. } | Self::Log { count, .. } => *count,
        }
    }
}

/// `count` points with equal distances, both ends included; a single point is the middle.
fn evenly(count: u64, low: f64, high: f64) -> impl Iterator<Item = f64> {
    #[expect(clippy::cast_precision_loss, reason = "a grid has at most 2000 points")]
    (0..count).map(move |point| {
        if count == 1 {
            f64::midpoint(low, high)
        } else {
            low + point as f64 * (high - low) / (count - 1) as f64
        }
    })
}

/// Hyperparameters by name, from the JSON of a checked configuration.
pub(crate) fn nested(fields: &Map<String, Value>) -> BTreeMap<String, Hyperparameter> {
    fields
        .iter()
        .map(|(name, value)| (name.clone(), Hyperparameter::of(value)))
        .collect()
}

/// Draws a value for each, in the order of their names.
pub(crate) fn sample(
    all: &BTreeMap<String, Hyperparameter>,
    random: &mut RandomState,
) -> Map<String, Value> {
    all.iter()
        .map(|(name, one)| (name.clone(), one.sample(random)))
        .collect()
}

/// All points of the grid: names in order, the last one varies fastest.
///
/// # Errors
///
/// The name of a hyperparameter that is a range without `count`.
pub(crate) fn grid(
    all: &BTreeMap<String, Hyperparameter>,
) -> Result<Vec<Map<String, Value>>, String> {
    let mut points = vec![Map::new()];
    for (name, one) in all {
        let values = one.grid().ok_or_else(|| name.clone())?;
        points = points
            .iter()
            .flat_map(|point| {
                values.iter().map(move |value| {
                    let mut point = point.clone();
                    point.insert(name.clone(), value.clone());
                    point
                })
            })
            .collect();
    }
    Ok(points)
}

/// The number of points of the grid, without making them.
///
/// # Errors
///
/// As of [`grid`].
pub(crate) fn grid_size(all: &BTreeMap<String, Hyperparameter>) -> Result<u64, String> {
    all.iter().try_fold(1_u64, |size, (name, one)| {
        let values = one.grid_size().ok_or_else(|| name.clone())?;
        Ok(size.saturating_mul(values))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Hyperparameter, grid, nested};

    fn values(field: &serde_json::Value) -> Vec<serde_json::Value> {
        Hyperparameter::of(field).grid().expect("a count")
    }

    #[test]
    fn a_grid_has_both_ends_and_of_one_point_the_middle() {
        let int = |minval, maxval, count| {
            values(&json!({"type": "int", "minval": minval, "maxval": maxval, "count": count}))
        };
        assert_eq!(int(0, 10, 3), [0, 5, 10]);
        assert_eq!(int(0, 10, 1), [5]);
        assert_eq!(int(0, 5, 1), [3]);
        assert_eq!(int(1, 3, 100), [1, 2, 3]);
        let double = json!({"type": "double", "minval": 0.0, "maxval": 1.0, "count": 5});
        assert_eq!(values(&double), [0.0, 0.25, 0.5, 0.75, 1.0]);
        let log = json!({"type": "log", "base": 10.0, "minval": -4.0, "maxval": -2.0, "count": 3});
        assert_eq!(values(&log), [1e-4, 1e-3, 1e-2]);
    }

    #[test]
    fn in_a_grid_names_are_sorted_and_the_last_varies_fastest() {
        let all = json!({
            "b": {"type": "categorical", "vals": ["x", "y"]},
            "a": {"type": "int", "minval": 1, "maxval": 2, "count": 2},
            "c": {"d": {"type": "categorical", "vals": [true]}, "e": 7},
        });
        let points = grid(&nested(all.as_object().expect("a map"))).expect("counts");
        let expected = [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
            .map(|(a, b)| json!({"a": a, "b": b, "c": {"d": true, "e": 7}}));
        assert_eq!(
            points
                .into_iter()
                .map(serde_json::Value::from)
                .collect::<Vec<_>>(),
            expected
        );
    }
}
