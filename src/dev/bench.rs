//! `cargo dev bench`: the cost of interception, measured in pairs with plain Python.
//!
//! `tests/bench/batches.py` makes the smallest batches that a framework can make, so that any added
//! cost is visible. For each stack it is run
//!
//! 1. by plain Python and by `pedl-run`, both at once but never computing at the same time: they
//!    take turns of less than a second. If other work keeps the machine busy, it is busy for both,
//!    and each turn of one is compared with the neighbouring turn of the other. The order changes
//!    from pair to pair. No checkpoint is due;
//! 2. with nothing to compute, which leaves the loop of the framework;
//! 3. to record calls and do nothing else;
//! 4. until a checkpoint that is taken after the last measured batch, is killed, and is started
//!    again: the time from the first of these batches to the end of the replay.
//!
//! The loop `draws` is different: it measures a million random numbers in a session, in which our
//! replacements of TensorFlow's ops draw them from readable states
//! (`py_hooks/tensorflow/random_ops/random_ops.py`). The loops of [`TRIALS`] are trial classes,
//! each compared with the loop that a user would write for the same training
//! (`tests/bench/measured`).
//!
//! The numbers depend on the machine, so none of them is a failure.
//!
//! `turns` has the pipes by which two processes take turns, `trials` what is measured of trial
//! classes, `replay` the fourth measurement, and `report` what is printed.

mod replay;
mod report;
mod trials;
mod turns;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Options;
use crate::environment::Environment;
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::{Matrix, Stack};
use crate::process::{Output, Running};
use crate::quantiles::least;
use crate::repository::Repository;
use report::{micros, print_pairs, print_replay};
use trials::TRIALS;
use turns::Turns;

/// The tag of the stacks that are measured.
const TAG: &str = "keras";

/// The script, and the directory of its trial, relative to the working directory.
const SCRIPT: &str = "tests/bench/batches.py";
const TRIAL: &str = ".pedl/batches";

/// Loops of the script, with the tag of the stacks that have them. The first loop of a stack
/// replays the most batches.
const LOOPS: [(&str, &str); 9] = [
    (TAG, "arrays"),
    (TAG, "Sequence"),
    (TAG, "train_on_batch"),
    ("sessions", "session"),
    ("sessions", DRAWS),
    (TAG, TRIALS[0].0),
    ("sessions", TRIALS[1].0),
    ("sessions", TRIALS[2].0),
    ("torch", TRIALS[3].0),
];

/// The loop that trains nothing, and what it draws.
const DRAWS: &str = "draws";
const DRAWN: [&str; 9] = [
    "uniform",
    "normal",
    "truncated_normal",
    "dropout",
    "shuffle",
    "multinomial",
    "while_loop",
    "cond",
    "imported",
];

/// Each kind of draw is run once for this many batches.
const BATCHES_OF_A_DRAW: u64 = 10;

/// `ROWS` and `WARM_UP_BATCHES` of the script, and `ROWS` of the trials.
const ROWS: u64 = 16;
const ROWS_OF_A_TRIAL: u64 = 64;
const WARM_UP_BATCHES: u64 = 200;

/// The defaults of the command line.
const PAIRS: u64 = 6;
const BATCHES: u64 = 10_000;
const REPLAYED: u64 = 100_000;

/// Calls are recorded this many times. The shortest time counts, because it is the least disturbed.
const RECORDINGS: u32 = 3;

/// Batches in a step: the default of `pedl-run`. The numbers of the script are multiples of it.
const BATCHES_PER_STEP: u64 = 100;

/// `PARTS` of the script.
const PARTS: u64 = 20;

/// An interval between checkpoints that is longer than any run here.
const NEVER: &str = "1e9";

/// A hundred thousand batches of the slowest loop take five minutes on a busy machine.
const RUN_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How much of an output is shown with a failure: a traceback fits.
const SHOWN_LINES: usize = 30;

/// The output of the script: the seconds of a batch in each part of a run, by loop.
type Answer = BTreeMap<String, Vec<f64>>;

/// The number of pairs and of batches to measure.
struct Plan {
    pairs: u64,
    batches: u64,
    replayed: u64,
}

/// What the measurements on one stack need.
struct Bench<'a> {
    loops: Vec<&'static str>,
    plan: &'a Plan,
    repository: &'a Repository,
    executable: &'a Path,
    environment: Environment,
    directory: PathBuf,
    runs: u32,
}

/// Measures and prints. It fails only if something cannot be measured.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(
        arguments,
        &["stack", "loop", "pairs", "batches", "replayed"],
    )?
    .no_rest()?;
    let plan = Plan {
        pairs: number(&options, "pairs", 1)?.unwrap_or(PAIRS),
        batches: number(&options, "batches", BATCHES_PER_STEP)?.unwrap_or(BATCHES),
        replayed: number(&options, "replayed", BATCHES_PER_STEP)?.unwrap_or(REPLAYED),
    };
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let loops: Vec<&str> = options.all("loop").collect();
    if let Some(name) = loops
        .iter()
        .find(|name| !LOOPS.iter().any(|(_, it)| it == *name))
    {
        let known = LOOPS.map(|(_, name)| name).join(", ");
        let what = format!("`--loop {name}` is not known, only {known}");
        return Err(Failure::usage(what));
    }
    let names: Vec<&str> = options.all("stack").collect();
    let stacks = matrix.chosen(&names, TAG)?;
    println!("building pedl-run ...");
    let executable = repository.build()?;
    for stack in stacks {
        let is_wanted = |(tag, name): &&(&str, &str)| {
            stack.tags.iter().any(|it| it == tag) && (loops.is_empty() || loops.contains(name))
        };
        let loops = LOOPS.iter().filter(is_wanted).map(|(_, name)| *name);
        measure_stack(stack, loops.collect(), &plan, &repository, &executable)?;
    }
    Ok(true)
}

/// The value of an option, which must be a multiple of a number.
fn number(options: &Options, name: &str, multiple: u64) -> Result<Option<u64>> {
    let Some(text) = options.all(name).last() else {
        return Ok(None);
    };
    let value = text.parse().ok();
    let value = value.filter(|&value: &u64| value > 0 && value.is_multiple_of(multiple));
    value.map(Some).ok_or_else(|| {
        let what = format!("`--{name}` is `{text}`, expected a multiple of {multiple}, above 0");
        Failure::usage(what)
    })
}

fn measure_stack(
    stack: &Stack,
    loops: Vec<&'static str>,
    plan: &Plan,
    repository: &Repository,
    executable: &Path,
) -> Result<()> {
    let interpreter = match Interpreter::of(stack) {
        Ok(interpreter) => interpreter,
        Err(why) => {
            println!("\n{}: skipped, {why}", stack.name);
            return Ok(());
        }
    };
    let environment = Environment::of(stack, &interpreter)?;
    let target = executable.ancestors().nth(2).unwrap_or(repository.root());
    let directory = target.join("bench").join(&stack.name);
    if directory.exists() {
        fs::remove_dir_all(&directory).at("remove", &directory)?;
    }
    println!(
        "\n{}: {} on Python {}; no checkpoint due",
        stack.name,
        stack.summary(),
        interpreter.version
    );
    Bench {
        loops,
        plan,
        repository,
        executable,
        environment,
        directory,
        runs: 0,
    }
    .measure()
}

impl Bench<'_> {
    fn measure(&mut self) -> Result<()> {
        let of_draws = self.loops.contains(&DRAWS);
        let (of_trials, loops): (Vec<_>, Vec<_>) = (self.loops.drain(..))
            .filter(|name| *name != DRAWS)
            .partition(|name| TRIALS.iter().any(|(trial, _)| trial == name));
        self.loops = loops;
        if !self.loops.is_empty() {
            self.measure_loops()?;
        }
        if of_draws {
            self.measure_draws()?;
        }
        if !of_trials.is_empty() {
            self.measure_trials(&of_trials)?;
        }
        Ok(())
    }

    fn measure_draws(&mut self) -> Result<()> {
        let runs = (self.plan.batches / BATCHES_OF_A_DRAW).max(PARTS);
        let mut pairs = Vec::new();
        for _ in 0..self.plan.pairs {
            pairs.push(self.pair("draws", &runs.to_string(), &["--exact"], &DRAWN)?);
        }
        println!(
            "  {} pairs of {runs} runs of each kind, in {PARTS} turns, with `--exact`; all times in µs a million numbers",
            self.plan.pairs
        );
        print_pairs(&pairs, &DRAWN);
        Ok(())
    }

    fn measure_loops(&mut self) -> Result<()> {
        let batches = self.plan.batches.to_string();
        let mut pairs = Vec::new();
        for _ in 0..self.plan.pairs {
            pairs.push(self.pair("measure", &batches, &[], &self.loops.clone())?);
        }
        println!(
            "  {} pairs of {batches} batches of {ROWS} rows, in {PARTS} turns each; all times in µs a batch",
            self.plan.pairs
        );
        print_pairs(&pairs, &self.loops);

        let mut recordings = Vec::new();
        for _ in 0..RECORDINGS {
            recordings.extend(part(&self.pedl_run(&["record", &batches])?, "recording"));
        }
        let empty = self.python(&[&["empty", &*batches], &*self.loops].concat())?;
        println!(
            "  recording            {} a call",
            micros(least(&recordings))
        );
        for (place, name) in self.loops.clone().into_iter().enumerate() {
            let batches = if place == 0 {
                self.plan.replayed
            } else {
                self.plan.batches
            };
            print_replay(name, &self.replay(name, batches)?, &part(&empty, name));
        }
        Ok(())
    }

    /// Runs the script by plain Python and by `pedl-run`, in turns.
    fn pair(
        &mut self,
        command: &str,
        count: &str,
        options: &[&str],
        loops: &[&str],
    ) -> Result<(Answer, Answer)> {
        let Turns {
            directory,
            of_python,
            of_ours,
            ..
        } = &self.turns()?;
        let mut python = self.environment.command();
        python.arg(self.repository.root().join(SCRIPT));
        python.args([command, count, of_python, of_ours]);
        python.args(loops);
        python.current_dir(directory);
        let python = Running::start(python, Output::Keep)?;
        let arguments = [&[command, count, of_ours, of_python], loops].concat();
        let ours = self.start(directory, options, &arguments)?;
        Ok((self.answer(python)?, self.answer(ours)?))
    }

    /// Runs the script by plain Python.
    fn python(&mut self, arguments: &[&str]) -> Result<Answer> {
        let mut command = self.environment.command();
        command.arg(self.repository.root().join(SCRIPT));
        command.args(arguments).current_dir(self.new_directory()?);
        self.answer(Running::start(command, Output::Keep)?)
    }

    /// Runs the script by `pedl-run`, without checkpoints.
    fn pedl_run(&mut self, arguments: &[&str]) -> Result<Answer> {
        let directory = self.new_directory()?;
        let running = self.start(&directory, &[], arguments)?;
        self.answer(running)
    }

    fn start(&self, directory: &Path, options: &[&str], arguments: &[&str]) -> Result<Running> {
        let mut command = self.command(options);
        command.arg(self.repository.root().join(SCRIPT));
        command.args(arguments).current_dir(directory);
        Running::start(command, Output::Keep)
    }

    /// The command of `pedl-run`, without the program to run.
    fn command(&self, options: &[&str]) -> Command {
        let mut command = self.environment.command_for(self.executable);
        command.args(["--checkpoint-seconds", NEVER]).args(options);
        command.arg("--python").arg(&self.environment.python);
        command
    }

    /// A directory for two processes that take turns. The second process finds the caches of the
    /// processor as the first has left them, so the order changes from pair to pair.
    fn turns(&mut self) -> Result<Turns> {
        let directory = self.new_directory()?;
        Turns::new(directory, self.runs.is_multiple_of(2))
    }

    /// Waits for the end of a run, and parses its last line.
    fn answer(&self, mut running: Running) -> Result<Answer> {
        let ended = running.wait(RUN_LIMIT)?;
        let text = running.text();
        let line = text.lines().rev().find(|line| line.starts_with('{'));
        let answer = line.and_then(|line| serde_json::from_str(line).ok());
        answer.filter(|_| ended.success()).ok_or_else(|| {
            let what = format!(
                "what was measured ended with {}:\n{}",
                ended.describe(),
                tail(&text)
            );
            Failure::new(what).hint(format!("see {}", self.directory.display()))
        })
    }

    fn new_directory(&mut self) -> Result<PathBuf> {
        self.runs += 1;
        let directory = self.directory.join(format!("run-{}", self.runs));
        fs::create_dir_all(&directory).at("create", &directory)?;
        Ok(directory)
    }
}

/// The last lines of an output: a step prints a line, and there are thousands.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().rev().take(SHOWN_LINES).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// The numbers of one loop.
fn part(answer: &Answer, name: &str) -> Vec<f64> {
    answer.get(name).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::trials::TRIALS;
    use super::{DRAWN, LOOPS, PARTS, ROWS, ROWS_OF_A_TRIAL, SCRIPT, WARM_UP_BATCHES};
    use crate::repository::Repository;

    #[test]
    fn the_script_has_the_numbers_that_stand_here() {
        let path = Repository::find().root().join(SCRIPT);
        let text = fs::read_to_string(path).expect("it is there");
        assert!(text.contains(&format!("ROWS, COLUMNS = {ROWS},")));
        assert!(text.contains(&format!("WARM_UP_BATCHES = {WARM_UP_BATCHES}\n")));
        let measured = Repository::find()
            .root()
            .join("tests/bench/measured/__init__.py");
        let measured = fs::read_to_string(measured).expect("it is there");
        assert!(measured.contains(&format!(
            "\nROWS, COLUMNS, HIDDEN, CLASSES = {ROWS_OF_A_TRIAL},"
        )));
        for text in [&text, &measured] {
            assert!(text.contains(&format!("PARTS = {PARTS}\n")));
        }
        let trials = TRIALS.map(|(name, _)| name);
        let loops = LOOPS.iter().map(|(_, name)| name);
        for name in loops.filter(|name| !trials.contains(name)).chain(&DRAWN) {
            assert!(text.contains(&format!("\"{name}\": ")), "{name}");
        }
    }
}
