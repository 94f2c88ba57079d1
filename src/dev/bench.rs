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

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde::Deserialize;

use crate::Options;
use crate::environment::Environment;
use crate::events::Trial;
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::{Matrix, Stack};
use crate::process::{Output, Running};
use crate::quantiles::{error_of_median, least, median, quantile};
use crate::repository::Repository;

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

/// Trial classes that are measured, with their modules in the definition.
const TRIALS: [(&str, &str); 4] = [
    ("KerasTrial", "keras_trial"),
    ("TensorFlowTrial", "tensorflow_trial"),
    ("EstimatorTrial", "estimator_trial"),
    ("PyTorchTrial", "pytorch_trial"),
];

/// The definition, and the script with the loops to compare with.
const DEFINITION: &str = "tests/bench";
const PLAIN_LOOP: &str = "tests/bench/plain_loop.py";

/// A batch of a trial class takes this many times as long as one of the other loops.
const SHARE_OF_A_TRIAL: u64 = 5;

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

/// How often to look for the checkpoint. Some hundred batches are left to compute then.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// How much of an output is shown with a failure: a traceback fits.
const SHOWN_LINES: usize = 30;

const MICROSECONDS: f64 = 1e6;

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

/// The directory of two processes that take turns, and the pipes that give each of them its turn.
struct Turns {
    directory: PathBuf,
    of_python: String,
    of_ours: String,
    /// Holds the first turn until its process has opened the pipe.
    _first: File,
}

/// A replay that was measured.
struct Replay {
    batches: u64,
    seconds: f64,
    log_bytes: u64,
    log_calls: u64,
}

/// The fields of an event that are used here.
#[derive(Deserialize)]
struct Event {
    event: String,
    time: String,
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

    fn measure_trials(&mut self, names: &[&str]) -> Result<()> {
        let batches = (self.plan.batches / SHARE_OF_A_TRIAL / PARTS).max(1);
        println!(
            "  {} pairs of {} batches of {ROWS_OF_A_TRIAL} rows, a perceptron, in {PARTS} turns: trial classes, and plain loops in \
             python; µs a batch",
            self.plan.pairs,
            batches * PARTS
        );
        let mut pairs = Vec::new();
        for _ in 0..self.plan.pairs {
            let (mut plain, mut ours) = (Answer::new(), Answer::new());
            for (name, module) in TRIALS.iter().filter(|(name, _)| names.contains(name)) {
                let (theirs, trial) = self.pair_of_trial(module, batches)?;
                plain.insert((*name).to_owned(), part(&theirs, "trial"));
                ours.insert((*name).to_owned(), part(&trial, "trial"));
            }
            pairs.push((plain, ours));
        }
        print_pairs(&pairs, names);
        Ok(())
    }

    /// Runs a plain loop by Python and a trial class by `pedl-run`, in turns.
    fn pair_of_trial(&mut self, module: &str, batches: u64) -> Result<(Answer, Answer)> {
        let turns = self.turns()?;
        let mut python = self.environment.command();
        python.arg(self.repository.root().join(PLAIN_LOOP));
        python.args([
            module,
            &batches.to_string(),
            &turns.of_python,
            &turns.of_ours,
        ]);
        // The modules name the base classes of `pedl`; the loops use none.
        python.env("PYTHONPATH", self.repository.root().join("shims"));
        python.current_dir(&turns.directory);
        let python = Running::start(python, Output::Keep)?;

        let steps = PARTS + 1;
        let configuration = serde_json::json!({
            "entrypoint": format!("measured.{module}:Trial"),
            "hyperparameters": {"mine": turns.of_ours, "other": turns.of_python, "batches": batches},
            "batches_per_step": batches,
            "min_validation_period": steps,
            "searcher": {
                "name": "single", "metric": "loss", "smaller_is_better": true, "max_steps": steps,
            },
            "max_restarts": 0,
        });
        let file = turns.directory.join("measured.yaml");
        fs::write(&file, configuration.to_string()).at("write", &file)?;
        let mut ours = self.command(&[]);
        ours.arg("--trial-dir").arg(turns.directory.join("trial"));
        ours.arg("--config").arg(&file);
        ours.arg(self.repository.root().join(DEFINITION));
        ours.current_dir(&turns.directory);
        let ours = Running::start(ours, Output::Keep)?;
        Ok((self.answer(python)?, self.answer(ours)?))
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

    /// A directory for two processes that take turns.
    fn turns(&mut self) -> Result<Turns> {
        let directory = self.new_directory()?;
        let turn = |name: &str| {
            let path = directory.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                .map_err(std::io::Error::from)
                .at("create", &path)?;
            Ok::<_, Failure>(path)
        };
        let (of_python, of_ours) = (turn("turn-of-python")?, turn("turn-of-pedl-run")?);
        // The second process finds the caches of the processor as the first has left them.
        let first = if self.runs.is_multiple_of(2) {
            &of_python
        } else {
            &of_ours
        };
        // Opened for reading and writing, so that the open does not block and the pipe keeps the
        // first turn.
        let pipe = OpenOptions::new().read(true).write(true).open(first);
        let mut pipe = pipe.at("open", first)?;
        pipe.write_all(b".").at("write", first)?;
        Ok(Turns {
            directory,
            of_python: of_python.to_string_lossy().into_owned(),
            of_ours: of_ours.to_string_lossy().into_owned(),
            _first: pipe,
        })
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

    /// Trains until the checkpoint after `batches` batches, kills the run, and starts it again.
    fn replay(&mut self, name: &str, batches: u64) -> Result<Replay> {
        let directory = self.new_directory()?;
        let marks = directory.join("marks");
        fs::write(&marks, "").at("create", &marks)?;
        let calls = WARM_UP_BATCHES + batches;
        let step = BATCHES_PER_STEP.to_string();
        let period = (calls / BATCHES_PER_STEP).to_string();
        // A run that cannot be resumed exactly takes no checkpoint, as TensorFlow 1 with its
        // defaults.
        let options = [
            "--exact",
            "--batches-per-step",
            &step,
            "--checkpoint-period",
            &period,
        ];
        let (count, marks_text) = (batches.to_string(), marks.to_string_lossy());
        let arguments = ["replayed", &count, name, &marks_text];
        let trial = Trial::at(directory.join(TRIAL));

        let mut running = self.start(&directory, &options, &arguments)?;
        let reached = || Ok(trial.checkpoint() == Some(calls));
        if let Some(ended) = running.wait_until(RUN_LIMIT, LOOK_INTERVAL, reached)? {
            let what = format!("it was to be killed before its end ({})", ended.describe());
            return Err(Failure::new(format!("{what}:\n{}", tail(&running.text()))));
        }
        running.kill()?;
        let log = directory.join(TRIAL).join("calls.log");
        let log_bytes = fs::metadata(&log).at("look at", &log)?.len();

        let again = self.start(&directory, &options, &arguments)?;
        self.answer(again)?;
        Ok(Replay {
            batches,
            seconds: resumed_at(&directory.join(TRIAL))? - last_mark(&marks)?,
            log_bytes,
            log_calls: calls,
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

/// When the last replay of a trial ended, in seconds since 1970.
fn resumed_at(trial: &Path) -> Result<f64> {
    let journal = trial.join("events.jsonl");
    let text = fs::read_to_string(&journal).at("read", &journal)?;
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let mut times = events.filter(|event: &Event| event.event == "resumed");
    let time = times.next_back().and_then(|event| {
        let time = humantime::parse_rfc3339(&event.time).ok()?;
        time.duration_since(SystemTime::UNIX_EPOCH).ok()
    });
    time.map(|time| time.as_secs_f64())
        .ok_or_else(|| Failure::new(format!("`{}` tells of no resume", journal.display())))
}

/// When the last start of the script reached its loop, in seconds since 1970. It is the time of a
/// file, because the clock of the script repeats its earlier times in a replay.
fn last_mark(marks: &Path) -> Result<f64> {
    let time = fs::metadata(marks)
        .and_then(|found| found.modified())
        .at("look at", marks)?;
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since
        .map(|time| time.as_secs_f64())
        .map_err(|_| Failure::new(format!("`{}` is older than 1970", marks.display())))
}

/// The numbers of one loop.
fn part(answer: &Answer, name: &str) -> Vec<f64> {
    answer.get(name).cloned().unwrap_or_default()
}

/// Prints for each loop the time of Python, and how much longer the turns of `pedl-run` took than
/// the neighbouring ones. Half of the differences are between the quartiles. The error is that of
/// their median: 19 in 20 medians are within it.
fn print_pairs(pairs: &[(Answer, Answer)], loops: &[&str]) {
    println!(
        "  {:<16}{:>8}   {:>37}   {:>7}",
        "", "python", "pedl-run minus python", "ratio"
    );
    println!(
        "  {:<16}{:>8}   {:>10}{:>9} ± {:<6}{:>9}   {:>7}",
        "", "median", "quartile", "median", "", "quartile", "median"
    );
    for name in loops {
        let (mut python, mut more, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for (theirs, ours) in pairs {
            for (theirs, ours) in part(theirs, name).into_iter().zip(part(ours, name)) {
                python.push(theirs * MICROSECONDS);
                more.push((ours - theirs) * MICROSECONDS);
                ratios.push(ours / theirs);
            }
        }
        let error = error_of_median(&more);
        println!(
            "  {name:<16}{:>8.1}   {:>10.1}{:>9.1} ± {error:<6.1}{:>9.1}   {:>7.3}",
            median(&python),
            quantile(&more, 1, 4),
            median(&more),
            quantile(&more, 3, 4),
            median(&ratios),
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn print_replay(name: &str, replay: &Replay, empty: &[f64]) {
    let ghost = replay.seconds / replay.batches as f64;
    println!(
        "  replay, {name:<16}{} a batch ({} batches in {:.2} s, so {:.1} s for 100000)",
        micros(ghost),
        replay.batches,
        replay.seconds,
        ghost * 1e5,
    );
    let alone = if empty.is_empty() {
        String::new()
    } else {
        format!(
            "the framework's loop alone {} a batch; ",
            micros(median(empty))
        )
    };
    println!(
        "  {:<24}{alone}log {:.1} bytes a call",
        "",
        replay.log_bytes as f64 / replay.log_calls as f64,
    );
}

/// A time as it is printed.
fn micros(seconds: f64) -> String {
    format!("{:.1} µs", seconds * MICROSECONDS)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{
        DRAWN, LOOPS, PARTS, ROWS, ROWS_OF_A_TRIAL, SCRIPT, TRIALS, WARM_UP_BATCHES, resumed_at,
    };
    use crate::repository::Repository;

    #[test]
    fn the_last_resume_of_a_journal_counts() {
        let directory = tempfile::tempdir().expect("there is room");
        let text = "{\"event\":\"resumed\",\"time\":\"1970-01-01T00:00:01.000Z\"}\n\
            {\"event\":\"resumed\",\"time\":\"1970-01-01T00:01:00.250Z\"}\n\
            {\"event\":\"step\",\"time\":\"1970-01-01T00:02:00.000Z\"}\n{\"event\":";
        fs::write(directory.path().join("events.jsonl"), text).expect("there is room");
        let time = resumed_at(directory.path()).expect("there is one");
        assert!((time - 60.25).abs() < 1e-9, "{time}");
    }

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
