#![expect(unsafe_code, reason = "numpy takes the memory of arrays from here")]
//! Arrays that are built in shared memory: numpy's large arrays have their memory in a slot.
//!
//! The previous item decides which ones. Its first 64 allocations of 16 KiB or more are numbered.
//! Those of which it delivered at least half, as one array without gaps, are expected to be
//! delivered again. Only these get memory in the slot, so that it holds only what is delivered. An
//! item that is built in another way is copied into the slot, like the first one. So is an array
//! that was resized while it was built.
//!
//! A slot is handed over once no array of this process has memory in it. If the data set keeps one
//! (a cache), the slot stays with the worker, and its contents are copied to another slot.
//!
//! Before numpy 1.22 the memory of arrays cannot be chosen; then everything is copied.
//!
//! **Invariant of the unsafe code.** What [`begin`] receives stays mapped, and only this process
//! uses it, until [`in_use`] says that no array has memory there.
//!
//! Source: NEP 49 of numpy, "Data allocation strategies".

use std::ffi::c_void;
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::prelude::*;

use crate::numpy::Numpy;
use crate::numpy_c::Allocator;

/// Arrays may begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 64;

/// Large arrays begin with a page. Writing them then takes a twentieth less time than if they begin
/// a little later, as the arrays that they are copied from mostly do, because the processor
/// compares only the low bits of two addresses.
const PAGE: usize = 4096;
const FILLS_PAGES: usize = 1 << 16;

/// The next array of this size begins at a multiple of this.
fn alignment_of(size: usize) -> usize {
    if size < FILLS_PAGES { ALIGNMENT } else { PAGE }
}

/// Smaller arrays are copied: that takes no longer than to track them.
const SMALLEST: usize = 1 << 14;

/// How many allocations of an item are numbered.
const NUMBERED: u32 = u64::BITS;

/// The allocator that numpy would use without us.
static USUAL: OnceLock<Allocator> = OnceLock::new();

/// Where the slot is, for code that only checks whether an address lies in it.
static SLOT: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

static ALLOCATIONS: Mutex<Allocations> = Mutex::new(Allocations {
    is_open: false,
    process: 0,
    has_slot: false,
    base: 0,
    end: 0,
    next: 0,
    number: 0,
    wanted: 0,
    blocks: Vec::new(),
});

/// Memory of one array, by address.
#[derive(Clone, Copy)]
struct Block {
    address: usize,
    size: usize,
    number: u32,
    is_in_slot: bool,
    is_delivered: bool,
}

/// The large allocations of the item that is being built.
struct Allocations {
    /// Whether an item is being built.
    is_open: bool,
    /// Which process builds: a forked child has a copy of this, and the same slot.
    process: u32,
    /// Whether the slot is for this item.
    has_slot: bool,
    /// The slot, or one of a previous item that is still in use.
    base: usize,
    end: usize,
    /// Where the next array goes.
    next: usize,
    /// The number of the next large allocation.
    number: u32,
    /// Bits of the allocations that go into the slot.
    wanted: u64,
    /// The large ones of this item, and those that an earlier one has left in the slot.
    blocks: Vec<Block>,
}

/// The large allocations of an item that was built, and which of them it delivers.
#[derive(Default)]
pub(crate) struct Region {
    base: usize,
    end: usize,
    blocks: Vec<Block>,
}

impl Region {
    /// Where the free part of the slot begins; 0 if nothing was built in one.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Notes that these bytes are delivered. Returns where in the slot they are, if they may stay
    /// there.
    pub(crate) fn place_of(&mut self, address: usize, size: usize) -> Option<usize> {
        let block = self.blocks.iter_mut().find(|block| {
            block.address <= address && address + size <= block.address + block.size
        })?;
        // A small part is not worth all of it. Two arrays of one block would share their memory,
        // and the address of an array must not depend on how it was sent.
        let is_aligned = (address - block.address).is_multiple_of(ALIGNMENT);
        if block.is_delivered || size < block.size / 2 || !is_aligned {
            return None;
        }
        block.is_delivered = true;
        block.is_in_slot.then(|| address - self.base)
    }

    /// Expects the next item to deliver what this one does. Returns how many bytes of a slot that
    /// takes.
    pub(crate) fn learn(&self) -> usize {
        let mut allocations = lock();
        allocations.wanted = 0;
        let mut needed = 0;
        for block in self.blocks.iter().filter(|block| block.is_delivered) {
            allocations.wanted |= 1 << block.number;
            // Wherever the previous one ends.
            needed += block.size.next_multiple_of(ALIGNMENT) + alignment_of(block.size) - ALIGNMENT;
        }
        needed
    }
}

/// Makes arrays of this thread request memory here from now on, in this process; returns whether
/// they do.
pub(crate) fn install(py: Python<'_>) -> PyResult<bool> {
    let numpy = Numpy::get(py)?;
    let Some(usual) = numpy.c.allocator(py)? else {
        return Ok(false);
    };
    if USUAL.set(usual).is_ok() {
        let ours = Allocator {
            context: ptr::null_mut(),
            malloc,
            calloc,
            realloc,
            free,
        };
        // SAFETY: they return memory of the previous allocator, or memory that nobody else has, by
        // the invariant above; what they share is behind a lock.
        unsafe { numpy.c.set_allocator(py, ours) }?;
    }
    lock().process = process::id();
    Ok(true)
}

/// An item is built from now on.
///
/// Args:
///     `slot`: address and length of memory for what is delivered, where arrays begin after `head`
///         bytes. Nothing of a previous slot is in use.
pub(crate) fn begin(slot: Option<(usize, usize)>, head: usize) {
    let mut allocations = lock();
    allocations.is_open = true;
    allocations.number = 0;
    allocations.has_slot = slot.is_some();
    if let Some((base, length)) = slot {
        debug_assert!(!allocations.is_in_use(), "a slot is taken for another");
        allocations.set_slot(base, base + length);
        allocations.next = base + head;
    } else if allocations.is_in_use() {
        allocations.blocks.retain(|block| block.is_in_slot);
        allocations.next = allocations.end;
    } else {
        allocations.set_slot(0, 0);
    }
}

/// The slot no longer exists. Nothing of it is in use.
pub(crate) fn release_slot() {
    lock().set_slot(0, 0);
}

/// The item is built: nothing is put into the slot from now on.
pub(crate) fn close() -> Region {
    let mut allocations = lock();
    allocations.is_open = false;
    let is_new = |block: &&Block| allocations.has_slot || !block.is_in_slot;
    Region {
        base: allocations.base,
        end: if allocations.has_slot {
            allocations.next - allocations.base
        } else {
            0
        },
        blocks: allocations.blocks.iter().filter(is_new).copied().collect(),
    }
}

/// What is sent next is not what was built in the slot.
pub(crate) fn abandon() {
    lock().has_slot = false;
}

/// Whether arrays have memory in the slot.
pub(crate) fn in_use() -> bool {
    lock().is_in_use()
}

impl Allocations {
    /// Sets the memory for arrays; forgets all that is known of the previous one.
    fn set_slot(&mut self, base: usize, end: usize) {
        self.blocks.clear();
        (self.base, self.end, self.next) = (base, end, end);
        SLOT[0].store(base, Ordering::Relaxed);
        SLOT[1].store(end, Ordering::Relaxed);
    }

    fn is_in_use(&self) -> bool {
        self.blocks.iter().any(|block| block.is_in_slot)
    }

    /// Memory in the slot for the next large allocation, if it belongs there and fits.
    fn place(&mut self, size: usize) -> Option<usize> {
        let number = self.number;
        self.number = (number + 1).min(NUMBERED);
        let is_wanted = number < NUMBERED && self.wanted >> number & 1 == 1;
        let address = self.next.checked_next_multiple_of(alignment_of(size))?;
        let end = address.checked_add(size.checked_next_multiple_of(ALIGNMENT)?)?;
        if !is_wanted || end > self.end || self.process != process::id() {
            return None;
        }
        self.next = end;
        self.blocks.push(Block {
            address,
            size,
            number,
            is_in_slot: true,
            is_delivered: false,
        });
        Some(address)
    }

    /// The allocation that has just been numbered is elsewhere.
    fn note(&mut self, address: usize, size: usize) {
        if let Some(number) = self.number.checked_sub(1)
            && self.number < NUMBERED
        {
            self.blocks.push(Block {
                address,
                size,
                number,
                is_in_slot: false,
                is_delivered: false,
            });
        }
    }

    /// Memory is free again. Returns its size, if it was in the slot.
    fn remove(&mut self, address: usize) -> Option<usize> {
        let place = self
            .blocks
            .iter()
            .position(|block| block.address == address)?;
        let block = self.blocks.swap_remove(place);
        block.is_in_slot.then_some(block.size)
    }
}

fn lock() -> MutexGuard<'static, Allocations> {
    ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn usual() -> &'static Allocator {
    USUAL.get().expect("it was set before ours")
}

/// What both `malloc` and `calloc` do.
///
/// Args:
///     `in_slot`: prepares memory of the slot.
///     `elsewhere`: allocates if the slot has no memory for this.
fn allocate(
    size: usize,
    in_slot: impl FnOnce(*mut c_void),
    elsewhere: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    if size < SMALLEST {
        return elsewhere();
    }
    let mut allocations = lock();
    if !allocations.is_open {
        drop(allocations);
        return elsewhere();
    }
    if let Some(address) = allocations.place(size) {
        drop(allocations);
        let address = ptr::with_exposed_provenance_mut(address);
        in_slot(address);
        return address;
    }
    let address = elsewhere();
    if !address.is_null() {
        allocations.note(address.expose_provenance(), size);
    }
    address
}

unsafe extern "C" fn malloc(_context: *mut c_void, size: usize) -> *mut c_void {
    let elsewhere = || {
        let usual = usual();
        // SAFETY: as numpy would call it.
        unsafe { (usual.malloc)(usual.context, size) }
    };
    allocate(size, |_| {}, elsewhere)
}

unsafe extern "C" fn calloc(_context: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let in_slot = |address: *mut c_void| {
        // SAFETY: `place` gave this many bytes there to nobody else.
        unsafe { ptr::write_bytes(address.cast::<u8>(), 0, count * size) };
    };
    let elsewhere = || {
        let usual = usual();
        // SAFETY: as numpy would call it.
        unsafe { (usual.calloc)(usual.context, count, size) }
    };
    allocate(count.saturating_mul(size), in_slot, elsewhere)
}

unsafe extern "C" fn realloc(
    _context: *mut c_void,
    address: *mut c_void,
    size: usize,
) -> *mut c_void {
    let usual = usual();
    if !is_in_slot(address) {
        lock().remove(address.addr());
        // SAFETY: it is memory of this allocator, since it is not in the slot.
        return unsafe { (usual.realloc)(usual.context, address, size) };
    }
    // SAFETY: as numpy would call it.
    let moved = unsafe { (usual.malloc)(usual.context, size) };
    if !moved.is_null() {
        let before = lock().remove(address.addr()).unwrap_or(0);
        let count = before.min(size);
        // SAFETY: both have this many bytes, and are different allocations.
        unsafe { ptr::copy_nonoverlapping(address.cast::<u8>(), moved.cast(), count) };
    }
    moved
}

unsafe extern "C" fn free(_context: *mut c_void, address: *mut c_void, size: usize) {
    if is_in_slot(address) {
        lock().remove(address.addr());
        return;
    }
    if size >= SMALLEST {
        lock().remove(address.addr());
    }
    let usual = usual();
    // SAFETY: it is memory of this allocator, since it is not in the slot.
    unsafe { (usual.free)(usual.context, address, size) };
}

/// Whether `place` gave this memory, which is in use.
fn is_in_slot(address: *mut c_void) -> bool {
    let [begin, end] = SLOT.each_ref().map(|word| word.load(Ordering::Relaxed));
    (begin..end).contains(&address.addr())
}
