//! `cargo dev test`: all automatic tests, in one command.
//!
//! First the executable is built, optimised, as it is released. Then come the Rust tests, the gate
//! of `cargo dev conformance`, and the Python tests once for each stack of `tests/matrix.toml`,
//! with this executable; tests that only repeat what another stack proves are left to `--all`
//! (`tests/gate.py`). A stack without an interpreter is named and skipped. With `--check`,
//! everything of `cargo dev check` comes first. The last line adds up all parts in pytest's words.
//!
//! Environments that are missing are made in the background, in the order of the stacks, while the
//! executable is built and the Rust tests run. Stacks whose tests share one process run beside the
//! gate of conformance, which has one process too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
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
    /// The names after `--stack`; empty for everything.
    chosen: Vec<String>,
    /// The stacks that were asked for, in the order of the matrix.
    stacks: Vec<Stack>,
    is_all: bool,
    pytest_arguments: Vec<OsString>,
    /// If tests that repeat a mechanism on several stacks are left out: the stacks that run, with
    /// their tags, in JSON.
    gate: Option<String>,
    started: Instant,
}

/// Where the output of a part goes.
enum Log {
    /// It is printed as it comes.
    Printed,
    /// It is kept, to be printed in one piece.
    Kept(String),
}

impl Log {
    fn line(&mut self, line: &str) {
        match self {
            Self::Printed => println!("{line}"),
            Self::Kept(text) => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
}

/// Runs the tests. `--stack NAME` (which may be repeated) runs only those, `rust` the Rust tests
/// and `conformance` those of CPython. Without it, the tests that `tests/gate.py` names are left to
/// `--all`. With `--check` the checks are one part of the sum.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack", "all", "check"])?;
    let session = Session::new(&options)?;
    make_ahead(session.running().cloned().collect());
    let mut parts = Vec::new();
    if options.has("check") {
        headline("checks");
        parts.push(session.checks()?);
    }
    let executable = session.build(&mut parts)?;
    if session.wants(RUST) {
        headline("Rust tests");
        parts.push(session.rust()?);
    }
    if let Some(executable) = executable {
        session.python(&executable, &mut parts)?;
    }
    session.finish(&parts)
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
fn skipped(stack: &Stack, why: &str, log: &mut Log) -> Part {
    log.line(&format!("{}: skipped: {why}", stack.name));
    Part {
        name: stack.name.clone(),
        counts: Counts::SKIPPED,
        remark: why.to_owned(),
        took: Duration::ZERO,
    }
}

impl Session {
    fn new(options: &Options) -> Result<Self> {
        let repository = Repository::find();
        let matrix = Matrix::read(&repository)?;
        let chosen: Vec<String> = options.all("stack").map(str::to_owned).collect();
        for name in chosen
            .iter()
            .filter(|name| ![RUST, CONFORMANCE].contains(&&***name))
        {
            matrix.stack(name)?;
        }
        let mut session = Self {
            repository,
            chosen,
            stacks: Vec::new(),
            is_all: options.has("all"),
            pytest_arguments: options.rest.clone(),
            gate: None,
            started: Instant::now(),
        };
        session.stacks = matrix
            .stacks
            .into_iter()
            .filter(|stack| session.wants(&stack.name))
            .collect();
        if session.chosen.is_empty() && !session.is_all {
            session.gate = Some(stacks_of_gate(session.running())?);
        }
        Ok(session)
    }

    /// Whether a part was asked for, by its name or with all others.
    fn wants(&self, name: &str) -> bool {
        self.chosen.is_empty() || self.chosen.iter().any(|chosen| chosen == name)
    }

    /// Why a stack is skipped if all are asked for.
    fn is_left_out<'a>(&self, stack: &'a Stack) -> Option<&'a str> {
        let why = stack.only_trains.as_ref().or(stack.optional.as_ref());
        why.filter(|_| self.chosen.is_empty()).map(String::as_str)
    }

    /// The stacks that are not skipped.
    fn running(&self) -> impl Iterator<Item = &Stack> {
        self.stacks
            .iter()
            .filter(|stack| self.is_left_out(stack).is_none())
    }

    /// Builds the executable; if that fails, it is one more part, and there is none.
    fn build(&self, parts: &mut Vec<Part>) -> Result<Option<PathBuf>> {
        headline("build");
        let started = Instant::now();
        match self.repository.build() {
            Ok(executable) => {
                let took = started.elapsed().as_secs_f64();
                println!("{}, built in {took:.1} s", executable.display());
                Ok(Some(executable))
            }
            Err(failure) if failure.is_interruption() => Err(failure),
            Err(failure) => {
                println!("{failure}");
                parts.push(Part::error("build", "failed, see above", started.elapsed()));
                Ok(None)
            }
        }
    }

    /// The tests of CPython, and those on each stack.
    ///
    /// A stack whose tests share one process leaves a processor to others, as the tests of CPython
    /// do: they run side by side.
    fn python(&self, executable: &Path, parts: &mut Vec<Part>) -> Result<()> {
        let mut beside = BTreeMap::new();
        if self.wants(CONFORMANCE) {
            thread::scope(|scope| {
                let other = scope.spawn(|| self.stacks_of_one_process(executable));
                parts.push(self.conformance(executable)?);
                beside = other.join().unwrap_or_else(|it| resume_unwind(it))?;
                Ok(())
            })?;
        }
        for stack in &self.stacks {
            parts.push(
                match (self.is_left_out(stack), beside.remove(&stack.name)) {
                    (Some(why), _) => skipped(stack, why, &mut Log::Printed),
                    (None, Some((text, part))) => {
                        print!("{text}");
                        part
                    }
                    (None, None) => self.stack(stack, executable, &mut Log::Printed)?,
                },
            );
        }
        Ok(())
    }

    /// What these stacks print, and their parts, by their names.
    fn stacks_of_one_process(&self, executable: &Path) -> Result<BTreeMap<String, (String, Part)>> {
        let mut found = BTreeMap::new();
        for stack in self.running().filter(|stack| stack.workers.is_none()) {
            let mut log = Log::Kept(String::new());
            let part = self.stack(stack, executable, &mut log)?;
            if let Log::Kept(text) = log {
                found.insert(stack.name.clone(), (text, part));
            }
        }
        Ok(found)
    }

    /// The gate of the tests of CPython.
    fn conformance(&self, executable: &Path) -> Result<Part> {
        headline("conformance with CPython");
        let started = Instant::now();
        Ok(Part {
            name: "conformance with CPython".to_owned(),
            counts: conformance::gate(&self.repository, executable)?,
            remark: String::new(),
            took: started.elapsed(),
        })
    }

    /// Prints the results, and notes a full run; returns whether everything succeeded.
    fn finish(&self, parts: &[Part]) -> Result<bool> {
        let last = self.repository.root().join(LAST_FULL_RUN);
        if self.gate.is_some() {
            println!("{}", last_full_run(&last));
        }
        let is_good = report(parts, self.started.elapsed());
        let is_full = self.is_all && self.chosen.is_empty() && self.pytest_arguments.is_empty();
        if is_good && is_full {
            note_full_run(&self.repository, &last, parts)?;
        }
        Ok(is_good)
    }

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
        let (ended, output) = self.watch(cargo, RUST_LIMIT, &mut Log::Printed)?;
        let counts = Counts::of_cargo(&output);
        Ok(Part::ended("Rust tests", ended, counts, started.elapsed()))
    }

    /// The Python tests on one stack.
    fn stack(&self, stack: &Stack, executable: &Path, log: &mut Log) -> Result<Part> {
        log.line(&headline_of(&stack.name));
        let started = Instant::now();
        let interpreter = match Interpreter::of(stack) {
            Ok(interpreter) => interpreter,
            Err(why) => return Ok(skipped(stack, &why, log)),
        };
        log.line(&format!(
            "Python {} at {}",
            interpreter.version,
            interpreter.path.display()
        ));
        let environment = match Environment::of(stack, &interpreter) {
            Ok(environment) => environment,
            Err(failure) if failure.is_interruption() => return Err(failure),
            Err(failure) => {
                log.line(&failure.to_string());
                let remark = "its environment could not be made, see above";
                return Ok(Part::error(&stack.name, remark, started.elapsed()));
            }
        };
        log.line(&format!(
            "{}: {}",
            environment.directory.display(),
            stack.contents()
        ));

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
        let (ended, output) = self.watch(pytest, STACK_LIMIT, log)?;
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

    /// Runs one part within its limit and that of the whole; prints or keeps its output, and
    /// returns it.
    fn watch(&self, command: Command, limit: Duration, log: &mut Log) -> Result<(Ended, String)> {
        let output = match log {
            Log::Printed => Output::Copy,
            Log::Kept(_) => Output::Keep,
        };
        let mut running = Running::start(command, output)?;
        let ended = running.wait(limit.min(self.left()))?;
        let text = running.text();
        if let Log::Kept(kept) = log {
            kept.push_str(&text);
        }
        Ok((ended, text))
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
    println!("{}", headline_of(name));
}

fn headline_of(name: &str) -> String {
    format!(
        "\n---- {name} {}",
        "-".repeat(74_usize.saturating_sub(name.len()))
    )
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
