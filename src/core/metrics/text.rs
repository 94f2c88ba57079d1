//! Metrics, speeds and waits as text for people.

use std::fmt;

use crate::training::DataWait;

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

/// From this share of a step on, a message reports the wait for data.
const REPORTED_SHARE: f64 = 0.1;

/// From this share on, the message also says how many workers may help.
const ADVISED_SHARE: f64 = 0.2;

/// The share of the seconds of a step that it waited for data, if it is notable, and the number of
/// workers that would avoid it.
pub(crate) fn waiting(wait: DataWait, seconds: f64) -> String {
    let share = wait.seconds / seconds;
    // In a step that a replay left half done, the wait may be longer than the step.
    if !(REPORTED_SHARE..=1.0).contains(&share) {
        return String::new();
    }
    let text = format!(", waiting for data {:.0} %", share * 100.0);
    // One worker takes this many times longer to build a batch than training takes to compute on
    // it.
    let needed = (f64::from(wait.workers.max(1)) / (1.0 - share)).ceil();
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_precision_loss, reason = "processors are few")]
    let advised = needed.min(most as f64);
    if share >= ADVISED_SHARE && advised > f64::from(wait.workers) {
        format!("{text}: try workers={advised:.0}")
    } else {
        text
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

#[cfg(test)]
mod tests {
    use super::*;

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
