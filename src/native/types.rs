#![expect(
    unsafe_code,
    reason = "pyo3 has no safe function that tells CPython of a change to a type"
)]
//! Types of C code. They let nobody set an attribute, and their dictionary can be changed all the same.

use pyo3::prelude::*;
use pyo3::types::PyType;

/// Tells CPython that the dictionary of a type, or of one of its bases, was changed past it: what it has
/// remembered of the type's attributes is forgotten.
#[pyfunction]
pub(crate) fn type_modified(kind: &Bound<'_, PyType>) {
    // SAFETY: the pointer is that of a living type, and we hold the GIL.
    unsafe { pyo3::ffi::PyType_Modified(kind.as_type_ptr()) }
}
