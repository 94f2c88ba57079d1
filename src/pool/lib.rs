//! The data plane of pedl-run: batches in shared memory, built by worker processes; knows no Python.
//!
//! A **task** is one batch that is to be built, a **slot** the memory for one. The **consumer** is the process that trains,
//! a **worker** one that builds. Batches lie in slots as the worker wrote them, and the consumer reads them there: it
//! **leases** the slot until nobody looks at the batch any more.
//!
//! | module | what it knows |
//! |---|---|
//! | [`ring`] | which task is built by whom, and in which slot |
//! | [`word`] | words that processes share and wait on |
//! | [`arena`] | the memory: a sparse file that all processes of a pool map |
//! | [`consumer`] | what the process that trains does: tasks are published, and batches taken |
//! | [`worker`] | what a worker does: tasks are claimed, and batches written |
//! | [`watch`] | which worker has ended |
//! | `room` | how much memory there is left |
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
