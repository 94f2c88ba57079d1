//! The error type of this crate.
//!
//! An [`Error`] is opaque. What went wrong is a private kind, which lives in the module that it
//! concerns and implements `Kind`; visible outside are its text, its [`Class`] (what a caller can
//! act on), its exit code and its hint. The text says what failed, what was found and what was done
//! about it, one per line; the hint is separate.

use std::error;
use std::fmt;

use crate::exit_codes;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of this crate failed. One word in size.
#[derive(Debug)]
pub struct Error(Box<dyn Kind>);

/// What a caller can do about an error: each has one exception class of Python, and one exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A replayed call is not the recorded one.
    Divergence,
    /// Another process runs the trial.
    TrialInUse,
    /// The trial directory belongs to another command, or to another experiment configuration.
    WrongCommand,
    /// The identity of the trial is damaged or missing.
    TrialUnreadable,
    /// Another version of this program has written the trial, in a format that is unknown here.
    OtherVersion,
    /// The experiment configuration asks for something that the training does not have.
    WrongConfiguration,
    /// The checkpoint that was asked for does not exist any more.
    CheckpointGone,
    /// Recorded data is damaged, and nothing older is left to fall back to.
    CheckpointCorrupt,
    /// The trial directory cannot be made.
    CannotCreate,
    /// A read or write failed after training began.
    StorageFailed,
    /// Data that cannot be stored was to be part of a checkpoint.
    NotStorable,
    /// The fault is in pedl.
    Bug,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Divergence,
        Self::TrialInUse,
        Self::WrongCommand,
        Self::TrialUnreadable,
        Self::OtherVersion,
        Self::WrongConfiguration,
        Self::CheckpointGone,
        Self::CheckpointCorrupt,
        Self::CannotCreate,
        Self::StorageFailed,
        Self::NotStorable,
        Self::Bug,
    ];

    /// The exit code of a process that ends because of it.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::WrongCommand
            | Self::TrialUnreadable
            | Self::OtherVersion
            | Self::WrongConfiguration
            | Self::CheckpointGone
            | Self::CheckpointCorrupt => exit_codes::CONFIGURATION,
            Self::NotStorable | Self::Bug => exit_codes::BUG,
            Self::CannotCreate => exit_codes::CANNOT_CREATE,
            Self::TrialInUse => exit_codes::IN_USE,
            Self::Divergence => exit_codes::DIVERGED,
            Self::StorageFailed => exit_codes::STORAGE_FAILED,
        }
    }
}

/// What a module reports about one of its failures.
pub(crate) trait Kind: fmt::Debug + fmt::Display + Send + Sync + 'static {
    fn class(&self) -> Class;

    /// One imperative with the exact command, if there is something to do.
    fn hint(&self) -> Option<String> {
        None
    }

    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        None
    }

    /// Whether the failure is that a file does not exist.
    fn is_not_found(&self) -> bool {
        false
    }
}

impl Error {
    /// What can be done about it.
    pub fn class(&self) -> Class {
        self.0.class()
    }

    /// The exit code of a process that ends because of it.
    pub fn exit_code(&self) -> i32 {
        self.class().exit_code()
    }

    /// One imperative with the exact command, if there is something to do.
    pub fn hint(&self) -> Option<String> {
        self.0.hint()
    }

    /// Whether recorded data is damaged, so that an older checkpoint may help.
    pub fn is_corrupt(&self) -> bool {
        self.class() == Class::CheckpointCorrupt
    }

    /// Whether the error is that a file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.0.is_not_found()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source()
    }
}

impl<K: Kind> From<K> for Error {
    fn from(kind: K) -> Self {
        Self(Box::new(kind))
    }
}

/// A failure that only a mistake in this program can cause.
#[derive(Debug)]
pub(crate) struct Bug(pub(crate) String);

impl Kind for Bug {
    fn class(&self) -> Class {
        Class::Bug
    }

    fn hint(&self) -> Option<String> {
        Some("this is a bug of pedl; report it with the lines above".to_owned())
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
