#![expect(unsafe_code, reason = "the memory of arrays is told as an address")]
//! The memory of numpy arrays. The only unsafe code of this crate.
//!
//! Before Python 3.11 the stable ABI has no buffer protocol; `__array_interface__` tells where the
//! memory is.

use pyo3::exceptions::PyBufferError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::numpy::{Dtype, Numpy};

/// Up to here a copy by way of `bytes` is cheaper than to ask where the memory is (about 1 µs).
pub(crate) const SMALL_BYTES: usize = 16 << 10;

/// Calls `read` with the bytes of an array in C order, and returns what it returns.
///
/// Args:
///     `array`: a `numpy.ndarray` or scalar without Python objects in it.
pub(crate) fn with_bytes<T>(
    array: &Bound<'_, PyAny>,
    size: usize,
    read: impl FnOnce(&[u8]) -> T,
) -> PyResult<T> {
    let py = array.py();
    if size <= SMALL_BYTES {
        let bytes = array
            .call_method0(intern!(py, "tobytes"))?
            .cast_into::<PyBytes>()?;
        return Ok(read(bytes.as_bytes()));
    }
    let options = PyDict::new(py);
    options.set_item("order", "C")?;
    let array = Numpy::get(py)?
        .asarray
        .bind(py)
        .call((array,), Some(&options))?;
    let memory = memory(&array, size)?;
    // SAFETY: numpy says that `size` bytes begin there: the array is contiguous, and its size was
    // asked for. It is alive until the end of this function, and nothing of Python runs meanwhile,
    // since this thread holds the GIL and `read` does not call back.
    Ok(read(unsafe { std::slice::from_raw_parts(memory, size) }))
}

/// Makes an array whose bytes `fill` writes.
///
/// Args:
///     `size`: bytes that the array must have.
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
    let has: usize = array.getattr(intern!(py, "nbytes"))?.extract()?;
    if has != size {
        return Err(PyBufferError::new_err(format!(
            "an array of {size} bytes has {has} here"
        )));
    }
    if size == 0 {
        return Ok(fill(&mut []).map(|()| array));
    }
    let memory = memory(&array, size)?;
    // SAFETY: as above: numpy says that `size` bytes begin there, and the array is alive; they are
    // initialised, as zeros. Nobody else knows the array yet. Any bytes are elements of it, since it
    // holds no references.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory, size) };
    Ok(fill(bytes).map(|()| array))
}

/// Where the memory of a contiguous array begins.
fn memory(array: &Bound<'_, PyAny>, size: usize) -> PyResult<*mut u8> {
    let py = array.py();
    let interface = array.getattr(intern!(py, "__array_interface__"))?;
    let data = interface.get_item(intern!(py, "data"))?;
    let address: usize = data.get_item(0)?.extract()?;
    let nbytes: usize = array.getattr(intern!(py, "nbytes"))?.extract()?;
    let strides = interface.get_item(intern!(py, "strides"))?;
    if address == 0 || nbytes != size || !strides.is_none() {
        return Err(PyBufferError::new_err(
            "numpy does not say where an array's memory is",
        ));
    }
    Ok(std::ptr::with_exposed_provenance_mut(address))
}
