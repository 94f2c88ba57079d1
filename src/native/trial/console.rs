//! Messages on standard error, and the line that shows the progress.

use pyo3::prelude::*;

use super::Trial;
use crate::{live, log};

#[pymethods]
impl Trial {
    /// Prints a message, unless `--quiet` was given.
    fn log(&self, text: &str) {
        if !self.is_inert() {
            log::start(&self.launch);
            tracing::info!("{text}");
        }
    }

    /// Prints a message, unless `--quiet` was given; in a forked child too.
    fn log_of_child(&self, text: &str) {
        log::start(&self.launch);
        tracing::info!("{text}");
    }

    /// Prints a message if `--verbose` was given.
    fn log_debug(&self, text: &str) {
        if !self.is_inert() {
            log::start(&self.launch);
            tracing::debug!("{text}");
        }
    }

    /// Whether a line on the terminal shows the progress of the training. It is shown while the
    /// script has not begun a line, so `make_way` must be called for all that is printed there.
    #[getter]
    fn is_live(&self) -> bool {
        !self.is_inert() && live::is_on()
    }

    /// Something is about to be printed, and ends its line or does not: erases the line on the
    /// terminal.
    #[staticmethod]
    fn make_way(ends_line: bool) {
        live::make_way(ends_line);
    }

    /// The script has ended, and with it the line on the terminal.
    #[staticmethod]
    fn end_live() {
        live::stop();
    }

    /// Prints why the process ends.
    #[pyo3(signature = (message, hint=None))]
    fn log_error(&self, message: &str, hint: Option<&str>) {
        log::start(&self.launch);
        if let Some(hint) = hint {
            tracing::error!(hint, "{message}");
        } else {
            tracing::error!("{message}");
        }
    }
}
