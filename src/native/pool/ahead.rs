//! The items that the workers of a pass build in advance: requests and takes them without running
//! any Python.
//!
//! This is used from the second item on, in a live training. `SequencePass` of
//! `py_hooks/datasets/item_passes.py` handles the first item, replays, workers that have ended and
//! the end of a pass; it is called for everything that is not done here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use pedl_core::training::DataWait;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};

use super::consumer::{Pool, Waited};

/// How long the running step has waited for batches.
pub(crate) struct Waits {
    /// The thread that trains: others take batches ahead of it.
    trainer: ThreadId,
    wait: Mutex<Option<DataWait>>,
}

impl Waits {
    /// The waits of the calling thread.
    pub(crate) fn of_this_thread() -> Self {
        Self {
            trainer: thread::current().id(),
            wait: Mutex::new(None),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<DataWait>> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread waited for a batch; `workers` workers build them.
    pub(crate) fn add(&self, seconds: f64, workers: u32) {
        if thread::current().id() == self.trainer {
            let mut wait = self.lock();
            let before = wait.map_or(0.0, |wait| wait.seconds);
            *wait = Some(DataWait {
                seconds: before + seconds,
                workers,
            });
        }
    }

    /// The step is over. None if no batch of it came from a data set.
    pub(crate) fn take(&self) -> Option<DataWait> {
        self.lock().take()
    }
}

/// What the workers of one pass build in advance.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct Ahead {
    waits: Arc<Waits>,
    workers: u32,
    going: Mutex<Option<Arc<Going>>>,
}

/// A pass that runs without Python.
struct Going {
    pool: Py<Pool>,
    /// The indices that are not wanted yet.
    order: Py<PyIterator>,
    epoch: i64,
    state: u64,
    /// Pairs of an index and the number of its task, in the order in which they are taken.
    building: Py<PyAny>,
    fewest: usize,
    most: usize,
    limit_s: Option<f64>,
}

impl Ahead {
    /// No pass yet.
    pub(crate) fn new(waits: Arc<Waits>, workers: u32) -> Self {
        Self {
            waits,
            workers,
            going: Mutex::new(None),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Going>>> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_going(&self, going: &Arc<Going>) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, going))
    }

    /// What was sent for the next task. None if the pass has to be called.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(going) = self.lock().clone() else {
            return Ok(None);
        };
        let (pool, building) = (going.pool.get(), going.building.bind(py));
        // The pass keeps several threads in order.
        let Some(alone) = pool.try_wait_alone() else {
            return Ok(None);
        };
        if !pool.consumer.is_of_this_process() {
            return Ok(None);
        }
        if building.len()? <= going.fewest {
            going.publish(py)?;
        }
        let Some(task) = going.first(py)? else {
            return Ok(None);
        };
        let is_wanted = || self.is_going(&going);
        let waited = pool.wait(&alone, py, task, going.limit_s, is_wanted)?;
        if !matches!(waited, Waited::Built) {
            return Ok(None);
        }
        // Another thread may have ended the pass while this one waited.
        if !self.is_going(&going) {
            return Ok(None);
        }
        drop(alone);
        building.call_method0(intern!(py, "popleft"))?;
        pool.take_built(py, task).map(Some)
    }
}

impl Going {
    fn first(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let building = self.building.bind(py);
        if building.is_empty()? {
            return Ok(None);
        }
        let first = building.get_item(0)?;
        first.cast::<PyTuple>()?.get_item(1)?.extract().map(Some)
    }

    /// Requests as many items as possible.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        let building = self.building.bind(py);
        let mut order = self.order.bind(py).clone();
        let mut failed = None;
        let mut indices = Vec::new();
        let next = (building.len()?..self.most).map_while(|_| {
            let index = order.next()?.and_then(|index| index.extract::<u64>());
            match index {
                Ok(index) => {
                    indices.push(index);
                    Some(index)
                }
                Err(error) => {
                    failed = Some(error);
                    None
                }
            }
        });
        let (first, _) = self.pool.get().publish_all(self.epoch, next, self.state);
        for (task, index) in (first..).zip(indices) {
            building.call_method1(intern!(py, "append"), ((index, task),))?;
        }
        failed.map_or(Ok(()), Err)
    }
}

#[pymethods]
impl Ahead {
    /// The pass runs without Python from now on.
    ///
    /// Args:
    ///     `order`: iterator over the indices that are wanted next.
    ///     `epoch`, `state`: of these indices.
    ///     `building`: a deque of pairs of an index and the number of its task.
    ///     `fewest`, `most`: if no more than `fewest` of them remain, others are published, up to
    ///         `most`.
    ///     `limit_s`: seconds that building one may take.
    #[expect(clippy::too_many_arguments, reason = "all that a pass is")]
    fn begin(
        &self,
        pool: Py<Pool>,
        order: Py<PyIterator>,
        epoch: i64,
        state: u64,
        building: Py<PyAny>,
        fewest: usize,
        most: usize,
        limit_s: Option<f64>,
    ) {
        let going = Going {
            pool,
            order,
            epoch,
            state,
            building,
            fewest,
            most,
            limit_s,
        };
        let before = self.lock().replace(Arc::new(going));
        drop(before);
    }

    /// From now on the pass is called for everything. Wakes a thread that waits here for an item.
    fn end(&self) {
        let before = self.lock().take();
        if let Some(before) = before {
            before.pool.get().consumer.ring_bell();
        }
    }

    /// An iterator over the items of the pass.
    ///
    /// Args:
    ///     `ask`: returns the next item, as `__next__` does.
    ///     `open`: returns the item, if a worker has sent more than the item: what has changed, or
    ///         an error.
    fn items(slf: Py<Self>, ask: Py<PyAny>, open: Py<PyAny>) -> PassItems {
        PassItems {
            ahead: slf,
            ask,
            open,
        }
    }
}

/// An iterator over the items of a pass: see [`Ahead::items`].
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct PassItems {
    ahead: Py<Ahead>,
    ask: Py<PyAny>,
    open: Py<PyAny>,
}

#[pymethods]
impl PassItems {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let ahead = self.ahead.get();
        let begun = Instant::now();
        let sent = ahead.take(py)?;
        ahead
            .waits
            .add(begun.elapsed().as_secs_f64(), ahead.workers);
        let Some(sent) = sent else {
            return self.ask.bind(py).call0();
        };
        let parts = sent.cast::<PyTuple>()?;
        let is_item_alone = parts.get_item(1)?.is_none() && parts.get_item(2)?.is_none();
        if is_item_alone {
            parts.get_item(0)
        } else {
            self.open.bind(py).call1((sent,))
        }
    }
}
