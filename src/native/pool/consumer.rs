//! The side of the training process: requests items, waits for them, and takes what workers have
//! sent.
//!
//! Only one thread at a time waits for a task, because a single word of the shared memory says
//! which task is waited for; the others wait for that thread. No wait holds the lock of Python.

use std::fs::File;
use std::mem;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use pedl_pool::{Arena, Awaited, Consumer, Shape, Task, Wanted, Watch, Woken};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::process::Pid;

use super::memory::Memory;
use super::message::{self, Pickling};
use super::no_room;
use super::worker::PoolWorker;

/// Batches with fewer bytes of elements are copied: that takes less time than leasing them.
const LEASED_BYTES: usize = 1 << 16;

/// The longest wait. A signal handler that does not raise ends only waits that have a limit.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The tasks of one data set, and what workers have built for them: the side of the training
/// process.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct Pool {
    pub(super) consumer: Consumer,
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
    pub(super) fn publish_all(
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
    pub(super) fn take_built<'py>(
        &self,
        py: Python<'py>,
        task: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
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
    pub(super) fn try_wait_alone(&self) -> Option<MutexGuard<'_, ()>> {
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
    pub(super) fn wait(
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
pub(super) enum Waited {
    Built,
    /// Workers have ended, or the task is not wanted any more.
    News,
    /// This worker takes longer than it may.
    Overdue(u32),
}
