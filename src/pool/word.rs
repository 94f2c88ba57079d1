//! A word that several processes share, and wait on.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

/// A 32-bit word in memory that several processes share.
///
/// All operations are in one order that everybody sees (`SeqCst`): who writes one word and then reads another relies on
/// it. [`Ring`](crate::Ring) is written for any such word, so that a model checker can put its own in the place of
/// [`AtomicU32`].
pub trait Word {
    /// The value.
    fn load(&self) -> u32;

    /// Sets the value.
    fn store(&self, value: u32);

    /// Adds, and returns the value before; wraps around.
    fn add(&self, value: u32) -> u32;

    /// Sets the value to `new` if it is `expected`; returns whether it was.
    fn replace(&self, expected: u32, new: u32) -> bool;

    /// Waits while the value is `expected`. May return for no reason, and does when a signal arrives.
    fn wait(&self, expected: u32, until: Option<Instant>) -> Woken;

    /// Wakes up to so many of those who wait.
    fn wake(&self, count: u32);
}

/// Why a [`Word::wait`] is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The value may be another one now.
    Perhaps,
    /// A signal arrived.
    BySignal,
    /// It is as late as was said.
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
        // Not private to this process.
        match futex::wait(self, futex::Flags::empty(), expected, left.as_ref()) {
            Ok(()) => Woken::Perhaps,
            Err(error) => match io::Error::from(error).kind() {
                io::ErrorKind::Interrupted => Woken::BySignal,
                io::ErrorKind::TimedOut => Woken::TooLate,
                // It had another value already.
                _ => Woken::Perhaps,
            },
        }
    }

    fn wake(&self, count: u32) {
        // The kernel takes a signed number, and wakes one for a negative. It only fails for an address that is none.
        let _ = futex::wake(
            self,
            futex::Flags::empty(),
            count.min(i32::MAX.cast_unsigned()),
        );
    }
}
