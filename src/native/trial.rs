//! The class `Trial`: the training of one trial in one process, as the hooks see it.
//!
//! A lock protects the training. It is held only while core works, never while Python code runs:
//! converting a value may call the framework, which may call a hook, which may call this module
//! again.

mod calls;
mod checkpoints;
mod console;
mod due;
mod launch;
mod signals;
mod steps;
mod workers;

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pedl_core::calls::value::Encoded;
use pedl_core::calls::{Answer, Call};
use pedl_core::checkpoint::Tensor;
use pedl_core::directory::Facts;
use pedl_core::training::Training;
use pedl_core::trial::{LAUNCH_SCHEMA, Launch};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

pub(crate) use self::due::Due;
use crate::error::{Error, IntoPython};
use crate::numpy::Numpy;
use crate::pool::Waits;
use crate::{array, convert, live, log, preemption};

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
        self.training().close();
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
    fn batch_over(&self, training: &mut Training, now_s: f64) -> pedl_core::Result<Due> {
        let was_running = training.is_running();
        let due = training.batch_done(now_s)?;
        if !was_running {
            self.waits.take();
        }
        live::draw(now_s, || training.progress());
        if !due.is_repeated {
            preemption::trained(now_s);
        }
        Ok(due.into())
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
