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
//!
//! Nothing here prints, starts a process or ends one.

pub mod arena;
pub mod ring;
pub mod word;

pub use arena::{Arena, Bytes, Slots, Wanted};
pub use ring::{Awaited, Claimed, Ring, Shape, Slot, Task};
pub use word::{Woken, Word};
