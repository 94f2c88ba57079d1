//! A run while it runs: waits for the moment of each fault, delivers it, and notes what each start
//! restored.
//!
//! A fault that comes too late, or has no effect, is *missed*: it is noted, and the start
//! continues.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::failures::{interrupted, unexpected};
use super::faults::{Kind, Moment, Planned};
use super::observe::{Journal, State, batch_of};
use super::process::{POLL_INTERVAL, Process, limit_file_size};
use super::random::Random;
use super::run::{Checkpoints, Delivered, Evidence, Length, describe};
use crate::failure::Failure;

/// The longest time in which a killed worker process is replaced.
const WORKER_REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The time in which a start must end after SIGTERM; then it is killed.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(120);

/// If nothing was written to a full disk for this time, the fault had no effect.
const DISK_FULL_TIMEOUT: Duration = Duration::from_secs(30);

/// The size to which a file may grow on a full disk: less than any checkpoint that matters, so that
/// the next one fails, but not always in the same of its files.
const FULL_BYTES: (u64, u64) = (512, 16 << 10);

/// How a start ended.
pub(super) enum EndOfStart {
    /// The script is over, or cannot continue.
    ScriptEnded(ExitStatus),
    /// Ended by a fault; the command must be started again.
    ByFault,
}

/// A run that is not over, and what is known of it so far: see
/// [`FinishedRun`](super::run::FinishedRun).
pub(super) struct Running<'a> {
    /// The directory of all runs, to be named if the user interrupts.
    work: &'a Path,
    interrupted: &'a AtomicBool,
    checkpoints: &'a Checkpoints,
    trial: &'a Path,
    pub(super) journal: Journal,
    /// When the first checkpoint and the newest were seen, and their batches.
    seen: Option<[(Instant, u64); 2]>,
    pub(super) delivered: Vec<Delivered>,
    pub(super) workers_killed: usize,
    pub(super) missed: Vec<Planned>,
    pub(super) evidence: Vec<Evidence>,
    /// The state that the next resume finds on the disk.
    stored: Option<State>,
}

impl<'a> Running<'a> {
    /// A run in this directory with this trial, before its first start.
    pub(super) fn new(
        work: &'a Path,
        interrupted: &'a AtomicBool,
        checkpoints: &'a Checkpoints,
        trial: &'a Path,
    ) -> Self {
        Self {
            work,
            interrupted,
            checkpoints,
            trial,
            journal: Journal::new(trial),
            seen: None,
            delivered: Vec::new(),
            workers_killed: 0,
            missed: Vec::new(),
            evidence: Vec::new(),
            stored: None,
        }
    }

    /// Keeps the state that the next start finds on the disk.
    pub(super) fn keep_stored_state(&mut self) {
        self.stored = State::newest(self.trial);
    }

    /// The run is over; these faults have not come.
    pub(super) fn finish(&mut self, waiting: Vec<Planned>) {
        self.missed.extend(waiting);
        self.note_resumes();
    }

    /// Reads what the run has written, and keeps states that will be deleted.
    pub(super) fn look(&mut self) {
        self.journal.look();
        let newest = self.journal.newest_checkpoint();
        let now = (Instant::now(), newest);
        match &mut self.seen {
            None if newest > 0 => self.seen = Some([now, now]),
            Some([_, last]) if last.1 != newest => *last = now,
            _ => {}
        }
        let resumes: Vec<_> = self
            .journal
            .of("resumed")
            .map(|(_, event)| batch_of(event))
            .collect();
        for &resumed in resumes.iter().skip(self.evidence.len()) {
            let stored = self.stored.take().filter(|state| state.batch == resumed);
            self.evidence.push(Evidence {
                stored,
                resumed,
                after: None,
            });
        }
        self.keep_state_after_resume();
    }

    #[expect(clippy::cast_precision_loss, reason = "it is a guess at best")]
    pub(super) fn seconds_per_batch(&self) -> Option<f64> {
        let [(first, from), (last, to)] = self.seen?;
        let batches = to.checked_sub(from).filter(|it| *it > 0)?;
        Some((last - first).as_secs_f64() / batches as f64)
    }

    fn keep_state_after_resume(&mut self) {
        let Some(evidence) = self.evidence.last_mut() else {
            return;
        };
        if evidence.after.is_some() {
            return;
        }
        let (place, _) = self
            .journal
            .of("resumed")
            .next_back()
            .unwrap_or((0, &serde_json::Value::Null));
        // The nearest of those that still exist.
        let mut later = self.journal.of("checkpoint").filter(|(at, _)| *at > place);
        evidence.after = later.find_map(|(_, event)| State::of_batch(self.trial, batch_of(event)));
    }

    /// Waits until a condition holds; returns the status if the start ended before.
    fn wait(
        &mut self,
        process: &mut Process,
        mut condition: impl FnMut(&Self, &Process) -> bool,
    ) -> Result<Option<ExitStatus>, Failure> {
        loop {
            let ended = process.ended().map_err(unexpected)?;
            self.look();
            if ended.is_some() {
                return Ok(ended);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                process.kill_everything().map_err(unexpected)?;
                return Err(interrupted(self.work));
            }
            if condition(self, process) {
                return Ok(None);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn wait_seconds(
        &mut self,
        process: &mut Process,
        seconds: f64,
    ) -> Result<Option<ExitStatus>, Failure> {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        self.wait(process, |_, _| Instant::now() >= until)
    }

    /// One start: waits for the moment of each fault, and delivers it.
    pub(super) fn attend(
        &mut self,
        process: &mut Process,
        waiting: &mut Vec<Planned>,
        length: Length,
        random: &mut Random,
    ) -> Result<EndOfStart, Failure> {
        loop {
            let Some(fault) = waiting.last().copied() else {
                let ended = self.wait(process, |_, _| false)?;
                return Ok(ended.map_or(EndOfStart::ByFault, EndOfStart::ScriptEnded));
            };
            if let Some(status) = self.wait_for(process, fault.moment, length)? {
                return Ok(EndOfStart::ScriptEnded(status));
            }
            waiting.pop();
            if let Some(status) = self.kill_worker(process, random)? {
                return Ok(EndOfStart::ScriptEnded(status));
            }
            let checkpoint = self.journal.newest_checkpoint();
            let resumes_before = self.evidence.len();
            let Some((end, ending)) = self.deliver(process, fault.kind, random)? else {
                self.missed.push(fault);
                continue;
            };
            self.delivered.push(Delivered {
                kind: fault.kind,
                checkpoint,
                ending,
                resumed: None,
                resumes_before,
            });
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    fn wait_for(
        &mut self,
        process: &mut Process,
        moment: Moment,
        length: Length,
    ) -> Result<Option<ExitStatus>, Failure> {
        let share = match moment {
            Moment::Anywhere(share) => return self.wait_seconds(process, share * length.seconds),
            Moment::AfterCheckpoint(share) => share,
            Moment::SoonAfterCheckpoint(_) => 0.0,
        };
        // A replay takes no checkpoints, so this start has come further than the last one.
        let taken = self.journal.count("checkpoint");
        let is_ready = |running: &Self, _: &Process| running.journal.count("checkpoint") > taken;
        if let Some(status) = self.wait(process, is_ready)? {
            return Ok(Some(status));
        }
        let from = self.journal.newest_checkpoint();
        let until = from + share_of(length.batches.saturating_sub(from), share);
        let is_ready = |running: &Self, _: &Process| running.journal.newest_checkpoint() >= until;
        if let Some(status) = self.wait(process, is_ready)? {
            return Ok(Some(status));
        }
        let intervals = match moment {
            Moment::SoonAfterCheckpoint(intervals) => intervals,
            Moment::AfterCheckpoint(_) | Moment::Anywhere(_) => 0.5,
        };
        self.wait_seconds(process, intervals * self.checkpoints.seconds)
    }

    /// SIGKILL to a worker process of a data set, if there is one; another must take its place, and
    /// the start continues. Returns the status if it ended.
    fn kill_worker(
        &mut self,
        process: &mut Process,
        random: &mut Random,
    ) -> Result<Option<ExitStatus>, Failure> {
        let before = process.workers();
        let chosen = usize::try_from(random.below(before.len().max(1) as u64)).unwrap_or_default();
        let Some(&worker) = before.get(chosen) else {
            return Ok(None);
        };
        Process::kill_worker(worker);
        self.workers_killed += 1;
        // Between two fits no worker is requested.
        let until = Instant::now() + WORKER_REPLACEMENT_TIMEOUT;
        self.wait(process, |_, process| {
            Instant::now() >= until || process.workers().iter().any(|now| !before.contains(now))
        })
    }

    /// Delivers a fault. Returns the result of the start, `None` if it continues by itself, and how
    /// it ended; or `None` if the fault had no effect.
    fn deliver(
        &mut self,
        process: &mut Process,
        kind: Kind,
        random: &mut Random,
    ) -> Result<Option<(Option<EndOfStart>, String)>, Failure> {
        let status = match kind {
            Kind::KillAll => process.kill_everything().map_err(unexpected)?,
            Kind::KillTrial => {
                let before = process.trial();
                if before.is_none() {
                    return Ok(None);
                }
                process.kill_trial();
                let is_replaced = |_: &Self, process: &Process| {
                    process.trial().is_some_and(|now| Some(now) != before)
                };
                match self.wait(process, is_replaced)? {
                    None => return Ok(Some((None, "started again by itself".to_owned()))),
                    Some(status) => status,
                }
            }
            Kind::Terminate => {
                process.terminate();
                let until = Instant::now() + TERMINATION_TIMEOUT;
                if let Some(status) = self.wait(process, |_, _| Instant::now() >= until)? {
                    status
                } else {
                    process.kill_everything().map_err(unexpected)?
                }
            }
            Kind::DiskFull => {
                let Some(trial) = process.trial() else {
                    return Ok(None);
                };
                let bytes = FULL_BYTES.0 + random.below(FULL_BYTES.1);
                if limit_file_size(trial, Some(bytes)).is_err() {
                    return Ok(None);
                }
                let until = Instant::now() + DISK_FULL_TIMEOUT;
                let Some(status) = self.wait(process, |_, _| Instant::now() >= until)? else {
                    // It may have ended meanwhile.
                    let _ = limit_file_size(trial, None);
                    return Ok(None);
                };
                status
            }
        };
        let over = self.journal.of("trial_ended").next_back();
        let is_asked_for = over.is_some_and(|(_, event)| !event["signal"].is_null());
        let has_ended = over.is_some_and(|(_, event)| event["exit_code"] == 0);
        if !is_asked_for && (status.success() || has_ended) {
            // It was faster, or the fault did not matter.
            let status = ExitStatus::from_raw(0);
            return Ok(Some((
                Some(EndOfStart::ScriptEnded(status)),
                describe(status),
            )));
        }
        Ok(Some((Some(EndOfStart::ByFault), describe(status))))
    }

    fn note_resumes(&mut self) {
        let resumed: Vec<_> = self.evidence.iter().map(|it| it.resumed).collect();
        let ends: Vec<_> = self
            .delivered
            .iter()
            .skip(1)
            .map(|it| it.resumes_before)
            .collect();
        for (place, delivered) in self.delivered.iter_mut().enumerate() {
            let end = ends.get(place).copied().unwrap_or(resumed.len());
            delivered.resumed = (delivered.resumes_before < end)
                .then(|| resumed.get(delivered.resumes_before).copied())
                .flatten();
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of batches, from 0 to 1"
)]
fn share_of(batches: u64, share: f64) -> u64 {
    (batches as f64 * share) as u64
}
