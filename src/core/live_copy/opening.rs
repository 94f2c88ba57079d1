//! Opens all files of a trial at one moment.
//!
//! Nothing is read but what tells which files there are: manifests, their hashes, and the newest
//! log. If anything disappears meanwhile, the attempt ends with [`Trouble::Changed`], and its
//! caller makes another.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::{Content, LiveCopy, Part};
use crate::calls::{Log, Mark};
use crate::checkpoint::{CHECKPOINTS, Depth, Found, LATEST, LATEST_NEW, Manifest, Store};
use crate::directory::{LOCK, RECORD};
use crate::error::Error;
use crate::file::check;
use crate::training::LOG;

/// The file extension of files of lines, in which a line without its newline has no meaning.
const LINES_EXTENSION: &str = "jsonl";

/// Why a trial cannot be opened as a whole.
pub(super) enum Trouble {
    /// Something disappeared in the meantime.
    Changed,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

pub(super) type Attempt<T> = std::result::Result<T, Trouble>;

pub(super) fn try_to_take(trial_dir: &Path) -> Attempt<LiveCopy> {
    let trial = crate::directory::inode(trial_dir);
    let found = Store::open(trial_dir).inspect(Depth::Sizes)?;
    let mut opened = Opened::new(trial_dir);
    let mut newest = None;
    let (mut checkpoints, mut damaged) = (Vec::new(), Vec::new());
    for found in &found {
        let Some(manifest) = found.manifest.as_ref().filter(|_| found.damage.is_empty()) else {
            let what = found.damage.join("; ");
            damaged.push(format!("`{}`: {what}", name_of(&found.folder)));
            continue;
        };
        if newest.is_none() {
            let mark = mark_of(manifest);
            if let Err(error) = Log::check(&trial_dir.join(LOG), mark) {
                if error.is_corrupt() || error.is_not_found() {
                    let what = error.to_string().replace("\n  ", ": ");
                    damaged.push(format!("`{}`: {what}", name_of(&found.folder)));
                    continue;
                }
                return Err(error.into());
            }
        }
        match opened.checkpoint(found, manifest) {
            Ok(()) => {
                newest = newest.or(Some(manifest));
                checkpoints.push(name_of(&found.folder));
            }
            // A checkpoint that retention removes now is not needed, unless it is the newest.
            Err(Trouble::Changed) if newest.is_some() => {}
            Err(trouble) => return Err(trouble),
        }
    }
    let Some(newest) = newest else {
        if crate::directory::inode(trial_dir) != trial {
            return Err(Trouble::Changed);
        }
        let path = trial_dir.to_owned();
        return Err(Failure::NoneWhole { path, damaged }.into());
    };
    for what in damaged {
        tracing::warn!("the copy is without the damaged checkpoint {what}");
    }
    let mark = mark_of(newest);
    opened.file(Path::new(LOG), Some(mark.offset), false)?;
    let before = opened.others(Path::new(""))?;
    // During a replay, the ledger moves files from one place to another.
    if names_below(trial_dir, Path::new(""))? != before
        || crate::directory::inode(trial_dir) != trial
    {
        return Err(Trouble::Changed);
    }
    opened.parts.push(Part {
        name: LATEST.into(),
        content: Content::Link(Path::new(CHECKPOINTS).join(&checkpoints[0])),
    });
    Ok(LiveCopy {
        parts: opened.parts,
        batch: newest.batch,
        checkpoints,
        mark,
    })
}

fn mark_of(manifest: &Manifest) -> Mark {
    Mark {
        offset: manifest.log_offset,
        calls: manifest.calls,
    }
}

pub(super) fn name_of(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

struct Opened<'trial> {
    trial_dir: &'trial Path,
    parts: Vec<Part>,
    /// Files of `checkpoints/` that several checkpoints have.
    shared: BTreeSet<PathBuf>,
}

impl<'trial> Opened<'trial> {
    fn new(trial_dir: &'trial Path) -> Self {
        let directory = |name: &[&str]| Part {
            name: name.iter().collect(),
            content: Content::Directory,
        };
        Self {
            trial_dir,
            parts: vec![
                directory(&[CHECKPOINTS]),
                directory(&[CHECKPOINTS, Store::CONTENTS]),
                directory(&[CHECKPOINTS, Store::PACKS]),
            ],
            shared: BTreeSet::new(),
        }
    }

    /// Opens all files of a checkpoint, or none of them.
    fn checkpoint(&mut self, found: &Found, manifest: &Manifest) -> Attempt<()> {
        let begun = (self.parts.len(), self.shared.clone());
        let outcome = self.files_of(found, manifest);
        if outcome.is_err() {
            self.parts.truncate(begun.0);
            self.shared = begun.1;
        }
        outcome
    }

    fn files_of(&mut self, found: &Found, manifest: &Manifest) -> Attempt<()> {
        let folder = Path::new(CHECKPOINTS).join(found.folder.file_name().unwrap_or_default());
        self.parts.push(Part {
            name: folder.clone(),
            content: Content::Directory,
        });
        // Another folder of the same name may have replaced it: the hashes show it.
        let text = self.whole(&folder.join(Store::MANIFEST))?;
        if !manifest.is_in(&text) {
            return Err(Trouble::Changed);
        }
        for own in &manifest.files {
            let name = Path::new(&own.path).file_name();
            let text = self.whole(&folder.join(name.unwrap_or_default()))?;
            if blake3::hash(&text).to_string() != own.blake3 {
                return Err(Trouble::Changed);
            }
        }
        let packs = manifest.packs.iter();
        let packs = packs.map(|pack| (Store::pack_name(&pack.blake3), pack.size));
        let kept = manifest.kept.iter();
        let kept = kept.map(|kept| (Store::content_name(&kept.blake3), kept.size));
        for (name, size) in packs.chain(kept) {
            let name = Path::new(CHECKPOINTS).join(name);
            if self.shared.insert(name.clone()) {
                self.file(&name, Some(size), true)?;
            }
        }
        Ok(())
    }

    /// Opens a file that is never written to again, and reads it.
    fn whole(&mut self, name: &Path) -> Attempt<Vec<u8>> {
        self.file(name, None, true)?;
        let mut text = Vec::new();
        if let Some(part) = self.parts.last()
            && let Content::File { file, bytes, .. } = &part.content
        {
            let read = part.reader(file, *bytes).read_to_end(&mut text);
            check("read", &self.trial_dir.join(name), read)?;
        }
        Ok(text)
    }

    /// Opens a file, of which `bytes` bytes are needed; `None`: all of them.
    fn file(&mut self, name: &Path, bytes: Option<u64>, is_final: bool) -> Attempt<()> {
        let path = self.trial_dir.join(name);
        let file = match crate::file::open_plain(&path) {
            Err(error) if is_gone(&error) => return Err(Trouble::Changed),
            opened => check("open", &path, opened)?,
        };
        let metadata = check("look at", &path, file.metadata())?;
        let size = metadata.len();
        if bytes.is_some_and(|bytes| bytes > size) {
            return Err(Trouble::Changed);
        }
        let bytes = match bytes {
            Some(bytes) => bytes,
            None if path.extension() == Some(OsStr::new(LINES_EXTENSION)) => {
                check("read", &path, whole_lines(&file, size))?
            }
            None => size,
        };
        self.parts.push(Part {
            name: name.to_owned(),
            content: Content::File {
                file,
                bytes,
                mode: metadata.mode() & 0o7777,
                is_final,
            },
        });
        Ok(())
    }

    /// Opens all entries of the trial directory except checkpoints and log. Returns their names.
    fn others(&mut self, below: &Path) -> Attempt<BTreeSet<PathBuf>> {
        let names = names_below(self.trial_dir, below)?;
        for name in &names {
            let path = self.trial_dir.join(name);
            let metadata = match path.symlink_metadata() {
                Err(error) if is_gone(&error) => return Err(Trouble::Changed),
                metadata => check("look at", &path, metadata)?,
            };
            let content = if metadata.is_dir() {
                Content::Directory
            } else if metadata.is_symlink() {
                Content::Link(check("read", &path, path.read_link())?)
            } else if metadata.is_file() {
                self.file(name, None, false)?;
                continue;
            } else {
                // A pipe or a socket belongs to a process that runs here.
                continue;
            };
            let name = name.clone();
            self.parts.push(Part { name, content });
        }
        Ok(names)
    }
}

/// The names of all entries of the trial directory except checkpoints, log and files that are made
/// again; a directory comes before its entries.
fn names_below(trial_dir: &Path, below: &Path) -> Attempt<BTreeSet<PathBuf>> {
    let directory = trial_dir.join(below);
    let entries = match fs::read_dir(&directory) {
        Err(error) if is_gone(&error) => return Err(Trouble::Changed),
        entries => check("list", &directory, entries)?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let entry = check("list", &directory, entry)?;
        let name = below.join(entry.file_name());
        let ours = [CHECKPOINTS, LOG, LOCK, LATEST, LATEST_NEW];
        let is_temporary = name.extension() == Some(OsStr::new("pedl-new"))
            || name.to_string_lossy().starts_with(&format!(".{RECORD}."));
        if ours.iter().any(|known| name == Path::new(known)) || is_temporary {
            continue;
        }
        let kind = match entry.file_type() {
            Err(error) if is_gone(&error) => return Err(Trouble::Changed),
            kind => check("look at", &directory, kind)?,
        };
        names.insert(name.clone());
        if kind.is_dir() {
            names.extend(names_below(trial_dir, &name)?);
        }
    }
    Ok(names)
}

/// The number of bytes of a file that are complete lines.
fn whole_lines(file: &fs::File, size: u64) -> io::Result<u64> {
    let mut buffer = [0; 4096];
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(buffer.len() as u64);
        let part = &mut buffer[..usize::try_from(end - start).unwrap_or_default()];
        file.read_exact_at(part, start)?;
        if let Some(newline) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
