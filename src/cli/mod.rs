//! The command line: what was typed, what it means, and what is printed about it.

pub(crate) mod flags;
pub(crate) mod parse;
pub(crate) mod report;
mod verbs;

use std::env;
use std::ffi::OsString;

use crate::failure::Failure;
use crate::supervisor;
use flags::Action;

/// What `--version` prints.
const VERSION: &str = concat!("pedl-run ", env!("CARGO_PKG_VERSION"), "\n");

/// Does what the command line asks for and returns the exit code.
pub(crate) fn run() -> Result<i32, Failure> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    if verbs::is_asked_for() {
        verbs::run(&arguments)
    } else {
        run_script(arguments)
    }
}

/// Does what a command line of `pedl-run` asks for, its own name left out.
fn run_script(arguments: Vec<OsString>) -> Result<i32, Failure> {
    let line = parse::parse(arguments, |name| env::var_os(name))?;
    match line.options.action {
        Action::Help => Ok(report::answer(&report::help())),
        Action::Version => Ok(report::answer(VERSION)),
        Action::Run => {
            report::start_logging(&line.options);
            supervisor::run(&line)
        }
    }
}
