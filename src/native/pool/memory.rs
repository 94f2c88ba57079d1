//! Memory of a pool as numpy sees it.

use pedl_pool::Lease;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::numpy::Numpy;

/// Bytes that arrays of numpy are views of. What it holds is held as long as there is such an array.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct Memory {
    address: usize,
    length: usize,
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
        Self::array(
            py,
            Self {
                address,
                length,
                _lease: Some(lease),
            },
        )
    }

    /// An array of bytes; who asks for it sees to it that nobody uses it once they are gone.
    pub(crate) fn of_slice<'py>(
        py: Python<'py>,
        bytes: &mut [u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::array(
            py,
            Self {
                address: bytes.as_mut_ptr().expose_provenance(),
                length: bytes.len(),
                _lease: None,
            },
        )
    }

    fn array(py: Python<'_>, memory: Self) -> PyResult<Bound<'_, PyAny>> {
        let memory = Bound::new(py, memory)?;
        Numpy::get(py)?.asarray.bind(py).call1((memory,))
    }
}

#[pymethods]
impl Memory {
    /// What numpy asks for.
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item(intern!(py, "version"), 3)?;
        interface.set_item(intern!(py, "typestr"), intern!(py, "|u1"))?;
        interface.set_item(intern!(py, "shape"), (self.length,))?;
        interface.set_item(intern!(py, "data"), (self.address, false))?;
        Ok(interface)
    }
}
