//! `cargo dev checkpoints`: the cost of a checkpoint of 300 MB, beside other ways to save and to
//! read as much.
//!
//! `tests/bench/checkpoints.py` trains a model with 25 million parameters under Adam by `pedl-run`.
//! Its first start takes checkpoints, and in turns with each it does what the checkpoint is
//! compared with. The later starts restore the state of the last checkpoint. The first checkpoint
//! of a process touches its memory for the first time, so it is reported separately; of the others
//! the median counts. A ratio is the median of the ratios within each turn, because a busy machine
//! is then busy for both.
//!
//! The numbers depend on the machine and its other work, so the load is printed. A number above
//! [`MAX_COPIES`] or below [`MIN_SPEED`] is a failure.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::Options;
use crate::bench::tail;
use crate::environment::Environment;
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::matrix::{Matrix, Stack};
use crate::process::{Output, Running};
use crate::quantiles::median;
use crate::repository::Repository;
use crate::startup::load;

const SCRIPT: &str = "tests/bench/checkpoints.py";

/// The tag of the stacks that are measured if the command line names none, and that of Keras 3.
const TAG: &str = "keras";
const KERAS3: &str = "keras3";

/// How many starts restore the state.
const RESUMES: u32 = 3;

/// On Keras 3 the training waits for a checkpoint at most as long as for this many copies of its
/// bytes.
const MAX_COPIES: f64 = 2.0;

/// A checkpoint is written at least at this fraction of the speed of `dd`.
const MIN_SPEED: f64 = 0.8;

/// An interval between checkpoints that is longer than any run here: the script takes them itself.
const NEVER: &str = "1e9";

/// Enough for thirty times 300 MB on a slow disk.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The other ways to save: the name in the script, and in the table.
const SAVERS: [(&str, &str); 3] = [
    ("model.save", "  model.save"),
    ("BackupAndRestore", "  BackupAndRestore"),
    ("Orbax", "  Orbax, asynchronous"),
];

/// The output of one start: the seconds by operation.
#[derive(Deserialize)]
struct Answer {
    bytes: Option<f64>,
    #[serde(flatten)]
    times: BTreeMap<String, Vec<f64>>,
}

/// Measures and prints; returns whether every limit was kept.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["stack"])?.no_rest()?;
    let repository = Repository::find();
    let matrix = Matrix::read(&repository)?;
    let names: Vec<&str> = options.all("stack").collect();
    let stacks = matrix.chosen(&names, TAG)?;
    println!("building pedl-run ...");
    let executable = repository.build()?;
    let mut good = true;
    for stack in stacks {
        good &= measure(&matrix.with_peers(stack), &repository, &executable)?;
    }
    Ok(good)
}

fn measure(stack: &Stack, repository: &Repository, executable: &Path) -> Result<bool> {
    let interpreter = match Interpreter::of(stack) {
        Ok(interpreter) => interpreter,
        Err(why) => {
            println!("\n{}: skipped, {why}", stack.name);
            return Ok(true);
        }
    };
    let environment = Environment::of(stack, &interpreter)?;
    let target = executable.ancestors().nth(2).unwrap_or(repository.root());
    let directory = target.join("checkpoints").join(&stack.name);
    if directory.exists() {
        fs::remove_dir_all(&directory).at("remove", &directory)?;
    }
    fs::create_dir_all(&directory).at("create", &directory)?;
    println!(
        "\n{}: {} on Python {}; load average {}",
        stack.name,
        stack.summary(),
        interpreter.version,
        load()
    );
    let start = || {
        let mut command = environment.command_for(executable);
        command.args(["--checkpoint-seconds", NEVER]);
        command.arg("--python").arg(&environment.python);
        command.arg(repository.root().join(SCRIPT)).arg("files");
        command.current_dir(&directory);
        answer(Running::start(command, Output::Keep)?)
    };
    let saved = start()?;
    let mut resumed = start()?;
    for _ in 1..RESUMES {
        for (name, times) in start()?.times {
            resumed.times.entry(name).or_default().extend(times);
        }
    }
    let is_keras3 = stack.tags.iter().any(|tag| tag == KERAS3);
    let good = print(&saved, &resumed, is_keras3);
    println!("  load average {}", load());
    fs::remove_dir_all(&directory).at("remove", &directory)?;
    Ok(good)
}

/// Waits for the end of a start, and parses its last line. The script ends like one that fails.
fn answer(mut running: Running) -> Result<Answer> {
    let ended = running.wait(LIMIT)?;
    let text = running.text();
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    line.and_then(|line| serde_json::from_str(line).ok())
        .ok_or_else(|| {
            let ended = ended.describe();
            Failure::new(format!("`{SCRIPT}` ended with {ended}:\n{}", tail(&text)))
        })
}

/// Prints the table; returns whether the limits were kept.
fn print(saved: &Answer, resumed: &Answer, is_keras3: bool) -> bool {
    let megabytes = saved.bytes.unwrap_or(f64::NAN) / 1e6;
    let speed = |times: &[f64]| format!("{:.0} MB/s", megabytes / median(later(times)));
    let waits = saved.of("checkpoint");
    let copies = saved.of("memcpy");
    let (written, dd) = (saved.of("write"), saved.of("dd"));
    let of_copies = median_ratio(waits, copies);
    // A ratio of speeds, so the arguments are swapped.
    let of_dd = median_ratio(dd, written);
    let is_quick = !is_keras3 || of_copies <= MAX_COPIES;
    let is_fast = of_dd >= MIN_SPEED;

    println!("  {:<26}{:>8}{:>10}{:>8}", "", "first", "median", "ratio");
    let name = format!("{megabytes:.0} MB: the training waits");
    print_row(&name, waits, None, "");
    let limit = match (is_keras3, is_quick) {
        (false, _) => String::new(),
        (true, true) => format!("(at most {MAX_COPIES})"),
        (true, false) => format!("(NOT at most {MAX_COPIES})"),
    };
    print_row("  one copy in memory", copies, Some(of_copies), &limit);
    for (name, title) in SAVERS {
        let others = saved.of(name);
        if !others.is_empty() {
            print_row(title, others, Some(median_ratio(waits, others)), "");
        }
    }
    print_row("it is written", written, None, &speed(written));
    let not = if is_fast { "" } else { "NOT " };
    let limit = format!("{} ({not}at least {MIN_SPEED})", speed(dd));
    print_row("  dd conv=fsync", dd, Some(of_dd), &limit);

    let (begin, resume) = (resumed.of("begin"), resumed.of("resume"));
    let sums = begin.iter().zip(resume).map(|(one, two)| one + two);
    let (put_in, read) = (
        median(&sums.collect::<Vec<_>>()),
        median(resumed.of("read")),
    );
    let parts = format!(
        "{:.3} s to read and prove it, {:.3} s to put it in",
        median(begin),
        median(resume)
    );
    println!(
        "  {:<34}{put_in:>8.3} s{:>8}   {parts}",
        "it is restored", ""
    );
    let ratio = put_in / read;
    println!("  {:<34}{read:>8.3} s{ratio:>8.2}", "  reading the file");
    is_quick && is_fast
}

/// Prints a line of the table: the seconds of the first time, and the median of the others.
fn print_row(name: &str, times: &[f64], ratio: Option<f64>, note: &str) {
    let first = times.first().copied().unwrap_or(f64::NAN);
    let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
    let line = format!(
        "  {name:<26}{first:>6.3} s{:>8.3} s{ratio:>8}   {note}",
        median(later(times))
    );
    println!("{}", line.trim_end());
}

/// All times except the first.
fn later(times: &[f64]) -> &[f64] {
    times.get(1..).unwrap_or_default()
}

/// The median ratio of our time to the other time in the same turn, without the first turn.
fn median_ratio(ours: &[f64], others: &[f64]) -> f64 {
    let pairs = later(ours).iter().zip(later(others));
    median(
        &pairs
            .map(|(ours, others)| ours / others)
            .collect::<Vec<_>>(),
    )
}

impl Answer {
    /// The seconds of one operation; none if it was not done.
    fn of(&self, name: &str) -> &[f64] {
        self.times.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Answer, SAVERS, SCRIPT, median_ratio};
    use crate::repository::Repository;

    #[test]
    fn the_first_time_stands_by_itself() {
        let text =
            r#"{"checkpoint": [9.0, 1.0, 2.0, 3.0], "memcpy": [1.0, 1.0, 1.0, 6.0], "bytes": 300}"#;
        let answer: Answer = serde_json::from_str(text).expect("it is an answer");
        let ratio = median_ratio(answer.of("checkpoint"), answer.of("memcpy"));
        assert!((ratio - 1.0).abs() < f64::EPSILON, "{ratio}");
        assert!(answer.of("Orbax").is_empty());
    }

    #[test]
    fn the_script_has_the_names_that_stand_here() {
        let path = Repository::find().root().join(SCRIPT);
        let text = fs::read_to_string(path).expect("it is there");
        let names = ["checkpoint", "memcpy", "dd", "begin", "resume", "read"];
        for name in names.iter().chain(SAVERS.iter().map(|(name, _)| name)) {
            assert!(text.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
