//! Decides which trial a command line means, and writes the launch message.
//!
//! The same command continues its trial, and another one is refused. A trial that had ended with 0,
//! or that `--fresh` replaces, is moved aside when the script begins to train. Values that define a
//! run (the seeds, the size of thread pools) are drawn once, recorded by the trial in `trial.json`,
//! and read from there afterwards.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use pedl_core::directory::seen_from;
use pedl_core::event_stream::{Stream, Target};
use pedl_core::trial::{LAUNCH_SCHEMA, Launch};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::thread::sched_getaffinity;
use serde_json::{Value, json};

use super::child::user_set_hash_seed;
use super::ranks::Ranks;
use super::trial_dir::{Identity, TrialDir};
use super::unexpected;
use crate::cli::parse::{CommandLine, Program};
use crate::configuration::{Configuration, length_identity};
use crate::failure::{Exit, Failure};
use crate::interpreter::Interpreter;
use crate::library::Library;

/// The directory of trials, if `--trial-dir` does not say.
pub(crate) const TRIALS: &str = ".pedl";

/// Batches in a step, if nobody sets the number.
const BATCHES_PER_STEP: u64 = 100;

/// The single experiment and trial of a script that is run without a configuration.
const ONLY: u64 = 1;

/// What every start of a trial has in common.
pub(super) struct Prepared {
    /// The launch message for the first start.
    pub(super) launch: Launch,
    pub(super) directory: TrialDir,
    /// The whole experiment configuration; null without one.
    pub(super) configuration: Value,
    /// What the program of a model definition must know of it; null if a script is run.
    pub(super) definition: Value,
    /// The rank of this process, for that program; null if there is only one process.
    pub(super) ranks: Value,
    /// Variables for the script, to be set in this order.
    pub(super) environment: Vec<(String, String)>,
    /// The working directory of the script; `None`: the current one.
    pub(super) working_directory: Option<PathBuf>,
}

/// Decides all of it from the command line and the contents of the trial directory.
pub(super) fn prepare(
    line: &CommandLine,
    configuration: Option<&Configuration>,
    interpreter: &Interpreter,
    library: &Library,
) -> Result<Prepared, Failure> {
    let options = &line.options;
    let (events, stream) = match options.events_fd {
        Some(descriptor) => {
            let (target, stream) = open_stream(descriptor)?;
            (Some(target), Some(stream))
        }
        None => (None, None),
    };
    let place = Place::find(line, configuration, stream)?;
    let length = Length::of(line, configuration);
    let started_in = configuration
        .and_then(|known| known.directory.clone())
        .or_else(|| env::current_dir().ok());
    let identity = identity(line, configuration, &place, length, started_in.as_deref())?;
    let ranks = place.ranks.as_ref();
    if let Some(ranks) = ranks.filter(|_| place.continues()) {
        ranks.go_back(&place.base)?;
    }
    // The first rank reports the progress of the training.
    let is_first = ranks.is_none_or(Ranks::is_first);
    let is_told = options.verbose || is_first;
    let launch = Launch {
        schema: LAUNCH_SCHEMA,
        trial_dir: place.directory.path().to_owned(),
        command: identity.command,
        python_options: line.python_options(),
        trial_id: identity.trial_id,
        experiment_id: identity.experiment_id,
        trial_seed: identity.trial_seed,
        hash_seed: identity.hash_seed,
        started_in,
        hyperparameters: identity.hyperparameters,
        configuration: identity.configuration,
        experiment_seed: identity.experiment_seed,
        batches_per_step: length.batches_per_step,
        steps: length.steps,
        validation_period: configuration.and_then(Configuration::validation_period),
        search: configuration.map(Configuration::search),
        checkpoint_period: options
            .checkpoint_period
            .or_else(|| configuration.and_then(Configuration::checkpoint_period)),
        checkpoint_seconds: options.checkpoint_seconds,
        grace_seconds: options.grace_seconds,
        worker_timeout: options.worker_timeout,
        checkpoint_batches: options.checkpoint_batches.clone(),
        exact: options.exact,
        log_limit_bytes: options.log_limit_bytes,
        no_hooks: options.no_hooks.clone(),
        log_format: options.log_format.as_str().to_owned(),
        events: events.filter(|_| is_first),
        verbosity: i8::from(options.verbose) - i8::from(options.quiet || !is_told),
        threads: identity.threads,
        notes: configuration.map_or_else(Vec::new, |known| known.notes.clone()),
        replaces: place.replaces,
        resume: false,
        serves: None,
        attempt: 0,
        library: library.directory.clone(),
        mode: interpreter.mode().to_owned(),
        again: None,
    };
    Ok(Prepared {
        launch,
        configuration: configuration.map_or(Value::Null, Configuration::value),
        definition: configuration
            .and_then(|known| known.definition.as_ref())
            .map_or(Value::Null, |known| json!({"module": known.module})),
        ranks: ranks.map_or(Value::Null, |ranks| ranks.value(&place.base)),
        directory: place.directory,
        environment: configuration.map_or_else(Vec::new, Configuration::environment),
        working_directory: configuration.and_then(|known| known.directory.clone()),
    })
}

/// Where the trial is, and what is there already.
struct Place {
    /// The directory that all ranks have in common.
    base: PathBuf,
    /// `None` if there is only one process.
    ranks: Option<Ranks>,
    /// The directory of this process.
    directory: TrialDir,
    /// The trial that is in it, by its inode.
    inode: Option<u64>,
    /// That trial, if it is to be moved aside.
    replaces: Option<u64>,
}

impl Place {
    fn find(
        line: &CommandLine,
        configuration: Option<&Configuration>,
        stream: Option<Stream>,
    ) -> Result<Self, Failure> {
        let base = trial_dir(line, configuration)?;
        let is_definition = configuration.is_some_and(|known| known.definition.is_some());
        let ranks = is_definition
            .then(Ranks::of_environment)
            .transpose()?
            .flatten();
        let path = ranks
            .as_ref()
            .map_or_else(|| base.clone(), |ranks| ranks.directory(&base));
        let directory = TrialDir::new(path, stream);
        let inode = directory.inode();
        if inode.is_some() {
            // Now, and not when the script first trains: it would overwrite the files of the other
            // process.
            directory.check_not_in_use()?;
        }
        let is_over = || match &ranks {
            Some(ranks) => ranks.are_over(&base),
            None => directory.is_over(),
        };
        let replaces = inode.filter(|_| line.options.fresh || is_over());
        Ok(Self {
            base,
            ranks,
            directory,
            inode,
            replaces,
        })
    }

    /// Whether the trial that is there is continued.
    fn continues(&self) -> bool {
        self.inode.is_some() && self.replaces.is_none()
    }

    /// What the trial that is there has recorded. A trial that is moved aside anyway need not be
    /// understood.
    fn recorded(&self) -> Result<Option<Identity>, Failure> {
        match self.replaces {
            Some(_) => Ok(None),
            None => self.directory.identity(),
        }
    }
}

/// How long the training is.
#[derive(Clone, Copy)]
struct Length {
    steps: Option<u64>,
    batches_per_step: u64,
}

impl Length {
    fn of(line: &CommandLine, configuration: Option<&Configuration>) -> Self {
        let options = &line.options;
        Self {
            steps: options
                .steps
                .or_else(|| configuration.and_then(Configuration::steps)),
            batches_per_step: options
                .batches_per_step
                .or_else(|| configuration.map(Configuration::batches_per_step))
                .unwrap_or(BATCHES_PER_STEP),
        }
    }
}

/// The identity of the trial: the recorded one, if it belongs to this command line; otherwise a new
/// one.
fn identity(
    line: &CommandLine,
    configuration: Option<&Configuration>,
    place: &Place,
    length: Length,
    started_in: Option<&Path>,
) -> Result<Identity, Failure> {
    let recorded = place.recorded()?;
    let mut fingerprint = configuration.map_or_else(BTreeMap::new, Configuration::identity);
    fingerprint.extend(length_identity(length.steps, length.batches_per_step));
    if let Some(ranks) = &place.ranks {
        check_seed(configuration)?;
        fingerprint.insert("ranks".to_owned(), ranks.text());
    }
    let mut asked = asked(line, configuration, fingerprint, recorded.as_ref())?;
    if place.ranks.is_some() && !user_set_hash_seed() {
        // So that sets have the same order in all ranks.
        asked.hash_seed = asked.trial_seed.max(1);
    }
    asked.started_in = started_in.map(|started_in| seen_from(place.directory.path(), started_in));
    let Some(identity) = recorded else {
        return Ok(asked);
    };
    identity.check(&place.directory, &asked)?;
    // As they were typed: the record contains no credentials.
    Ok(Identity {
        command: asked.command,
        hyperparameters: asked.hyperparameters,
        ..identity
    })
}

/// The file that receives the events as well: what the trial process needs to open it, and our own
/// stream. We have opened no files yet, so the descriptor is one that this process was started
/// with.
fn open_stream(descriptor: u32) -> Result<(Target, Stream), Failure> {
    Target::of(descriptor)
        .and_then(|target| Ok((target, Stream::open(target)?)))
        .map_err(|error| {
            let what = format!("`--events-fd` is `{descriptor}`, which cannot be written to");
            let of_shell = "`pedl-run --events-fd 3 SCRIPT 3> FILE` opens one";
            Failure::new(Exit::Usage, what)
                .detail(error.to_string())
                .detail("expected: a file descriptor that pedl-run was started with")
                .hint(of_shell)
        })
}

/// The directory of the trial, absolute.
fn trial_dir(
    line: &CommandLine,
    configuration: Option<&Configuration>,
) -> Result<PathBuf, Failure> {
    let chosen = line.options.trial_dir.clone();
    let suffix = configuration.map_or_else(String::new, Configuration::directory_suffix);
    let definition = configuration.and_then(|known| known.definition.as_ref());
    let name = || definition.map_or_else(|| trial_name(&line.program), |known| known.name.clone());
    let directory = chosen.unwrap_or_else(|| Path::new(TRIALS).join(name() + &suffix));
    let absolute =
        absolute(&directory).map_err(|error| unexpected("finding the current directory", error))?;
    if absolute.to_str().is_none() {
        let what = format!("the trial directory is `{}`", absolute.display());
        return Err(Failure::new(Exit::Configuration, what)
            .detail("expected: a path in UTF-8")
            .detail("the script was not started")
            .hint("name another with `--trial-dir DIR`"));
    }
    Ok(absolute)
}

/// An absolute path. Python also runs if the current directory was removed: then it is the path
/// that would be absolute if the directory still existed.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path).or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error);
        }
        let current = fs::read_link("/proc/self/cwd")?;
        let name = current.as_os_str().as_bytes();
        let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
        Ok(Path::new(OsStr::from_bytes(name)).join(path))
    })
}

/// The name of a trial: that of the script, of the module, or of the source of the program.
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

/// The identity of the trial that the command line requests. Values that were drawn before are
/// taken from the record, if there is one, and drawn now otherwise. A run is as random as under
/// Python.
fn asked(
    line: &CommandLine,
    configuration: Option<&Configuration>,
    fingerprint: BTreeMap<String, String>,
    recorded: Option<&Identity>,
) -> Result<Identity, Failure> {
    let options = &line.options;
    let user = env::var("PYTHONHASHSEED")
        .ok()
        .filter(|_| user_set_hash_seed());
    // The recorded one, so that the same hyperparameters are drawn again.
    let experiment_seed = configuration.map(|known| {
        known
            .experiment_seed()
            .or_else(|| recorded?.experiment_seed)
            .unwrap_or_else(unix_time)
    });
    let trial = match (configuration, experiment_seed) {
        (Some(known), Some(seed)) => Some(known.trial(seed, options)?),
        _ => None,
    };
    let (trial_seed, hyperparameters) = match trial {
        Some(trial) => (trial.seed, trial.hyperparameters),
        None => (random()? >> 1, options.hyperparameters.clone()),
    };
    Ok(Identity {
        trial_id: configuration.map_or(ONLY, Configuration::trial_id),
        experiment_id: ONLY,
        trial_seed,
        // With 0 Python would not randomise hashes at all. Python refuses what is not a number.
        hash_seed: match user.and_then(|seed| seed.parse().ok()) {
            Some(seed) => seed,
            None => random()?.max(1),
        },
        threads: num_cpus(),
        command: configuration.map_or_else(|| line.command(), |known| known.command(line)),
        command_hash: None,
        hyperparameters,
        configuration: fingerprint,
        experiment_seed,
        started_in: None,
    })
}

/// Refuses ranks that would draw different seeds.
fn check_seed(configuration: Option<&Configuration>) -> Result<(), Failure> {
    if configuration.is_none_or(|known| known.experiment_seed().is_some()) {
        return Ok(());
    }
    let what = "the configuration has no `reproducibility.experiment_seed`, and several ranks are to train";
    Err(Failure::new(Exit::Configuration, what)
        .detail("expected: a seed from which every rank draws the same hyperparameters and the same order of the data")
        .detail("the model definition was not started")
        .hint("add `reproducibility: {experiment_seed: 1}`"))
}

/// The Unix time, as PEDL seeds an experiment that names no seed.
fn unix_time() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| {
        u32::try_from(now.as_secs() & 0x7fff_ffff).unwrap_or(0)
    })
}

fn random() -> Result<u32, Failure> {
    let mut bytes = [0; 4];
    // Up to 256 bytes are always returned at once.
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|error| unexpected("getrandom", error))?;
    Ok(u32::from_le_bytes(bytes))
}

/// The number of processors that this process may run on.
fn num_cpus() -> u32 {
    sched_getaffinity(None).map_or(1, |set| set.count().max(1))
}
