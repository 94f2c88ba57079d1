//! Errors of core as exceptions of Python: one class for each possible remedy.

use pedl_core::Class;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;

create_exception!(_pedl, Error, PyException, "Every error of pedl's own.");
create_exception!(
    _pedl,
    Divergence,
    Error,
    "A replayed call is not the recorded one."
);
create_exception!(_pedl, TrialInUse, Error, "Another process runs the trial.");
create_exception!(
    _pedl,
    WrongCommand,
    Error,
    "The trial directory belongs to another command, or to another experiment configuration."
);
create_exception!(
    _pedl,
    TrialUnreadable,
    Error,
    "The identity of the trial is damaged or missing."
);
create_exception!(
    _pedl,
    OtherVersion,
    Error,
    "Another version of pedl has written the trial, in a format that is unknown here."
);
create_exception!(
    _pedl,
    WrongConfiguration,
    Error,
    "The experiment configuration asks for something that the training does not have."
);
create_exception!(
    _pedl,
    CheckpointGone,
    Error,
    "The checkpoint that was asked for does not exist any more."
);
create_exception!(
    _pedl,
    CheckpointCorrupt,
    Error,
    "Recorded data is damaged, and nothing older is left to fall back to."
);
create_exception!(
    _pedl,
    CannotCreate,
    Error,
    "The trial directory cannot be made."
);
create_exception!(_pedl, StorageFailed, Error, "Reading or writing failed.");
create_exception!(
    _pedl,
    NotStorable,
    Error,
    "Something cannot be part of a checkpoint."
);

/// The class of Python for a class of core.
fn exception(py: Python<'_>, class: Class) -> Bound<'_, PyType> {
    match class {
        Class::Divergence => py.get_type::<Divergence>(),
        Class::TrialInUse => py.get_type::<TrialInUse>(),
        Class::WrongCommand => py.get_type::<WrongCommand>(),
        Class::TrialUnreadable => py.get_type::<TrialUnreadable>(),
        Class::OtherVersion => py.get_type::<OtherVersion>(),
        Class::WrongConfiguration => py.get_type::<WrongConfiguration>(),
        Class::CheckpointGone => py.get_type::<CheckpointGone>(),
        Class::CheckpointCorrupt => py.get_type::<CheckpointCorrupt>(),
        Class::CannotCreate => py.get_type::<CannotCreate>(),
        Class::StorageFailed => py.get_type::<StorageFailed>(),
        Class::NotStorable => py.get_type::<NotStorable>(),
        Class::Bug => py.get_type::<Error>(),
    }
}

/// An error of core as an exception with its text, its `exit_code` and its `hint`.
pub(crate) fn to_python(py: Python<'_>, error: &pedl_core::Error) -> PyErr {
    let raised = PyErr::from_type(exception(py, error.class()), error.to_string());
    let value = raised.value(py);
    let members = value
        .setattr("exit_code", error.exit_code())
        .and_then(|()| value.setattr("hint", error.hint()));
    members.map_or_else(|failed| failed, |()| raised)
}

/// A result of core as one of Python.
pub(crate) trait IntoPython<T> {
    fn into_python(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoPython<T> for pedl_core::Result<T> {
    fn into_python(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_python(py, &error))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let base = py.get_type::<Error>();
    base.setattr("hint", py.None())?;
    base.setattr("exit_code", Class::Bug.exit_code())?;
    module.add("Error", &base)?;
    for class in Class::ALL {
        let exception = exception(py, class);
        exception.setattr("exit_code", class.exit_code())?;
        module.add(exception.name()?, exception)?;
    }
    Ok(())
}
