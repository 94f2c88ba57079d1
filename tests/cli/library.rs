//! The library that `pedl-run` lays out: found, compiled once, and used even if it is read-only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{Dir, Host, TestCommand, hosts};

/// The one library in a cache directory.
fn library(cache: &Path) -> PathBuf {
    let entries = fs::read_dir(cache).expect("the cache directory is there");
    let mut found = entries.flatten().map(|entry| entry.path());
    let is_library = |path: &PathBuf| path.join("py_hooks").is_dir();
    found.find(is_library).expect("the library is laid out")
}

/// A run that prints which of our modules Python loaded from byte code.
fn verbose(host: &Host, cache: &Path) -> TestCommand {
    host.pedl_run()
        .args(["-v", "-c", "pass"])
        .env("PEDL_CACHE_DIR", cache)
}

#[test]
fn the_library_is_compiled_once_for_each_version() {
    for host in hosts() {
        let directory = Dir::new();
        let cache = directory.join("cache");
        let (major, minor) = host.python.version;
        // Tests run with PYTHONDONTWRITEBYTECODE.
        for run in ["first", "second"] {
            let output = verbose(&host, &cache).output().assert_code(0);
            let compiled = library(&cache).join(format!(
                "py_hooks/boot/__pycache__/process.cpython-{major}{minor}.pyc"
            ));
            assert!(compiled.is_file(), "{host}, {run} run");
            let line = format!("code object from '{}'", compiled.display());
            assert!(output.stderr.contains(&line), "{host}, {run} run\n{output}");
        }
        let compiled = library(&cache).join(format!("compiled-{major}.{minor}"));
        assert!(compiled.is_file(), "{host}");
    }
}

/// The outer command with a separate mount namespace, in which a directory is read-only.
const READ_ONLY: [&str; 5] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"",
];

#[test]
fn a_library_that_cannot_be_written_to_is_used() {
    let directory = Dir::new();
    let cache = directory.join("cache");
    fs::create_dir(&cache).expect("made");
    let outer = |cache: &Path| {
        let cache = cache.to_str().expect("UTF-8").to_owned();
        READ_ONLY.map(str::to_owned).into_iter().chain([cache])
    };
    let possible = std::process::Command::new(READ_ONLY[0])
        .args(outer(&cache).skip(1))
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !possible {
        eprintln!("skipped: a read-only library (unshare --mount is not permitted here)");
        return;
    }
    for host in hosts() {
        let _ = fs::remove_dir_all(&cache);
        verbose(&host, &cache).output().assert_code(0);
        // As in an image whose library was laid out by another Python.
        let library = library(&cache);
        for entry in fs::read_dir(&library).expect("listed").flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("compiled-") {
                fs::remove_file(entry.path()).expect("removed");
            }
        }
        let byte_code = library.join("py_hooks/boot/__pycache__");
        fs::remove_dir_all(&byte_code).expect("removed");
        let words: Vec<_> = outer(&cache).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let output = host
            .pedl_run()
            .args(["-c", "print(7)"])
            .env("PEDL_CACHE_DIR", &cache)
            .below(&words)
            .output()
            .assert_code(0)
            .assert_stderr("");
        assert_eq!(output.stdout, "7\n", "{host}");
        assert!(!byte_code.exists(), "{host}: it was not read-only");
    }
}
