#![expect(unsafe_code, reason = "arrays over memory that is not numpy's")]
//! Memory of a pool as numpy sees it.
//!
//! **Invariant of the unsafe code.** The bytes of a batch exist as long as its [`Memory`], which
//! every array over them holds. The exception is the array in [`copy_into`], which ends before its
//! bytes do.

use pedl_pool::Lease;
use pyo3::intern;
use pyo3::prelude::*;

use crate::array::Layout;
use crate::numpy::Numpy;
use crate::pool::message::malformed;

/// The bytes of a batch, which are leased as long as there is an array over them.
#[pyclass(module = "_pedl", frozen)]
pub(crate) struct Memory {
    lease: Lease,
}

impl Memory {
    /// The memory of a batch that was taken.
    pub(crate) fn of_lease(py: Python<'_>, lease: Lease) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self { lease })
    }

    /// The bytes of the batch.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.lease.bytes()
    }
}

/// An array of elements that lie in a batch.
///
/// Args:
///     `at`: where they begin.
///     `dtype`: not of Python objects.
///     `strides`: without gaps, as of [`Layout::dense_strides`].
pub(crate) fn array_in<'py>(
    memory: &Bound<'py, Memory>,
    dtype: &Bound<'py, PyAny>,
    shape: &[isize],
    strides: &[isize],
    at: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    let lease = &memory.get().lease;
    let numpy = Numpy::get(py)?;
    check_fits(dtype, shape, strides, lease.bytes().len().checked_sub(at))?;
    let class = numpy.ndarray.bind(py);
    let data = lease.as_ptr().wrapping_add(at);
    // SAFETY: `check_fits` has verified that the elements lie in the batch; any bytes are elements,
    // and the array holds the batch before anybody else knows the array.
    let array = unsafe { numpy.c.new_array(class, dtype, shape, strides, data) }?;
    numpy.c.set_base(&array, memory.as_any())?;
    Ok(array)
}

/// Copies the elements of an array to memory that has room for them, in the order of
/// [`Layout::dense_strides`].
pub(crate) fn copy_into(out: &mut [u8], layout: &Layout<'_>) -> PyResult<()> {
    let py = layout.array().py();
    let (dtype, strides) = (layout.dtype()?, layout.dense_strides());
    check_fits(&dtype, layout.shape(), &strides, Some(out.len()))?;
    let numpy = Numpy::get(py)?;
    let class = numpy.ndarray.bind(py);
    // SAFETY: as above, except who holds the memory: the array ends before this returns, as only
    // `copyto` of numpy receives it, which does not keep it.
    let copy = unsafe {
        numpy
            .c
            .new_array(class, &dtype, layout.shape(), &strides, out.as_mut_ptr())
    }?;
    py.import(intern!(py, "numpy"))?
        .call_method1(intern!(py, "copyto"), (copy, layout.array()))?;
    Ok(())
}

/// Fails unless an array of that shape has this many bytes of elements.
pub(crate) fn check_size(dtype: &Bound<'_, PyAny>, shape: &[isize], size: usize) -> PyResult<()> {
    let numpy = Numpy::get(dtype.py())?;
    if !dtype.is_instance(numpy.dtype.bind(dtype.py()))? {
        return Err(malformed());
    }
    let elements = numpy.elements_of(dtype.as_ptr().addr(), || Ok(dtype.clone()))?;
    let has_size = shape
        .iter()
        .try_fold(elements.size, |bytes, &length| {
            bytes.checked_mul(usize::try_from(length).ok()?)
        })
        .is_some_and(|bytes| bytes == size);
    if has_size { Ok(()) } else { Err(malformed()) }
}

/// Fails unless this many bytes hold the elements of an array, which are no Python objects.
pub(crate) fn check_fits(
    dtype: &Bound<'_, PyAny>,
    shape: &[isize],
    strides: &[isize],
    length: Option<usize>,
) -> PyResult<()> {
    let numpy = Numpy::get(dtype.py())?;
    let elements = numpy.elements_of(dtype.as_ptr().addr(), || Ok(dtype.clone()))?;
    let mut needed = Some(elements.size);
    for (&size, &stride) in shape.iter().zip(strides) {
        let (Ok(size), Ok(stride)) = (usize::try_from(size), usize::try_from(stride)) else {
            return Err(malformed());
        };
        // At least one element, also for an array without any.
        let reach = size.saturating_sub(1).checked_mul(stride);
        needed = needed
            .zip(reach)
            .and_then(|(one, other)| one.checked_add(other));
    }
    let is_within = needed
        .zip(length)
        .is_some_and(|(needed, length)| needed <= length);
    if elements.are_references || !is_within {
        return Err(malformed());
    }
    Ok(())
}
