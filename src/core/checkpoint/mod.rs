//! Checkpoints: the state of a trial at one batch, committed by one rename.
//!
//! A reader finds the old checkpoint or the new one, never a mix of both, and never an error
//! because a process or the machine died. Loading executes no code: tensors are [safetensors], the
//! rest is JSON.
//!
//! [safetensors]: https://github.com/huggingface/safetensors
//!
//! # Layout
//!
//! ```text
//! <trial directory>/
//! ├── latest -> checkpoints/batch-0000000200     for people and tools; pedl never reads it
//! └── checkpoints/
//!     ├── batch-0000000100/                      committed: named and complete are the same thing
//!     ├── batch-0000000200/
//!     │   ├── manifest.json                      its contents; hashes of the rest and of itself
//!     │   └── state.json                         everything but tensors, opaque here
//!     ├── tensors/
//!     │   └── <blake3>.safetensors               packs of variables of model and optimizer
//!     ├── files/
//!     │   └── <blake3>                           files of the script, by content, each stored once
//!     ├── .staging-<pid>-<n>/                    being written, or being removed
//!     ├── .replaced-batch-0000000200/            was committed, and another of that batch follows
//!     └── damaged-batch-0000000300/              set aside by [`Store::set_aside`]
//! ```
//!
//! A committed folder or pack is never written to again. `files/` holds copies, never hard links:
//! the owners of those files (loggers, savers of models) overwrite them in place.
//!
//! A tensor that did not change since an earlier checkpoint is not written again: the manifest
//! names the pack that has it (the module `packs`). So one damaged pack can damage several
//! checkpoints, which separate copies would have avoided; that is the price of storing a tensor
//! once.
//!
//! # Commit, step by step
//!
//! Before that, the caller has made the log of calls durable up to `log_offset`.
//!
//! 1. **Capture.** Files of the script are copied to the staging folder, unless `files/` holds
//!    their content and it matches its hash. *If we die here*: a stale staging folder, removed by
//!    the next commit.
//! 2. **Tensors.** All are hashed; those that no checkpoint holds are written to a pack in the
//!    staging folder, which is synced. If none changed, there is no pack. *If we die here*: as in
//!    step 1.
//! 3. **Own files.** State and, last, the manifest are written to the staging folder, each hashed
//!    while it is written, and synced. *If we die here*: as in 1. All writes that need space are
//!    now done; a disk that fills up before this point leaves nothing behind.
//! 4. **Names.** Each copy is synced and renamed to `files/<blake3>`, and `files/` synced; the pack
//!    is renamed to `tensors/<blake3>.safetensors`, and `tensors/` synced; then the staging folder
//!    is. So each name in these folders is that of a complete file, whoever put it there. *If we
//!    die here*: contents and packs that no manifest names, removed by the next commit. An existing
//!    one is replaced by equal bytes.
//! 5. **Make way**, only if this batch has a checkpoint already (a `fit` without a new batch): it
//!    is renamed to `.replaced-…`. *If we die here*: a reader uses `.replaced-…` like the original;
//!    `latest` leads nowhere until the next commit.
//! 6. **Commit.** The staging folder is renamed to `batch-…`, and `checkpoints/` synced. *If we
//!    die* before the rename is durable: the old checkpoint is the newest one; after it: the new
//!    one is.
//! 7. **`latest`** is made under another name, renamed over the old link, and the trial directory
//!    synced. *If we die here*: the link names the older checkpoint, which retention has not
//!    touched. If the trial was copied without links (`cp -rL`, zip, an object store), a folder is
//!    in its place. It exchanges names with the link atomically; if the file system cannot do that,
//!    it is renamed before. Then it is removed if it is a copy of an existing checkpoint, and kept
//!    as `latest.1` if not. *If we die here*: it has one of these names, or `latest` is missing,
//!    until the next commit. On a file system without links, `latest` is a file that contains the
//!    path. A failure here is a warning: the checkpoint is committed.
//! 8. **Retention.** Folders that are not kept are renamed to staging names, `checkpoints/` is
//!    synced, and only then are they emptied, and contents and packs that no kept manifest names
//!    removed. *If we die here*: a half-empty folder has a staging name, and no reader looks at it.
//!
//! # Reading
//!
//! The newest checkpoint of which a hash verifies every byte is used: the manifest by the hash in
//! it, the rest by the hashes in the manifest. A checkpoint that fails is reported, and the next
//! older one is tried. A manifest of another schema is not damage; it is an error, so that no
//! program throws away work that it cannot read.
//!
//! # Assumptions about the file system
//!
//! - `rename` within a directory is atomic: one of the two names exists at any moment.
//! - What was synced stays. What was not may be lost or kept, in any combination of files; of the
//!   names in one directory, a later change is not kept without the earlier ones.
//! - One process at a time writes (it holds the lock of the trial), through one [`Store`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::file::seen_from;
use crate::retention::Retention;

mod content;
mod failure;
mod fs;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod inspect;
mod layout;
mod manifest;
mod packs;
mod reader;
mod retention;
mod tensors;
mod writer;

#[cfg(test)]
mod crash_fs;
#[cfg(test)]
mod tests;

pub use fs::{FileSystem, ReadFile, RealFileSystem, Stat, WriteFile};
pub use inspect::{Depth, Found};
pub(crate) use layout::{CHECKPOINTS, LATEST, LATEST_NEW};
pub use manifest::{KeptFile, Manifest, OwnFile, PackFile, StoredTensor};
pub use reader::{Checkpoint, Newest};
pub use writer::{Captured, Committed};

use layout::{Layout, Name};

/// An array by name, as it is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Any text; unique within a checkpoint.
    pub name: String,
    /// NumPy's name of the type: `float32`, `bfloat16`, `int64`, `bool`, …
    pub dtype: String,
    /// Sizes of the axes; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements in C order, little-endian.
    pub bytes: Vec<u8>,
}

/// The content of a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Batches trained so far.
    pub batch: u64,
    /// Steps completed so far.
    pub step: u64,
    /// The epoch of the last batch, from 0; none in a training loop of the script.
    pub epoch: Option<u64>,
    /// Calls recorded so far.
    pub calls: u64,
    /// Size in bytes of the log with those calls. That part of it is durable already.
    pub log_offset: u64,
    /// JSON text, not interpreted here.
    pub state: String,
    /// Variables of model and optimizer. Their order is kept.
    pub tensors: Vec<Tensor>,
    /// Absolute paths of files of the script to copy by content.
    pub files: Vec<PathBuf>,
    /// The metrics of the validations so far, by the batch after which they ran.
    pub validations: BTreeMap<u64, f64>,
    /// Which checkpoints are kept besides the newest two.
    pub retention: Option<Retention>,
}

/// The checkpoints of one trial.
///
/// Cheap to clone; clones count as the one [`Store`] that may write.
#[derive(Debug)]
pub struct Store<F: FileSystem = RealFileSystem> {
    shared: Arc<Shared<F>>,
}

impl<F: FileSystem> Clone for Store<F> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

#[derive(Debug)]
struct Shared<F> {
    fs: F,
    layout: Layout,
    /// Files of the script below this directory move together with a trial below it.
    around: Option<PathBuf>,
    in_use: Mutex<InUse>,
    /// Held for a whole commit: commits follow each other.
    committing: Mutex<()>,
    /// Number of staging names used so far.
    staged: AtomicU64,
}

/// What retention must keep although no manifest names it.
#[derive(Debug, Default)]
struct InUse {
    staging: BTreeSet<PathBuf>,
    /// The number of users of a content, by its hash.
    contents: BTreeMap<String, usize>,
}

/// Names below the folder of checkpoints.
impl Store<RealFileSystem> {
    pub(crate) const MANIFEST: &'static str = layout::MANIFEST;
    pub(crate) const CONTENTS: &'static str = layout::FILES;
    pub(crate) const PACKS: &'static str = layout::TENSORS;

    pub(crate) fn content_name(hash: &str) -> PathBuf {
        Path::new(layout::FILES).join(hash)
    }

    pub(crate) fn pack_name(hash: &str) -> PathBuf {
        Path::new(layout::TENSORS).join(format!("{hash}{}", layout::PACK))
    }
}

impl Store<RealFileSystem> {
    /// The checkpoints in a trial directory, which need not exist. Changes nothing.
    pub fn open(trial_dir: &Path) -> Self {
        Self::new(RealFileSystem, trial_dir)
    }

    /// Whether there is a checkpoint to resume from. Reads names only, and creates nothing.
    ///
    /// True does not promise that the checkpoint is intact.
    pub fn has_checkpoint(trial_dir: &Path) -> bool {
        Self::newest_batch(trial_dir).is_some()
    }

    /// The batch of the newest checkpoint, by its name alone, like
    /// [`has_checkpoint`](Self::has_checkpoint).
    pub fn newest_batch(trial_dir: &Path) -> Option<u64> {
        let found = Self::open(trial_dir).checkpoints().ok()?;
        found.first().map(|(batch, _)| *batch)
    }
}

impl<F: FileSystem> Store<F> {
    /// The checkpoints in a trial directory of some file system. Changes nothing.
    pub fn new(fs: F, trial_dir: &Path) -> Self {
        Self::within(fs, trial_dir, None)
    }

    /// Like [`new`](Self::new), for a script that was started in `around`. If the trial directory
    /// is below it too, files below it are kept under names relative to the trial directory, so
    /// that both can be moved or copied together.
    pub fn within(fs: F, trial_dir: &Path, around: Option<&Path>) -> Self {
        let shared = Shared {
            fs,
            layout: Layout::new(trial_dir),
            around: around.map(Path::to_owned),
            in_use: Mutex::default(),
            committing: Mutex::default(),
            staged: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Takes a checkpoint: [`capture`](Self::capture), then [`commit`](Self::commit).
    ///
    /// Returns the folder. Blocks until everything is on the disk.
    ///
    /// # Errors
    ///
    /// Storage failed; or a tensor or file cannot be part of a checkpoint.
    pub fn save(&self, snapshot: &Snapshot) -> Result<PathBuf> {
        let captured = self.capture(&snapshot.files)?;
        Ok(self.commit(snapshot, captured)?.folder)
    }

    /// The newest intact checkpoint, and what was wrong with newer ones.
    ///
    /// Changes nothing. Before anything is appended to a log that was cut back to an older
    /// checkpoint, [`set_aside`](Self::set_aside) the damaged ones.
    ///
    /// # Errors
    ///
    /// The folder of checkpoints cannot be listed; or the newest one was written by a later
    /// version. Damage is no error: [`Newest::damaged`] lists it.
    pub fn newest(&self) -> Result<Newest<F>> {
        self.newest_where(|_| Ok(()))
    }

    /// The state of the newest checkpoint, without the rest of it. [`newest`](Self::newest) may
    /// find that another part of it is damaged, and return an older one.
    pub fn newest_state(&self) -> Option<String> {
        reader::newest_state(self)
    }

    /// Like [`newest`](Self::newest), of those that also pass a check of the caller: is what
    /// belongs to the checkpoint elsewhere (the log up to `log_offset`) intact?
    ///
    /// The check receives only checkpoints that are intact themselves, newest first, until it
    /// accepts one.
    ///
    /// # Errors
    ///
    /// As of `newest`. An error of `check` counts as damage if
    /// [`is_corrupt`](crate::Error::is_corrupt), and is returned otherwise.
    pub fn newest_where(&self, check: impl FnMut(&Manifest) -> Result<()>) -> Result<Newest<F>> {
        reader::newest(self, check)
    }

    /// The checkpoint of a batch, with every byte verified.
    ///
    /// # Errors
    ///
    /// There is none, or not any more; it is damaged, or was written by another version; storage.
    pub fn load(&self, batch: u64) -> Result<Checkpoint<F>> {
        reader::load_one(self, batch)
    }

    /// Renames the damaged checkpoints that `newest` found, and points `latest` at the one that is
    /// used.
    ///
    /// After this, a folder that becomes readable again (a cable, a server) cannot be mistaken for
    /// a checkpoint of the history that continues from the older one. The renamed folders are kept
    /// until the next commit.
    pub fn set_aside(&self, newest: &Newest<F>) -> Result<()> {
        retention::set_aside(self, newest)
    }

    /// The position of the run at each checkpoint with an intact manifest: batches and recorded
    /// calls, newest first.
    ///
    /// # Errors
    ///
    /// The folder of checkpoints cannot be listed.
    pub fn positions(&self) -> Result<Vec<(u64, u64)>> {
        let folders = self.checkpoints()?.into_iter();
        let manifests = folders.filter_map(|(_, path)| reader::manifest_in(&self.shared.fs, &path));
        Ok(manifests
            .map(|manifest| (manifest.batch, manifest.calls))
            .collect())
    }

    /// Sets aside all checkpoints that are newer than the one at this position, as
    /// [`set_aside`](Self::set_aside) does; `None`: all of them.
    ///
    /// # Errors
    ///
    /// Storage.
    pub fn go_back_to(&self, position: Option<(u64, u64)>) -> Result<()> {
        retention::go_back_to(self, position)
    }

    /// Checkpoints by name, newest first; a replaced one comes after the other one of its batch.
    fn checkpoints(&self) -> Result<Vec<(u64, PathBuf)>> {
        let Shared { fs, layout, .. } = &*self.shared;
        let mut found = Vec::new();
        for name in fs.list(&layout.checkpoints())? {
            match Name::parse(&name) {
                Name::Committed(batch) => found.push((batch, true, layout.committed(batch))),
                Name::Replaced(batch) => found.push((batch, false, layout.replaced(batch))),
                Name::Damaged | Name::Staging | Name::Other => {}
            }
        }
        found.sort_by(|left, right| right.cmp(left));
        Ok(found
            .into_iter()
            .map(|(batch, _, path)| (batch, path))
            .collect())
    }

    /// The name of a file of the script in a manifest.
    fn name_of(&self, path: &Path) -> PathBuf {
        let Shared { layout, around, .. } = &*self.shared;
        let relative = around.as_deref().and_then(|around| {
            let seen = seen_from(layout.trial_dir(), around);
            let below = path.strip_prefix(around).ok()?;
            seen.is_relative().then(|| seen.join(below))
        });
        relative.unwrap_or_else(|| path.to_owned())
    }

    /// A staging name that is not in use.
    fn unused_name(&self) -> Result<PathBuf> {
        let Shared {
            fs, layout, staged, ..
        } = &*self.shared;
        loop {
            let path = layout.staging(std::process::id(), staged.fetch_add(1, Ordering::Relaxed));
            if fs.stat(&path)?.is_none() {
                return Ok(path);
            }
        }
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.shared
            .in_use
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Protects a content from retention.
#[derive(Debug)]
struct Pin<F: FileSystem> {
    store: Store<F>,
    hash: String,
}

impl<F: FileSystem> Pin<F> {
    fn new(store: &Store<F>, hash: &str) -> Self {
        *store.in_use().contents.entry(hash.to_owned()).or_default() += 1;
        Self {
            store: store.clone(),
            hash: hash.to_owned(),
        }
    }
}

impl<F: FileSystem> Drop for Pin<F> {
    fn drop(&mut self) {
        let mut in_use = self.store.in_use();
        if let Some(count) = in_use.contents.get_mut(&self.hash) {
            *count -= 1;
            if *count == 0 {
                in_use.contents.remove(&self.hash);
            }
        }
    }
}
