//! The side of a worker process: claims one task after the other, builds it, and sends it.
//!
//! What is built may have its memory in the slot that it is sent from (`region`); otherwise it is
//! copied there. A worker ends when the training process does.

use std::fs::File;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pedl_pool::{Arena, Asked, Bytes, Claim, Shape};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};

use super::message::{self, Message, Pickling};
use super::{no_room, region};

/// How often arrays that were built in a slot may keep it. After that the data set counts as one
/// that keeps arrays, and nothing is built there.
const MAX_KEPT: u32 = 3;

/// How often a worker checks whether the training process lives, if the kernel does not report it.
const PARENT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One worker process of a pool.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct PoolWorker {
    state: Mutex<WorkerState>,
    pickling: Arc<Pickling>,
}

/// The state of a worker.
struct WorkerState {
    worker: pedl_pool::Worker,
    claim: Option<Claim>,
    /// Bytes that were written for this task.
    length: usize,
    /// The slot in which arrays are built, or one that some of them have kept.
    prepared: Option<Bytes>,
    /// Whether that slot is for what is built now.
    builds_in_slot: bool,
    /// Bytes that the last two items would have built in a slot.
    needed: [usize; 2],
    /// How often arrays may still keep a slot.
    may_be_kept: u32,
}

#[pymethods]
impl PoolWorker {
    /// Builds one task after the other, until there are no more.
    ///
    /// Args:
    ///     `update(state)`: called before a task that is to be built in another state of the data
    ///         set than the previous one.
    ///     `build(epoch, index)`: returns what was built, and the name of what it has changed, or
    ///         None.
    ///     `failed(error)`: returns what is sent of an exception.
    fn serve(
        &self,
        py: Python<'_>,
        update: &Bound<'_, PyAny>,
        build: &Bound<'_, PyAny>,
        failed: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let send_failure = |error: PyErr| {
            let sent = failed.call1((error.into_value(py),))?;
            self.write((py.None(), py.None(), sent).into_pyobject(py)?.as_any())
        };
        let mut state = None;
        while let Some((epoch, index, wanted)) = self.claim(py)? {
            let mut sent = || {
                if state.replace(wanted) != Some(wanted) {
                    update.call1((wanted,))?;
                }
                self.begin();
                let built = build.call1((epoch, index))?;
                let built = built.cast_into::<PyTuple>()?;
                let (item, changed) = (built.get_item(0)?, built.get_item(1)?);
                // If nothing refers to the item any more when it is sent, it need not be copied.
                self.write((item, changed, py.None()).into_pyobject(py)?.as_any())
            };
            // Also for exceptions that are no errors: `multiprocessing.Pool` raises them in the
            // caller, too.
            sent().or_else(send_failure)?;
            match self.finish() {
                // There is no memory for a copy of what the data set has kept.
                Err(error) if error.is_instance_of::<PyMemoryError>(py) => {
                    send_failure(error)?;
                    self.finish()?;
                }
                finished => finished?,
            }
        }
        Ok(())
    }

    /// Waits for a task: its epoch, index and state; None once there are no more.
    fn claim(&self, py: Python<'_>) -> PyResult<Option<(i64, u64, u64)>> {
        loop {
            let now = self.lock().worker.claim_now();
            let asked = now.unwrap_or_else(|| py.detach(|| self.lock().worker.claim()));
            match asked {
                Asked::Claim(claim) => {
                    self.lock().claim = Some(claim);
                    let wanted = claim.wanted;
                    return Ok(Some((wanted.epoch, wanted.index, wanted.state)));
                }
                Asked::Closed => return Ok(None),
                Asked::BySignal => py.check_signals()?,
            }
        }
    }

    /// What this thread makes from now on is the requested item: its arrays may be built where they
    /// are sent from.
    fn begin(&self) {
        self.lock().begin();
    }

    /// Writes what was built for the task that was claimed last. If that fails, something else may
    /// be written.
    fn write(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut region = region::close();
        let message = Message::of(value, &self.pickling, &mut region)?;
        let length = message.len();
        let mut state = self.lock();
        if state.claim.is_none() {
            return Err(PyValueError::new_err("no task was claimed"));
        }
        let written = state
            .worker
            .write(length, |out| message.write(out).map_err(Failed::Write));
        match written {
            Ok(()) => {
                state.length = length;
                state.needed = [state.needed[1], region.learn()];
                Ok(())
            }
            Err(failed) => {
                state.abandon();
                Err(match failed {
                    Failed::Write(error) => error,
                    Failed::Room(error) => no_room(error, length),
                })
            }
        }
    }

    /// Sends what was written. The caller holds no reference to it any more.
    fn finish(&self) -> PyResult<()> {
        let mut state = self.lock();
        let claim = state.claim.take();
        let claim = claim.ok_or_else(|| PyValueError::new_err("nothing was written"))?;
        state.finish(claim).map_err(|error| {
            let length = state.length;
            state.claim = Some(claim);
            no_room(error, length)
        })
    }
}

impl PoolWorker {
    pub(super) fn new(
        py: Python<'_>,
        arena: Arc<Arena>,
        number: u32,
        parent: i32,
        pickling: Arc<Pickling>,
    ) -> PyResult<Self> {
        end_with(parent)?;
        let builds_in_slots = region::install(py)?;
        let worker = WorkerState {
            worker: pedl_pool::Worker::new(arena, number),
            claim: None,
            length: 0,
            prepared: None,
            builds_in_slot: false,
            needed: [0; 2],
            may_be_kept: if builds_in_slots { MAX_KEPT } else { 0 },
        };
        Ok(Self {
            state: Mutex::new(worker),
            pickling,
        })
    }

    /// The side of a worker in a process that has only the memory of the pool. It ends when its
    /// parent does.
    ///
    /// Args:
    ///     `memory`: a file descriptor, which may be closed afterwards.
    ///     `shape`: of [`Pool::memory`].
    ///     `number`, `parent`: as of [`Pool::worker`].
    ///     `dumps`, `loads`: see [`Pickling`].
    pub(crate) fn of_memory(
        py: Python<'_>,
        memory: i32,
        shape: (u32, u32, u32),
        number: u32,
        parent: i32,
        dumps: Py<PyAny>,
        loads: Py<PyAny>,
    ) -> PyResult<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{memory}"))?;
        let (window, leases, workers) = shape;
        let shape = Shape {
            window,
            leases,
            workers,
        };
        let arena = Arc::new(Arena::open(Arc::new(file), shape)?);
        let pickling = Arc::new(Pickling { dumps, loads });
        Self::new(py, arena, number, parent, pickling)
    }

    fn lock(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkerState {
    fn begin(&mut self) {
        self.builds_in_slot = false;
        if !region::in_use() {
            self.prepared = None;
            self.worker.take_back();
            let needed = self.needed[0].max(self.needed[1]);
            if needed > 0 && self.may_be_kept > 0 {
                // If there is no memory for it, it is built elsewhere.
                let length = message::HEAD + needed;
                self.prepared = self.worker.prepare(length).ok();
                self.builds_in_slot = self.prepared.is_some();
            }
        }
        let slot = self.prepared.as_ref().filter(|_| self.builds_in_slot);
        let slot = slot.map(|bytes| (bytes.as_ptr().expose_provenance(), bytes.len()));
        region::begin(slot, message::HEAD);
    }

    /// What was built cannot be sent. What is sent instead must not overwrite arrays that are in
    /// use.
    fn abandon(&mut self) {
        region::abandon();
        if self.builds_in_slot && region::in_use() {
            self.builds_in_slot = false;
            // Without memory for another slot, there is none for what is written next, either.
            let _ = self.worker.set_aside(0);
        }
    }

    fn finish(&mut self, claim: Claim) -> io::Result<()> {
        if self.builds_in_slot && region::in_use() {
            // Something has kept an array, whose memory stays there.
            self.builds_in_slot = false;
            self.may_be_kept -= 1;
            self.worker
                .set_aside(self.length)
                .inspect_err(|_| region::abandon())?;
        }
        self.worker.finish(claim, self.length);
        Ok(())
    }
}

impl Drop for WorkerState {
    fn drop(&mut self) {
        if region::in_use() {
            // Arrays outlive this worker.
            mem::forget(self.prepared.take());
        } else {
            region::release_slot();
        }
    }
}

/// Why a worker cannot send a batch.
enum Failed {
    Room(io::Error),
    Write(PyErr),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Room(error)
    }
}

/// Ends this process as soon as its parent has ended.
fn end_with(parent: i32) -> PyResult<()> {
    let is_gone = move || getppid().map(Pid::as_raw_pid) != Some(parent);
    let process = Pid::from_raw(parent).ok_or_else(|| PyValueError::new_err("no process"))?;
    let end = pidfd_open(process, PidfdFlags::empty()).ok();
    let watch = move || {
        while !is_gone() {
            match &end {
                Some(end) => {
                    let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], None);
                }
                None => thread::sleep(PARENT_POLL_INTERVAL),
            }
        }
        let _ = kill_process(getpid(), Signal::KILL);
    };
    thread::Builder::new()
        .name("pedl-trainer".to_owned())
        .spawn(watch)?;
    Ok(())
}
