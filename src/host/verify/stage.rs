//! The place in which all runs take place: a copy of the user's directory, in which the command is
//! started again until the script has ended.
//!
//! All runs have the same path while they run, so that a path that a script prints is the same in
//! all of them; afterwards each is moved to a directory with its name. Every run except the first
//! has the identity of the first: its `trial.json` is copied before its first start. So its seeds
//! are the same, and it begins like a trial that was killed before its first checkpoint.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::copy;
use super::failures::{cannot_write, interrupted, unexpected};
use super::faults::Planned;
use super::observe::{Journal, State, batch_of};
use super::process::{POLL_INTERVAL, Process, reap_orphans};
use super::random::Random;
use super::request;
use super::run::{Checkpoints, FinishedRun, Length, NEVER_SECONDS};
use super::running::{EndOfStart, Running};
use crate::failure::{Exit, Failure};

/// The trial directory of a run, below its directory.
const TRIAL: &str = ".pedl/verify";
const RECORD: &str = "trial.json";

/// A run that is started more often makes no progress.
const MAX_STARTS: usize = 20;

/// The setup of runs; the same for all.
#[derive(Debug)]
pub(super) struct Stage {
    /// The directory that contains everything.
    pub(super) work: PathBuf,
    /// The user's directory.
    pub(super) origin: PathBuf,
    /// Our executable, to be started as `pedl-run`.
    pub(super) executable: PathBuf,
    /// The interpreter, absolute.
    pub(super) python: PathBuf,
    pub(super) words: Vec<OsString>,
    /// `trial.json` of the first run.
    pub(super) identity: Option<Vec<u8>>,
    /// Set when the user interrupts.
    pub(super) interrupted: Arc<AtomicBool>,
}

impl Stage {
    fn name(&self) -> OsString {
        self.origin
            .file_name()
            .map_or_else(|| "root".into(), OsString::from)
    }

    fn here(&self) -> PathBuf {
        self.work.join("run").join(self.name())
    }

    fn prepare(&self) -> Result<PathBuf, Failure> {
        let here = self.here();
        let made = (|| {
            let temporary = self.work.join("tmp");
            if temporary.exists() {
                fs::remove_dir_all(&temporary)?;
            }
            fs::create_dir_all(&temporary)?;
            copy::copy(&self.origin, &here)?;
            let trial = here.join(TRIAL);
            if let Some(identity) = &self.identity {
                fs::create_dir_all(&trial)?;
                fs::write(trial.join(RECORD), identity)?;
            }
            Ok(trial)
        })();
        made.map_err(|error| cannot_write(&here, &error))
    }

    fn start(&self, checkpoints: &Checkpoints) -> Result<Process, Failure> {
        let mut batches: Vec<_> = checkpoints.batches.iter().map(u64::to_string).collect();
        if checkpoints.after_resume {
            batches.push("+1".to_owned());
        }
        let mut command = Command::new(&self.executable);
        for variable in request::variables_decided_here() {
            command.env_remove(variable);
        }
        let name = self.executable.with_file_name("pedl-run");
        command
            .arg0(name)
            .args(&self.words)
            .current_dir(self.here())
            .env("PWD", self.here())
            .env("TMPDIR", self.work.join("tmp"))
            .env("PEDL_PYTHON", &self.python)
            .env("PEDL_TRIAL_DIR", TRIAL)
            .env("PEDL_LOG_FORMAT", "json")
            .env("PEDL_CHECKPOINT_SECONDS", checkpoints.seconds.to_string());
        if !batches.is_empty() {
            command.env("PEDL_CHECKPOINT_BATCHES", batches.join(","));
        }
        Process::start(&mut command).map_err(|error| {
            let what = format!("`{}` cannot be started", self.executable.display());
            Failure::new(Exit::Bug, what).detail(error.to_string())
        })
    }

    /// Runs the command undisturbed until it has passed these batches; returns the states after
    /// them.
    pub(super) fn states_at(&self, batches: &[u64]) -> Result<BTreeMap<u64, State>, Failure> {
        let checkpoints = Checkpoints {
            seconds: NEVER_SECONDS,
            batches: batches.to_vec(),
            after_resume: false,
        };
        let trial = self.prepare()?;
        let mut journal = Journal::new(&trial);
        let mut states = BTreeMap::new();
        let mut process = self.start(&checkpoints)?;
        loop {
            let is_over = process.ended().map_err(unexpected)?.is_some();
            journal.look();
            for (_, event) in journal.of("checkpoint") {
                let batch = batch_of(event);
                if !states.contains_key(&batch) {
                    states.extend(State::of_batch(&trial, batch).map(|state| (batch, state)));
                }
            }
            let is_interrupted = self.interrupted.load(Ordering::Relaxed);
            if is_over || is_interrupted || batches.iter().all(|it| states.contains_key(it)) {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        process.kill_everything().map_err(unexpected)?;
        let place = self.work.join("run");
        fs::remove_dir_all(&place).map_err(|error| cannot_write(&place, &error))?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(interrupted(&self.work));
        }
        Ok(states)
    }

    /// Runs the command to the end of its script, with these faults.
    pub(super) fn run(
        &self,
        name: &str,
        checkpoints: &Checkpoints,
        faults: &[Planned],
        length: Length,
        random: &mut Random,
    ) -> Result<FinishedRun, Failure> {
        let trial = self.prepare()?;
        let started = Instant::now();
        let mut running = Running::new(&self.work, &self.interrupted, checkpoints, &trial);
        let mut waiting = faults.to_vec();
        waiting.reverse();
        let mut given_up = None;
        let mut starts = 0;
        let (status, output) = loop {
            running.keep_stored_state();
            let mut process = self.start(checkpoints)?;
            starts += 1;
            let end = running.attend(&mut process, &mut waiting, length, random)?;
            running.look();
            reap_orphans();
            match end {
                EndOfStart::ScriptEnded(status) => break (status, process.output()),
                EndOfStart::ByFault if starts < MAX_STARTS => {}
                EndOfStart::ByFault => {
                    given_up = Some(format!("it had not ended after {MAX_STARTS} starts"));
                    break (
                        process.kill_everything().map_err(unexpected)?,
                        process.output(),
                    );
                }
            }
        };
        running.finish(waiting);
        let directory = self.work.join(name);
        fs::rename(self.work.join("run"), &directory)
            .map_err(|error| cannot_write(&directory, &error))?;
        let files = directory.join(self.name());
        Ok(FinishedRun {
            name: name.to_owned(),
            trial: files.join(TRIAL),
            files,
            directory,
            status,
            seconds: started.elapsed().as_secs_f64(),
            seconds_per_batch: running.seconds_per_batch(),
            journal: running.journal,
            output,
            delivered: running.delivered,
            workers_killed: running.workers_killed,
            evidence: running.evidence,
            missed: running.missed,
            given_up,
        })
    }
}
