//! One run: a copy of the directory, starts of the command in it until the script has ended, and
//! the faults in between.
//!
//! All runs have the same path while they run, so that a path that a script prints is the same in
//! all of them; afterwards each is moved to a directory with its name. Every run except the first
//! has the identity of the first: its `trial.json` is copied before its first start. So its seeds
//! are the same, and it begins like a trial that was killed before its first checkpoint.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::copy;
use super::dice::Dice;
use super::faults::{Kind, Moment, Planned};
use super::observe::{Journal, State, batch_of};
use super::process::{LOOK, Process, Said, limit_file_size, reap_orphans};
use super::request;
use crate::failure::{Exit, Failure};

/// The trial directory of a run, below its directory.
const TRIAL: &str = ".pedl/verify";
const RECORD: &str = "trial.json";

/// The longest time in which a killed worker process is replaced.
const REPLACED: Duration = Duration::from_secs(2);

/// The time in which a start must end after SIGTERM; then it is killed.
const TERMINATION: Duration = Duration::from_secs(120);

/// If nothing was written to a full disk for this time, the fault had no effect.
const UNTOUCHED: Duration = Duration::from_secs(30);

/// An interval without any checkpoint.
pub(super) const NEVER_SECONDS: f64 = 1e9;

/// A run that is started more often makes no progress.
const MOST_STARTS: usize = 20;

/// The size to which a file may grow on a full disk: less than any checkpoint that matters, so that
/// the next one fails, but not always in the same of its files.
const FULL_BYTES: (u64, u64) = (512, 16 << 10);

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

/// When checkpoints are taken.
#[derive(Clone, Debug)]
pub(super) struct Checkpoints {
    pub(super) seconds: f64,
    pub(super) batches: Vec<u64>,
    /// Takes one after the first batch of each resumed start, to show what was restored.
    pub(super) after_resume: bool,
}

/// How long an undisturbed run is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Length {
    /// From start to end.
    pub(super) seconds: f64,
    pub(super) batches: u64,
}

/// A fault that came.
#[derive(Clone, Debug)]
pub(super) struct Delivered {
    pub(super) kind: Kind,
    /// The newest checkpoint at that time; 0: none.
    pub(super) checkpoint: u64,
    /// How the start ended.
    pub(super) ending: String,
    /// The batch after which the next start continued; `None`: it began anew.
    pub(super) resumed: Option<u64>,
    /// How many resumes there were before.
    resumes_before: usize,
}

impl Ran {
    /// Whether the run ended while the disk was full: its last records may have found no room.
    pub(super) fn ended_on_a_full_disk(&self) -> bool {
        let last = self.delivered.last();
        last.is_some_and(|fault| matches!(fault.kind, Kind::DiskFull) && fault.resumed.is_none())
    }
}

/// States that show what a resume restored.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    /// The state in the checkpoint that was resumed, as it was on the disk; `None` if the
    /// supervisor was faster than we.
    pub(super) stored: Option<State>,
    /// The batch after which it continued.
    pub(super) resumed: u64,
    /// The first state that was saved after it.
    pub(super) after: Option<State>,
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) name: String,
    /// Its final directory.
    pub(super) directory: PathBuf,
    /// The script's directory in it.
    pub(super) files: PathBuf,
    pub(super) trial: PathBuf,
    pub(super) status: ExitStatus,
    pub(super) seconds: f64,
    /// The duration of a batch between the first checkpoint and the last; `None` if there were
    /// fewer than two.
    pub(super) seconds_per_batch: Option<f64>,
    pub(super) journal: Journal,
    pub(super) said: Said,
    pub(super) delivered: Vec<Delivered>,
    /// The number of worker processes of data sets that were killed in addition.
    pub(super) workers_killed: usize,
    pub(super) evidence: Vec<Evidence>,
    /// Faults that had no effect.
    pub(super) missed: Vec<Planned>,
    /// Why the run was abandoned.
    pub(super) given_up: Option<String>,
}

impl Ran {
    /// Its message about exact resume: `yes`, or `no:` and the causes.
    pub(super) fn exactness(&self) -> Option<&str> {
        let mut messages = self.said.messages.iter().rev();
        messages.find_map(|message| message.strip_prefix("exact resume: "))
    }
}

/// An exit status in words.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The result of a start.
enum Left {
    /// The script is over, or cannot continue.
    Over(ExitStatus),
    /// Ended by a fault; the command must be started again.
    ByFault,
}

struct Running<'a> {
    stage: &'a Stage,
    checkpoints: &'a Checkpoints,
    journal: Journal,
    trial: PathBuf,
    /// When the first checkpoint and the newest were seen, and their batches.
    seen: Option<[(Instant, u64); 2]>,
    delivered: Vec<Delivered>,
    workers_killed: usize,
    missed: Vec<Planned>,
    evidence: Vec<Evidence>,
    /// The state that the next resume finds on the disk.
    stored: Option<State>,
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
            thread::sleep(LOOK);
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
        dice: &mut Dice,
    ) -> Result<Ran, Failure> {
        let trial = self.prepare()?;
        let started = Instant::now();
        let mut running = Running {
            stage: self,
            checkpoints,
            journal: Journal::new(&trial),
            trial: trial.clone(),
            seen: None,
            delivered: Vec::new(),
            workers_killed: 0,
            missed: Vec::new(),
            evidence: Vec::new(),
            stored: None,
        };
        let mut waiting = faults.to_vec();
        waiting.reverse();
        let mut given_up = None;
        let mut starts = 0;
        let (status, said) = loop {
            running.stored = State::newest(&trial);
            let mut process = self.start(checkpoints)?;
            starts += 1;
            let left = running.attend(&mut process, &mut waiting, length, dice)?;
            running.look();
            reap_orphans();
            match left {
                Left::Over(status) => break (status, process.said()),
                Left::ByFault if starts < MOST_STARTS => {}
                Left::ByFault => {
                    given_up = Some(format!("it had not ended after {MOST_STARTS} starts"));
                    break (
                        process.kill_everything().map_err(unexpected)?,
                        process.said(),
                    );
                }
            }
        };
        running.missed.extend(waiting);
        running.note_resumes();
        let directory = self.work.join(name);
        fs::rename(self.work.join("run"), &directory)
            .map_err(|error| cannot_write(&directory, &error))?;
        let files = directory.join(self.name());
        Ok(Ran {
            name: name.to_owned(),
            trial: files.join(TRIAL),
            files,
            directory,
            status,
            seconds: started.elapsed().as_secs_f64(),
            seconds_per_batch: running.seconds_per_batch(),
            journal: running.journal,
            said,
            delivered: running.delivered,
            workers_killed: running.workers_killed,
            evidence: running.evidence,
            missed: running.missed,
            given_up,
        })
    }
}

impl Running<'_> {
    /// Reads what the run has written, and keeps states that will be deleted.
    fn look(&mut self) {
        self.journal.look();
        let newest = self.journal.newest_checkpoint();
        let now = (Instant::now(), newest);
        match &mut self.seen {
            None if newest > 0 => self.seen = Some([now, now]),
            Some([_, last]) if last.1 != newest => *last = now,
            _ => {}
        }
        let resumes: Vec<_> = self
            .journal
            .of("resumed")
            .map(|(_, event)| batch_of(event))
            .collect();
        for &resumed in resumes.iter().skip(self.evidence.len()) {
            let stored = self.stored.take().filter(|state| state.batch == resumed);
            self.evidence.push(Evidence {
                stored,
                resumed,
                after: None,
            });
        }
        self.keep_state_after_resume();
    }

    #[expect(clippy::cast_precision_loss, reason = "it is a guess at best")]
    fn seconds_per_batch(&self) -> Option<f64> {
        let [(first, from), (last, to)] = self.seen?;
        let batches = to.checked_sub(from).filter(|it| *it > 0)?;
        Some((last - first).as_secs_f64() / batches as f64)
    }

    fn keep_state_after_resume(&mut self) {
        let Some(evidence) = self.evidence.last_mut() else {
            return;
        };
        if evidence.after.is_some() {
            return;
        }
        let (place, _) = self
            .journal
            .of("resumed")
            .next_back()
            .unwrap_or((0, &serde_json::Value::Null));
        // The nearest of those that still exist.
        let mut later = self.journal.of("checkpoint").filter(|(at, _)| *at > place);
        evidence.after = later.find_map(|(_, event)| State::of_batch(&self.trial, batch_of(event)));
    }

    /// Waits until a condition holds; returns the status if the start ended before.
    fn wait(
        &mut self,
        process: &mut Process,
        mut condition: impl FnMut(&Self, &Process) -> bool,
    ) -> Result<Option<ExitStatus>, Failure> {
        loop {
            let ended = process.ended().map_err(unexpected)?;
            self.look();
            if ended.is_some() {
                return Ok(ended);
            }
            if self.stage.interrupted.load(Ordering::Relaxed) {
                process.kill_everything().map_err(unexpected)?;
                return Err(interrupted(&self.stage.work));
            }
            if condition(self, process) {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }

    fn wait_seconds(
        &mut self,
        process: &mut Process,
        seconds: f64,
    ) -> Result<Option<ExitStatus>, Failure> {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        self.wait(process, |_, _| Instant::now() >= until)
    }

    /// One start: waits for the moment of each fault, and delivers it.
    fn attend(
        &mut self,
        process: &mut Process,
        waiting: &mut Vec<Planned>,
        length: Length,
        dice: &mut Dice,
    ) -> Result<Left, Failure> {
        loop {
            let Some(fault) = waiting.last().copied() else {
                let ended = self.wait(process, |_, _| false)?;
                return Ok(ended.map_or(Left::ByFault, Left::Over));
            };
            if let Some(status) = self.wait_for(process, fault.moment, length)? {
                return Ok(Left::Over(status));
            }
            waiting.pop();
            if let Some(status) = self.kill_worker(process, dice)? {
                return Ok(Left::Over(status));
            }
            let checkpoint = self.journal.newest_checkpoint();
            let resumes_before = self.evidence.len();
            let Some((left, ending)) = self.deliver(process, fault.kind, dice)? else {
                self.missed.push(fault);
                continue;
            };
            self.delivered.push(Delivered {
                kind: fault.kind,
                checkpoint,
                ending,
                resumed: None,
                resumes_before,
            });
            if let Some(left) = left {
                return Ok(left);
            }
        }
    }

    fn wait_for(
        &mut self,
        process: &mut Process,
        moment: Moment,
        length: Length,
    ) -> Result<Option<ExitStatus>, Failure> {
        let share = match moment {
            Moment::Anywhere(share) => return self.wait_seconds(process, share * length.seconds),
            Moment::AfterCheckpoint(share) => share,
            Moment::SoonAfterCheckpoint(_) => 0.0,
        };
        // A replay takes no checkpoints, so this start has come further than the last one.
        let taken = self.journal.count("checkpoint");
        let is_ready = |running: &Self, _: &Process| running.journal.count("checkpoint") > taken;
        if let Some(status) = self.wait(process, is_ready)? {
            return Ok(Some(status));
        }
        let from = self.journal.newest_checkpoint();
        let until = from + share_of(length.batches.saturating_sub(from), share);
        let is_ready = |running: &Self, _: &Process| running.journal.newest_checkpoint() >= until;
        if let Some(status) = self.wait(process, is_ready)? {
            return Ok(Some(status));
        }
        let intervals = match moment {
            Moment::SoonAfterCheckpoint(intervals) => intervals,
            Moment::AfterCheckpoint(_) | Moment::Anywhere(_) => 0.5,
        };
        self.wait_seconds(process, intervals * self.checkpoints.seconds)
    }

    /// SIGKILL to a worker process of a data set, if there is one; another must take its place, and
    /// the start continues. Returns the status if it ended.
    fn kill_worker(
        &mut self,
        process: &mut Process,
        dice: &mut Dice,
    ) -> Result<Option<ExitStatus>, Failure> {
        let before = process.workers();
        let chosen = usize::try_from(dice.below(before.len().max(1) as u64)).unwrap_or_default();
        let Some(&worker) = before.get(chosen) else {
            return Ok(None);
        };
        Process::kill_worker(worker);
        self.workers_killed += 1;
        // Between two fits no worker is requested.
        let until = Instant::now() + REPLACED;
        self.wait(process, |_, process| {
            Instant::now() >= until || process.workers().iter().any(|now| !before.contains(now))
        })
    }

    /// Delivers a fault. Returns the result of the start, `None` if it continues by itself, and how
    /// it ended; or `None` if the fault had no effect.
    fn deliver(
        &mut self,
        process: &mut Process,
        kind: Kind,
        dice: &mut Dice,
    ) -> Result<Option<(Option<Left>, String)>, Failure> {
        let status = match kind {
            Kind::KillAll => process.kill_everything().map_err(unexpected)?,
            Kind::KillTrial => {
                let before = process.trial();
                if before.is_none() {
                    return Ok(None);
                }
                process.kill_trial();
                let is_replaced = |_: &Self, process: &Process| {
                    process.trial().is_some_and(|now| Some(now) != before)
                };
                match self.wait(process, is_replaced)? {
                    None => return Ok(Some((None, "started again by itself".to_owned()))),
                    Some(status) => status,
                }
            }
            Kind::Terminate => {
                process.terminate();
                let until = Instant::now() + TERMINATION;
                if let Some(status) = self.wait(process, |_, _| Instant::now() >= until)? {
                    status
                } else {
                    process.kill_everything().map_err(unexpected)?
                }
            }
            Kind::DiskFull => {
                let Some(trial) = process.trial() else {
                    return Ok(None);
                };
                let bytes = FULL_BYTES.0 + dice.below(FULL_BYTES.1);
                if limit_file_size(trial, Some(bytes)).is_err() {
                    return Ok(None);
                }
                let until = Instant::now() + UNTOUCHED;
                let Some(status) = self.wait(process, |_, _| Instant::now() >= until)? else {
                    // It may have ended meanwhile.
                    let _ = limit_file_size(trial, None);
                    return Ok(None);
                };
                status
            }
        };
        let over = self.journal.of("trial_ended").next_back();
        let is_asked_for = over.is_some_and(|(_, event)| !event["signal"].is_null());
        let has_ended = over.is_some_and(|(_, event)| event["exit_code"] == 0);
        if !is_asked_for && (status.success() || has_ended) {
            // It was faster, or the fault did not matter.
            let status = ExitStatus::from_raw(0);
            return Ok(Some((Some(Left::Over(status)), describe(status))));
        }
        Ok(Some((Some(Left::ByFault), describe(status))))
    }

    fn note_resumes(&mut self) {
        let resumed: Vec<_> = self.evidence.iter().map(|it| it.resumed).collect();
        let ends: Vec<_> = self
            .delivered
            .iter()
            .skip(1)
            .map(|it| it.resumes_before)
            .collect();
        for (place, delivered) in self.delivered.iter_mut().enumerate() {
            let end = ends.get(place).copied().unwrap_or(resumed.len());
            delivered.resumed = (delivered.resumes_before < end)
                .then(|| resumed.get(delivered.resumes_before).copied())
                .flatten();
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of batches, from 0 to 1"
)]
fn share_of(batches: u64, share: f64) -> u64 {
    (batches as f64 * share) as u64
}

pub(super) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot make `{}`", path.display());
    Failure::new(Exit::CannotCreate, what)
        .detail(error.to_string())
        .hint("make room there, or name another directory with `--work-dir DIR`")
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of the error")]
fn unexpected(error: io::Error) -> Failure {
    Failure::bug("a process cannot be waited for").detail(error.to_string())
}

fn interrupted(work: &Path) -> Failure {
    Failure::new(Exit::Interrupted, "verifying was interrupted")
        .detail(format!("the directories are kept in `{}`", work.display()))
}
