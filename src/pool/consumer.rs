#![expect(
    unsafe_code,
    reason = "what a worker has written is read where it lies"
)]
//! The side of the process that trains: it publishes tasks, and takes what was built.
//!
//! Tasks are numbered by the caller, from 0 on, each number once and in order; as many may be under way as there are places.
//! Which task is at a place only the consumer knows: who speaks of one that is over, or is a forked child of the consumer,
//! changes nothing.
//!
//! **Invariant of the unsafe code.** The bytes of a slot that is leased are the consumer's: no worker writes to it before
//! it is released, which dropping the one [`Lease`] of it does ([`crate::ring`]).

use std::io;
use std::process;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::arena::{Arena, Bytes, Slots, Wanted};
use crate::ring::{Awaited, Task};

/// What the process that trains does with a pool. May be used by several of its threads.
#[derive(Debug)]
pub struct Consumer {
    arena: Arc<Arena>,
    slots: Mutex<Slots>,
    kept: Arc<AtomicU32>,
    /// One more than the number of the task at each place; 0 where there is none.
    tasks: Box<[AtomicU64]>,
    process: u32,
}

impl Consumer {
    /// The consumer of a pool; there is one.
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

    /// What stands at the place of a task: whose it is.
    fn owner(&self, task: u64) -> &AtomicU64 {
        &self.tasks[self.place(task) as usize]
    }

    /// Whether this is no forked child of the process that made it.
    pub fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// Whether a task was published, and is neither taken nor withdrawn.
    pub fn is_under_way(&self, task: u64) -> bool {
        self.is_of_this_process() && self.owner(task).load(Ordering::SeqCst) == task + 1
    }

    /// Has tasks built, the first of which has this number. Returns how many: they end where a place is not empty, and no
    /// more are asked for.
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

    /// Takes back a task that is not under way, or with which no worker has begun yet. Returns whether it could.
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

    /// What becomes of a task.
    pub fn state(&self, task: u64) -> Task {
        self.arena.ring().task(self.place(task))
    }

    /// What to give to [`Consumer::wait`]: asked for before anything that is looked at before the wait.
    pub fn bell(&self) -> u32 {
        self.arena.ring().bell()
    }

    /// Waits until a task is built, unless the bell has rung since `heard`.
    pub fn wait(&self, task: u64, heard: u32, until: Option<Instant>) -> Awaited {
        self.arena.ring().wait_built(self.place(task), heard, until)
    }

    /// Has who waits look again, whatever it waits for.
    pub fn ring_bell(&self) {
        self.arena.ring().ring_bell();
    }

    /// How long a task is being built.
    pub fn since_begun(&self, task: u64) -> Option<Duration> {
        self.arena.since_begun(self.place(task))
    }

    /// Leases what was built for a task.
    ///
    /// # Errors
    ///
    /// The address space of this process has no room for it (`ulimit -v`): why, and how many bytes it has. The slot
    /// is free again.
    ///
    /// # Panics
    ///
    /// The task is not built.
    pub fn take(&self, task: u64) -> Result<Lease, (io::Error, usize)> {
        let mut lease = self.lease(task);
        let slot = lease.slot;
        let length = self.arena.filled(slot).load(Ordering::Relaxed);
        // It was reserved by a process of this machine.
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = slots.bytes(slot, length);
        lease.bytes = Some(bytes.map_err(|error| (error, length))?);
        Ok(lease)
    }

    /// What was built for a task is not needed.
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

    /// Whether a lease may be kept, beside those that are. One that may not has to be dropped before the next task is taken.
    pub fn may_keep(&self, lease: &mut Lease) -> bool {
        // One is left for what is taken and dropped at once.
        let most = self.arena.shape().leases - 1;
        let may = self.kept.fetch_add(1, Ordering::Relaxed) < most;
        if may {
            lease.kept = Some(Arc::clone(&self.kept));
        } else {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        may
    }

    /// A worker is dead. What it held is free, and what it was building is to be built by another.
    ///
    /// Returns what that was.
    pub fn recover(&self, worker: u32) -> Option<Wanted> {
        let place = self.arena.ring().recover(worker);
        place.map(|place| self.arena.wanted(place))
    }

    /// There will be no more tasks: workers end.
    pub fn close(&self) {
        self.arena.ring().close();
    }
}

/// A batch in the memory of the pool: it stays there until this is dropped, by whichever thread.
#[derive(Debug)]
pub struct Lease {
    arena: Arc<Arena>,
    slot: u32,
    bytes: Option<Bytes>,
    kept: Option<Arc<AtomicU32>>,
    /// Who has leased it: a forked child has a copy of this, which means nothing.
    process: u32,
}

impl Lease {
    /// What the worker wrote.
    pub fn bytes(&self) -> &[u8] {
        let Some(bytes) = &self.bytes else {
            return &[];
        };
        // SAFETY: they are mapped as long as `bytes` lives, and were written: they are initialised. By the invariant
        // above nobody writes to them but who holds `as_ptr`, and says so.
        unsafe { slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
    }

    /// Where it is. Who writes there sees to it that nobody looks at [`Lease::bytes`] meanwhile.
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
