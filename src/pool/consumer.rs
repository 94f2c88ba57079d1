#![expect(
    unsafe_code,
    reason = "what a worker has written is read where it lies"
)]
//! The side of the training process: it publishes tasks, and takes the batches that were built.
//!
//! The caller numbers tasks from 0 on, each number once and in order; at most as many as there are
//! places may be in progress. Only the consumer knows which task is at a place: a call for a task
//! that is over, or from a forked child of the consumer, changes nothing.
//!
//! **Invariant of the unsafe code.** The bytes of a leased slot belong to the consumer: no worker
//! writes to it before it is released, which happens when its only [`Lease`] is dropped
//! ([`crate::ring`]).

use std::io;
use std::process;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::arena::{Arena, Bytes, Slots, Wanted};
use crate::ring::{Awaited, Task};

/// The operations of the training process on a pool. Several of its threads may use it.
#[derive(Debug)]
pub struct Consumer {
    arena: Arc<Arena>,
    slots: Mutex<Slots>,
    kept: Arc<AtomicU32>,
    /// One more than the number of the task at each place; 0 if there is none.
    tasks: Box<[AtomicU64]>,
    process: u32,
}

impl Consumer {
    /// The consumer of a pool; a pool has only one.
    pub fn new(arena: Arc<Arena>) -> Self {
        let slots = Mutex::new(Slots::new(Arc::clone(&arena)));
        let tasks = (0..arena.shape().window).map(|_| AtomicU64::new(0));
        Self {
            tasks: tasks.collect(),
            arena,
            slots,
            kept: Arc::default(),
            process: process::id(),
        }
    }

    /// The memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    fn place(&self, task: u64) -> u32 {
        let place = task % u64::from(self.arena.shape().window);
        u32::try_from(place).expect("it is less than the window, which has 32 bits")
    }

    /// The entry for the place of a task: the task that owns it.
    fn owner(&self, task: u64) -> &AtomicU64 {
        &self.tasks[self.place(task) as usize]
    }

    /// Whether this is the process that made it, not a forked child.
    pub fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// Whether a task was published, and neither taken nor withdrawn.
    pub fn is_under_way(&self, task: u64) -> bool {
        self.is_of_this_process() && self.owner(task).load(Ordering::SeqCst) == task + 1
    }

    /// Publishes tasks, of which the first has this number. Returns how many: it stops at a place
    /// that is not empty, or after the last of `wanted`.
    pub fn publish(&self, first: u64, wanted: impl IntoIterator<Item = Wanted>) -> u32 {
        let mut published = 0;
        let mut wanted = wanted.into_iter();
        loop {
            let task = first + u64::from(published);
            let place = self.place(task);
            if self.arena.ring().task(place) != Task::Empty {
                break;
            }
            let Some(wanted) = wanted.next() else { break };
            self.owner(task).store(task + 1, Ordering::SeqCst);
            self.arena.want(place, wanted);
            self.arena.ring().publish(place);
            published += 1;
        }
        if published > 0 {
            self.arena.ring().announce(published);
        }
        published
    }

    /// Withdraws a task, unless a worker has begun it. Returns whether it is withdrawn, or was not
    /// in progress.
    pub fn withdraw(&self, task: u64) -> bool {
        if !self.is_under_way(task) {
            return true;
        }
        let is_withdrawn = self.arena.ring().withdraw(self.place(task));
        if is_withdrawn {
            self.owner(task).store(0, Ordering::SeqCst);
        }
        is_withdrawn
    }

    /// The state of a task.
    pub fn state(&self, task: u64) -> Task {
        self.arena.ring().task(self.place(task))
    }

    /// The value for [`Consumer::wait`]. Read it before any state that you check before the wait.
    pub fn bell(&self) -> u32 {
        self.arena.ring().bell()
    }

    /// Waits until a task is built, unless the bell has rung since `heard`.
    pub fn wait(&self, task: u64, heard: u32, until: Option<Instant>) -> Awaited {
        self.arena.ring().wait_built(self.place(task), heard, until)
    }

    /// Makes a waiting consumer look again, whatever it waits for.
    pub fn ring_bell(&self) {
        self.arena.ring().ring_bell();
    }

    /// How long a task has been in work.
    pub fn since_begun(&self, task: u64) -> Option<Duration> {
        self.arena.since_begun(self.place(task))
    }

    /// Leases the batch that was built for a task.
    ///
    /// # Errors
    ///
    /// The address space of this process has no room for it (`ulimit -v`): the error, and the
    /// number of bytes. The slot is free again.
    ///
    /// # Panics
    ///
    /// The task is not built.
    pub fn take(&self, task: u64) -> Result<Lease, (io::Error, usize)> {
        let mut lease = self.lease(task);
        let slot = lease.slot;
        let length = self.arena.filled(slot).load(Ordering::Relaxed);
        // A process of this machine has reserved it, so it fits.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = slots.bytes(slot, length);
        lease.bytes = Some(bytes.map_err(|error| (error, length))?);
        Ok(lease)
    }

    /// Discards the batch that was built for a task.
    ///
    /// # Panics
    ///
    /// The task is not built.
    pub fn discard(&self, task: u64) {
        drop(self.lease(task));
    }

    fn lease(&self, task: u64) -> Lease {
        let next = self.place(task.wrapping_add(1));
        self.owner(task).store(0, Ordering::SeqCst);
        Lease {
            arena: Arc::clone(&self.arena),
            slot: self.arena.ring().take(self.place(task), next),
            bytes: None,
            kept: None,
            process: self.process,
        }
    }

    /// Whether a lease may be kept, in addition to those that are. If not, drop it before you take
    /// the next task.
    pub fn may_keep(&self, lease: &mut Lease) -> bool {
        // One lease stays free for batches that are taken and dropped at once.
        let most = self.arena.shape().leases - 1;
        let may = self.kept.fetch_add(1, Ordering::Relaxed) < most;
        if may {
            lease.kept = Some(Arc::clone(&self.kept));
        } else {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        may
    }

    /// Recovers from the death of a worker: frees what it held, and makes its task available to
    /// another worker.
    ///
    /// Returns the item of that task.
    pub fn recover(&self, worker: u32) -> Option<Wanted> {
        let place = self.arena.ring().recover(worker);
        place.map(|place| self.arena.wanted(place))
    }

    /// Closes the pool: there will be no more tasks, and workers end.
    pub fn close(&self) {
        self.arena.ring().close();
    }
}

/// A batch in the memory of the pool: it stays there until this is dropped, by any thread.
#[derive(Debug)]
pub struct Lease {
    arena: Arc<Arena>,
    slot: u32,
    bytes: Option<Bytes>,
    kept: Option<Arc<AtomicU32>>,
    /// The process that leased it: the copy in a forked child has no effect.
    process: u32,
}

impl Lease {
    /// The bytes that the worker wrote.
    pub fn bytes(&self) -> &[u8] {
        let Some(bytes) = &self.bytes else {
            return &[];
        };
        // SAFETY: the bytes are mapped as long as `bytes` lives, and were written, so they are
        // initialised. By the invariant above, only the user of `as_ptr` writes to them, who
        // guarantees that nobody reads them then.
        unsafe { slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
    }

    /// The beginning of the bytes. Who writes there must ensure that nobody uses [`Lease::bytes`]
    /// at the same time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.bytes
            .as_ref()
            .map_or(std::ptr::null_mut(), Bytes::as_ptr)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.process == process::id() {
            self.bytes = None;
            self.arena.ring().release(self.slot);
            if let Some(kept) = &self.kept {
                kept.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
