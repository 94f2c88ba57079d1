//! `cargo dev demo`: shows on a real script what this project is for.
//!
//! `examples/keras_fit_images.py` is trained three times with the same numbers: by plain Python, by
//! `pedl-run` undisturbed, and by a `pedl-run` that is killed half-way with SIGKILL, all of its
//! processes at once, and then started again with the same command. At the end the hashes of the
//! weights are printed, one above the other.
//!
//! `--picture FILE` writes the kill, the resume and the result as a picture of a terminal (SVG),
//! the one in the README.
//!
//! *Half-way* is not a time. It is reached when the journal of the trial shows half of the steps
//! that the undisturbed run took, and there is a checkpoint to continue from.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Options;
use crate::environment::Environment;
use crate::events::Trial;
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::{Matrix, Stack};
use crate::picture::{self, Kind};
use crate::process::{Output, Running};
use crate::repository::Repository;

/// The stack of `tests/matrix.toml` that runs the example: the quickest to install.
const STACK: &str = "keras3-jax";

/// The versions of Python that are looked for, if the command line names none.
const PYTHONS: [&str; 3] = ["3.11", "3.12", "3.13"];

/// The script.
const SCRIPT: &str = "examples/keras_fit_images.py";

/// The directory of the trial of that script, relative to the working directory.
const TRIAL: &str = ".pedl/keras_fit_images";

/// How often a checkpoint is taken. The default is once a minute, and the training ends before
/// that.
const OPTIONS: [&str; 2] = ["--checkpoint-seconds", "1"];

/// The example takes a quarter of a minute; more than this is a hang.
const RUN_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How often to look into the journal. A batch takes a few milliseconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The prefix of the output of a run.
const INDENT: &str = "   | ";

/// The beginnings of the last lines of the script.
const ACCURACY: &str = "test accuracy ";
const HASH: &str = "sha256 of the weights: ";

/// What is needed to start the script.
struct Stage {
    repository: Repository,
    executable: PathBuf,
    environment: Environment,
    directory: PathBuf,
}

/// One row of the result.
struct Row {
    name: &'static str,
    times: Vec<Duration>,
    accuracy: String,
    hash: String,
    /// What the last start of the script printed.
    text: String,
}

/// A run until its kill.
struct Killed {
    took: Duration,
    text: String,
    /// A line that describes the kill.
    kill: String,
}

/// Characters of a hash that the picture shows.
const SHOWN_DIGITS: usize = 32;

/// Runs the demonstration; returns whether the hashes are equal.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["python", "picture"])?.no_rest()?;
    let asked_for = options.all("python").last().map(PathBuf::from);
    println!("The same training three times; one of them is killed half-way.\n");
    let stage = Stage::set(asked_for.as_deref())?;

    println!(
        "\n1. plain Python\n   $ {}",
        stage.shown(&stage.python("1-python")?)
    );
    let plain = stage.train(stage.python("1-python")?, "plain Python")?;

    println!(
        "\n2. pedl-run, undisturbed\n   $ {}",
        stage.shown(&stage.pedl_run("2-undisturbed")?)
    );
    let undisturbed = stage.train(stage.pedl_run("2-undisturbed")?, "pedl-run")?;
    let steps = Trial::at(stage.directory.join("2-undisturbed").join(TRIAL)).count("step");

    println!("\n3. pedl-run, killed half-way, in a new directory");
    let Some(first) = stage.train_and_kill("3-killed", steps)? else {
        return Ok(false);
    };
    println!("\n   the same command again, in the same directory");
    let mut killed = stage.train(stage.again("3-killed"), "pedl-run, killed")?;
    match Trial::at(stage.directory.join("3-killed").join(TRIAL)).resumed_after() {
        Some(batch) => println!("   it computed what comes after batch {batch}"),
        None => println!("   it computed everything anew: no resume is in its journal"),
    }
    killed.times.insert(0, first.took);

    let rows = [plain, undisturbed, killed];
    let same = compare(&rows);
    if let Some(path) = options.all("picture").last() {
        fs::write(path, picture::terminal(&shown(&first, &rows))).at("write", Path::new(path))?;
    }
    Ok(same)
}

/// If there are at most this many steps in a row, all of them are shown.
const SHOWN_STEPS: usize = 3;

/// The lines, but only the first and the last of many steps in a row.
fn without_middle(lines: &[(Kind, String)]) -> Vec<(Kind, String)> {
    let is_step = |line: &(Kind, String)| line.1.starts_with("pedl: step ");
    let mut found = Vec::new();
    for group in lines.chunk_by(|one, other| is_step(one) && is_step(other)) {
        if let ([first, .., last], true) = (group, group.len() > SHOWN_STEPS) {
            found.extend([first.clone(), (Kind::Ours, "...".to_owned()), last.clone()]);
        } else {
            found.extend_from_slice(group);
        }
    }
    found
}

/// The lines of the picture: the run that was killed, the same command again, and the hashes.
fn shown(first: &Killed, rows: &[Row; 3]) -> Vec<(Kind, String)> {
    let command = format!("$ pedl-run {} train.py", OPTIONS.join(" "));
    let printed = |text: &str| {
        let kept = text.lines().filter_map(|line| {
            let is_ours = line.starts_with("pedl: ");
            let kind = if is_ours { Kind::Ours } else { Kind::Printed };
            let is_shown = is_ours || line.starts_with("Epoch ");
            is_shown.then(|| (kind, line.to_owned()))
        });
        without_middle(&kept.collect::<Vec<_>>())
    };
    let mut lines = vec![(Kind::Typed, command.clone())];
    lines.extend(printed(&first.text));
    lines.push((Kind::Kill, first.kill.clone()));
    lines.push((Kind::Typed, command));
    lines.extend(printed(&rows[2].text));
    lines.push((Kind::Printed, String::new()));
    lines.push((
        Kind::Typed,
        format!("{:<20}{:<17}sha256 of the weights", "", "time"),
    ));
    for row in rows {
        let times: Vec<_> = row.times.iter().map(|&time| seconds(time)).collect();
        let digits: String = row.hash.chars().take(SHOWN_DIGITS).collect();
        lines.push((
            Kind::Result,
            format!("{:<20}{:<17}{digits}...", row.name, times.join(" + ")),
        ));
    }
    lines
}

impl Stage {
    /// Builds the executable, makes the environment, and prints both.
    fn set(asked_for: Option<&Path>) -> Result<Self> {
        let repository = Repository::find();
        let stack = Matrix::read(&repository)?.stack(STACK)?.clone();
        let interpreter = match asked_for {
            Some(path) => Interpreter::at(path)?,
            None => find_interpreter(&stack)?,
        };

        println!("building pedl-run ...");
        let started = Instant::now();
        let executable = repository.build()?;
        println!(
            "    {} ({})",
            executable.display(),
            seconds(started.elapsed())
        );
        println!(
            "environment with {} on Python {} ...",
            stack.summary(),
            interpreter.version
        );
        let environment = Environment::of(&stack, &interpreter)?;
        let how = environment
            .made_in
            .map_or("was there already".to_owned(), seconds);
        println!("    {} ({how})", environment.directory.display());

        let directory = executable
            .ancestors()
            .nth(2)
            .unwrap_or(repository.root())
            .join("demo");
        if directory.exists() {
            fs::remove_dir_all(&directory).at("remove", &directory)?;
        }
        Ok(Self {
            repository,
            executable,
            environment,
            directory,
        })
    }

    /// The command of the script itself, in a new directory.
    fn python(&self, directory: &str) -> Result<Command> {
        let mut command = self.environment.command();
        command
            .arg(self.repository.root().join(SCRIPT))
            .current_dir(self.make(directory)?);
        Ok(command)
    }

    /// The command of the script under `pedl-run`, in a new directory.
    fn pedl_run(&self, directory: &str) -> Result<Command> {
        self.make(directory)?;
        Ok(self.again(directory))
    }

    /// The command of the script under `pedl-run`, in a directory in which it may have run before.
    fn again(&self, directory: &str) -> Command {
        let mut command = self.environment.command_for(&self.executable);
        command
            .args(OPTIONS)
            .arg("--python")
            .arg(&self.environment.python)
            .arg(self.repository.root().join(SCRIPT))
            .current_dir(self.directory.join(directory));
        command
    }

    fn make(&self, directory: &str) -> Result<PathBuf> {
        let directory = self.directory.join(directory);
        fs::create_dir_all(&directory).at("create", &directory)?;
        Ok(directory)
    }

    /// A command as a user would type it.
    fn shown(&self, command: &Command) -> String {
        let variables = self
            .environment
            .variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|word| word.to_string_lossy().into_owned());
        variables.chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Trains to the end.
    fn train(&self, command: Command, name: &'static str) -> Result<Row> {
        let mut running = Running::start(command, Output::Prefix(INDENT))?;
        let ended = running.wait(RUN_LIMIT)?;
        let took = running.elapsed();
        let text = running.text();
        if !ended.success() {
            let what = format!("the script ended with {}", ended.describe());
            return Err(Failure::new(what).hint(format!("see {}", self.directory.display())));
        }
        let value = |label: &str| {
            let found = text.lines().rev().find_map(|line| line.split_once(label));
            found.map(|(_, value)| value.to_owned()).ok_or_else(|| {
                Failure::new(format!("the script did not print a line with `{label}`"))
            })
        };
        println!("   ended after {}", seconds(took));
        Ok(Row {
            name,
            times: vec![took],
            accuracy: value(ACCURACY)?,
            hash: value(HASH)?,
            text,
        })
    }

    /// Trains until half of `steps` are done, then kills everything. `None` if the script ended
    /// earlier.
    fn train_and_kill(&self, directory: &str, steps: usize) -> Result<Option<Killed>> {
        let trial = Trial::at(self.directory.join(directory).join(TRIAL));
        let mut running = Running::start(self.pedl_run(directory)?, Output::Prefix(INDENT))?;
        let early_end = running.wait_until(RUN_LIMIT, LOOK_INTERVAL, || {
            Ok(2 * trial.count("step") >= steps && trial.checkpoint().is_some())
        })?;
        let took = running.elapsed();
        if let Some(ended) = early_end {
            running.text();
            println!(
                "   FAILED: it was not to be killed before its end ({})",
                ended.describe()
            );
            return Ok(None);
        }
        let processes = running.kill()?;
        let kill = format!(
            "SIGKILL to all {processes} processes after {}, in step {} of {steps}; the newest \
             checkpoint is of batch {}",
            seconds(took),
            trial.count("step") + 1,
            trial.checkpoint().unwrap_or_default(),
        );
        let text = running.text();
        println!("   {kill}");
        Ok(Some(Killed { took, text, kill }))
    }
}

/// The interpreter if the command line names none.
fn find_interpreter(stack: &Stack) -> Result<Interpreter> {
    let versions: Vec<String> = PYTHONS.iter().map(|&version| version.to_owned()).collect();
    Interpreter::find(&versions)
        .or_else(|| Interpreter::find(&stack.python))
        .ok_or_else(|| {
            Failure::new(format!("found no Python of {}", versions.join(", ")))
                .hint("install one, or name it: `cargo dev demo --python PATH`")
        })
}

/// Prints the rows and the verdict.
fn compare(rows: &[Row; 3]) -> bool {
    println!(
        "\n{:<23}{:<17}{:<15}sha256 of the weights",
        "", "time", "test accuracy"
    );
    for row in rows {
        let times: Vec<_> = row.times.iter().map(|&time| seconds(time)).collect();
        println!(
            "{:<23}{:<17}{:<15}{}",
            row.name,
            times.join(" + "),
            row.accuracy,
            row.hash
        );
    }
    let [plain, undisturbed, killed] = rows;
    let same = undisturbed.hash == killed.hash;
    let verdict = if same {
        "IDENTICAL: the run that was killed has learned the same weights, bit for bit"
    } else {
        "DIFFERENT: the run that was killed has learned other weights"
    };
    println!("\n{verdict}.");
    if same && plain.hash == killed.hash {
        println!("They are also those of plain Python.");
    }
    same
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
