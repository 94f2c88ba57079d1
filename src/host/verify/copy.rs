//! Copies the user's directory for each run, so that runs do not affect each other, and the
//! directory itself is not changed.
//!
//! The current directory is copied: scripts read and write by paths relative to it. What scripts
//! only read, and what would make the copy large, is linked instead: the history of a version
//! control, virtual environments, and targets of symlinks. Trials (`.pedl`) and byte code are left
//! out. Beside the copy there is a link to each neighbour of the original, so that `../data` is
//! found.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Names that are never copied.
const LEFT_OUT: [&str; 2] = [".pedl", "__pycache__"];

/// Directories that are linked by their names; environments are recognised by their contents.
const LINKED: [&str; 3] = [".git", ".hg", ".svn"];
const MARKS_OF_ENVIRONMENTS: [&str; 2] = ["pyvenv.cfg", "conda-meta"];

/// A directory with more neighbours than this is one of temporary files, or of homes.
const MAX_NEIGHBOURS: usize = 1000;

/// The amount to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Relative paths that are linked instead.
    pub(super) linked: Vec<PathBuf>,
}

/// The treatment of one entry of a directory.
enum Kind {
    File,
    Directory,
    /// With the absolute target.
    Link(PathBuf),
    /// A symlink to something inside of what is copied.
    InnerLink(PathBuf),
    LeftOut,
}

/// Measures what would be copied. Stops once it is more than `limit_bytes`.
pub(super) fn measure(origin: &Path, limit_bytes: u64) -> io::Result<Extent> {
    let mut extent = Extent::default();
    walk(origin, Path::new(""), &mut |path, kind, entry| {
        match kind {
            Kind::File => {
                extent.files += 1;
                extent.bytes += entry.metadata()?.len();
            }
            Kind::Link(_) => extent.linked.push(path.to_owned()),
            Kind::Directory | Kind::InnerLink(_) | Kind::LeftOut => {}
        }
        Ok(extent.bytes <= limit_bytes)
    })?;
    Ok(extent)
}

/// Copies a directory to a path that does not exist yet. Keeps modes, but not times.
pub(super) fn copy(origin: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    walk(origin, Path::new(""), &mut |path, kind, entry| {
        let target = target.join(path);
        match kind {
            Kind::File => {
                // If the file system supports it, the two share their bytes until one of them is
                // written to.
                fs::copy(entry.path(), target)?;
            }
            Kind::Directory => fs::create_dir(target)?,
            Kind::Link(to) | Kind::InnerLink(to) => symlink(to, target)?,
            Kind::LeftOut => {}
        }
        Ok(true)
    })?;
    link_neighbours(origin, target)
}

/// Links the neighbours of the original beside its copy.
fn link_neighbours(origin: &Path, target: &Path) -> io::Result<()> {
    let (Some(above), Some(beside)) = (origin.parent(), target.parent()) else {
        return Ok(());
    };
    let Ok(entries) = above.read_dir() else {
        return Ok(());
    };
    let neighbours: Vec<_> = entries.flatten().take(MAX_NEIGHBOURS + 1).collect();
    if neighbours.len() > MAX_NEIGHBOURS {
        return Ok(());
    }
    for neighbour in neighbours {
        let link = beside.join(neighbour.file_name());
        if link.symlink_metadata().is_err() {
            symlink(neighbour.path(), link)?;
        }
    }
    Ok(())
}

/// Visits each entry, directories before their contents, until `visit` returns false.
fn walk(
    origin: &Path,
    below: &Path,
    visit: &mut impl FnMut(&Path, Kind, &fs::DirEntry) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut entries: Vec<_> = origin.join(below).read_dir()?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        let kind = kind_of(origin, &entry)?;
        let is_directory = matches!(kind, Kind::Directory);
        if !visit(&path, kind, &entry)? || is_directory && !walk(origin, &path, visit)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn kind_of(origin: &Path, entry: &fs::DirEntry) -> io::Result<Kind> {
    let (name, path, of) = (entry.file_name(), entry.path(), entry.file_type()?);
    if LEFT_OUT.iter().any(|left_out| name == *left_out) {
        return Ok(Kind::LeftOut);
    }
    if of.is_symlink() {
        let target = path.parent().unwrap_or(origin).join(path.read_link()?);
        let is_inside = target
            .canonicalize()
            .is_ok_and(|target| target.starts_with(origin) && !is_linked(&name, &target));
        let link = path.read_link()?;
        return Ok(if is_inside && link.is_relative() {
            Kind::InnerLink(link)
        } else {
            Kind::Link(target)
        });
    }
    Ok(if of.is_file() {
        Kind::File
    } else if !of.is_dir() {
        Kind::LeftOut
    } else if is_linked(&name, &path) {
        Kind::Link(path)
    } else {
        Kind::Directory
    })
}

fn is_linked(name: &OsStr, path: &Path) -> bool {
    LINKED.iter().any(|linked| name == *linked)
        || MARKS_OF_ENVIRONMENTS
            .iter()
            .any(|mark| path.join(mark).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_what_the_script_needs_and_no_more() {
        let directory = tempfile::tempdir().expect("there is room");
        let origin = directory
            .path()
            .canonicalize()
            .expect("there")
            .join("work/project");
        for made in [
            "data",
            ".pedl/train",
            ".git",
            "environment",
            "lib/__pycache__",
        ] {
            fs::create_dir_all(origin.join(made)).expect("made");
        }
        fs::create_dir(origin.join("../images")).expect("made");
        for (file, text) in [
            ("train.py", "x"),
            ("data/a.csv", "1,2"),
            (".pedl/train/trial.json", "{}"),
            (".git/HEAD", "ref"),
            ("environment/pyvenv.cfg", ""),
            ("lib/__pycache__/a.pyc", "0"),
        ] {
            fs::write(origin.join(file), text).expect("written");
        }
        symlink("data/a.csv", origin.join("inner")).expect("linked");
        symlink("../images", origin.join("outer")).expect("linked");

        let extent = measure(&origin, 1 << 20).expect("readable");
        assert_eq!((extent.files, extent.bytes), (2, 4));
        assert_eq!(
            extent.linked,
            [".git", "environment", "outer"].map(PathBuf::from)
        );
        assert!(measure(&origin, 2).expect("readable").bytes > 2);

        let target = directory.path().join("copies/project");
        copy(&origin, &target).expect("copied");
        fs::write(target.join("inner"), "9").expect("written");
        assert_eq!(fs::read(target.join("data/a.csv")).expect("there"), b"9");
        assert_eq!(fs::read(origin.join("data/a.csv")).expect("there"), b"1,2");
        assert!(target.join(".git/HEAD").exists() && target.join("outer").is_dir());
        assert!(target.join("../images").canonicalize().is_ok());
        assert!(!target.join(".pedl").exists() && !target.join("lib/__pycache__").exists());
    }
}
