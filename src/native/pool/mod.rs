//! Worker processes that build batches: `pedl_pool` with Python on both sides.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | how a Python value is written into a slot, and read |
//! | [`memory`] | how arrays are views of a slot, which is leased as long as there is one |
//! | [`region`] | how arrays have their memory in a slot from the start |
//! | [`ahead`] | how a pass requests items in advance, and takes them |
//! | [`threads`] | how threads build items instead of processes |
//!
//! `py_hooks/workers/worker_processes.py` starts the workers, and defines what they build.

mod ahead;
mod memory;
mod message;
mod region;
mod threads;

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use pedl_pool::{Arena, Asked, Awaited, Bytes, Claim, Consumer, Shape, Task, Wanted, Watch, Woken};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};

pub(crate) use ahead::{Ahead, Waits};
use memory::Memory;
use message::{Message, Pickling};
pub(crate) use threads::{ThreadTask, ThreadTasks};

/// Batches with fewer bytes of elements are copied: that takes less time than leasing them.
const LEASED_BYTES: usize = 1 << 16;

/// How often arrays that were built in a slot may keep it. After that the data set counts as one
/// that keeps arrays, and nothing is built there.
const MAX_KEPT: u32 = 3;

/// The longest wait. A signal handler that does not raise ends only waits that have a limit.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// How often a worker checks whether the training process lives, if the kernel does not report it.
const LOOK: Duration = Duration::from_secs(1);

/// The tasks of one data set, and what workers have built for them: the side of the training
/// process.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct Pool {
    consumer: Consumer,
    watch: Watch,
    pickling: Arc<Pickling>,
    stuck: Mutex<Vec<u32>>,
    /// The number of the next task.
    next: AtomicU64,
    /// The thread that waits for a task holds it: a single word says which task is waited for.
    waiting: Mutex<()>,
}

impl Pool {
    /// A pool without workers.
    ///
    /// Args:
    ///     `window`: how many tasks may be under way.
    ///     `leases`: how many batches may be kept without being copied, plus one.
    ///     `workers`: how many there are at a time.
    ///     `dumps`, `loads`: see [`Pickling`].
    pub(crate) fn new(
        window: u32,
        leases: u32,
        workers: u32,
        dumps: Py<PyAny>,
        loads: Py<PyAny>,
    ) -> PyResult<Self> {
        if window == 0 || leases == 0 {
            return Err(PyValueError::new_err("a pool without places"));
        }
        let shape = Shape {
            window,
            leases,
            workers,
        };
        let arena = Arc::new(Arena::create(shape)?);
        Ok(Self {
            watch: Watch::start(Arc::clone(&arena))?,
            consumer: Consumer::new(arena),
            pickling: Arc::new(Pickling { dumps, loads }),
            stuck: Mutex::default(),
            next: AtomicU64::new(0),
            waiting: Mutex::default(),
        })
    }
}

#[pymethods]
impl Pool {
    /// Requests that these indices are built.
    ///
    /// Returns:
    ///     The number of the first task, and that of the next task that will be published. If these
    ///     are fewer than the indices, the place of the next one is that of a task which is not
    ///     taken yet.
    fn publish(&self, epoch: i64, indices: Vec<u64>, state: u64) -> (u64, u64) {
        self.publish_all(epoch, indices.into_iter(), state)
    }

    /// Takes a task back; false if a worker has begun it. Does nothing if the task is not under
    /// way.
    fn withdraw(&self, task: u64) -> bool {
        self.consumer.withdraw(task)
    }

    /// Whether a task was published, and is neither taken nor withdrawn. False in a forked child.
    fn is_under_way(&self, task: u64) -> bool {
        self.consumer.is_under_way(task)
    }

    /// Waits for the result of a task.
    ///
    /// Args:
    ///     `limit_s`: seconds that building it may take.
    ///
    /// Returns:
    ///     What was sent; `None` if, before it is built, workers have ended or one takes longer:
    ///     see `news`.
    fn take<'py>(
        &self,
        py: Python<'py>,
        task: u64,
        limit_s: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.wait_until_ready(py, task, limit_s)? {
            self.take_built(py, task).map(Some)
        } else {
            Ok(None)
        }
    }

    /// As `take`, for a result that is not needed. Returns whether it was built.
    fn discard(&self, py: Python<'_>, task: u64, limit_s: Option<f64>) -> PyResult<bool> {
        let is_ready = self.wait_until_ready(py, task, limit_s)?;
        if is_ready {
            self.consumer.discard(task);
        }
        Ok(is_ready)
    }

    /// The numbers of the workers that have ended, and of those that take longer than they may.
    fn news(&self) -> (Vec<u32>, Vec<u32>) {
        let stuck = mem::take(&mut *self.stuck.lock().unwrap_or_else(PoisonError::into_inner));
        (self.watch.ended(), stuck)
    }

    /// Watches a worker process from now on.
    ///
    /// Args:
    ///     `worker`: its number.
    ///     `pid`: its process, for which nobody has waited yet.
    ///     `sentinel`: a file descriptor that becomes readable when it ends.
    fn watch(&self, worker: u32, pid: i32, sentinel: i32) -> PyResult<()> {
        let process = Pid::from_raw(pid).ok_or_else(|| PyValueError::new_err("no process"))?;
        let fallback = || File::open(format!("/proc/self/fd/{sentinel}")).map(Into::into);
        Ok(self.watch.add(worker, process, fallback)?)
    }

    /// What a worker that has ended was building: its epoch and index. Another worker will build
    /// it.
    fn recover(&self, worker: u32) -> Option<(i64, u64)> {
        let wanted = self.consumer.recover(worker)?;
        Some((wanted.epoch, wanted.index))
    }

    /// There will be no more tasks: workers end.
    fn close(&self) {
        self.consumer.close();
    }

    /// In a forked child: the side of the worker. It ends when its parent does.
    ///
    /// Args:
    ///     `number`: of this worker; no other that lives has it.
    ///     `parent`: the process that has forked it.
    fn worker(&self, py: Python<'_>, number: u32, parent: i32) -> PyResult<PoolWorker> {
        let arena = Arc::clone(self.consumer.arena());
        PoolWorker::new(py, arena, number, parent, Arc::clone(&self.pickling))
    }

    /// For `Trial.pool_worker` in another process: the file descriptor of the memory, and its
    /// shape.
    #[getter]
    fn memory(&self) -> (i32, (u32, u32, u32)) {
        let arena = self.consumer.arena();
        let shape = arena.shape();
        (
            arena.file().as_raw_fd(),
            (shape.window, shape.leases, shape.workers),
        )
    }
}

impl Pool {
    /// As `publish`, for as many as there are places; takes no more indices than that.
    fn publish_all(
        &self,
        epoch: i64,
        indices: impl Iterator<Item = u64>,
        state: u64,
    ) -> (u64, u64) {
        let first = self.next.load(Ordering::Relaxed);
        let wanted = indices.map(|index| Wanted {
            epoch,
            index,
            state,
        });
        let next = first + u64::from(self.consumer.publish(first, wanted));
        self.next.store(next, Ordering::Relaxed);
        (first, next)
    }

    /// What was sent for a task that is built.
    fn take_built<'py>(&self, py: Python<'py>, task: u64) -> PyResult<Bound<'py, PyAny>> {
        let mut lease = self
            .consumer
            .take(task)
            .map_err(|(error, length)| no_room(error, length))?;
        let is_large = message::elements(lease.bytes())? >= LEASED_BYTES;
        if is_large && self.consumer.may_keep(&mut lease) {
            let memory = Memory::of_lease(py, lease)?;
            message::view(&memory, &self.pickling)
        } else {
            message::copy(py, lease.bytes(), &self.pickling)
        }
    }

    /// Permission to wait for tasks, if nobody else has it.
    fn try_wait_alone(&self) -> Option<MutexGuard<'_, ()>> {
        match self.waiting.try_lock() {
            Ok(alone) => Some(alone),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Permission to wait for tasks, once nobody else has it.
    fn wait_alone(&self, py: Python<'_>) -> MutexGuard<'_, ()> {
        loop {
            if let Some(alone) = self.try_wait_alone() {
                return alone;
            }
            py.detach(|| drop(self.waiting.lock()));
        }
    }

    /// Waits until a task is built. False if there is news of workers before it is.
    fn wait_until_ready(&self, py: Python<'_>, task: u64, limit_s: Option<f64>) -> PyResult<bool> {
        match self.wait(&self.wait_alone(py), py, task, limit_s, || true)? {
            Waited::Built => Ok(true),
            Waited::News => Ok(false),
            Waited::Overdue(worker) => {
                self.stuck
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(worker);
                Ok(false)
            }
        }
    }

    /// Waits until a task is built, there is news of workers, or the task is not wanted any more,
    /// which is checked when the bell has rung.
    fn wait(
        &self,
        _alone: &MutexGuard<'_, ()>,
        py: Python<'_>,
        task: u64,
        limit_s: Option<f64>,
        is_wanted: impl Fn() -> bool,
    ) -> PyResult<Waited> {
        let limit = limit_s.map(Duration::from_secs_f64);
        loop {
            let heard = self.consumer.bell();
            if self.watch.has_news() || !is_wanted() {
                return Ok(Waited::News);
            }
            let mut longest = LONGEST_WAIT;
            match (self.consumer.state(task), limit) {
                (Task::Built(_), _) => return Ok(Waited::Built),
                (Task::Building(worker), Some(limit)) => {
                    let since = self.consumer.since_begun(task).unwrap_or_default();
                    if since >= limit {
                        return Ok(Waited::Overdue(worker));
                    }
                    longest = limit.saturating_sub(since);
                }
                (_, Some(limit)) => longest = limit,
                _ => {}
            }
            let until = Instant::now() + longest.min(LONGEST_WAIT);
            let awaited = py.detach(|| self.consumer.wait(task, heard, Some(until)));
            if awaited == Awaited::Not(Woken::BySignal) {
                py.check_signals()?;
            }
        }
    }
}

/// The result of a wait for a task.
enum Waited {
    Built,
    /// Workers have ended, or the task is not wanted any more.
    News,
    /// This worker takes longer than it may.
    Overdue(u32),
}

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
    fn new(
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

/// A file in memory that forked children share: its descriptor.
pub(crate) fn memory_file() -> PyResult<i32> {
    Ok(memfd_create("pedl-pool", MemfdFlags::CLOEXEC)
        .map_err(io::Error::from)?
        .into_raw_fd())
}

fn no_room(error: io::Error, length: usize) -> PyErr {
    match error.kind() {
        io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull => PyMemoryError::new_err(format!(
            "pedl: a batch of {length} bytes from a worker process of the data set has no room in memory ({error}); \
             the limit may be that of the container, or `ulimit -v`: smaller batches or a smaller max_queue_size need less"
        )),
        _ => error.into(),
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
                None => thread::sleep(LOOK),
            }
        }
        let _ = kill_process(getpid(), Signal::KILL);
    };
    thread::Builder::new()
        .name("pedl-trainer".to_owned())
        .spawn(watch)?;
    Ok(())
}
