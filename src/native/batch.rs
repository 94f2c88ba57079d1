//! What a call on one batch is given.

use pedl_core::calls::BatchChecksum;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use crate::array::View;
use crate::numpy::Numpy;

/// The checksum of a batch of numpy arrays of numbers, None, True and False; 0 where there is anything
/// else in it. How the elements lie in memory makes no difference: what an answered call returns lies
/// otherwise than the first time.
pub(crate) fn checksum(values: &Bound<'_, PyTuple>) -> PyResult<u32> {
    let numpy = Numpy::get(values.py())?;
    let mut checksum = BatchChecksum::default();
    for value in values.iter_borrowed() {
        if value.is_none() {
            checksum.none();
            continue;
        }
        if let Ok(flag) = value.cast::<PyBool>() {
            checksum.flag(flag.is_true());
            continue;
        }
        if !value.get_type().is(&numpy.ndarray) {
            return Ok(0);
        }
        match View::of(&value)? {
            Some(view) if view.is_of_numbers => {
                view.read(|bytes| checksum.array(view.shape(), bytes));
            }
            _ => return Ok(0),
        }
    }
    Ok(checksum.value())
}
