//! What worker processes and threads need of a trial.

use std::sync::Arc;

use pyo3::prelude::*;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::Trial;
use crate::pool::{self, Ahead, Pool, PoolWorker, ThreadTasks};

#[pymethods]
impl Trial {
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
}
