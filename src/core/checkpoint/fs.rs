//! Access to the file system: all file access of checkpoints.
//!
//! It is a trait, so that the crash tests can stop at any operation and show what a machine that
//! lost power there would find. A failure gets its operation and its path here, once.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, CWD, RenameFlags, fadvise, renameat_with, symlinkat};
use rustix::io::Errno;

use super::failure::Failure;
use crate::error::Result;
use crate::file;

/// The operations that checkpoints need.
pub trait FileSystem: Debug + Send + Sync + 'static {
    /// Makes one directory; `false` if it exists already.
    fn make_directory(&self, path: &Path) -> Result<bool>;
    /// Makes an empty file, with these permission bits less the umask; fails if the name is taken.
    fn create(&self, path: &Path, mode: u32) -> Result<Box<dyn WriteFile>>;
    /// Sets all permission bits of a file.
    fn set_mode(&self, path: &Path, mode: u32) -> Result<()>;
    /// Opens a file for reading from its start.
    fn open(&self, path: &Path) -> Result<Box<dyn ReadFile>>;
    /// Like `open`, for a file of a trial, which must be a regular file: no link, pipe or device.
    fn open_plain(&self, path: &Path) -> Result<Box<dyn ReadFile>> {
        self.open(path)
    }
    /// Makes content and size of a file durable.
    fn sync_file(&self, path: &Path) -> Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> Result<()>;
    /// Renames `from` to `to`, and replaces a file, link or empty directory at that name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Exchanges what two names in one directory refer to, atomically; `false`, and no change, if
    /// the file system cannot.
    fn exchange(&self, one: &Path, other: &Path) -> Result<bool>;
    /// Makes a symbolic link at `link`; fails if the name is taken. `false`, and no change, if the
    /// file system has no links.
    fn symlink(&self, target: &Path, link: &Path) -> Result<bool>;
    /// Removes a file or link; `false` if there is none.
    fn remove_file(&self, path: &Path) -> Result<bool>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> Result<()>;
    /// The names in a directory, sorted; none if it does not exist.
    fn list(&self, path: &Path) -> Result<Vec<OsString>>;
    /// The file or directory at a path, links followed; `None` if there is none.
    fn stat(&self, path: &Path) -> Result<Option<Stat>>;
    /// Whether the name is that of a directory; a link to a directory is none.
    fn is_directory(&self, path: &Path) -> Result<bool>;
    /// The path without links.
    fn resolve(&self, path: &Path) -> Result<PathBuf>;
    /// Fills a buffer from the random source of the operating system.
    fn random(&self, buffer: &mut [u8]) -> Result<()>;
}

/// A file being written.
pub trait WriteFile: Debug + Send {
    /// Appends all of `bytes`.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes the system start to write to the disk what was appended so far, without waiting:
    /// [`sync`](Self::sync) waits, and reports errors.
    fn begin_sync(&mut self);
    /// Makes content and size durable.
    fn sync(&mut self) -> Result<()>;
}

/// A file being read.
pub trait ReadFile: Debug + Send {
    /// Reads more bytes; fewer than requested only at the end of the file.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize>;
}

/// What is known of a file without reading it. If two are equal, the file is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Number of the file on its device.
    pub inode: u64,
    /// Time of the last change of content, seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// Makes a directory, and missing directories above it. Durable when this returns.
pub(super) fn make_directories<F: FileSystem>(fs: &F, path: &Path) -> Result<()> {
    if fs.stat(path)?.is_some() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(fs, parent)?;
        fs.make_directory(path)?;
        fs.sync_directory(parent)?;
    }
    Ok(())
}

/// Removes a directory that holds only files.
pub(super) fn remove_with_files<F: FileSystem>(fs: &F, directory: &Path) -> Result<()> {
    for name in fs.list(directory)? {
        fs.remove_file(&directory.join(name))?;
    }
    fs.remove_directory(directory)
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFileSystem;

impl FileSystem for RealFileSystem {
    fn make_directory(&self, path: &Path) -> Result<bool> {
        match fs::DirBuilder::new().mode(0o777).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            outcome => check("make directory", path, outcome).map(|()| true),
        }
    }

    fn create(&self, path: &Path, mode: u32) -> Result<Box<dyn WriteFile>> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let file = check("make", path, options.open(path))?;
        Ok(Box::new(RealFile {
            path: path.to_owned(),
            file,
            written: 0,
            begun: 0,
        }))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> Result<()> {
        let permissions = fs::Permissions::from_mode(mode);
        check(
            "set the mode of",
            path,
            fs::set_permissions(path, permissions),
        )
    }

    fn open(&self, path: &Path) -> Result<Box<dyn ReadFile>> {
        let file = check("open", path, fs::File::open(path))?;
        Ok(Box::new(RealFile {
            path: path.to_owned(),
            file,
            written: 0,
            begun: 0,
        }))
    }

    fn open_plain(&self, path: &Path) -> Result<Box<dyn ReadFile>> {
        let file = check("open", path, file::open_plain(path))?;
        Ok(Box::new(RealFile {
            path: path.to_owned(),
            file,
            written: 0,
            begun: 0,
        }))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        let file = check("open", path, fs::File::open(path))?;
        check("sync", path, file.sync_all())
    }

    fn sync_directory(&self, path: &Path) -> Result<()> {
        let directory = check("open directory", path, fs::File::open(path))?;
        check("sync directory", path, directory.sync_all())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        check("rename", from, fs::rename(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
            Err(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP) => Ok(false),
            outcome => check("rename", one, outcome.map_err(io::Error::from)).map(|()| true),
        }
    }

    fn symlink(&self, target: &Path, link: &Path) -> Result<bool> {
        match symlinkat(target, CWD, link) {
            // FAT, and file systems that mount an object store.
            Err(Errno::PERM | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
            outcome => check("make link", link, outcome.map_err(io::Error::from)).map(|()| true),
        }
    }

    fn remove_file(&self, path: &Path) -> Result<bool> {
        match fs::remove_file(path) {
            Err(error) if is_absent(&error) => Ok(false),
            outcome => check("remove", path, outcome).map(|()| true),
        }
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        check("remove directory", path, fs::remove_dir(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<OsString>> {
        let entries = match fs::read_dir(path) {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            outcome => check("list", path, outcome)?,
        };
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        let mut names = check("list", path, names.collect::<io::Result<Vec<_>>>())?;
        names.sort();
        Ok(names)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        let metadata = match fs::metadata(path) {
            Err(error) if is_absent(&error) => return Ok(None),
            outcome => check("look at", path, outcome)?,
        };
        Ok(Some(Stat {
            size: metadata.len(),
            mode: metadata.mode() & 0o7777,
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            is_directory: metadata.is_dir(),
        }))
    }

    fn is_directory(&self, path: &Path) -> Result<bool> {
        match fs::symlink_metadata(path) {
            Err(error) if is_absent(&error) => Ok(false),
            outcome => check("look at", path, outcome).map(|metadata| metadata.is_dir()),
        }
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        check("resolve", path, fs::canonicalize(path))
    }

    fn random(&self, buffer: &mut [u8]) -> Result<()> {
        let path = Path::new("/dev/urandom");
        let mut source = check("open", path, fs::File::open(path))?;
        check("read", path, source.read_exact(buffer))
    }
}

#[derive(Debug)]
struct RealFile {
    path: PathBuf,
    file: fs::File,
    /// Bytes appended, and how many of them the system was asked to write.
    written: u64,
    begun: u64,
}

impl WriteFile for RealFile {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        check("write", &self.path, self.file.write_all(bytes))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn begin_sync(&mut self) {
        // If a program says that it does not need pages, Linux starts to write the dirty ones; they
        // stay until they are written. It is advice: if it has no effect, `sync` writes everything.
        if let Some(bytes) = NonZeroU64::new(self.written - self.begun) {
            let _ = fadvise(&self.file, self.begun, Some(bytes), Advice::DontNeed);
            self.begun = self.written;
        }
    }

    fn sync(&mut self) -> Result<()> {
        check("sync", &self.path, self.file.sync_all())
    }
}

impl ReadFile for RealFile {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return check("read", &self.path, Err(error)),
            }
        }
        Ok(filled)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn check<T>(operation: &'static str, path: &Path, outcome: io::Result<T>) -> Result<T> {
    outcome.map_err(|source| {
        Failure::Io {
            operation,
            path: path.to_owned(),
            source,
        }
        .into()
    })
}
