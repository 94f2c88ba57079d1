//! A copy of the tree, in which one line at a time is changed.
//!
//! The executable lays out its Python files in a cache directory and only checks that each exists
//! with its size. So a copy has a separate cache, and a line of Python is changed there too, in a
//! file that is made as long as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{At as _, Failure, Result};
use crate::process::{self, Output, Running};
use crate::repository::Repository;

/// The places of Python files of the tree in the library: `TREES` in `build.rs`, the innermost
/// first.
const PLACES: [(&str, &str); 3] = [
    ("py_hooks/boot_site", "boot"),
    ("py_hooks", "py_hooks"),
    ("shims/pedl", "pedl"),
];

/// The text that begins the file of a module, and ends its docstring.
const QUOTES: &str = "\"\"\"";

/// The time in which git lists the tree, or the executable lays out its files.
const LIMIT: Duration = Duration::from_secs(60);

/// A copy of the tree.
pub(super) struct Copy {
    pub(super) tree: PathBuf,
    /// The cache directory with the library of its runs of the executable.
    pub(super) cache: PathBuf,
    pub(super) executable: PathBuf,
}

impl Copy {
    /// Copies the tree as it is, uncommitted changes included.
    pub(super) fn new(
        original: &Repository,
        directory: &Path,
        executable: PathBuf,
    ) -> Result<Self> {
        let (tree, cache) = (directory.join("tree"), directory.join("cache"));
        for path in [&tree, &cache] {
            if path.exists() {
                fs::remove_dir_all(path).at("remove", path)?;
            }
            fs::create_dir_all(path).at("create", path)?;
        }
        let mut git = process::command("git");
        git.current_dir(original.root());
        git.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let mut listing = Running::start(git, Output::KeepStdout)?;
        listing.wait(LIMIT)?;
        for name in listing
            .text()
            .split('\0')
            .filter(|name| !name.trim().is_empty())
        {
            let (from, to) = (original.root().join(name), tree.join(name));
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).at("create", folder)?;
            }
            if from.is_file() {
                fs::copy(&from, &to).at("copy", &from)?;
            }
        }
        Ok(Self {
            tree,
            cache,
            executable,
        })
    }

    /// Makes the executable lay out its library in the cache of the copy; returns the directory.
    pub(super) fn lay_out(&self) -> Result<PathBuf> {
        let mut version = process::python(&self.executable);
        version
            .env("PEDL_CACHE_DIR", &self.cache)
            .args(["-c", "pass"]);
        let mut started = Running::start(version, Output::Keep)?;
        let ended = started.wait(LIMIT)?;
        let entries = fs::read_dir(&self.cache).at("read", &self.cache)?;
        entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.join("py_hooks").is_dir())
            .ok_or_else(|| {
                Failure::new(format!(
                    "no library was laid out: {}, {}",
                    ended.describe(),
                    started.text()
                ))
            })
    }
}

/// Files that stay changed until this is dropped.
pub(super) struct Changed(Vec<(PathBuf, Vec<u8>)>);

impl Changed {
    /// Changes nothing yet.
    pub(super) fn nothing() -> Self {
        Self(Vec::new())
    }

    pub(super) fn write(&mut self, path: &Path, text: &str) -> Result<()> {
        let before = fs::read(path).at("read", path)?;
        self.0.push((path.to_owned(), before));
        fs::write(path, text).at("write", path)?;
        forget_compiled(path);
        Ok(())
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            // A copy that cannot be restored would spoil all later tests: they fail without a
            // change, which is reported.
            let _ = fs::write(path, before);
            forget_compiled(path);
        }
    }
}

/// Removes the byte code of a file, because it is not compared with its source.
fn forget_compiled(path: &Path) {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else {
        return;
    };
    let beginning = format!("{}.", stem.to_string_lossy());
    for entry in fs::read_dir(folder.join("__pycache__"))
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry.file_name().to_string_lossy().starts_with(&beginning) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The place of a Python file of the tree in the library.
pub(super) fn laid_out(library: &Path, file: &Path) -> Option<PathBuf> {
    PLACES
        .iter()
        .find_map(|(tree, place)| Some(library.join(place).join(file.strip_prefix(tree).ok()?)))
}

/// A module that does the same and has this length: empty lines are added to its end, or its
/// docstring is cut.
pub(super) fn of_length(text: &str, length: usize) -> Result<String> {
    let Some(excess) = text.len().checked_sub(length) else {
        return Ok(format!("{text}{}", "\n".repeat(length - text.len())));
    };
    let docstring = text
        .strip_prefix(QUOTES)
        .and_then(|rest| Some(&rest[..rest.find(QUOTES)?]))
        .unwrap_or_default();
    match docstring.get(..excess) {
        Some(cut) if docstring.is_ascii() => {
            Ok(format!("{QUOTES}{}", &text[QUOTES.len() + cut.len()..]))
        }
        _ => Err(Failure::new(format!(
            "a mutation is longer by {excess} bytes than the docstring of its file is"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_module_is_as_long_as_it_was() {
        let text = "\"\"\"What it is.\"\"\"\nx = 1\n";
        for to in ["x = 10000\n", "x\n", "x = 2\n"] {
            let changed = of_length(&text.replace("x = 1\n", to), text.len()).expect("it fits");
            assert_eq!(changed.len(), text.len());
            assert!(changed.starts_with("\"\"\"") && changed.trim_end().ends_with(to.trim_end()));
        }
        of_length("x = 10000\n", 3).expect_err("it has no docstring");
    }

    #[test]
    fn a_file_of_the_tree_has_its_place_in_the_library() {
        let place = |file: &str| laid_out(Path::new("/l"), Path::new(file));
        assert_eq!(place("shims/pedl/data.py"), Some("/l/pedl/data.py".into()));
        assert_eq!(
            place("py_hooks/boot/process.py"),
            Some("/l/py_hooks/boot/process.py".into())
        );
        assert_eq!(
            place("py_hooks/boot_site/x.py"),
            Some("/l/boot/x.py".into())
        );
        assert_eq!(place("src/host/main.rs"), None);
    }
}
