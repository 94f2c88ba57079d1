//! The training of a trial in one process: connects the log, the checkpoints, the sequencer and the
//! journal.
//!
//! ```text
//! Training::new      knows the launch message; has not accessed the disk
//!   begin            opens the directory, finds the newest checkpoint
//!     answer, check  the replay, until `position` is `resume_call`; then hooks set the state
//!     append         every call after that
//!     batch_done     after every training call; says what is due
//!     save           when a checkpoint is due
//!   end              when the script has ended: it must have made every recorded call
//! ```
//!
//! Nothing here calls back into the caller, so a caller may hold a lock around every method. The
//! one long wait, for a checkpoint to be written, is possible without the lock:
//! [`Training::take_commit`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use crate::calls::value::Encoded;
use crate::calls::{Answer, Call, Divergence, Log, Mark, Replay, Tables, TextId, kind};
use crate::checkpoint::{Checkpoint, Newest, RealFileSystem, Snapshot, Store, Tensor};
use crate::directory::{self, Directory, Facts};
use crate::error::{Bug, Class, Error, Kind, Result};
use crate::event_stream::Stream;
use crate::events::{self, Journal};
use crate::file::Lock;
pub use crate::metrics::OfCall;
use crate::metrics::{self, Averages, Metric};
pub use crate::saver::{Commit, Ended};
use crate::saver::{Saver, members};
use crate::secrets::{redact_values, redact_words};
use crate::sequencer::{Boundary, Plan, Sequencer};
use crate::trial::Launch;
use crate::workload::Workload;

pub(crate) const LOG: &str = "calls.log";

/// The training of a trial in this process.
#[derive(Debug)]
pub struct Training {
    launch: Launch,
    tables: Tables,
    metrics: Averages,
    /// The lock of the trial, if it was taken before the first call.
    held: Option<Lock>,
    begun: Option<Begun>,
}

/// The parts that exist once the trial has begun.
#[derive(Debug)]
struct Begun {
    directory: Directory,
    log: Log,
    replay: Option<Replay>,
    checkpoint: Option<Checkpoint>,
    journal: Arc<Mutex<Journal>>,
    saver: Saver,
    sequencer: Sequencer,
    /// The time of the last batch in seconds, and the start of the current step: time and batch.
    now_s: f64,
    running_since: Option<(f64, u64)>,
    last_step: LastStep,
}

/// How long a step waited for batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DataWait {
    /// Seconds in which training waited for a batch, or built it itself.
    pub seconds: f64,
    /// Threads or processes that build batches; 0 if the training thread builds them.
    pub workers: u32,
}

/// Parts of the line about the last step.
#[derive(Debug, Default)]
struct LastStep {
    metrics: String,
    speed: Option<f64>,
    waiting: String,
}

/// The speed of a step is not shown before this many seconds: that of the previous step is
/// steadier.
const LEAST_SECONDS: f64 = 2.0;

impl Training {
    /// A training that has not begun. Does not access the disk.
    pub fn new(launch: Launch) -> Self {
        Self {
            launch,
            tables: Tables::default(),
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
            log = Some(Log::open(&log_path, mark, &mut self.tables)?);
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
        let (log, replay) = match log {
            Some(log) => {
                log.cut_back()?;
                let replay = log.replay()?;
                (log, Some(replay))
            }
            None => (Log::create(&log_path, &mut self.tables)?, None),
        };
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
            log,
            replay,
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
        self.tables.intern(text)
    }

    /// The id that has this number.
    ///
    /// # Errors
    ///
    /// A bug, if there is none.
    pub fn text_id(&self, number: u32) -> Result<TextId> {
        let id = self.tables.id(number);
        id.ok_or_else(|| Bug(format!("`{number}` is the id of no text")).into())
    }

    /// Appends a call and its result. It stays in memory until [`Training::flush`] or
    /// [`Training::save`].
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn append(&mut self, call: &Call, value: &Encoded) -> Result<()> {
        let begun = self.begun.as_mut().ok_or_else(not_begun)?;
        begun.log.append(&mut self.tables, call, value)?;
        if call.kind == kind::TRAIN {
            self.metrics.add(call.identity, value.decoder());
        }
        Ok(())
    }

    /// Whether the log is longer than the launch message allows. If it is, nothing is lost.
    pub fn is_log_exceeded(&self) -> bool {
        self.begun
            .as_ref()
            .is_some_and(|begun| begun.log.size() > self.launch.log_limit_bytes)
    }

    /// Puts the result in the next record into `answer`, if that record is of this call.
    ///
    /// # Errors
    ///
    /// A divergence, if it is not; corrupt, or storage.
    pub fn answer(&mut self, call: &Call, answer: &mut Answer) -> Result<()> {
        replay(&mut self.begun)?.answer(&self.tables, call, answer)?;
        if call.kind == kind::TRAIN {
            self.metrics.add(call.identity, answer.decoder());
        }
        self.answered()
    }

    /// Like [`Training::answer`], for a call that was made again: its result must be the same.
    ///
    /// # Errors
    ///
    /// Like [`Training::answer`].
    pub fn check(&mut self, call: &Call, value: &Encoded, answer: &mut Answer) -> Result<()> {
        replay(&mut self.begun)?.check(&self.tables, call, value, answer)?;
        if call.kind == kind::TRAIN {
            self.metrics.add(call.identity, value.decoder());
        }
        self.answered()
    }

    /// Notes the end of the replay in the journal.
    #[inline]
    fn answered(&mut self) -> Result<()> {
        let Some(Begun {
            replay: Some(replay),
            checkpoint: Some(checkpoint),
            journal,
            ..
        }) = &self.begun
        else {
            return Ok(());
        };
        let manifest = &checkpoint.manifest;
        if replay.position() < manifest.calls {
            return Ok(());
        }
        let resumed = json!({
            "batch": manifest.batch,
            "step": manifest.step,
            "calls": manifest.calls,
            "checkpoint": checkpoint.folder().file_name().unwrap_or_default().to_string_lossy(),
        });
        lock(journal).append("resumed", members(resumed))
    }

    /// The next recorded call; `None` if the replay is over.
    ///
    /// # Errors
    ///
    /// Corrupt, or storage.
    pub fn peek(&mut self) -> Result<Option<Call>> {
        match self.begun.as_mut().and_then(|begun| begun.replay.as_mut()) {
            Some(replay) => replay.peek(&self.tables),
            None => Ok(None),
        }
    }

    /// Calls recorded before the checkpoint; 0 if there is none.
    pub fn resume_call(&self) -> u64 {
        self.checkpoint()
            .map_or(0, |checkpoint| checkpoint.manifest.calls)
    }

    /// Calls answered or appended so far.
    pub fn position(&self) -> u64 {
        let Some(begun) = &self.begun else { return 0 };
        let answered = begun.replay.as_ref().map(Replay::position);
        match answered {
            Some(answered) if answered < self.resume_call() => answered,
            _ => begun.log.calls(),
        }
    }

    /// Hands the appended calls to the operating system. Not durable.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn flush(&mut self) -> Result<()> {
        self.begun
            .as_mut()
            .map_or(Ok(()), |begun| begun.log.flush())
    }

    /// The checkpoint that this process resumes from.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.begun.as_ref()?.checkpoint.as_ref()
    }

    /// Takes the arrays of the checkpoint, once. Return their memory with [`Training::reuse`].
    pub fn take_tensors(&mut self) -> Vec<Tensor> {
        let checkpoint = self
            .begun
            .as_mut()
            .and_then(|begun| begun.checkpoint.as_mut());
        checkpoint
            .map(|checkpoint| std::mem::take(&mut checkpoint.tensors))
            .unwrap_or_default()
    }

    /// Keeps tensors so that the next checkpoint can use their memory.
    pub fn reuse(&mut self, tensors: Vec<Tensor>) {
        if let Some(begun) = &mut self.begun {
            begun.saver.reuse(tensors);
        }
    }

    /// Restores a file from the checkpoint. Returns whether the checkpoint has it.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn restore_file(&self, path: &Path) -> Result<bool> {
        match self.checkpoint() {
            Some(checkpoint) => checkpoint.restore_file(path),
            None => Ok(false),
        }
    }

    /// Notes that a training call was made or answered.
    ///
    /// # Errors
    ///
    /// A bug, before the trial has begun.
    #[inline]
    pub fn batch_done(&mut self, now_s: f64) -> Result<Boundary> {
        let begun = self.begun.as_mut().ok_or_else(not_begun)?;
        let is_replayed = begun.sequencer.is_replaying();
        let boundary = begun.sequencer.batch_done(now_s);
        begun.now_s = now_s;
        if is_replayed {
            if boundary.step_ended.is_some() {
                self.metrics.clear();
            }
        } else if begun.running_since.is_none() {
            begun.running_since = Some((now_s, begun.sequencer.batches()));
        }
        Ok(boundary)
    }

    /// Whether this process has trained a batch: the clock of its first step starts with that
    /// batch.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.begun
            .as_ref()
            .is_some_and(|begun| begun.running_since.is_some())
    }

    /// Whether the last batch was one of the replay.
    #[inline]
    pub fn is_replayed(&self) -> bool {
        self.begun
            .as_ref()
            .is_some_and(|begun| begun.sequencer.is_replayed())
    }

    /// Batches that the trial still has to train; `None` if the training loop of the script
    /// decides.
    pub fn batches_left(&self) -> Option<u64> {
        match &self.begun {
            Some(begun) => begun.sequencer.batches_left(),
            None => Sequencer::new(plan(&self.launch), 0).batches_left(),
        }
    }

    /// Notes that the model was validated after the last batch: writes it into the journal, unless
    /// a replay repeats it. Returns whether a checkpoint of the model is due.
    ///
    /// Args:
    ///     `metrics`: names as in the framework, and values.
    ///
    /// # Errors
    ///
    /// The metric of the search is not among them; storage.
    pub fn validated(&mut self, epoch: Option<u64>, metrics: &[(String, f64)]) -> Result<bool> {
        let is_replayed = self.position() < self.resume_call();
        let begun = self.begun.as_mut().ok_or_else(not_begun)?;
        let metric = match &self.launch.search {
            Some(search) => metrics::validation_metric(metrics, &search.metric)?,
            None => f64::NAN,
        };
        let is_due = begun.sequencer.validated(metric);
        if is_replayed {
            return Ok(false);
        }
        let (batch, step) = (begun.sequencer.batches(), begun.sequencer.steps());
        tracing::info!(
            "validation after batch {batch}{}",
            metrics::describe(metrics, None)
        );
        let members_of = |(name, value): &(String, f64)| (name.clone(), events::number(*value));
        let values: Map<_, _> = metrics.iter().map(members_of).collect();
        lock(&begun.journal).append(
            "validation",
            members(json!({
                "workload": Workload::ComputeValidationMetrics { step }.to_string(),
                "batch": batch,
                "step": step,
                "epoch": epoch,
                "metrics": values,
                "best_batch": begun.sequencer.best_batch(),
            })),
        )?;
        Ok(is_due)
    }

    /// Sets the names of the items in the list that a call returns.
    pub fn set_metric_names(&mut self, identity: TextId, names: Vec<String>) {
        self.metrics.set_names(identity, names);
    }

    /// The values that the last training calls of the current step returned, for each model:
    /// identity of the call, name, value.
    pub fn last_values(&self) -> Vec<(TextId, String, f64)> {
        self.metrics.last_values()
    }

    /// Sets the value of a metric of the current step, if that is not the mean over its calls.
    /// `is_at_end`: it is the value at the end of the step, not a mean.
    pub fn tell_step_metric(&mut self, identity: TextId, name: &str, value: f64, is_at_end: bool) {
        self.metrics.tell(identity, name, value, is_at_end);
    }

    /// Keeps the metrics of each training call until they are taken.
    pub fn keep_call_metrics(&mut self) {
        self.metrics.keep_calls();
    }

    /// The metrics of each training call since the last call of this method, including answered
    /// calls.
    pub fn take_call_metrics(&mut self) -> Vec<OfCall> {
        self.metrics.take_calls()
    }

    /// Ends the step that ended with the last batch, after its calls are appended: writes it into
    /// the journal, and logs it, unless a line on the terminal shows it already (`is_live`).
    /// `epoch` is that of the last batch, from 0; none in a training loop of the script. `wait` is
    /// none if the batches do not come from a data set.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn end_step(
        &mut self,
        epoch: Option<u64>,
        wait: Option<DataWait>,
        is_live: bool,
    ) -> Result<()> {
        let taken = self.metrics.take(&self.tables);
        let is_at_end = |metric: &&Metric| metric.is_at_end;
        let name = |metric: &Metric| metric.name.clone();
        let at_end: Vec<_> = taken.iter().filter(is_at_end).map(name).collect();
        let named = |metric: &Metric| (metric.name.clone(), metric.value);
        let averages: Vec<_> = taken.iter().map(named).collect();
        let begun = self.begun.as_mut().ok_or_else(not_begun)?;
        let batches = begun.sequencer.batches();
        let step = begun.sequencer.step_of(batches.max(1));
        let speed = begun.speed(0.0);
        let seconds = begun
            .running_since
            .map(|(since_s, _)| begun.now_s - since_s);
        let waiting = match (wait, seconds) {
            (Some(wait), Some(seconds)) => metrics::waiting(wait, seconds),
            _ => String::new(),
        };
        begun.running_since = Some((begun.now_s, batches));
        begun.last_step = LastStep {
            metrics: metrics::list(&averages),
            speed,
            waiting: waiting.clone(),
        };
        let line = format!(
            "step {} (batches {}-{}{}){}{waiting}",
            step.number,
            step.first_batch,
            step.last_batch,
            epoch.map_or(String::new(), |epoch| format!(", epoch {epoch}")),
            metrics::describe(&averages, speed)
        );
        if is_live {
            tracing::debug!("{line}");
        } else {
            tracing::info!("{line}");
        }
        let members_of = |(name, mean): &(String, f64)| (name.clone(), events::number(*mean));
        let averages: Map<_, _> = averages.iter().map(members_of).collect();
        let mut event = members(json!({
            "workload": Workload::RunStep(step).to_string(),
            "step": step.number,
            "batches": [step.first_batch, step.last_batch],
            "epoch": epoch,
            "metrics": averages,
            "batches_per_second": speed,
            "seconds": seconds,
            "data_wait_seconds": wait.map(|wait| wait.seconds),
        }));
        if !at_end.is_empty() {
            event.insert("at_end".to_owned(), at_end.into());
        }
        lock(&begun.journal).append("step", event)
    }

    /// The progress of the training in one line; `None` before it has begun.
    pub fn progress(&self) -> Option<String> {
        let begun = self.begun.as_ref()?;
        let batches = begun.sequencer.batches();
        let step = begun.sequencer.step_of(batches.max(1)).number;
        let trial = self.launch.trial_id;
        let mut line = format!("trial {trial}, step {step}, batch {batches}");
        if begun.sequencer.is_replaying() {
            let last = begun.saver.committed();
            return Some(format!("{line}: replaying, up to batch {last}"));
        }
        if let Some(speed) = begun.speed(LEAST_SECONDS).or(begun.last_step.speed) {
            line = format!("{line}, {}", metrics::rate(speed));
        }
        line += &begun.last_step.waiting;
        // The metrics come last: if a line is too long for the terminal, its end is cut off.
        let checkpoint = match begun.saver.committed() {
            0 => "no checkpoint".to_owned(),
            batch => format!("checkpoint {batch}"),
        };
        line = format!("{line}, {checkpoint}");
        if !begun.last_step.metrics.is_empty() {
            line = format!("{line}: {}", begun.last_step.metrics);
        }
        Some(line)
    }

    /// Tensors of an earlier checkpoint, whose memory can be used for the next.
    pub fn used_tensors(&mut self) -> Vec<Tensor> {
        self.begun
            .as_mut()
            .map(|begun| begun.saver.used_tensors())
            .unwrap_or_default()
    }

    /// Takes a checkpoint of the state after the last appended call.
    ///
    /// Args:
    ///     `epoch`: of the last batch, from 0; none in a training loop of the script.
    ///     `tensors`: the arrays, copied.
    ///     `state`: the rest, JSON.
    ///     `files`: files of the script that belong to it; those that do not exist are left out.
    ///
    /// # Errors
    ///
    /// Storage, of the log, or if too many checkpoints in a row could not be written, including the
    /// one before this; or something that cannot be stored at all.
    pub fn save(
        &mut self,
        epoch: Option<u64>,
        tensors: Vec<Tensor>,
        state: String,
        files: Vec<PathBuf>,
    ) -> Result<()> {
        let begun = self.begun.as_mut().ok_or_else(not_begun)?;
        let mark = begun.log.mark()?;
        let snapshot = Snapshot {
            batch: begun.sequencer.batches(),
            step: begun.sequencer.steps(),
            epoch,
            calls: mark.calls,
            log_offset: mark.offset,
            state,
            tensors,
            files,
            validations: begun.sequencer.validations().clone(),
            retention: self.launch.search.as_ref().map(|search| search.retention),
        };
        begun.saver.save(snapshot, begun.log.file())?;
        begun.sequencer.checkpoint_taken(begun.now_s);
        Ok(())
    }

    /// Whether a checkpoint is being written.
    pub fn is_saving(&self) -> bool {
        self.begun
            .as_ref()
            .is_some_and(|begun| begun.saver.is_saving())
    }

    /// The commit that writes a checkpoint, so that the caller can wait for it without holding the
    /// training.
    pub fn take_commit(&mut self) -> Option<Commit> {
        self.begun.as_mut()?.saver.take_commit()
    }

    /// Takes the result of [`Training::take_commit`]. Returns whether the checkpoint was written;
    /// if it was not, that was reported, and the training may continue.
    ///
    /// # Errors
    ///
    /// Why the training must not continue.
    pub fn end_commit(&mut self, ended: Ended) -> Result<bool> {
        self.begun.as_mut().ok_or_else(not_begun)?.saver.end(ended)
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
        let continues = match newest {
            Some(batch) => format!("continues after batch {batch}"),
            None => "starts from the beginning".to_owned(),
        };
        tracing::warn!(
            "the script handled {signal} by itself, and trains on: no further checkpoints are taken, since what its \
             handler changed is not recorded; the same command {continues}"
        );
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
        if self.position() >= self.resume_call() && (self.has_begun() || !self.has_checkpoint()) {
            return Ok(());
        }
        let recorded = self.peek()?;
        let number = self.position() + 1;
        Err(Divergence::ended(&self.tables, number, recorded.as_ref()).into())
    }
}

fn replay(begun: &mut Option<Begun>) -> Result<&mut Replay> {
    let replay = begun.as_mut().ok_or_else(not_begun)?.replay.as_mut();
    let none = || Bug("a call is to be answered, and there is no replay".to_owned());
    replay.ok_or_else(|| none().into())
}

fn lock(journal: &Mutex<Journal>) -> MutexGuard<'_, Journal> {
    journal.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Begun {
    /// Batches per second since the current step began, if that is at least this many seconds ago.
    fn speed(&self, least_seconds: f64) -> Option<f64> {
        let (since_s, first) = self.running_since?;
        let seconds = self.now_s - since_s;
        #[expect(clippy::cast_precision_loss, reason = "a rate is rounded anyhow")]
        let rate = (self.sequencer.batches() - first) as f64 / seconds;
        (seconds >= least_seconds && rate.is_finite()).then_some(rate)
    }

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
            tracing::info!(
                "resuming after batch {} (step {}): {} calls are replayed",
                manifest.batch,
                manifest.step,
                manifest.calls
            );
        } else if launch.resume {
            tracing::info!("no checkpoint was taken before: the script starts from the beginning");
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

/// The file system failed before the trial began in this process.
#[derive(Debug)]
struct CannotBegin {
    trial_dir: PathBuf,
    source: Error,
}

impl Kind for CannotBegin {
    fn class(&self) -> Class {
        Class::CannotCreate
    }

    fn hint(&self) -> Option<String> {
        Some(directory::hint_for(&self.source).to_owned())
    }

    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl fmt::Display for CannotBegin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.source.to_string().replace("\n  ", ": ");
        write!(
            formatter,
            "cannot begin the trial in `{}`\n  {reason}\n  the run was stopped before it trained",
            self.trial_dir.display()
        )
    }
}

/// There are checkpoints, but none is intact.
#[derive(Debug)]
struct NoneLeft {
    trial_dir: PathBuf,
    damaged: Vec<Error>,
}

impl Kind for NoneLeft {
    fn class(&self) -> Class {
        Class::CheckpointCorrupt
    }

    fn hint(&self) -> Option<String> {
        Some("restore the folder from a backup, or begin a new trial with `--fresh`".to_owned())
    }
}

impl fmt::Display for NoneLeft {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "no checkpoint in `{}` is whole",
            self.trial_dir.display()
        )?;
        for damage in &self.damaged {
            for line in damage.to_string().lines() {
                write!(formatter, "\n  {line}")?;
            }
        }
        formatter.write_str(
            "\n  nothing of the trial was changed, and the run was stopped before it trained",
        )
    }
}

#[cfg(test)]
mod tests;
