//! Builds the extension module `_pedl` and packs it with our Python files into the executable.
//!
//! Cargo cannot yet make a binary depend on another crate's cdylib (artifact dependencies are
//! unstable), so a nested `cargo build` does it. It works in a target directory of its own below
//! `OUT_DIR`: cargo holds a lock on the outer one while this script runs. No Python is needed.
//!
//! What comes out is `OUT_DIR/library.rs`: one table of (path in the library, bytes) and one hash
//! over all of it, so that the executable never has to hash anything at run time.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// Trees of Python files, and where in the library each is laid out. The boot site lies beside
/// `py_hooks`, because it is an entry of `PYTHONPATH` by itself.
const TREES: [(&str, &str); 3] = [
    ("shims/pedl", "pedl"),
    ("py_hooks", "py_hooks"),
    ("py_hooks/boot_site", "boot"),
];

/// Directories that are not part of the tree they lie in.
const SKIPPED: [&str; 2] = ["__pycache__", "boot_site"];

/// The file extensions that belong to the library.
const EXTENSIONS: [&str; 3] = ["py", "pyi", "typed"];

/// Variables by which the outer cargo speaks of this package; in the nested build they would speak
/// of the wrong one. The wrappers are those of clippy.
const OUTER_VARIABLES: [&str; 6] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET",
    "PROFILE",
];

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    for watched in [
        "src/native",
        "src/core",
        "shims/pedl",
        "py_hooks",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={watched}");
    }

    let module = build_native_module(&root, &out);
    let mut files = vec![("_pedl.abi3.so".to_owned(), module)];
    for (tree, place) in TREES {
        collect(&root.join(tree), place, &mut files);
    }
    files.sort();
    write_table(&out.join("library.rs"), &files);
}

/// Builds `pedl-native`, optimised whatever the outer profile is, and returns the path of its file.
fn build_native_module(root: &Path, out: &Path) -> PathBuf {
    let target = variable("TARGET");
    let target_dir = out.join("native");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(root)
        .args(["build", "--release", "--quiet", "--package", "pedl-native"])
        .args(["--target", &target])
        .arg("--target-dir")
        .arg(&target_dir)
        .env("PYO3_NO_PYTHON", "1");
    for name in OUTER_VARIABLES {
        cargo.env_remove(name);
    }
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("the build of pedl-native ended with {status}")),
        Err(error) => fail(&format!("cannot run {}: {error}", variable("CARGO"))),
    }
    target_dir.join(target).join("release/lib_pedl.so")
}

/// Adds every file of a tree that belongs to the library.
fn collect(directory: &Path, place: &str, files: &mut Vec<(String, PathBuf)>) {
    let entries = fs::read_dir(directory)
        .unwrap_or_else(|error| fail(&format!("cannot list {}: {error}", directory.display())));
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name
            .to_str()
            .unwrap_or_else(|| fail("a file name is not UTF-8"));
        if path.is_dir() {
            if !SKIPPED.contains(&name) {
                collect(&path, &format!("{place}/{name}"), files);
            }
        } else if EXTENSIONS
            .iter()
            .any(|extension| path.extension().is_some_and(|found| found == *extension))
        {
            files.push((format!("{place}/{name}"), path));
        }
    }
}

/// Writes the table and its hash as Rust source.
fn write_table(path: &Path, files: &[(String, PathBuf)]) {
    let mut hash = blake3::Hasher::new();
    let mut table = String::from("pub(super) static FILES: &[(&str, &[u8])] = &[\n");
    for (name, source) in files {
        let bytes = fs::read(source)
            .unwrap_or_else(|error| fail(&format!("cannot read {}: {error}", source.display())));
        hash.update(&(name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(&bytes);
        let _ = writeln!(table, "    ({name:?}, include_bytes!({source:?})),");
    }
    table.push_str("];\n");
    let hash = hash.finalize().to_hex();
    let _ = writeln!(table, "pub(super) const HASH: &str = {:?};", &hash[..16]);
    if let Err(error) = fs::write(path, table) {
        fail(&format!("cannot write {}: {error}", path.display()));
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("cargo did not set {name}")))
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
