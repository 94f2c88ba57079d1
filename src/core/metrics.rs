//! Metrics of the training calls of a step. If the step trained several models, each has separate
//! metrics.
//!
//! A call returns either the value of its batch, or a running value of the epoch (Keras since 2.3).
//! From values of batches, a step gets the unweighted mean, to which a short last batch counts
//! fully. For running values, the hooks report the value of the step before it ends
//! ([`Averages::tell`]): the mean of the step alone, weighted as in the framework, or, for a metric
//! that is no mean, the value at the end of the step.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::calls::value::{Decoder, Leaf, Malformed, Token};
use crate::calls::{Tables, TextId};
use crate::error::{self, Class, Kind};
use crate::training::DataWait;

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
    told: Option<Told>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
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
            sum.told = Some(Told { value, is_at_end });
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
            let own = Told {
                value: sum.total / f64::from(sum.count),
                is_at_end: false,
            };
            let told = sum.told.unwrap_or(own);
            Metric {
                name: name(sum),
                value: told.value,
                is_at_end: told.is_at_end,
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
                told: None,
            });
            self.sums.len() - 1
        });
        let sum = &mut self.sums[place];
        sum.total += value;
        sum.count += 1;
        sum.last = value;
    }
}

/// The part of a line about a step that follows the batches.
pub(crate) fn describe(metrics: &[(String, f64)], speed: Option<f64>) -> String {
    let metrics = match list(metrics) {
        none if none.is_empty() => none,
        some => format!(": {some}"),
    };
    metrics + &speed.map_or(String::new(), |speed| format!("; {}", rate(speed)))
}

/// Metrics as readable text.
pub(crate) fn list(metrics: &[(String, f64)]) -> String {
    let metrics: Vec<_> = metrics
        .iter()
        .map(|(name, value)| format!("{name} {}", Number(*value)))
        .collect();
    metrics.join(", ")
}

/// A speed as readable text.
pub(crate) fn rate(batches_per_second: f64) -> String {
    let digits = usize::from(batches_per_second < 100.0);
    format!("{batches_per_second:.digits$} batches/s")
}

/// From this share of a step on, a message reports the wait for data; from the second one on, also
/// what may help.
const TOLD: f64 = 0.1;
const HELPED: f64 = 0.2;

/// The share of the seconds of a step that it waited for data, if it is notable, and the number of
/// workers that would avoid it.
pub(crate) fn waiting(wait: DataWait, seconds: f64) -> String {
    let share = wait.seconds / seconds;
    // In a step that a replay left half done, the wait may be longer than the step.
    if !(TOLD..=1.0).contains(&share) {
        return String::new();
    }
    let told = format!(", waiting for data {:.0} %", share * 100.0);
    // One worker takes this many times longer to build a batch than training takes to compute on
    // it.
    let needed = (f64::from(wait.workers.max(1)) / (1.0 - share)).ceil();
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_precision_loss, reason = "processors are few")]
    let advised = needed.min(most as f64);
    if share >= HELPED && advised > f64::from(wait.workers) {
        format!("{told}: try workers={advised:.0}")
    } else {
        told
    }
}

/// The prefix of metrics of a validation in Keras.
const VALIDATION: &str = "val_";

/// Names of accuracy in Keras: the short one up to 2.2, the long one from 2.3 on.
const ACCURACY: [&str; 2] = ["acc", "accuracy"];

/// The value of the metric that a search names: under its exact name, with or without `val_`, and
/// in either spelling of accuracy.
///
/// # Errors
///
/// The validation has no metric of this name.
pub(crate) fn validation_metric(metrics: &[(String, f64)], wanted: &str) -> error::Result<f64> {
    let bare = |name: &str| name.strip_prefix(VALIDATION).unwrap_or(name).to_owned();
    let value_of = |name: &str| {
        let found = metrics.iter().find(|(known, _)| bare(known) == name);
        found.map(|(_, value)| *value)
    };
    let called = |name: &str| metrics.iter().find(|(known, _)| known == name);
    let behind_prefix = format!("{VALIDATION}{wanted}");
    if let Some((_, value)) = called(wanted).or_else(|| called(&behind_prefix)) {
        return Ok(*value);
    }
    let wanted_bare = bare(wanted);
    let [short, long] = ACCURACY;
    let other_spelling = match wanted_bare.strip_suffix(long) {
        Some(head) => Some(format!("{head}{short}")),
        None => wanted_bare
            .strip_suffix(short)
            .map(|head| format!("{head}{long}")),
    };
    value_of(&wanted_bare)
        .or_else(|| value_of(&other_spelling?))
        .ok_or_else(|| {
            let known: Vec<_> = metrics
                .iter()
                .map(|(name, _)| format!("`{name}`"))
                .collect();
            MissingMetric {
                wanted: wanted.to_owned(),
                known: known.join(", "),
            }
            .into()
        })
}

/// No validation has the metric of the search.
#[derive(Debug)]
struct MissingMetric {
    wanted: String,
    known: String,
}

impl Kind for MissingMetric {
    fn class(&self) -> Class {
        Class::WrongConfiguration
    }

    fn hint(&self) -> Option<String> {
        Some("name one of these as `searcher.metric` in the configuration".to_owned())
    }
}

impl fmt::Display for MissingMetric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, known } = self;
        write!(
            formatter,
            "`searcher.metric` is `{wanted}`, and the validation has no metric of this name\n  \
             it has: {known}\n  the run was stopped at its first validation"
        )
    }
}

/// A number for readers: four digits after the point, unless they would hide its value.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if (100.0..1e7).contains(&size) {
            write!(formatter, "{:.0}", self.0)
        } else if size == 0.0 || (1e-3..100.0).contains(&size) || !size.is_finite() {
            write!(formatter, "{:.4}", self.0)
        } else {
            write!(formatter, "{:.4e}", self.0)
        }
    }
}

/// The number in a node, if it is one.
fn scalar(token: &Token<'_>) -> Option<f64> {
    match *token {
        Token::Bool(value) => Some(f64::from(u8::from(value))),
        #[expect(clippy::cast_precision_loss, reason = "an average is rounded anyhow")]
        Token::Int(value) => Some(value as f64),
        Token::Float(value) => Some(value),
        Token::Array {
            dtype,
            shape,
            bytes: Leaf::Inline(bytes),
            ..
        } if shape.rank() == 0 => element(dtype, bytes),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average is rounded anyhow")]
fn element(dtype: &str, bytes: &[u8]) -> Option<f64> {
    Some(match dtype {
        "<f4" => f32::from_le_bytes(bytes.try_into().ok()?).into(),
        "<f8" => f64::from_le_bytes(bytes.try_into().ok()?),
        "<f2" => from_half(u16::from_le_bytes(bytes.try_into().ok()?)),
        "bfloat16" => {
            let bits = u16::from_le_bytes(bytes.try_into().ok()?);
            f32::from_bits(u32::from(bits) << 16).into()
        }
        "<i4" => i32::from_le_bytes(bytes.try_into().ok()?).into(),
        "<i8" => i64::from_le_bytes(bytes.try_into().ok()?) as f64,
        "<u4" => u32::from_le_bytes(bytes.try_into().ok()?).into(),
        "<u8" => u64::from_le_bytes(bytes.try_into().ok()?) as f64,
        _ => return None,
    })
}

/// The value of an IEEE 754 half-precision number.
fn from_half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metric_of_a_search_has_several_spellings() {
        let metrics = [("val_loss".to_owned(), 0.5), ("val_acc".to_owned(), 0.9)];
        for (wanted, value) in [
            ("loss", 0.5),
            ("val_loss", 0.5),
            ("acc", 0.9),
            ("accuracy", 0.9),
            ("val_accuracy", 0.9),
        ] {
            let found = validation_metric(&metrics, wanted).expect(wanted);
            assert_eq!(found.to_bits(), f64::to_bits(value), "{wanted}");
        }
        let of_batches = [
            ("val_loss".to_owned(), 0.5),
            ("val_val_acc".to_owned(), 0.9),
        ];
        let found =
            validation_metric(&of_batches, "val_acc").expect("a metric is called `val_acc`");
        assert_eq!(found.to_bits(), f64::to_bits(0.9));
        let error = validation_metric(&metrics, "error").expect_err("none of this name");
        assert!(
            error.to_string().contains("`val_loss`, `val_acc`"),
            "{error}"
        );
        assert_eq!(error.exit_code(), 65);
    }
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

    #[test]
    fn a_half_is_what_numpy_says() {
        let known = [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2_f64.powi(-24)),
            (0x7bff, 65504.0),
        ];
        for (bits, value) in known {
            assert_eq!(from_half(bits).to_bits(), f64::to_bits(value), "{bits:#x}");
        }
        assert!(from_half(0x7c00).is_infinite() && from_half(0x7e00).is_nan());
    }

    #[test]
    fn numbers_are_written_as_one_reads_them() {
        for (number, text) in [
            (0.0, "0.0000"),
            (0.341_234, "0.3412"),
            (-12.5, "-12.5000"),
            (412.3, "412"),
            (0.000_012_34, "1.2340e-5"),
            (1e9, "1.0000e9"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Number(number).to_string(), text);
        }
        let metrics = [("loss".to_owned(), 0.5), ("accuracy".to_owned(), 1.0)];
        assert_eq!(
            describe(&metrics, Some(412.0)),
            ": loss 0.5000, accuracy 1.0000; 412 batches/s"
        );
        assert_eq!(describe(&[], None), "");
        assert_eq!(describe(&[], Some(99.18)), "; 99.2 batches/s");
    }

    #[test]
    fn a_step_tells_that_it_waited_for_data() {
        let waited = |seconds, workers| waiting(DataWait { seconds, workers }, 2.0);
        for (seconds, workers, told) in [
            (0.0, 0, ""),
            (0.19, 0, ""),
            (0.3, 2, ", waiting for data 15 %"),
            (1.0, 1_000_000, ", waiting for data 50 %"),
            (0.5, 0, ", waiting for data 25 %: try workers="),
            (2.5, 2, ""),
            (f64::NAN, 2, ""),
        ] {
            let found = waited(seconds, workers);
            assert!(found.starts_with(told), "{found}");
            assert_eq!(found.is_empty(), told.is_empty(), "{found}");
        }
    }
}
