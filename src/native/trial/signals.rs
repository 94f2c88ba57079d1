//! Signals that ask for the end of the process.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::Trial;
use crate::preemption;

#[pymethods]
impl Trial {
    /// Makes signals act at the end of a batch, if they can wait. `begin` does it too.
    fn watch_signals(&self) {
        if !self.is_inert() && !self.is_child() {
            preemption::watch(self.launch.grace_seconds);
        }
    }

    /// Nothing more is saved of this run: signals act at once from now on.
    #[staticmethod]
    fn keep_nothing() {
        preemption::keep_nothing();
    }

    /// Whether a signal has come that waits, or that was passed to the script.
    #[getter]
    fn signal_calls(&self) -> bool {
        !self.is_inert() && preemption::calls()
    }

    /// The signal that waits for the end of a batch; 0: none.
    #[getter]
    fn pending_signal(&self) -> i32 {
        if self.is_inert() {
            0
        } else {
            preemption::pending()
        }
    }

    /// The last signal that asked for the end, in any case; 0: none.
    #[getter]
    fn received_signal(&self) -> i32 {
        if self.is_inert() {
            0
        } else {
            preemption::received()
        }
    }

    /// Writes into the journal that a signal ends the run here, and lets the signal act. If the
    /// script has a handler, runs it, raises what it raises, and returns.
    ///
    /// Args:
    ///     `was_saved`: whether a checkpoint was taken for this, and completed.
    fn preempt(&self, py: Python<'_>, was_saved: bool) -> PyResult<()> {
        let signal = self.pending_signal();
        if signal == 0 {
            return Ok(());
        }
        self.is_preempted.store(true, Ordering::Relaxed);
        if let Err(error) = self.locked(|training| training.preempted(signal, was_saved)) {
            // The run ends by the signal all the same: its sender waits for that, and starts it
            // again.
            tracing::warn!("the journal does not tell of this signal: {error}");
        }
        preemption::act();
        py.check_signals()
    }

    /// If a signal was passed to the script and the script trains on: records that, once. Returns
    /// whether it was so.
    fn trained_on(&self, py: Python<'_>) -> PyResult<bool> {
        let signal = preemption::handed();
        if self.is_inert() || signal == 0 {
            return Ok(false);
        }
        preemption::told();
        self.with(py, |training| training.trained_on(signal))?;
        Ok(true)
    }

    /// Ends the process by a signal.
    #[staticmethod]
    fn die_of(signal: i32) {
        preemption::die_of(signal);
    }
}
