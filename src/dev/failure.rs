//! Errors: why a command could not do its work, and what the reader can do about it.

use std::fmt;
use std::io;
use std::path::Path;

/// An error of `cargo dev` itself. A test that fails is not an error: it is a result.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    hint: Option<String>,
    code: u8,
}

/// The result of nearly every function here.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// An operation failed; the exit code is 1.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
            code: 1,
        }
    }

    /// The command line is wrong; the exit code is 64 (`EX_USAGE` of `sysexits.h`).
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self {
            code: 64,
            ..Self::new(what)
        }
        .hint("`cargo dev --help` lists what there is")
    }

    /// A signal stopped the command; the exit code is the one that a shell gives for that signal.
    pub(crate) fn interrupted(signal: i32) -> Self {
        let code = u8::try_from(128 + signal).unwrap_or(u8::MAX);
        Self {
            code,
            ..Self::new(format!("stopped by signal {signal}"))
        }
    }

    /// Whether a signal, and not an error, is the reason.
    pub(crate) fn is_interruption(&self) -> bool {
        self.code > 128
    }

    /// Adds the one hint that would help.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// The exit code of the process.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// Adds the path to an input or output error.
pub(crate) trait At<T> {
    /// Turns the error into a [`Failure`]: `cannot <verb> <path>: <error>`.
    fn at(self, verb: &str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, verb: &str, path: &Path) -> Result<T> {
        self.map_err(|error| {
            Failure::new(format!(
                "cannot {verb} `{}`: {}",
                path.display(),
                error.into()
            ))
        })
    }
}
