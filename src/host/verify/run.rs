//! A run of the user's command: what is requested of it, and what is known of it once it is over.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::faults::{Kind, Planned};
use super::observe::{Journal, State};
use super::process::Output;

/// An interval without any checkpoint.
pub(super) const NEVER_SECONDS: f64 = 1e9;

/// When checkpoints are taken.
#[derive(Clone, Debug)]
pub(super) struct Checkpoints {
    pub(super) seconds: f64,
    pub(super) batches: Vec<u64>,
    /// Takes one after the first batch of each resumed start, to show what was restored.
    pub(super) after_resume: bool,
}

/// How long an undisturbed run is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Length {
    /// From start to end.
    pub(super) seconds: f64,
    pub(super) batches: u64,
}

/// A fault that came.
#[derive(Clone, Debug)]
pub(super) struct Delivered {
    pub(super) kind: Kind,
    /// The newest checkpoint at that time; 0: none.
    pub(super) checkpoint: u64,
    /// How the start ended.
    pub(super) ending: String,
    /// The batch after which the next start continued; `None`: it began anew.
    pub(super) resumed: Option<u64>,
    /// How many resumes there were before.
    pub(super) resumes_before: usize,
}

/// States that show what a resume restored.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    /// The state in the checkpoint that was resumed, as it was on the disk; `None` if the
    /// supervisor was faster than we.
    pub(super) stored: Option<State>,
    /// The batch after which it continued.
    pub(super) resumed: u64,
    /// The first state that was saved after it.
    pub(super) after: Option<State>,
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct FinishedRun {
    pub(super) name: String,
    /// Its final directory.
    pub(super) directory: PathBuf,
    /// The script's directory in it.
    pub(super) files: PathBuf,
    pub(super) trial: PathBuf,
    pub(super) status: ExitStatus,
    pub(super) seconds: f64,
    /// The duration of a batch between the first checkpoint and the last; `None` if there were
    /// fewer than two.
    pub(super) seconds_per_batch: Option<f64>,
    pub(super) journal: Journal,
    pub(super) output: Output,
    pub(super) delivered: Vec<Delivered>,
    /// The number of worker processes of data sets that were killed in addition.
    pub(super) workers_killed: usize,
    pub(super) evidence: Vec<Evidence>,
    /// Faults that had no effect.
    pub(super) missed: Vec<Planned>,
    /// Why the run was abandoned.
    pub(super) given_up: Option<String>,
}

impl FinishedRun {
    /// Whether the run ended while the disk was full: its last records may have found no room.
    pub(super) fn ended_on_a_full_disk(&self) -> bool {
        let last = self.delivered.last();
        last.is_some_and(|fault| matches!(fault.kind, Kind::DiskFull) && fault.resumed.is_none())
    }

    /// Its message about exact resume: `yes`, or `no:` and the causes.
    pub(super) fn exactness(&self) -> Option<&str> {
        let mut messages = self.output.messages.iter().rev();
        messages.find_map(|message| message.strip_prefix("exact resume: "))
    }
}

/// An exit status in words.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
