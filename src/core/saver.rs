//! Writes checkpoints in the background, one at a time.
//!
//! The training loop waits while the state and the files of the script are copied; a thread that
//! lives as long as the commit does the rest. So a script that forks between checkpoints has no
//! more threads than under plain Python.
//!
//! **Memory.** There is one snapshot at any moment: the one that is being copied or written. To
//! copy the next one, the caller waits for the previous one ([`Saver::save`]), and its memory is
//! used again. A checkpoint that is only due by time is skipped while another one is written,
//! instead of waiting for it (the caller asks [`Saver::is_saving`]). So a disk that is slower than
//! the training costs checkpoints, not memory. Files of the script are copied within the trial
//! directory, and need no memory.
//!
//! **Failures.** If storage has no room for a checkpoint, or fails to write it, there is an event
//! (`checkpoint_failed`) and a warning; the training continues, the older checkpoints stay as they
//! are, and the next due checkpoint is tried as usual. The [`FAILURES_MAX`]th failure in a row is
//! an error: by then, a resume would lose so much work that it is better to end while the last good
//! checkpoint is still worth something. A failure that cannot pass is an error at once: a snapshot
//! that cannot be stored at all; and the log of calls, because a later sync cannot repair a failed
//! one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Instant;

use nix::sys::signal::{SigSet, SigmaskHow};
use serde_json::{Map, Value, json};

use crate::checkpoint::{CHECKPOINTS, Captured, Committed, Snapshot, Store, Tensor};
use crate::error::{Bug, Class, Error, Result};
use crate::events::Journal;
use crate::file::{self, File};
use crate::workload::Workload;

/// The number of failed checkpoints in a row that ends the run. At the default of one per minute,
/// there are five minutes to make room.
const FAILURES_MAX: u32 = 5;

/// The checkpoints of a trial, and the commit that is running.
#[derive(Debug)]
pub(crate) struct Saver {
    store: Store,
    record: Arc<Record>,
    /// Memory of the last snapshot, for the next one: pages that were used once are not zeroed
    /// again.
    tensors: Vec<Tensor>,
    commit: Option<JoinHandle<Finished>>,
}

/// The outcome of checkpoints, shared by all threads.
#[derive(Debug)]
struct Record {
    journal: Arc<Mutex<Journal>>,
    /// The batch of the newest committed checkpoint; 0: none.
    committed: AtomicU64,
    /// The number of failures in a row.
    failures: AtomicU32,
}

/// The result of a commit.
#[derive(Debug)]
struct Finished {
    tensors: Vec<Tensor>,
    /// Whether the checkpoint is committed.
    outcome: Result<bool>,
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
    /// `committed` is the batch of the existing checkpoint; 0: none.
    pub(crate) fn new(store: Store, journal: Arc<Mutex<Journal>>, committed: u64) -> Self {
        Self {
            store,
            record: Arc::new(Record {
                journal,
                committed: AtomicU64::new(committed),
                failures: AtomicU32::new(0),
            }),
            tensors: Vec::new(),
            commit: None,
        }
    }

    /// The batch of the newest committed checkpoint; 0: none.
    pub(crate) fn committed(&self) -> u64 {
        self.record.committed.load(Ordering::Relaxed)
    }

    /// Like [`Saver::committed`]; `None`: none.
    pub(crate) fn newest(&self) -> Option<u64> {
        Some(self.committed()).filter(|batch| *batch > 0)
    }

    /// Tensors of an earlier snapshot, to use their memory again; none while they are being
    /// written.
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

    /// The running commit, so that the caller can wait for it; pass the result to [`Saver::end`].
    pub(crate) fn take_commit(&mut self) -> Option<Commit> {
        self.commit.take().map(Commit)
    }

    /// Takes the result of a commit: whether the checkpoint was written, or why the run must end.
    pub(crate) fn end(&mut self, ended: Ended) -> Result<bool> {
        let panicked = |_| Bug("the thread that writes a checkpoint panicked".to_owned());
        let Finished { tensors, outcome } = ended.0.map_err(panicked)?;
        self.tensors = tensors;
        outcome
    }

    pub(crate) fn wait(&mut self) -> Result<()> {
        if let Some(commit) = self.take_commit() {
            self.end(commit.wait())?;
        }
        Ok(())
    }

    /// Copies the files of a snapshot, and begins to write it. Waits for a commit that still runs.
    pub(crate) fn save(&mut self, snapshot: Snapshot, log: Arc<File>) -> Result<()> {
        self.wait()?;
        let batch = snapshot.batch;
        let captured = match self.store.capture(&snapshot.files) {
            Ok(captured) => captured,
            Err(error) => {
                let outcome = self.record.failed(batch, error);
                self.tensors = snapshot.tensors;
                return outcome;
            }
        };
        let (store, record) = (self.store.clone(), Arc::clone(&self.record));
        let work = move || Finished {
            outcome: record.commit(&store, &snapshot, captured, &log),
            tensors: snapshot.tensors,
        };
        let started = spawn(work);
        match file::check("start a thread for", &PathBuf::from(CHECKPOINTS), started) {
            Ok(commit) => self.commit = Some(commit),
            Err(error) => return self.record.failed(batch, error),
        }
        Ok(())
    }
}

impl Record {
    /// Returns whether the snapshot is committed now.
    fn commit(
        &self,
        store: &Store,
        snapshot: &Snapshot,
        captured: Captured,
        log: &File,
    ) -> Result<bool> {
        let begun = Instant::now();
        log.sync()?;
        let Committed { folder, moment } = match store.commit(snapshot, captured) {
            Ok(committed) => committed,
            Err(error) => return self.failed(snapshot.batch, error).map(|()| false),
        };
        self.committed.store(snapshot.batch, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
        let seconds = moment.duration_since(begun).as_secs_f64();
        self.tell(snapshot, &folder, seconds)?;
        Ok(true)
    }

    fn tell(&self, snapshot: &Snapshot, folder: &Path, seconds: f64) -> Result<()> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let sizes = snapshot.tensors.iter().map(|tensor| tensor.bytes.len());
        let bytes: usize = sizes.sum();
        tracing::debug!("checkpoint {name}: {bytes} bytes of tensors in {seconds:.2} s");
        let batch = snapshot.batch;
        let event = json!({
            "workload": Workload::CheckpointModel { batch }.to_string(),
            "batch": batch,
            "step": snapshot.step,
            "epoch": snapshot.epoch,
            "name": name,
            "bytes": bytes,
            "seconds": seconds,
        });
        self.journal().append("checkpoint", members(event))
    }

    /// Handles a checkpoint that was not written. Returns the error if it ends the run.
    fn failed(&self, batch: u64, error: Error) -> Result<()> {
        if error.class() != Class::StorageFailed {
            return Err(error);
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let event = json!({"batch": batch, "error": error.to_string(), "failures": failures});
        // A disk without room for a checkpoint may have none for this event, and the warning says
        // the same.
        if let Err(error) = self.journal().append("checkpoint_failed", members(event)) {
            tracing::debug!("`checkpoint_failed` is not in the journal: {error}");
        }
        let newest = match self.committed.load(Ordering::Relaxed) {
            0 => "there is none before it".to_owned(),
            newest => format!("the newest one is of batch {newest}"),
        };
        let next = if failures < FAILURES_MAX {
            format!(
                "tried again when the next one is due (failure {failures} of {FAILURES_MAX} in a row)"
            )
        } else {
            format!("{failures} failures in a row end the run")
        };
        tracing::warn!(
            "the checkpoint of batch {batch} was not written, {newest}: {error}\n  {next}"
        );
        if failures < FAILURES_MAX {
            Ok(())
        } else {
            Err(error)
        }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The members of an object.
pub(crate) fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Starts a thread that takes no signals: the signals of the process belong to the main thread of
/// the script, which may have blocked some in order to wait for them.
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
