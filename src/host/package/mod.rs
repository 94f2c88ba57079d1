//! The files of a model definition that travel, and their package.
//!
//! A model definition is a directory, and everything in it travels with it: modules, data files,
//! hidden files. What stays behind, in the order in which it is decided:
//!
//! | what | why |
//! |---|---|
//! | `.pedlignore`, `.detignore` at the top | they describe the package, and are no part of it |
//! | `.pyc`, `.pyo`, `$py.class`, `__pycache__` | interpreters recompile; `!` has no effect |
//! | `.pedl` directories | trials that were run in place |
//! | what the two files omit | the syntax of `.gitignore`, see [`ignored`] |
//! | unreadable files, symlinks that lead out, sockets and similar | each is reported in a line |
//!
//! An omitted directory is not searched, so nothing below it can be included again: git does the
//! same. Directories are not listed, except one in which nothing else travels; a script may write
//! into it. More than [`LIMIT_BYTES`] of files do not travel.
//!
//! # The package
//!
//! A tar archive in the format of GNU, not compressed. It depends only on names, contents and the
//! owner's right to execute, so that two packings of the same definition are equal byte by byte:
//! entries are sorted by the bytes of their paths; times, users and groups are 0; modes are 644 and
//! 755. It is staged next to its final name, and renamed when it is complete; an existing file is
//! never replaced.
//!
//! [`pattern`] translates a line for the `ignore` crate, [`links`] follows symlinks, [`archive`]
//! packs.

mod archive;
mod ignored;
mod links;
mod pattern;

use std::fs::{self, DirEntry, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure};
pub(crate) use archive::{check_free, pack};
use ignored::Ignored;

/// The most bytes of files that travel: 95 MiB, as for the successor of PEDL, whose master accepts
/// no larger request.
pub(crate) const LIMIT_BYTES: u64 = 95 << 20;

/// How many files are named if there is too much.
const NUM_NAMED: usize = 10;

/// The right to execute of a file's owner.
const OWNER_EXECUTES: u32 = 0o100;

/// The files that travel of a directory.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) directory: PathBuf,
    /// Sorted by the bytes of their paths.
    pub(crate) entries: Vec<Entry>,
    /// Files that should travel but cannot, and lines of the ignore files that have no meaning.
    pub(crate) skipped: Vec<Skipped>,
}

/// A file, link or directory that travels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Relative to the directory.
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
}

/// The kind of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File {
        bytes: u64,
        is_executable: bool,
    },
    /// A symlink that stays inside, and its content.
    Link(PathBuf),
    /// A directory in which nothing travels.
    Empty,
}

/// Something that does not travel although nothing omits it.
#[derive(Debug)]
pub(crate) struct Skipped {
    pub(crate) path: PathBuf,
    pub(crate) reason: String,
}

impl Entry {
    /// Bytes of content.
    pub(crate) fn bytes(&self) -> u64 {
        match self.kind {
            Kind::File { bytes, .. } => bytes,
            Kind::Link(_) | Kind::Empty => 0,
        }
    }
}

impl Definition {
    /// Lists a directory.
    ///
    /// # Errors
    ///
    /// 64 if it is not a directory, 65 if an ignore file cannot be used or there is more than
    /// [`LIMIT_BYTES`].
    pub(crate) fn read(directory: &Path) -> Result<Self, Failure> {
        check_directory(directory)?;
        let (ignored, skipped) = Ignored::read(directory)?;
        let definition = Self {
            directory: directory.to_owned(),
            entries: Vec::new(),
            skipped,
        };
        let mut walk = Walk {
            definition,
            ignored,
        };
        let there = walk.list(Path::new("")).map_err(|error| {
            let what = format!("cannot list `{}`", directory.display());
            Failure::new(Exit::Usage, what).detail(error.to_string())
        })?;
        walk.take_all(there);
        let mut definition = walk.definition;
        definition
            .entries
            .sort_by(|one, other| bytes_of(&one.path).cmp(bytes_of(&other.path)));
        definition.check_limit()?;
        Ok(definition)
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.iter().map(Entry::bytes).sum()
    }

    fn check_limit(&self) -> Result<(), Failure> {
        let bytes = self.bytes();
        if bytes <= LIMIT_BYTES {
            return Ok(());
        }
        let what = format!(
            "`{}` is too large: {bytes} bytes would travel",
            self.directory.display()
        );
        let mut files: Vec<_> = self.entries.iter().filter(|it| it.bytes() > 0).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.bytes()));
        let failure = Failure::new(Exit::Configuration, what)
            .detail(format!("expected: at most {LIMIT_BYTES} bytes (95 MiB)"))
            .detail(format!(
                "the largest of {} are, in bytes:",
                count(files.len(), "file")
            ));
        let named = files.iter().take(NUM_NAMED);
        let failure = named.fold(failure, |failure, file| {
            failure.detail(format!("{:>12}  {}", file.bytes(), shown(&file.path)))
        });
        let hint = "name what can stay behind in `.pedlignore`, in the syntax of `.gitignore`";
        Err(failure.hint(hint))
    }
}

/// Reads the ignore files of a directory, and applies them to a path.
#[cfg(any(test, fuzzing))]
pub(crate) fn try_ignored(directory: &Path, path: &Path) {
    if let Ok((ignored, _)) = Ignored::read(directory) {
        let relative = path.strip_prefix("/").unwrap_or(path);
        for is_directory in [false, true] {
            ignored.omits(relative, is_directory);
        }
    }
}

fn check_directory(directory: &Path) -> Result<(), Failure> {
    let problem = match fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => "there is something else of that name".to_owned(),
        Err(error) => error.to_string(),
    };
    let what = format!("`{}` is no directory", directory.display());
    Err(Failure::new(Exit::Usage, what)
        .detail(problem)
        .hint("name the directory of a model definition: `pedl package DIR`"))
}

/// The walk through a directory.
struct Walk {
    definition: Definition,
    ignored: Ignored,
}

impl Walk {
    /// The entries of a directory of the definition.
    fn list(&self, directory: &Path) -> io::Result<Vec<DirEntry>> {
        fs::read_dir(self.definition.directory.join(directory))?.collect()
    }

    fn take_all(&mut self, there: Vec<DirEntry>) {
        for entry in there {
            let full = entry.path();
            let path = full
                .strip_prefix(&self.definition.directory)
                .unwrap_or(&full);
            if let Err(error) = self.take(&full, path) {
                self.skip(path, format!("it cannot be read: {error}"));
            }
        }
    }

    fn skip(&mut self, path: &Path, reason: String) {
        let path = path.to_owned();
        self.definition.skipped.push(Skipped { path, reason });
    }

    fn push(&mut self, path: &Path, kind: Kind) {
        let path = path.to_owned();
        self.definition.entries.push(Entry { path, kind });
    }

    /// Adds one entry, if it travels.
    fn take(&mut self, full: &Path, path: &Path) -> io::Result<()> {
        let metadata = fs::symlink_metadata(full)?;
        if self.ignored.omits(path, metadata.is_dir()) {
            return Ok(());
        }
        if metadata.is_dir() {
            self.take_directory(path)?;
        } else if metadata.is_symlink() {
            self.take_link(full, path)?;
        } else if metadata.is_file() {
            self.take_file(full, path)?;
        } else {
            self.skip(path, "it is neither a file nor a directory".to_owned());
        }
        Ok(())
    }

    fn take_directory(&mut self, path: &Path) -> io::Result<()> {
        let there = self.list(path)?;
        let before = self.definition.entries.len();
        self.take_all(there);
        if self.definition.entries.len() == before {
            self.push(path, Kind::Empty);
        }
        Ok(())
    }

    fn take_link(&mut self, full: &Path, path: &Path) -> io::Result<()> {
        let target = fs::read_link(full)?;
        match links::trouble(&self.definition.directory, path, &target) {
            None => self.push(path, Kind::Link(target)),
            Some(trouble) => self.skip(path, format!("it is a symlink that {trouble}")),
        }
        Ok(())
    }

    fn take_file(&mut self, full: &Path, path: &Path) -> io::Result<()> {
        // Opened now, so that what is listed can be packed.
        let metadata = File::open(full)?.metadata()?;
        let kind = Kind::File {
            bytes: metadata.len(),
            is_executable: is_executable(&metadata),
        };
        self.push(path, kind);
        Ok(())
    }
}

fn is_executable(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & OWNER_EXECUTES != 0
}

fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// A path in one line, whatever characters it has.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.contains(char::is_control) {
        text.escape_debug().to_string()
    } else {
        text.into_owned()
    }
}

/// A number of things, in words.
pub(crate) fn count(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}
