//! The trial directory as the supervisor sees it: it reads what the trial process wrote, moves the
//! whole directory aside, and appends the events that a dead process cannot write.
//!
//! It never creates the directory: a script that trains nothing leaves no trace.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::child::End;
use super::ending;
use crate::failure::{Exit, Failure};

/// The version of `trial.json` that this program reads.
const SCHEMA: u64 = 1;

/// What makes a trial the one it is; the part of `trial.json` that the supervisor needs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Identity {
    pub(super) trial_id: u64,
    pub(super) experiment_id: u64,
    pub(super) trial_seed: u32,
    pub(super) hash_seed: u32,
    pub(super) threads: u32,
    pub(super) command: Vec<String>,
    #[serde(default)]
    pub(super) hyperparameters: Map<String, Value>,
}

/// Where training stands, as far as files tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// The checkpoint to which `latest` points.
    pub(super) latest: Option<PathBuf>,
    /// The size of the journal.
    events_bytes: u64,
}

/// A trial directory, which may not exist.
pub(super) struct TrialDir {
    path: PathBuf,
}

impl TrialDir {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the trial was begun.
    pub(super) fn has_trial(&self) -> bool {
        self.path.join("trial.json").is_file()
    }

    /// Who the trial is; `None` where it was not begun yet.
    pub(super) fn identity(&self) -> Result<Option<Identity>, Failure> {
        let path = self.path.join("trial.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(unreadable(&path, &error.to_string())),
        };
        let value: Value =
            serde_json::from_str(&text).map_err(|error| unreadable(&path, &error.to_string()))?;
        let schema = value.get("schema").cloned().unwrap_or(Value::Null);
        if schema != SCHEMA {
            let what = format!("the schema of `{}` is `{schema}`", path.display());
            return Err(Failure::new(Exit::Configuration, what)
                .detail(format!(
                    "expected: {SCHEMA}; another version of pedl wrote it"
                ))
                .hint("continue it with that version, or begin a new trial with `--fresh`"));
        }
        serde_json::from_value(value)
            .map(Some)
            .map_err(|error| unreadable(&path, &error.to_string()))
    }

    /// Whether the trial has ended with 0.
    pub(super) fn is_over(&self) -> bool {
        self.last_event()
            .is_some_and(|event| event["event"] == "trial_ended" && event["exit_code"] == 0)
    }

    /// Renames the directory to the first free name of `<dir>.1`, `<dir>.2`, and so on.
    pub(super) fn move_aside(&self) -> Result<(), Failure> {
        self.check_not_in_use()?;
        let mut number = 1_u32;
        loop {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            let aside = PathBuf::from(name);
            if aside.symlink_metadata().is_err() {
                return match fs::rename(&self.path, &aside) {
                    Ok(()) => {
                        tracing::debug!("the old trial was moved to {}", aside.display());
                        Ok(())
                    }
                    Err(error) if is_absent(&error) => Ok(()),
                    Err(error) => {
                        let what = format!("cannot move `{}` aside", self.path.display());
                        Err(Failure::new(Exit::CannotCreate, what)
                            .detail(format!("to `{}`: {error}", aside.display()))
                            .hint("name another directory with `--trial-dir DIR`"))
                    }
                };
            }
            number += 1;
        }
    }

    /// Refuses where a process holds the lock of the trial.
    fn check_not_in_use(&self) -> Result<(), Failure> {
        let path = self.path.join("lock");
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else {
            return Ok(());
        };
        // Closing the file gives the lock back.
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let what = format!("`{}` is in use", self.path.display());
            Failure::new(Exit::InUse, what)
                .detail("another process runs this trial")
                .hint("wait for it, or name another directory with `--trial-dir DIR`")
        })
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            latest: fs::read_link(self.path.join("latest")).ok(),
            events_bytes: self
                .events()
                .metadata()
                .map_or(0, |metadata| metadata.len()),
        }
    }

    /// Records that the trial process was killed and is started again.
    pub(super) fn record_restart(&self, signal: i32, attempt: u32) {
        self.record(&json!({
            "event": "restart",
            "signal": ending::name(signal),
            "attempt": attempt,
        }));
    }

    /// Records how the trial ended, unless its process did so itself, or never came to train.
    pub(super) fn record_end(&self, before: &Progress, end: End) {
        let now = self.progress();
        if now.events_bytes == before.events_bytes
            || self
                .last_event()
                .is_some_and(|event| event["event"] == "trial_ended")
        {
            return;
        }
        self.record(&match end {
            End::Code(code) => json!({"event": "trial_ended", "exit_code": code}),
            End::Signal(signal) => {
                json!({"event": "trial_ended", "signal": ending::name(signal)})
            }
        });
    }

    fn last_event(&self) -> Option<Value> {
        let text = fs::read_to_string(self.events()).ok()?;
        // A torn last line is not an event.
        let (complete, _) = text.rsplit_once('\n')?;
        serde_json::from_str(complete.rsplit('\n').next()?).ok()
    }

    /// Appends an event. A journal that cannot be written must not change how the run ends.
    fn record(&self, event: &Value) {
        let outcome = OpenOptions::new()
            .append(true)
            .open(self.events())
            .and_then(|mut file| file.write_all(format!("{event}\n").as_bytes()));
        if let Err(error) = outcome {
            tracing::debug!("no event in {}: {error}", self.events().display());
        }
    }

    fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn unreadable(path: &Path, reason: &str) -> Failure {
    Failure::new(
        Exit::Configuration,
        format!("cannot read `{}`", path.display()),
    )
    .detail(reason)
    .hint("restore it from a backup, or begin a new trial with `--fresh`")
}

impl Identity {
    /// Refuses a command that is not the one the trial was begun with.
    pub(super) fn check_command(
        &self,
        directory: &TrialDir,
        command: &[String],
        hyperparameters: &Map<String, Value>,
    ) -> Result<(), Failure> {
        if self.command == command && self.hyperparameters == *hyperparameters {
            return Ok(());
        }
        let what = format!(
            "`{}` belongs to another command",
            directory.path().display()
        );
        Err(Failure::new(Exit::Configuration, what)
            .detail(format!(
                "begun with: {}",
                describe(&self.command, &self.hyperparameters)
            ))
            .detail(format!("run with: {}", describe(command, hyperparameters)))
            .hint("begin a new trial with `--fresh`, or keep both with `--trial-dir DIR`"))
    }
}

/// A command as one would type it, more or less.
fn describe(command: &[String], hyperparameters: &Map<String, Value>) -> String {
    let hyperparameters = hyperparameters
        .iter()
        .map(|(name, value)| format!("--hp {name}={value}"));
    hyperparameters
        .chain(command.iter().cloned())
        .collect::<Vec<_>>()
        .join(" ")
}
