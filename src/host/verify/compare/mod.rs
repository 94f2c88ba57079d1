//! Compares a disturbed run with the undisturbed ones: recorded calls, state, metrics, printed
//! text, files.
//!
//! Everything is compared by hash or byte for byte. What differs between two undisturbed runs is
//! not compared, and is listed.

pub(super) mod calls;
pub(super) mod files;
pub(super) mod journal;
pub(super) mod state;
pub(super) mod text;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::observe::State;
use super::run::{FinishedRun, describe};
use calls::{CallDifference, Excluded};
use files::Files;
use state::StateDifference;

pub(super) const LOG: &str = "calls.log";
const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// What two undisturbed runs have in common.
#[derive(Debug)]
pub(super) struct Reference<'a> {
    first: &'a FinishedRun,
    /// Batches of the run.
    pub(super) batches: u64,
    calls: Excluded,
    /// Members of the state that are excluded, besides tensors.
    rest: BTreeSet<String>,
    /// After the last batch.
    state: Option<State>,
    texts: Vec<text::Reference>,
    files: files::Reference,
}

/// The differences of a run.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// It ended in another way than the undisturbed runs.
    pub(super) ending: Option<String>,
    pub(super) calls: Option<CallDifference>,
    pub(super) state: Option<StateDifference>,
    /// The state after the last batch was not available.
    pub(super) state_missing: bool,
    pub(super) metrics: Option<String>,
    pub(super) printed: Option<String>,
    pub(super) files: Vec<String>,
}

impl Compared {
    /// Whether nothing differs, and nothing was left uncompared.
    pub(super) fn is_identical(&self) -> bool {
        self.ending.is_none()
            && self.calls.is_none()
            && self.state.is_none()
            && !self.state_missing
            && self.metrics.is_none()
            && self.printed.is_none()
            && self.files.is_empty()
    }
}

impl<'a> Reference<'a> {
    /// The reference for two undisturbed runs; and their differences that no clock explains, the
    /// first of each kind.
    pub(super) fn new(
        first: &'a FinishedRun,
        second: &FinishedRun,
        common: Option<u64>,
    ) -> Result<(Self, Compared), String> {
        let logs = [first, second].map(|run| run.trial.join(LOG));
        let excluded = calls::excluded(&logs[0], &logs[1])?;
        let outcome = calls::compare(&logs[0], &logs[1], &excluded)?;
        let states = common.and_then(|batch| {
            let [one, two] = [first, second].map(|run| State::of_batch(&run.trial, batch));
            Some(StateDifference::new(&one?, &two?, &BTreeSet::new()))
        });
        let batches = outcome.batches;
        let texts = STREAMS.map(|stream| {
            let [one, two] = [first, second].map(|run| printed(run, stream));
            text::Reference::new(&one, &two)
        });
        let read = |run: &FinishedRun| Files::read(&run.files).map_err(|error| error.to_string());
        let files = files::Reference::new(read(first)?, read(second)?);
        let reference = Self {
            first,
            batches,
            calls: excluded,
            rest: states
                .iter()
                .flat_map(|it| it.rest.iter().cloned())
                .collect(),
            state: State::of_batch(&second.trial, batches),
            texts: texts.into(),
            files,
        };
        let compared = Compared {
            calls: outcome.first,
            metrics: journal::compare(&first.journal, &second.journal),
            state: states.filter(|it| !it.tensors.is_empty()),
            ..Compared::default()
        };
        Ok((reference, compared))
    }

    /// What is not compared, for people.
    pub(super) fn excluded(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (stream, text) in STREAMS.iter().zip(&self.texts) {
            if text.excluded > 0 {
                let all = text.excluded + text.num_lines();
                found.push(format!("{stream}: {} of {all} lines", text.excluded));
            }
        }
        let files = self.files.excluded();
        found.extend(files.into_iter().map(|file| format!("file {file}")));
        let values = self.calls.values.iter();
        found.extend(values.map(|call| format!("what {call} returns")));
        found.extend(self.rest.iter().map(|member| format!("state {member}")));
        found
    }

    /// The number of lines and files that are compared.
    pub(super) fn extent(&self) -> (usize, usize) {
        let lines = self.texts.iter().map(text::Reference::num_lines).sum();
        (lines, self.files.num_files())
    }

    /// Whether the state after the last batch is known.
    pub(super) fn has_state(&self) -> bool {
        self.state.is_some()
    }

    /// How a state differs from an undisturbed one of the same batch.
    pub(super) fn state_difference(&self, expected: &State, found: &State) -> StateDifference {
        StateDifference::new(expected, found, &self.rest)
    }

    /// Compares a run that was disturbed.
    pub(super) fn compare(&self, run: &FinishedRun) -> Result<Compared, String> {
        let mut compared = Compared::default();
        if let Some(given_up) = &run.given_up {
            compared.ending = Some(given_up.clone());
        } else if run.status != self.first.status {
            let (now, then) = (describe(run.status), describe(self.first.status));
            compared.ending = Some(format!("it ended with {now}, not {then}"));
        }
        let logs = [self.first, run].map(|run| run.trial.join(LOG));
        let outcome = calls::compare(&logs[0], &logs[1], &self.calls)?;
        let is_lost = |difference: &calls::CallDifference| {
            difference.part == calls::Part::Missing && run.ended_on_a_full_disk()
        };
        compared.metrics = journal::compare(&self.first.journal, &run.journal).or_else(|| {
            let metrics = outcome
                .first_of_metrics
                .as_ref()
                .filter(|it| !is_lost(it))?;
            Some(format!(
                "{}: {}, not {}",
                metrics.what, metrics.found, metrics.expected
            ))
        });
        compared.calls = outcome.first.filter(|it| !is_lost(it));
        match (&self.state, State::of_batch(&run.trial, self.batches)) {
            (Some(expected), Some(found)) => {
                let difference = self.state_difference(expected, &found);
                compared.state = (!difference.is_none()).then_some(difference);
            }
            _ => compared.state_missing = true,
        }
        for (stream, text) in STREAMS.iter().zip(&self.texts) {
            let difference = text.compare(&printed(run, stream));
            compared.printed = compared.printed.or_else(|| {
                let difference = difference?;
                let shown = |line: Option<String>| {
                    line.map_or("nothing".to_owned(), |line| format!("`{line}`"))
                };
                let (found, expected) = (shown(difference.found), shown(difference.expected));
                Some(format!("{stream}: {found}, not {expected}"))
            });
        }
        let files = Files::read(&run.files).map_err(|error| error.to_string())?;
        let roots: [&Path; 2] = [&self.first.files, &run.files];
        let differing = self.files.compare(files, roots).into_iter();
        compared.files = differing
            .map(|it| format!("{}: {}", it.path, it.what))
            .collect();
        Ok(compared)
    }
}

/// What a script printed in all its starts, without repetition.
fn printed(run: &FinishedRun, stream: &str) -> Vec<u8> {
    fs::read(run.trial.join(format!("{stream}.log"))).unwrap_or_default()
}
