//! The tar archive of a model definition. The documentation of the [parent](super) describes its
//! format.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tar::{Builder, EntryType, Header};

use super::{Definition, Entry, Kind, shown};
use crate::failure::{Exit, Failure};

/// Modes in the archive: of files, and of executables and directories.
const PLAIN: u32 = 0o644;
const EXECUTABLE: u32 = 0o755;

/// Packs a model definition.
///
/// # Errors
///
/// 64 if `output` exists already, 73 if it cannot be written, 65 if a file is no longer what was
/// listed, 130 after a signal that asks for the end. In these cases no file is left.
pub(crate) fn pack(definition: &Definition, output: &Path) -> Result<(), Failure> {
    check_free(output)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|error| Failure::bug("a system call failed").detail(error.to_string()))?;
    }
    let cannot = |error: io::Error| cannot_write(output, &error);
    let (staged, file) = Staged::new(output).map_err(cannot)?;
    let mut archive = Builder::new(BufWriter::new(file));
    for entry in &definition.entries {
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::new(Exit::Interrupted, "packing was interrupted"));
        }
        append(&mut archive, definition, entry, output)?;
    }
    let mut file = archive.into_inner().map_err(cannot)?;
    file.flush().map_err(cannot)?;
    staged.commit(output)
}

/// Fails if something of that name exists.
pub(crate) fn check_free(output: &Path) -> Result<(), Failure> {
    if fs::symlink_metadata(output).is_err() {
        return Ok(());
    }
    let what = format!("`{}` is there already", output.display());
    Err(Failure::new(Exit::Usage, what).hint("name another file with `--output FILE`"))
}

fn cannot_write(output: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot write `{}`", output.display());
    Failure::new(Exit::CannotCreate, what)
        .detail(error.to_string())
        .hint("name a file elsewhere with `--output FILE`")
}

fn append(
    archive: &mut Builder<BufWriter<File>>,
    definition: &Definition,
    entry: &Entry,
    output: &Path,
) -> Result<(), Failure> {
    let (path, mut header) = (&entry.path, header_of(entry));
    let appended = match &entry.kind {
        Kind::Empty => archive.append_data(&mut header, path.join(""), io::empty()),
        Kind::Link(target) => archive.append_link(&mut header, path, target),
        Kind::File { bytes, .. } => {
            let changed = || has_changed(path);
            let file = File::open(definition.directory.join(path)).map_err(|_| changed())?;
            if file.metadata().is_ok_and(|it| it.len() != *bytes) {
                return Err(changed());
            }
            let mut content = file.take(*bytes);
            let appended = archive.append_data(&mut header, path, &mut content);
            // The file became shorter while it was read.
            if appended.is_ok() && content.limit() > 0 {
                return Err(changed());
            }
            appended
        }
    };
    appended.map_err(|error| cannot_write(output, &error))
}

fn has_changed(path: &Path) -> Failure {
    let what = format!("`{}` has changed while it was packed", shown(path));
    Failure::new(Exit::Configuration, what).hint("run the same command again")
}

/// The header of an entry, except its name.
fn header_of(entry: &Entry) -> Header {
    let (kind, mode) = match entry.kind {
        Kind::File { is_executable, .. } => {
            let mode = if is_executable { EXECUTABLE } else { PLAIN };
            (EntryType::Regular, mode)
        }
        Kind::Link(_) => (EntryType::Symlink, PLAIN),
        Kind::Empty => (EntryType::Directory, EXECUTABLE),
    };
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(entry.bytes());
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// A file that is not complete yet, and is removed unless it is committed.
struct Staged(PathBuf);

impl Staged {
    /// Makes one next to its final name.
    fn new(output: &Path) -> io::Result<(Self, File)> {
        let name = output.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut staged = OsString::from(".");
        staged.push(name);
        staged.push(format!(".pedl-{}", std::process::id()));
        let path = output.with_file_name(staged);
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o666);
        let file = options.open(&path)?;
        Ok((Self(path), file))
    }

    /// Renames it to its final name, unless something has taken that name meanwhile.
    fn commit(self, output: &Path) -> Result<(), Failure> {
        let renamed = renameat_with(CWD, &self.0, CWD, output, RenameFlags::NOREPLACE);
        let renamed = match renamed {
            // The file system does not support both at once.
            Err(Errno::INVAL) => {
                check_free(output)?;
                fs::rename(&self.0, output)
            }
            other => other.map_err(io::Error::from),
        };
        renamed.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => check_free(output)
                .err()
                .unwrap_or_else(|| cannot_write(output, &error)),
            _ => cannot_write(output, &error),
        })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After `commit` the file does not exist.
        let _ = fs::remove_file(&self.0);
    }
}
