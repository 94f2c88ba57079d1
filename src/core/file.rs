//! Files of a trial with their paths: each failure gets its operation and its file, once, here.
//!
//! Checkpoints have a separate interface (`checkpoint`), behind a trait, because the order in which
//! they become durable matters. Files that are written here need no order among themselves: the log
//! is synced as a whole before a commit begins, and if that fails, no commit begins; when the log
//! is opened, a checksum verifies each record up to the checkpoint, and a missing record counts as
//! damage of that checkpoint. `trial.json` is created by one rename, and nothing is resumed from
//! the journal.
//!
//! Files are read and written at explicit offsets: a writer knows its length, and a second one
//! could not move it.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};
use rustix::system::sysinfo;

use crate::error::{Class, Kind, Result};

/// An open file.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    file: fs::File,
}

impl File {
    /// Makes an empty file, and replaces an existing one.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let mut options = fs::OpenOptions::new();
        Self::with(
            "make",
            path,
            options.read(true).write(true).create(true).truncate(true),
        )
    }

    /// Opens an existing file for reading and writing.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::with("open", path, fs::OpenOptions::new().read(true).write(true))
    }

    /// Opens an existing file for reading only.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self> {
        let file = check("open", path, open_plain(path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    fn with(operation: &'static str, path: &Path, options: &fs::OpenOptions) -> Result<Self> {
        let file = check(operation, path, options.open(path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> Result<u64> {
        check("look at", &self.path, self.file.metadata()).map(|metadata| metadata.len())
    }

    /// Fills `buffer` from an offset; fails if the file ends before.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        check("read", &self.path, self.file.read_exact_at(buffer, offset))
    }

    /// Writes all of `bytes` at an offset.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        check("write", &self.path, self.file.write_all_at(bytes, offset))
    }

    /// Cuts or extends the file.
    pub(crate) fn set_size(&self, size: u64) -> Result<()> {
        check("cut", &self.path, self.file.set_len(size))
    }

    /// Makes content and size durable.
    pub(crate) fn sync(&self) -> Result<()> {
        check("sync", &self.path, self.file.sync_data())
    }
}

/// Makes a directory and those above it; does nothing if it exists.
pub(crate) fn create_directory(path: &Path) -> Result<()> {
    check("make directory", path, fs::create_dir_all(path))
}

/// The text of a file; `None` if it does not exist.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if is_absent(&error) => Ok(None),
        text => check("read", path, text).map(Some),
    }
}

/// Opens a file of a trial that somebody else may have made: a pipe would block for ever, a device
/// could return endless bytes, and a link could lead to a file outside the trial.
pub(crate) fn open_plain(path: &Path) -> io::Result<fs::File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = fs::OpenOptions::new();
    let file = match options.read(true).custom_flags(flags).open(path) {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(not_plain("it is a link; expected: a file"));
        }
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(not_plain("it is no file; expected: a file"));
    }
    Ok(file)
}

/// The kind of error for a path that is no regular file: [`is_not_plain`] recognizes it.
fn not_plain(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Whether [`open_plain`] found something other than a file.
pub(crate) fn is_not_plain(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none()
}

/// Bytes of memory of this machine. No size in a file is trusted beyond them, because a sparse file
/// can have any size.
pub(crate) fn memory() -> u64 {
    let info = sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    // The type depends on the machine.
    #[allow(clippy::useless_conversion, reason = "it has 32 bits on some machines")]
    u64::from(info.totalram).saturating_mul(unit)
}

/// Writes a file completely and durably, or not at all.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let staged = path.with_file_name(format!(".{name}.{}", process::id()));
    let outcome = (|| {
        let file = File::create(&staged)?;
        file.write_at(text.as_bytes(), 0)?;
        file.sync()?;
        rename(&staged, path)
    })();
    if outcome.is_err() {
        // Whatever went wrong, a half-written file is useless.
        let _ = fs::remove_file(&staged);
    }
    outcome?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Renames a file or directory.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    check("rename", from, fs::rename(from, to))
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let directory = check("open directory", path, fs::File::open(path))?;
    check("sync directory", path, directory.sync_all())
}

/// A file that this process has locked, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: fs::File,
}

/// An attempt to lock a file.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// This process holds it now.
    Held(Lock),
    /// Another process holds it; its id, unless it ended in the meantime.
    HeldBy(Option<i32>),
}

/// Takes the lock of a file for this process, and makes the file if needed.
///
/// The lock belongs to the process (`fcntl`), not to the open file (`flock`): a worker that the
/// script forks must not keep a trial locked after the main process is gone.
pub(crate) fn lock(path: &Path) -> Result<Attempt> {
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = check("open", path, options.open(path))?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Attempt::Held(Lock { _file: file })),
        Err(Errno::AGAIN | Errno::ACCESS) => {
            let holder = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock));
            let holder = check("look at the lock of", path, holder.map_err(io::Error::from))?;
            let process = holder.and_then(|lock| lock.pid);
            Ok(Attempt::HeldBy(
                process.map(|process| process.as_raw_nonzero().get()),
            ))
        }
        Err(error) => check("lock", path, Err(error.into())),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

pub(crate) fn check<T>(operation: &'static str, path: &Path, outcome: io::Result<T>) -> Result<T> {
    outcome.map_err(|source| {
        Failure {
            operation,
            path: path.to_owned(),
            source,
        }
        .into()
    })
}

/// An operation on a file failed.
#[derive(Debug)]
struct Failure {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl Kind for Failure {
    fn class(&self) -> Class {
        Class::StorageFailed
    }

    fn hint(&self) -> Option<String> {
        let hint = match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "make room and run the same command again: it continues"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "make the directory writable and run the same command again: it continues"
            }
            io::ErrorKind::FileTooLarge => {
                "allow larger files (`ulimit -f unlimited`) and run the same command again: it continues"
            }
            _ => "look after the file system and run the same command again: it continues",
        };
        Some(hint.to_owned())
    }

    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }

    fn is_not_found(&self) -> bool {
        is_absent(&self.source)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operation,
            path,
            source,
        } = self;
        write!(
            formatter,
            "cannot {operation} `{}`\n  {source}",
            path.display()
        )
    }
}

/// The directory in which a script was started, relative to a trial directory below it (`../..`),
/// so that both can be moved together; unchanged if the trial lies elsewhere. The files of the
/// script are named in the same way.
pub fn seen_from(trial_dir: &Path, started_in: &Path) -> PathBuf {
    match trial_dir.strip_prefix(started_in) {
        Ok(down) => down.components().map(|_| "..").collect(),
        Err(_) => started_in.to_owned(),
    }
}
