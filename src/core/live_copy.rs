//! A copy of a trial that may be training at the same time: the work of `pedl checkpoint snapshot`.
//!
//! It takes no lock and writes nothing into the trial, which may be mounted read-only.
//!
//! **One moment.** First all files are opened, which takes milliseconds, and then read, which may
//! take minutes: an open file keeps its content, whatever names retention removes. If a file
//! disappears between listing the names and opening the last of them, the whole step is repeated.
//! Of the open files,
//!
//! - a committed checkpoint, a pack or a content is never written to: these are linked into the
//!   copy, or copied if it lies on another file system;
//! - `calls.log` is copied up to the offset of the newest checkpoint, which no start cuts off;
//! - all other files (the journal, the ledger of files, the printed output, files that the ledger
//!   has set aside) are copied up to the length that they had when they were opened, which was
//!   after the checkpoint was committed. A journal is copied up to its last complete line. A start
//!   continues from that as after a kill.
//!
//! The copy has the checkpoints that were intact; the newest of them is verified, with its log.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use crate::calls::{Log, Mark};
use crate::checkpoint::{CHECKPOINTS, Depth, Found, LATEST, LATEST_NEW, Manifest, Store};
use crate::directory::{LOCK, RECORD};
use crate::error::{Class, Error, Kind, Result};
use crate::file::check;
use crate::training::LOG;

/// Attempts to open all of a trial that changes in the meantime, and the longest pause between two
/// of them.
const ATTEMPTS_MAX: u32 = 100;
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The file extension of files of lines, in which a line without its newline has no meaning.
const OF_LINES: &str = "jsonl";

/// A trial as it was at one moment, with all of its files open.
#[derive(Debug)]
pub struct LiveCopy {
    parts: Vec<Part>,
    /// Batches trained before the newest checkpoint.
    pub batch: u64,
    /// The names of the checkpoints, newest first.
    pub checkpoints: Vec<String>,
    mark: Mark,
}

/// One entry of the copy. Directories come before their entries.
#[derive(Debug)]
pub struct Part {
    /// Its name in the trial directory.
    pub name: PathBuf,
    /// Its content.
    pub content: Content,
}

/// The content of an entry of the copy.
#[derive(Debug)]
pub enum Content {
    /// A directory.
    Directory,
    /// A symbolic link, and its target.
    Link(PathBuf),
    /// The first bytes of a file.
    File {
        /// The file.
        file: fs::File,
        /// The number of bytes.
        bytes: u64,
        /// Permission bits.
        mode: u32,
        /// Whether it is never written to again, so that the copy may share it.
        is_final: bool,
    },
}

/// The size of a copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Bytes of files.
    pub bytes: u64,
    /// Of these, bytes that the copy shares with the trial.
    pub linked_bytes: u64,
}

/// Why a trial cannot be opened as a whole.
enum Trouble {
    /// Something disappeared in the meantime.
    Changed,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

type Attempt<T> = std::result::Result<T, Trouble>;

impl LiveCopy {
    /// Opens all of a trial.
    ///
    /// # Errors
    ///
    /// It has no intact checkpoint; it cannot be read, or changes with every attempt.
    pub fn take(trial_dir: &Path) -> Result<Self> {
        for attempt in 1..=ATTEMPTS_MAX {
            match try_to_take(trial_dir) {
                Ok(taken) => return Ok(taken),
                Err(Trouble::Failed(error)) => return Err(error),
                Err(Trouble::Changed) => {
                    tracing::debug!(
                        "the trial has changed while it was opened (attempt {attempt})"
                    );
                    thread::sleep(PAUSE_MAX.min(Duration::from_millis(attempt.into())));
                }
            }
        }
        let path = trial_dir.to_owned();
        Err(Failure::Changing { path }.into())
    }

    /// All entries, directories before their entries.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Makes the copy at a path that does not exist: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// The path exists; storage; `is_stopped` returned true.
    pub fn put_at(&self, path: &Path, is_stopped: &dyn Fn() -> bool) -> Result<Totals> {
        let taken = || Failure::Taken {
            path: path.to_owned(),
        };
        if path.symlink_metadata().is_ok() {
            return Err(taken().into());
        }
        let mut name = OsString::from(".");
        name.push(path.file_name().ok_or_else(taken)?);
        name.push(format!(".pedl-{}", process::id()));
        let staged = Staged(path.with_file_name(name));
        let totals = self.fill(&staged.0, is_stopped)?;
        let renamed = match renameat_with(CWD, &staged.0, CWD, path, RenameFlags::NOREPLACE) {
            // The file system cannot rename and check in one operation.
            Err(Errno::INVAL | Errno::NOSYS) if path.symlink_metadata().is_err() => {
                fs::rename(&staged.0, path)
            }
            Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS) => return Err(taken().into()),
            other => other.map_err(io::Error::from),
        };
        check("rename", &staged.0, renamed)?;
        // A relative name such as `a` lies in the current directory, for which `parent` is empty.
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        sync(parent.unwrap_or(Path::new(".")))?;
        Ok(totals)
    }

    fn fill(&self, directory: &Path, is_stopped: &dyn Fn() -> bool) -> Result<Totals> {
        check("make directory", directory, fs::create_dir(directory))?;
        let mut totals = Totals::default();
        for part in &self.parts {
            if is_stopped() {
                return Err(Failure::Stopped.into());
            }
            let path = directory.join(&part.name);
            match &part.content {
                Content::Directory => check("make directory", &path, fs::create_dir(&path))?,
                Content::Link(target) => check("make link", &path, symlink(target, &path))?,
                Content::File {
                    file,
                    bytes,
                    mode,
                    is_final,
                } => {
                    totals.bytes += bytes;
                    if *is_final && link(file, &path) {
                        totals.linked_bytes += bytes;
                    } else {
                        part.copy(file, *bytes, *mode, &path)?;
                    }
                }
            }
        }
        for part in &self.parts {
            if matches!(part.content, Content::Directory) {
                sync(&directory.join(&part.name))?;
            }
        }
        sync(directory)?;
        self.prove(directory, totals)?;
        Ok(totals)
    }

    /// Linked files are unchanged; of copied files, each byte is read again.
    fn prove(&self, directory: &Path, totals: Totals) -> Result<()> {
        let final_bytes: u64 = self.parts.iter().map(Part::final_bytes).sum();
        let depth = if totals.linked_bytes == final_bytes {
            Depth::Sizes
        } else {
            Depth::Bytes
        };
        let found = Store::open(directory).inspect(depth)?;
        if let Some(damaged) = found.iter().find(|found| !found.damage.is_empty()) {
            let name = name_of(&damaged.folder);
            let what = damaged.damage.join("; ");
            return Err(Failure::NotWhole { name, what }.into());
        }
        Log::check(&directory.join(LOG), self.mark)
    }
}

impl Part {
    /// Copies the first bytes of an open file; missing bytes are an error.
    fn copy(&self, file: &fs::File, bytes: u64, mode: u32, path: &Path) -> Result<()> {
        let mut options = fs::OpenOptions::new();
        // No other user may read it before it has its final permission bits.
        let opened = options.write(true).create_new(true).mode(0o600).open(path);
        let mut copy = check("make", path, opened)?;
        let mut reader = self.reader(file, bytes);
        check("write", path, io::copy(&mut reader, &mut copy))?;
        reader.check_is_at_end()?;
        let permissions = fs::Permissions::from_mode(mode);
        check("set the mode of", path, copy.set_permissions(permissions))?;
        check("sync", path, copy.sync_all())
    }

    /// A reader of the first bytes of a file of this entry.
    pub fn reader<'part>(&'part self, file: &'part fs::File, bytes: u64) -> Reader<'part> {
        Reader {
            name: &self.name,
            file,
            offset: 0,
            bytes,
        }
    }

    fn final_bytes(&self) -> u64 {
        match self.content {
            Content::File {
                bytes,
                is_final: true,
                ..
            } => bytes,
            _ => 0,
        }
    }
}

/// The first bytes of an open file.
#[derive(Debug)]
pub struct Reader<'part> {
    name: &'part Path,
    file: &'part fs::File,
    offset: u64,
    bytes: u64,
}

impl Reader<'_> {
    /// Whether all bytes were read.
    ///
    /// # Errors
    ///
    /// The file has become shorter.
    pub fn check_is_at_end(&self) -> Result<()> {
        if self.offset == self.bytes {
            return Ok(());
        }
        let name = self.name.to_owned();
        let (read, bytes) = (self.offset, self.bytes);
        Err(Failure::Shorter { name, read, bytes }.into())
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.bytes - self.offset).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..most], self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Gives an open file another name; `false` if the file system cannot, or if the file has no name
/// any more.
fn link(file: &fs::File, path: &Path) -> bool {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW).is_ok()
}

fn sync(directory: &Path) -> Result<()> {
    crate::file::sync_directory(directory)
}

/// A folder that is removed unless it was renamed.
struct Staged(PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        if self.0.is_dir()
            && let Err(error) = fs::remove_dir_all(&self.0)
        {
            tracing::debug!("`{}` is left: {error}", self.0.display());
        }
    }
}

// -- one moment ----------------------------------------------------------------------------------

fn try_to_take(trial_dir: &Path) -> Attempt<LiveCopy> {
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

fn name_of(folder: &Path) -> String {
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
            None if path.extension() == Some(OsStr::new(OF_LINES)) => {
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

/// Why a copy was not made.
#[derive(Debug)]
enum Failure {
    /// The path exists already.
    Taken { path: PathBuf },
    /// No checkpoint is intact.
    NoneWhole { path: PathBuf, damaged: Vec<String> },
    /// It changes with every attempt.
    Changing { path: PathBuf },
    /// A file became shorter while it was read.
    Shorter {
        name: PathBuf,
        read: u64,
        bytes: u64,
    },
    /// The copy does not match the manifest.
    NotWhole { name: String, what: String },
    /// A signal.
    Stopped,
}

impl Kind for Failure {
    fn class(&self) -> Class {
        match self {
            Self::Taken { .. } => Class::CannotCreate,
            Self::NoneWhole { .. } | Self::NotWhole { .. } => Class::CheckpointCorrupt,
            Self::Changing { .. } | Self::Shorter { .. } | Self::Stopped => Class::StorageFailed,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Taken { .. } => "name a directory that is not there yet",
            Self::NoneWhole { damaged, .. } if damaged.is_empty() => {
                "wait for the first one: a training takes it after `--checkpoint-seconds`"
            }
            Self::NoneWhole { .. } | Self::NotWhole { .. } => {
                "`pedl checkpoint verify` tells which checkpoints are whole"
            }
            Self::Changing { .. } | Self::Shorter { .. } => "run the same command again",
            Self::Stopped => return None,
        };
        Some(hint.to_owned())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { path } => write!(formatter, "`{}` is there already", path.display())?,
            Self::NoneWhole { path, damaged } => {
                let there = if damaged.is_empty() {
                    "none".to_owned()
                } else {
                    damaged.join("\n  ")
                };
                write!(
                    formatter,
                    "there is no checkpoint in `{}` that is whole\n  there is: {there}",
                    path.display()
                )?;
            }
            Self::Changing { path } => write!(
                formatter,
                "`{}` changes while it is opened\n  it was tried {ATTEMPTS_MAX} times",
                path.display()
            )?,
            Self::Shorter { name, read, bytes } => write!(
                formatter,
                "`{}` has become shorter while it was read\n  expected: {bytes} bytes; read: {read}",
                name.display()
            )?,
            Self::NotWhole { name, what } => write!(
                formatter,
                "checkpoint `{name}` is not whole in the copy: {what}"
            )?,
            Self::Stopped => write!(formatter, "copying was interrupted")?,
        }
        formatter.write_str("\n  nothing of the trial was changed, and no copy was made")
    }
}
