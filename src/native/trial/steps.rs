//! Batches, steps, metrics and events.

use pedl_core::calls::TextId;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use serde_json::Value;

use super::{Due, Trial};
use crate::{live, preemption};

#[pymethods]
impl Trial {
    /// A training call was made or answered; returns what is due.
    fn batch_done(&self, py: Python<'_>, now_s: f64) -> PyResult<Option<Due>> {
        if self.is_inert() {
            return Ok(None);
        }
        self.with(py, |training| {
            let mut due = self.batch_over(training, now_s)?;
            due.signal = preemption::calls();
            Ok(due.or_none())
        })
    }

    /// Batches that the trial has yet to train; None if a loop of the script decides.
    #[getter]
    fn batches_left(&self) -> Option<u64> {
        self.training().batches_left()
    }

    /// The model was validated: `(name, value)` as the framework reports them. Returns whether a
    /// checkpoint is to be taken.
    #[expect(clippy::needless_pass_by_value, reason = "it is made for this call")]
    fn validated(
        &self,
        py: Python<'_>,
        epoch: Option<u64>,
        metrics: Vec<(String, f64)>,
    ) -> PyResult<bool> {
        if self.is_inert() {
            return Ok(false);
        }
        self.with(py, |training| training.validated(epoch, &metrics))
    }

    /// The names of the values that a call returns as a list.
    fn metric_names(&self, py: Python<'_>, identity: u32, names: Vec<String>) -> PyResult<()> {
        if self.is_inert() {
            return Ok(());
        }
        self.with(py, |training| {
            training.set_metric_names(training.text_id(identity)?, names);
            Ok(())
        })
    }

    /// What the last training call of the running step returned, for each model: `(identity, name,
    /// value)`.
    fn last_values(&self) -> Vec<(u32, String, f64)> {
        let values = self.training().last_values();
        let numbered = |(identity, name, value): (TextId, _, _)| (identity.number(), name, value);
        values.into_iter().map(numbered).collect()
    }

    /// The value of a metric in the running step, if that is not the mean of what its calls
    /// returned; `is_at_end`: it is the value at the end of the step, not a mean.
    fn tell_step_metric(
        &self,
        py: Python<'_>,
        identity: u32,
        name: &str,
        value: f64,
        is_at_end: bool,
    ) -> PyResult<()> {
        self.with(py, |training| {
            let identity = training.text_id(identity)?;
            training.tell_step_metric(identity, name, value, is_at_end);
            Ok(())
        })
    }

    /// Keeps the metrics of each training call, for callbacks of steps.
    fn keep_batch_metrics(&self) {
        self.training().keep_call_metrics();
    }

    /// The metrics of each training call since the last call of this: its identity, and a dict of
    /// numbers.
    fn take_batch_metrics<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u32, Bound<'py, PyDict>)>> {
        let calls = self.training().take_call_metrics();
        calls
            .into_iter()
            .map(|(identity, metrics)| Ok((identity.number(), metrics.into_py_dict(py)?)))
            .collect()
    }

    /// The step that ended with the last batch is over, and its calls are appended.
    fn end_step(&self, py: Python<'_>, epoch: Option<u64>) -> PyResult<()> {
        if self.is_inert() {
            return Ok(());
        }
        let wait = self.waits.take();
        self.with(py, |training| training.end_step(epoch, wait, live::is_on()))
    }

    /// Appends an event, a JSON object with the member `event`, to the journal.
    fn event(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        let event: Value = serde_json::from_str(text)
            .map_err(|error| PyValueError::new_err(format!("not an event: {error}")))?;
        let Value::Object(mut members) = event else {
            return Err(PyValueError::new_err("not an event: it is no object"));
        };
        let Some(Value::String(name)) = members.remove("event") else {
            return Err(PyValueError::new_err(
                "not an event: it has no member `event`",
            ));
        };
        if self.is_inert() {
            Ok(())
        } else {
            self.with(py, |training| training.event(&name, members))
        }
    }
}
