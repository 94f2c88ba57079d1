#![expect(
    unsafe_code,
    reason = "numpy says where the memory of arrays is by pointers in them"
)]
//! The memory of numpy arrays.
//!
//! Before Python 3.11 the stable ABI has no buffer protocol, and `__array_struct__` of numpy
//! allocates a capsule for each access. So this module reads the fields of the array itself.
//! Extension modules that are compiled with numpy's headers do the same (`PyArray_DATA`), so numpy
//! 1 and 2 both keep them in place. [`check_layout`] compares them with what numpy reports of an
//! array before the first is read.
//!
//! Source: `PyArrayObject_fields` in ndarraytypes.h of numpy; tried with 1.18.5 and 2.4.6.

use std::cmp::Reverse;
use std::ffi::c_int;
use std::ptr;
use std::slice;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi::PyObject;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::numpy::{Dtype, Elements, Numpy};

/// `NPY_ARRAY_C_CONTIGUOUS`, `NPY_ARRAY_F_CONTIGUOUS` and `NPY_ARRAY_WRITEABLE`.
const C_CONTIGUOUS: c_int = 0x1;
const F_CONTIGUOUS: c_int = 0x2;
const WRITEABLE: c_int = 0x400;

/// `PyArrayObject_fields` of numpy, up to the flags.
#[repr(C)]
struct Object {
    head: PyObject,
    fields: Fields,
}

/// The part of it that numpy adds.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fields {
    data: *mut u8,
    rank: c_int,
    shape: *const isize,
    strides: *const isize,
    base: *mut PyObject,
    dtype: *mut PyObject,
    flags: c_int,
}

impl Fields {
    /// The fields of a `numpy.ndarray`, and its elements.
    fn with_elements(array: &Bound<'_, PyAny>, numpy: &Numpy) -> PyResult<(Self, Elements)> {
        let elements = numpy.elements_of(Self::of(array, numpy)?.dtype.addr(), || {
            array.getattr(intern!(array.py(), "dtype"))
        })?;
        // Again, since Python code may have run.
        Ok((Self::of(array, numpy)?, elements))
    }

    /// The fields of a `numpy.ndarray`.
    fn of(array: &Bound<'_, PyAny>, numpy: &Numpy) -> PyResult<Self> {
        let py = array.py();
        if !array.is_exact_instance(numpy.ndarray.bind(py))
            && !array.is_instance(numpy.ndarray.bind(py))?
        {
            return Err(inconsistent());
        }
        // SAFETY: an instance of `numpy.ndarray`, and of any class derived from it, begins with
        // these fields; `check_layout` has verified it, or that the object is at least this large.
        // It is alive, and this thread holds the GIL, so nobody writes them.
        Ok(unsafe { (*array.as_ptr().cast::<Object>()).fields })
    }
}

/// Verifies the assumed memory layout of arrays: compares the fields of one with what numpy
/// reports.
pub(crate) fn check_layout(py: Python<'_>, numpy: &Numpy) -> PyResult<()> {
    let size: usize = numpy.ndarray.bind(py).getattr("__basicsize__")?.extract()?;
    if size < size_of::<Object>() {
        return Err(inconsistent());
    }
    let whole = numpy.zeros.bind(py).call1(((3, 5), "<i2"))?;
    let part = whole.get_item(1)?.call_method1("reshape", ((1, 5),))?;
    part.call_method1("setflags", (false,))?;
    for array in [whole, part] {
        let fields = Fields::of(&array, numpy)?;
        let interface = array.getattr("__array_interface__")?;
        let data: usize = interface.get_item("data")?.get_item(0)?.extract()?;
        let rank: c_int = array.getattr("ndim")?.extract()?;
        let flags: c_int = array.getattr("flags")?.getattr("num")?.extract()?;
        let dtype = array.getattr("dtype")?;
        if fields.data.addr() != data
            || fields.rank != rank
            || fields.dtype != dtype.as_ptr()
            || fields.flags & (C_CONTIGUOUS | WRITEABLE) != flags & (C_CONTIGUOUS | WRITEABLE)
        {
            return Err(inconsistent());
        }
    }
    Ok(())
}

/// An array whose elements lie one after the other, in C order.
pub(crate) struct View<'py> {
    /// Holds the memory.
    _array: Bound<'py, PyAny>,
    shape: *const isize,
    rank: usize,
    data: *mut u8,
    size: usize,
    is_writeable: bool,
    /// Whether its elements are numbers.
    pub(crate) is_of_numbers: bool,
}

impl<'py> View<'py> {
    /// A view of an array, or of a copy of it in C order.
    ///
    /// Args:
    ///     `array`: a `numpy.ndarray`, or a scalar of numpy.
    pub(crate) fn of(array: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = array.py();
        let numpy = Numpy::get(py)?;
        if array.is_exact_instance(numpy.ndarray.bind(py))
            && let Some(view) = Self::of_contiguous(array)?
        {
            return Ok(view);
        }
        // The array of a scalar has all bytes, also those between numbers.
        let array = array.call_method0(intern!(py, "__array__"))?;
        if let Some(view) = Self::of_contiguous(&array)? {
            return Ok(view);
        }
        let array = numpy.ascontiguousarray.bind(py).call1((array,))?;
        Self::of_contiguous(&array)?.ok_or_else(inconsistent)
    }

    /// A view; `None` if the elements do not lie one after the other.
    fn of_contiguous(array: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let (fields, elements) = Fields::with_elements(array, Numpy::get(array.py())?)?;
        if fields.flags & C_CONTIGUOUS == 0 {
            return Ok(None);
        }
        let rank = usize::try_from(fields.rank).map_err(|_| inconsistent())?;
        if fields.data.is_null() || (rank > 0 && fields.shape.is_null()) {
            return Err(inconsistent());
        }
        let view = Self {
            shape: fields.shape,
            rank,
            data: fields.data,
            size: 0,
            is_writeable: fields.flags & WRITEABLE != 0,
            is_of_numbers: elements.are_numbers,
            _array: array.clone(),
        };
        let size = view
            .shape()
            .try_fold(elements.size, usize::checked_mul)
            .ok_or_else(inconsistent)?;
        Ok(Some(Self { size, ..view }))
    }

    /// The sizes of its dimensions, outermost first.
    pub(crate) fn shape(&self) -> impl Iterator<Item = usize> {
        let shape = if self.rank == 0 {
            &[]
        } else {
            // SAFETY: numpy keeps `rank` numbers there, as long as the array lives and does not get
            // another shape, which takes Python code; no caller runs any while it looks at them.
            unsafe { slice::from_raw_parts(self.shape, self.rank) }
        };
        shape.iter().map(|size| size.cast_unsigned())
    }

    /// Calls `read` with its bytes. `read` must not call into Python, which might write or free
    /// them.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        // SAFETY: numpy reports that the elements begin there, and it is contiguous, so `size`
        // bytes do. The array is alive. No Python writes meanwhile: this thread holds the GIL, and
        // no caller's `read` releases it. Threads of native code could write. But a script that
        // passes on arrays while such threads write them has no defined values under plain Python
        // either.
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
    Ok(View::of(array)?.read(read))
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
    // SAFETY: as in `View::read`; they are initialised, as zeros, and may be written. Nobody else
    // knows the array yet. Any bytes are elements of it, since it holds no references.
    let bytes = unsafe { slice::from_raw_parts_mut(view.data, size) };
    Ok(fill(bytes).map(|()| array))
}

/// A new array with a copy of these elements.
///
/// Args:
///     `strides`: without gaps, as of [`Layout::dense_strides`]; `check_fits` has verified that
///         they stay within `bytes`.
///     `bytes`: the elements, in the order in which they lie in memory.
pub(crate) fn copied<'py>(
    dtype: &Bound<'py, PyAny>,
    shape: &[isize],
    strides: &[isize],
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = Numpy::get(dtype.py())?;
    let class = numpy.ndarray.bind(dtype.py());
    // SAFETY: numpy allocates memory for as many elements as the shape has, within which they lie
    // with these strides: the caller's promise, which is verified again below.
    let array = unsafe {
        numpy
            .c
            .new_array(class, dtype, shape, strides, ptr::null_mut())
    }?;
    let layout = Layout::of(&array)?;
    let is_dense = layout.strides == strides && layout.dense_strides() == strides;
    if layout.has_references || !is_dense || layout.size != bytes.len() {
        return Err(PyBufferError::new_err(format!(
            "an array of {} bytes was sent as {}",
            layout.size,
            bytes.len()
        )));
    }
    if layout.size > 0 {
        // SAFETY: by `is_dense`, `size` bytes lie there, which may be written; nobody else knows
        // the array yet, and any bytes are elements of it, since it holds no references.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), layout.data, bytes.len()) };
    }
    Ok(array)
}

/// An array, and in which order its elements lie in memory.
pub(crate) struct Layout<'py> {
    array: Bound<'py, PyAny>,
    data: *mut u8,
    shape: Vec<isize>,
    strides: Vec<isize>,
    flags: c_int,
    element: usize,
    size: usize,
    has_references: bool,
}

impl<'py> Layout<'py> {
    /// The layout of a `numpy.ndarray`.
    pub(crate) fn of(array: &Bound<'py, PyAny>) -> PyResult<Self> {
        let (fields, elements) = Fields::with_elements(array, Numpy::get(array.py())?)?;
        let rank = usize::try_from(fields.rank).map_err(|_| inconsistent())?;
        if rank > 0 && (fields.shape.is_null() || fields.strides.is_null()) {
            return Err(inconsistent());
        }
        let (shape, strides) = if rank == 0 {
            (Vec::new(), Vec::new())
        } else {
            // SAFETY: numpy keeps `rank` numbers there, as long as the array lives and is not given
            // another shape, which takes Python code; none runs before they are copied.
            let shape = unsafe { slice::from_raw_parts(fields.shape, rank) };
            // SAFETY: as above.
            let strides = unsafe { slice::from_raw_parts(fields.strides, rank) };
            (shape.to_vec(), strides.to_vec())
        };
        let size = shape
            .iter()
            .map(|size| size.cast_unsigned())
            .try_fold(elements.size, usize::checked_mul)
            .ok_or_else(inconsistent)?;
        Ok(Self {
            array: array.clone(),
            data: fields.data,
            shape,
            strides,
            flags: fields.flags,
            element: elements.size,
            size,
            has_references: elements.are_references,
        })
    }

    /// The array.
    pub(crate) fn array(&self) -> &Bound<'py, PyAny> {
        &self.array
    }

    /// Its dtype.
    pub(crate) fn dtype(&self) -> PyResult<Bound<'py, PyAny>> {
        self.array.getattr(intern!(self.array.py(), "dtype"))
    }

    /// The sizes of its dimensions, outermost first.
    pub(crate) fn shape(&self) -> &[isize] {
        &self.shape
    }

    /// Where its elements are, if they lie there without gaps.
    pub(crate) fn address(&self) -> Option<usize> {
        let is_dense = self.flags & (C_CONTIGUOUS | F_CONTIGUOUS) != 0;
        (is_dense && !self.data.is_null()).then(|| self.data.addr())
    }

    /// Bytes of its elements.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The strides of a copy whose elements lie in the same order, without gaps:
    /// `numpy.copy(order="K")`.
    pub(crate) fn dense_strides(&self) -> Vec<isize> {
        let rank = self.shape.len();
        let mut dimensions: Vec<usize> = (0..rank).collect();
        if self.flags & C_CONTIGUOUS == 0 {
            if self.flags & F_CONTIGUOUS != 0 {
                dimensions.reverse();
            } else {
                dimensions
                    .sort_by_key(|&dimension| Reverse(self.strides[dimension].unsigned_abs()));
            }
        }
        let mut strides = vec![0; rank];
        let mut stride = self.element.cast_signed();
        for dimension in dimensions.into_iter().rev() {
            strides[dimension] = stride;
            stride = stride.wrapping_mul(self.shape[dimension].max(1));
        }
        strides
    }

    /// Copies the elements, in the order of `dense_strides`. If they have gaps, copies nothing and
    /// returns false.
    pub(crate) fn copy_to(&self, out: &mut [u8]) -> bool {
        if self.size == 0 {
            return true;
        }
        if self.address().is_none() {
            return false;
        }
        // SAFETY: as in `View::read`: numpy says that `size` bytes lie there without gaps, and the
        // array is alive.
        out.copy_from_slice(unsafe { slice::from_raw_parts(self.data, self.size) });
        true
    }
}

pub(crate) fn inconsistent() -> PyErr {
    PyBufferError::new_err("numpy does not say where an array's memory is")
}
