//! The library: `_pedl`, `pedl`, `py_hooks` and the boot site, laid out on disk once per version.
//!
//! Python imports from a directory, and so do the processes that a script spawns, which run a plain
//! interpreter and do not know us. So the files that `build.rs` packed into this executable are
//! written to `<cache>/<version>-<hash>/` by the first run that needs them:
//!
//! 1. they are written below a name that only this process uses; if we die here, a directory is
//!    left that nobody reads;
//! 2. the directory is renamed to its final name, which is one atomic step; if another process was
//!    faster, its directory is as good, and ours is removed.
//!
//! Later runs check (`stat`) whether each file exists with its size: the cleaner of `/var/tmp`
//! removes old files one by one. Nothing is hashed or read. A damaged directory is renamed away and
//! laid out again.
//!
//! Python keeps compiled files beside the source, unless `PYTHONDONTWRITEBYTECODE` or `-B` forbids
//! it, as in images of containers; then it would compile the same files at every start. So the
//! first run with a version of Python compiles them here. If that is not possible, only time is
//! lost.
//!
//! Code is loaded from there, so the cache directory must be ours: owned by this user, not a
//! symlink, and not writable by others.
//!
//! It should also be on a file system that may hold code. In a container with a read-only root
//! there may be none: Docker mounts the writable places with `noexec` by default. Python's files
//! can be read from such a place all the same; `_pedl`, which the kernel must map as code, is then
//! held in the memory of this process (a sealed memfd), and a second directory combines all parts:
//!
//! ```text
//! <cache>/<version>-<hash>/                      as usual
//! <cache>/<version>-<hash>-memory-<pid>-<fd>/    pedl, py_hooks and boot: symlinks into the above
//!     _pedl.abi3.so                              symlink to /proc/<pid>/fd/<fd>
//! ```
//!
//! That lasts as long as this process, the ancestor of all that import from there. The contents
//! depend only on the name, so a directory that is left over is right for the next process of that
//! number.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use rustix::fs::{
    MemfdFlags, SealFlags, StatVfsMountFlags, fcntl_add_seals, memfd_create, statvfs,
};
use rustix::process::geteuid;

use crate::failure::{Exit, Failure};
use crate::interpreter::Interpreter;

#[cfg(not(fuzzing))]
include!(concat!(env!("OUT_DIR"), "/library.rs"));

// The fuzz targets are built without `build.rs`, and lay out nothing.
#[cfg(fuzzing)]
const FILES: &[(&str, &[u8])] = &[];
#[cfg(fuzzing)]
const HASH: &str = "";

/// Compiles all Python files below a directory.
const BYTE_COMPILE: &str = include_str!("byte_compile.py");

/// The only file of the library that the kernel maps as code.
const MODULE: &str = "_pedl.abi3.so";

/// Permission bits that would let others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Where the library is.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    /// The directory for everything that can be made again.
    pub(crate) cache: PathBuf,
    /// `<cache>/<version>-<hash>`, or its replacement if that cannot hold code; an entry of
    /// `PYTHONPATH`.
    pub(crate) directory: PathBuf,
    /// Where its files are.
    laid_out: PathBuf,
}

impl Library {
    /// The directory whose `sitecustomize` boots an interpreter that is executed.
    pub(crate) fn boot_site(&self) -> PathBuf {
        self.directory.join("boot")
    }

    /// Makes the interpreter compile the library, unless one of its version was asked to before.
    pub(crate) fn compile_with(&self, interpreter: &Interpreter) {
        let marker = format!("compiled-{}", interpreter.version);
        // Made first, so that of many runs that begin together only one compiles, and none retries
        // what failed. A library that cannot be written to has no marker and is not compiled.
        if let Err(error) = File::create_new(self.laid_out.join(&marker)) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                tracing::debug!("the library is not compiled: {error}");
            }
            return;
        }
        let outcome = Command::new(&interpreter.executable)
            .args(["-I", "-S", "-c", BYTE_COMPILE])
            .arg(&self.laid_out)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match outcome {
            Ok(status) if status.success() => {}
            Ok(status) => tracing::debug!("compiling the library ended with {status}"),
            Err(error) => tracing::debug!("the library is not compiled: {error}"),
        }
    }
}

/// Finds the library, or lays it out in the first directory that may hold it, including code. If no
/// directory may hold code, lays out everything except code.
pub(crate) fn locate() -> Result<Library, Failure> {
    let name = format!("{}-{HASH}", env!("CARGO_PKG_VERSION"));
    let mut refused = Vec::new();
    let mut without_code = Vec::new();
    for cache in candidates() {
        let directory = cache.join(&name);
        let outcome = match usable(&cache) {
            Ok(Holds::Code) => lay_out(&directory),
            Ok(Holds::Data) => {
                without_code.push((cache, directory));
                continue;
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => {
                return Ok(Library {
                    cache,
                    laid_out: directory.clone(),
                    directory,
                });
            }
            Err(error) => refused.push(format!("`{}`: {error}", cache.display())),
        }
    }
    for (cache, laid_out) in without_code {
        match lay_out(&laid_out).and_then(|()| with_module_in_memory(&laid_out)) {
            Ok(directory) => {
                return Ok(Library {
                    cache,
                    directory,
                    laid_out,
                });
            }
            Err(error) => refused.push(format!("`{}`: {error}", cache.display())),
        }
    }
    let failure = Failure::new(
        Exit::CannotCreate,
        "there is no directory for the library of pedl",
    )
    .hint("name one that this user may write to: PEDL_CACHE_DIR=DIR pedl-run ...");
    Err(refused.into_iter().fold(failure, Failure::detail))
}

/// Directories that may hold the library, best first. Only the last ones are shared with other
/// users, and have the user's number in their name.
fn candidates() -> Vec<PathBuf> {
    let variable = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let of_user = format!("pedl-run-{}", geteuid().as_raw());
    let chosen = variable("PEDL_CACHE_DIR");
    if let Some(chosen) = chosen {
        return vec![std::path::absolute(&chosen).unwrap_or(chosen)];
    }
    [
        variable("XDG_CACHE_HOME").map(|cache| cache.join("pedl-run")),
        variable("HOME").map(|home| home.join(".cache/pedl-run")),
        Some(Path::new("/var/tmp").join(&of_user)),
        Some(env::temp_dir().join(&of_user)),
        Some(Path::new("/dev/shm").join(&of_user)),
    ]
    .into_iter()
    .flatten()
    .filter(|path| path.is_absolute())
    .collect()
}

/// What a directory may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// Everything.
    Code,
    /// Nothing that the kernel maps as code: its file system is mounted with `noexec`.
    Data,
}

/// Makes the cache directory if needed, and checks that it is safe to load code from it.
fn usable(cache: &Path) -> io::Result<Holds> {
    // If a symlink or a file is in its place, `check_owner` reports that, which is the clearer
    // error.
    match cache.symlink_metadata() {
        Ok(metadata) if !metadata.is_dir() => {}
        _ => private_directory().recursive(true).create(cache)?,
    }
    check_owner(cache)?;
    let flags = statvfs(cache)?.f_flag;
    Ok(if flags.contains(StatVfsMountFlags::NOEXEC) {
        Holds::Data
    } else {
        Holds::Code
    })
}

/// Puts `_pedl` into memory, where it stays for the life of this process, and returns the directory
/// that combines it with the rest of a library that is laid out.
fn with_module_in_memory(library: &Path) -> io::Result<PathBuf> {
    let (_, module) = FILES
        .iter()
        .find(|(name, _)| *name == MODULE)
        .ok_or(io::ErrorKind::NotFound)?;
    // It is closed on `exec`: the path refers to the descriptor of this process, not of another.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create(MODULE, flags)?);
    file.write_all(module)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;

    let (process, descriptor) = (process::id(), file.as_raw_fd());
    let mut directory = library.as_os_str().to_owned();
    directory.push(format!("-memory-{process}-{descriptor}"));
    let directory = PathBuf::from(directory);
    private_directory().recursive(true).create(&directory)?;
    check_owner(&directory)?;
    let mut names: Vec<_> = FILES
        .iter()
        .filter_map(|(name, _)| name.split('/').next())
        .collect();
    names.dedup();
    for name in names {
        let target = if name == MODULE {
            format!("/proc/{process}/fd/{descriptor}").into()
        } else {
            library.join(name)
        };
        link(&target, &directory.join(name))?;
    }
    let _ = file.into_raw_fd();
    Ok(directory)
}

/// Makes a symlink, or verifies that it exists.
fn link(target: &Path, path: &Path) -> io::Result<()> {
    match symlink(target, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_link(path)? == target {
                Ok(())
            } else {
                Err(refusal(&format!("`{}` is not ours", path.display())))
            }
        }
        outcome => outcome,
    }
}

fn lay_out(directory: &Path) -> io::Result<()> {
    if is_complete(directory)? {
        return Ok(());
    }
    let beside = |suffix: &str| {
        let mut name = directory.as_os_str().to_owned();
        name.push(format!(".{suffix}-{}", process::id()));
        PathBuf::from(name)
    };
    let staged = beside("new");
    let outcome =
        write_files(&staged).and_then(|()| put_in_place(&staged, directory, &beside("old")));
    if staged.exists() {
        let _ = fs::remove_dir_all(&staged);
    }
    outcome
}

/// Renames the staged directory to its final name, unless a complete one is there by now.
fn put_in_place(staged: &Path, directory: &Path, damaged: &Path) -> io::Result<()> {
    let Err(error) = fs::rename(staged, directory) else {
        return Ok(());
    };
    if is_complete(directory)? {
        return Ok(());
    }
    if error.kind() != io::ErrorKind::DirectoryNotEmpty {
        return Err(error);
    }
    fs::rename(directory, damaged)?;
    let outcome = fs::rename(staged, directory);
    let _ = fs::remove_dir_all(damaged);
    match outcome {
        Err(_) if is_complete(directory)? => Ok(()),
        outcome => outcome,
    }
}

fn write_files(directory: &Path) -> io::Result<()> {
    private_directory().create(directory)?;
    for (name, bytes) in FILES {
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            private_directory().recursive(true).create(parent)?;
        }
        fs::write(path, bytes)?;
    }
    Ok(())
}

/// Whether every file exists with its size. If others could have written it, that is an error, and
/// the caller continues with the next candidate.
fn is_complete(directory: &Path) -> io::Result<bool> {
    match check_owner(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        checked => checked?,
    }
    Ok(FILES.iter().all(|(name, bytes)| {
        directory
            .join(name)
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes.len() as u64)
    }))
}

fn check_owner(directory: &Path) -> io::Result<()> {
    let metadata = directory.symlink_metadata()?;
    if !metadata.is_dir() {
        return Err(refusal("it is not a directory"));
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(refusal(&format!("it belongs to user {}", metadata.uid())));
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(refusal(
            "others may write to it, and code is loaded from there (`chmod go-w` changes that)",
        ));
    }
    Ok(())
}

fn refusal(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

/// Makes directories that only this user may enter.
fn private_directory() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory in which the library may be laid out, whatever the umask of the test is.
    fn cache() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn what_the_cleaner_of_tmp_removed_is_laid_out_again() {
        let cache = cache();
        let directory = cache.path().join("library");
        lay_out(&directory).expect("laid out");
        let victim = directory.join("_pedl.abi3.so");
        fs::remove_file(&victim).expect("removed");
        lay_out(&directory).expect("laid out again");
        assert!(victim.is_file());
        let left: Vec<_> = fs::read_dir(cache.path()).expect("listed").collect();
        assert_eq!(left.len(), 1, "only the library is left: {left:?}");
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let cache = cache();
        let shared = cache.path().join("shared");
        fs::create_dir(&shared).expect("made");
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("opened");
        let error = usable(&shared).expect_err("others may write there");
        assert!(
            error.to_string().starts_with("others may write to it"),
            "{error}"
        );

        let link = cache.path().join("link");
        std::os::unix::fs::symlink(cache.path(), &link).expect("linked");
        let error = usable(&link).expect_err("a symlink can be turned around");
        assert_eq!(error.to_string(), "it is not a directory");
    }

    #[test]
    fn without_a_place_for_code_the_module_is_in_memory() {
        let cache = cache();
        let library = cache.path().join("library");
        lay_out(&library).expect("laid out");
        let directory = with_module_in_memory(&library).expect("in memory");
        for (name, bytes) in FILES {
            let found = fs::read(directory.join(name)).expect("it is there");
            assert!(found == *bytes, "{name} is another file");
        }
        let module = directory.join(MODULE);
        let target = fs::read_link(&module).expect("a symlink");
        assert!(target.starts_with("/proc"), "{target:?}");
        let error = fs::write(&module, "").expect_err("it is sealed");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn the_faster_process_wins() {
        let cache = cache();
        let directory = cache.path().join("library");
        lay_out(&directory).expect("laid out");
        let staged = cache.path().join("staged");
        write_files(&staged).expect("staged");
        put_in_place(&staged, &directory, &cache.path().join("old")).expect("the other is used");
        assert!(is_complete(&directory).expect("readable"));
    }
}
