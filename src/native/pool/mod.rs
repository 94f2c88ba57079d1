//! Worker processes that build batches: `pedl_pool` with Python on both sides.
//!
//! | module | what it knows |
//! |---|---|
//! | [`message`] | how a value of Python is written into a slot, and read |
//! | [`memory`] | how arrays are views of a slot, which is leased as long as there is one |
//!
//! Who starts workers, and what they build, is said in `py_hooks/advice/worker_processes.py`.

mod memory;
mod message;

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::IntoRawFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pedl_pool::{Arena, Asked, Awaited, Claim, Consumer, Shape, Task, Wanted, Watch, Woken};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};

use memory::Memory;
use message::{Message, Pickling};

/// Batches whose elements are less than this are copied: that takes less time than leasing them does.
const LEASED_BYTES: usize = 1 << 16;

/// A wait is over at the latest then. A signal handler that lets calls go on ends only waits that have an end.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// How often a worker looks whether the process that trains lives, where the kernel does not tell.
const LOOK: Duration = Duration::from_secs(1);

/// The tasks of one data set, and what workers have built for them: the side of the process that trains.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct Pool {
    consumer: Consumer,
    watch: Watch,
    pickling: Arc<Pickling>,
    stuck: Mutex<Vec<u32>>,
}

impl Pool {
    /// A pool without workers.
    ///
    /// Args:
    ///     `window`: how many tasks may be under way.
    ///     `leases`: how many batches may be held on to without being copied, and one more.
    ///     `dumps`, `loads`: see [`Pickling`].
    pub(crate) fn new(
        window: u32,
        leases: u32,
        dumps: Py<PyAny>,
        loads: Py<PyAny>,
    ) -> PyResult<Self> {
        if window == 0 || leases == 0 {
            return Err(PyValueError::new_err("a pool without places"));
        }
        let arena = Arc::new(Arena::create(Shape { window, leases })?);
        Ok(Self {
            watch: Watch::start(Arc::clone(&arena))?,
            consumer: Consumer::new(arena),
            pickling: Arc::new(Pickling { dumps, loads }),
            stuck: Mutex::default(),
        })
    }
}

#[pymethods]
impl Pool {
    /// Has a task built. False, and nothing is done, where that of a window before is not taken yet.
    fn publish(&self, task: u64, epoch: i64, index: u64, state: u64) -> bool {
        let wanted = Wanted {
            epoch,
            index,
            state,
        };
        self.consumer.publish(task, wanted)
    }

    /// Takes a task back; false where a worker has begun with it. Nothing is done where it is not under way.
    fn withdraw(&self, task: u64) -> bool {
        self.consumer.withdraw(task)
    }

    /// Whether a task was published, and is neither taken nor withdrawn. False in a forked child.
    fn is_under_way(&self, task: u64) -> bool {
        self.consumer.is_under_way(task)
    }

    /// Waits for what is built for a task.
    ///
    /// Args:
    ///     `limit_s`: seconds that building it may take.
    ///
    /// Returns:
    ///     What was sent; `None` where workers have ended, or one takes longer, before it is built: see `news`.
    fn take<'py>(
        &self,
        py: Python<'py>,
        task: u64,
        limit_s: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.is_ready(py, task, limit_s)? {
            return Ok(None);
        }
        let mut lease = self
            .consumer
            .take(task)
            .map_err(|(error, length)| no_room(error, length))?;
        let (structure, begin) = message::parts(lease.bytes())?;
        let structure = structure.to_vec();
        let size = lease.bytes().len().saturating_sub(begin);
        let elements = if size >= LEASED_BYTES && self.consumer.may_keep(&mut lease) {
            Memory::of_lease(py, lease, begin)?
        } else {
            let copy = crate::array::bytes_of(py, lease.bytes().get(begin..).unwrap_or_default())?;
            drop(lease);
            copy
        };
        message::value(&structure, &elements, &self.pickling).map(Some)
    }

    /// As `take`, for what is not needed. Returns whether it was built.
    fn discard(&self, py: Python<'_>, task: u64, limit_s: Option<f64>) -> PyResult<bool> {
        let is_ready = self.is_ready(py, task, limit_s)?;
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

    /// What a worker that has ended was building: its epoch and index. Another will build it.
    fn recover(&self, worker: u32) -> Option<(i64, u64)> {
        let wanted = self.consumer.recover(worker)?;
        Some((wanted.epoch, wanted.index))
    }

    /// There will be no more tasks: workers end.
    fn close(&self) {
        self.consumer.close();
    }

    /// In a forked child: the side of the worker. It ends when the process that trains does.
    ///
    /// Args:
    ///     `number`: of this worker; no other that lives has it.
    ///     `trainer`: the process that trains.
    fn worker(&self, number: u32, trainer: i32) -> PyResult<PoolWorker> {
        end_with(trainer)?;
        let worker = pedl_pool::Worker::new(Arc::clone(self.consumer.arena()), number);
        Ok(PoolWorker {
            state: Mutex::new((worker, None)),
            pickling: Arc::clone(&self.pickling),
        })
    }
}

impl Pool {
    /// Waits until a task is built. False where there is news of workers before it is.
    fn is_ready(&self, py: Python<'_>, task: u64, limit_s: Option<f64>) -> PyResult<bool> {
        let limit = limit_s.map(Duration::from_secs_f64);
        loop {
            let heard = self.consumer.bell();
            if self.watch.has_news() {
                return Ok(false);
            }
            let mut longest = LONGEST_WAIT;
            match (self.consumer.state(task), limit) {
                (Task::Built(_), _) => return Ok(true),
                (Task::Building(worker), Some(limit)) => {
                    let since = self.consumer.since_begun(task).unwrap_or_default();
                    if since >= limit {
                        let mut stuck = self.stuck.lock().unwrap_or_else(PoisonError::into_inner);
                        stuck.push(worker);
                        return Ok(false);
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

/// One worker process of a pool.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct PoolWorker {
    state: Mutex<(pedl_pool::Worker, Option<Claim>)>,
    pickling: Arc<Pickling>,
}

#[pymethods]
impl PoolWorker {
    /// Waits for a task: its epoch, index and state; None once there will be no more.
    fn claim(&self, py: Python<'_>) -> PyResult<Option<(i64, u64, u64)>> {
        loop {
            let asked = py.detach(|| {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                let asked = state.0.claim();
                if let Asked::Claim(claim) = asked {
                    state.1 = Some(claim);
                }
                asked
            });
            match asked {
                Asked::Claim(Claim { wanted, .. }) => {
                    return Ok(Some((wanted.epoch, wanted.index, wanted.state)));
                }
                Asked::Closed => return Ok(None),
                Asked::BySignal => py.check_signals()?,
            }
        }
    }

    /// Sends what was built for the task that was claimed last. Where that fails, something else may be sent.
    fn finish(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let message = Message::of(value, &self.pickling)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (worker, claim) = &mut *state;
        let claimed = claim.ok_or_else(|| PyValueError::new_err("no task was claimed"))?;
        let length = message.len();
        let sent = worker.finish(claimed, length, |out| {
            message.write(py, out).map_err(Failed::Write)
        });
        match sent {
            Ok(()) => {
                *claim = None;
                Ok(())
            }
            Err(Failed::Write(error)) => Err(error),
            Err(Failed::Room(error)) => Err(no_room(error, length)),
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

/// Ends this process as soon as that one has ended.
fn end_with(trainer: i32) -> PyResult<()> {
    let is_gone = move || getppid().map(Pid::as_raw_pid) != Some(trainer);
    let process = Pid::from_raw(trainer).ok_or_else(|| PyValueError::new_err("no process"))?;
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
