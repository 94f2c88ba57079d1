//! Why a copy of a trial was not made, as messages.

use std::fmt;
use std::path::PathBuf;

use super::ATTEMPTS_MAX;
use crate::error::{Class, Kind};

/// Why a copy was not made.
#[derive(Debug)]
pub(super) enum Failure {
    /// The path exists already.
    Taken { path: PathBuf },
    /// No checkpoint is intact.
    NoneWhole { path: PathBuf, damaged: Vec<String> },
    /// It changes with every attempt.
    Changing { path: PathBuf },
    /// A file became shorter while it was read.
    Shorter {
        name: PathBuf,
        read: u64,
        bytes: u64,
    },
    /// The copy does not match the manifest.
    NotWhole { name: String, what: String },
    /// A signal.
    Stopped,
}

impl Kind for Failure {
    fn class(&self) -> Class {
        match self {
            Self::Taken { .. } => Class::CannotCreate,
            Self::NoneWhole { .. } | Self::NotWhole { .. } => Class::CheckpointCorrupt,
            Self::Changing { .. } | Self::Shorter { .. } | Self::Stopped => Class::StorageFailed,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Taken { .. } => "name a directory that is not there yet",
            Self::NoneWhole { damaged, .. } if damaged.is_empty() => {
                "wait for the first one: a training takes it after `--checkpoint-seconds`"
            }
            Self::NoneWhole { .. } | Self::NotWhole { .. } => {
                "`pedl checkpoint verify` tells which checkpoints are whole"
            }
            Self::Changing { .. } | Self::Shorter { .. } => "run the same command again",
            Self::Stopped => return None,
        };
        Some(hint.to_owned())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { path } => write!(formatter, "`{}` is there already", path.display())?,
            Self::NoneWhole { path, damaged } => {
                let there = if damaged.is_empty() {
                    "none".to_owned()
                } else {
                    damaged.join("\n  ")
                };
                write!(
                    formatter,
                    "there is no checkpoint in `{}` that is whole\n  there is: {there}",
                    path.display()
                )?;
            }
            Self::Changing { path } => write!(
                formatter,
                "`{}` changes while it is opened\n  it was tried {ATTEMPTS_MAX} times",
                path.display()
            )?,
            Self::Shorter { name, read, bytes } => write!(
                formatter,
                "`{}` has become shorter while it was read\n  expected: {bytes} bytes; read: {read}",
                name.display()
            )?,
            Self::NotWhole { name, what } => write!(
                formatter,
                "checkpoint `{name}` is not whole in the copy: {what}"
            )?,
            Self::Stopped => write!(formatter, "copying was interrupted")?,
        }
        formatter.write_str("\n  nothing of the trial was changed, and no copy was made")
    }
}
