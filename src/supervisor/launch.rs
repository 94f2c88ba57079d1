//! Decides which trial a command line means, and writes the launch message.
//!
//! The same command continues its trial, and another one is refused. A trial that had ended with 0, or
//! that `--fresh` gives up, is moved aside when the script begins to train. Values that make a run what
//! it is (the seeds, the size of thread pools) are drawn once, recorded by the trial in `trial.json`, and
//! read from there ever after.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use pedl_core::trial::{LAUNCH_SCHEMA, Launch};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::thread::sched_getaffinity;

use super::child::user_set_hash_seed;
use super::trial_dir::{Identity, TrialDir};
use super::unexpected;
use crate::cli::flags::Options;
use crate::cli::parse::{CommandLine, Program};
use crate::failure::{Exit, Failure};
use crate::interpreter::Interpreter;
use crate::library::Library;

/// Where trials are kept if `--trial-dir` does not say.
pub(crate) const TRIALS: &str = ".pedl";

/// The one experiment and trial of a script that is run by itself.
const ONLY: u64 = 1;

/// The launch message for the first start, and the directory of the trial.
pub(super) fn prepare(
    line: &CommandLine,
    interpreter: &Interpreter,
    library: &Library,
) -> Result<(Launch, TrialDir), Failure> {
    let options = &line.options;
    let directory = TrialDir::new(trial_dir(line)?);
    let command = line.command();
    let there = directory.inode();
    if there.is_some() {
        // Now, and not when the script first trains: it would write over the files of the other.
        directory.check_not_in_use()?;
    }
    // What is moved aside anyway need not be understood.
    let replaces = there.filter(|_| options.fresh || directory.is_over());
    let recorded = match replaces {
        Some(_) => None,
        None => directory.identity()?,
    };
    let identity = match recorded {
        Some(identity) => {
            identity.check_command(&directory, &command, &options.hyperparameters)?;
            identity
        }
        None => fresh_identity(&command, options)?,
    };
    let launch = Launch {
        schema: LAUNCH_SCHEMA,
        trial_dir: directory.path().to_owned(),
        command,
        python_options: line.python_options(),
        trial_id: identity.trial_id,
        experiment_id: identity.experiment_id,
        trial_seed: identity.trial_seed,
        hash_seed: identity.hash_seed,
        hyperparameters: options.hyperparameters.clone(),
        batches_per_step: options.batches_per_step,
        checkpoint_period: options.checkpoint_period,
        checkpoint_seconds: options.checkpoint_seconds,
        exact: options.exact,
        log_limit_bytes: options.log_limit_bytes,
        no_hooks: options.no_hooks.clone(),
        log_format: options.log_format.as_str().to_owned(),
        verbosity: i8::from(options.verbose) - i8::from(options.quiet),
        threads: identity.threads,
        replaces,
        resume: false,
        attempt: 0,
        library: library.directory.clone(),
        mode: interpreter.mode().to_owned(),
    };
    Ok((launch, directory))
}

/// The directory of the trial, absolute.
fn trial_dir(line: &CommandLine) -> Result<PathBuf, Failure> {
    let chosen = line.options.trial_dir.clone();
    let directory = chosen.unwrap_or_else(|| Path::new(TRIALS).join(trial_name(&line.program)));
    let absolute = std::path::absolute(&directory)
        .map_err(|error| unexpected("finding the current directory", error))?;
    if absolute.to_str().is_none() {
        let what = format!("the trial directory is `{}`", absolute.display());
        return Err(Failure::new(Exit::Configuration, what)
            .detail("expected: a path in UTF-8")
            .hint("name another with `--trial-dir DIR`"));
    }
    Ok(absolute)
}

/// What a trial is called after: the script, the module, or where the program came from.
fn trial_name(program: &Program) -> String {
    let name = match program {
        Program::Script(script) => Path::new(script)
            .file_stem()
            .unwrap_or(OsStr::new("script")),
        Program::Module(module) => module,
        Program::Code(_) => OsStr::new("command"),
        Program::Stdin | Program::None => OsStr::new("stdin"),
    };
    name.to_string_lossy().into_owned()
}

/// Values for a trial that was not begun yet. A run is as random as under Python.
fn fresh_identity(command: &[String], options: &Options) -> Result<Identity, Failure> {
    let user = env::var("PYTHONHASHSEED")
        .ok()
        .filter(|_| user_set_hash_seed());
    Ok(Identity {
        trial_id: ONLY,
        experiment_id: ONLY,
        trial_seed: random()? >> 1,
        // With 0 Python would not randomise hashes at all. What is not a number Python refuses.
        hash_seed: match user.and_then(|seed| seed.parse().ok()) {
            Some(seed) => seed,
            None => random()?.max(1),
        },
        threads: num_cpus(),
        command: command.to_vec(),
        hyperparameters: options.hyperparameters.clone(),
    })
}

fn random() -> Result<u32, Failure> {
    let mut bytes = [0; 4];
    // Up to 256 bytes are always filled at once.
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| unexpected("getrandom", error))?;
    Ok(u32::from_le_bytes(bytes))
}

/// The number of processors that this process may run on.
fn num_cpus() -> u32 {
    sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}
