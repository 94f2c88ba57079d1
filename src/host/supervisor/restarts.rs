//! When a trial is started again: the restart rule. Its reasons are at the head of `supervisor`.

use pedl_core::exit_codes;
use rustix::process::Signal;

use super::child::End;
use super::preemption::Preemption;
use super::signals::Signals;
use super::trial_dir::Progress;

/// A start of the trial process that has ended.
pub(super) struct EndedStart {
    pub(super) end: End,
    /// The progress of the trial before it, and after it.
    pub(super) before: Progress,
    pub(super) now: Progress,
    /// The signal by which somebody requested the end through the supervisor.
    pub(super) requested_by: Option<i32>,
    /// Whether the process has begun or continued the trial.
    pub(super) is_of_trial: bool,
    pub(super) preempted: Option<Preemption>,
}

/// The restarts that a trial may have, and those that it had.
pub(super) struct Restarts {
    /// What the user has set; without a limit, a crash is followed by another start, and an error
    /// is not.
    max: Option<u64>,
    after_errors: u64,
}

impl Restarts {
    pub(super) fn new(max: Option<u64>) -> Self {
        Self {
            max,
            after_errors: 0,
        }
    }

    /// Whether the trial is started again after this start.
    pub(super) fn is_due(&self, start: &EndedStart, is_rank: bool, signals: &mut Signals) -> bool {
        match start.end {
            _ if start.preempted.is_some() => false,
            // One rank alone finds no others: they have ended too, and all are started together.
            _ if is_rank => false,
            End::Signal(signal) => {
                is_crash(signal)
                    && self.max != Some(0)
                    && !signals.ended_by(signal)
                    && start.now.has_new_checkpoint_since(&start.before)
            }
            End::Code(code) => {
                is_error(code)
                    && start.requested_by.is_none()
                    && self.after_errors < self.max.unwrap_or(0)
                    && start.now.has_new_events_since(&start.before)
            }
        }
    }

    /// Counts a restart after such an end, and announces it.
    pub(super) fn announce(&mut self, end: End, attempt: u32) {
        match end {
            End::Signal(signal) => tracing::warn!(
                "the trial process was killed by {}; it is started again from the newest \
                 checkpoint (restart {attempt})",
                pedl_core::events::signal_name(signal)
            ),
            End::Code(code) => {
                self.after_errors += 1;
                tracing::warn!(
                    "the script ended with exit code {code}; it is started again \
                     ({} of {} restarts)",
                    self.after_errors,
                    self.max.unwrap_or(0)
                );
            }
        }
    }
}

/// Whether an exit code is an error of the script, which another start may avoid.
fn is_error(code: i32) -> bool {
    !matches!(
        code,
        0 | exit_codes::USAGE..=exit_codes::NOT_EXACT | exit_codes::STORAGE_FAILED
    )
}

fn is_crash(signal: i32) -> bool {
    ![Signal::INT, Signal::PIPE]
        .map(Signal::as_raw)
        .contains(&signal)
}
