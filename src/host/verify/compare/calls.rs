//! Compares two records of calls, call by call: what was called, from which line, after how many
//! random draws, with which arguments, and what it returned.

use std::collections::BTreeSet;
use std::path::Path;

use pedl_core::calls::{Record, Records, kind};

/// Lowest bit of a compute call's arguments: it built something. A resumed start may build once
/// more.
const TRACED: u64 = 1;

/// The part in which a call differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Another call, or one from another line.
    Call,
    /// The number of random numbers that the script drew before it.
    Draws,
    /// Its arguments.
    Arguments,
    /// The returned value.
    Value,
    /// The call is missing.
    Missing,
    /// The undisturbed run does not have this call.
    Extra,
}

/// The first call that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallDifference {
    /// The number of the call in the run, from 1.
    pub(crate) number: u64,
    /// For a training call its batch, from 1; otherwise how many batches were trained.
    pub(crate) batch: u64,
    /// One of [`kind`].
    pub(crate) kind: u8,
    pub(crate) part: Part,
    /// The called function, and the place of the call.
    pub(crate) what: String,
    /// Both sides, as texts.
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// The result of a comparison of two records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Equal calls.
    pub(crate) equal: u64,
    /// Batches trained up to the last call of the first record.
    pub(crate) batches: u64,
    /// The first call that differs, of any kind.
    pub(crate) first: Option<CallDifference>,
    /// The first call in which metrics of an epoch, or of a validation, differ.
    pub(crate) first_of_metrics: Option<CallDifference>,
}

/// The differences between two undisturbed runs: such calls are not compared by their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excluded {
    /// The called function, and the place of the call.
    pub(crate) values: BTreeSet<String>,
    /// One record is longer than the other: the script ends without letting Python end.
    pub(crate) end: bool,
}

/// Compares two records.
///
/// # Errors
///
/// A text, if one cannot be read.
pub(crate) fn compare(one: &Path, other: &Path, excluded: &Excluded) -> Result<Outcome, String> {
    let open = |path: &Path| Records::open(path).map_err(|error| error.to_string());
    let (mut one, mut other) = (open(one)?, open(other)?);
    let mut outcome = Outcome::default();
    loop {
        // The end of a record may be torn, if the script ended without letting Python end.
        let (expected, found) = (
            one.next().and_then(Result::ok),
            other.next().and_then(Result::ok),
        );
        if let Some(record) = &expected {
            outcome.batches = record.batch;
        }
        let part = match (&expected, &found) {
            (None, None) => return Ok(outcome),
            (Some(rest), None) | (None, Some(rest)) if excluded.end && rest.kind != kind::TRAIN => {
                return Ok(outcome);
            }
            (Some(_), None) => Some(Part::Missing),
            (None, Some(_)) => Some(Part::Extra),
            (Some(expected), Some(found)) => differing_part(expected, found, excluded),
        };
        let Some(part) = part else {
            outcome.equal += 1;
            continue;
        };
        let difference = describe(part, expected.as_ref(), found.as_ref());
        if outcome.first_of_metrics.is_none()
            && matches!(difference.kind, kind::METRICS | kind::TEST)
        {
            outcome.first_of_metrics = Some(difference.clone());
        }
        outcome.first.get_or_insert(difference);
        if matches!(part, Part::Call | Part::Missing | Part::Extra)
            || outcome.first_of_metrics.is_some()
        {
            // From here on the two records are unrelated.
            return Ok(finished(outcome, one));
        }
    }
}

fn finished(mut outcome: Outcome, rest: Records) -> Outcome {
    for record in rest.map_while(Result::ok) {
        outcome.batches = record.batch;
    }
    outcome
}

/// The calls in which two undisturbed runs differ, if they compute nothing.
pub(crate) fn excluded(one: &Path, other: &Path) -> Result<Excluded, String> {
    let mut excluded = Excluded::default();
    loop {
        let outcome = compare(one, other, &excluded)?;
        match outcome.first {
            Some(it) if it.part == Part::Value && !is_computed(it.kind) => {
                if !excluded.values.insert(it.what) {
                    return Ok(excluded);
                }
            }
            Some(it)
                if matches!(it.part, Part::Missing | Part::Extra) && it.kind != kind::TRAIN =>
            {
                excluded.end = true;
                return Ok(excluded);
            }
            _ => return Ok(excluded),
        }
    }
}

fn is_computed(of: u8) -> bool {
    matches!(of, kind::TRAIN | kind::TEST | kind::PREDICT | kind::METRICS)
}

fn differing_part(expected: &Record, found: &Record, excluded: &Excluded) -> Option<Part> {
    let traced = if is_computed(expected.kind) {
        TRACED
    } else {
        0
    };
    if (expected.kind, &expected.identity, &expected.site)
        != (found.kind, &found.identity, &found.site)
    {
        Some(Part::Call)
    } else if expected.draws != found.draws {
        Some(Part::Draws)
    } else if expected.arguments | traced != found.arguments | traced {
        Some(Part::Arguments)
    } else if expected.value != found.value && !excluded.values.contains(&name(expected)) {
        Some(Part::Value)
    } else {
        None
    }
}

fn name(record: &Record) -> String {
    format!("`{}` at {}", record.identity, record.site)
}

fn describe(part: Part, expected: Option<&Record>, found: Option<&Record>) -> CallDifference {
    let any = expected.or(found).expect("one of the two is there");
    let side = |record: Option<&Record>| match (record, part) {
        (None, _) => "no further call".to_owned(),
        (Some(record), Part::Draws) => format!("{} random draws before it", record.draws),
        (Some(record), Part::Arguments) => format!("given {:#x}", record.arguments),
        (Some(record), Part::Value) => record.value.describe(),
        (Some(record), Part::Call | Part::Missing | Part::Extra) => {
            format!("{} ({})", name(record), record.kind_name())
        }
    };
    CallDifference {
        number: any.number,
        batch: any.batch,
        kind: any.kind,
        part,
        what: name(any),
        expected: side(expected),
        found: side(found),
    }
}
