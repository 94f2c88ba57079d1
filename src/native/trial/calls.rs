//! Recorded calls: made and appended, answered, or made again and compared.

use pedl_core::calls::kind;
use pedl_core::training::Training;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::{Due, Trial, call_of, put_back, take};
use crate::replay::{Next, State};
use crate::{batch, convert, preemption};

#[pymethods]
impl Trial {
    /// Number of calls recorded before the checkpoint; 0 if there is none.
    #[getter]
    fn resume_call(&self) -> u64 {
        if self.is_inert() {
            0
        } else {
            self.training().resume_call()
        }
    }

    /// Calls answered or appended so far.
    #[getter]
    fn position(&self) -> u64 {
        if self.is_inert() {
            0
        } else {
            self.training().position()
        }
    }

    /// Whether the log is longer than `--log-limit`.
    #[getter]
    fn log_exceeded(&self) -> bool {
        !self.is_inert() && self.training().is_log_exceeded()
    }

    /// The id of a text: the identity of a call, or its place in the script.
    fn intern(&self, text: &Bound<'_, PyString>) -> PyResult<u32> {
        if self.is_inert() {
            return Ok(0);
        }
        convert::text_bytes(text, |bytes| self.training().intern(bytes).number())
    }

    /// A checksum of a batch, an even number: of its numpy arrays of numbers and their shapes,
    /// None, True and False. 0 if it contains anything else.
    #[staticmethod]
    fn batch_checksum(
        values: &Bound<'_, PyTuple>,
        named_values: &Bound<'_, PyDict>,
    ) -> PyResult<u32> {
        batch::checksum(values, named_values)
    }

    /// Appends calls `(kind, identity, site, draws, arguments, value)`. Returns the names of the
    /// types that could not be recorded.
    fn append(&self, py: Python<'_>, calls: &Bound<'_, PyList>) -> PyResult<Vec<String>> {
        let mut opaque = Vec::new();
        if self.is_inert() {
            return Ok(opaque);
        }
        let mut encoded = take(&self.encoded);
        for call in calls {
            let call = call.cast_into::<PyTuple>()?;
            let item = |place| call.get_borrowed_item(place);
            let key = (
                item(0)?.extract()?,
                item(1)?.extract()?,
                item(2)?.extract()?,
                item(3)?.extract()?,
                item(4)?.extract()?,
            );
            encoded.clear();
            convert::encode(&item(5)?.to_owned(), &mut encoded.encoder(), &mut opaque)?;
            self.with(py, |training| {
                training.append(&call_of(training, key)?, &encoded)
            })?;
        }
        put_back(&self.encoded, encoded);
        Ok(opaque)
    }

    /// Appends a call on one batch, and counts the batch if it is a training call.
    ///
    /// Args:
    ///     `is_traced`: the lowest bit of its arguments; the others are the checksum of its batch.
    ///     `values`, `named_values`: the batch, as the call received it.
    ///     `value`: what the call returned.
    ///     `now_s`: as of `batch_done`.
    ///
    /// Returns what is due, a signal after calls of other kinds too. If the batch or the value
    /// contains something that this method does not support, nothing was done, and that is said.
    #[expect(clippy::too_many_arguments, reason = "they are what identifies a call")]
    fn record_batch(
        &self,
        py: Python<'_>,
        kind: u8,
        identity: u32,
        site: u32,
        draws: u64,
        is_traced: bool,
        values: &Bound<'_, PyTuple>,
        named_values: &Bound<'_, PyDict>,
        value: &Bound<'_, PyAny>,
        now_s: f64,
    ) -> PyResult<Option<Due>> {
        if self.is_inert() {
            return Ok(None);
        }
        let checksum = batch::checksum(values, named_values)?;
        let (encoded, opaque) = self.encode(value)?;
        let due = if checksum != 0 && opaque.is_empty() {
            let arguments = u64::from(checksum) | u64::from(is_traced);
            let key = (kind, identity, site, draws, arguments);
            self.with(py, |training| {
                training.append(&call_of(training, key)?, &encoded)?;
                let mut due = if kind == kind::TRAIN {
                    self.batch_over(training, now_s)?
                } else {
                    Due::default()
                };
                due.signal = preemption::calls();
                due.log_exceeded = training.is_log_exceeded();
                Ok(due)
            })?
        } else {
            Due {
                is_unsupported: true,
                ..Due::default()
            }
        };
        put_back(&self.encoded, encoded);
        Ok(due.or_none())
    }

    /// What the next record returned, if it is of this call.
    #[pyo3(signature = (kind, identity, site, draws, arguments, tensor=None))]
    #[expect(clippy::too_many_arguments, reason = "they are what identifies a call")]
    fn answer<'py>(
        &self,
        py: Python<'py>,
        kind: u8,
        identity: u32,
        site: u32,
        draws: u64,
        arguments: u64,
        tensor: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.refuse_in_child()?;
        let mut answer = take(&self.answer);
        let key = (kind, identity, site, draws, arguments);
        self.with(py, |training| {
            training.answer(&call_of(training, key)?, &mut answer)
        })?;
        let value = convert::decode(py, &answer, tensor)?;
        put_back(&self.answer, answer);
        Ok(value)
    }

    /// Consumes the record of a call that was made again: it must have returned the same value.
    #[expect(clippy::too_many_arguments, reason = "they are what identifies a call")]
    fn check(
        &self,
        py: Python<'_>,
        kind: u8,
        identity: u32,
        site: u32,
        draws: u64,
        arguments: u64,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.refuse_in_child()?;
        let (encoded, _) = self.encode(value)?;
        let mut answer = take(&self.answer);
        let key = (kind, identity, site, draws, arguments);
        self.with(py, |training| {
            training.check(&call_of(training, key)?, &encoded, &mut answer)
        })?;
        put_back(&self.answer, answer);
        put_back(&self.encoded, encoded);
        Ok(())
    }

    /// The state of the replay in this process.
    #[getter]
    fn state(&self) -> State {
        if self.is_inert() {
            State::Inert
        } else {
            self.training().state().into()
        }
    }

    /// What becomes of the call that is made now; `may_trace`: made again, it builds what it built
    /// the first time.
    fn next(&self, py: Python<'_>, may_trace: bool) -> PyResult<Next> {
        if self.is_inert() {
            return Ok(Next::Pass);
        }
        let next = self.with(py, |training| training.next(may_trace))?;
        Ok(next.into())
    }

    /// Kind, identity and arguments of the next record; None if the replay is over.
    fn peek(&self, py: Python<'_>) -> PyResult<Option<(u8, u32, u64)>> {
        if self.is_inert() {
            return Ok(None);
        }
        let call = self.with(py, Training::peek)?;
        Ok(call.map(|call| (call.kind, call.identity.number(), call.arguments)))
    }

    /// Passes what was appended to the operating system.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_inert() {
            Ok(())
        } else {
            self.with(py, Training::flush)
        }
    }
}
