//! Items that threads of the process that trains build: tasks go to them through a queue, and results come back by task.
//!
//! Threads share one interpreter, so they help where building an item waits for something, or leaves Python: reading
//! files, decoding images, sums of numpy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{self as channel, Receiver, RecvTimeoutError, Sender};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How often who waits for an item looks for signals: a queue is not woken by them.
const LOOK: Duration = Duration::from_millis(50);

/// The tasks of one pass.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct ThreadTasks {
    /// Nothing once there will be no more.
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
    /// A thread has begun with it, or nobody needs it.
    is_claimed: Arc<AtomicBool>,
    result: Sender<PyResult<Py<PyAny>>>,
}

fn claim(is_claimed: &AtomicBool) -> bool {
    !is_claimed.swap(true, Ordering::Relaxed)
}

impl ThreadTasks {
    /// None as yet.
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
    /// Has items built, by who calls `serve`; returns a task for each.
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

    /// Builds one task after the other, until there will be no more.
    ///
    /// Args:
    ///     `build(epoch, index)`: returns the item.
    fn serve(&self, py: Python<'_>, build: &Bound<'_, PyAny>) {
        while let Ok(work) = py.detach(|| self.wanted.recv()) {
            if claim(&work.is_claimed) {
                let built = build.call1((work.epoch, work.index));
                // Nobody waits for it where its task is gone.
                let _ = work.result.send(built.map(Bound::unbind));
            }
        }
    }

    /// There will be no more tasks: who serves returns once what it builds is built, and what no thread has begun with is not.
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
    /// Waits for the item. Raises what building it has raised.
    fn take(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        loop {
            match py.detach(|| self.built.recv_timeout(LOOK)) {
                Ok(built) => return built,
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => {
                    let problem = "pedl: an item is asked for that no thread builds";
                    return Err(PyRuntimeError::new_err(problem));
                }
            }
        }
    }

    /// It is not needed, and not built where no thread has begun with it.
    fn cancel(&self) {
        claim(&self.is_claimed);
    }
}
