#![expect(unsafe_code, reason = "a capsule holds a pointer")]
//! Memory of a pool as numpy sees it.
//!
//! numpy is told where it is by its protocol for C (`__array_struct__`): that costs a third of what the one for Python
//! does, and is asked for once a batch.
//!
//! **Invariant of the unsafe code.** What the capsule points to lives as long as its [`Memory`], which whoever asked for
//! the capsule holds; numpy does as long as the array lives.
//!
//! Source: `PyArrayInterface` in ndarraytypes.h of numpy; "The array interface protocol" in its documentation.

use std::ffi::c_int;

use pedl_pool::Lease;
use pyo3::ffi::PyCapsule_New;
use pyo3::prelude::*;

use crate::numpy::Numpy;

/// `NPY_ARRAY_C_CONTIGUOUS | F_CONTIGUOUS | ALIGNED | NOTSWAPPED | WRITEABLE`.
const FLAGS: c_int = 0x1 | 0x2 | 0x100 | 0x200 | 0x400;

/// `PyArrayInterface` of numpy, of one dimension. Pointers are numbers, since nobody here follows them.
#[repr(C)]
struct Interface {
    two: c_int,
    rank: c_int,
    kind: u8,
    item_size: c_int,
    flags: c_int,
    shape: usize,
    strides: usize,
    data: usize,
    description: usize,
}

/// Bytes that arrays of numpy are views of. What it holds is held as long as there is such an array.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct Memory {
    interface: Box<Interface>,
    /// What `shape` and `strides` of the interface point to.
    _dimension: Box<[isize; 2]>,
    _lease: Option<Lease>,
}

impl Memory {
    /// An array of the bytes of a batch, from one of them on.
    pub(crate) fn of_lease(
        py: Python<'_>,
        lease: Lease,
        begin: usize,
    ) -> PyResult<Bound<'_, PyAny>> {
        let length = lease.bytes().len().saturating_sub(begin);
        let address = lease.as_ptr().expose_provenance() + begin;
        Self::array(py, address, length, Some(lease))
    }

    /// An array of bytes; who asks for it sees to it that nobody uses it once they are gone.
    pub(crate) fn of_slice<'py>(py: Python<'py>, bytes: &mut [u8]) -> PyResult<Bound<'py, PyAny>> {
        let address = bytes.as_mut_ptr().expose_provenance();
        Self::array(py, address, bytes.len(), None)
    }

    fn array(
        py: Python<'_>,
        address: usize,
        length: usize,
        lease: Option<Lease>,
    ) -> PyResult<Bound<'_, PyAny>> {
        let dimension = Box::new([length.cast_signed(), 1]);
        let interface = Box::new(Interface {
            two: 2,
            rank: 1,
            kind: b'u',
            item_size: 1,
            flags: FLAGS,
            shape: (&raw const dimension[0]).expose_provenance(),
            strides: (&raw const dimension[1]).expose_provenance(),
            data: address,
            description: 0,
        });
        let memory = Self {
            interface,
            _dimension: dimension,
            _lease: lease,
        };
        let memory = Bound::new(py, memory)?;
        Numpy::get(py)?.asarray.bind(py).call1((memory,))
    }
}

#[pymethods]
impl Memory {
    /// What numpy asks for.
    #[getter(__array_struct__)]
    fn array_struct<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let interface = (&raw const *self.interface).cast_mut().cast();
        // SAFETY: the pointer is not null, there is no destructor, and by the invariant above it is valid as long as
        // anybody may follow it.
        let capsule = unsafe { PyCapsule_New(interface, std::ptr::null(), None) };
        // SAFETY: it is a new reference, or null and an exception is set.
        unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
    }
}
