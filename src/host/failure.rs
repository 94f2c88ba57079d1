//! The single error type of the executable: what failed, what was found instead, and what to do
//! about it.
//!
//! Every failure ends the process, so the kind of a failure is only its exit code; callers never
//! match on it. The text is composed where the facts are known and printed in one place,
//! `cli::report`.

use std::fmt;

use pedl_core::exit_codes;

/// Our exit codes. The script's own codes and deaths by signal pass through unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Exit {
    /// The command line cannot be understood.
    Usage = exit_codes::USAGE,
    /// The trial directory belongs to another command, or cannot be understood.
    Configuration = exit_codes::CONFIGURATION,
    /// There is no Python, or no supported version.
    Interpreter = exit_codes::UNSUPPORTED,
    /// The fault is in pedl.
    Bug = exit_codes::BUG,
    /// The trial directory or the cache cannot be made.
    CannotCreate = exit_codes::CANNOT_CREATE,
    /// Another process runs this trial.
    InUse = exit_codes::IN_USE,
    /// Nothing can be shown about the resume of a script.
    NotShown = exit_codes::NOT_EXACT,
    /// The run was interrupted, as by Ctrl-C.
    Interrupted = exit_codes::INTERRUPTED,
}

/// Why the process ends. Printed as
///
/// ```text
/// pedl: error: <what failed, with the value received in backticks>
///   <what was expected or found, where; what was done about it>
/// hint: <one imperative, with the command>
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) what: String,
    pub(crate) details: Vec<String>,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            details: Vec::new(),
            hint: None,
        }
    }

    /// A failure that only an error in this program can cause.
    pub(crate) fn bug(what: impl Into<String>) -> Self {
        Self::new(Exit::Bug, what).hint("this is a bug of pedl; report it with the lines above")
    }

    /// Adds a line that says what was expected or found.
    #[must_use]
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }

    /// Adds the hint.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "error: {}", self.what)?;
        for detail in &self.details {
            write!(formatter, "\n  {detail}")?;
        }
        match &self.hint {
            Some(hint) => write!(formatter, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
