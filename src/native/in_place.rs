//! The replacement of a builtin function: it looks, is called, fails and is pickled like the
//! original.
//!
//! An exception that passes through a Python function has that function in its traceback. It passes
//! through this object as through a builtin.

use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};

/// Replaces `original`.
///
/// Args:
///     `module`: name of the module that holds the replacement; pickles name it there.
///     `before`: called with the arguments of each call. What it returns is the answer, except
///         `NotImplemented`: then the original is called. None: nothing is called yet.
///     `known`: whether files are the user's, by the names in code objects. A caller in a file that
///         it maps to False gets the original's answer at once, so that libraries are not slowed.
///         None: all callers are checked.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct InPlace {
    original: Py<PyAny>,
    module: Py<PyString>,
    before: Py<PyAny>,
    known: Option<Known>,
    first: OnceLock<Py<PyAny>>,
}

/// Which callers belong to a library.
struct Known {
    files: Py<PyDict>,
    get_frame: Py<PyAny>,
}

impl Known {
    fn is_library(&self, py: Python<'_>) -> PyResult<bool> {
        let frame = self.get_frame.bind(py).call0()?;
        let file = frame
            .getattr(intern!(py, "f_code"))?
            .getattr(intern!(py, "co_filename"))?;
        let known = self.files.bind(py).get_item(file)?;
        Ok(known.is_some_and(|is_users| is_users.is(PyBool::new(py, false))))
    }
}

/// Whether `before` has failed by an error in our code. If it called the original, an error of that
/// belongs to the script.
fn is_of_before(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    py.import("py_hooks.engine.guard")?
        .call_method1("looked", (error.value(py),))?
        .extract()
}

#[pymethods]
impl InPlace {
    #[new]
    #[pyo3(signature = (original, module, before, known=None))]
    fn new(
        py: Python<'_>,
        original: Py<PyAny>,
        module: Py<PyString>,
        before: Py<PyAny>,
        known: Option<Py<PyDict>>,
    ) -> PyResult<Self> {
        let known = known.map(|files| {
            let get_frame = py.import("sys")?.getattr("_getframe")?.unbind();
            PyResult::Ok(Known { files, get_frame })
        });
        Ok(Self {
            original,
            module,
            before,
            known: known.transpose()?,
            first: OnceLock::new(),
        })
    }

    /// Calls another function ahead of `before`, in the same way. Nothing replaces this object,
    /// because the script may have taken it long before such a function exists. Once only.
    fn ask_first(&self, first: Py<PyAny>) -> PyResult<()> {
        self.first
            .set(first)
            .map_err(|_| PyRuntimeError::new_err("another one is asked first"))
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(known) = &self.known
            && known.is_library(py)?
        {
            return self.original.bind(py).call(args, kwargs);
        }
        let before = (!self.before.is_none(py)).then_some(&self.before);
        for each in self.first.get().into_iter().chain(before) {
            match each.bind(py).call(args, kwargs) {
                Ok(answer) if !answer.is(py.NotImplemented()) => return Ok(answer),
                Err(error) if !is_of_before(py, &error)? => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        self.original.bind(py).call(args, kwargs)
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
