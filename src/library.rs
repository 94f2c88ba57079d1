//! The library: `_pedl`, `pedl`, `py_hooks` and the boot site, laid out on disk once per version.
//!
//! Python imports from a directory, and so do the processes that a script spawns, which run a plain
//! interpreter and know nothing of us. So the files that `build.rs` packed into this executable are
//! written to `<cache>/<version>-<hash>/` by the first run that needs them:
//!
//! 1. they are written below a name of this process's own; if we die here, a directory that nobody
//!    looks into is left;
//! 2. it is renamed to its final name, which is one atomic step; if another process was faster, its
//!    directory is as good, and ours is removed.
//!
//! Later runs look (`stat`) whether each file is there with its size: the cleaner of `/var/tmp`
//! removes old files one by one. Nothing is hashed or read. A damaged directory is renamed away and
//! laid out again.
//!
//! Code is loaded from there, so the cache directory must be ours: owned by this user, not a symlink,
//! not writable by others, and on a file system that may hold code (`noexec`).

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::geteuid;

use crate::failure::{Exit, Failure};

include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// Permission bits that would let others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Where the library is.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    /// The directory for everything that can be made anew.
    pub(crate) cache: PathBuf,
    /// `<cache>/<version>-<hash>`; an entry of `PYTHONPATH`.
    pub(crate) directory: PathBuf,
}

impl Library {
    /// The directory whose `sitecustomize` boots an interpreter that is executed.
    pub(crate) fn boot_site(&self) -> PathBuf {
        self.directory.join("boot")
    }
}

/// Finds the library, or lays it out in the first directory that may hold it.
pub(crate) fn locate() -> Result<Library, Failure> {
    let name = format!("{}-{HASH}", env!("CARGO_PKG_VERSION"));
    let mut refused = Vec::new();
    for cache in candidates() {
        let directory = cache.join(&name);
        match usable(&cache).and_then(|()| lay_out(&directory)) {
            Ok(()) => return Ok(Library { cache, directory }),
            Err(error) => refused.push(format!("`{}`: {error}", cache.display())),
        }
    }
    let failure = Failure::new(
        Exit::CannotCreate,
        "there is no directory for the library of pedl",
    )
    .hint("name one with `PEDL_CACHE_DIR`");
    Err(refused.into_iter().fold(failure, Failure::detail))
}

/// Directories that may hold the library, best first. Only the last ones are shared with other
/// users, and carry the user's number in their name.
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

/// Makes the cache directory if need be, and checks that code may be loaded from it.
fn usable(cache: &Path) -> io::Result<()> {
    private_directory().recursive(true).create(cache)?;
    check_owner(cache)?;
    if statvfs(cache)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(refusal("its file system is mounted with noexec"));
    }
    Ok(())
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

/// Whether every file is there with its size. What others could have written is an error, which
/// makes the caller go on to the next candidate.
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
        return Err(refusal("others may write to it"));
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
        assert_eq!(error.to_string(), "others may write to it");

        let link = cache.path().join("link");
        std::os::unix::fs::symlink(cache.path(), &link).expect("linked");
        let error = usable(&link).expect_err("a symlink can be turned around");
        assert_eq!(error.to_string(), "it is not a directory");
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
