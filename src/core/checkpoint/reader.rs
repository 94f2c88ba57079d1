//! Finds the newest intact checkpoint, and restores files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::content::{self, HashingReader, MODE, Writer};
use super::failure::{Damaged, Failure};
use super::fs::{FileSystem, RealFileSystem, make_directories};
use super::layout::{FILES, MANIFEST, PACK, STATE, TENSORS};
use super::manifest::{self, KeptFile, Manifest, OwnFile};
use super::{Pin, Shared, Store, Tensor, tensors};
use crate::error::{Error, Result};
use crate::file;
use crate::printable::printable;

/// The manifest of a checkpoint of a million tensors has 400 MB.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// What [`Store::newest`] found.
#[derive(Debug)]
pub struct Newest<F: FileSystem = RealFileSystem> {
    /// The newest intact checkpoint; `None` if there is none.
    pub checkpoint: Option<Checkpoint<F>>,
    /// What was wrong with newer ones, newest first. The caller must show it to the user.
    pub damaged: Vec<Error>,
    /// The batches and folders of the damaged ones.
    pub(super) damaged_folders: Vec<(u64, PathBuf)>,
}

/// A checkpoint in memory, with every byte verified.
///
/// While it lives, retention keeps the files that it copied.
#[derive(Debug)]
pub struct Checkpoint<F: FileSystem = RealFileSystem> {
    /// The table of contents.
    pub manifest: Manifest,
    /// The text that was passed as [`Snapshot::state`](super::Snapshot::state).
    pub state: String,
    /// The tensors, in the order in which they were given.
    pub tensors: Vec<Tensor>,
    folder: PathBuf,
    store: Store<F>,
    _pins: Vec<Pin<F>>,
}

/// Why a folder is not accepted as a checkpoint.
enum Refusal {
    Damaged {
        what: String,
        origin: Option<(String, String)>,
    },
    /// Not a reason to use an older one.
    Failed(Error),
}

/// What is wrong with a part of a checkpoint, as text.
pub(super) type Proven<T> = std::result::Result<T, String>;

pub(super) fn newest<F: FileSystem>(
    store: &Store<F>,
    mut check: impl FnMut(&Manifest) -> Result<()>,
) -> Result<Newest<F>> {
    let mut refused = Vec::new();
    let mut checkpoint = None;
    for (batch, folder) in store.checkpoints()? {
        match load(store, batch, &folder, &mut check) {
            Ok(loaded) => {
                checkpoint = Some(loaded);
                break;
            }
            Err(Refusal::Damaged { what, origin }) => refused.push((batch, folder, what, origin)),
            Err(Refusal::Failed(error)) => return Err(error),
        }
    }
    let fallback = checkpoint
        .as_ref()
        .map(|checkpoint| checkpoint.manifest.batch);
    let (mut damaged, mut damaged_folders) = (Vec::new(), Vec::new());
    for (batch, folder, what, origin) in refused {
        damaged_folders.push((batch, folder.clone()));
        damaged.push(
            Failure::Damaged(Damaged {
                batch,
                folder,
                what,
                origin,
                fallback,
            })
            .into(),
        );
    }
    Ok(Newest {
        checkpoint,
        damaged,
        damaged_folders,
    })
}

/// The state of the newest checkpoint from which it can be read. A process needs it before it loads
/// the whole checkpoint, with its tensors, into memory.
pub(super) fn newest_state<F: FileSystem>(store: &Store<F>) -> Option<String> {
    let checkpoints = store.checkpoints().ok()?;
    checkpoints.into_iter().find_map(|(_, folder)| {
        let text = read_manifest(&store.shared.fs, &folder).ok()?;
        let manifest = Manifest::parse(&text).ok()?;
        load_state(&store.shared.fs, &manifest, &folder).ok()
    })
}

/// See [`Store::load`].
pub(super) fn load_one<F: FileSystem>(store: &Store<F>, batch: u64) -> Result<Checkpoint<F>> {
    let gone = || Failure::Gone { batch };
    let mut folders = store.checkpoints()?.into_iter();
    let (_, folder) = folders
        .find(|(number, _)| *number == batch)
        .ok_or_else(gone)?;
    match load(store, batch, &folder, &mut |_| Ok(())) {
        Ok(loaded) => Ok(loaded),
        Err(Refusal::Failed(error)) => Err(error),
        Err(Refusal::Damaged { .. }) if store.shared.fs.stat(&folder)?.is_none() => {
            Err(gone().into())
        }
        Err(Refusal::Damaged { what, origin }) => Err(Failure::Damaged(Damaged {
            batch,
            folder,
            what,
            origin,
            fallback: None,
        })
        .into()),
    }
}

fn load<F: FileSystem>(
    store: &Store<F>,
    batch: u64,
    folder: &Path,
    check: &mut impl FnMut(&Manifest) -> Result<()>,
) -> std::result::Result<Checkpoint<F>, Refusal> {
    let damaged = |what| Refusal::Damaged { what, origin: None };
    let own = [MANIFEST, STATE].map(|name| folder.join(name));
    check_permitted(&store.shared.fs, &own).map_err(Refusal::Failed)?;
    let text = read_manifest(&store.shared.fs, folder).map_err(damaged)?;
    let manifest = Manifest::parse(&text).map_err(|unreadable| match unreadable {
        manifest::Unreadable::Damaged(what) => damaged(what),
        manifest::Unreadable::Schema { schema, version } => {
            let folder = folder.to_owned();
            Refusal::Failed(
                Failure::Schema {
                    folder,
                    schema,
                    version,
                }
                .into(),
            )
        }
    })?;
    let layout = &store.shared.layout;
    let packs = manifest.packs.iter().map(|pack| layout.pack(&pack.blake3));
    let kept = manifest.kept.iter();
    let kept = kept.map(|kept| layout.content(&kept.blake3));
    let shared: Vec<_> = packs.chain(kept).collect();
    check_permitted(&store.shared.fs, &shared).map_err(Refusal::Failed)?;
    let origin = Some((manifest.created.clone(), manifest.pedl_version.clone()));
    let loaded = if manifest.batch == batch {
        load_content(store, manifest, folder)
    } else {
        Err(format!("it is of batch {}", manifest.batch))
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(what) => return Err(Refusal::Damaged { what, origin }),
    };
    match check(&loaded.manifest) {
        Ok(()) => Ok(loaded),
        Err(error) if error.is_corrupt() => Err(Refusal::Damaged {
            what: error.to_string(),
            origin,
        }),
        Err(error) => Err(Refusal::Failed(error)),
    }
}

/// A file that this user may not read, or a link in place of a file, is no damage: to use an older
/// checkpoint would lose work, and set this one aside.
fn check_permitted<F: FileSystem>(fs: &F, paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        if let Err(error) = fs.open_plain(path) {
            let system = std::error::Error::source(&error)
                .and_then(|source| source.downcast_ref::<io::Error>());
            if system.is_some_and(|system| {
                system.kind() == io::ErrorKind::PermissionDenied || file::is_not_plain(system)
            }) {
                return Err(error);
            }
        }
    }
    Ok(())
}

pub(super) fn read_manifest<F: FileSystem>(fs: &F, folder: &Path) -> Proven<Vec<u8>> {
    let path = folder.join(MANIFEST);
    match fs.stat(&path).map_err(in_words)? {
        None => return Err(format!("`{MANIFEST}` is missing")),
        Some(stat) if stat.size > MANIFEST_BYTES_MAX => {
            return Err(format!("`{MANIFEST}` has {} bytes", stat.size));
        }
        Some(_) => {}
    }
    let mut text = Vec::new();
    let reader = HashingReader::open_plain(fs, &path).map_err(in_words)?;
    let collected = reader.pass_on(|bytes| {
        text.extend_from_slice(bytes);
        Ok(())
    });
    collected.map_err(in_words)?;
    Ok(text)
}

/// The manifest in a folder; `None` if it is not intact.
pub(super) fn manifest_in<F: FileSystem>(fs: &F, folder: &Path) -> Option<Manifest> {
    let text = read_manifest(fs, folder).ok()?;
    Manifest::parse(&text).ok()
}

/// Each tensor takes memory, even if a thousand of them are one in a pack, or if a pack is a sparse
/// file.
fn check_memory(manifest: &Manifest) -> Proven<()> {
    let tensors = manifest.tensors.iter().map(|stored| stored.size);
    let own = manifest.files.iter().map(|own| own.size);
    let (needed, there) = (
        tensors.chain(own).fold(0, u64::saturating_add),
        file::memory(),
    );
    if needed > there {
        return Err(format!(
            "needs {needed} bytes of memory, and this machine has {there}"
        ));
    }
    Ok(())
}

/// The tensors of a manifest, verified.
fn load_tensors<F: FileSystem>(store: &Store<F>, manifest: &Manifest) -> Proven<Vec<Tensor>> {
    let Shared { fs, layout, .. } = &*store.shared;
    check_memory(manifest)?;
    let mut contents = Vec::new();
    for (number, pack) in manifest.packs.iter().enumerate() {
        let name = format!("{TENSORS}/{}{PACK}", pack.blake3);
        let mut reader = open(fs, &layout.pack(&pack.blake3), &name, pack.size)?;
        let wanted = manifest
            .tensors
            .iter()
            .filter(|stored| stored.pack == number);
        let wanted: Vec<_> = wanted.collect();
        match tensors::read(&mut reader, pack.size, &pack.blake3, &wanted) {
            Ok(found) => contents.push(found),
            Err(tensors::Unreadable::Damaged(what)) => return Err(format!("`{name}` {what}")),
            Err(tensors::Unreadable::Failed(error)) => return Err(in_words(error)),
        }
    }
    let mut uses = BTreeMap::new();
    for stored in &manifest.tensors {
        *uses.entry((stored.pack, &stored.key)).or_insert(0_usize) += 1;
    }
    let mut loaded = Vec::with_capacity(manifest.tensors.len());
    for stored in &manifest.tensors {
        let left = uses.entry((stored.pack, &stored.key)).or_default();
        *left = left.saturating_sub(1);
        let bytes = contents.get_mut(stored.pack).and_then(|pack| match *left {
            0 => pack.remove(&stored.key),
            _ => pack.get(&stored.key).cloned(),
        });
        loaded.push(Tensor {
            name: stored.name.clone(),
            dtype: stored.dtype.clone(),
            shape: stored.shape.clone(),
            bytes: bytes.ok_or_else(|| {
                format!(
                    "`{MANIFEST}` names no pack of `{}`",
                    printable(&stored.name)
                )
            })?,
        });
    }
    Ok(loaded)
}

fn load_content<F: FileSystem>(
    store: &Store<F>,
    manifest: Manifest,
    folder: &Path,
) -> Proven<Checkpoint<F>> {
    let Shared { fs, layout, .. } = &*store.shared;

    let tensors = load_tensors(store, &manifest)?;

    let state = load_state(fs, &manifest, folder)?;

    let mut pins = Vec::new();
    for kept in &manifest.kept {
        pins.push(Pin::new(store, &kept.blake3));
        let name = format!("{FILES}/{}", kept.blake3);
        let reader = open(fs, &layout.content(&kept.blake3), &name, kept.size)?;
        prove(reader, &name, &kept.blake3)?;
    }
    let (store, folder) = (store.clone(), folder.to_owned());
    Ok(Checkpoint {
        manifest,
        state,
        tensors,
        folder,
        store,
        _pins: pins,
    })
}

fn load_state<F: FileSystem>(fs: &F, manifest: &Manifest, folder: &Path) -> Proven<String> {
    let own = own_file(manifest, STATE)?;
    let mut reader = open(fs, &folder.join(STATE), STATE, own.size)?;
    check_memory(manifest)?;
    let size = usize::try_from(own.size).map_err(|_| format!("`{STATE}` is too large"))?;
    let mut state = vec![0; size];
    reader.read(&mut state).map_err(in_words)?;
    prove(reader, STATE, &own.blake3)?;
    String::from_utf8(state).map_err(|_| format!("`{STATE}` is not UTF-8"))
}

fn own_file<'manifest>(manifest: &'manifest Manifest, name: &str) -> Proven<&'manifest OwnFile> {
    let own = manifest.files.iter().find(|file| file.path == name);
    own.ok_or_else(|| format!("`{MANIFEST}` does not name `{name}`"))
}

pub(super) fn open<F: FileSystem>(
    fs: &F,
    path: &Path,
    name: &str,
    size: u64,
) -> Proven<HashingReader> {
    match fs.stat(path).map_err(in_words)? {
        None => Err(format!("`{name}` is missing")),
        Some(stat) if stat.size != size => {
            Err(format!("`{name}` is {} of {size} bytes", stat.size))
        }
        Some(_) => HashingReader::open_plain(fs, path).map_err(in_words),
    }
}

pub(super) fn prove(reader: HashingReader, name: &str, hash: &str) -> Proven<()> {
    let (_, found) = reader.finish().map_err(in_words)?;
    if found.to_string() != hash {
        return Err(format!("`{name}` does not match its hash"));
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of the error")]
pub(super) fn in_words(error: Error) -> String {
    error.to_string()
}

impl<F: FileSystem> Checkpoint<F> {
    /// The folder it was read from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the part of it that is in memory to a directory: `state.json`, and
    /// `tensors.safetensors` with each tensor under its name. For other programs, and not durable.
    ///
    /// # Errors
    ///
    /// Storage; or a file with one of these names exists.
    pub fn unpack(&self, directory: &Path) -> Result<()> {
        let fs = &self.store.shared.fs;
        let mut writer = Writer::create(fs, &directory.join(STATE), MODE)?;
        writer.write(self.state.as_bytes())?;
        writer.finish()?;
        let pack = tensors::Pack::new(tensors::hash(&self.tensors)?)?;
        let path = directory.join(format!("{TENSORS}{PACK}"));
        let mut writer = Writer::create(fs, &path, MODE)?;
        pack.write(&mut writer)?;
        writer.finish()
    }

    /// Restores a file, with its permission bits: at any moment, either the old file or the
    /// complete new one exists. `false`, and no change, if the checkpoint does not hold that path.
    ///
    /// If the path is a link, the file that it leads to is replaced. A process that has the file
    /// open keeps the old one.
    ///
    /// # Errors
    ///
    /// Storage failed; or the stored content was damaged since the checkpoint was loaded.
    pub fn restore_file(&self, path: &Path) -> Result<bool> {
        let Some(kept) = self.manifest.kept(&self.store.name_of(path)) else {
            return Ok(false);
        };
        let Shared { fs, layout, .. } = &*self.store.shared;
        let target = match fs.stat(path)? {
            Some(_) => fs.resolve(path)?,
            None => path.to_owned(),
        };
        let (Some(directory), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Failure::NotAFile { path: target }.into());
        };
        make_directories(fs, directory)?;
        let mut new_name = OsString::from(".");
        new_name.push(name);
        new_name.push(".pedl-new");
        let new = directory.join(new_name);

        if let Err(error) = self.put_at(kept, &new, &layout.content(&kept.blake3)) {
            if let Err(error) = fs.remove_file(&new) {
                tracing::debug!("an unfinished copy is left: {error}");
            }
            return Err(error);
        }
        fs.rename(&new, &target)?;
        fs.sync_directory(directory)?;
        Ok(true)
    }

    fn put_at(&self, kept: &KeptFile, new: &Path, content: &Path) -> Result<()> {
        let fs = &self.store.shared.fs;
        // A process that died here may have left one.
        fs.remove_file(new)?;
        let (size, hash) = content::copy(fs, content, new, 0o600)?;
        if size != kept.size || hash.to_string() != kept.blake3 {
            let (path, content) = (kept.path.clone(), content.to_owned());
            return Err(Failure::Content { path, content }.into());
        }
        fs.set_mode(new, kept.mode)?;
        fs.sync_file(new)
    }
}
