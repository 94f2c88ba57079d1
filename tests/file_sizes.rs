//! Tests that a file of Rust has at most 600 lines. Clippy holds the length of functions
//! (`too-many-lines-threshold` in `.clippy.toml`).

use std::fs;
use std::path::Path;

use crate::unsafe_files::rust_files;

const MAX_LINES: usize = 600;

/// Files that may be longer, and why.
const EXCEPTIONS: [(&str, &str); 3] = [
    ("src/core/checkpoint/crash_fs.rs", "a part of tests"),
    ("src/core/training.rs", "its parts are not separated yet"),
    ("src/native/trial.rs", "its parts are not separated yet"),
];

#[test]
fn no_file_is_too_long() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    let too_long: Vec<_> = files
        .iter()
        .filter_map(|path| {
            let name = path.strip_prefix(root).expect("below the root");
            let is_excepted = EXCEPTIONS.iter().any(|(other, _)| name == Path::new(other));
            let is_of_tests = name.components().any(|part| part.as_os_str() == "tests")
                || name.file_stem().is_some_and(|stem| stem == "tests");
            let lines = fs::read_to_string(path).expect("readable").lines().count();
            (lines > MAX_LINES && !is_excepted && !is_of_tests)
                .then(|| format!("{}: {lines}", name.display()))
        })
        .collect();
    assert!(
        too_long.is_empty(),
        "files with more than {MAX_LINES} lines: {too_long:?}; split them by idea"
    );
}
