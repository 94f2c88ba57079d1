//! The trial directory as the supervisor sees it. It reads what the trial process wrote, and
//! appends the events that a dead process cannot write.
//!
//! It never creates the directory, and never moves it: a script that trains nothing leaves no
//! trace.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pedl_core::checkpoint::Store;
use pedl_core::directory::{CommandHash, describe_command, differing_fields};
use pedl_core::event_stream::Stream;
use pedl_core::events::{self, Journal};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::child::End;
use crate::failure::{Exit, Failure};

/// The version of `trial.json` that this program reads.
const SCHEMA: u64 = 1;

/// A process that was killed holds its lock until the kernel has freed it, including its memory.
const LOCK_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The last event of a trial.
const ENDED: &str = "trial_ended";

/// The files that the script made and changed on disk (`py_hooks/script_io/ledger.py`).
const LEDGER: &str = "files.jsonl";

/// How many bytes from the end the last event is searched for. A longer event is not found, and the
/// trial counts as not ended.
const LONGEST_EVENT_BYTES: u64 = 1 << 20;

/// What was done, in every message of this module.
const NOT_STARTED: &str = "nothing was changed, and the script was not started";

/// The identity of a trial; the part of `trial.json` that the supervisor needs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Identity {
    pub(super) trial_id: u64,
    pub(super) experiment_id: u64,
    pub(super) trial_seed: u32,
    pub(super) hash_seed: u32,
    pub(super) threads: u32,
    pub(super) command: Vec<String>,
    /// Of a recorded identity, if credentials were left out of it.
    #[serde(default)]
    pub(super) command_hash: Option<CommandHash>,
    #[serde(default)]
    pub(super) hyperparameters: Map<String, Value>,
    #[serde(default)]
    pub(super) configuration: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) experiment_seed: Option<u32>,
    /// Relative to the trial directory; `None` if it is not known.
    #[serde(default)]
    pub(super) started_in: Option<PathBuf>,
}

/// The progress of training, as far as files show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Identifies the trial: the next one in the same directory has another. `None` if there is
    /// none.
    pub(super) inode: Option<u64>,
    /// The batch of the newest checkpoint.
    checkpoint: Option<u64>,
    /// The size of the journal.
    events_bytes: u64,
}

impl Progress {
    /// Whether there is a checkpoint now that was not there before.
    pub(super) fn has_new_checkpoint_since(&self, before: &Self) -> bool {
        self.checkpoint.is_some()
            && (self.inode, self.checkpoint) != (before.inode, before.checkpoint)
    }

    /// The batch of the newest checkpoint.
    pub(super) fn checkpoint(&self) -> Option<u64> {
        self.checkpoint
    }

    /// Whether a trial was begun, or continued, since then.
    pub(super) fn has_new_events_since(&self, before: &Self) -> bool {
        (self.inode, self.events_bytes) != (before.inode, before.events_bytes)
    }
}

/// A trial directory, which may not exist.
pub(super) struct TrialDir {
    path: PathBuf,
    /// Events are also written to it.
    stream: Cell<Option<Stream>>,
}

impl TrialDir {
    pub(super) fn new(path: PathBuf, stream: Option<Stream>) -> Self {
        Self {
            path,
            stream: Cell::new(stream),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of the trial; `None` if it was not begun yet.
    pub(super) fn identity(&self) -> Result<Option<Identity>, Failure> {
        let path = self.path.join("trial.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(unreadable(&path, &error.to_string())
                    .hint("let this user read and write what is in the trial directory"));
            }
            Err(error) => return Err(unreadable(&path, &error.to_string())),
        };
        let not_ours =
            |problem: &str| unreadable(&path, &format!("expected: what pedl-run wrote; {problem}"));
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| not_ours(&format!("it is not JSON: {error}")))?;
        let schema = value.get("schema").cloned().unwrap_or(Value::Null);
        if schema != SCHEMA {
            let what = format!("the schema of `{}` is `{schema}`", path.display());
            return Err(Failure::new(Exit::Configuration, what)
                .detail(format!(
                    "expected: {SCHEMA}; another version of pedl wrote it"
                ))
                .detail(NOT_STARTED)
                .hint("continue it with that version, or begin a new trial with `--fresh`"));
        }
        serde_json::from_value(value)
            .map(Some)
            .map_err(|error| not_ours(&format!("{error}")))
    }

    /// Whether the script has made or changed files.
    fn names_files(&self) -> bool {
        let ledger = fs::metadata(self.path.join(LEDGER));
        ledger.is_ok_and(|found| found.len() > 0)
    }

    /// Whether the trial has ended with 0, without a request: a script that answers SIGTERM with an
    /// orderly exit wants to be continued.
    pub(super) fn is_over(&self) -> bool {
        self.last_event().is_some_and(|event| {
            event["event"] == ENDED && event["exit_code"] == 0 && event["signal"].is_null()
        })
    }

    /// Fails if a process holds the lock of the trial. One whose supervisor was just killed is
    /// given time to end.
    pub(super) fn check_not_in_use(&self) -> Result<(), Failure> {
        let path = self.path.join("lock");
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else {
            return Ok(());
        };
        let deadline = Instant::now() + LOCK_RELEASE_TIMEOUT;
        // Closing the file releases the lock.
        while fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() > deadline {
                let what = format!("`{}` is in use", self.path.display());
                return Err(Failure::new(Exit::InUse, what)
                    .detail(match holder(&file) {
                        Some(process) => format!("process {process} runs this trial"),
                        None => "another process runs this trial".to_owned(),
                    })
                    .detail(NOT_STARTED)
                    .hint("wait for it, or name another directory with `--trial-dir DIR`"));
            }
            thread::sleep(LOCK_RELEASE_TIMEOUT / 40);
        }
        Ok(())
    }

    /// Distinguishes the current trial in the directory from the next one; `None` if there is none.
    pub(super) fn inode(&self) -> Option<u64> {
        pedl_core::directory::inode(&self.path)
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            inode: self.inode(),
            checkpoint: Store::newest_batch(&self.path),
            events_bytes: self
                .events()
                .metadata()
                .map_or(0, |metadata| metadata.len()),
        }
    }

    /// Whether a trial was begun, or continued, since then.
    pub(super) fn has_new_events_since(&self, before: &Progress) -> bool {
        self.progress().has_new_events_since(before)
    }

    /// Records that the trial process ended early and is started again.
    pub(super) fn record_restart(&self, end: End, attempt: u32) {
        let mut members = Map::new();
        match end {
            End::Signal(signal) => {
                members.insert("signal".into(), events::signal_name(signal).into())
            }
            End::Code(code) => members.insert("exit_code".into(), code.into()),
        };
        members.insert("attempt".into(), attempt.into());
        self.record("restart", members);
    }

    /// Records how the trial ended, unless its process did so itself, or never began to train.
    pub(super) fn record_end(&self, before: &Progress, end: End, requested_by: Option<i32>) {
        if !self.has_new_events_since(before) {
            return;
        }
        // A refused start has ended, not the trial: the events belong to the process that runs it.
        if end == End::Code(Exit::InUse as i32) && self.check_not_in_use().is_err() {
            return;
        }
        let signal = match end {
            End::Signal(signal) => Some(signal),
            End::Code(_) => requested_by,
        };
        let is_recorded = self
            .last_event()
            .is_some_and(|event| event["event"] == ENDED);
        if is_recorded && signal.is_none() {
            return;
        }
        let mut members = Map::new();
        if let End::Code(code) = end {
            members.insert("exit_code".into(), code.into());
        }
        if let Some(signal) = signal {
            members.insert("signal".into(), events::signal_name(signal).into());
        }
        self.record(ENDED, members);
    }

    /// The complete events since then, oldest first; if there are very many, only the last.
    pub(super) fn events_since(&self, before: &Progress) -> Vec<Value> {
        self.read_events_since(before).unwrap_or_default()
    }

    fn read_events_since(&self, before: &Progress) -> Option<Vec<Value>> {
        let journal = File::open(self.events()).ok()?;
        let size = journal.metadata().ok()?.len();
        let is_same = self.inode() == before.inode;
        let start = if is_same { before.events_bytes } else { 0 };
        let start = start
            .max(size.saturating_sub(LONGEST_EVENT_BYTES))
            .min(size);
        let mut tail = vec![0; usize::try_from(size - start).ok()?];
        journal.read_exact_at(&mut tail, start).ok()?;
        let lines = tail.split(|byte| *byte == b'\n');
        Some(
            lines
                .filter_map(|line| serde_json::from_slice(line).ok())
                .collect(),
        )
    }

    fn last_event(&self) -> Option<Value> {
        let journal = File::open(self.events()).ok()?;
        let size = journal.metadata().ok()?.len();
        let length = size.min(LONGEST_EVENT_BYTES);
        let mut tail = vec![0; usize::try_from(length).ok()?];
        journal.read_exact_at(&mut tail, size - length).ok()?;
        // A torn last line is not an event.
        let end = tail.iter().rposition(|byte| *byte == b'\n')?;
        serde_json::from_slice(tail[..end].rsplit(|byte| *byte == b'\n').next()?).ok()
    }

    /// Appends an event to the journal, if there is one. A journal that cannot be written must not
    /// change how the run ends.
    pub(super) fn record(&self, event: &str, members: Map<String, Value>) {
        if !self.events().is_file() {
            return;
        }
        let outcome = Journal::open(&self.path).and_then(|mut journal| {
            journal.stream_to(self.stream.take());
            let appended = journal.append(event, members);
            self.stream.set(journal.into_stream());
            appended
        });
        if let Err(error) = outcome {
            tracing::debug!("the event {event} is not recorded: {error}");
        }
    }

    fn events(&self) -> PathBuf {
        self.path.join(events::FILE_NAME)
    }
}

/// The process that holds the lock of a file, if that can be determined.
fn holder(file: &File) -> Option<i32> {
    let lock = fcntl_getlk(file, &Flock::from(FlockType::WriteLock)).ok()??;
    Some(lock.pid?.as_raw_nonzero().get())
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
    .detail(NOT_STARTED)
    .hint("restore it from a backup, or begin a new trial with `--fresh`")
}

impl Identity {
    /// Refuses a command that does not belong to the trial that was begun.
    pub(super) fn check(&self, directory: &TrialDir, asked: &Self) -> Result<(), Failure> {
        let path = directory.path().display();
        let refusal = |what: &str| {
            Failure::new(
                Exit::Configuration,
                format!("`{path}` belongs to another {what}"),
            )
        };
        let hint = "keep both with `--trial-dir DIR`, or begin a new trial with `--fresh`";
        let is_same = match &self.command_hash {
            Some(hash) => hash.is_of(&asked.command, &asked.hyperparameters),
            None => self.command == asked.command && self.hyperparameters == asked.hyperparameters,
        };
        if !is_same {
            let describe = |of: &Self| describe_command(&of.command, &of.hyperparameters);
            return Err(refusal("command")
                .detail(format!("begun with: {}", describe(self)))
                .detail(format!("run with: {}", describe(asked)))
                .detail(NOT_STARTED)
                .hint(format!("run it as it was begun to go on with it; {hint}")));
        }
        if self.configuration != asked.configuration {
            let fields = differing_fields(&self.configuration, &asked.configuration);
            return Err(refusal("configuration")
                .detail(format!("it differs in: {fields}"))
                .detail(NOT_STARTED)
                .hint(hint));
        }
        if let (Some(then), Some(now)) = (&self.started_in, &asked.started_in)
            && then != now
            && directory.names_files()
        {
            // The script makes files by relative paths, which would not be those of the trial.
            let [then, now] = [then, now].map(|seen| shown(&directory.path().join(seen)));
            return Err(refusal("working directory")
                .detail(format!("begun in: {then}"))
                .detail(format!("run in: {now}"))
                .detail(NOT_STARTED)
                .hint(format!("run it in that directory (`cd {then}`), or {hint}")));
        }
        Ok(())
    }
}

/// A path without its `..`: no part of it is a link that leads elsewhere.
fn shown(path: &Path) -> String {
    let mut shown = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                shown.pop();
            }
            other => shown.push(other),
        }
    }
    shown.display().to_string()
}
