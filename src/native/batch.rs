//! The checksum of the arguments of a call on one batch.

use pedl_core::calls::BatchChecksum;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple, PyType};

use crate::array::View;
use crate::numpy::Numpy;

/// The checksum of a batch of numpy arrays of numbers, None, True and False, without its lowest
/// bit; 0 if the batch contains anything else. The memory layout of the elements makes no
/// difference: what an answered call returns has another layout than the first time.
pub(crate) fn checksum(
    values: &Bound<'_, PyTuple>,
    named_values: &Bound<'_, PyDict>,
) -> PyResult<u32> {
    let ndarray = Numpy::get(values.py())?.ndarray.bind(values.py());
    let mut checksum = BatchChecksum::default();
    for value in values.iter_borrowed() {
        if !add(&mut checksum, ndarray, &value)? {
            return Ok(0);
        }
    }
    if !named_values.is_empty() {
        for (_, value) in named_values {
            if !add(&mut checksum, ndarray, &value)? {
                return Ok(0);
            }
        }
    }
    Ok(checksum.value() & !1)
}

/// Adds a value. False if this checksum does not cover it.
fn add(
    checksum: &mut BatchChecksum,
    ndarray: &Bound<'_, PyType>,
    value: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    if value.is_none() {
        checksum.none();
    } else if let Ok(flag) = value.cast::<PyBool>() {
        checksum.flag(flag.is_true());
    } else if value.is_exact_instance(ndarray) {
        let view = View::of(value)?;
        view.read(|bytes| checksum.array(view.shape(), bytes));
        return Ok(view.is_of_numbers);
    } else {
        return Ok(false);
    }
    Ok(true)
}
