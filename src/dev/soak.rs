//! `cargo dev soak`: a script that forks, spawns, starts threads and gets signals at random,
//! started again and again, by python and by `pedl-run`.
//!
//! `tests/campaigns/soak.py` defines what is compared, and does the work. Results are kept below
//! the cache directory in `soak/`, in a directory for each executable and script, so an
//! interrupted command continues where it was.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use crate::Options;
use crate::environment;
use crate::failure::{At as _, Result};
use crate::interpreter::Interpreter;
use crate::process::{self, Ended, Output, Running};
use crate::repository::Repository;

/// The default versions: the oldest and the newest Python that can be embedded.
const PYTHONS: [&str; 2] = ["3.7", "3.13"];

/// The default number of starts of `pedl-run`.
const STARTS: &str = "2000";

/// Enough for starts of half a second each, and as many of python, on a machine that is busy with
/// other things.
const LIMIT: Duration = Duration::from_secs(6 * 60 * 60);

/// Makes the starts that are missing; returns whether all of them were as under python.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["python", "starts"])?.no_rest()?;
    let chosen: Vec<&str> = options.all("python").collect();
    let wanted = if chosen.is_empty() {
        &PYTHONS[..]
    } else {
        &*chosen
    };
    let repository = Repository::find();
    let built = repository.build()?;

    let tests = repository.root().join("tests");
    let mut hasher = blake3::Hasher::new();
    for path in [
        &built,
        &tests.join("campaigns/soak.py"),
        &tests.join("scripts/soak.py"),
    ] {
        hasher.update(&fs::read(path).at("read", path)?);
    }
    let hash = hasher.finalize().to_hex();
    let directory = environment::cache_directory()?
        .join("soak")
        .join(&hash[..12]);
    fs::create_dir_all(&directory).at("create", &directory)?;
    // A copy, because builds in the meantime must not change the executable of these results.
    let executable = directory.join("pedl-run");
    if !executable.exists() {
        let copy = directory.join(format!("pedl-run.{}", std::process::id()));
        fs::copy(&built, &copy).at("copy", &built)?;
        fs::rename(&copy, &executable).at("replace", &executable)?;
    }
    println!("{}", directory.display());

    let mut pythons = Vec::new();
    for version in wanted {
        match Interpreter::below_pyenv(version) {
            Some(python) => pythons.push(python),
            None => println!("skipped: there is no Python {version} below pyenv"),
        }
    }
    // Any Python that is new enough can run `tests/campaigns/soak.py`.
    let Some(driver) = pythons.last() else {
        return Ok(true);
    };
    let mut command = process::python(&driver.path);
    command
        .args(["-u", "-m", "campaigns.soak"])
        .current_dir(&tests);
    command.arg("--pedl-run").arg(&executable);
    command
        .arg("--results")
        .arg(directory.join("results.jsonl"));
    command.args(["--starts", options.all("starts").last().unwrap_or(STARTS)]);
    for python in &pythons {
        command.arg("--python").arg(&python.path);
    }
    let mut running = Running::start(command, Output::Copy)?;
    let ended = running.wait(LIMIT)?;
    running.text();
    Ok(matches!(ended, Ended::Exited(status) if status.success()))
}
