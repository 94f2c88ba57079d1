//! `cargo dev pool`: how much worker processes deliver, beside a bare ring in shared memory, and
//! beside the workers of Keras and of torch.
//!
//! `tests/bench/pool.py` measures and prints, once for each stack, with the built executable.
//! Everything that is compared is measured in turns, in one run. The numbers depend on the machine,
//! so none of them is a failure.

use std::ffi::OsString;
use std::time::Duration;

use crate::Options;
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::matrix::Matrix;
use crate::process::{Output, Running};
use crate::repository::Repository;

/// The tag of the stacks that may be measured, and the stacks if the command line names none.
const TAG: &str = "keras";
const STACKS: [&str; 2] = ["keras3-jax", "keras2-tensorflow1"];

/// The script.
const SCRIPT: &str = "tests/bench/pool.py";

/// Keras needs a tenth of a second for a large batch.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Measures and prints. It fails only if something cannot be measured.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "part"])?.no_rest()?;
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let mut names: Vec<&str> = options.all("stack").collect();
    if names.is_empty() {
        names.extend(STACKS);
    }
    let stacks = matrix.chosen(&names, TAG)?;
    println!("building pedl-run ...");
    let executable = repository.build()?;
    for stack in stacks {
        let Some(environment) = Environment::of_measured(stack)? else {
            continue;
        };
        println!("\n{}", stack.name);
        let mut command = environment.command();
        command.arg(repository.root().join(SCRIPT)).arg("table");
        command.arg(&executable).args(options.all("part"));
        let mut running = Running::start(command, Output::Copy)?;
        let ended = running.wait(LIMIT)?;
        if !ended.success() {
            let what = format!("`{SCRIPT}` ended with {}", ended.describe());
            return Err(Failure::new(what));
        }
    }
    Ok(true)
}
