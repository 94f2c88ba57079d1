#![expect(unsafe_code, reason = "what is built is written where it is read")]
//! The side of a worker: it claims tasks, and writes what it has built.
//!
//! **Invariant of the unsafe code.** The bytes of a slot that a worker owns are the worker's: nobody else looks at them
//! before the task that names the slot is built ([`crate::ring`]).

use std::io;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::{Arena, Slots, Wanted};
use crate::ring::Claimed;

/// What a worker process does with a pool.
#[derive(Debug)]
pub struct Worker {
    arena: Arc<Arena>,
    slots: Slots,
    number: u32,
    /// A slot that it owns, and has not used.
    held: Option<u32>,
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
        }
    }

    /// Claims the oldest task that is ready; waits for one where there is none.
    pub fn claim(&mut self) -> Asked {
        match self.arena.ring().claim(self.number) {
            Claimed::Place(place) => {
                self.arena.begin(place);
                let wanted = self.arena.wanted(place);
                Asked::Claim(Claim { place, wanted })
            }
            Claimed::Closed => Asked::Closed,
            Claimed::BySignal => Asked::BySignal,
        }
    }

    /// Writes what was built, and tells the consumer.
    ///
    /// Args:
    ///     `length`: bytes of it.
    ///     `write`: writes them; what is there before is undefined, but initialised.
    ///
    /// # Errors
    ///
    /// There is no memory, or `write` failed: the task is still this worker's to finish.
    pub fn finish<E: From<io::Error>>(
        &mut self,
        claim: Claim,
        length: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let ring = self.arena.ring();
        let slot = loop {
            if let Some(slot) = self.held.or_else(|| ring.own(self.number)) {
                break slot;
            }
        };
        self.held = Some(slot);
        self.slots.reserve(slot, length)?;
        let bytes = self.slots.bytes(slot, length)?;
        // SAFETY: they are mapped as long as `bytes` lives, reserved, and initialised by zeros or by who had the slot
        // before; by the invariant above nobody else looks at them.
        write(unsafe { slice::from_raw_parts_mut(bytes.as_ptr(), bytes.len()) })?;
        self.arena
            .filled(slot)
            .store(length as u64, Ordering::Relaxed);
        self.held = None;
        ring.finish(self.number, claim.place, slot);
        Ok(())
    }
}
