//! Builds the extension module `_pedl` and packs it with our Python files into the executable.
//!
//! Cargo cannot yet make a binary depend on another crate's cdylib (artifact dependencies are
//! unstable), so a nested `cargo build` does it. It works in a separate target directory below
//! `OUT_DIR`: cargo holds a lock on the outer one while this script runs. No Python is needed.
//!
//! The output is `OUT_DIR/library.rs`: one table of (path in the library, bytes) and one hash over
//! all of it, so that the executable never has to hash anything at run time.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Trees of Python files, and their places in the library. The boot site is beside `py_hooks`,
/// because it is a separate entry of `PYTHONPATH`.
const TREES: [(&str, &str); 3] = [
    ("shims/pedl", "pedl"),
    ("py_hooks", "py_hooks"),
    ("py_hooks/boot_site", "boot"),
];

/// Directories that are not part of the tree that contains them.
const SKIPPED: [&str; 2] = ["__pycache__", "boot_site"];

/// The file extensions that belong to the library.
const EXTENSIONS: [&str; 3] = ["py", "pyi", "typed"];

/// Digits of the hash in the name of the library's directory: 64 bits distinguish the versions that
/// one person ever runs.
const HASH_DIGITS: usize = 16;

/// Variables with which the outer cargo describes this package; in the nested build they would
/// describe the wrong one. The wrappers are those of clippy.
const OUTER_VARIABLES: [&str; 6] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET",
    "PROFILE",
];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("cargo::error={reason}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    for watched in [
        "src/native",
        "src/core",
        "src/pool",
        "shims/pedl",
        "py_hooks",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={watched}");
    }
    let module = build_native_module(&root, &out)?;
    let mut files = vec![("_pedl.abi3.so".to_owned(), module)];
    for (tree, place) in TREES {
        collect(&root.join(tree), place, &mut files)?;
    }
    files.sort();
    write_table(&out.join("library.rs"), &files)
}

/// Builds `pedl-native`, optimised whatever the outer profile is, and returns the path of its file.
fn build_native_module(root: &Path, out: &Path) -> Result<PathBuf, String> {
    let target = variable("TARGET")?;
    let target_dir = out.join("native");
    let mut cargo = Command::new(variable("CARGO")?);
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
    let status = cargo
        .status()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !status.success() {
        return Err(format!("the build of pedl-native ended with {status}"));
    }
    Ok(target_dir.join(target).join("release/lib_pedl.so"))
}

/// Adds every file of a tree that belongs to the library.
fn collect(
    directory: &Path,
    place: &str,
    files: &mut Vec<(String, PathBuf)>,
) -> Result<(), String> {
    let failed = |error| format!("cannot list {}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name
            .to_str()
            .ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
        if path.is_dir() {
            if !SKIPPED.contains(&name) {
                collect(&path, &format!("{place}/{name}"), files)?;
            }
        } else if EXTENSIONS
            .iter()
            .any(|extension| path.extension().is_some_and(|found| found == *extension))
        {
            files.push((format!("{place}/{name}"), path));
        }
    }
    Ok(())
}

/// Writes the table and its hash as Rust source.
fn write_table(path: &Path, files: &[(String, PathBuf)]) -> Result<(), String> {
    let mut hash = blake3::Hasher::new();
    let mut table = String::from("pub(super) static FILES: &[(&str, &[u8])] = &[\n");
    for (name, source) in files {
        let shown = source
            .to_str()
            .ok_or_else(|| format!("{} is not UTF-8", source.display()))?;
        let bytes = fs::read(source).map_err(|error| format!("cannot read {shown}: {error}"))?;
        for part in [name.as_bytes(), &bytes] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let _ = writeln!(table, "    ({name:?}, include_bytes!({shown:?})),");
    }
    table.push_str("];\n");
    let hash = hash.finalize().to_hex();
    let _ = writeln!(
        table,
        "pub(super) const HASH: &str = {:?};",
        &hash[..HASH_DIGITS]
    );
    fs::write(path, table).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("cargo did not set {name}"))
}
