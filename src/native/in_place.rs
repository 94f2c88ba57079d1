//! What stands in the place of a builtin function: it looks, is called, fails and is pickled like it.
//!
//! An exception that passes through a function of Python has that function in its traceback. It passes
//! through this one as through a builtin.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

/// Stands in the place of `original`.
///
/// Args:
///     `module`: name of the module in which it does; pickles name it there.
///     `before`: called with the arguments of each call. What it returns is the answer, but for
///         `NotImplemented`: then the original is called.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct InPlace {
    original: Py<PyAny>,
    module: Py<PyString>,
    before: Py<PyAny>,
}

/// Whether `before` has failed by a mistake of ours. What the original raised, where it called that, is the script's.
fn is_of_before(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    py.import("py_hooks.engine.guard")?
        .call_method1("looked", (error.value(py),))?
        .extract()
}

#[pymethods]
impl InPlace {
    #[new]
    fn new(original: Py<PyAny>, module: Py<PyString>, before: Py<PyAny>) -> Self {
        Self {
            original,
            module,
            before,
        }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.before.bind(py).call(args, kwargs) {
            Ok(answer) if !answer.is(py.NotImplemented()) => Ok(answer),
            Err(error) if !is_of_before(py, &error)? => Err(error),
            Ok(_) | Err(_) => self.original.bind(py).call(args, kwargs),
        }
    }

    fn __getattribute__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if name.to_cow()? == "__module__" {
            return Ok(self.module.bind(py).clone().into_any());
        }
        self.original.bind(py).getattr(name)
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.original.bind(py).repr()
    }
}
