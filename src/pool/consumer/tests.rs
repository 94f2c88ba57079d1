use std::io;
use std::sync::Arc;
use std::thread;

use super::Consumer;
use crate::arena::{Arena, Wanted};
use crate::ring::{Awaited, Shape, Slot, Task};
use crate::worker::{Asked, Worker};

const SHAPE: Shape = Shape {
    window: 4,
    leases: 2,
    workers: 1,
};

/// The consumer of a pool, and a worker of each number that maps the memory as another process
/// does.
fn pool(workers: u32) -> (Consumer, Vec<Worker>) {
    let arena = Arc::new(Arena::create(SHAPE).expect("there is room"));
    let workers = (0..workers)
        .map(|number| {
            let seen = Arena::open(Arc::clone(arena.file()), SHAPE).expect("there is room");
            Worker::new(Arc::new(seen), number)
        })
        .collect();
    (Consumer::new(arena), workers)
}

fn wanted(index: u64) -> Wanted {
    Wanted {
        index,
        ..Wanted::default()
    }
}

/// The batch of an index: size and content differ each time.
fn batch(index: u64) -> Vec<u8> {
    let times = usize::try_from(index % 9000).expect("small");
    index.to_le_bytes().repeat(times)
}

/// Builds one task, if there is one.
fn build(worker: &mut Worker) -> bool {
    let Asked::Claim(claim) = worker.claim() else {
        return false;
    };
    let content = batch(claim.wanted.index);
    let write = |bytes: &mut [u8]| -> io::Result<()> {
        bytes.copy_from_slice(&content);
        Ok(())
    };
    worker.write(content.len(), write).expect("there is room");
    worker.finish(claim, content.len());
    true
}

#[test]
fn all_tasks_come_in_order_from_workers_that_share_the_memory() {
    const TASKS: u64 = 5000;
    let (consumer, workers) = pool(3);
    let workers: Vec<_> = workers
        .into_iter()
        .map(|mut worker| thread::spawn(move || while build(&mut worker) {}))
        .collect();
    let mut published = 0;
    for task in 0..TASKS {
        while published < TASKS && consumer.publish(published, [wanted(published)]) == 1 {
            published += 1;
        }
        while let Awaited::Not(_) = consumer.wait(task, consumer.bell(), None) {}
        let lease = consumer.take(task).expect("there is room");
        assert_eq!(lease.bytes(), batch(task));
    }
    consumer.close();
    for worker in workers {
        worker.join().expect("it ends");
    }
    let ring = consumer.arena().ring();
    assert!((0..SHAPE.slots()).all(|slot| ring.slot(slot) == Slot::Free));
}

#[test]
fn as_many_leases_are_kept_as_leave_room_for_one_more() {
    let (consumer, mut workers) = pool(1);
    let mut kept = Vec::new();
    for task in 0..20 {
        assert_eq!(consumer.publish(task, [wanted(task)]), 1);
        assert!(build(&mut workers[0]));
        let mut lease = consumer.take(task).expect("there is room");
        let may = consumer.may_keep(&mut lease);
        assert_eq!(may, kept.is_empty(), "one of two may be kept");
        if may {
            kept.push(lease);
        }
        if task == 9 {
            assert_eq!(kept.pop().expect("one is kept").bytes(), batch(0));
        }
    }
    assert_eq!(kept.pop().expect("one is kept").bytes(), batch(10));
}

#[test]
fn what_cannot_be_written_is_still_to_be_finished_and_takes_no_slot() {
    let (consumer, mut workers) = pool(1);
    let worker = &mut workers[0];
    for task in 0..20 {
        assert_eq!(consumer.publish(task, [wanted(task)]), 1);
        let Asked::Claim(claim) = worker.claim() else {
            panic!("there is a task")
        };
        let failed = worker.write(10, |_| Err(io::Error::other("no such value")));
        assert!(failed.is_err());
        let failed = worker.write(usize::MAX, |_| Ok::<_, io::Error>(()));
        assert_eq!(
            failed.expect_err("it is too large").kind(),
            io::ErrorKind::OutOfMemory
        );
        assert_eq!(consumer.state(task), Task::Building(0));
        worker.finish(claim, 0);
        assert_eq!(
            consumer.take(task).expect("there is room").bytes(),
            [0_u8; 0]
        );
    }
}

#[test]
fn a_task_is_published_once_its_place_is_empty() {
    let (consumer, mut workers) = pool(1);
    for task in 0..4 {
        assert_eq!(consumer.publish(task, [wanted(task)]), 1);
    }
    assert_eq!(consumer.publish(4, [wanted(4)]), 0);
    assert!(build(&mut workers[0]));
    assert!(!consumer.withdraw(0), "it is built");
    assert!(consumer.withdraw(1));
    assert_eq!(consumer.publish(4, [wanted(4)]), 0);
    drop(consumer.take(0).expect("there is room"));
    assert_eq!(consumer.publish(4, [wanted(4)]), 1);
}

#[test]
fn who_speaks_of_a_task_that_is_over_changes_nothing() {
    let (consumer, mut workers) = pool(1);
    assert_eq!(consumer.publish(0, [wanted(0)]), 1);
    assert!(build(&mut workers[0]));
    consumer.discard(0);
    assert!(!consumer.is_under_way(0));
    // At the same place.
    assert_eq!(consumer.publish(4, [wanted(4)]), 1);
    assert!(consumer.withdraw(0));
    assert_eq!(consumer.state(4), Task::Ready);
    assert!(consumer.is_under_way(4));
    assert!(consumer.withdraw(4));
    assert_eq!(consumer.state(4), Task::Empty);
    assert!(consumer.withdraw(4));
}

#[test]
fn what_a_dead_worker_was_building_is_built_by_another() {
    let (consumer, mut workers) = pool(2);
    assert_eq!(consumer.publish(0, [wanted(7)]), 1);
    assert!(matches!(workers[0].claim(), Asked::Claim(_)));
    assert!(consumer.since_begun(0).is_some());
    assert_eq!(consumer.recover(0), Some(wanted(7)));
    assert_eq!(consumer.recover(0), None);
    assert!(build(&mut workers[1]));
    assert_eq!(consumer.take(0).expect("there is room").bytes(), batch(7));
}

#[test]
fn a_slot_that_is_still_in_use_stays_with_its_worker() {
    let (consumer, mut workers) = pool(1);
    let worker = &mut workers[0];
    for task in 0..20 {
        assert_eq!(consumer.publish(task, [wanted(task)]), 1);
        let Asked::Claim(claim) = worker.claim() else {
            panic!("there is a task")
        };
        let prepared = worker.prepare(8).expect("there is room");
        let write = |bytes: &mut [u8]| -> io::Result<()> {
            bytes.copy_from_slice(&task.to_le_bytes());
            Ok(())
        };
        worker.write(8, write).expect("there is room");
        worker.set_aside(8).expect("there is room");
        worker.finish(claim, 8);
        let lease = consumer.take(task).expect("there is room");
        assert_eq!(lease.bytes(), task.to_le_bytes());
        assert_ne!(lease.as_ptr(), prepared.as_ptr(), "another slot was sent");
        let ring = consumer.arena().ring();
        let owned = || (0..SHAPE.slots()).filter(|&slot| ring.slot(slot) == Slot::Owned(0));
        assert_eq!(owned().count(), 1, "it is set aside");
        worker.take_back();
        assert_eq!(owned().count(), 0, "it is free");
    }
}

#[test]
fn what_a_dead_worker_had_set_aside_is_free() {
    let (consumer, mut workers) = pool(1);
    assert_eq!(consumer.publish(0, [wanted(0)]), 1);
    assert!(matches!(workers[0].claim(), Asked::Claim(_)));
    let nothing = |_: &mut [u8]| -> io::Result<()> { Ok(()) };
    workers[0].write(1, nothing).expect("there is room");
    workers[0].set_aside(1).expect("there is room");
    assert_eq!(consumer.recover(0), Some(wanted(0)));
    let ring = consumer.arena().ring();
    assert!((0..SHAPE.slots()).all(|slot| ring.slot(slot) == Slot::Free));
}
