//! Inspects checkpoints without using them: lists all, with all damage of each. Changes nothing.
//!
//! Training may run at the same time, and its retention may remove a checkpoint during the
//! inspection. If a checkpoint is gone by the time a part of it is found missing, it was not
//! damaged, and is left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::fs::FileSystem;
use super::layout::{FILES, MANIFEST, PACK, TENSORS};
use super::manifest::{self, Manifest, PackFile};
use super::reader::{Proven, in_words, open, prove, read_manifest};
use super::{Shared, Store, tensors};
use crate::error::Result;
use crate::printable::printable;

/// A checkpoint that was found.
#[derive(Debug)]
pub struct Found {
    /// Batches trained before it.
    pub batch: u64,
    /// Its folder.
    pub folder: PathBuf,
    /// The table of contents, if it is intact and has a known schema.
    pub manifest: Option<Manifest>,
    /// The damage; empty if the checkpoint is intact.
    pub damage: Vec<String>,
}

/// How much an inspection reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The manifest is verified; of all other files, only that they exist and have the right size.
    Sizes,
    /// Every byte is read, and verified by its hash.
    Bytes,
}

impl<F: FileSystem> Store<F> {
    /// All checkpoints, newest first.
    ///
    /// # Errors
    ///
    /// The folder of checkpoints cannot be listed. Damage is no error: [`Found::damage`] lists it.
    pub fn inspect(&self, depth: Depth) -> Result<Vec<Found>> {
        let mut inspection = Inspection {
            store: self,
            depth,
            shared: BTreeMap::new(),
        };
        let mut all = Vec::new();
        for (batch, folder) in self.checkpoints()? {
            let found = inspection.look_at(batch, folder);
            if found.damage.is_empty() || self.shared.fs.stat(&found.folder)?.is_some() {
                all.push(found);
            }
        }
        Ok(all)
    }
}

struct Inspection<'store, F: FileSystem> {
    store: &'store Store<F>,
    depth: Depth,
    /// The damage of files that several checkpoints share: each is read once.
    shared: BTreeMap<String, Option<String>>,
}

impl<F: FileSystem> Inspection<'_, F> {
    fn look_at(&mut self, batch: u64, folder: PathBuf) -> Found {
        let (manifest, damage) = match manifest_of(&self.store.shared.fs, &folder) {
            Ok(manifest) => {
                let damage = self.damage(batch, &folder, &manifest);
                (Some(manifest), damage)
            }
            Err(what) => (None, vec![what]),
        };
        Found {
            batch,
            folder,
            manifest,
            damage,
        }
    }

    fn damage(&mut self, batch: u64, folder: &Path, manifest: &Manifest) -> Vec<String> {
        let layout = &self.store.shared.layout;
        let mut damage = Vec::new();
        if manifest.batch != batch {
            damage.push(format!("it is of batch {}", manifest.batch));
        }
        for own in &manifest.files {
            let path = folder.join(&own.path);
            damage.extend(self.file(&path, &own.path, own.size, &own.blake3).err());
        }
        for pack in &manifest.packs {
            let name = format!("{TENSORS}/{}{PACK}", pack.blake3);
            let known = self.shared.get(&name).cloned();
            let found = known.unwrap_or_else(|| self.pack(pack, &name).err());
            damage.extend(found.clone());
            self.shared.insert(name, found);
        }
        for kept in &manifest.kept {
            let name = format!("{FILES}/{}", kept.blake3);
            let known = self.shared.get(&name).cloned();
            let found = known.unwrap_or_else(|| {
                let path = layout.content(&kept.blake3);
                self.file(&path, &name, kept.size, &kept.blake3).err()
            });
            let about =
                |what: &String| format!("{what}, of `{}`", printable(&kept.path.to_string_lossy()));
            damage.extend(found.as_ref().map(about));
            self.shared.insert(name, found);
        }
        damage
    }

    fn file(&self, path: &Path, name: &str, size: u64, hash: &str) -> Proven<()> {
        let reader = open(&self.store.shared.fs, path, name, size)?;
        match self.depth {
            Depth::Sizes => Ok(()),
            Depth::Bytes => prove(reader, name, hash),
        }
    }

    fn pack(&self, pack: &PackFile, name: &str) -> Proven<()> {
        let Shared { fs, layout, .. } = &*self.store.shared;
        let mut reader = open(fs, &layout.pack(&pack.blake3), name, pack.size)?;
        if self.depth == Depth::Sizes {
            return Ok(());
        }
        match tensors::prove(&mut reader, pack.size, &pack.blake3) {
            Ok(()) => Ok(()),
            Err(tensors::Unreadable::Damaged(what)) => Err(format!("`{name}` {what}")),
            Err(tensors::Unreadable::Failed(error)) => Err(in_words(error)),
        }
    }
}

fn manifest_of<F: FileSystem>(fs: &F, folder: &Path) -> Proven<Manifest> {
    let text = read_manifest(fs, folder)?;
    Manifest::parse(&text).map_err(|unreadable| match unreadable {
        manifest::Unreadable::Damaged(what) => what,
        manifest::Unreadable::Schema { schema, version } => {
            format!(
                "`{MANIFEST}` is of schema {schema}, written by pedl-run {}",
                printable(&version)
            )
        }
    })
}
