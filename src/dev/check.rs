//! `cargo dev check`: static checks of the source. `cargo dev test --check` runs them too.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Options;
use crate::counters;
use crate::environment::Environment;
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::Matrix;
use crate::process::{self, Output, Running};
use crate::repository::Repository;
use crate::summary::Counts;

/// Clippy builds the whole workspace.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The oldest Python that a supported stack needs.
const OLDEST_PYTHON: &str = "3.7";

/// The folders of our Python files that run inside a user's Python.
const RUNTIME_TREES: [&str; 2] = ["py_hooks", "shims"];

/// What mypy checks, and how: what users import is checked as strictly as their own code may be.
const MYPY: [(&str, &[&str]); 2] = [
    ("mypy, py_hooks", &["py_hooks"]),
    (
        "mypy --strict, shims",
        &["--strict", "--config-file", "shims/mypy.ini", "shims/pedl"],
    ),
];

/// Compiles every file of its arguments, without writing a cache beside it.
const COMPILE: &str = "
import sys
for path in sys.argv[1:]:
    with open(path, 'rb') as file:
        compile(file.read(), path, 'exec', dont_inherit=True)
print(len(sys.argv) - 1, 'files')
";

/// What became of the checks.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    passed: u64,
    pub(crate) failed: Vec<&'static str>,
    skipped: u64,
}

impl Outcome {
    /// The checks as tests.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            passed: self.passed,
            failed: self.failed.len() as u64,
            skipped: self.skipped,
            ..Counts::default()
        }
    }
}

/// Runs all checks.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    Options::parse(arguments, &[])?.no_rest()?;
    let outcome = all(&Repository::find(), LIMIT)?;
    match &*outcome.failed.join(", ") {
        "" => println!("all checks passed"),
        failed => println!("some checks FAILED: {failed}"),
    }
    Ok(outcome.failed.is_empty())
}

/// Runs all checks within a limit, even after one has failed.
pub(crate) fn all(repository: &Repository, limit: Duration) -> Result<Outcome> {
    let started = Instant::now();
    let (checks, missing) = commands(repository)?;
    let mut outcome = Outcome::default();
    for (name, command) in checks {
        println!("{name}");
        let left = limit.saturating_sub(started.elapsed());
        let mut running = Running::start(command, Output::Prefix("    "))?;
        let ended = running.wait(left)?;
        let took = running.elapsed().as_secs_f64();
        if ended.success() {
            outcome.passed += 1;
            println!("    passed in {took:.1} s");
        } else {
            outcome.failed.push(name);
            println!("    FAILED after {took:.1} s: {}", ended.describe());
        }
    }
    for (name, python) in missing {
        outcome.skipped += 1;
        println!("{name}\n    skipped: no Python {python} was found");
    }
    Ok(outcome)
}

/// Checks by name, each with a value.
type Checks<T> = Vec<(&'static str, T)>;

/// The command of each check; and the checks that this machine cannot do, with the Python that they
/// need.
fn commands(repository: &Repository) -> Result<(Checks<Command>, Checks<String>)> {
    let mut checks = vec![
        ("rustfmt", cargo(repository, &["fmt", "--all", "--check"])),
        (
            "clippy",
            cargo(
                repository,
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--quiet",
                    "--",
                    "--deny",
                    "warnings",
                ],
            ),
        ),
    ];
    let mut missing = Vec::new();
    match compile(repository)? {
        Some(command) => checks.push(("compile on Python 3.7", command)),
        None => missing.push(("compile on Python 3.7", OLDEST_PYTHON.to_owned())),
    }
    let lint = Matrix::read(repository)?.lint;
    match Interpreter::find(&lint.python) {
        Some(interpreter) => {
            let mut counters = counters::command(repository, &interpreter);
            counters.arg("--check");
            checks.push(("counters", counters));
            let mut ruff = Environment::of(&lint, &interpreter)?.command();
            ruff.args(["-m", "ruff", "check", "--quiet", "--no-cache", "."]);
            ruff.current_dir(repository.root());
            checks.push(("ruff", ruff));
            for (name, arguments) in MYPY {
                let mut mypy = Environment::of(&lint, &interpreter)?.command();
                mypy.args(["-m", "mypy", "--no-error-summary", "--cache-dir=/dev/null"]);
                mypy.args(arguments).current_dir(repository.root());
                checks.push((name, mypy));
            }
        }
        None => missing.push(("counters, ruff and mypy", lint.python.join(", "))),
    }
    Ok((checks, missing))
}

fn cargo(repository: &Repository, arguments: &[&str]) -> Command {
    let mut command = repository.cargo();
    command.args(arguments);
    command
}

/// The compile check, if there is a Python that old.
fn compile(repository: &Repository) -> Result<Option<Command>> {
    let Some(interpreter) = Interpreter::find(&[OLDEST_PYTHON.to_owned()]) else {
        return Ok(None);
    };
    let mut command = process::python(&interpreter.path);
    command
        .current_dir(repository.root())
        .args(["-I", "-c", COMPILE]);
    command.args(python_files(
        RUNTIME_TREES
            .map(|tree| repository.root().join(tree))
            .to_vec(),
    )?);
    Ok(Some(command))
}

/// All files below some directories, sorted.
fn python_files(mut open: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).at("list", &directory)? {
            let path = entry.at("list", &directory)?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "py") {
                found.push(path);
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::new("there are no Python files to compile"));
    }
    found.sort();
    Ok(found)
}
