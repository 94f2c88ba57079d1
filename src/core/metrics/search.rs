//! The metric that a search names: under its exact name, with or without `val_`, and in either
//! spelling of accuracy.

use std::fmt;

use crate::error::{self, Class, Kind};

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
}
