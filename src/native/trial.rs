//! The class `Trial`: the training of one trial in one process, as the hooks see it.
//!
//! A lock protects the training. It is held only while core works, never while Python code runs:
//! converting a value may call the framework, which may call a hook, which may call this module
//! again.

use std::borrow::Cow;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pedl_core::calls::value::Encoded;
use pedl_core::calls::{Answer, Call, TextId, kind};
use pedl_core::checkpoint::Tensor;
use pedl_core::directory::Facts;
use pedl_core::sequencer::Boundary;
use pedl_core::training::Training;
use pedl_core::trial::{LAUNCH_SCHEMA, Launch};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyString, PyTuple};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::Value;

use crate::error::{Error, IntoPython};
use crate::numpy::Numpy;
use crate::pool::{Ahead, Pool, PoolWorker, ThreadTasks, Waits};
use crate::{array, batch, convert, live, log, pool, preemption};

/// Bits of what `batch_done` and `record_batch` return.
const STEP_ENDED: u8 = 1;
const CHECKPOINT_DUE: u8 = 2;
const LOG_EXCEEDED: u8 = 4;
const NOT_RECORDED: u8 = 8;
const VALIDATION_DUE: u8 = 16;
const IS_LAST: u8 = 32;
const SIGNAL: u8 = 64;
const CHECKPOINT_WANTED: u8 = 128;

/// What identifies a call: kind, identity, site, draws, arguments.
type Key = (u8, u32, u32, u64, u64);

/// One trial in one process. In a child that was forked from it nothing is recorded.
#[pyclass(frozen, module = "_pedl")]
pub(crate) struct Trial {
    launch: Launch,
    launch_text: Py<PyString>,
    training: Mutex<Training>,
    /// Buffers for one call, lent to code that converts values.
    encoded: Mutex<Encoded>,
    answer: Mutex<Answer>,
    /// The process that this was made in.
    process: u32,
    /// Whether this process must not act on the trial: a forked child, or a worker server.
    is_inert: AtomicBool,
    /// Whether the journal records that a signal ended the run.
    is_preempted: AtomicBool,
    /// Of the thread that made this, which is the thread that trains.
    waits: Arc<Waits>,
}

#[pymethods]
impl Trial {
    /// Reads a launch message. Touches no disk.
    #[new]
    fn new(launch: &Bound<'_, PyString>) -> PyResult<Self> {
        let message: Launch = serde_json::from_str(&launch.to_cow()?)
            .map_err(|error| PyValueError::new_err(format!("not a launch message: {error}")))?;
        if message.schema != LAUNCH_SCHEMA {
            let found = message.schema;
            let problem = format!("a launch message of schema {found}, expected {LAUNCH_SCHEMA}");
            return Err(PyValueError::new_err(problem));
        }
        let is_inert = message.serves.is_some();
        Ok(Self {
            training: Mutex::new(Training::new(message.clone())),
            launch: message,
            launch_text: launch.clone().unbind(),
            encoded: Mutex::default(),
            answer: Mutex::default(),
            process: process::id(),
            is_inert: AtomicBool::new(is_inert),
            is_preempted: AtomicBool::new(false),
            waits: Arc::new(Waits::of_this_thread()),
        })
    }

    // -- the launch message --------------------------------------------------------------------

    /// The launch message, JSON.
    #[getter]
    fn launch(&self, py: Python<'_>) -> Py<PyString> {
        self.launch_text.clone_ref(py)
    }

    /// The trial directory, absolute.
    #[getter]
    fn directory(&self) -> Cow<'_, str> {
        self.launch.trial_dir.to_string_lossy()
    }

    /// The hyperparameters by name, JSON; `{}` if there are none.
    #[getter]
    fn hyperparameters(&self) -> PyResult<String> {
        serde_json::to_string(&self.launch.hyperparameters)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Seed of everything that the script leaves unseeded, below 2**31.
    #[getter]
    fn seed(&self) -> u32 {
        self.launch.trial_seed
    }

    /// Size of the thread pools of mathematics libraries.
    #[getter]
    fn threads(&self) -> u32 {
        self.launch.threads
    }

    /// Seconds that a worker process may take to build an item of a data set; None for no limit.
    #[getter]
    fn worker_timeout(&self) -> Option<f64> {
        self.launch.worker_timeout
    }

    /// Whether a run that cannot be exact is refused.
    #[getter]
    fn exact(&self) -> bool {
        self.launch.exact
    }

    /// Libraries that are left alone.
    #[getter]
    fn no_hooks(&self) -> Vec<String> {
        self.launch.no_hooks.clone()
    }

    /// Whether the configuration or `--steps` decides how long the trial trains, or when it is
    /// validated.
    #[getter]
    fn has_plan(&self) -> bool {
        self.launch.steps.is_some() || self.launch.search.is_some()
    }

    /// Whether validations are compared: there is a configuration.
    #[getter]
    fn has_search(&self) -> bool {
        self.launch.search.is_some()
    }

    /// Whether the trial had begun before this process was started.
    #[getter]
    fn resume(&self) -> bool {
        self.launch.resume
    }

    /// How this process differs from the one that began the trial that it resumes, short texts.
    #[getter]
    fn changes(&self) -> Vec<String> {
        if self.is_inert() {
            return Vec::new();
        }
        self.training().changes().to_vec()
    }

    /// The trial process for which this process starts workers; None: it is the trial process.
    #[getter]
    fn serves(&self) -> Option<i32> {
        self.launch.serves
    }

    /// Whether this process was forked from the one that this was made in.
    #[getter]
    fn is_child(&self) -> bool {
        self.process != process::id()
    }

    // -- worker processes -------------------------------------------------------------------------

    /// A pool for the worker processes of a data set, without workers: see [`Pool::new`].
    #[staticmethod]
    fn pool(
        window: u32,
        leases: u32,
        workers: u32,
        dumps: Py<PyAny>,
        loads: Py<PyAny>,
    ) -> PyResult<Pool> {
        Pool::new(window, leases, workers, dumps, loads)
    }

    /// A worker of a pool that another process has made: see [`PoolWorker::of_memory`].
    #[staticmethod]
    fn pool_worker(
        py: Python<'_>,
        memory: i32,
        shape: (u32, u32, u32),
        number: u32,
        parent: i32,
        dumps: Py<PyAny>,
        loads: Py<PyAny>,
    ) -> PyResult<PoolWorker> {
        PoolWorker::of_memory(py, memory, shape, number, parent, dumps, loads)
    }

    /// The tasks of a pass whose items threads build; none yet.
    #[staticmethod]
    fn thread_tasks() -> ThreadTasks {
        ThreadTasks::new()
    }

    /// What `workers` workers build ahead of one pass; nothing yet.
    fn ahead(&self, workers: u32) -> Ahead {
        Ahead::new(Arc::clone(&self.waits), workers)
    }

    /// This thread waited for, or built, a batch, for `seconds`; `workers` workers build them.
    /// Ignored in other threads than the one that trains: they take batches ahead of it.
    fn waited(&self, seconds: f64, workers: u32) {
        self.waits.add(seconds, workers);
    }

    /// A file in memory that forked children share: its descriptor, which the caller closes. Python
    /// 3.7 cannot make one.
    #[staticmethod]
    fn memory_file() -> PyResult<i32> {
        pool::memory_file()
    }

    /// In a worker server, and in what it forks: makes the kernel kill this process when its parent
    /// has ended, whatever it is doing then. The caller must check the parent again afterwards.
    #[staticmethod]
    fn die_with_parent() {
        // If the kernel refuses (no kernel that runs Python does), the process ends at its next
        // check.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }

    // -- the beginning and the end --------------------------------------------------------------

    /// The first intercepted call: opens the trial directory, and finds the newest checkpoint.
    fn begin(slf: &Bound<'_, Self>, facts: &str) -> PyResult<()> {
        let (py, trial) = (slf.py(), slf.get());
        if trial.is_child() {
            trial.fork_child();
        }
        if trial.is_inert() {
            return Ok(());
        }
        let facts: Facts = serde_json::from_str(facts)
            .map_err(|error| PyValueError::new_err(format!("not the facts: {error}")))?;
        log::start(&trial.launch);
        live::start(&trial.launch);
        py.detach(|| trial.locked(|training| training.begin(facts)))
            .into_python(py)?;
        preemption::watch(trial.launch.grace_seconds);
        let options = PyDict::new(py);
        options.set_item("after_in_child", slf.getattr("fork_child")?)?;
        py.import("os")?
            .call_method("register_at_fork", (), Some(&options))?;
        Ok(())
    }

    /// In a forked child: from now on every method does nothing.
    fn fork_child(&self) {
        live::forget();
        self.stand_aside();
    }

    /// From now on every method does nothing: the run continues under Python alone, and signals act
    /// at once.
    fn stand_aside(&self) {
        preemption::forget();
        self.is_inert.store(true, Ordering::Relaxed);
    }

    /// The script has ended: raises if it made fewer calls than were recorded before the
    /// checkpoint, unless a signal had asked for its end.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_inert() || preemption::received() != 0 {
            self.tell_handed();
            return Ok(());
        }
        self.with(py, Training::end)
    }

    /// Takes the lock of an existing trial, before anything of it is touched.
    fn hold(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_inert() {
            return Ok(());
        }
        self.with(py, Training::hold)
    }

    /// The script has ended: writes what was appended, waits until its last checkpoint is written,
    /// and says why it could not be. The training is complete, so that this is no failure any more.
    fn settle(&self, py: Python<'_>) {
        if self.is_inert() {
            return;
        }
        // So that the record of a completed trial holds all of its calls.
        if let Err(error) = self.locked(Training::flush) {
            log::start(&self.launch);
            tracing::warn!("the last calls were not recorded, and the training has ended: {error}");
        }
        self.tell_handed();
        self.tell_outlived();
        let Some(commit) = self.training().take_commit() else {
            return;
        };
        let ended = py.detach(|| commit.wait());
        match self.locked(|training| training.end_commit(ended)) {
            Ok(true) => {}
            Ok(false) => {
                log::start(&self.launch);
                tracing::warn!("the training has ended without its last checkpoint");
            }
            Err(error) => {
                log::start(&self.launch);
                tracing::warn!(
                    "the last checkpoint was not written, and the training has ended: {error}"
                );
            }
        }
    }

    // -- recorded calls --------------------------------------------------------------------------

    /// Number of calls recorded before the checkpoint; 0 if there is none.
    #[getter]
    fn resume_call(&self) -> u64 {
        if self.is_inert() {
            0
        } else {
            self.training().resume_call()
        }
    }

    /// Calls answered or appended so far.
    #[getter]
    fn position(&self) -> u64 {
        if self.is_inert() {
            0
        } else {
            self.training().position()
        }
    }

    /// Whether the log is longer than `--log-limit`.
    #[getter]
    fn log_exceeded(&self) -> bool {
        !self.is_inert() && self.training().is_log_exceeded()
    }

    /// The id of a text: the identity of a call, or its place in the script.
    fn intern(&self, text: &Bound<'_, PyString>) -> PyResult<u32> {
        if self.is_inert() {
            return Ok(0);
        }
        convert::text_bytes(text, |bytes| self.training().intern(bytes).number())
    }

    /// A checksum of a batch, an even number: of its numpy arrays of numbers and their shapes,
    /// None, True and False. 0 if it contains anything else.
    #[staticmethod]
    fn batch_checksum(
        values: &Bound<'_, PyTuple>,
        named_values: &Bound<'_, PyDict>,
    ) -> PyResult<u32> {
        batch::checksum(values, named_values)
    }

    /// Appends calls `(kind, identity, site, draws, arguments, value)`. Returns the names of the
    /// types that could not be recorded.
    fn append(&self, py: Python<'_>, calls: &Bound<'_, PyList>) -> PyResult<Vec<String>> {
        let mut opaque = Vec::new();
        if self.is_inert() {
            return Ok(opaque);
        }
        let mut encoded = take(&self.encoded);
        for call in calls {
            let call = call.cast_into::<PyTuple>()?;
            let item = |place| call.get_borrowed_item(place);
            let key = (
                item(0)?.extract()?,
                item(1)?.extract()?,
                item(2)?.extract()?,
                item(3)?.extract()?,
                item(4)?.extract()?,
            );
            encoded.clear();
            convert::encode(&item(5)?.to_owned(), &mut encoded.encoder(), &mut opaque)?;
            self.with(py, |training| {
                training.append(&call_of(training, key)?, &encoded)
            })?;
        }
        put_back(&self.encoded, encoded);
        Ok(opaque)
    }

    /// Appends a call on one batch, and counts the batch if it is a training call.
    ///
    /// Args:
    ///     `is_traced`: the lowest bit of its arguments; the others are the checksum of its batch.
    ///     `values`, `named_values`: the batch, as the call received it.
    ///     `value`: what the call returned.
    ///     `now_s`: as of `batch_done`.
    ///
    /// Returns what `batch_done` does, bit 6 for calls of other kinds too; bit 2: the log is longer
    /// than `--log-limit`; bit 3: the batch or the value contains something that this method does
    /// not support, and nothing was done.
    #[expect(clippy::too_many_arguments, reason = "they are what identifies a call")]
    fn record_batch(
        &self,
        py: Python<'_>,
        kind: u8,
        identity: u32,
        site: u32,
        draws: u64,
        is_traced: bool,
        values: &Bound<'_, PyTuple>,
        named_values: &Bound<'_, PyDict>,
        value: &Bound<'_, PyAny>,
        now_s: f64,
    ) -> PyResult<u8> {
        if self.is_inert() {
            return Ok(0);
        }
        let checksum = batch::checksum(values, named_values)?;
        let (encoded, opaque) = self.encode(value)?;
        let due = if checksum != 0 && opaque.is_empty() {
            let arguments = u64::from(checksum) | u64::from(is_traced);
            let key = (kind, identity, site, draws, arguments);
            self.with(py, |training| {
                training.append(&call_of(training, key)?, &encoded)?;
                let due = if kind == kind::TRAIN {
                    let due = self.batch_over(training, now_s)?;
                    preemption::trained(now_s);
                    due
                } else {
                    0
                };
                let due = due | signal_bit();
                let is_exceeded = training.is_log_exceeded();
                Ok(due | if is_exceeded { LOG_EXCEEDED } else { 0 })
            })?
        } else {
            NOT_RECORDED
        };
        put_back(&self.encoded, encoded);
        Ok(due)
    }

    /// What the next record returned, if it is of this call.
    #[pyo3(signature = (kind, identity, site, draws, arguments, tensor=None))]
    #[expect(clippy::too_many_arguments, reason = "they are what identifies a call")]
    fn answer<'py>(
        &self,
        py: Python<'py>,
        kind: u8,
        identity: u32,
        site: u32,
        draws: u64,
        arguments: u64,
        tensor: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.refuse_in_child()?;
        let mut answer = take(&self.answer);
        let key = (kind, identity, site, draws, arguments);
        self.with(py, |training| {
            training.answer(&call_of(training, key)?, &mut answer)
        })?;
        let value = convert::decode(py, &answer, tensor)?;
        put_back(&self.answer, answer);
        Ok(value)
    }

    /// Consumes the record of a call that was made again: it must have returned the same value.
    #[expect(clippy::too_many_arguments, reason = "they are what identifies a call")]
    fn check(
        &self,
        py: Python<'_>,
        kind: u8,
        identity: u32,
        site: u32,
        draws: u64,
        arguments: u64,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.refuse_in_child()?;
        let (encoded, _) = self.encode(value)?;
        let mut answer = take(&self.answer);
        let key = (kind, identity, site, draws, arguments);
        self.with(py, |training| {
            training.check(&call_of(training, key)?, &encoded, &mut answer)
        })?;
        put_back(&self.answer, answer);
        put_back(&self.encoded, encoded);
        Ok(())
    }

    /// Kind, identity and arguments of the next record; None if the replay is over.
    fn peek(&self, py: Python<'_>) -> PyResult<Option<(u8, u32, u64)>> {
        if self.is_inert() {
            return Ok(None);
        }
        let call = self.with(py, Training::peek)?;
        Ok(call.map(|call| (call.kind, call.identity.number(), call.arguments)))
    }

    /// Passes what was appended to the operating system.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_inert() {
            Ok(())
        } else {
            self.with(py, Training::flush)
        }
    }

    // -- steps and events ------------------------------------------------------------------------

    /// A training call was made or answered. Bit 0: a step ended with it; bit 1: a checkpoint is
    /// due; bit 4: a validation is due; bit 5: the training of the trial is complete; bit 6: a
    /// signal has come; bit 7: the checkpoint must be of this very batch.
    fn batch_done(&self, py: Python<'_>, now_s: f64) -> PyResult<u8> {
        if self.is_inert() {
            return Ok(0);
        }
        self.with(py, |training| {
            let due = self.batch_over(training, now_s)?;
            if !training.is_replayed() {
                preemption::trained(now_s);
            }
            Ok(due | signal_bit())
        })
    }

    /// Batches that the trial has yet to train; None if a loop of the script decides.
    #[getter]
    fn batches_left(&self) -> Option<u64> {
        self.training().batches_left()
    }

    /// The model was validated: `(name, value)` as the framework reports them. Returns whether a
    /// checkpoint is to be taken.
    #[expect(clippy::needless_pass_by_value, reason = "it is made for this call")]
    fn validated(
        &self,
        py: Python<'_>,
        epoch: Option<u64>,
        metrics: Vec<(String, f64)>,
    ) -> PyResult<bool> {
        if self.is_inert() {
            return Ok(false);
        }
        self.with(py, |training| training.validated(epoch, &metrics))
    }

    /// The names of the values that a call returns as a list.
    fn metric_names(&self, py: Python<'_>, identity: u32, names: Vec<String>) -> PyResult<()> {
        if self.is_inert() {
            return Ok(());
        }
        self.with(py, |training| {
            training.set_metric_names(training.text_id(identity)?, names);
            Ok(())
        })
    }

    /// What the last training call of the running step returned, for each model: `(identity, name,
    /// value)`.
    fn last_values(&self) -> Vec<(u32, String, f64)> {
        let values = self.training().last_values();
        let numbered = |(identity, name, value): (TextId, _, _)| (identity.number(), name, value);
        values.into_iter().map(numbered).collect()
    }

    /// The value of a metric in the running step, if that is not the mean of what its calls
    /// returned; `is_at_end`: it is the value at the end of the step, not a mean.
    fn tell_step_metric(
        &self,
        py: Python<'_>,
        identity: u32,
        name: &str,
        value: f64,
        is_at_end: bool,
    ) -> PyResult<()> {
        self.with(py, |training| {
            let identity = training.text_id(identity)?;
            training.tell_step_metric(identity, name, value, is_at_end);
            Ok(())
        })
    }

    /// Keeps the metrics of each training call, for callbacks of steps.
    fn keep_batch_metrics(&self) {
        self.training().keep_call_metrics();
    }

    /// The metrics of each training call since the last call of this: its identity, and a dict of
    /// numbers.
    fn take_batch_metrics<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u32, Bound<'py, PyDict>)>> {
        let calls = self.training().take_call_metrics();
        calls
            .into_iter()
            .map(|(identity, metrics)| Ok((identity.number(), metrics.into_py_dict(py)?)))
            .collect()
    }

    /// The step that ended with the last batch is over, and its calls are appended.
    fn end_step(&self, py: Python<'_>, epoch: Option<u64>) -> PyResult<()> {
        if self.is_inert() {
            return Ok(());
        }
        let wait = self.waits.take();
        self.with(py, |training| training.end_step(epoch, wait, live::is_on()))
    }

    /// Appends an event, a JSON object with the member `event`, to the journal.
    fn event(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        let event: Value = serde_json::from_str(text)
            .map_err(|error| PyValueError::new_err(format!("not an event: {error}")))?;
        let Value::Object(mut members) = event else {
            return Err(PyValueError::new_err("not an event: it is no object"));
        };
        let Some(Value::String(name)) = members.remove("event") else {
            return Err(PyValueError::new_err(
                "not an event: it has no member `event`",
            ));
        };
        if self.is_inert() {
            Ok(())
        } else {
            self.with(py, |training| training.event(&name, members))
        }
    }

    // -- checkpoints -----------------------------------------------------------------------------

    /// Whether there is a checkpoint to resume from. May be called before the trial begins, and
    /// makes nothing.
    fn has_checkpoint(&self) -> bool {
        !self.is_inert() && self.training().has_checkpoint()
    }

    /// The state that was saved with the checkpoint; None if there is no checkpoint. Before the
    /// trial begins it is that of the newest one.
    fn checkpoint_state(&self) -> Option<String> {
        if self.is_inert() {
            return None;
        }
        self.training().checkpoint_state()
    }

    /// The arrays of the checkpoint by name. They are returned once.
    fn checkpoint_tensors<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        if self.is_inert() {
            return Ok(Vec::new());
        }
        let tensors = self.training().take_tensors();
        let arrays = tensors
            .iter()
            .map(|tensor| Ok((tensor.name.clone(), array_of(py, tensor)?)));
        let arrays = arrays.collect::<PyResult<_>>()?;
        self.training().reuse(tensors);
        Ok(arrays)
    }

    /// Takes a checkpoint of the state after the last appended call. Copies the arrays and the
    /// files; a thread writes them.
    fn save(
        &self,
        py: Python<'_>,
        epoch: Option<u64>,
        tensors: Vec<(String, Bound<'_, PyAny>)>,
        state: String,
        files: Vec<PathBuf>,
    ) -> PyResult<()> {
        if self.is_inert() {
            return Ok(());
        }
        self.wait_saved(py)?;
        let mut memory = self.training().used_tensors().into_iter();
        let tensors = tensors.into_iter().map(|(name, array)| {
            let bytes = memory.next().map(|tensor| tensor.bytes).unwrap_or_default();
            tensor_of(name, &array, bytes)
        });
        let tensors = tensors.collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.locked(|training| training.save(epoch, tensors, state, files)))
            .into_python(py)
    }

    /// Whether a checkpoint is being written.
    fn saving(&self) -> bool {
        !self.is_inert() && self.training().is_saving()
    }

    /// Waits until no checkpoint is being written. False if that checkpoint could not be written,
    /// and the training may continue nevertheless; raises if it may not.
    fn wait_saved(&self, py: Python<'_>) -> PyResult<bool> {
        if self.is_inert() {
            return Ok(true);
        }
        let Some(commit) = self.training().take_commit() else {
            return Ok(true);
        };
        let ended = py.detach(|| commit.wait());
        self.with(py, |training| training.end_commit(ended))
    }

    /// Puts the checkpoint's version of a file back. False if it has none.
    #[expect(clippy::needless_pass_by_value, reason = "it is made for this call")]
    fn restore_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<bool> {
        if self.is_inert() {
            return Ok(false);
        }
        py.detach(|| self.locked(|training| training.restore_file(&path)))
            .into_python(py)
    }

    // -- signals that ask for the end ------------------------------------------------------------

    /// Makes signals act at the end of a batch, if they can wait. `begin` does it too.
    fn watch_signals(&self) {
        if !self.is_inert() && !self.is_child() {
            preemption::watch(self.launch.grace_seconds);
        }
    }

    /// Nothing more is saved of this run: signals act at once from now on.
    #[staticmethod]
    fn keep_nothing() {
        preemption::keep_nothing();
    }

    /// Whether a signal has come that waits, or that was passed to the script.
    #[getter]
    fn signal_calls(&self) -> bool {
        !self.is_inert() && preemption::calls()
    }

    /// The signal that waits for the end of a batch; 0: none.
    #[getter]
    fn pending_signal(&self) -> i32 {
        if self.is_inert() {
            0
        } else {
            preemption::pending()
        }
    }

    /// The last signal that asked for the end, in any case; 0: none.
    #[getter]
    fn received_signal(&self) -> i32 {
        if self.is_inert() {
            0
        } else {
            preemption::received()
        }
    }

    /// Writes into the journal that a signal ends the run here, and lets the signal act. If the
    /// script has a handler, runs it, raises what it raises, and returns.
    ///
    /// Args:
    ///     `was_saved`: whether a checkpoint was taken for this, and completed.
    fn preempt(&self, py: Python<'_>, was_saved: bool) -> PyResult<()> {
        let signal = self.pending_signal();
        if signal == 0 {
            return Ok(());
        }
        self.is_preempted.store(true, Ordering::Relaxed);
        if let Err(error) = self.locked(|training| training.preempted(signal, was_saved)) {
            // The run ends by the signal all the same: its sender waits for that, and starts it
            // again.
            tracing::warn!("the journal does not tell of this signal: {error}");
        }
        preemption::act();
        py.check_signals()
    }

    /// If a signal was passed to the script and the script trains on: records that, once. Returns
    /// whether it was so.
    fn trained_on(&self, py: Python<'_>) -> PyResult<bool> {
        let signal = preemption::handed();
        if self.is_inert() || signal == 0 {
            return Ok(false);
        }
        preemption::told();
        self.with(py, |training| training.trained_on(signal))?;
        Ok(true)
    }

    /// Ends the process by a signal.
    #[staticmethod]
    fn die_of(signal: i32) {
        preemption::die_of(signal);
    }

    // -- standard error --------------------------------------------------------------------------

    /// Prints a message, unless `--quiet` was given.
    fn log(&self, text: &str) {
        if !self.is_inert() {
            log::start(&self.launch);
            tracing::info!("{text}");
        }
    }

    /// Prints a message, unless `--quiet` was given; in a forked child too.
    fn log_of_child(&self, text: &str) {
        log::start(&self.launch);
        tracing::info!("{text}");
    }

    /// Prints a message if `--verbose` was given.
    fn log_debug(&self, text: &str) {
        if !self.is_inert() {
            log::start(&self.launch);
            tracing::debug!("{text}");
        }
    }

    /// Whether a line on the terminal shows the progress of the training. It is shown while the
    /// script has not begun a line, so `make_way` must be called for all that is printed there.
    #[getter]
    fn is_live(&self) -> bool {
        !self.is_inert() && live::is_on()
    }

    /// Something is about to be printed, and ends its line or does not: erases the line on the
    /// terminal.
    #[staticmethod]
    fn make_way(ends_line: bool) {
        live::make_way(ends_line);
    }

    /// The script has ended, and with it the line on the terminal.
    #[staticmethod]
    fn end_live() {
        live::stop();
    }

    /// Prints why the process ends.
    #[pyo3(signature = (message, hint=None))]
    fn log_error(&self, message: &str, hint: Option<&str>) {
        log::start(&self.launch);
        if let Some(hint) = hint {
            tracing::error!(hint, "{message}");
        } else {
            tracing::error!("{message}");
        }
    }
}

impl Trial {
    /// Calls core, and converts its error to an exception once the lock is free.
    fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Training) -> pedl_core::Result<T>,
    ) -> PyResult<T> {
        self.locked(work).into_python(py)
    }

    /// The script has ended: if a signal was passed to it at once, and it trained no more, records
    /// that in the journal.
    fn tell_handed(&self) {
        let signal = preemption::handed();
        if self.is_inert() || signal == 0 || self.is_preempted.swap(true, Ordering::Relaxed) {
            return;
        }
        // The script ends as it wants to, even if the journal cannot be written.
        let _ = self.locked(|training| training.preempted(signal, false));
    }

    /// The script has ended: if a signal still waits, records in the journal that it changed
    /// nothing.
    fn tell_outlived(&self) {
        let signal = preemption::outlive();
        if signal != 0 {
            // If this fails, the trial counts as preempted, and is continued.
            let _ = self.locked(|training| training.outlived(signal));
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Training) -> T) -> T {
        work(&mut self.training())
    }

    fn training(&self) -> MutexGuard<'_, Training> {
        self.training.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A value in the lent buffer, and the names of the types in it that cannot be recorded.
    fn encode(&self, value: &Bound<'_, PyAny>) -> PyResult<(Encoded, Vec<String>)> {
        let mut encoded = take(&self.encoded);
        encoded.clear();
        let mut opaque = Vec::new();
        convert::encode(value, &mut encoded.encoder(), &mut opaque)?;
        Ok((encoded, opaque))
    }

    /// Counts a batch; returns what is due. The first step's clock begins with its first batch, so
    /// that earlier waits, as for the start of workers, are no part of it.
    #[inline]
    fn batch_over(&self, training: &mut Training, now_s: f64) -> pedl_core::Result<u8> {
        let was_running = training.is_running();
        let due = training.batch_done(now_s).map(bits_of)?;
        if !was_running {
            self.waits.take();
        }
        live::draw(now_s, || training.progress());
        Ok(due)
    }

    /// Whether this process must not act on the trial (see the field).
    fn is_inert(&self) -> bool {
        self.is_inert.load(Ordering::Relaxed)
    }

    fn refuse_in_child(&self) -> PyResult<()> {
        if self.is_inert() {
            return Err(Error::new_err(
                "a call is to be answered in a forked child, or in a worker server",
            ));
        }
        Ok(())
    }
}

#[inline]
fn signal_bit() -> u8 {
    if preemption::calls() { SIGNAL } else { 0 }
}

#[inline]
fn bits_of(boundary: Boundary) -> u8 {
    let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    bit(boundary.step_ended.is_some(), STEP_ENDED)
        | bit(boundary.checkpoint_due, CHECKPOINT_DUE)
        | bit(boundary.validation_due, VALIDATION_DUE)
        | bit(boundary.is_last, IS_LAST)
        | bit(boundary.checkpoint_wanted, CHECKPOINT_WANTED)
}

fn call_of(training: &Training, key: Key) -> pedl_core::Result<Call> {
    let (kind, identity, site, draws, arguments) = key;
    let (identity, site) = (training.text_id(identity)?, training.text_id(site)?);
    Ok(Call {
        kind,
        identity,
        site,
        draws,
        arguments,
    })
}

/// Takes a buffer; a caller that comes meanwhile gets a new one.
fn take<T: Default>(buffer: &Mutex<T>) -> T {
    std::mem::take(&mut *buffer.lock().unwrap_or_else(PoisonError::into_inner))
}

fn put_back<T>(buffer: &Mutex<T>, value: T) {
    *buffer.lock().unwrap_or_else(PoisonError::into_inner) = value;
}

/// Copies an array into our memory. One that is not little-endian is stored as if it were.
fn tensor_of(name: String, array: &Bound<'_, PyAny>, mut bytes: Vec<u8>) -> PyResult<Tensor> {
    let py = array.py();
    let numpy = Numpy::get(py)?;
    let mut array = numpy.asarray.bind(py).call1((array,))?;
    let mut dtype = array.getattr(intern!(py, "dtype"))?;
    let known = numpy.name_of(&dtype)?;
    if known
        .as_ref()
        .is_some_and(|name| name.text.starts_with('>'))
    {
        dtype = dtype.call_method1("newbyteorder", ("<",))?;
        array = array.call_method1("astype", (&dtype,))?;
    }
    bytes.clear();
    let (long, is_object) = match known {
        Some(name) => (name.long.to_string(), name.is_object),
        None => (dtype.str()?.extract()?, true),
    };
    // What holds references has no bytes to store; core refuses it by its dtype.
    if !is_object {
        array::with_bytes(&array, |source| bytes.extend_from_slice(source))?;
    }
    let shape = array.getattr(intern!(py, "shape"))?.extract()?;
    Ok(Tensor {
        name,
        dtype: long,
        shape,
        bytes,
    })
}

fn array_of<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let dtype = Numpy::get(py)?.dtype_of(py, &tensor.dtype)?;
    let copy = |out: &mut [u8]| {
        out.copy_from_slice(&tensor.bytes);
        Ok::<_, pedl_core::Error>(())
    };
    array::filled(py, &tensor.shape, &dtype, tensor.bytes.len(), copy)?.into_python(py)
}
