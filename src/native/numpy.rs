//! numpy, imported when it is first needed.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::array;
use crate::numpy_c::NumpyC;

/// The kinds of dtypes whose elements are numbers of numpy.
const NUMBERS: &str = "biufc";

static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();

/// The parts of numpy that are used.
pub(crate) struct Numpy {
    pub(crate) c: NumpyC,
    pub(crate) ndarray: Py<PyType>,
    pub(crate) generic: Py<PyType>,
    pub(crate) float32: Py<PyType>,
    pub(crate) float64: Py<PyType>,
    pub(crate) asarray: Py<PyAny>,
    pub(crate) zeros: Py<PyAny>,
    pub(crate) ascontiguousarray: Py<PyAny>,
    number: Py<PyType>,
    pub(crate) dtype: Py<PyAny>,
    /// Makes a scalar of numpy's builtin dtypes from its bytes; pickles of scalars call it.
    scalar: Py<PyAny>,
    /// By address. The dtypes and classes are kept alive, so that no other object gets their
    /// addresses.
    names: Known<usize, (Py<PyAny>, Option<Name>)>,
    elements: Known<usize, (Py<PyAny>, Elements)>,
    scalars: Known<usize, (Py<PyAny>, Arc<str>)>,
    dtypes: Known<Box<str>, Arc<Dtype>>,
}

/// The name of a dtype.
#[derive(Clone)]
pub(crate) struct Name {
    /// The text from which numpy, or `ml_dtypes`, makes it again: `<f4`, `bfloat16`.
    pub(crate) text: Arc<str>,
    /// `dtype.name`: `float32`.
    pub(crate) long: Arc<str>,
    /// Whether its elements are references to Python objects.
    pub(crate) is_object: bool,
}

/// The elements of an array.
#[derive(Clone, Copy)]
pub(crate) struct Elements {
    /// Bytes of one.
    pub(crate) size: usize,
    /// Whether they are numbers of numpy: truth values, integers, floats or complex numbers.
    pub(crate) are_numbers: bool,
    /// Whether they are, or hold, references to Python objects.
    pub(crate) are_references: bool,
}

/// A dtype of a text.
pub(crate) struct Dtype {
    pub(crate) object: Py<PyAny>,
    /// Whether it is one of numpy's builtin dtypes.
    is_builtin: bool,
    /// Whether its elements are references to Python objects.
    pub(crate) has_objects: bool,
}

impl Numpy {
    /// numpy; an `ImportError` if it is not installed.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&Self> {
        NUMPY.get_or_try_init(py, || {
            let numpy = py.import("numpy")?;
            let class = |name| Ok::<_, PyErr>(numpy.getattr(name)?.cast_into::<PyType>()?.unbind());
            let reduced = numpy
                .getattr("float32")?
                .call1((0,))?
                .call_method0("__reduce__")?;
            let known = Self {
                c: NumpyC::load(py)?,
                ndarray: class("ndarray")?,
                generic: class("generic")?,
                float32: class("float32")?,
                float64: class("float64")?,
                asarray: numpy.getattr("asarray")?.unbind(),
                zeros: numpy.getattr("zeros")?.unbind(),
                ascontiguousarray: numpy.getattr("ascontiguousarray")?.unbind(),
                number: class("number")?,
                dtype: numpy.getattr("dtype")?.unbind(),
                scalar: reduced.get_item(0)?.unbind(),
                names: Known::default(),
                elements: Known::default(),
                scalars: Known::default(),
                dtypes: Known::default(),
            };
            array::check_layout(py, &known)?;
            Ok(known)
        })
    }

    /// The name of a dtype; `None` for those that cannot be made again from a text (structures).
    pub(crate) fn name_of(&self, dtype: &Bound<'_, PyAny>) -> PyResult<Option<Name>> {
        let address = dtype.as_ptr().addr();
        if let Some(name) = self.names.get(&address, |(_, name)| name.clone()) {
            return Ok(name);
        }
        let py = dtype.py();
        let long: Arc<str> = dtype.getattr("name")?.extract::<String>()?.into();
        let short: Arc<str> = dtype.getattr("str")?.extract::<String>()?.into();
        let is_object = dtype.getattr("hasobject")?.extract()?;
        let mut name = None;
        // For dtypes that others have registered, `str` contains only the size.
        for text in [&short, &long] {
            if let Ok(made) = self.dtype_of(py, text)
                && made.object.bind(py).eq(dtype)?
            {
                let (text, long) = (Arc::clone(text), Arc::clone(&long));
                name = Some(Name {
                    text,
                    long,
                    is_object,
                });
                break;
            }
        }
        self.names
            .insert(address, (dtype.clone().unbind(), name.clone()));
        Ok(name)
    }

    /// The elements of arrays of a dtype.
    ///
    /// Args:
    ///     `address`: where the dtype is.
    ///     `dtype`: returns it; called if it is not known yet.
    pub(crate) fn elements_of<'py>(
        &self,
        address: usize,
        dtype: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Elements> {
        if let Some(known) = self.elements.get(&address, |(_, elements)| *elements) {
            return Ok(known);
        }
        let dtype = dtype()?;
        let kind: String = dtype.getattr("kind")?.extract()?;
        let elements = Elements {
            size: dtype.getattr("itemsize")?.extract()?,
            are_numbers: NUMBERS.contains(&kind),
            are_references: dtype.getattr("hasobject")?.extract()?,
        };
        let address = dtype.as_ptr().addr();
        self.elements.insert(address, (dtype.unbind(), elements));
        Ok(elements)
    }

    /// The dtype of all scalars of a class, as a text; `None` if they have several.
    pub(crate) fn dtype_of_scalars(
        &self,
        class: &Bound<'_, PyType>,
        scalar: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Arc<str>>> {
        let address = class.as_ptr().addr();
        let known = self.scalars.get(&address, |(_, text)| Arc::clone(text));
        if known.is_some() || !class.is_subclass(self.number.bind(class.py()))? {
            return Ok(known);
        }
        let dtype = scalar.getattr("dtype")?;
        // Scalars of timedelta64 are numbers as well, but each has its own unit.
        let kind: String = dtype.getattr("kind")?.extract()?;
        let name = if NUMBERS.contains(&kind) {
            self.name_of(&dtype)?
        } else {
            None
        };
        Ok(name.map(|name| {
            let kept = class.clone().into_any().unbind();
            self.scalars.insert(address, (kept, Arc::clone(&name.text)));
            name.text
        }))
    }

    /// The dtype of a text.
    pub(crate) fn dtype_of(&self, py: Python<'_>, text: &str) -> PyResult<Arc<Dtype>> {
        if let Some(known) = self.dtypes.get(text, Arc::clone) {
            return Ok(known);
        }
        let class = self.dtype.bind(py);
        let dtype = match class.call1((text,)) {
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                // Registered by a module that may not be imported in this process yet.
                let registered = py.import("ml_dtypes").and_then(|types| types.getattr(text));
                match registered {
                    Ok(scalars) => class.call1((scalars,))?,
                    Err(_) => return Err(error),
                }
            }
            made => made?,
        };
        let made = Arc::new(Dtype {
            is_builtin: dtype.getattr("isbuiltin")?.extract::<u8>()? < 2,
            has_objects: dtype.getattr("hasobject")?.extract()?,
            object: dtype.unbind(),
        });
        self.dtypes.insert(text.into(), Arc::clone(&made));
        Ok(made)
    }

    /// A scalar with these bytes.
    pub(crate) fn scalar_of<'py>(
        &self,
        py: Python<'py>,
        dtype: &Dtype,
        bytes: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        if dtype.is_builtin && !dtype.has_objects {
            return self
                .scalar
                .bind(py)
                .call1((&dtype.object, PyBytes::new(py, bytes)));
        }
        self.small_array_of(py, &[], dtype, bytes)?
            .get_item(PyTuple::empty(py))
    }

    /// An array with a copy of these bytes.
    pub(crate) fn small_array_of<'py>(
        &self,
        py: Python<'py>,
        shape: &[usize],
        dtype: &Dtype,
        bytes: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = (
            PyTuple::new(py, shape)?,
            &dtype.object,
            PyBytes::new(py, bytes),
        );
        let view = self.ndarray.bind(py).call1(arguments)?;
        view.call_method0(pyo3::intern!(py, "copy"))
    }

    /// An array of a framework's tensor; `None` for what cannot be one.
    pub(crate) fn array_of<'py>(
        &self,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        match value.get_type().getattr(pyo3::intern!(py, "__array__")) {
            Ok(_) => self.asarray.bind(py).call1((value,)).map(Some),
            Err(error) if error.is_instance_of::<PyAttributeError>(py) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Cached results. The lock is never held while Python code runs.
struct Known<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Known<K, V> {
    /// dtypes and classes are few, and mostly singletons. Those that are not (`<U17`) must not
    /// accumulate.
    const MOST: usize = 256;

    fn get<Q, T>(&self, key: &Q, read: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .map(read)
    }

    fn insert(&self, key: K, value: V) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = if known.len() >= Self::MOST {
            std::mem::take(&mut *known)
        } else {
            HashMap::new()
        };
        let replaced = known.insert(key, value);
        drop(known);
        // This may run destructors of Python objects, so it comes after the lock.
        drop((forgotten, replaced));
    }
}
