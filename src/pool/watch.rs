//! Detects which workers have ended: one thread that sleeps until the kernel reports it.
//!
//! It wakes the consumer by the bell on which the consumer sleeps. It needs nothing from Python, so
//! it works while the consumer computes; it receives no signals.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::arena::Arena;

/// Marks the end of the watch, in place of the number of a worker.
const CLOSE: u64 = u64::MAX;

/// Watches the workers of one pool.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    close: OwnedFd,
    thread: Option<JoinHandle<()>>,
    /// A forked child has a copy of this, but no thread.
    process: u32,
}

#[derive(Debug)]
struct Shared {
    arena: Arc<Arena>,
    epoll: OwnedFd,
    workers: Mutex<Workers>,
    has_news: AtomicBool,
}

#[derive(Debug, Default)]
struct Workers {
    watched: HashMap<u32, OwnedFd>,
    ended: Vec<u32>,
}

impl Watch {
    /// Starts the watch, without any workers yet.
    ///
    /// # Errors
    ///
    /// There is no file descriptor or thread left for it.
    pub fn start(arena: Arc<Arena>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let close = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &close,
            epoll::EventData::new_u64(CLOSE),
            epoll::EventFlags::IN,
        )?;
        let shared = Arc::new(Shared {
            arena,
            epoll,
            workers: Mutex::default(),
            has_news: AtomicBool::new(false),
        });
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let seen = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("pedl-workers".to_owned())
            .spawn(move || seen.watch());
        mask.thread_set_mask()?;
        Ok(Self {
            shared,
            close,
            thread: Some(thread?),
            process: process::id(),
        })
    }

    /// Watches a worker from now on.
    ///
    /// Args:
    ///     `worker`: its number.
    ///     `process`: its process, for which nobody has waited yet.
    ///     `fallback`: returns a file descriptor that becomes readable when it ends, if the kernel
    ///         has no file descriptors of processes.
    ///
    /// # Errors
    ///
    /// There is no file descriptor left for it.
    pub fn add(
        &self,
        worker: u32,
        process: Pid,
        fallback: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> io::Result<()> {
        let end = match pidfd_open(process, PidfdFlags::empty()) {
            // Linux before 5.3, and containers that refuse unknown system calls.
            Err(Errno::NOSYS | Errno::PERM) => fallback()?,
            opened => opened?,
        };
        let mut workers = self.shared.workers();
        epoll::add(
            &self.shared.epoll,
            &end,
            epoll::EventData::new_u64(worker.into()),
            epoll::EventFlags::IN,
        )?;
        workers.watched.insert(worker, end);
        Ok(())
    }

    /// Whether [`Watch::ended`] has something to return. Costs nothing.
    pub fn has_news(&self) -> bool {
        self.shared.has_news.load(Ordering::SeqCst)
    }

    /// The workers that have ended since the last call.
    pub fn ended(&self) -> Vec<u32> {
        if !self.shared.has_news.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        mem::take(&mut self.shared.workers().ended)
    }
}

impl Shared {
    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut events = Vec::with_capacity(16);
        loop {
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, buffer, None) {
                Ok(_) | Err(Errno::INTR) => {}
                // The descriptor was valid when it was made, so no other error is possible.
                Err(_) => return,
            }
            for event in events.drain(..) {
                let Ok(worker) = u32::try_from(event.data.u64()) else {
                    return;
                };
                self.end(worker);
            }
        }
    }

    fn end(&self, worker: u32) {
        let mut workers = self.workers();
        if let Some(end) = workers.watched.remove(&worker) {
            // A forked child may have it open, so closing it would not be enough.
            let _ = epoll::delete(&self.epoll, &end);
            workers.ended.push(worker);
        }
        drop(workers);
        self.has_news.store(true, Ordering::SeqCst);
        self.arena.ring().ring_bell();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.process != process::id() {
            return;
        }
        let _ = rustix::io::write(&self.close, &[1; 8]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
