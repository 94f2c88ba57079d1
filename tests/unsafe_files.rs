//! Tests that unsafe code is in few files, and that the list of them is correct.

use std::fs;
use std::path::{Path, PathBuf};

const LIST: &str = include_str!("unsafe_files.txt");

pub(crate) fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory)
        .expect("a source directory")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Whether a line of source opens unsafe code: a block, a function, an implementation, an
/// attribute.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    [
        "unsafe {",
        "unsafe fn",
        "unsafe impl",
        "unsafe extern",
        "#[unsafe(",
    ]
    .iter()
    .any(|opening| code.contains(opening))
}

#[test]
fn unsafe_code_is_where_the_list_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("build.rs")];
    rust_files(&root.join("src"), &mut files);
    let mut found: Vec<_> = files
        .iter()
        .filter(|path| {
            fs::read_to_string(path)
                .expect("readable")
                .lines()
                .any(is_unsafe)
        })
        .map(|path| {
            path.strip_prefix(root)
                .expect("below the root")
                .display()
                .to_string()
        })
        .collect();
    found.sort();
    let listed: Vec<_> = LIST
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_whitespace().next().expect("a path"))
        .collect();
    assert_eq!(
        found, listed,
        "left: the source; right: tests/unsafe_files.txt"
    );
}
