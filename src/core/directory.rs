//! The trial directory: the place of a trial, and its lock.
//!
//! A process takes the lock and then reads or writes the identity of the trial, `trial.json`
//! (`record`). What is refused, and with which words, is in `refusal`.

mod record;
mod refusal;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::checkpoint::{CHECKPOINTS, Store};
use crate::error::{Bug, Result};
pub use crate::file::seen_from;
use crate::file::{self, Attempt, Lock};
use crate::trial::Launch;
pub use record::{CommandHash, Facts, SCHEMA, TrialRecord, describe_command, differing_fields};
pub(crate) use refusal::hint_for;
use refusal::{CannotCreate, InUse, NoPlace, Problem, Unreadable};

pub(crate) const RECORD: &str = "trial.json";
pub(crate) const LOCK: &str = "lock";

/// The names that identify a trial directory: the first one that is made in it, and those that a
/// trial cannot be without.
const OURS: [&str; 3] = [LOCK, RECORD, CHECKPOINTS];

/// A trial directory that this process holds.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The identity of the trial.
    pub(crate) record: TrialRecord,
    /// The differences between this process and the one that began the trial.
    pub(crate) changes: Vec<String>,
    _lock: Lock,
}

impl Directory {
    /// Takes the trial directory for this process, and makes it if it does not exist. `held` is its
    /// lock, if this process has it already.
    ///
    /// # Errors
    ///
    /// It is in use; it belongs to another command; it cannot be made.
    pub(crate) fn open(launch: &Launch, facts: Facts, held: Option<Lock>) -> Result<Self> {
        let path = &launch.trial_dir;
        let cannot_create = |source| CannotCreate::new(path, source);
        if is_replaced(launch) {
            let aside = move_aside(path)?;
            tracing::info!("the trial before is kept in `{}`", aside.display());
        }
        check_place(path)?;
        file::create_directory(path).map_err(cannot_create)?;
        let lock = held.map_or_else(|| hold(path), Ok)?;
        if let Some(record) = record::read(path)? {
            record::check_command(&record, launch)?;
            let changes = facts.changes_since(&record.facts);
            return Ok(Self {
                record,
                changes,
                _lock: lock,
            });
        }
        if Store::has_checkpoint(path) {
            let path = path.join(RECORD);
            let problem = Problem::Gone;
            return Err(Unreadable { path, problem }.into());
        }
        let record = record::new(launch, facts).map_err(cannot_create)?;
        record::write(path, &record).map_err(cannot_create)?;
        Ok(Self {
            record,
            changes: Vec::new(),
            _lock: lock,
        })
    }
}

/// Whether a process has ever taken the trial directory.
pub(crate) fn has_lock(path: &Path) -> bool {
    path.join(LOCK).exists()
}

/// Takes the lock of an existing trial directory.
///
/// # Errors
///
/// It is in use; the file of the lock cannot be made.
pub(crate) fn hold(path: &Path) -> Result<Lock> {
    let attempt = file::lock(&path.join(LOCK)).map_err(|source| CannotCreate::new(path, source))?;
    match attempt {
        Attempt::Held(lock) => Ok(lock),
        Attempt::HeldBy(process) => {
            let path = path.to_owned();
            Err(InUse { path, process }.into())
        }
    }
}

/// Distinguishes a trial in a directory from the next one: the inode of `trial.json`, or, if that
/// is gone, of the remaining checkpoints. `None` if the directory has no trial.
pub fn inode(trial_dir: &Path) -> Option<u64> {
    let metadata = trial_dir
        .join(RECORD)
        .metadata()
        .or_else(|_| trial_dir.join(CHECKPOINTS).metadata());
    Some(metadata.ok()?.ino())
}

/// Whether the trial in the directory is the one that this launch moves aside.
pub(crate) fn is_replaced(launch: &Launch) -> bool {
    launch.replaces.is_some() && launch.replaces == inode(&launch.trial_dir)
}

/// Renames the directory of a trial that no process runs to the first free name of `<dir>.1`,
/// `<dir>.2`, and so on; returns that name.
fn move_aside(path: &Path) -> Result<PathBuf> {
    let cannot_move = |source| CannotCreate::with("move aside the trial in", path, source);
    // Held until the directory has its new name.
    let _held = hold(path)?;
    let mut names = (1_u32..).map(|number| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    });
    let aside = names
        .find(|aside| aside.symlink_metadata().is_err())
        .ok_or_else(|| Bug(format!("there is no free name beside `{}`", path.display())))?;
    file::rename(path, &aside).map_err(cannot_move)?;
    Ok(aside)
}

/// Refuses a place where a trial must not begin: one that is no directory, and a directory with
/// other files, among which those of the trial would lie, and which would be moved aside with the
/// trial.
fn check_place(path: &Path) -> Result<()> {
    let refuse = |problem| {
        let path = path.to_owned();
        Err(NoPlace { path, problem }.into())
    };
    if path.symlink_metadata().is_err() {
        // It does not exist, or the next step reports why it cannot be examined.
        return Ok(());
    }
    if let (Err(_), Ok(target)) = (path.metadata(), path.read_link()) {
        let target = target.display();
        return refuse(format!("it is a symlink to `{target}`, which is not there"));
    }
    if !path.is_dir() {
        return refuse("it is there, and is no directory".to_owned());
    }
    let Ok(entries) = path.read_dir() else {
        // A directory that cannot be listed cannot be written to: the next step reports it.
        return Ok(());
    };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    if names.is_empty()
        || OURS
            .iter()
            .any(|ours| names.iter().any(|name| name == ours))
    {
        return Ok(());
    }
    let first = names[0].display();
    refuse(format!(
        "it holds {} files or directories, and no trial: `{first}` ...",
        names.len()
    ))
}
