//! The data plane of pedl-run: batches in shared memory, built by worker processes; knows no
//! Python.
//!
//! A **task** is one batch to build, a **slot** the memory for one. The **consumer** is the process
//! that trains, a **worker** one that builds. A batch stays in its slot as the worker wrote it, and
//! the consumer reads it there: it **leases** the slot until the batch is no longer in use.
//!
//! | module | what it knows |
//! |---|---|
//! | [`ring`] | which worker builds which task, and in which slot |
//! | [`word`] | words that processes share and wait on |
//! | [`arena`] | the memory: a sparse file that all processes of a pool map |
//! | [`consumer`] | operations of the training process: publish tasks, and take batches |
//! | [`worker`] | operations of a worker: claim tasks, and write batches |
//! | [`watch`] | which workers have ended |
//! | `room` | how much memory is left |
//!
//! Nothing here prints, starts a process or ends one.

pub mod arena;
pub mod consumer;
pub mod ring;
mod room;
pub mod watch;
pub mod word;
pub mod worker;

pub use arena::{Arena, Bytes, Wanted};
pub use consumer::{Consumer, Lease};
pub use ring::{Awaited, Ring, Shape, Task};
pub use watch::Watch;
pub use word::{Woken, Word};
pub use worker::{Asked, Claim, Worker};
