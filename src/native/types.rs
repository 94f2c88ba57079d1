#![expect(
    unsafe_code,
    reason = "pyo3 has no safe function that tells CPython of a change to a type"
)]
//! Types that are implemented in C. They reject changes to attributes, but their dictionary can be
//! changed.

use pyo3::prelude::*;
use pyo3::types::PyType;

/// Makes CPython forget what it has cached of a type's attributes, after the dictionary of the
/// type, or of one of its bases, was changed directly.
#[pyfunction]
pub(crate) fn type_modified(kind: &Bound<'_, PyType>) {
    // SAFETY: the pointer is that of a living type, and we hold the GIL.
    unsafe { pyo3::ffi::PyType_Modified(kind.as_type_ptr()) }
}
