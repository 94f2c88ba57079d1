#![expect(unsafe_code, reason = "what is built is written where it is read")]
//! The side of a worker: it claims tasks, and writes the batches that it has built.
//!
//! **Invariant of the unsafe code.** The bytes of a slot that a worker owns belong to the worker:
//! nobody else reads them before the task that names the slot is built ([`crate::ring`]).

use std::io;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::{Arena, Bytes, Slots, Wanted};
use crate::ring::Claimed;

/// The operations of a worker process on a pool.
#[derive(Debug)]
pub struct Worker {
    arena: Arc<Arena>,
    slots: Slots,
    number: u32,
    /// A slot that it owns, and has not passed on.
    held: Option<u32>,
    /// Another one, which it cannot pass on.
    aside: Option<u32>,
}

/// A task that a worker has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    place: u32,
    /// The item to build.
    pub wanted: Wanted,
}

/// The result of a request for a task by a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A task.
    Claim(Claim),
    /// There will be no more tasks.
    Closed,
    /// No task: a signal arrived during the wait.
    BySignal,
}

impl Worker {
    /// A worker of a pool.
    ///
    /// Args:
    ///     `number`: no other living worker of the pool has it.
    pub fn new(arena: Arc<Arena>, number: u32) -> Self {
        let slots = Slots::new(Arc::clone(&arena));
        Self {
            arena,
            slots,
            number,
            held: None,
            aside: None,
        }
    }

    /// Claims the oldest ready task; waits if there is none.
    pub fn claim(&mut self) -> Asked {
        let claimed = self.arena.ring().claim(self.number);
        self.asked(claimed)
    }

    /// Like [`Worker::claim`], but does not wait: `None` if there is no task.
    pub fn claim_now(&mut self) -> Option<Asked> {
        let claimed = self.arena.ring().claim_now(self.number)?;
        Some(self.asked(claimed))
    }

    fn asked(&self, claimed: Claimed) -> Asked {
        match claimed {
            Claimed::Place(place) => {
                self.arena.begin(place);
                let wanted = self.arena.wanted(place);
                Asked::Claim(Claim { place, wanted })
            }
            Claimed::Closed => Asked::Closed,
            Claimed::BySignal => Asked::BySignal,
        }
    }

    /// Returns a slot with room for this many bytes, in which a batch may be built before it is
    /// finished.
    ///
    /// Only this worker uses them until [`Worker::finish`].
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn prepare(&mut self, length: usize) -> io::Result<Bytes> {
        let slot = self.slot();
        self.slots.reserve(slot, length)?;
        self.slots.bytes(slot, length)
    }

    /// Copies a slot that cannot be passed on yet to another one, which can.
    ///
    /// The first slot belongs to this worker until [`Worker::take_back`]; at most one slot may be
    /// set aside.
    ///
    /// # Errors
    ///
    /// There is no memory for another slot: nothing is written.
    pub fn set_aside(&mut self, length: usize) -> io::Result<()> {
        debug_assert!(self.aside.is_none(), "two slots are set aside");
        let before = self.prepare(length)?;
        self.aside = self.held.take();
        let after = self.prepare(length)?;
        // SAFETY: both are mapped and reserved, and belong to this worker alone; they are different
        // slots.
        unsafe { ptr::copy_nonoverlapping(before.as_ptr(), after.as_ptr(), length) };
        Ok(())
    }

    /// Gives up the slot that was set aside.
    pub fn take_back(&mut self) {
        if let Some(slot) = self.aside.take() {
            self.arena.ring().disown(slot);
        }
    }

    fn slot(&mut self) -> u32 {
        loop {
            if let Some(slot) = self.held.or_else(|| self.arena.ring().own(self.number)) {
                self.held = Some(slot);
                return slot;
            }
        }
    }

    /// Writes a batch, or the rest of it, into the prepared slot, or into any.
    ///
    /// Args:
    ///     `length`: its number of bytes.
    ///     `write`: writes them; their content before is undefined, but initialised.
    ///
    /// # Errors
    ///
    /// There is no memory, or `write` failed: the task still belongs to this worker.
    pub fn write<E: From<io::Error>>(
        &mut self,
        length: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = self.prepare(length)?;
        // SAFETY: the bytes are mapped as long as `bytes` lives, reserved, and initialised by zeros
        // or by a former owner of the slot; by the invariant above nobody else uses them.
        write(unsafe { slice::from_raw_parts_mut(bytes.as_ptr(), bytes.len()) })
    }

    /// Reports to the consumer that the batch is complete.
    ///
    /// Args:
    ///     `length`: number of bytes that were written.
    pub fn finish(&mut self, claim: Claim, length: usize) {
        let slot = self.slot();
        self.arena
            .filled(slot)
            .store(length as u64, Ordering::Relaxed);
        self.held = None;
        self.arena.ring().finish(self.number, claim.place, slot);
    }
}
