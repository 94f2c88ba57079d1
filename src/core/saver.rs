//! Writes checkpoints in the background, one at a time.
//!
//! The loop waits while the state and the files of the script are copied; a thread that lives as long
//! as the commit does the rest. So a script that forks between checkpoints has no more threads than it
//! has under Python alone.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Instant;

use nix::sys::signal::{SigSet, SigmaskHow};
use serde_json::{Map, Value, json};

use crate::checkpoint::{CHECKPOINTS, Captured, Snapshot, Store, Tensor};
use crate::error::{Bug, Result};
use crate::events::Journal;
use crate::file::{self, File};
use crate::workload::Workload;

/// The checkpoints of a trial, as far as they are written.
#[derive(Debug)]
pub(crate) struct Saver {
    store: Store,
    journal: Arc<Mutex<Journal>>,
    /// Memory of the last snapshot, for the next one: what was touched once is not zeroed again.
    tensors: Vec<Tensor>,
    commit: Option<JoinHandle<Finished>>,
    /// The batch of the newest checkpoint that is committed; 0: none.
    committed: Arc<AtomicU64>,
}

/// What a commit leaves behind.
#[derive(Debug)]
struct Finished {
    tensors: Vec<Tensor>,
    outcome: Result<()>,
}

/// A checkpoint that is being written.
#[derive(Debug)]
pub struct Commit(JoinHandle<Finished>);

/// A checkpoint that was written, or could not be.
#[derive(Debug)]
pub struct Ended(thread::Result<Finished>);

impl Commit {
    /// Waits for the end.
    pub fn wait(self) -> Ended {
        Ended(self.0.join())
    }
}

impl Saver {
    /// `committed` is the batch of the checkpoint that is there; 0: none.
    pub(crate) fn new(store: Store, journal: Arc<Mutex<Journal>>, committed: u64) -> Self {
        Self {
            store,
            journal,
            tensors: Vec::new(),
            commit: None,
            committed: Arc::new(AtomicU64::new(committed)),
        }
    }

    /// The batch of the newest checkpoint that is committed; 0: none.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    /// Tensors of an earlier snapshot, for their memory; none while they are being written.
    pub(crate) fn used_tensors(&mut self) -> Vec<Tensor> {
        std::mem::take(&mut self.tensors)
    }

    pub(crate) fn reuse(&mut self, tensors: Vec<Tensor>) {
        self.tensors = tensors;
    }

    pub(crate) fn is_saving(&self) -> bool {
        self.commit
            .as_ref()
            .is_some_and(|commit| !commit.is_finished())
    }

    /// The running commit, to be waited for; [`Saver::end`] takes what comes of it.
    pub(crate) fn take_commit(&mut self) -> Option<Commit> {
        self.commit.take().map(Commit)
    }

    /// Takes what came of a commit, and why it failed, if it did.
    pub(crate) fn end(&mut self, ended: Ended) -> Result<()> {
        let panicked = |_| Bug("the thread that writes a checkpoint panicked".to_owned());
        let Finished { tensors, outcome } = ended.0.map_err(panicked)?;
        self.tensors = tensors;
        outcome
    }

    pub(crate) fn wait(&mut self) -> Result<()> {
        self.take_commit()
            .map_or(Ok(()), |commit| self.end(commit.wait()))
    }

    /// Copies the files of a snapshot, and begins to write it. A commit that still runs is waited for.
    pub(crate) fn save(&mut self, snapshot: Snapshot, log: Arc<File>) -> Result<()> {
        self.wait()?;
        let captured = self.store.capture(&snapshot.files)?;
        let (store, journal) = (self.store.clone(), Arc::clone(&self.journal));
        let committed = Arc::clone(&self.committed);
        let work = move || {
            let outcome = commit(&store, &journal, &snapshot, captured, &log);
            if outcome.is_ok() {
                committed.store(snapshot.batch, Ordering::Relaxed);
            }
            Finished {
                tensors: snapshot.tensors,
                outcome,
            }
        };
        let started = spawn(work);
        self.commit = Some(file::check(
            "start a thread for",
            &PathBuf::from(CHECKPOINTS),
            started,
        )?);
        Ok(())
    }
}

fn commit(
    store: &Store,
    journal: &Mutex<Journal>,
    snapshot: &Snapshot,
    captured: Captured,
    log: &File,
) -> Result<()> {
    let begun = Instant::now();
    log.sync()?;
    let folder = store.commit(snapshot, captured)?;
    let name = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let bytes: usize = snapshot
        .tensors
        .iter()
        .map(|tensor| tensor.bytes.len())
        .sum();
    let seconds = begun.elapsed().as_secs_f64();
    tracing::debug!("checkpoint {name}: {bytes} bytes of tensors in {seconds:.2} s");
    let batch = snapshot.batch;
    let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
    journal.append(
        "checkpoint",
        members(json!({
            "workload": Workload::CheckpointModel { batch }.to_string(),
            "batch": batch,
            "step": snapshot.step,
            "epoch": snapshot.epoch,
            "name": name,
            "bytes": bytes,
            "seconds": seconds,
        })),
    )
}

/// The members of an object.
pub(crate) fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Starts a thread that takes no signals: those of the process belong to the script's main thread,
/// which may have blocked some in order to wait for them.
fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = Builder::new()
        .name("pedl-checkpoint".to_owned())
        .spawn(work);
    before.thread_set_mask()?;
    thread
}
