//! `cargo dev counters`: counts of what the source should have none of, or little.
//!
//! `tests/counters` counts, and its `table.py` has a limit and a goal for each counter. `cargo dev
//! check` fails if a count is above its limit.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use crate::Options;
use crate::failure::{Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::Matrix;
use crate::process::{self, Output, Running};
use crate::repository::Repository;

/// They take ten seconds.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// Prints the table; `--list NAME` prints the places of the counters whose name contains it.
/// Returns whether no count is above its limit.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["list"])?.no_rest()?;
    let repository = Repository::find();
    let versions = Matrix::read(&repository)?.lint.python;
    let interpreter = Interpreter::find(&versions)
        .ok_or_else(|| Failure::new(format!("no Python {} was found", versions.join(", "))))?;
    let mut counters = command(&repository, &interpreter);
    for name in options.all("list") {
        counters.args(["--list", name]);
    }
    let ended = Running::start(counters, Output::Copy)?.wait(LIMIT)?;
    Ok(ended.success())
}

/// The program that counts. It needs no package.
pub(crate) fn command(repository: &Repository, interpreter: &Interpreter) -> Command {
    let mut python = process::python(&interpreter.path);
    python
        .current_dir(repository.root().join("tests"))
        .args(["-m", "counters"]);
    python
}
