//! The command line: parsing it, running it, and printing its results.

mod ask_python;
mod checkpoint;
mod completions;
pub(crate) mod flags;
mod man;
mod package;
pub(crate) mod parse;
mod reference;
pub(crate) mod report;
mod table;
mod units;
mod verbs;

use std::env;
use std::ffi::OsString;

use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::supervisor;
use flags::Action;

/// What `--version` prints.
const VERSION: &str = concat!("pedl-run ", env!("CARGO_PKG_VERSION"), "\n");

/// If this is the first word, the rest is a command line of `pedl`. For installations without that
/// name: a container with one file in it, and the `pedl` of a wheel (`shims/wheel/scripts/pedl`).
const VERBS_OPTION: &str = "--pedl";

/// Runs the command line and returns the exit code.
pub(crate) fn run() -> Result<i32, Failure> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    report::use_format(parse::format_of_failures(&[], |name| env::var_os(name)));
    if verbs::is_asked_for() {
        return verbs::run(&arguments);
    }
    match arguments.split_first() {
        Some((first, rest)) if first == VERBS_OPTION => verbs::run(rest),
        _ => run_script(arguments),
    }
}

/// Runs a command line of `pedl-run`, without the name of the program.
fn run_script(arguments: Vec<OsString>) -> Result<i32, Failure> {
    let environment = |name: &str| env::var_os(name);
    report::use_format(parse::format_of_failures(&arguments, environment));
    let mut line = parse::parse(arguments, environment)?;
    match line.options.action {
        Action::Help => Ok(report::answer(&report::help())),
        Action::Version => Ok(report::answer(VERSION)),
        Action::Run => {
            report::start_logging(&line.options);
            let configuration = Configuration::read(&mut line)?;
            supervisor::run(&line, configuration.as_ref())
        }
    }
}
