#![expect(unsafe_code, reason = "what is built is written where it is read")]
//! The side of a worker: it claims tasks, and writes what it has built.
//!
//! **Invariant of the unsafe code.** The bytes of a slot that a worker owns are the worker's: nobody else looks at them
//! before the task that names the slot is built ([`crate::ring`]).

use std::io;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::{Arena, Bytes, Slots, Wanted};
use crate::ring::Claimed;

/// What a worker process does with a pool.
#[derive(Debug)]
pub struct Worker {
    arena: Arc<Arena>,
    slots: Slots,
    number: u32,
    /// A slot that it owns, and has not handed over.
    held: Option<u32>,
    /// Another, which it cannot hand over.
    aside: Option<u32>,
}

/// A task that a worker has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    place: u32,
    /// What is to be built.
    pub wanted: Wanted,
}

/// What a worker got when it asked for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A task.
    Claim(Claim),
    /// There will be no more.
    Closed,
    /// None: a signal arrived while it waited.
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

    /// Claims the oldest task that is ready; waits for one where there is none.
    pub fn claim(&mut self) -> Asked {
        let claimed = self.arena.ring().claim(self.number);
        self.asked(claimed)
    }

    /// As [`Worker::claim`], but does not wait: nothing where there is no task.
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

    /// Has a slot with room for so many bytes, in which something may be built before it is finished.
    ///
    /// They are this worker's alone until [`Worker::finish`].
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn prepare(&mut self, length: usize) -> io::Result<Bytes> {
        let slot = self.slot();
        self.slots.reserve(slot, length)?;
        self.slots.bytes(slot, length)
    }

    /// The slot in which was written cannot be handed over yet: what is there is copied to another, which is.
    ///
    /// It is this worker's until [`Worker::take_back`]; one slot may be set aside.
    ///
    /// # Errors
    ///
    /// There is no memory for another: nothing is written now.
    pub fn set_aside(&mut self, length: usize) -> io::Result<()> {
        debug_assert!(self.aside.is_none(), "two slots are set aside");
        let before = self.prepare(length)?;
        self.aside = self.held.take();
        let after = self.prepare(length)?;
        // SAFETY: both are mapped, and reserved, and this worker's alone; they are different slots.
        unsafe { ptr::copy_nonoverlapping(before.as_ptr(), after.as_ptr(), length) };
        Ok(())
    }

    /// The slot that was set aside is like others again.
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

    /// Writes what was built, or the rest of it, into the slot that was prepared, or into any.
    ///
    /// Args:
    ///     `length`: bytes of it.
    ///     `write`: writes them; what is there before is undefined, but initialised.
    ///
    /// # Errors
    ///
    /// There is no memory, or `write` failed: the task is still this worker's to finish.
    pub fn write<E: From<io::Error>>(
        &mut self,
        length: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = self.prepare(length)?;
        // SAFETY: they are mapped as long as `bytes` lives, reserved, and initialised by zeros or by who had the slot
        // before; by the invariant above nobody else looks at them.
        write(unsafe { slice::from_raw_parts_mut(bytes.as_ptr(), bytes.len()) })
    }

    /// Tells the consumer that what was written is what was asked for.
    ///
    /// Args:
    ///     `length`: bytes that were written.
    pub fn finish(&mut self, claim: Claim, length: usize) {
        let slot = self.slot();
        self.arena
            .filled(slot)
            .store(length as u64, Ordering::Relaxed);
        self.held = None;
        self.arena.ring().finish(self.number, claim.place, slot);
    }
}
