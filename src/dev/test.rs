//! `cargo dev test`: all automatic tests, in one command.
//!
//! First the executable is built, optimised, as it is released. Then come the Rust tests, the gate
//! of `cargo dev conformance`, and the Python tests once for each stack of `tests/matrix.toml`,
//! with this executable; tests that only repeat what another stack proves are left to `--all`
//! (`tests/gate.py`). A stack without an interpreter is named and skipped. With `--check`,
//! everything of `cargo dev check` comes first. The last line adds up all parts in pytest's words.
//!
//! Environments that are missing are made in the background, in the order of the stacks, while the
//! executable is built and the Rust tests run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::Options;
use crate::check;
use crate::conformance;
use crate::environment::Environment;
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::{Matrix, Stack};
use crate::process::{Ended, Output, Running};
use crate::repository::Repository;
use crate::summary::Counts;

/// The name by which `--stack` chooses the Rust tests.
const RUST: &str = "rust";

/// The name by which `--stack` chooses the gate of `cargo dev conformance`.
const CONFORMANCE: &str = "conformance";

/// Enough for building and running the Rust tests.
const RUST_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Enough for the Python tests of one stack.
const STACK_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The limit of everything. Whatever still runs then is ended, so that there is a summary within
/// the 90 minutes after which `.ci/run` is cut off.
const TOTAL_LIMIT: Duration = Duration::from_secs(85 * 60);

/// How many of the slowest tests of a stack are printed.
const SLOWEST: &str = "20";

/// The record of the last run of all tests, in the repository.
const LAST_FULL_RUN: &str = "tests/last_full_run.txt";

/// pytest's exit code if it found no test to run.
const NOTHING_COLLECTED: i32 = 5;

/// One line of the summary.
struct Part {
    name: String,
    counts: Counts,
    /// What the numbers do not say.
    remark: String,
    took: Duration,
}

/// What all parts share.
struct Session {
    repository: Repository,
    pytest_arguments: Vec<OsString>,
    /// If tests that repeat a mechanism on several stacks are left out: the stacks that run, with
    /// their tags, in JSON.
    gate: Option<String>,
    started: Instant,
}

/// Runs the tests. `--stack NAME` (which may be repeated) runs only those, `rust` the Rust tests
/// and `conformance` those of CPython. Without it, the tests that `tests/gate.py` names are left to
/// `--all`. With `--check` the checks are one part of the sum.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "all", "check"])?;
    let is_all = options.has("all");
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let chosen: Vec<&str> = options.all("stack").collect();
    for name in chosen
        .iter()
        .filter(|name| ![RUST, CONFORMANCE].contains(name))
    {
        matrix.stack(name)?;
    }
    let wanted = |name: &str| chosen.is_empty() || chosen.contains(&name);
    let rust = wanted(RUST);
    let stacks: Vec<Stack> = matrix
        .stacks
        .iter()
        .filter(|stack| wanted(&stack.name))
        .cloned()
        .collect();
    let is_run = |stack: &&Stack| {
        let is_left_out = stack.only_trains.is_some() || stack.optional.is_some();
        !chosen.is_empty() || !is_left_out
    };
    let is_gate = chosen.is_empty() && !is_all;
    let session = Session {
        repository,
        pytest_arguments: options.rest.clone(),
        gate: is_gate
            .then(|| stacks_of_gate(stacks.iter().filter(is_run)))
            .transpose()?,
        started: Instant::now(),
    };

    make_ahead(stacks.iter().filter(is_run).cloned().collect());
    let mut parts = Vec::new();
    if options.has("check") {
        headline("checks");
        parts.push(session.checks()?);
    }
    headline("build");
    let executable = match session.repository.build() {
        Ok(executable) => Some(executable),
        Err(failure) if failure.is_interruption() => return Err(failure),
        Err(failure) => {
            println!("{failure}");
            parts.push(Part::error(
                "build",
                "failed, see above",
                session.started.elapsed(),
            ));
            None
        }
    };
    if rust {
        headline("Rust tests");
        parts.push(session.rust()?);
    }
    if let Some(executable) = executable {
        println!("{}", executable.display());
        if wanted(CONFORMANCE) {
            headline("conformance with CPython");
            let started = Instant::now();
            parts.push(Part {
                name: "conformance with CPython".to_owned(),
                counts: conformance::gate(&session.repository, &executable)?,
                remark: String::new(),
                took: started.elapsed(),
            });
        }
        for stack in &stacks {
            parts.push(
                match stack.only_trains.as_ref().or(stack.optional.as_ref()) {
                    Some(why) if chosen.is_empty() => skipped(stack, why),
                    _ => session.stack(stack, &executable)?,
                },
            );
        }
    }
    let last = session.repository.root().join(LAST_FULL_RUN);
    if is_gate {
        println!("{}", last_full_run(&last));
    }
    let is_good = report(&parts, session.started.elapsed());
    if is_good && is_all && chosen.is_empty() && session.pytest_arguments.is_empty() {
        note_full_run(&session.repository, &last, &parts)?;
    }
    Ok(is_good)
}

/// Who ran all tests last, as [`note_full_run`] has noted it.
fn last_full_run(path: &Path) -> String {
    match fs::read_to_string(path) {
        Ok(text) => format!("\nlast `cargo dev test --all`: {}", text.trim()),
        Err(_) => "\nno run of `cargo dev test --all` is on record".to_owned(),
    }
}

/// Notes that all tests passed: of which commit, and how many.
fn note_full_run(repository: &Repository, path: &Path, parts: &[Part]) -> Result<()> {
    let mut sum = Counts::default();
    for part in parts {
        sum += part.counts;
    }
    let output = Command::new("git")
        .args(["log", "-1", "--format=%h of %as by %an"])
        .current_dir(repository.root())
        .output()
        .at("run", Path::new("git"))?;
    let commit = String::from_utf8_lossy(&output.stdout);
    fs::write(path, format!("{}: {sum}\n", commit.trim())).at("write", path)
}

/// The stacks that this machine can run, `{name: tags}`, as `tests/conftest.py` reads them.
fn stacks_of_gate<'a>(stacks: impl Iterator<Item = &'a Stack>) -> Result<String> {
    let here: BTreeMap<&str, &[String]> = stacks
        .filter(|stack| Interpreter::of(stack).is_ok())
        .map(|stack| (&*stack.name, &*stack.tags))
        .collect();
    serde_json::to_string(&here)
        .map_err(|error| Failure::new(format!("the stacks are no JSON: {error}")))
}

/// Makes the environments of some stacks in a thread. [`Environment::of`] waits for one that is
/// being made.
fn make_ahead(stacks: Vec<Stack>) {
    thread::spawn(move || {
        for stack in stacks {
            if let Ok(interpreter) = Interpreter::of(&stack) {
                // A failure is repeated and printed when the stack is tested.
                let _ = Environment::of(&stack, &interpreter);
            }
        }
    });
}

/// The part of a stack that is skipped, which is printed.
fn skipped(stack: &Stack, why: &str) -> Part {
    println!("{}: skipped: {why}", stack.name);
    Part {
        name: stack.name.clone(),
        counts: Counts::SKIPPED,
        remark: why.to_owned(),
        took: Duration::ZERO,
    }
}

impl Session {
    /// The checks of `cargo dev check`. A check that failed is a failed test, and is named in the
    /// sum.
    fn checks(&self) -> Result<Part> {
        let started = Instant::now();
        let outcome = match check::all(&self.repository, self.left()) {
            Ok(outcome) => outcome,
            Err(failure) if failure.is_interruption() => return Err(failure),
            Err(failure) => {
                println!("{failure}");
                let remark = "they could not be started, see above";
                return Ok(Part::error("checks", remark, started.elapsed()));
            }
        };
        let remark = match &*outcome.failed.join(", ") {
            "" => String::new(),
            failed => format!("FAILED: {failed}, see above"),
        };
        Ok(Part {
            name: "checks".to_owned(),
            counts: outcome.counts(),
            remark,
            took: started.elapsed(),
        })
    }

    /// The Rust tests of the workspace. The extension module has none: it links to no Python, so
    /// only a Python can load it.
    fn rust(&self) -> Result<Part> {
        let started = Instant::now();
        let mut cargo = self.repository.cargo();
        cargo.args(["test", "--workspace", "--no-fail-fast"]);
        let (ended, output) = self.watch(cargo, RUST_LIMIT)?;
        let counts = Counts::of_cargo(&output);
        Ok(Part::ended("Rust tests", ended, counts, started.elapsed()))
    }

    /// The Python tests on one stack.
    fn stack(&self, stack: &Stack, executable: &Path) -> Result<Part> {
        headline(&stack.name);
        let started = Instant::now();
        let interpreter = match Interpreter::of(stack) {
            Ok(interpreter) => interpreter,
            Err(why) => return Ok(skipped(stack, &why)),
        };
        println!(
            "Python {} at {}",
            interpreter.version,
            interpreter.path.display()
        );
        let environment = match Environment::of(stack, &interpreter) {
            Ok(environment) => environment,
            Err(failure) if failure.is_interruption() => return Err(failure),
            Err(failure) => {
                println!("{failure}");
                let remark = "its environment could not be made, see above";
                return Ok(Part::error(&stack.name, remark, started.elapsed()));
            }
        };
        println!("{}: {}", environment.directory.display(), stack.contents());

        let started = Instant::now();
        let mut pytest = pytest(&self.repository, &environment, &stack.name, executable);
        if let Some(workers) = stack.workers {
            // `tests/conftest.py` says which tests stay together.
            pytest.args([
                "--dist",
                "loadgroup",
                "--numprocesses",
                &workers.to_string(),
            ]);
        }
        pytest
            .args(["--durations", SLOWEST, "--durations-min", "5"])
            .args(&self.pytest_arguments)
            .env("PEDL_STACK_TAGS", stack.tags.join(" "));
        if let Some(stacks) = &self.gate {
            pytest.arg("--gate").env("PEDL_GATE", stacks);
        }
        let (ended, output) = self.watch(pytest, STACK_LIMIT)?;
        let counts = Counts::of_pytest(&output);
        let name = format!("{}, Python {}", stack.name, interpreter.version);
        let nothing =
            matches!(ended, Ended::Exited(status) if status.code() == Some(NOTHING_COLLECTED));
        if nothing && !self.pytest_arguments.is_empty() {
            let (counts, remark) = (Counts::default(), "no such test here".to_owned());
            return Ok(Part {
                name,
                counts,
                remark,
                took: started.elapsed(),
            });
        }
        Ok(Part::ended(&name, ended, counts, started.elapsed()))
    }

    /// Runs one part within its limit and that of the whole; prints and returns its output.
    fn watch(&self, command: Command, limit: Duration) -> Result<(Ended, String)> {
        let mut running = Running::start(command, Output::Copy)?;
        let ended = running.wait(limit.min(self.left()))?;
        Ok((ended, running.text()))
    }

    /// How long everything may still take.
    fn left(&self) -> Duration {
        TOTAL_LIMIT.saturating_sub(self.started.elapsed())
    }
}

/// pytest at the top of the tree, for the tests that are marked with `stack` (`tests/conftest.py`).
pub(crate) fn pytest(
    repository: &Repository,
    environment: &Environment,
    stack: &str,
    executable: &Path,
) -> Command {
    let mut pytest = environment.command();
    pytest
        .args(["-u", "-m", "pytest"])
        .current_dir(repository.root())
        .env("PEDL_RUN", executable)
        .env("PEDL_STACK", stack);
    pytest
}

impl Part {
    fn error(name: &str, remark: &str, took: Duration) -> Self {
        Self {
            name: name.to_owned(),
            counts: Counts::ERROR,
            remark: remark.to_owned(),
            took,
        }
    }

    /// A part that ran. If its numbers are good but its end is not, the end counts.
    fn ended(name: &str, ended: Ended, counts: Option<Counts>, took: Duration) -> Self {
        let mut part = Self {
            name: name.to_owned(),
            counts: counts.unwrap_or_default(),
            remark: String::new(),
            took,
        };
        if counts.is_none() || (part.counts.good() && !ended.success()) {
            part.counts += Counts::ERROR;
            part.remark = ended.describe();
        }
        part
    }
}

fn headline(name: &str) {
    println!(
        "\n---- {name} {}",
        "-".repeat(74_usize.saturating_sub(name.len()))
    );
}

/// Prints the results; returns whether everything succeeded. A run without any test does not.
fn report(parts: &[Part], took: Duration) -> bool {
    headline("all parts");
    let mut sum = Counts::default();
    for part in parts {
        let remark = if part.remark.is_empty() { "" } else { ": " };
        println!(
            "{:<40} {:>7.1}s  {}{remark}{}",
            part.name,
            part.took.as_secs_f64(),
            part.counts,
            part.remark
        );
        sum += part.counts;
    }
    println!("{}", sum.closing_line(took));
    sum.good() && sum != Counts::default()
}
