//! Metrics of the training calls of a step. If the step trained several models, each has separate
//! metrics.
//!
//! A call returns either the value of its batch, or a running value of the epoch (Keras since 2.3).
//! From values of batches, a step gets the unweighted mean, to which a short last batch counts
//! fully. For running values, the hooks report the value of the step before it ends
//! ([`Averages::tell`]): the mean of the step alone, weighted as in the framework, or, for a metric
//! that is no mean, the value at the end of the step.
//!
//! | module | contents |
//! |---|---|
//! | `scalar` | the number in a recorded value |
//! | `search` | the metric that a search names, among those of a validation |
//! | `text` | metrics as text for people |

mod scalar;
mod search;
mod text;

use std::collections::HashMap;
use std::sync::Arc;

use crate::calls::value::{Decoder, Leaf, Malformed, Token};
use crate::calls::{Tables, TextId};
use scalar::scalar;
pub(crate) use search::validation_metric;
pub(crate) use text::{describe, list, rate, waiting};

/// The name of a value that a call returns alone.
const LOSS: &str = "loss";

/// The prefix of the identity of a training call; the model follows.
const TRAIN: &str = "train ";

/// Sums of the scalars that training calls returned, by call and name, in the order of their first
/// appearance.
#[derive(Debug, Default)]
pub(crate) struct Averages {
    sums: Vec<Sum>,
    /// The scalars of each call since the last `take_calls`; `None` if nobody needs them.
    calls: Option<Vec<OfCall>>,
    /// Names of the items, for calls that return a list.
    names: HashMap<TextId, Arc<[String]>>,
}

#[derive(Debug)]
struct Sum {
    identity: TextId,
    name: String,
    total: f64,
    count: u32,
    /// What the last call returned.
    last: f64,
    /// Replaces the mean as the value of the step.
    reported: Option<Reported>,
}

#[derive(Clone, Copy, Debug)]
struct Reported {
    value: f64,
    is_at_end: bool,
}

/// The identity of a call, and its scalars by name.
pub type OfCall = (TextId, Vec<(String, f64)>);

/// A metric of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) value: f64,
    /// It is the value at the end of the step, not a mean over the batches of the step.
    pub(crate) is_at_end: bool,
}

impl Averages {
    /// Sets the names of the items in the list that a call returns; an item with an empty name is
    /// no metric.
    pub(crate) fn set_names(&mut self, identity: TextId, names: Vec<String>) {
        self.names.insert(identity, names.into());
    }

    /// Adds the value that a call returned. Ignores anything but scalars.
    pub(crate) fn add(&mut self, identity: TextId, mut value: Decoder<'_>) {
        if let Some(calls) = &mut self.calls {
            calls.push((identity, Vec::new()));
        }
        // A value that does not follow the format is reported where it is decoded for use.
        let _ = self.try_add(identity, &mut value);
    }

    /// The values that the last calls of the current step returned: identity of the call, name,
    /// value.
    pub(crate) fn last_values(&self) -> Vec<(TextId, String, f64)> {
        self.sums
            .iter()
            .map(|sum| (sum.identity, sum.name.clone(), sum.last))
            .collect()
    }

    /// Sets the value of a metric of the current step, in place of the mean over its calls.
    pub(crate) fn tell(&mut self, identity: TextId, name: &str, value: f64, is_at_end: bool) {
        let is_it = |sum: &&mut Sum| sum.identity == identity && sum.name == name;
        if let Some(sum) = self.sums.iter_mut().find(is_it) {
            sum.reported = Some(Reported { value, is_at_end });
        }
    }

    /// Returns the metrics of the step, and resets. If the step trained several models, each name
    /// begins with `model N `; N counts models from 0, by their first compute call.
    pub(crate) fn take(&mut self, tables: &Tables) -> Vec<Metric> {
        let is_of_one = self
            .sums
            .windows(2)
            .all(|pair| pair[0].identity == pair[1].identity);
        let name = |sum: &Sum| {
            if is_of_one {
                return sum.name.clone();
            }
            let identity = String::from_utf8_lossy(tables.text(sum.identity));
            let model = identity.strip_prefix(TRAIN).unwrap_or(&identity);
            format!("{model} {}", sum.name)
        };
        let metric = |sum: &Sum| {
            let own = Reported {
                value: sum.total / f64::from(sum.count),
                is_at_end: false,
            };
            let reported = sum.reported.unwrap_or(own);
            Metric {
                name: name(sum),
                value: reported.value,
                is_at_end: reported.is_at_end,
            }
        };
        let metrics = self.sums.iter().map(metric).collect();
        self.sums.clear();
        metrics
    }

    /// Keeps the scalars of each call until they are taken.
    pub(crate) fn keep_calls(&mut self) {
        self.calls.get_or_insert_with(Vec::new);
    }

    /// The scalars of each call since the last call of this method.
    pub(crate) fn take_calls(&mut self) -> Vec<OfCall> {
        self.calls.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Resets the averages.
    pub(crate) fn clear(&mut self) {
        self.sums.clear();
    }

    fn try_add(&mut self, identity: TextId, value: &mut Decoder<'_>) -> Result<(), Malformed> {
        match value.node()? {
            Token::Dict(count) => {
                for place in 0..count {
                    let Token::Str(Leaf::Inline(name)) = value.key()? else {
                        return Ok(());
                    };
                    match value.node()? {
                        // The rest after a container is skipped: no framework returns a metric
                        // there.
                        Token::List(_) | Token::Tuple(_) | Token::Dict(_) => return Ok(()),
                        token => {
                            if let Some(scalar) = scalar(&token) {
                                self.add_scalar(identity, place, name, scalar);
                            }
                        }
                    }
                }
            }
            Token::List(count) | Token::Tuple(count) => {
                let Some(names) = self.names.get(&identity).cloned() else {
                    return Ok(());
                };
                for (place, name) in names.iter().enumerate().take(count) {
                    match value.node()? {
                        Token::List(_) | Token::Tuple(_) | Token::Dict(_) => return Ok(()),
                        token => {
                            if let Some(scalar) = scalar(&token).filter(|_| !name.is_empty()) {
                                self.add_scalar(identity, place, name.as_bytes(), scalar);
                            }
                        }
                    }
                }
            }
            token => {
                if let Some(scalar) = scalar(&token) {
                    self.add_scalar(identity, 0, LOSS.as_bytes(), scalar);
                }
            }
        }
        Ok(())
    }

    /// `place` is the likely position of the name, from its last use.
    fn add_scalar(&mut self, identity: TextId, place: usize, name: &[u8], value: f64) {
        if let Some((_, call)) = self.calls.as_mut().and_then(|calls| calls.last_mut()) {
            call.push((String::from_utf8_lossy(name).into_owned(), value));
        }
        let is_it = |sum: &Sum| sum.identity == identity && sum.name.as_bytes() == name;
        let place = if self.sums.get(place).is_some_and(is_it) {
            Some(place)
        } else {
            self.sums.iter().position(is_it)
        };
        let place = place.unwrap_or_else(|| {
            let name = String::from_utf8_lossy(name).into_owned();
            self.sums.push(Sum {
                identity,
                name,
                total: 0.0,
                count: 0,
                last: 0.0,
                reported: None,
            });
            self.sums.len() - 1
        });
        let sum = &mut self.sums[place];
        sum.total += value;
        sum.count += 1;
        sum.last = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::value::{ArrayClass, Encoded};

    /// Names and values; none of them is a value at the end of the step.
    fn means(averages: &mut Averages, tables: &Tables) -> Vec<(String, f64)> {
        let metrics = averages.take(tables);
        assert!(metrics.iter().all(|metric| !metric.is_at_end));
        metrics
            .into_iter()
            .map(|metric| (metric.name, metric.value))
            .collect()
    }

    #[test]
    fn what_is_told_of_a_step_takes_the_place_of_the_mean_of_running_values() {
        let mut tables = Tables::default();
        let identity = tables.intern(b"train model 0");
        let mut averages = Averages::default();
        averages.set_names(identity, vec!["loss".into(), "auc".into(), "own".into()]);
        for number in [4.0, 2.0] {
            let mut value = Encoded::default();
            let mut encoder = value.encoder();
            encoder.list(3);
            for _ in 0..3 {
                encoder.float(number);
            }
            add(&mut averages, identity, &value);
        }
        let last = averages.last_values();
        assert_eq!(last.len(), 3);
        assert_eq!(last[1], (identity, "auc".to_owned(), 2.0));
        averages.tell(identity, "loss", 0.5, false);
        averages.tell(identity, "auc", 2.0, true);
        averages.tell(identity, "unknown", 9.0, true);
        let metric = |name: &str, value, is_at_end| Metric {
            name: name.to_owned(),
            value,
            is_at_end,
        };
        assert_eq!(
            averages.take(&tables),
            [
                metric("loss", 0.5, false),
                metric("auc", 2.0, true),
                metric("own", 3.0, false)
            ]
        );
        // The next step starts without a reported value.
        let mut value = Encoded::default();
        value.encoder().float(1.0);
        add(&mut averages, identity, &value);
        assert_eq!(means(&mut averages, &tables), [("loss".to_owned(), 1.0)]);
    }

    fn add(averages: &mut Averages, identity: TextId, value: &Encoded) {
        averages.add(identity, value.decoder());
    }

    #[test]
    fn averages_are_unweighted_and_by_name() {
        let mut tables = crate::calls::Tables::default();
        let identity = tables.intern(b"train model 0");
        let mut averages = Averages::default();
        for (loss, accuracy) in [(1.0_f32, 0.25_f32), (2.0, 0.75)] {
            let mut value = Encoded::default();
            let mut encoder = value.encoder();
            encoder.dict(2);
            for (name, number) in [("loss", loss), ("accuracy", accuracy)] {
                encoder.key().str(name.as_bytes());
                encoder.array(ArrayClass::Scalar, "<f4", &[], &number.to_le_bytes());
            }
            add(&mut averages, identity, &value);
        }
        let expected = [("loss".to_owned(), 1.5), ("accuracy".to_owned(), 0.5)];
        assert_eq!(means(&mut averages, &tables), expected);
        assert!(averages.take(&tables).is_empty());
    }

    #[test]
    fn what_is_no_scalar_or_has_no_name_stands_in_no_others_way() {
        let mut tables = crate::calls::Tables::default();
        let identity = tables.intern(b"session train");
        let mut averages = Averages::default();
        averages.set_names(
            identity,
            vec!["logits".into(), String::new(), "loss".into()],
        );
        let mut value = Encoded::default();
        let mut encoder = value.encoder();
        encoder.list(3);
        encoder.array(ArrayClass::Ndarray, "<f4", &[2], &[0; 8]);
        encoder.int(7);
        encoder.float(0.5);
        add(&mut averages, identity, &value);
        assert_eq!(means(&mut averages, &tables), [("loss".to_owned(), 0.5)]);
    }

    #[test]
    fn what_is_no_scalar_in_a_dict_stands_in_no_others_way() {
        let mut tables = crate::calls::Tables::default();
        let identity = tables.intern(b"train model 0");
        let mut averages = Averages::default();
        let mut value = Encoded::default();
        let mut encoder = value.encoder();
        encoder.dict(2);
        encoder.key().str(b"rows");
        encoder.array(ArrayClass::Ndarray, "<f4", &[2], &[0; 8]);
        encoder.key().str(b"loss");
        encoder.float(0.5);
        add(&mut averages, identity, &value);
        assert_eq!(means(&mut averages, &tables), [("loss".to_owned(), 0.5)]);
    }

    #[test]
    fn items_of_a_list_have_the_names_that_were_told() {
        let mut tables = crate::calls::Tables::default();
        let (known, unknown) = (
            tables.intern(b"train model 0"),
            tables.intern(b"train model 1"),
        );
        let mut averages = Averages::default();
        averages.set_names(known, vec!["loss".into(), "acc".into()]);
        for identity in [known, unknown] {
            let mut value = Encoded::default();
            let mut encoder = value.encoder();
            encoder.list(2);
            encoder.float(3.0);
            encoder.int(1);
            add(&mut averages, identity, &value);
        }
        assert_eq!(
            means(&mut averages, &tables),
            [("loss".to_owned(), 3.0), ("acc".to_owned(), 1.0)]
        );
    }

    #[test]
    fn models_trained_in_turns_have_averages_of_their_own() {
        let mut tables = Tables::default();
        let models = [
            tables.intern(b"train model 0"),
            tables.intern(b"train model 1"),
        ];
        let mut averages = Averages::default();
        for (identity, loss) in [
            (models[0], 1.0),
            (models[1], 10.0),
            (models[0], 3.0),
            (models[1], 30.0),
        ] {
            let mut value = Encoded::default();
            value.encoder().float(loss);
            add(&mut averages, identity, &value);
        }
        let expected = [
            ("model 0 loss".to_owned(), 2.0),
            ("model 1 loss".to_owned(), 20.0),
        ];
        assert_eq!(means(&mut averages, &tables), expected);
    }

    #[test]
    fn the_scalars_of_each_call_are_kept_where_somebody_asks() {
        let mut tables = Tables::default();
        let identity = tables.intern(b"train model 0");
        let mut averages = Averages::default();
        let train = |averages: &mut Averages, loss| {
            let mut value = Encoded::default();
            value.encoder().float(loss);
            add(averages, identity, &value);
        };
        train(&mut averages, 1.0);
        assert!(averages.take_calls().is_empty());
        averages.keep_calls();
        train(&mut averages, 2.0);
        // A replay clears the averages at the end of a step.
        averages.clear();
        train(&mut averages, 3.0);
        let of = |loss| (identity, vec![("loss".to_owned(), loss)]);
        assert_eq!(averages.take_calls(), [of(2.0), of(3.0)]);
        assert!(averages.take_calls().is_empty());
    }
}
