//! The files that are not packed: `.pedlignore`, `.detignore`, and what is never packed.
//!
//! The two files are read as one, `.pedlignore` first, and only those at the top of the directory.
//! Their syntax is that of `.gitignore`: the last line that matches decides, and `!` includes
//! again. The `ignore` crate does the matching. [`pattern`](super::pattern) translates what git
//! reads differently.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::{Skipped, pattern};
use crate::failure::{Exit, Failure};
use crate::supervisor::TRIALS;

/// The files that say what to omit, in reading order. The second is that of PEDL's successor.
const IGNORE_FILES: [&str; 2] = [".pedlignore", ".detignore"];

/// Endings of names of compiled Python: `*.py[co]`, and Jython's.
const COMPILED: [&[u8]; 3] = [b".pyc", b".pyo", b"$py.class"];

/// The directory that Python compiles into.
const CACHE: &str = "__pycache__";

/// The mark that some editors put before a text; git skips it too.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Decides what is not packed.
pub(super) struct Ignored {
    lines: Gitignore,
}

impl Ignored {
    /// Reads the ignore files of a directory, and says which of their lines can match nothing.
    ///
    /// # Errors
    ///
    /// 65 for a file that cannot be read: without it, data would be packed that the user excludes.
    pub(super) fn read(directory: &Path) -> Result<(Self, Vec<Skipped>), Failure> {
        // Paths are matched relative to the directory.
        let mut builder = GitignoreBuilder::new("");
        let mut skipped = Vec::new();
        for name in IGNORE_FILES {
            let path = directory.join(name);
            let text = match fs::read(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(unreadable(&path).detail(error.to_string())),
            };
            for (index, line) in lines(&text).enumerate() {
                let number = index + 1;
                let line = std::str::from_utf8(line).map_err(|_| {
                    unreadable(&path).detail(format!("line {number} is not text in UTF-8"))
                })?;
                if let Err(reason) = add(&mut builder, line) {
                    let path = PathBuf::from(name);
                    let reason = format!("line {number} matches nothing, as with git: {reason}");
                    skipped.push(Skipped { path, reason });
                }
            }
        }
        let lines = builder.build().map_err(|error| {
            let what = format!("what `{}` omits cannot be decided", directory.display());
            Failure::new(Exit::Configuration, what).detail(error.to_string())
        })?;
        Ok((Self { lines }, skipped))
    }

    /// Whether something is not packed; it is not called for anything below an omitted directory.
    ///
    /// Args: `path` is relative to the directory of the definition.
    pub(super) fn omits(&self, path: &Path, is_directory: bool) -> bool {
        let name = path.file_name().unwrap_or_default();
        let is_ignore_file = || IGNORE_FILES.iter().any(|it| path == Path::new(it));
        let is_trials = || is_directory && name == TRIALS;
        is_compiled(name)
            || is_ignore_file()
            || is_trials()
            || self.lines.matched(path, is_directory).is_ignore()
    }
}

fn unreadable(path: &Path) -> Failure {
    let what = format!("`{}` cannot be read", path.display());
    Failure::new(Exit::Configuration, what).hint("what it omits cannot be told without it")
}

fn is_compiled(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    name == CACHE || COMPILED.iter().any(|ending| bytes.ends_with(ending))
}

/// The lines of a file, split as by git: after LF or CR LF.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

/// Adds a line of an ignore file; returns why it can match nothing.
fn add(builder: &mut GitignoreBuilder, line: &str) -> Result<(), String> {
    if line.starts_with('#') {
        return Ok(());
    }
    let spelled = pattern::spell(line)?;
    match builder.add_line(None, &spelled) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
