//! `cargo dev workers`: worker processes over a long time, and what happens if they are killed.
//!
//! `tests/campaigns/workers.py`, which does the work with the Python of each stack, and
//! `src/pool/tests/stress.rs`, which has no Python in it, define what is measured. The files of the
//! runs are kept below the target directory in `workers/`, until the next time.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use crate::Options;
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::matrix::Matrix;
use crate::process::{Ended, Output, Running};
use crate::repository::Repository;

/// The tag of the stacks that may be chosen, and the stacks if the command line names none.
const TAG: &str = "keras";
const STACKS: [&str; 2] = ["keras3-jax", "keras2-tensorflow1"];

/// The default number of minutes of stress without Python.
const MINUTES: u64 = 10;

/// Enough for a thousand kills twice, and two thousand epochs, on a machine that is busy with other
/// things.
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

/// Runs all parts and prints their findings; returns whether everything is within its bounds.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "kills", "epochs", "minutes"])?.no_rest()?;
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let mut names: Vec<&str> = options.all("stack").collect();
    if names.is_empty() {
        names.extend(STACKS);
    }
    let minutes = options.all("minutes").last().map_or(Ok(MINUTES), |text| {
        text.parse()
            .map_err(|_| Failure::usage(format!("`{text}` is no number of minutes")))
    })?;
    let mut is_good = minutes == 0 || stress(&repository, minutes)?;
    let executable = repository.build()?;
    let target = repository.target_directory()?;
    let mut ran = 0;
    for stack in matrix.chosen(&names, TAG)? {
        let Some(environment) = Environment::of_measured(stack)? else {
            continue;
        };
        println!("\n{}", stack.name);
        let mut command = environment.command();
        command
            .args(["-u", "-m", "campaigns.workers"])
            .current_dir(repository.root().join("tests"))
            .arg("--directory")
            .arg(target.join("workers").join(&stack.name))
            .env("PEDL_RUN", &executable);
        for name in ["kills", "epochs"] {
            for value in options.all(name) {
                command.arg(format!("--{name}={value}"));
            }
        }
        is_good &= ends_well(command)?;
        ran += 1;
    }
    if ran == 0 {
        return Err(Failure::new("no stack was run".to_owned()));
    }
    Ok(is_good)
}

/// Runs two worker processes without Python, for this many minutes.
fn stress(repository: &Repository, minutes: u64) -> Result<bool> {
    let mut command = repository.cargo();
    command
        .args(["test", "--release", "--quiet", "--package", "pedl-pool"])
        .args(["--test", "stress", "--", "--nocapture"])
        .env("PEDL_STRESS_SECONDS", (60 * minutes).to_string());
    ends_well(command)
}

fn ends_well(command: Command) -> Result<bool> {
    let mut running = Running::start(command, Output::Copy)?;
    let ended = running.wait(LIMIT)?;
    running.text();
    let is_good = matches!(ended, Ended::Exited(status) if status.success());
    if !is_good {
        println!("it ended with {}", ended.describe());
    }
    Ok(is_good)
}
