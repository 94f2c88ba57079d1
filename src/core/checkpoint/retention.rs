//! Which checkpoints are kept, and how the others are removed: step 8 of a commit.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::fs::{FileSystem, remove_with_files};
use super::layout::{Name, parse_pack};
use super::{Newest, Shared, Snapshot, Store, reader};
use crate::error::Result;
use crate::retention::Candidate;

/// The number of checkpoints that are kept: the new one, and one as a fallback if files of the new
/// one are damaged.
const KEPT: usize = 2;

/// Removes what a commit of a snapshot made superfluous.
///
/// It removes: folders older than the newest [`KEPT`], except those that the part of the union
/// table for the snapshot keeps ([`crate::retention`]); folders of later batches (the trial
/// continued from an older checkpoint, so their history has ended); folders that were replaced or
/// set aside; staging folders of processes that died; contents and packs that no remaining
/// checkpoint names.
pub(super) fn remove_old<F: FileSystem>(store: &Store<F>, snapshot: &Snapshot) -> Result<()> {
    let Shared { fs, layout, .. } = &*store.shared;
    let (mut committed, mut gone) = (Vec::new(), Vec::new());
    for name in fs.list(&layout.checkpoints())? {
        match Name::parse(&name) {
            Name::Committed(number) if number <= snapshot.batch => committed.push(number),
            Name::Committed(_) | Name::Replaced(_) | Name::Damaged => {
                gone.push(layout.checkpoints().join(name));
            }
            Name::Staging | Name::Other => {}
        }
    }
    committed.sort_unstable();
    let wanted = wanted(snapshot, &committed);
    let mut kept = committed.split_off(committed.len().saturating_sub(KEPT));
    for number in committed {
        if wanted.contains(&number) {
            kept.push(number);
        } else {
            gone.push(layout.committed(number));
        }
    }
    discard(store, &gone)?;
    remove_stale_staging(store)?;
    remove_contents(store, &kept)
}

/// The batches of checkpoints that the union table keeps.
fn wanted(snapshot: &Snapshot, batches: &[u64]) -> BTreeSet<u64> {
    let Some(retention) = snapshot.retention else {
        return BTreeSet::new();
    };
    let candidate = |&batch: &u64| Candidate {
        id: batch,
        trial: 0,
        metric: snapshot.validations.get(&batch).copied(),
        is_source: false,
    };
    let candidates: Vec<_> = batches.iter().map(candidate).collect();
    retention.of_trial().kept(&candidates)
}

/// Removes folders of checkpoints. No reader ever finds one half empty.
pub(super) fn discard<F: FileSystem>(store: &Store<F>, folders: &[PathBuf]) -> Result<()> {
    if folders.is_empty() {
        return Ok(());
    }
    let Shared { fs, layout, .. } = &*store.shared;
    let mut renamed = Vec::new();
    for folder in folders {
        let name = store.unused_name()?;
        fs.rename(folder, &name)?;
        renamed.push(name);
    }
    // A name must not reappear for a folder whose files are gone.
    fs.sync_directory(&layout.checkpoints())?;
    renamed
        .iter()
        .try_for_each(|folder| remove_with_files(fs, folder))
}

fn remove_stale_staging<F: FileSystem>(store: &Store<F>) -> Result<()> {
    let Shared { fs, layout, .. } = &*store.shared;
    for name in fs.list(&layout.checkpoints())? {
        let path = layout.checkpoints().join(&name);
        if Name::parse(&name) == Name::Staging && !store.in_use().staging.contains(&path) {
            remove_with_files(fs, &path)?;
        }
    }
    Ok(())
}

fn remove_contents<F: FileSystem>(store: &Store<F>, kept: &[u64]) -> Result<()> {
    let Shared { fs, layout, .. } = &*store.shared;
    let (mut contents, mut packs) = (BTreeSet::new(), BTreeSet::new());
    for &batch in kept {
        // A manifest that cannot be read today may be readable tomorrow, and name any of them.
        let Some(manifest) = reader::manifest_in(fs, &layout.committed(batch)) else {
            return Ok(());
        };
        contents.extend(manifest.kept.into_iter().map(|file| file.blake3));
        packs.extend(manifest.packs.into_iter().map(|pack| pack.blake3));
    }
    for name in fs.list(&layout.files())? {
        let Some(hash) = name.to_str() else { continue };
        // The lock is held while the file is removed: who pins the content afterwards finds no
        // file, and copies it.
        let in_use = store.in_use();
        if !contents.contains(hash) && !in_use.contents.contains_key(hash) {
            fs.remove_file(&layout.content(hash))?;
        }
    }
    for name in fs.list(&layout.tensors())? {
        if parse_pack(&name).is_some_and(|hash| !packs.contains(hash)) {
            fs.remove_file(&layout.tensors().join(name))?;
        }
    }
    Ok(())
}

/// See [`Store::go_back_to`].
pub(super) fn go_back_to<F: FileSystem>(
    store: &Store<F>,
    position: Option<(u64, u64)>,
) -> Result<()> {
    let fs = &store.shared.fs;
    let mut newer = Vec::new();
    let mut kept = None;
    for (batch, folder) in store.checkpoints()? {
        let of = reader::manifest_in(fs, &folder).map(|manifest| (manifest.batch, manifest.calls));
        if kept.is_some() || (position.is_some() && of == position) {
            kept = kept.or(Some(folder));
        } else {
            newer.push((batch, folder));
        }
    }
    set_aside_folders(store, kept.as_deref(), &newer)
}

/// See [`Store::set_aside`].
pub(super) fn set_aside<F: FileSystem>(store: &Store<F>, newest: &Newest<F>) -> Result<()> {
    let used = newest.checkpoint.as_ref().map(super::Checkpoint::folder);
    set_aside_folders(store, used, &newest.damaged_folders)
}

/// Renames folders of checkpoints, and points `latest` at the one that is used.
fn set_aside_folders<F: FileSystem>(
    store: &Store<F>,
    used: Option<&Path>,
    folders: &[(u64, PathBuf)],
) -> Result<()> {
    if folders.is_empty() {
        return Ok(());
    }
    let Shared { fs, layout, .. } = &*store.shared;
    if let Some(folder) = used {
        store.point_latest_at(folder);
    } else {
        store.clear_name(&layout.latest())?;
        fs.sync_directory(layout.trial_dir())?;
    }
    for (batch, folder) in folders {
        let aside = layout.damaged(*batch);
        if fs.stat(&aside)?.is_some() {
            discard(store, std::slice::from_ref(&aside))?;
        }
        fs.rename(folder, &aside)?;
    }
    fs.sync_directory(&layout.checkpoints())
}
