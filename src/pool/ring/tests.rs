#![expect(clippy::print_stdout, reason = "how many orders there were")]
//! A model checker (loom) runs the possible orders of the operations of a consumer and its workers:
//! no task is lost or built twice, no slot is read while it is written, and no process sleeps for
//! ever, even if a worker dies at any step.
//!
//! loom orders a `SeqCst` operation only with operations on the same word. So the words here read
//! and write by operations that see the newest value: then all are in one order, as for
//! [`AtomicU32`](std::sync::atomic).

use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};
use std::time::Instant;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Awaited, Claimed, Ring, Shape, Slot, Task};
use crate::word::{Woken, Word};

/// A word of loom, and a futex made from a lock.
#[derive(Debug)]
struct Modelled {
    value: AtomicU32,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Modelled {
    fn new() -> Self {
        Self {
            value: AtomicU32::new(0),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        }
    }
}

impl Word for Modelled {
    fn load(&self) -> u32 {
        self.value.fetch_add(0, Ordering::AcqRel)
    }

    fn store(&self, value: u32) {
        self.value.swap(value, Ordering::AcqRel);
    }

    fn add(&self, value: u32) -> u32 {
        self.value.fetch_add(value, Ordering::AcqRel)
    }

    fn replace(&self, expected: u32, new: u32) -> bool {
        self.value
            .compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn wait(&self, expected: u32, until: Option<Instant>) -> Woken {
        assert_eq!(until, None, "there is no time in a model");
        let sleeping = self.sleepers.lock().expect("nobody panics with it");
        if self.load() == expected {
            drop(self.woken.wait(sleeping));
        }
        Woken::Perhaps
    }

    fn wake(&self, count: u32) {
        let _sleepers = self.sleepers.lock().expect("nobody panics with it");
        if count == 1 {
            self.woken.notify_one();
        } else {
            self.woken.notify_all();
        }
    }
}

/// The step at which a worker dies; in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Death {
    Claimed,
    Owned,
    Written,
    Committed,
    Told,
    Never,
}

/// The ring and the data that it guards: the item to build at each place, and the batch in each
/// slot.
struct Pool {
    words: Vec<Modelled>,
    shape: Shape,
    wanted: Vec<UnsafeCell<u32>>,
    batches: Vec<UnsafeCell<u32>>,
    has_died: AtomicBool,
}

impl Pool {
    fn new(shape: Shape) -> Arc<Self> {
        Arc::new(Self {
            words: (0..shape.words()).map(|_| Modelled::new()).collect(),
            shape,
            wanted: (0..shape.window).map(|_| UnsafeCell::new(0)).collect(),
            batches: (0..shape.slots()).map(|_| UnsafeCell::new(0)).collect(),
            has_died: AtomicBool::new(false),
        })
    }

    fn ring(&self) -> Ring<'_, Modelled> {
        Ring::new(&self.words, self.shape)
    }

    /// Runs a worker until there are no more tasks, or until it dies while it builds its first.
    fn work(&self, worker: u32, death: Death) {
        let ring = self.ring();
        while let Claimed::Place(place) = ring.claim(worker) {
            if death == Death::Claimed {
                return;
            }
            let slot = loop {
                if let Some(slot) = ring.own(worker) {
                    break slot;
                }
                thread::yield_now();
            };
            if death == Death::Owned {
                return;
            }
            let number = self.wanted[place as usize].with(read);
            self.batches[slot as usize].with_mut(|batch| write(batch, 100 + number));
            if death == Death::Written {
                return;
            }
            ring.commit(worker, place, slot);
            if death == Death::Committed {
                return;
            }
            ring.tell(place);
            if death == Death::Told {
                return;
            }
        }
    }

    /// Runs the consumer: every task once, in order; it holds one batch while it waits for the
    /// next.
    fn consume(&self, tasks: u32) {
        let ring = self.ring();
        let mut published = 0;
        let mut held = None;
        for number in 0..tasks {
            while published < tasks && published < number + self.shape.window {
                let place = published % self.shape.window;
                self.wanted[place as usize].with_mut(|wanted| write(wanted, published));
                ring.publish(place);
                ring.announce(1);
                published += 1;
            }
            let place = number % self.shape.window;
            loop {
                let heard = ring.bell();
                if self.has_died.swap(false, Ordering::AcqRel) {
                    ring.recover(0);
                }
                if let Awaited::Built(_) = ring.wait_built(place, heard, None) {
                    break;
                }
            }
            let slot = ring.take(place, (number + 1) % self.shape.window);
            let batch = self.batches[slot as usize].with(read);
            assert_eq!(batch, 100 + number);
            if let Some(before) = held.replace(slot) {
                ring.release(before);
            }
        }
        ring.close();
    }
}

#[expect(unsafe_code, reason = "loom's cells say when two threads are in one")]
fn read(cell: *const u32) -> u32 {
    // SAFETY: loom has just ensured that nobody writes it.
    unsafe { *cell }
}

#[expect(unsafe_code, reason = "loom's cells say when two threads are in one")]
fn write(cell: *mut u32, value: u32) {
    // SAFETY: loom has just ensured that nobody else uses it.
    unsafe { *cell = value }
}

/// Runs a model; returns the number of orders.
fn check(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) -> usize {
    let orders = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = orders.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(move || {
        counted.fetch_add(1, StdOrdering::Relaxed);
        model();
    });
    orders.load(StdOrdering::Relaxed)
}

const SHAPE: Shape = Shape {
    window: 2,
    leases: 1,
    workers: 0,
};

#[test]
fn two_workers_build_each_task_once_and_in_order() {
    let orders = check(Some(2), || {
        let pool = Pool::new(SHAPE);
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.work(worker, Death::Never))
            })
            .collect();
        pool.consume(3);
        for worker in workers {
            worker.join().expect("workers end");
        }
    });
    println!("{orders} orders, up to 2 preemptions in each");
    assert!(orders > 1000);
}

#[test]
fn a_worker_that_dies_at_any_step_takes_nothing_along() {
    for death in [
        Death::Claimed,
        Death::Owned,
        Death::Written,
        Death::Committed,
        Death::Told,
    ] {
        let orders = check(Some(1), move || {
            let pool = Pool::new(SHAPE);
            let dying = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.work(0, death))
            };
            let living = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || pool.work(1, Death::Never))
            };
            let watcher = {
                let pool = Arc::clone(&pool);
                thread::spawn(move || {
                    dying.join().expect("it ends");
                    pool.has_died.swap(true, Ordering::AcqRel);
                    pool.ring().ring_bell();
                })
            };
            pool.consume(2);
            living.join().expect("it ends");
            watcher.join().expect("it ends");
        });
        println!("dies when {death:?}: {orders} orders, up to 1 preemption in each");
        assert!(orders > 100);
    }
}

#[test]
fn what_was_withdrawn_is_built_by_nobody() {
    let orders = check(Some(3), || {
        let pool = Pool::new(SHAPE);
        let ring = pool.ring();
        ring.publish(0);
        ring.announce(1);
        let worker = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.work(0, Death::Never))
        };
        if ring.withdraw(0) {
            assert_eq!(ring.task(0), Task::Empty);
        } else {
            while let Awaited::Not(_) = ring.wait_built(0, ring.bell(), None) {}
            ring.release(ring.take(0, 1));
        }
        ring.close();
        worker.join().expect("it ends");
        assert!((0..SHAPE.slots()).all(|slot| ring.slot(slot) == Slot::Free));
    });
    println!("{orders} orders, up to 3 preemptions in each");
    assert!(orders > 10);
}
