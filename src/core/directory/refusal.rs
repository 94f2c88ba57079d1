//! Why a process may not take a trial directory, as messages.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::RECORD;
use crate::error::{Class, Error, Kind};

/// The trial directory cannot be made, or, if a trial is in it, cannot be written to.
#[derive(Debug)]
pub(super) struct CannotCreate {
    path: PathBuf,
    /// What was attempted, for example `continue the trial in`.
    what: &'static str,
    /// Its owner, if that is not this user.
    owner: Option<u32>,
    source: Error,
}

impl CannotCreate {
    pub(super) fn new(path: &Path, source: Error) -> Self {
        let what = if path.join(RECORD).exists() {
            "continue the trial in"
        } else {
            "make the trial directory"
        };
        Self::with(what, path, source)
    }

    pub(super) fn with(what: &'static str, path: &Path, source: Error) -> Self {
        let user = geteuid().as_raw();
        let owner = path.metadata().ok().map(|metadata| metadata.uid());
        Self {
            path: path.to_owned(),
            what,
            owner: owner.filter(|owner| is_denied(&source) && *owner != user),
            source,
        }
    }
}

impl Kind for CannotCreate {
    fn class(&self) -> Class {
        Class::CannotCreate
    }

    fn hint(&self) -> Option<String> {
        Some(hint_for(&self.source).to_owned())
    }

    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl fmt::Display for CannotCreate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.source.to_string().replace("\n  ", ": ");
        let (what, path) = (self.what, self.path.display());
        write!(formatter, "cannot {what} `{path}`\n  {reason}")?;
        if let Some(owner) = self.owner {
            let user = geteuid().as_raw();
            write!(
                formatter,
                "\n  it belongs to the user with the number {owner}; this is {user}"
            )?;
        }
        formatter.write_str("\n  the run was stopped before it trained")
    }
}

/// What would help if a failure of the file system prevents a trial.
pub(crate) fn hint_for(error: &Error) -> &'static str {
    match kind_of(error) {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            "make room there and run the same command again, or name another directory with `--trial-dir DIR`"
        }
        Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            "let this user read and write there, or name another directory with `--trial-dir DIR`"
        }
        _ => "name another directory with `--trial-dir DIR`",
    }
}

/// The kind of error of the system, if an error is of the file system.
fn kind_of(error: &Error) -> Option<io::ErrorKind> {
    let system = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    system.map(io::Error::kind)
}

fn is_denied(error: &Error) -> bool {
    kind_of(error) == Some(io::ErrorKind::PermissionDenied)
}

/// A trial cannot be kept in this place.
#[derive(Debug)]
pub(super) struct NoPlace {
    pub(super) path: PathBuf,
    pub(super) problem: String,
}

impl Kind for NoPlace {
    fn class(&self) -> Class {
        Class::CannotCreate
    }

    fn hint(&self) -> Option<String> {
        Some("name a directory that is empty, or not there yet, with `--trial-dir DIR`".to_owned())
    }
}

impl fmt::Display for NoPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "`{}` cannot be a trial directory\n  {}\n  nothing in it was changed, and the run was stopped before \
             it trained",
            self.path.display(),
            self.problem
        )
    }
}

/// Another process runs the trial.
#[derive(Debug)]
pub(super) struct InUse {
    pub(super) path: PathBuf,
    pub(super) process: Option<i32>,
}

impl Kind for InUse {
    fn class(&self) -> Class {
        Class::TrialInUse
    }

    fn hint(&self) -> Option<String> {
        Some("wait for it, or name another directory with `--trial-dir DIR`".to_owned())
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` is in use\n  ", self.path.display())?;
        match self.process {
            Some(process) => write!(formatter, "process {process} runs this trial")?,
            None => formatter.write_str("another process began this trial a moment ago")?,
        }
        formatter.write_str("\n  the run was stopped before it trained")
    }
}

/// The directory belongs to another command.
#[derive(Debug)]
pub(super) struct WrongCommand {
    pub(super) path: PathBuf,
    pub(super) begun: String,
    pub(super) now: String,
}

impl Kind for WrongCommand {
    fn class(&self) -> Class {
        Class::WrongCommand
    }

    fn hint(&self) -> Option<String> {
        let hint = "run it as it was begun to go on with it; keep both with `--trial-dir DIR`, or begin a new trial \
                    with `--fresh`";
        Some(hint.to_owned())
    }
}

impl fmt::Display for WrongCommand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, begun, now } = self;
        write!(
            formatter,
            "`{}` belongs to another command\n  begun with: {begun}\n  run with: {now}\n  \
             nothing of the trial was changed, and the run was stopped before it trained",
            path.display()
        )
    }
}

/// The directory belongs to another experiment configuration.
#[derive(Debug)]
pub(super) struct WrongConfiguration {
    pub(super) path: PathBuf,
    pub(super) fields: String,
}

impl Kind for WrongConfiguration {
    fn class(&self) -> Class {
        Class::WrongCommand
    }

    fn hint(&self) -> Option<String> {
        let hint = "begin a new trial with `--fresh`, or keep both with `--trial-dir DIR`";
        Some(hint.to_owned())
    }
}

impl fmt::Display for WrongConfiguration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, fields } = self;
        let path = path.display();
        write!(
            formatter,
            "`{path}` belongs to another configuration\n  it differs in: {fields}"
        )
    }
}

/// `trial.json` cannot be understood.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) problem: Problem,
}

/// Why `trial.json` cannot be understood.
#[derive(Debug)]
pub(super) enum Problem {
    /// It is not the JSON that was written.
    Malformed(serde_json::Error),
    /// Another version of this program has written it.
    Schema { found: u32, known: u32 },
    /// It does not exist, but checkpoints of its trial do.
    Gone,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(source) => source.fmt(formatter),
            Self::Schema { found, known } => {
                write!(formatter, "its schema is `{found}`, expected `{known}`")
            }
            Self::Gone => formatter.write_str("it is gone, and there are checkpoints of its trial"),
        }
    }
}

impl Kind for Unreadable {
    fn class(&self) -> Class {
        match self.problem {
            Problem::Malformed(_) | Problem::Gone => Class::TrialUnreadable,
            Problem::Schema { .. } => Class::OtherVersion,
        }
    }

    fn hint(&self) -> Option<String> {
        Some("restore it from a backup, or begin a new trial with `--fresh`".to_owned())
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "cannot read `{}`\n  {}\n  nothing of the trial was changed, and the run was stopped before it trained",
            self.path.display(),
            self.problem
        )
    }
}
