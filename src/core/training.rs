//! The training of a trial in one process: connects the log, the checkpoints, the sequencer and the
//! journal.
//!
//! ```text
//! Training::new      knows the launch message; has not accessed the disk
//!   begin            opens the directory, finds the newest checkpoint
//!     next           before a call: is it made, answered, or made again?
//!     answer, check  the replay, up to the resume point; then hooks set the state
//!     append         every call after that
//!     batch_done     after every training call; says what is due
//!     save           when a checkpoint is due
//!   end              when the script has ended: it must have made every recorded call
//!   close            the process ends: nothing is recorded any more
//! ```
//!
//! Nothing here calls back into the caller, so a caller may hold a lock around every method. The
//! one long wait, for a checkpoint to be written, is possible without the lock:
//! [`Training::take_commit`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use crate::calls::value::Encoded;
use crate::calls::{Answer, Call, Mark, TextId, kind};
use crate::checkpoint::{Checkpoint, Newest, RealFileSystem, Store};
use crate::console;
use crate::directory::{self, Directory, Facts};
use crate::error::{Bug, Class, Error, Result};
use crate::event_stream::Stream;
use crate::events::{self, Journal};
use crate::file::Lock;
use crate::metrics::Averages;
use crate::replay::{Next, Session, State};
pub use crate::saver::{Commit, Ended};
use crate::saver::{Saver, members};
use crate::secrets::{redact_values, redact_words};
use crate::sequencer::{Plan, Sequencer};
use crate::trial::Launch;

mod checkpoints;
mod failure;
mod steps;

use failure::{CannotBegin, NoneLeft};
use steps::LastStep;
pub use steps::{DataWait, OfCall};

pub(crate) const LOG: &str = "calls.log";

/// The training of a trial in this process.
#[derive(Debug)]
pub struct Training {
    launch: Launch,
    calls: Session,
    metrics: Averages,
    /// The lock of the trial, if it was taken before the first call.
    held: Option<Lock>,
    begun: Option<Begun>,
}

/// The parts that exist once the trial has begun.
#[derive(Debug)]
struct Begun {
    directory: Directory,
    checkpoint: Option<Checkpoint>,
    journal: Arc<Mutex<Journal>>,
    saver: Saver,
    sequencer: Sequencer,
    /// The time of the last batch in seconds, and the start of the current step: time and batch.
    now_s: f64,
    running_since: Option<(f64, u64)>,
    last_step: LastStep,
}

impl Training {
    /// A training that has not begun. Does not access the disk.
    pub fn new(launch: Launch) -> Self {
        Self {
            launch,
            calls: Session::default(),
            metrics: Averages::default(),
            held: None,
            begun: None,
        }
    }

    /// Takes the lock of an existing trial, before any part of it is changed. From then on this
    /// process owns the trial, and any other process that starts it is refused.
    ///
    /// # Errors
    ///
    /// It is in use; the file of the lock cannot be made.
    pub fn hold(&mut self) -> Result<()> {
        // If the file of the lock does not exist, no process holds it, and nothing is made before
        // training.
        if self.begun.is_none() && directory::has_lock(&self.launch.trial_dir) {
            self.held = Some(directory::hold(&self.launch.trial_dir)?);
        }
        Ok(())
    }

    /// The launch message.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Whether there is a checkpoint to resume from. Before the trial begins, it creates nothing,
    /// and only reads names.
    pub fn has_checkpoint(&self) -> bool {
        match &self.begun {
            Some(begun) => begun.checkpoint.is_some(),
            None => {
                !directory::is_replaced(&self.launch)
                    && Store::has_checkpoint(&self.launch.trial_dir)
            }
        }
    }

    /// The state that was saved with the checkpoint to resume from; `None` if there is none. Before
    /// the trial begins, it is that of the newest one, and nothing is created.
    pub fn checkpoint_state(&self) -> Option<String> {
        match &self.begun {
            Some(begun) => begun
                .checkpoint
                .as_ref()
                .map(|checkpoint| checkpoint.state.clone()),
            None if self.has_checkpoint() => Store::open(&self.launch.trial_dir).newest_state(),
            None => None,
        }
    }

    /// Handles the first intercepted call: opens the trial directory, and finds the newest
    /// checkpoint. A second call does nothing.
    ///
    /// # Errors
    ///
    /// It is in use; it belongs to another command; it cannot be made, read or written; no intact
    /// checkpoint is left.
    pub fn begin(&mut self, facts: Facts) -> Result<()> {
        if self.begun.is_some() {
            return Ok(());
        }
        self.open(facts).map_err(|error| match error.class() {
            // Nothing was trained, so nothing is lost, and another start would not help.
            Class::StorageFailed => CannotBegin {
                trial_dir: self.launch.trial_dir.clone(),
                source: error,
            }
            .into(),
            _ => error,
        })
    }

    fn open(&mut self, facts: Facts) -> Result<()> {
        let directory = Directory::open(&self.launch, facts, self.held.take())?;
        let trial_dir = self.launch.trial_dir.as_path();
        let log_path = trial_dir.join(LOG);
        let around = self.launch.started_in.as_deref();
        let store = Store::within(RealFileSystem, trial_dir, around);
        let mut log = None;
        let newest = store.newest_where(|manifest| {
            let mark = Mark {
                offset: manifest.log_offset,
                calls: manifest.calls,
            };
            log = Some(self.calls.open(&log_path, mark)?);
            Ok(())
        })?;
        if newest.checkpoint.is_none() && !newest.damaged.is_empty() {
            return Err(NoneLeft {
                trial_dir: trial_dir.to_owned(),
                damaged: newest.damaged,
            }
            .into());
        }
        store.set_aside(&newest)?;
        let Newest {
            checkpoint,
            damaged,
            ..
        } = newest;
        let recorded = checkpoint.as_ref().map_or(0, |it| it.manifest.calls);
        self.calls.begin(&log_path, log, recorded)?;
        let mut journal = Journal::open(trial_dir)?;
        if let Some(target) = self.launch.events {
            match Stream::open(target) {
                Ok(stream) => journal.stream_to(Some(stream)),
                Err(error) => tracing::warn!("`--events-fd`: no events are written there: {error}"),
            }
        }
        let journal = Arc::new(Mutex::new(journal));
        let replayed = checkpoint
            .as_ref()
            .map_or(0, |checkpoint| checkpoint.manifest.batch);
        let begun = Begun {
            directory,
            checkpoint,
            saver: Saver::new(store, Arc::clone(&journal), replayed),
            journal,
            sequencer: Sequencer::new(plan(&self.launch), replayed),
            now_s: 0.0,
            running_since: None,
            last_step: LastStep::default(),
        };
        begun.announce(&self.launch, &damaged)?;
        self.begun = Some(begun);
        Ok(())
    }

    /// The differences between this process and the one that began the trial, as short texts; only
    /// if this process resumes from results of that one.
    pub fn changes(&self) -> &[String] {
        match &self.begun {
            Some(begun) if begun.checkpoint.is_some() => &begun.directory.changes,
            _ => &[],
        }
    }

    /// Whether the trial has begun.
    pub fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// The id of a text: the identity of a call, or a place in the script. Available before the
    /// trial begins.
    pub fn intern(&mut self, text: &[u8]) -> TextId {
        self.calls.intern(text)
    }

    /// The id that has this number.
    ///
    /// # Errors
    ///
    /// A bug, if there is none.
    pub fn text_id(&self, number: u32) -> Result<TextId> {
        let id = self.calls.id(number);
        id.ok_or_else(|| Bug(format!("`{number}` is the id of no text")).into())
    }

    /// Appends a call and its result. It stays in memory until [`Training::flush`] or
    /// [`Training::save`].
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn append(&mut self, call: &Call, value: &Encoded) -> Result<()> {
        self.calls.append(call, value)?;
        if call.kind == kind::TRAIN {
            self.metrics.add(call.identity, value.decoder());
        }
        Ok(())
    }

    /// Whether the log is longer than the launch message allows. If it is, nothing is lost.
    pub fn is_log_exceeded(&self) -> bool {
        self.calls.size() > self.launch.log_limit_bytes
    }

    /// The state of the replay.
    #[inline]
    pub fn state(&self) -> State {
        self.calls.state()
    }

    /// What becomes of the call that the script makes now: see [`Session::next`].
    ///
    /// # Errors
    ///
    /// Corrupt, or storage; a bug, before the trial has begun.
    pub fn next(&mut self, may_trace: bool) -> Result<Next> {
        self.calls.next(may_trace)
    }

    /// Puts the result in the next record into `answer`, if that record is of this call.
    ///
    /// # Errors
    ///
    /// A divergence, if it is not; corrupt, or storage.
    pub fn answer(&mut self, call: &Call, answer: &mut Answer) -> Result<()> {
        let is_last = self.calls.answer(call, answer)?;
        if call.kind == kind::TRAIN {
            self.metrics.add(call.identity, answer.decoder());
        }
        self.answered(is_last)
    }

    /// Like [`Training::answer`], for a call that was made again: its result must be the same.
    ///
    /// # Errors
    ///
    /// Like [`Training::answer`].
    pub fn check(&mut self, call: &Call, value: &Encoded, answer: &mut Answer) -> Result<()> {
        let is_last = self.calls.check(call, value, answer)?;
        if call.kind == kind::TRAIN {
            self.metrics.add(call.identity, value.decoder());
        }
        self.answered(is_last)
    }

    /// Notes the end of the replay in the journal.
    #[inline]
    fn answered(&mut self, is_last: bool) -> Result<()> {
        let checkpoint = self.checkpoint().filter(|_| is_last);
        let Some(checkpoint) = checkpoint else {
            return Ok(());
        };
        let manifest = &checkpoint.manifest;
        let resumed = json!({
            "batch": manifest.batch,
            "step": manifest.step,
            "calls": manifest.calls,
            "checkpoint": checkpoint.folder().file_name().unwrap_or_default().to_string_lossy(),
        });
        self.event("resumed", members(resumed))
    }

    /// The next recorded call; `None` if the replay is over.
    ///
    /// # Errors
    ///
    /// Corrupt, or storage.
    pub fn peek(&mut self) -> Result<Option<Call>> {
        self.calls.peek()
    }

    /// Calls recorded before the checkpoint; 0 if there is none.
    pub fn resume_call(&self) -> u64 {
        self.calls.resume_call()
    }

    /// Calls answered or appended so far.
    pub fn position(&self) -> u64 {
        self.calls.position()
    }

    /// Hands the appended calls to the operating system. Not durable.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn flush(&mut self) -> Result<()> {
        self.calls.flush()
    }

    /// Appends an event of the hooks to the journal. Does nothing before the trial has begun.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn event(&self, event: &str, members: Map<String, Value>) -> Result<()> {
        match &self.begun {
            Some(begun) => lock(&begun.journal).append(event, members),
            None => Ok(()),
        }
    }

    /// Notes in the journal that a signal, or a handler of the script for it, ends the run after
    /// the last batch. `was_saved`: a checkpoint was taken for this, and waited for; it may have
    /// failed.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn preempted(&self, signal: i32, was_saved: bool) -> Result<()> {
        let begun = self.begun.as_ref().ok_or_else(not_begun)?;
        let (batch, newest) = (begun.sequencer.batches(), begun.saver.newest());
        let event = json!({
            "signal": events::signal_name(signal),
            "batch": batch,
            "checkpoint": newest,
            "is_new": was_saved && newest == Some(batch),
        });
        self.event(events::PREEMPTED, members(event))
    }

    /// Notes in the journal that the script ended before a signal that asked for its end took
    /// effect.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn outlived(&self, signal: i32) -> Result<()> {
        let event = json!({"signal": events::signal_name(signal)});
        self.event(events::OUTLIVED, members(event))
    }

    /// Logs, and notes in the journal, that the script handled a signal that asked for its end, and
    /// continues to train.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn trained_on(&self, signal: i32) -> Result<()> {
        let begun = self.begun.as_ref().ok_or_else(not_begun)?;
        let (signal, newest) = (events::signal_name(signal), begun.saver.newest());
        tracing::warn!("{}", console::trained_on(&signal, newest));
        let event = json!({
            "signal": signal,
            "batch": begun.sequencer.batches(),
            "checkpoint": newest,
        });
        self.event(events::TRAINED_ON, members(event))
    }

    /// Checks the end of the script.
    ///
    /// # Errors
    ///
    /// A divergence, if it made fewer calls than were recorded before the checkpoint; corrupt, or
    /// storage.
    pub fn end(&mut self) -> Result<()> {
        self.calls.end(self.has_checkpoint())
    }

    /// The process ends, or records nothing from now on.
    pub fn close(&mut self) {
        self.calls.close();
    }
}

fn lock(journal: &Mutex<Journal>) -> MutexGuard<'_, Journal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Begun {
    /// Notes the start of this process in the journal, and logs what a user should know.
    fn announce(&self, launch: &Launch, damaged: &[Error]) -> Result<()> {
        let Directory { record, .. } = &self.directory;
        let mut journal = lock(&self.journal);
        journal.append(
            "trial_begun",
            members(json!({
                "trial_id": record.trial_id,
                "experiment_id": record.experiment_id,
                "attempt": launch.attempt,
                // A record of an earlier version has the full command.
                "command": redact_words(&record.command),
                "hyperparameters": redact_values(&record.hyperparameters),
                "python": record.facts.python,
                "versions": record.facts.versions,
                "cpu": record.facts.cpu,
            })),
        )?;
        for error in damaged {
            tracing::warn!("{error}");
            let event = json!({"error": error.to_string()});
            journal.append("checkpoint_damaged", members(event))?;
        }
        for note in &launch.notes {
            tracing::info!("{note}");
        }
        if let Some(Checkpoint { manifest, .. }) = &self.checkpoint {
            tracing::info!("{}", console::resuming(manifest));
        } else if launch.resume {
            tracing::info!("{}", console::FROM_THE_BEGINNING);
        }
        Ok(())
    }
}

fn plan(launch: &Launch) -> Plan {
    Plan {
        batches_per_step: launch.batches_per_step,
        checkpoint_period: launch.checkpoint_period,
        checkpoint_seconds: launch.checkpoint_seconds,
        checkpoint_batches: launch.checkpoint_batches.clone(),
        steps: launch.steps,
        validation_period: launch.validation_period,
        checkpoint_policy: launch
            .search
            .as_ref()
            .map(|search| search.checkpoint_policy),
        smaller_is_better: launch
            .search
            .as_ref()
            .is_none_or(|search| search.smaller_is_better),
    }
}

fn not_begun() -> Error {
    Bug("the trial has not begun".to_owned()).into()
}

#[cfg(test)]
mod tests;
