//! What a call on one batch is given.

use crc32c::crc32c_append;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::numpy::Numpy;

/// Larger arrays are left to Python, which looks at parts of them.
const SMALL_BYTES: usize = 3 << 10;

/// A checksum of small arrays, with their shapes: a batch is looked at before every call on it, so
/// this is the quick way. 0 where a value is anything else than a numpy array of numbers or None.
pub(crate) fn checksum(values: &Bound<'_, PyTuple>) -> PyResult<u32> {
    let py = values.py();
    let numpy = Numpy::get(py)?;
    let mut crc = 0;
    for value in values.iter_borrowed() {
        if value.is_none() {
            crc = crc32c_append(crc, b"None");
            continue;
        }
        if !value.get_type().is(&numpy.ndarray) {
            return Ok(0);
        }
        let name = numpy.name_of(&value.getattr(intern!(py, "dtype"))?)?;
        let size: usize = value.getattr(intern!(py, "nbytes"))?.extract()?;
        if size > SMALL_BYTES || name.is_none_or(|name| name.is_object) {
            return Ok(0);
        }
        let shape = value
            .getattr(intern!(py, "shape"))?
            .cast_into::<PyTuple>()?;
        for dimension in shape.iter_borrowed() {
            crc = crc32c_append(crc, &dimension.extract::<u64>()?.to_le_bytes());
        }
        let bytes = value
            .call_method0(intern!(py, "tobytes"))?
            .cast_into::<PyBytes>()?;
        crc = crc32c_append(crc, bytes.as_bytes());
    }
    Ok(crc)
}
