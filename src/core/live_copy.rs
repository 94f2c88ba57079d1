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
//!
//! `opening` opens all files at one moment; this module makes the copy of them; `failure` has the
//! messages.

mod failure;
mod opening;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with};
use rustix::io::Errno;

use crate::calls::{Log, Mark};
use crate::checkpoint::{Depth, Store};
use crate::error::Result;
use crate::file::check;
use crate::training::LOG;
use failure::Failure;
use opening::{Trouble, name_of};

/// Attempts to open all of a trial that changes in the meantime, and the longest pause between two
/// of them.
const ATTEMPTS_MAX: u32 = 100;
const PAUSE_MAX: Duration = Duration::from_millis(100);

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

impl LiveCopy {
    /// Opens all of a trial.
    ///
    /// # Errors
    ///
    /// It has no intact checkpoint; it cannot be read, or changes with every attempt.
    pub fn take(trial_dir: &Path) -> Result<Self> {
        for attempt in 1..=ATTEMPTS_MAX {
            match opening::try_to_take(trial_dir) {
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
