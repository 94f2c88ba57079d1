#![expect(
    unsafe_code,
    reason = "memory that processes share is reached by pointers"
)]
//! The memory of a pool: a sparse file in memory that all its processes map.
//!
//! ```text
//! 0                 control: the words of the ring, the wanted item and its start at each place,
//!                   sizes of slots
//! (slot + 1) << 40  the batch in a slot, up to 1 TiB; pages exist once a worker has reserved them
//! ```
//!
//! It is no file of `/dev/shm`, so the limit of `/dev/shm` does not apply; it has no name, so
//! nothing is left behind when the last of its processes ends, however it ends. A slot keeps its
//! pages: it is as large as the largest batch that was in it.
//!
//! **Invariants of the unsafe code.** Every process uses the words only as atomics. The worker that
//! owns a slot writes its bytes, and the consumer that leased it reads them; the ring keeps both
//! apart ([`crate::ring`]). The user of the pointer of [`Bytes`] guarantees to be that one.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::time::{ClockId, clock_gettime};

use crate::ring::{Ring, Shape};
use crate::room;

/// Bytes between the beginnings of two slots in the file: the largest possible batch.
pub const SLOT_BYTES: u64 = 1 << 40;

/// Memory is reserved and mapped in multiples of this size.
const GRAIN: usize = 1 << 16;

/// The item to build at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Number of the pass over the data.
    pub epoch: i64,
    /// Index of the item.
    pub index: u64,
    /// Number of the state of the data set in which the item must be built.
    pub state: u64,
}

/// Words of 64 bits for each place: the fields of [`Wanted`], and the time of the claim.
const PLACE_WORDS: usize = 4;
const CLAIMED: usize = 3;

/// The shared memory of one pool, as mapped in one process. A forked child may continue to use its
/// copy.
#[derive(Debug)]
pub struct Arena {
    file: Arc<File>,
    shape: Shape,
    control: MmapRaw,
}

impl Arena {
    /// Makes the memory of a new pool.
    ///
    /// # Errors
    ///
    /// The system has no memory or file descriptor left, or limits file sizes (`ulimit -f`).
    pub fn create(shape: Shape) -> io::Result<Self> {
        let file = File::from(rustix::fs::memfd_create("pedl-pool", MemfdFlags::CLOEXEC)?);
        // This reserves no memory.
        file.set_len((u64::from(shape.slots()) + 1) * SLOT_BYTES)?;
        Self::open(Arc::new(file), shape)
    }

    /// Opens the memory that another process has made.
    ///
    /// # Errors
    ///
    /// It cannot be mapped.
    pub fn open(file: Arc<File>, shape: Shape) -> io::Result<Self> {
        let control = MmapOptions::new()
            .len(control_bytes(shape))
            .map_raw(&*file)?;
        Ok(Self {
            file,
            shape,
            control,
        })
    }

    /// The file, for a process that will [`open`](Arena::open) it.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The number of places and slots.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The states of places and slots.
    pub fn ring(&self) -> Ring<'_, AtomicU32> {
        Ring::new(self.words(0, self.shape.words()), self.shape)
    }

    /// Sets the item to build at an empty place.
    pub fn want(&self, place: u32, wanted: Wanted) {
        let values = [wanted.epoch.cast_unsigned(), wanted.index, wanted.state, 0];
        for (word, value) in self.place_words(place).iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The item to build at a place that is not empty.
    pub fn wanted(&self, place: u32) -> Wanted {
        let words = self.place_words(place);
        Wanted {
            epoch: words[0].load(Ordering::Relaxed).cast_signed(),
            index: words[1].load(Ordering::Relaxed),
            state: words[2].load(Ordering::Relaxed),
        }
    }

    /// Notes that the worker that claimed the task at a place begins to build it now.
    pub fn begin(&self, place: u32) {
        let now = now().as_millis().try_into().unwrap_or(u64::MAX);
        self.place_words(place)[CLAIMED].store(now, Ordering::Relaxed);
    }

    /// How long the task at a place has been in work; `None` if that has not begun.
    pub fn since_begun(&self, place: u32) -> Option<Duration> {
        let begun = self.place_words(place)[CLAIMED].load(Ordering::Relaxed);
        (begun > 0).then(|| now().saturating_sub(Duration::from_millis(begun)))
    }

    /// The number of bytes of the batch in a slot.
    pub(crate) fn filled(&self, slot: u32) -> &AtomicU64 {
        assert!(slot < self.shape.slots(), "there is no slot {slot}");
        self.word64(filled_at(self.shape) + slot as usize * size_of::<AtomicU64>())
    }

    fn place_words(&self, place: u32) -> [&AtomicU64; PLACE_WORDS] {
        assert!(place < self.shape.window, "there is no place {place}");
        let begin = wanted_at(self.shape) + place as usize * PLACE_WORDS * size_of::<AtomicU64>();
        std::array::from_fn(|word| self.word64(begin + word * size_of::<AtomicU64>()))
    }

    fn word64(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(size_of::<AtomicU64>()));
        debug_assert!(at + size_of::<AtomicU64>() <= control_bytes(self.shape));
        // SAFETY: the word lies within the mapping, which lives as long as `self`, and is aligned,
        // since a mapping begins with a page. All processes use these words only as atomics; zeros,
        // the initial content of the file, are valid.
        unsafe { AtomicU64::from_ptr(self.control.as_mut_ptr().wrapping_add(at).cast()) }
    }

    /// The number of grains of a slot that are reserved.
    fn reserved(&self, slot: u32) -> &AtomicU32 {
        assert!(slot < self.shape.slots(), "there is no slot {slot}");
        let at = reserved_at(self.shape) + slot as usize * size_of::<AtomicU32>();
        &self.words(at, 1)[0]
    }

    fn words(&self, at: usize, count: usize) -> &[AtomicU32] {
        debug_assert!(at.is_multiple_of(size_of::<AtomicU32>()));
        debug_assert!(at + count * size_of::<AtomicU32>() <= control_bytes(self.shape));
        let first = self.control.as_ptr().wrapping_add(at).cast();
        // SAFETY: as in `word64`.
        unsafe { std::slice::from_raw_parts(first, count) }
    }
}

fn wanted_at(shape: Shape) -> usize {
    (shape.words() * size_of::<AtomicU32>()).next_multiple_of(64)
}

fn filled_at(shape: Shape) -> usize {
    wanted_at(shape) + shape.window as usize * PLACE_WORDS * size_of::<AtomicU64>()
}

fn reserved_at(shape: Shape) -> usize {
    filled_at(shape) + shape.slots() as usize * size_of::<AtomicU64>()
}

fn control_bytes(shape: Shape) -> usize {
    reserved_at(shape) + shape.slots() as usize * size_of::<AtomicU32>()
}

/// The time since this machine started: the same in all processes.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = now.tv_sec.try_into().unwrap_or_default();
    Duration::new(seconds, now.tv_nsec.try_into().unwrap_or_default())
}

/// The slots of a pool. Each is mapped as far as this process has needed it.
#[derive(Debug)]
pub(crate) struct Slots {
    arena: Arc<Arena>,
    mapped: Vec<Option<Arc<MmapRaw>>>,
}

/// The first bytes of a slot: they stay mapped as long as this lives, even if the pool has mapped
/// more since.
#[derive(Clone, Debug)]
pub struct Bytes {
    mapped: Arc<MmapRaw>,
    length: usize,
}

impl Bytes {
    /// The beginning of the bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapped.as_mut_ptr()
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Slots {
    /// The slots of an arena; nothing is mapped yet.
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        let mapped = vec![None; arena.shape.slots() as usize];
        Self { arena, mapped }
    }

    /// Reserves memory for this many bytes of a slot that this process owns, unless it is reserved
    /// already.
    ///
    /// # Errors
    ///
    /// There is not enough memory, on the machine or in a control group (`room`).
    pub(crate) fn reserve(&self, slot: u32, length: usize) -> io::Result<()> {
        let reserved = self.arena.reserved(slot);
        let grains = length.div_ceil(GRAIN);
        let before = reserved.load(Ordering::Relaxed) as usize;
        if grains <= before {
            return Ok(());
        }
        let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        if length as u64 > SLOT_BYTES {
            return Err(out_of_memory());
        }
        // Reserves more than needed, if there is memory, so that a slot that grows slowly does not
        // reserve each time.
        let more = grains.max(before + before / 4);
        let available = room::available_bytes().unwrap_or(u64::MAX);
        let has_room = |grains: usize| (grains - before) as u64 * GRAIN as u64 <= available;
        let grains = if has_room(more) { more } else { grains };
        if !has_room(grains) {
            return Err(out_of_memory());
        }
        let words = u32::try_from(grains).map_err(|_| out_of_memory())?;
        let (from, to) = (before as u64 * GRAIN as u64, grains as u64 * GRAIN as u64);
        loop {
            let place = offset_of(slot) + from;
            match rustix::fs::fallocate(
                &*self.arena.file,
                FallocateFlags::empty(),
                place,
                to - from,
            ) {
                Ok(()) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        reserved.store(words, Ordering::Relaxed);
        Ok(())
    }

    /// Maps the first bytes of a slot. They are reserved now, or were when they were written.
    ///
    /// # Errors
    ///
    /// The address space of this process has no room for them (`ulimit -v`).
    pub(crate) fn bytes(&mut self, slot: u32, length: usize) -> io::Result<Bytes> {
        let place = &mut self.mapped[slot as usize];
        let mapped = match place {
            Some(mapped) if mapped.len() >= length => Arc::clone(mapped),
            _ => {
                let before = place.as_ref().map_or(0, |mapped| mapped.len());
                let size = length.max(1).next_multiple_of(GRAIN);
                let size = size.max((before + before / 4).next_multiple_of(GRAIN));
                *place = None;
                let mapped = MmapOptions::new()
                    .offset(offset_of(slot))
                    .len(size)
                    .map_raw(&*self.arena.file)?;
                Arc::clone(place.insert(Arc::new(mapped)))
            }
        };
        Ok(Bytes { mapped, length })
    }
}

fn offset_of(slot: u32) -> u64 {
    (u64::from(slot) + 1) * SLOT_BYTES
}

#[cfg(test)]
mod tests;
