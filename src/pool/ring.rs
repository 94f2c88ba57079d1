//! Which worker builds which task, and in which slot: states in shared words, and nothing else.
//!
//! A **task** is one batch to build. Tasks are numbered; task `n` has the **place** `n % window`,
//! so at most `window` tasks are in progress. A **slot** is memory for one batch. One process
//! consumes; the others are workers.
//!
//! ```text
//! place     empty -publish-> ready -claim-> building(worker) -finish-> built(slot) -take-> empty
//!                              ^                   |
//!                              +----- recover -----+          the worker died
//!
//! slot      free -own-> owned(worker) -take-> leased -release-> free
//!             ^             |
//!             +-------------+     recover, unless a built task names it; disown
//! ```
//!
//! Every step is one change of one word, so a worker may die between any two steps: the words
//! themselves show what it held. The consumer learns elsewhere that a worker died; then it calls
//! [`Ring::recover`].
//!
//! **There is always a free slot** for a worker that has claimed a task: a place that is not empty
//! uses at most one slot, and the place of that worker uses none yet. So one is free if there are
//! `window + leases + workers` slots, at most `leases` are leased, and no worker holds more than
//! one additional slot.
//!
//! **No process sleeps through a change.** Workers sleep on `work`, which changes with every task
//! that becomes ready; the consumer sleeps on `bell`, which changes when the task that it awaits is
//! built. To sleep, announce it first, and then look again; to make a change, change the state
//! first, and then look for sleepers.
//!
//! In `tests.rs`, a model checker runs the orders of what several processes can do to each other
//! here.

use std::time::Instant;

use crate::word::{Woken, Word};

/// Words that different processes write often are a cache line apart.
const LINE: usize = 16;
const WORK: usize = 0;
const BELL: usize = LINE;
const IDLE: usize = 2 * LINE;
const AWAITED: usize = 3 * LINE;
const CLOSED: usize = 4 * LINE;
const HEAD: usize = 5 * LINE;
const TASKS: usize = 6 * LINE;

/// The number of places and slots of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many tasks may be in progress: published, but not taken.
    pub window: u32,
    /// How many batches the consumer may hold.
    pub leases: u32,
    /// The number of workers, each of which may hold one slot besides the one in which it builds.
    pub workers: u32,
}

impl Shape {
    /// The number of slots.
    pub fn slots(self) -> u32 {
        self.window + self.leases + self.workers
    }

    /// The number of words of a ring of this shape, all of them zero at first.
    pub fn words(self) -> usize {
        TASKS + (self.window + self.slots()) as usize
    }
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// There is no task at this place.
    Empty,
    /// It waits for a worker.
    Ready,
    /// This worker builds it.
    Building(u32),
    /// It is built, in this slot.
    Built(u32),
}

/// The use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// None.
    Free,
    /// This worker writes to it, or has written to it.
    Owned(u32),
    /// The consumer reads it.
    Leased,
}

/// The kind is in the two highest bits, a number in the others.
const NUMBER_BITS: u32 = 30;

fn word_of(kind: u32, number: u32) -> u32 {
    debug_assert!(
        number < 1 << NUMBER_BITS,
        "numbers of workers and slots are small"
    );
    kind << NUMBER_BITS | number
}

fn parts_of(word: u32) -> (u32, u32) {
    (word >> NUMBER_BITS, word & ((1 << NUMBER_BITS) - 1))
}

impl Task {
    fn word(self) -> u32 {
        match self {
            Self::Empty => word_of(0, 0),
            Self::Ready => word_of(1, 0),
            Self::Building(worker) => word_of(2, worker),
            Self::Built(slot) => word_of(3, slot),
        }
    }

    fn of(word: u32) -> Self {
        match parts_of(word) {
            (0, _) => Self::Empty,
            (1, _) => Self::Ready,
            (2, worker) => Self::Building(worker),
            (_, slot) => Self::Built(slot),
        }
    }
}

impl Slot {
    fn word(self) -> u32 {
        match self {
            Self::Free => word_of(0, 0),
            Self::Owned(worker) => word_of(1, worker),
            Self::Leased => word_of(2, 0),
        }
    }

    fn of(word: u32) -> Self {
        match parts_of(word) {
            (0, _) => Self::Free,
            (1, worker) => Self::Owned(worker),
            _ => Self::Leased,
        }
    }
}

/// The result of a request for a task by a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The task at this place.
    Place(u32),
    /// There will be no more tasks.
    Closed,
    /// No task: a signal arrived during the wait.
    BySignal,
}

/// The result of a wait of the consumer for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It is built, in this slot.
    Built(u32),
    /// It is not built; why the wait ended.
    Not(Woken),
}

/// The states of all places and slots, in words that all processes of a pool share.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a, W> {
    words: &'a [W],
    shape: Shape,
}

impl<'a, W: Word> Ring<'a, W> {
    /// The ring in these words.
    ///
    /// # Panics
    ///
    /// Their number is not [`Shape::words`].
    pub fn new(words: &'a [W], shape: Shape) -> Self {
        assert_eq!(words.len(), shape.words(), "a ring of another shape");
        Self { words, shape }
    }

    fn task_word(&self, place: u32) -> &W {
        assert!(place < self.shape.window, "there is no place {place}");
        &self.words[TASKS + place as usize]
    }

    fn slot_word(&self, slot: u32) -> &W {
        assert!(slot < self.shape.slots(), "there is no slot {slot}");
        &self.words[TASKS + (self.shape.window + slot) as usize]
    }

    /// The state of the task at a place.
    pub fn task(&self, place: u32) -> Task {
        Task::of(self.task_word(place).load())
    }

    /// The use of a slot.
    pub fn slot(&self, slot: u32) -> Slot {
        Slot::of(self.slot_word(slot).load())
    }

    // -- the consumer -----------------------------------------------------------------------

    /// Publishes a task. Its place is empty, and the item to build is set already.
    ///
    /// [`Ring::announce`] wakes workers that sleep.
    pub fn publish(&self, place: u32) {
        debug_assert_eq!(self.task(place), Task::Empty);
        self.task_word(place).store(Task::Ready.word());
    }

    /// Announces that this many tasks were published: wakes workers for them.
    pub fn announce(&self, count: u32) {
        self.words[WORK].add(1);
        if self.words[IDLE].load() > 0 {
            self.words[WORK].wake(count);
        }
    }

    /// Withdraws a task that no worker has claimed yet; returns whether that succeeded.
    pub fn withdraw(&self, place: u32) -> bool {
        self.task_word(place)
            .replace(Task::Ready.word(), Task::Empty.word())
    }

    /// The value for [`Ring::wait_built`]. Read it before any state that you check before the wait.
    pub fn bell(&self) -> u32 {
        self.words[BELL].load()
    }

    /// Makes the consumer look again, whatever it waits for.
    pub fn ring_bell(&self) {
        self.words[BELL].add(1);
        self.words[BELL].wake(1);
    }

    /// Waits until the task at a place is built, unless the bell has rung since `heard`.
    pub fn wait_built(&self, place: u32, heard: u32, until: Option<Instant>) -> Awaited {
        if let Task::Built(slot) = self.task(place) {
            return Awaited::Built(slot);
        }
        self.words[AWAITED].store(place + 1);
        let woken = if matches!(self.task(place), Task::Built(_)) {
            Woken::Perhaps
        } else {
            self.words[BELL].wait(heard, until)
        };
        self.words[AWAITED].store(0);
        match self.task(place) {
            Task::Built(slot) => Awaited::Built(slot),
            _ => Awaited::Not(woken),
        }
    }

    /// Leases the slot of a built task, and empties its place; after that, the oldest task is at
    /// `head`.
    ///
    /// # Panics
    ///
    /// The task is not built.
    pub fn take(&self, place: u32, head: u32) -> u32 {
        let Task::Built(slot) = self.task(place) else {
            panic!("the task at place {place} is not built");
        };
        self.slot_word(slot).store(Slot::Leased.word());
        self.task_word(place).store(Task::Empty.word());
        self.words[HEAD].store(head);
        slot
    }

    /// Releases a leased slot, which is no longer read.
    pub fn release(&self, slot: u32) {
        debug_assert_eq!(self.slot(slot), Slot::Leased);
        self.slot_word(slot).store(Slot::Free.word());
    }

    /// Recovers from the death of a worker: frees what it held. Returns the place of the task that
    /// it was building.
    pub fn recover(&self, worker: u32) -> Option<u32> {
        let (mut building, mut built) = (None, Vec::new());
        for place in 0..self.shape.window {
            match self.task(place) {
                Task::Building(by) if by == worker => building = Some(place),
                Task::Built(slot) => built.push(slot),
                _ => {}
            }
        }
        for slot in 0..self.shape.slots() {
            if self.slot(slot) == Slot::Owned(worker) && !built.contains(&slot) {
                self.slot_word(slot).store(Slot::Free.word());
            }
        }
        if let Some(place) = building {
            self.task_word(place).store(Task::Ready.word());
        }
        // Also if it had no task: it may have been woken for one that it did not claim.
        self.words[WORK].add(1);
        self.words[WORK].wake(u32::MAX);
        building
    }

    /// Closes the ring: there will be no more tasks, and workers end.
    pub fn close(&self) {
        self.words[CLOSED].store(1);
        self.words[WORK].add(1);
        self.words[WORK].wake(u32::MAX);
    }

    // -- a worker ---------------------------------------------------------------------------

    /// Claims the oldest ready task; waits if there is none.
    pub fn claim(&self, worker: u32) -> Claimed {
        loop {
            if let Some(claimed) = self.claim_now(worker) {
                return claimed;
            }
            self.words[IDLE].add(1);
            let seen = self.words[WORK].load();
            let claimed = self.claim_now(worker);
            let woken = match claimed {
                Some(_) => Woken::Perhaps,
                None => self.words[WORK].wait(seen, None),
            };
            self.words[IDLE].add(u32::MAX);
            if let Some(claimed) = claimed {
                return claimed;
            }
            if woken == Woken::BySignal {
                return Claimed::BySignal;
            }
        }
    }

    /// Like [`Ring::claim`], but does not wait: `None` if no task is ready.
    pub fn claim_now(&self, worker: u32) -> Option<Claimed> {
        if self.words[CLOSED].load() != 0 {
            return Some(Claimed::Closed);
        }
        let (head, window) = (self.words[HEAD].load(), self.shape.window);
        (head..window).chain(0..head.min(window)).find_map(|place| {
            // A load costs less than an attempt to claim.
            let claimed = self.task(place) == Task::Ready
                && self
                    .task_word(place)
                    .replace(Task::Ready.word(), Task::Building(worker).word());
            claimed.then_some(Claimed::Place(place))
        })
    }

    /// Owns a free slot; `None` if others were faster each time. The caller may try again at once.
    pub fn own(&self, worker: u32) -> Option<u32> {
        // Each worker starts at a different slot, so that few slots are in use, and those are in
        // its caches.
        let (slots, workers) = (self.shape.slots(), self.shape.workers.max(1));
        let first = slots * (worker % workers) / workers;
        (first..slots).chain(0..first).find(|&slot| {
            self.slot(slot) == Slot::Free
                && self
                    .slot_word(slot)
                    .replace(Slot::Free.word(), Slot::Owned(worker).word())
        })
    }

    /// Gives up a slot that a worker owns and does not need.
    pub fn disown(&self, slot: u32) {
        debug_assert!(matches!(self.slot(slot), Slot::Owned(_)));
        self.slot_word(slot).store(Slot::Free.word());
    }

    /// Finishes a task, which is built in a slot that the worker owns.
    pub fn finish(&self, worker: u32, place: u32, slot: u32) {
        self.commit(worker, place, slot);
        self.tell(place);
    }

    /// The first half of [`Ring::finish`]: from here on the task is built.
    pub(crate) fn commit(&self, worker: u32, place: u32, slot: u32) {
        let is_mine = self
            .task_word(place)
            .replace(Task::Building(worker).word(), Task::Built(slot).word());
        assert!(
            is_mine,
            "the task at place {place} is built by another worker"
        );
    }

    /// The other half: wakes the consumer, if it waits for this task.
    pub(crate) fn tell(&self, place: u32) {
        if self.words[AWAITED].load() == place + 1 {
            self.ring_bell();
        }
    }
}

#[cfg(test)]
mod tests;
