//! The words of the replay that the hooks use: states, kinds of calls, what becomes of a call, exit
//! codes. Each number is written once, in core.

use pedl_core::calls::{TRACED, kind};
use pedl_core::{exit_codes, replay};
use pyo3::prelude::*;

/// The state of the replay.
#[pyclass(frozen, eq, hash, skip_from_py_object, module = "_pedl")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    #[pyo3(name = "UNTOUCHED")]
    Untouched,
    #[pyo3(name = "REPLAYING")]
    Replaying,
    #[pyo3(name = "LIVE")]
    Live,
    #[pyo3(name = "CLOSED")]
    Closed,
    #[pyo3(name = "INERT")]
    Inert,
}

impl From<replay::State> for State {
    fn from(state: replay::State) -> Self {
        match state {
            replay::State::Untouched => Self::Untouched,
            replay::State::Replaying => Self::Replaying,
            replay::State::Live => Self::Live,
            replay::State::Closed => Self::Closed,
            replay::State::Inert => Self::Inert,
        }
    }
}

/// What becomes of a call.
#[pyclass(frozen, eq, hash, skip_from_py_object, module = "_pedl")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Next {
    #[pyo3(name = "COMPUTE")]
    Compute,
    #[pyo3(name = "ANSWER")]
    Answer,
    #[pyo3(name = "REMAKE")]
    Remake,
    #[pyo3(name = "PASS")]
    Pass,
}

impl From<replay::Next> for Next {
    fn from(next: replay::Next) -> Self {
        match next {
            replay::Next::Compute => Self::Compute,
            replay::Next::Answer => Self::Answer,
            replay::Next::Remake => Self::Remake,
            replay::Next::Pass => Self::Pass,
        }
    }
}

/// The kinds of recorded calls, and the bit of a call that traced.
#[pyclass(frozen, module = "_pedl")]
pub(crate) struct Kind;

#[pymethods]
impl Kind {
    #[classattr]
    const TRAIN: u8 = kind::TRAIN;
    #[classattr]
    const TEST: u8 = kind::TEST;
    #[classattr]
    const PREDICT: u8 = kind::PREDICT;
    #[classattr]
    const METRICS: u8 = kind::METRICS;
    #[classattr]
    const READ: u8 = kind::READ;
    #[classattr]
    const WRITE: u8 = kind::WRITE;
    #[classattr]
    const COMPOSITE: u8 = kind::COMPOSITE;
    #[classattr]
    const ENTRY: u8 = kind::ENTRY;
    #[classattr]
    #[pyo3(name = "TRACED")]
    const TRACED_BIT: u64 = TRACED;
}

/// The exit codes of pedl-run.
#[pyclass(frozen, module = "_pedl")]
pub(crate) struct ExitCode;

#[pymethods]
impl ExitCode {
    #[classattr]
    const USAGE: i32 = exit_codes::USAGE;
    #[classattr]
    const CONFIGURATION: i32 = exit_codes::CONFIGURATION;
    #[classattr]
    const UNSUPPORTED: i32 = exit_codes::UNSUPPORTED;
    #[classattr]
    const BUG: i32 = exit_codes::BUG;
    #[classattr]
    const CANNOT_CREATE: i32 = exit_codes::CANNOT_CREATE;
    #[classattr]
    const IN_USE: i32 = exit_codes::IN_USE;
    #[classattr]
    const DIVERGED: i32 = exit_codes::DIVERGED;
    #[classattr]
    const NOT_EXACT: i32 = exit_codes::NOT_EXACT;
    #[classattr]
    const STORAGE_FAILED: i32 = exit_codes::STORAGE_FAILED;
}

/// Adds the classes of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<State>()?;
    module.add_class::<Next>()?;
    module.add_class::<Kind>()?;
    module.add_class::<ExitCode>()
}
