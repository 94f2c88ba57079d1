//! A word that several processes share and can wait on.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

/// A 32-bit word in memory that several processes share.
///
/// All operations are in one order that all processes see (`SeqCst`): a process that writes one
/// word and then reads another relies on it. [`Ring`](crate::Ring) works with any such word, so
/// that a model checker can use its words in place of [`AtomicU32`].
pub trait Word {
    /// The value.
    fn load(&self) -> u32;

    /// Sets the value.
    fn store(&self, value: u32);

    /// Adds, and returns the previous value; wraps around.
    fn add(&self, value: u32) -> u32;

    /// Sets the value to `new` if it is `expected`; returns whether it was.
    fn replace(&self, expected: u32, new: u32) -> bool;

    /// Waits while the value is `expected`. May return without a reason, and returns when a signal
    /// arrives.
    fn wait(&self, expected: u32, until: Option<Instant>) -> Woken;

    /// Wakes at most this many of the waiting processes.
    fn wake(&self, count: u32);
}

/// Why a [`Word::wait`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The value may have changed.
    Perhaps,
    /// A signal arrived.
    BySignal,
    /// The time `until` has come.
    TooLate,
}

impl Word for AtomicU32 {
    fn load(&self) -> u32 {
        AtomicU32::load(self, Ordering::SeqCst)
    }

    fn store(&self, value: u32) {
        AtomicU32::store(self, value, Ordering::SeqCst);
    }

    fn add(&self, value: u32) -> u32 {
        self.fetch_add(value, Ordering::SeqCst)
    }

    fn replace(&self, expected: u32, new: u32) -> bool {
        self.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    fn wait(&self, expected: u32, until: Option<Instant>) -> Woken {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Woken::TooLate;
        }
        let left = left.and_then(|left| left.try_into().ok());
        // The futex is shared with other processes.
        match futex::wait(self, futex::Flags::empty(), expected, left.as_ref()) {
            Ok(()) => Woken::Perhaps,
            Err(error) => match io::Error::from(error).kind() {
                io::ErrorKind::Interrupted => Woken::BySignal,
                io::ErrorKind::TimedOut => Woken::TooLate,
                // It already had another value.
                _ => Woken::Perhaps,
            },
        }
    }

    fn wake(&self, count: u32) {
        // The kernel takes a signed number, and wakes one for a negative number. It fails only for
        // an invalid address.
        let _ = futex::wake(
            self,
            futex::Flags::empty(),
            count.min(i32::MAX.cast_unsigned()),
        );
    }
}
