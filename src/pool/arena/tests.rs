#![expect(unsafe_code, reason = "slots are reached by pointers")]

use std::sync::Arc;

use super::{Arena, GRAIN, SLOT_BYTES, Slots, Wanted};
use crate::ring::{Claimed, Shape};

const SHAPE: Shape = Shape {
    window: 4,
    leases: 2,
    workers: 0,
};

/// The memory in another process: the same file, mapped elsewhere.
fn seen_by_another(arena: &Arena) -> Arena {
    Arena::open(Arc::clone(arena.file()), arena.shape()).expect("there is room")
}

fn write(slots: &mut Slots, slot: u32, content: &[u8]) {
    slots.reserve(slot, content.len()).expect("there is room");
    let bytes = slots.bytes(slot, content.len()).expect("there is room");
    // SAFETY: the bytes are mapped, and no other thread of this test uses this slot.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), bytes.as_ptr(), content.len()) };
}

fn read(slots: &mut Slots, slot: u32, length: usize) -> Vec<u8> {
    let bytes = slots.bytes(slot, length).expect("there is room");
    // SAFETY: see `write`.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }.to_vec()
}

#[test]
fn what_one_process_writes_the_other_reads() {
    let arena = Arc::new(Arena::create(SHAPE).expect("there is room"));
    let other = Arc::new(seen_by_another(&arena));
    let wanted = Wanted {
        epoch: -2,
        index: u64::MAX,
        state: 3,
    };
    arena.want(3, wanted);
    arena.ring().publish(3);
    arena.ring().announce(1);
    assert_eq!(other.ring().claim(7), Claimed::Place(3));
    assert_eq!(other.wanted(3), wanted);
    assert_eq!(other.wanted(2), Wanted::default());
    assert_eq!(arena.since_begun(3), None);
    other.begin(3);
    assert!(arena.since_begun(3).is_some());
    arena.want(3, wanted);
    assert_eq!(arena.since_begun(3), None);
    let (mut slots, mut others) = (
        Slots::new(Arc::clone(&arena)),
        Slots::new(Arc::clone(&other)),
    );
    for (slot, length) in [(0, 1), (5, GRAIN), (5, 3 * GRAIN + 1), (5, 10)] {
        let content: Vec<u8> = (0..=250).cycle().take(length).collect();
        write(&mut others, slot, &content);
        assert_eq!(read(&mut slots, slot, length), content);
    }
}

#[test]
fn bytes_stay_as_they_are_when_the_slot_has_grown() {
    let arena = Arc::new(Arena::create(SHAPE).expect("there is room"));
    let mut slots = Slots::new(arena);
    write(&mut slots, 1, b"before");
    let before = slots.bytes(1, 6).expect("there is room");
    write(&mut slots, 1, &vec![1; 20 * GRAIN]);
    // SAFETY: `before` keeps its mapping, and nobody writes to it now.
    let seen = unsafe { std::slice::from_raw_parts(before.as_ptr(), before.len()) };
    assert_eq!((seen, before.is_empty()), ([1; 6].as_slice(), false));
}

#[test]
fn a_batch_that_no_slot_can_hold_is_an_error() {
    let arena = Arc::new(Arena::create(SHAPE).expect("there is room"));
    let slots = Slots::new(arena);
    let too_large = usize::try_from(SLOT_BYTES).expect("64 bits") + 1;
    for length in [too_large, usize::MAX] {
        let error = slots.reserve(0, length).expect_err("it is too large");
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    }
}
