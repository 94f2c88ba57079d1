//! The command line: what was typed, what it means, and what is printed about it.

pub(crate) mod flags;
pub(crate) mod parse;
pub(crate) mod report;

use std::env;

use crate::failure::Failure;
use crate::supervisor;
use flags::Action;

/// Does what the command line asks for and returns the exit code.
pub(crate) fn run() -> Result<i32, Failure> {
    let line = parse::parse(env::args_os().skip(1), |name| env::var_os(name))?;
    match line.options.action {
        Action::Help => Ok(report::answer(&report::help())),
        Action::Version => Ok(report::answer(concat!(
            "pedl-run ",
            env!("CARGO_PKG_VERSION"),
            "\n"
        ))),
        Action::Run => {
            report::start_logging(&line.options);
            supervisor::run(&line)
        }
    }
}
