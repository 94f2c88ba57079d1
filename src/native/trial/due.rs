//! What is due after a call, as the hooks see it.

use pedl_core::replay;
use pyo3::prelude::*;

/// What is due after a call. If nothing is due, methods return None, so that most calls make no
/// object.
#[pyclass(frozen, eq, skip_from_py_object, module = "_pedl")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is due or not, whatever the others are"
)]
pub(crate) struct Due {
    /// A step ended.
    #[pyo3(get)]
    pub(super) step_ended: bool,
    /// A checkpoint is due.
    #[pyo3(get)]
    pub(super) checkpoint: bool,
    /// It must be of this very batch.
    #[pyo3(get)]
    pub(super) checkpoint_wanted: bool,
    /// A validation of the model is due.
    #[pyo3(get)]
    pub(super) validation: bool,
    /// The training of the trial is complete.
    #[pyo3(get)]
    pub(super) is_last: bool,
    /// The log is longer than `--log-limit`.
    #[pyo3(get)]
    pub(super) log_exceeded: bool,
    /// A signal has come.
    #[pyo3(get)]
    pub(super) signal: bool,
    /// The call is not recorded: it has something that `record_batch` does not support.
    #[pyo3(get)]
    pub(super) is_unsupported: bool,
}

#[pymethods]
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "methods of a class take a reference"
)]
impl Due {
    /// Args:
    ///     `signal`, `checkpoint`, `checkpoint_wanted`: as the attributes.
    #[new]
    #[pyo3(signature = (*, signal=false, checkpoint=false, checkpoint_wanted=false))]
    fn new(signal: bool, checkpoint: bool, checkpoint_wanted: bool) -> Self {
        Self {
            checkpoint,
            checkpoint_wanted,
            signal,
            ..Self::default()
        }
    }

    /// What is due if both are.
    fn __or__(&self, other: &Self) -> Self {
        Self {
            step_ended: self.step_ended | other.step_ended,
            checkpoint: self.checkpoint | other.checkpoint,
            checkpoint_wanted: self.checkpoint_wanted | other.checkpoint_wanted,
            validation: self.validation | other.validation,
            is_last: self.is_last | other.is_last,
            log_exceeded: self.log_exceeded | other.log_exceeded,
            signal: self.signal | other.signal,
            is_unsupported: self.is_unsupported | other.is_unsupported,
        }
    }

    /// Whether anything is due.
    fn __bool__(&self) -> bool {
        *self != Self::default()
    }

    /// The end of a step alone.
    fn step_alone(&self) -> Self {
        Self {
            step_ended: self.step_ended,
            ..Self::default()
        }
    }

    /// The same without the end of a step.
    fn without_step(&self) -> Self {
        Self {
            step_ended: false,
            ..*self
        }
    }

    /// The same without a signal.
    fn without_signal(&self) -> Self {
        Self {
            signal: false,
            ..*self
        }
    }

    /// The same without a checkpoint.
    fn without_checkpoint(&self) -> Self {
        Self {
            checkpoint: false,
            checkpoint_wanted: false,
            ..*self
        }
    }
}

impl Due {
    /// None if nothing is due.
    #[inline]
    pub(super) fn or_none(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}

impl From<replay::Due> for Due {
    #[inline]
    fn from(due: replay::Due) -> Self {
        Self {
            step_ended: due.step_ended.is_some(),
            checkpoint: due.checkpoint,
            checkpoint_wanted: due.checkpoint_wanted,
            validation: due.validation,
            is_last: due.is_last,
            ..Self::default()
        }
    }
}
