//! Worker processes that build batches: `pedl_pool` with Python on both sides.
//!
//! | module | contents |
//! |---|---|
//! | [`consumer`] | the side of the training process: requests items, and takes them |
//! | [`worker`] | the side of a worker process: builds items, and sends them |
//! | [`message`] | how a Python value is written into a slot, and read |
//! | [`memory`] | how arrays are views of a slot, which is leased as long as there is one |
//! | [`region`] | how arrays have their memory in a slot from the start |
//! | [`ahead`] | how a pass requests items in advance, and takes them |
//! | [`threads`] | how threads build items instead of processes |
//!
//! `py_hooks/workers/worker_processes.py` starts the workers, and defines what they build.

mod ahead;
mod consumer;
mod memory;
mod message;
mod region;
mod threads;
mod worker;

use std::io;
use std::os::fd::IntoRawFd as _;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};

pub(crate) use ahead::{Ahead, Waits};
pub(crate) use consumer::Pool;
pub(crate) use threads::{ThreadTask, ThreadTasks};
pub(crate) use worker::PoolWorker;

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
