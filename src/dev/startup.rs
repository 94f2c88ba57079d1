//! `cargo dev startup`: the time that `pedl-run` adds to the start of a script that does nothing.
//!
//! A pair is `python hello.py` and `pedl-run hello.py`, one after the other, from the start of the
//! process to its end; the order changes from pair to pair. Each is run in an empty directory, with
//! the library of `pedl-run` laid out and compiled, and without permission to write byte code
//! (`PYTHONDONTWRITEBYTECODE`), as in images of containers. Then once more with nothing laid out:
//! the first run after an installation.
//!
//! The numbers depend on the machine and its other work, so the load is printed. Only a median
//! above [`MOST`] is a failure.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Options;
use crate::failure::{At as _, Failure, Result};
use crate::interpreter::Interpreter;
use crate::process::{self, Output, Running};
use crate::quantiles::{error_of_median, median, quantile};
use crate::repository::Repository;

/// The default versions: the oldest Python, one that is often installed, and the newest.
const PYTHONS: [&str; 3] = ["3.7", "3.11", "3.13"];

/// An interpreter with Python linked into its executable, as Debian's. Its default is exec mode.
const STATIC_EXECUTABLE: &str = "/usr/bin/python3";

/// The default number of pairs.
const PAIRS: u64 = 40;

/// A first run compiles the library. It is measured only for information.
const FIRST_RUNS: u64 = 5;

/// The most that may be added to the start, in ms.
const MOST: f64 = 15.0;

/// Enough for a start on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(60);

/// The programs: the name in the table, and the arguments.
const PROGRAMS: [(&str, &[&str]); 2] = [("hello.py", &["hello.py"]), ("-c pass", &["-c", "pass"])];

const MILLISECONDS: f64 = 1e3;

/// One interpreter in one mode.
struct Start<'a> {
    executable: &'a Path,
    python: &'a Path,
    mode: &'static str,
    directory: &'a Path,
    cache: PathBuf,
}

/// Measures and prints; returns whether no median is above the limit.
pub(crate) fn run(arguments: Vec<OsString>) -> Result<bool> {
    let options = Options::parse(arguments, &["python", "pairs"])?.no_rest()?;
    let pairs = match options.all("pairs").last() {
        None => PAIRS,
        Some(text) => {
            let number = text.parse().ok().filter(|number| *number > 0);
            number.ok_or_else(|| {
                Failure::usage(format!("`--pairs` is `{text}`, expected a number above 0"))
            })?
        }
    };
    let chosen: Vec<&str> = options.all("python").collect();
    let repository = Repository::find();
    let executable = repository.build()?;
    let target = executable.ancestors().nth(2).unwrap_or(repository.root());
    let directory = target.join("startup");
    if directory.exists() {
        fs::remove_dir_all(&directory).at("remove", &directory)?;
    }
    let empty = directory.join("empty");
    fs::create_dir_all(&empty).at("create", &empty)?;
    let hello = empty.join("hello.py");
    fs::write(&hello, "print('hello')\n").at("write", &hello)?;

    println!("{pairs} pairs each, in ms; load average {}", load());
    println!(
        "{:<16}{:<10}{:>8}   {:>37}   first run",
        "", "", "python", "pedl-run minus python"
    );
    println!(
        "{:<16}{:<10}{:>8}   {:>10}{:>9} ± {:<6}{:>9}",
        "", "", "median", "quartile", "median", "", "quartile"
    );
    let mut good = true;
    for python in interpreters(&chosen) {
        let modes: &[_] = if python.is_linked()? {
            &["embed", "exec"]
        } else {
            &["exec"]
        };
        for &mode in modes {
            let start = Start {
                executable: &executable,
                python: &python.path,
                mode,
                directory: &empty,
                cache: directory.join("cache"),
            };
            good &= start.measure(&format!("{}, {mode}", python.version), pairs)?;
        }
    }
    println!("load average {}", load());
    Ok(good)
}

/// The interpreters to measure. Those of pyenv are the ones that may be linked against a libpython.
fn interpreters(chosen: &[&str]) -> Vec<Interpreter> {
    let wanted = if chosen.is_empty() {
        &PYTHONS[..]
    } else {
        chosen
    };
    let mut found = Vec::new();
    for version in wanted {
        match Interpreter::below_pyenv(version) {
            Some(python) => found.push(python),
            None => println!("{version}: skipped, there is no such Python below pyenv"),
        }
    }
    if chosen.is_empty() {
        match Interpreter::at(Path::new(STATIC_EXECUTABLE)) {
            Ok(python) => found.push(python),
            Err(failure) => println!("{STATIC_EXECUTABLE}: skipped, {failure}"),
        }
    }
    found
}

impl Start<'_> {
    /// Prints a line for each program; returns whether the medians are small enough.
    fn measure(&self, name: &str, pairs: u64) -> Result<bool> {
        let mut good = true;
        for (program, arguments) in PROGRAMS {
            let first_run = self.first_run(arguments)?;
            // Once each, so that all files are in memory.
            self.seconds(true, arguments)?;
            self.seconds(false, arguments)?;
            let (mut python, mut more) = (Vec::new(), Vec::new());
            for pair in 0..pairs {
                // The second process finds the caches of the processor as the first has left them.
                let ours_is_first = pair % 2 == 1;
                let first = self.seconds(ours_is_first, arguments)? * MILLISECONDS;
                let second = self.seconds(!ours_is_first, arguments)? * MILLISECONDS;
                let (theirs, ours) = if ours_is_first {
                    (second, first)
                } else {
                    (first, second)
                };
                python.push(theirs);
                more.push(ours - theirs);
            }
            println!(
                "{name:<16}{program:<10}{:>8.1}   {:>10.1}{:>9.1} ± {:<6.1}{:>9.1}   {:>9.0}",
                median(&python),
                quantile(&more, 1, 4),
                median(&more),
                error_of_median(&more),
                quantile(&more, 3, 4),
                first_run * MILLISECONDS,
            );
            good &= median(&more) <= MOST;
        }
        Ok(good)
    }

    /// The median of a start with nothing laid out.
    fn first_run(&self, arguments: &[&str]) -> Result<f64> {
        let mut taken = Vec::new();
        for _ in 0..FIRST_RUNS {
            if self.cache.exists() {
                fs::remove_dir_all(&self.cache).at("remove", &self.cache)?;
            }
            taken.push(self.seconds(true, arguments)?);
        }
        Ok(median(&taken))
    }

    /// How long one start takes, from its beginning to its end.
    fn seconds(&self, ours: bool, arguments: &[&str]) -> Result<f64> {
        let program = if ours { self.executable } else { self.python };
        // Sets PYTHONDONTWRITEBYTECODE.
        let mut command = process::python(program);
        if ours {
            command.args(["--mode", self.mode, "--python"]);
            command.arg(self.python);
        }
        command
            .args(arguments)
            .current_dir(self.directory)
            .env("PEDL_CACHE_DIR", &self.cache);
        let mut running = Running::start(command, Output::Keep)?;
        let ended = running.wait(LIMIT)?;
        let taken = running.elapsed();
        if !ended.success() {
            let what = format!("`{}`: {}", program.display(), ended.describe());
            return Err(Failure::new(format!("{what}\n{}", running.text())));
        }
        Ok(taken.as_secs_f64())
    }
}

/// The load of the machine: the mean number of processes that wanted to run, in the last minute.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
