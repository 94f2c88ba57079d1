//! Compares the metrics that two runs reported, step by step and validation by validation.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::verify::observe::{Journal, batch_of};

/// The metrics of a run, by step or validation. If a step was repeated after a fault, the later
/// metrics count.
pub(crate) fn metrics_of(journal: &Journal) -> BTreeMap<(u64, String), Value> {
    let steps = journal.of("step").map(|(_, event)| {
        let last = event["batches"][1].as_u64().unwrap_or(0);
        (
            (last, format!("step {}", event["step"])),
            event["metrics"].clone(),
        )
    });
    let validations = journal.of("validation").map(|(_, event)| {
        let batch = batch_of(event);
        (
            (batch, format!("validation after batch {batch}")),
            event["metrics"].clone(),
        )
    });
    steps.chain(validations).collect()
}

/// The first metrics that differ, in words.
pub(crate) fn compare(expected: &Journal, found: &Journal) -> Option<String> {
    let (expected, found) = (metrics_of(expected), metrics_of(found));
    let keys = expected.keys().chain(found.keys());
    let differing = keys
        .filter(|key| expected.get(key) != found.get(key))
        .min()?;
    let shown = |of: &BTreeMap<_, Value>| {
        of.get(differing)
            .map_or("nothing".to_owned(), Value::to_string)
    };
    Some(format!(
        "{}: {}, not {}",
        differing.1,
        shown(&found),
        shown(&expected)
    ))
}
