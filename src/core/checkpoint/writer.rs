//! Steps 1 to 7 of a commit. The protocol is at the head of [`super`].

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Instant;

use blake3::Hash;

use super::content::{self, HashingWriter, MODE, Writer};
use super::failure::Failure;
use super::fs::{FileSystem, RealFileSystem, Stat, make_directories, remove_with_files};
use super::layout::{MANIFEST, STATE};
use super::manifest::{self, KeptFile, Manifest, OwnFile};
use super::packs::{self, Plan};
use super::{Pin, Shared, Snapshot, Store, reader, retention, tensors};
use crate::error::{Bug, Result};
use crate::events;

/// How often a file is copied that changes during the copy.
const COPIES_MAX: usize = 3;

/// A committed checkpoint.
#[derive(Debug)]
pub struct Committed {
    /// Its folder.
    pub folder: PathBuf,
    /// When all of it was on the disk; superfluous files were removed after that.
    pub moment: Instant,
}

/// Files as they were at one moment, to be put into a checkpoint.
///
/// If it is dropped without a commit, it removes its copies.
#[derive(Debug)]
pub struct Captured<F: FileSystem = RealFileSystem> {
    staging: Staging<F>,
    files: Vec<CapturedFile<F>>,
}

#[derive(Debug)]
struct CapturedFile<F: FileSystem> {
    kept: KeptFile,
    /// The copy; `None` if the content is stored already.
    copy: Option<PathBuf>,
    /// Retention must not remove the content before a manifest names it.
    _pin: Pin<F>,
}

/// A folder that is removed unless it is committed.
#[derive(Debug)]
struct Staging<F: FileSystem> {
    store: Store<F>,
    path: PathBuf,
    is_committed: bool,
}

impl<F: FileSystem> Staging<F> {
    fn new(store: &Store<F>) -> Result<Self> {
        let path = store.unused_name()?;
        store.in_use().staging.insert(path.clone());
        let staging = Self {
            store: store.clone(),
            path,
            is_committed: false,
        };
        store.shared.fs.make_directory(&staging.path)?;
        Ok(staging)
    }
}

impl<F: FileSystem> Drop for Staging<F> {
    fn drop(&mut self) {
        // A folder that cannot be removed now is stale, and the next commit removes it.
        if !self.is_committed
            && let Err(error) = remove_with_files(&self.store.shared.fs, &self.path)
        {
            tracing::debug!("a staging folder stays until the next checkpoint: {error}");
        }
        self.store.in_use().staging.remove(&self.path);
    }
}

impl<F: FileSystem> Store<F> {
    /// Step 1: captures files as they are now. Writes only to the cache of the system.
    ///
    /// For a caller that continues training while [`commit`](Self::commit) writes: captured files
    /// are of this moment. A path that no longer exists is left out.
    ///
    /// # Errors
    ///
    /// Storage failed; or a path is a directory, is not UTF-8, or changes with every attempt.
    pub fn capture(&self, files: &[PathBuf]) -> Result<Captured<F>> {
        let Shared { fs, layout, .. } = &*self.shared;
        make_directories(fs, &layout.files())?;
        make_directories(fs, &layout.tensors())?;
        let mut captured = Captured {
            staging: Staging::new(self)?,
            files: Vec::new(),
        };
        for path in files.iter().collect::<BTreeSet<_>>() {
            let copy = captured
                .staging
                .path
                .join(format!("content-{}", captured.files.len()));
            if let Some(file) = self.capture_file(path, copy)? {
                captured.files.push(file);
            } else {
                tracing::debug!("`{}` is gone, and not in the checkpoint", path.display());
            }
        }
        Ok(captured)
    }

    fn capture_file(&self, path: &Path, copy: PathBuf) -> Result<Option<CapturedFile<F>>> {
        let fs = &self.shared.fs;
        if path.to_str().is_none() {
            return Err(Failure::PathNotText {
                path: path.to_owned(),
            }
            .into());
        }
        for _ in 0..COPIES_MAX {
            let Some(before) = fs.stat(path)? else {
                return Ok(None);
            };
            if before.is_directory {
                return Err(Failure::NotAFile {
                    path: path.to_owned(),
                }
                .into());
            }
            let outcome = self.copy_or_find(path, before, &copy);
            if fs.stat(path)? == Some(before) {
                let (hash, is_stored, pin) = outcome?;
                let kept = KeptFile {
                    path: self.name_of(path),
                    size: before.size,
                    mode: before.mode,
                    blake3: hash.to_string(),
                };
                let copy = (!is_stored).then_some(copy);
                return Ok(Some(CapturedFile {
                    kept,
                    copy,
                    _pin: pin,
                }));
            }
            fs.remove_file(&copy)?;
        }
        Err(Failure::Changing {
            path: path.to_owned(),
        }
        .into())
    }

    /// The hash of a file, and whether `files/` has its content already. Copies it if not.
    fn copy_or_find(&self, path: &Path, stat: Stat, copy: &Path) -> Result<(Hash, bool, Pin<F>)> {
        let Shared { fs, layout, .. } = &*self.shared;
        let (_, hash) = content::hash(fs, path)?;
        let pin = Pin::new(self, &hash.to_string());
        let stored = layout.content(&hash.to_string());
        if fs
            .stat(&stored)?
            .is_some_and(|stored| stored.size == stat.size)
            && content::hash(fs, &stored)?.1 == hash
        {
            return Ok((hash, true, pin));
        }
        // The copy is no more public than its original, and we may replace it.
        let (_, hash) = content::copy(fs, path, copy, stat.mode & MODE | 0o600)?;
        Ok((hash, false, Pin::new(self, &hash.to_string())))
    }

    /// Steps 2 to 8: makes a checkpoint of a snapshot and of files captured before.
    ///
    /// Ignores the `files` of the snapshot. Commits of one store run one after another.
    ///
    /// # Errors
    ///
    /// Storage failed; or a tensor has a type that cannot be stored.
    pub fn commit(&self, snapshot: &Snapshot, captured: Captured<F>) -> Result<Committed> {
        let committing = &self.shared.committing;
        let _one_at_a_time = committing.lock().unwrap_or_else(PoisonError::into_inner);
        let Captured { mut staging, files } = captured;
        tensors::check(&snapshot.tensors)?;

        let kept = files.iter().map(|file| file.kept.clone()).collect();
        let plan = self.write_packs(snapshot, &staging.path)?;
        self.write_own_files(snapshot, &plan, kept, &staging.path)?;
        self.name_contents(&files, &plan, &staging.path)?;
        self.shared.fs.sync_directory(&staging.path)?;
        let folder = self.publish(snapshot.batch, &mut staging)?;
        let moment = Instant::now();

        self.point_latest_at(&folder);

        // The checkpoint is committed, even if the old ones cannot be removed.
        if let Err(error) = retention::remove_old(self, snapshot) {
            tracing::warn!("old checkpoints stay until the next one: {error}");
        }
        Ok(Committed { folder, moment })
    }

    /// Step 4. A file that has its name in `files/` or `tensors/` is not removed with the staging
    /// folder, so this comes after all writes that need space.
    fn name_contents(
        &self,
        files: &[CapturedFile<F>],
        plan: &Plan<'_>,
        folder: &Path,
    ) -> Result<()> {
        let Shared { fs, layout, .. } = &*self.shared;
        for CapturedFile { copy, .. } in files {
            if let Some(copy) = copy {
                fs.sync_file(copy)?;
            }
        }
        for CapturedFile { kept, copy, .. } in files {
            if let Some(copy) = copy {
                fs.rename(copy, &layout.content(&kept.blake3))?;
            }
        }
        // Also for existing ones: the process that put them there may have died before this.
        if !files.is_empty() {
            fs.sync_directory(&layout.files())?;
        }
        for (number, pack) in plan.new.iter().enumerate() {
            let staged = folder.join(pack_name(number));
            fs.rename(&staged, &layout.pack(&pack.file().blake3))?;
        }
        if !plan.new.is_empty() {
            fs.sync_directory(&layout.tensors())?;
        }
        Ok(())
    }

    /// Step 2.
    fn write_packs<'snapshot>(
        &self,
        snapshot: &'snapshot Snapshot,
        folder: &Path,
    ) -> Result<Plan<'snapshot>> {
        let Shared { fs, layout, .. } = &*self.shared;
        let hashed = tensors::hash(&snapshot.tensors)?;
        let mut earlier = Vec::new();
        for (_, folder) in self.checkpoints()? {
            earlier.extend(reader::manifest_in(fs, &folder));
        }
        let earlier: Vec<_> = earlier.iter().collect();
        let plan = packs::plan(&hashed, &earlier, |pack| {
            let stat = fs.stat(&layout.pack(&pack.blake3))?;
            Ok(stat.is_some_and(|stat| stat.size == pack.size))
        })?;
        for (number, pack) in plan.new.iter().enumerate() {
            let mut writer = Writer::create_durable(fs, &folder.join(pack_name(number)), MODE)?;
            pack.write(&mut writer)?;
            writer.finish_durably()?;
        }
        Ok(plan)
    }

    /// Step 3.
    fn write_own_files(
        &self,
        snapshot: &Snapshot,
        plan: &Plan<'_>,
        kept: Vec<KeptFile>,
        folder: &Path,
    ) -> Result<()> {
        let fs = &self.shared.fs;
        let write = |name: &str, fill: &dyn Fn(&mut HashingWriter) -> Result<()>| {
            let mut writer = HashingWriter::create(fs, &folder.join(name), MODE)?;
            fill(&mut writer)?;
            let (size, hash) = writer.finish_durably()?;
            Ok::<_, crate::Error>(OwnFile {
                path: name.to_owned(),
                size,
                blake3: hash.to_string(),
            })
        };
        let files = vec![write(STATE, &|writer| {
            writer.write(snapshot.state.as_bytes())
        })?];
        let mut random = [0; 16];
        fs.random(&mut random)?;
        let manifest = Manifest {
            schema: manifest::SCHEMA,
            uuid: manifest::uuid_of(random),
            batch: snapshot.batch,
            step: snapshot.step,
            epoch: snapshot.epoch,
            calls: snapshot.calls,
            log_offset: snapshot.log_offset,
            created: events::now(),
            pedl_version: env!("CARGO_PKG_VERSION").to_owned(),
            written: plan.new.iter().map(|pack| pack.file().tensors_size).sum(),
            packs: plan.packs.clone(),
            tensors: plan.tensors.clone(),
            files,
            kept,
        };
        let text = manifest.to_text();
        let text = text.map_err(|error| Bug(format!("a manifest cannot be JSON: {error}")))?;
        write(MANIFEST, &|writer| writer.write(text.as_bytes()))?;
        Ok(())
    }

    /// Steps 5 and 6.
    fn publish(&self, batch: u64, staging: &mut Staging<F>) -> Result<PathBuf> {
        let Shared { fs, layout, .. } = &*self.shared;
        let (folder, replaced) = (layout.committed(batch), layout.replaced(batch));
        if fs.stat(&folder)?.is_some() {
            if fs.stat(&replaced)?.is_some() {
                retention::discard(self, std::slice::from_ref(&replaced))?;
            }
            fs.rename(&folder, &replaced)?;
        }
        fs.rename(&staging.path, &folder)?;
        staging.is_committed = true;
        fs.sync_directory(&layout.checkpoints())?;
        Ok(folder)
    }

    /// Step 7. A checkpoint is complete without it, so a failure here is not a failure of the
    /// checkpoint.
    pub(super) fn point_latest_at(&self, folder: &Path) {
        if let Err(error) = self.try_to_point_latest_at(folder) {
            tracing::warn!("`latest` does not name the newest checkpoint: {error}");
        }
    }

    fn try_to_point_latest_at(&self, folder: &Path) -> Result<()> {
        let Shared { fs, layout, .. } = &*self.shared;
        let (latest, new) = (layout.latest(), layout.latest_new());
        self.clear_name(&new)?;
        let target = layout.link_target(folder);
        if !fs.symlink(&target, &new)? {
            let mut file = fs.create(&new, MODE)?;
            file.write(target.as_os_str().as_encoded_bytes())?;
            file.sync()?;
        }
        if fs.is_directory(&latest)? {
            if fs.exchange(&new, &latest)? {
                fs.sync_directory(layout.trial_dir())?;
                return self.clear_name(&new);
            }
            self.clear_name(&latest)?;
        }
        fs.rename(&new, &latest)?;
        fs.sync_directory(layout.trial_dir())
    }

    /// Removes what has one of the names of step 7. A folder is removed only if it is a copy of an
    /// existing checkpoint, as `cp -rL` makes it of the link; any other is kept under the first
    /// free name.
    pub(super) fn clear_name(&self, path: &Path) -> Result<()> {
        let Shared { fs, layout, .. } = &*self.shared;
        if !fs.is_directory(path)? {
            return fs.remove_file(path).map(drop);
        }
        if self.is_copy(path)? {
            return retention::discard(self, &[path.to_owned()]);
        }
        for number in 1.. {
            let aside = layout.latest_aside(number);
            if fs.stat(&aside)?.is_none() {
                fs.rename(path, &aside)?;
                tracing::warn!(
                    "`latest` was a folder, and no copy of a checkpoint: it is kept in `{}`",
                    aside.display()
                );
                break;
            }
        }
        fs.sync_directory(layout.trial_dir())
    }

    /// Whether a folder holds only files of one existing checkpoint. A process that copied it, or
    /// died while it removed it, may have left some out.
    fn is_copy(&self, folder: &Path) -> Result<bool> {
        let names = self.shared.fs.list(folder)?;
        for (_, original) in self.checkpoints()? {
            if self.has_same_files(folder, &original, &names)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_same_files(&self, folder: &Path, original: &Path, names: &[OsString]) -> Result<bool> {
        let Shared { fs, .. } = &*self.shared;
        for name in names {
            let paths = [folder.join(name), original.join(name)];
            for path in &paths {
                if fs.stat(path)?.is_none_or(|stat| stat.is_directory) {
                    return Ok(false);
                }
            }
            let [copy, original] = paths.map(|path| content::hash(fs, &path));
            if copy? != original? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The name of a pack while it is staged.
fn pack_name(number: usize) -> String {
    format!("pack-{number}")
}
