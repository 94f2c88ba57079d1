//! `cargo dev fuzz`: gives arbitrary bytes, guided by coverage, to the readers of what others may
//! have made.
//!
//! The targets are those of `tests/fuzz`, and begin with the seeds of its corpus. Inputs that a run
//! has found worth keeping are in `fuzz/corpus` of the target directory, and the next run begins
//! with them. Inputs that made a target fail are in `fuzz/artifacts`. The fix of a failure adds a
//! seed, which the plain tests then read (`cargo test corpus`).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Options;
use crate::environment;
use crate::failure::{At as _, Failure, Result};
use crate::process::{self, Output, Running};
use crate::repository::Repository;

/// How long all targets run together, if the command line gives no time.
const SECONDS: u64 = 60;

/// The version of `cargo-fuzz` that is installed, and the platform that it builds for.
const CARGO_FUZZ: &str = "0.13.2";
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// No input may take longer, or more memory: what a file says about itself is not trusted.
const SECONDS_MAX: u64 = 10;
const MEMORY_MIB: u64 = 1024;

/// An input is no longer than this, because shorter inputs reach as much.
const INPUT_BYTES: u64 = 16 << 10;

/// Builds take longer than anything else here.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Runs the targets in turn; returns whether none of them failed.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["seconds", "target"])?.no_rest()?;
    let seconds = match options.all("seconds").last() {
        Some(text) => text
            .parse()
            .map_err(|_| Failure::usage(format!("`--seconds {text}` is no number")))?,
        None => SECONDS,
    };
    let repository = Repository::find();
    let fuzz = repository.root().join("tests/fuzz");
    let all = targets(&fuzz)?;
    let chosen: Vec<String> = options.all("target").map(str::to_owned).collect();
    if let Some(unknown) = chosen.iter().find(|name| !all.contains(name)) {
        let names = all.join(", ");
        return Err(Failure::usage(format!(
            "there is no target `{unknown}`; there is: {names}"
        )));
    }
    let chosen = if chosen.is_empty() { all } else { chosen };
    let directory = repository.target_directory()?.join("fuzz");
    build(&repository, &fuzz, &directory)?;
    let each = (seconds / chosen.len() as u64).max(1);
    let mut failed = Vec::new();
    for name in &chosen {
        println!("{name}, {each} s");
        if !run_one(name, &fuzz, &directory, each)? {
            failed.push(&name[..]);
        }
    }
    if failed.is_empty() {
        println!("nothing was found by {}", chosen.join(", "));
    } else {
        let artifacts = directory.join("artifacts");
        println!("{}: see {}", failed.join(", "), artifacts.display());
    }
    Ok(failed.is_empty())
}

/// The names of all targets.
fn targets(fuzz: &Path) -> Result<Vec<String>> {
    let folder = fuzz.join("fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).at("list", &folder)? {
        let path = entry.at("list", &folder)?.path();
        names.extend(
            path.file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    Ok(names)
}

/// Builds the targets, with the compiler that builds everything else.
fn build(repository: &Repository, fuzz: &Path, directory: &Path) -> Result<()> {
    let root = environment::cache_directory()?.join(format!("cargo-fuzz-{CARGO_FUZZ}"));
    let tool = root.join("bin/cargo-fuzz");
    if !tool.exists() {
        let mut install = repository.cargo();
        install.args([
            "install",
            "--locked",
            "--version",
            CARGO_FUZZ,
            "cargo-fuzz",
            "--root",
        ]);
        install.arg(&root);
        succeed(install, "install `cargo-fuzz`")?;
    }
    let mut build = process::command(&tool);
    build
        .current_dir(repository.root())
        .args(["fuzz", "build", "--sanitizer", "none", "--fuzz-dir"])
        .arg(fuzz)
        .arg("--target-dir")
        .arg(directory)
        // Only a compiler that allows it can count the branches that are taken.
        .env("RUSTC_BOOTSTRAP", "1");
    succeed(build, "build the fuzz targets")
}

fn succeed(command: std::process::Command, what: &str) -> Result<()> {
    let mut running = Running::start(command, Output::Copy)?;
    let ended = running.wait(BUILD_LIMIT)?;
    running.text();
    if ended.success() {
        return Ok(());
    }
    Err(Failure::new(format!("cannot {what}: {}", ended.describe())))
}

fn run_one(name: &str, fuzz: &Path, directory: &Path, seconds: u64) -> Result<bool> {
    let made = |folder: &str| -> Result<PathBuf> {
        let path = directory.join(folder).join(name);
        fs::create_dir_all(&path).at("create", &path)?;
        Ok(path)
    };
    let (grown, artifacts) = (made("corpus")?, made("artifacts")?);
    let mut command = process::command(directory.join(PLATFORM).join("release").join(name));
    command
        .arg(grown)
        .arg(fuzz.join("corpus").join(name))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-max_len={INPUT_BYTES}"))
        .args(["-print_final_stats=1", "-verbosity=0", "-close_fd_mask=1"]);
    let mut running = Running::start(command, Output::Copy)?;
    let ended = running.wait(Duration::from_secs(seconds + 10 * SECONDS_MAX))?;
    running.text();
    Ok(ended.success())
}
