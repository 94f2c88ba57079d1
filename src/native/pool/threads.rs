//! Items that threads of the training process build: a queue carries the tasks to them, and each
//! result comes back through its task.
//!
//! Threads share one interpreter, so they help if building an item waits for something, or leaves
//! Python: reading files, decoding images, sums of numpy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{self as channel, Receiver, RecvTimeoutError, Sender};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How often a thread that waits for an item checks for signals: a signal does not wake a queue.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The tasks of one pass.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct ThreadTasks {
    /// `None` once there are no more tasks.
    ready: Mutex<Option<Sender<Work>>>,
    wanted: Receiver<Work>,
}

/// One item that is to be built.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct ThreadTask {
    is_claimed: Arc<AtomicBool>,
    built: Receiver<PyResult<Py<PyAny>>>,
}

/// What a thread knows of a task.
struct Work {
    epoch: i64,
    index: u64,
    /// A thread has begun it, or nobody needs it.
    is_claimed: Arc<AtomicBool>,
    result: Sender<PyResult<Py<PyAny>>>,
}

fn claim(is_claimed: &AtomicBool) -> bool {
    !is_claimed.swap(true, Ordering::Relaxed)
}

impl ThreadTasks {
    /// No tasks yet.
    pub(crate) fn new() -> Self {
        let (ready, wanted) = channel::unbounded();
        Self {
            ready: Mutex::new(Some(ready)),
            wanted,
        }
    }
}

#[pymethods]
impl ThreadTasks {
    /// Requests items from the threads that call `serve`; returns a task for each.
    fn submit(&self, epoch: i64, indices: Vec<u64>) -> PyResult<Vec<ThreadTask>> {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let over = || PyRuntimeError::new_err("pedl: items are asked for of a pass that is over");
        let ready = ready.as_ref().ok_or_else(over)?;
        let submit = |index| {
            let (result, built) = channel::bounded(1);
            let is_claimed = Arc::new(AtomicBool::new(false));
            let work = Work {
                epoch,
                index,
                is_claimed: Arc::clone(&is_claimed),
                result,
            };
            ready.send(work).map_err(|_| over())?;
            Ok(ThreadTask { is_claimed, built })
        };
        indices.into_iter().map(submit).collect()
    }

    /// Builds one task after the other, until there are no more.
    ///
    /// Args:
    ///     `build(epoch, index)`: returns the item.
    fn serve(&self, py: Python<'_>, build: &Bound<'_, PyAny>) {
        while let Ok(work) = py.detach(|| self.wanted.recv()) {
            if claim(&work.is_claimed) {
                let built = build.call1((work.epoch, work.index));
                // If its task was dropped, nobody waits for it.
                let _ = work.result.send(built.map(Bound::unbind));
            }
        }
    }

    /// There are no more tasks: `serve` returns once the running item is built; items that no
    /// thread has begun are not built.
    fn close(&self) {
        drop(
            self.ready
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        self.wanted.try_iter().for_each(drop);
    }
}

#[pymethods]
impl ThreadTask {
    /// Waits for the item. Raises the exception that building it has raised.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        loop {
            match py.detach(|| self.built.recv_timeout(SIGNAL_POLL_INTERVAL)) {
                Ok(built) => return built,
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => {
                    let problem = "pedl: an item is asked for that no thread builds";
                    return Err(PyRuntimeError::new_err(problem));
                }
            }
        }
    }

    /// The item is not needed, and not built if no thread has begun it.
    fn cancel(&self) {
        claim(&self.is_claimed);
    }
}
