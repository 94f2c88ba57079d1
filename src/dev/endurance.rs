//! `cargo dev endurance`: a million batches of a tiny model, and what they leave on disk and in
//! memory.
//!
//! `tests/campaigns/endurance.py` defines what is measured, and does the work with the Python of
//! the stack. The files of the runs are kept below the target directory in `endurance/`, until the
//! next time.

use std::ffi::OsString;
use std::time::Duration;

use crate::Options;
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::Matrix;
use crate::process::{Ended, Output, Running};
use crate::repository::Repository;

/// The stack of Keras that makes and replays a batch the quickest.
const STACK: &str = "keras3-jax";

/// Enough for two million batches three times, on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

/// Trains, measures and prints; returns whether everything is within its bounds.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["batches", "way"])?.no_rest()?;
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let stack = matrix.stack(STACK)?;
    let executable = repository.build()?;
    let interpreter = Interpreter::of(stack).map_err(Failure::new)?;
    let environment = Environment::of(stack, &interpreter)?;
    let target = executable.ancestors().nth(2).unwrap_or(repository.root());
    let mut command = environment.command();
    command
        .args(["-u", "-m", "campaigns.endurance"])
        .current_dir(repository.root().join("tests"))
        .arg("--directory")
        .arg(target.join("endurance"))
        .env("PEDL_RUN", &executable);
    for name in ["batches", "way"] {
        for value in options.all(name) {
            command.arg(format!("--{name}={value}"));
        }
    }
    let mut running = Running::start(command, Output::Copy)?;
    let ended = running.wait(LIMIT)?;
    running.text();
    Ok(matches!(ended, Ended::Exited(status) if status.success()))
}
