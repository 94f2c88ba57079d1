//! Which checkpoints stay, and how the others go: step 7 of a commit.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::fs::{FileSystem, remove_with_files};
use super::layout::Name;
use super::{Newest, Shared, Store, reader};
use crate::error::Result;

/// How many checkpoints stay: the new one, and one to fall back to where it is damaged.
const KEPT: usize = 2;

/// Removes what a commit of `batch` made superfluous.
///
/// Goes: folders older than the newest [`KEPT`], but for that of `best_batch`; folders of later batches (the trial went on from an
/// older checkpoint, and they are of a history that is over); what was replaced or set aside; staging
/// folders of processes that died; contents that no remaining checkpoint names.
pub(super) fn remove_old<F: FileSystem>(
    store: &Store<F>,
    batch: u64,
    best_batch: Option<u64>,
) -> Result<()> {
    let Shared { fs, layout, .. } = &*store.shared;
    let (mut committed, mut gone) = (Vec::new(), Vec::new());
    for name in fs.list(&layout.checkpoints())? {
        match Name::parse(&name) {
            Name::Committed(number) if number <= batch => committed.push(number),
            Name::Committed(_) | Name::Replaced(_) | Name::Damaged => {
                gone.push(layout.checkpoints().join(name));
            }
            Name::Staging | Name::Other => {}
        }
    }
    committed.sort_unstable();
    let mut kept = committed.split_off(committed.len().saturating_sub(KEPT));
    for number in committed {
        if best_batch == Some(number) {
            kept.push(number);
        } else {
            gone.push(layout.committed(number));
        }
    }
    discard(store, &gone)?;
    remove_stale_staging(store)?;
    remove_contents(store, &kept)
}

/// Removes folders of checkpoints, so that none is ever seen half empty.
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
    // A name must not come back for a folder whose files are gone.
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
    let mut named = BTreeSet::new();
    for &batch in kept {
        // A manifest that cannot be read today may be readable tomorrow, and name any of them.
        let Some(files) = reader::kept_in(fs, &layout.committed(batch)) else {
            return Ok(());
        };
        named.extend(files.into_iter().map(|file| file.blake3));
    }
    for name in fs.list(&layout.files())? {
        let Some(hash) = name.to_str() else { continue };
        // Held while the file goes: who pins it afterwards finds it gone, and copies.
        let in_use = store.in_use();
        if !named.contains(hash) && !in_use.contents.contains_key(hash) {
            fs.remove_file(&layout.content(hash))?;
        }
    }
    Ok(())
}

/// See [`Store::set_aside`].
pub(super) fn set_aside<F: FileSystem>(store: &Store<F>, newest: &Newest<F>) -> Result<()> {
    if newest.damaged_folders.is_empty() {
        return Ok(());
    }
    let Shared { fs, layout, .. } = &*store.shared;
    if let Some(checkpoint) = &newest.checkpoint {
        store.point_latest_at(checkpoint.folder())?;
    } else {
        fs.remove_file(&layout.latest())?;
        fs.sync_directory(layout.trial_dir())?;
    }
    for (batch, folder) in &newest.damaged_folders {
        let aside = layout.damaged(*batch);
        if fs.stat(&aside)?.is_some() {
            discard(store, std::slice::from_ref(&aside))?;
        }
        fs.rename(folder, &aside)?;
    }
    fs.sync_directory(&layout.checkpoints())
}
