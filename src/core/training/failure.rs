//! Why a training cannot begin.

use std::fmt;
use std::path::PathBuf;

use crate::directory;
use crate::error::{Class, Error, Kind};

/// The file system failed before the trial began in this process.
#[derive(Debug)]
pub(super) struct CannotBegin {
    pub(super) trial_dir: PathBuf,
    pub(super) source: Error,
}

impl Kind for CannotBegin {
    fn class(&self) -> Class {
        Class::CannotCreate
    }

    fn hint(&self) -> Option<String> {
        Some(directory::hint_for(&self.source).to_owned())
    }

    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl fmt::Display for CannotBegin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.source.to_string().replace("\n  ", ": ");
        write!(
            formatter,
            "cannot begin the trial in `{}`\n  {reason}\n  the run was stopped before it trained",
            self.trial_dir.display()
        )
    }
}

/// There are checkpoints, but none is intact.
#[derive(Debug)]
pub(super) struct NoneLeft {
    pub(super) trial_dir: PathBuf,
    pub(super) damaged: Vec<Error>,
}

impl Kind for NoneLeft {
    fn class(&self) -> Class {
        Class::CheckpointCorrupt
    }

    fn hint(&self) -> Option<String> {
        Some("restore the folder from a backup, or begin a new trial with `--fresh`".to_owned())
    }
}

impl fmt::Display for NoneLeft {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "no checkpoint in `{}` is whole",
            self.trial_dir.display()
        )?;
        for damage in &self.damaged {
            for line in damage.to_string().lines() {
                write!(formatter, "\n  {line}")?;
            }
        }
        formatter.write_str(
            "\n  nothing of the trial was changed, and the run was stopped before it trained",
        )
    }
}
