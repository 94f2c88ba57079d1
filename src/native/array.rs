#![expect(
    unsafe_code,
    reason = "numpy tells where the memory of arrays is by pointers"
)]
//! The memory of numpy arrays. The only unsafe code of this crate.
//!
//! Before Python 3.11 the stable ABI has no buffer protocol. `__array_struct__` tells where the memory
//! is: a capsule without a name, which holds the array, around numpy's `PyArrayInterface`.
//!
//! Source: the array interface protocol, version 3, "C-struct access", of numpy's reference.

use std::ffi::{c_int, c_void};
use std::slice;

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::numpy::{Dtype, Numpy};

/// `NPY_ARRAY_C_CONTIGUOUS` and `NPY_ARRAY_WRITEABLE`.
const C_CONTIGUOUS: c_int = 0x1;
const WRITEABLE: c_int = 0x400;

/// What `PyArrayInterface.two` always is.
const SANITY: c_int = 2;

/// The kinds of elements that are numbers of numpy's own: truth values, integers, floats and complex
/// numbers.
const NUMBERS: &[u8] = b"biufc";

/// `PyArrayInterface` of numpy.
#[repr(C)]
struct Interface {
    two: c_int,
    rank: c_int,
    kind: u8,
    itemsize: c_int,
    flags: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *mut c_void,
    descr: *const c_void,
}

/// An array whose elements lie one after the other, in C order.
pub(crate) struct View<'py> {
    /// Holds the array, and what `shape` points to.
    _owner: Bound<'py, PyCapsule>,
    shape: *const isize,
    rank: usize,
    data: *mut u8,
    size: usize,
    is_writeable: bool,
    /// Whether its elements are numbers.
    pub(crate) is_of_numbers: bool,
}

impl<'py> View<'py> {
    /// A view of an array, or of a copy of it in C order; `None` for arrays of structures.
    ///
    /// Args:
    ///     `array`: a `numpy.ndarray`, or a scalar of numpy's; of no class that has an `__array_struct__`
    ///         of its own.
    pub(crate) fn of(array: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = array.py();
        let numpy = Numpy::get(py)?;
        let view = if numpy.warns_of_struct && array.hasattr(intern!(py, "setflags"))? {
            // What `numpy.broadcast_arrays` returned warns when it is asked, since it may be written.
            let view = array.call_method0(intern!(py, "view"))?;
            view.call_method1(intern!(py, "setflags"), (false,))?;
            Self::of_contiguous(&view)?
        } else {
            Self::of_contiguous(array)?
        };
        if view.is_some() {
            return Ok(view);
        }
        Self::of_contiguous(&numpy.ascontiguousarray.bind(py).call1((array,))?)
    }

    /// A view; `None` where numpy does not say that the elements lie one after the other.
    fn of_contiguous(array: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let owner = array
            .getattr(intern!(array.py(), "__array_struct__"))?
            .cast_into::<PyCapsule>()?;
        let interface = owner.pointer_checked(None)?.cast::<Interface>();
        // SAFETY: numpy documents that the capsule of `__array_struct__` points to this struct, and
        // frees it with the capsule, which is alive here. The caller keeps classes with such an
        // attribute of their own away.
        let interface = unsafe { interface.as_ref() };
        let (Ok(rank), Ok(itemsize)) = (
            usize::try_from(interface.rank),
            usize::try_from(interface.itemsize),
        ) else {
            return Err(inconsistent());
        };
        if interface.two != SANITY
            || interface.data.is_null()
            || (rank > 0 && interface.shape.is_null())
        {
            return Err(inconsistent());
        }
        if interface.flags & C_CONTIGUOUS == 0 {
            return Ok(None);
        }
        let view = Self {
            shape: interface.shape,
            rank,
            data: interface.data.cast(),
            size: 0,
            is_writeable: interface.flags & WRITEABLE != 0,
            is_of_numbers: NUMBERS.contains(&interface.kind),
            _owner: owner,
        };
        let size = view
            .shape()
            .try_fold(itemsize, usize::checked_mul)
            .ok_or_else(inconsistent)?;
        Ok(Some(Self { size, ..view }))
    }

    /// The sizes of its dimensions, outermost first.
    pub(crate) fn shape(&self) -> impl Iterator<Item = usize> {
        let shape = if self.rank == 0 {
            &[]
        } else {
            // SAFETY: numpy says that `rank` numbers begin there; they live as long as the capsule.
            unsafe { slice::from_raw_parts(self.shape, self.rank) }
        };
        shape.iter().map(|size| size.cast_unsigned())
    }

    /// Calls `read` with its bytes. `read` must not call into Python, which might write them or free them.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        // SAFETY: numpy says that the elements begin there, and it is contiguous, so `size` bytes do.
        // The array is alive with the capsule. No Python writes meanwhile: this thread holds the GIL,
        // and no caller's `read` lets go of it. Threads of native code could; a script whose arrays are
        // written by them while it passes them on has no defined values under plain Python either.
        read(unsafe { slice::from_raw_parts(self.data, self.size) })
    }
}

/// Calls `read` with the bytes of an array in C order, and returns what it returns.
///
/// Args:
///     `array`: as of [`View::of`], without Python objects in it.
///     `read`: as of [`View::read`].
pub(crate) fn with_bytes<T>(
    array: &Bound<'_, PyAny>,
    read: impl FnOnce(&[u8]) -> T,
) -> PyResult<T> {
    let view = View::of(array)?.ok_or_else(inconsistent)?;
    Ok(view.read(read))
}

/// Makes an array whose bytes `fill` writes.
///
/// Args:
///     `size`: bytes that the array must have.
///     `fill`: must not call into Python.
pub(crate) fn filled<'py, E>(
    py: Python<'py>,
    shape: &[usize],
    dtype: &Dtype,
    size: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> PyResult<Result<Bound<'py, PyAny>, E>> {
    if dtype.has_objects {
        return Err(PyBufferError::new_err(
            "an array of Python objects has no bytes to fill",
        ));
    }
    let shape = PyTuple::new(py, shape)?;
    let array = Numpy::get(py)?
        .zeros
        .bind(py)
        .call1((shape, &dtype.object))?;
    let view = View::of_contiguous(&array)?.filter(|view| view.is_writeable);
    let Some(view) = view else {
        return Err(inconsistent());
    };
    if view.size != size {
        return Err(PyBufferError::new_err(format!(
            "an array of {size} bytes has {} here",
            view.size
        )));
    }
    // SAFETY: as in `View::read`; they are initialised, as zeros, and may be written. Nobody else knows
    // the array yet. Any bytes are elements of it, since it holds no references.
    let bytes = unsafe { slice::from_raw_parts_mut(view.data, size) };
    Ok(fill(bytes).map(|()| array))
}

fn inconsistent() -> PyErr {
    PyBufferError::new_err("numpy does not say where an array's memory is")
}
