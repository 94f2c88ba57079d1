//! The handling of a run that a scheduler ends by SIGTERM, or by SIGUSR1 as its notice.
//!
//! The trial process does the work: it takes a checkpoint at the end of the running batch, writes
//! the event `preempted`, and lets the signal act (`src/native/preemption.rs`). This module reports
//! the result, also if the process had no time to write anything. It reports a death by another
//! signal in the same words.

use std::time::Duration;

use pedl_core::events::{OUTLIVED, PREEMPTED, TRAINED_ON, signal_name};
use serde_json::{Map, Value};
use signal_hook::consts::signal::{SIGINT, SIGKILL, SIGTERM, SIGUSR1};

use super::child::End;
use super::trial_dir::{Progress, TrialDir};

/// The time after the grace period at which the trial process is killed: before that it ends by
/// itself, if it can.
pub(super) const KILL_MARGIN: Duration = Duration::from_secs(3);

/// The signals that preempt a run.
const SIGNALS: [i32; 2] = [SIGTERM, SIGUSR1];

/// A run that was preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preemption {
    pub(super) signal: i32,
    /// The batch of the newest checkpoint.
    pub(super) checkpoint: Option<u64>,
    /// Whether that was taken for this.
    is_new: bool,
    /// Whether the trial process has written the preemption into the journal.
    is_recorded: bool,
}

impl Preemption {
    /// The result of a start that has ended so. `None`: nobody preempted it.
    ///
    /// Args:
    ///     `before`: the progress of training at the beginning of this start.
    ///     `requested_by`: the signal that asked us to end the run.
    pub(super) fn of(
        directory: &TrialDir,
        before: &Progress,
        end: End,
        requested_by: Option<i32>,
    ) -> Option<Self> {
        let checkpoint = directory.progress().checkpoint();
        let events = directory.events_since(before);
        let recorded = events.iter().rfind(|event| event["event"] == PREEMPTED);
        if let Some(event) = recorded {
            let is_named = |signal: &i32| event["signal"] == signal_name(*signal);
            return Some(Self {
                signal: SIGNALS.into_iter().find(is_named)?,
                checkpoint,
                is_new: event["is_new"] == true && !has_trained_on(&events),
                is_recorded: true,
            });
        }
        let signal = match end {
            End::Signal(signal) if SIGNALS.contains(&signal) => signal,
            // We sent that signal.
            End::Signal(SIGKILL) => requested_by.filter(|signal| *signal == SIGTERM)?,
            _ => return None,
        };
        Some(Self {
            signal,
            checkpoint,
            is_new: false,
            is_recorded: false,
        })
    }

    /// Writes the preemption into the journal, if the trial process had no time to.
    pub(super) fn record(&self, directory: &TrialDir) {
        if self.is_recorded {
            return;
        }
        let mut members = Map::new();
        members.insert("signal".into(), signal_name(self.signal).into());
        members.insert("batch".into(), Value::Null);
        members.insert("checkpoint".into(), self.checkpoint.into());
        members.insert("is_new".into(), false.into());
        directory.record(PREEMPTED, members);
    }

    /// Says what happened, and what the same command will do.
    pub(super) fn tell(&self, end: End) {
        let signal = signal_name(self.signal);
        let by_script = match end {
            End::Code(code) => {
                format!("; the script handled that, and ended with exit code {code}")
            }
            End::Signal(_) => String::new(),
        };
        match self.checkpoint {
            Some(batch) if self.is_new => tracing::info!(
                "preempted by {signal}: checkpoint after batch {batch}{by_script}; the same command continues"
            ),
            Some(batch) => tracing::warn!(
                "preempted by {signal}: no new checkpoint{by_script}; the same command continues after batch {batch}"
            ),
            None => tracing::warn!(
                "preempted by {signal}: no checkpoint was taken{by_script}; the same command starts from the beginning"
            ),
        }
    }
}

/// Says what the same command will do after a death by a signal that is no preemption, and that
/// caused no restart.
///
/// Ctrl-C ends a script at once, as it does under Python.
pub(super) fn tell_of_death(signal: i32, checkpoint: Option<u64>) {
    let what = if signal == SIGINT {
        "interrupted".to_owned()
    } else {
        format!("the trial process was killed by {}", signal_name(signal))
    };
    let next = match checkpoint {
        Some(batch) => format!("; the same command continues after batch {batch}"),
        None => {
            ", and there is no checkpoint; the same command starts from the beginning".to_owned()
        }
    };
    tracing::warn!("{what}{next}");
}

/// Whether the script ended by itself, without any effect of the signal.
pub(super) fn has_outlived(events: &[Value]) -> bool {
    events.iter().any(|event| event["event"] == OUTLIVED)
}

/// Whether the script has handled a signal by itself, and continued to train.
pub(super) fn has_trained_on(events: &[Value]) -> bool {
    events.iter().any(|event| event["event"] == TRAINED_ON)
}
