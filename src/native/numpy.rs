//! numpy, imported when it is first needed.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();

/// dtypes are few and mostly singletons. Those that are not (`<U17`) must not pile up.
const KNOWN_DTYPES: usize = 256;

/// What is used of numpy.
pub(crate) struct Numpy {
    pub(crate) ndarray: Py<PyType>,
    pub(crate) generic: Py<PyType>,
    pub(crate) float32: Py<PyType>,
    pub(crate) float64: Py<PyType>,
    pub(crate) asarray: Py<PyAny>,
    pub(crate) zeros: Py<PyAny>,
    pub(crate) dtype: Py<PyAny>,
    names: Mutex<HashMap<usize, Named>>,
    dtypes: Mutex<HashMap<String, Py<PyAny>>>,
}

/// A dtype that was looked at. Kept alive, so that its address stays its own.
struct Named {
    _dtype: Py<PyAny>,
    name: Option<Name>,
}

/// How a dtype is called.
#[derive(Clone)]
pub(crate) struct Name {
    /// The text from which numpy, or `ml_dtypes`, makes it again: `<f4`, `bfloat16`.
    pub(crate) text: std::sync::Arc<str>,
    /// `dtype.name`: `float32`.
    pub(crate) long: std::sync::Arc<str>,
    /// Whether its elements are references to Python objects.
    pub(crate) is_object: bool,
}

impl Numpy {
    /// numpy; an `ImportError` where there is none.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&Self> {
        NUMPY.get_or_try_init(py, || {
            let numpy = py.import("numpy")?;
            let class = |name| Ok::<_, PyErr>(numpy.getattr(name)?.cast_into::<PyType>()?.unbind());
            Ok(Self {
                ndarray: class("ndarray")?,
                generic: class("generic")?,
                float32: class("float32")?,
                float64: class("float64")?,
                asarray: numpy.getattr("asarray")?.unbind(),
                zeros: numpy.getattr("zeros")?.unbind(),
                dtype: numpy.getattr("dtype")?.unbind(),
                names: Mutex::default(),
                dtypes: Mutex::default(),
            })
        })
    }

    /// How a dtype is called; `None` for those that cannot be made again from a text (structures).
    pub(crate) fn name_of(&self, dtype: &Bound<'_, PyAny>) -> PyResult<Option<Name>> {
        let address = dtype.as_ptr().addr();
        let known =
            |names: &HashMap<usize, Named>| names.get(&address).map(|named| named.name.clone());
        if let Some(name) = known(&self.names.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(name);
        }
        // Python code runs here, so the lock is not held.
        let name = self.find_name(dtype)?;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= KNOWN_DTYPES {
            names.clear();
        }
        names.insert(
            address,
            Named {
                _dtype: dtype.clone().unbind(),
                name: name.clone(),
            },
        );
        Ok(name)
    }

    fn find_name(&self, dtype: &Bound<'_, PyAny>) -> PyResult<Option<Name>> {
        let py = dtype.py();
        let long: String = dtype.getattr("name")?.extract()?;
        let short: String = dtype.getattr("str")?.extract()?;
        let is_object = dtype.getattr("hasobject")?.extract()?;
        // Of dtypes that others have registered, `str` tells the size alone.
        for text in [&short, &long] {
            if let Ok(made) = self.dtype_of(py, text)
                && made.eq(dtype)?
            {
                return Ok(Some(Name {
                    text: text.as_str().into(),
                    long: long.as_str().into(),
                    is_object,
                }));
            }
        }
        Ok(None)
    }

    /// The dtype of a text.
    pub(crate) fn dtype_of<'py>(&self, py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
        if let Some(dtype) = self
            .dtypes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(text)
        {
            return Ok(dtype.bind(py).clone());
        }
        let dtype = self.dtype.bind(py);
        let made = match dtype.call1((text,)) {
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                // Registered by a module that may not be imported in this process yet.
                let registered = py.import("ml_dtypes").and_then(|types| types.getattr(text));
                match registered {
                    Ok(class) => dtype.call1((class,))?,
                    Err(_) => return Err(error),
                }
            }
            made => made?,
        };
        let mut dtypes = self.dtypes.lock().unwrap_or_else(PoisonError::into_inner);
        if dtypes.len() >= KNOWN_DTYPES {
            dtypes.clear();
        }
        dtypes.insert(text.to_owned(), made.clone().unbind());
        Ok(made)
    }

    /// An array of a framework's tensor; `None` for what cannot be one.
    pub(crate) fn array_of<'py>(
        &self,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        match value.get_type().getattr(PyString::intern(py, "__array__")) {
            Ok(_) => {}
            Err(error) if error.is_instance_of::<PyAttributeError>(py) => return Ok(None),
            Err(error) => return Err(error),
        }
        self.asarray.bind(py).call1((value,)).map(Some)
    }
}
