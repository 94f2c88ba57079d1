#![expect(
    unsafe_code,
    reason = "numpy's functions for C are reached by their places in a table"
)]
//! numpy's functions for C: arrays over our memory, and our memory for arrays.
//!
//! They are called like in extension modules that are compiled with numpy's headers: by their
//! places in a table of pointers, which numpy 1 and 2 both keep.
//!
//! **Invariant of the unsafe code.** The entry at a place of the table has the type that the
//! headers give it, in every numpy whose ABI is known here ([`NumpyC::load`] checks); and it stays
//! valid, as extension modules are never unloaded.
//!
//! Source: `__multiarray_api.h` and `ndarraytypes.h` of numpy; compared with those of 1.18.5 and
//! 2.4.6.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::mem;

use pyo3::exceptions::PyImportError;
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_New, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::array::inconsistent;

/// Places in the table.
const GET_ABI_VERSION: usize = 0;
const NEW_FROM_DESCRIPTION: usize = 94;
const GET_FEATURE_VERSION: usize = 211;
const SET_BASE_OBJECT: usize = 282;
const SET_HANDLER: usize = 304;
const GET_HANDLER: usize = 305;

/// The first versions of the ABIs that are known: of numpy 1 and 2.
const ABIS: [c_uint; 2] = [0x0100_0000, 0x0200_0000];
const ABI_MASK: c_uint = 0xff00_0000;

/// The first numpy in which the memory of arrays can be chosen, 1.22.
const HANDLERS_SINCE: c_uint = 0xf;

/// `NPY_ARRAY_C_CONTIGUOUS | ALIGNED | WRITEABLE`; numpy corrects the first two itself if it gets
/// strides.
const FLAGS: c_int = 0x1 | 0x100 | 0x400;

/// What numpy calls the capsules that hold a [`Handler`].
const HANDLER_NAME: &str = "mem_handler";

type NewFromDescription = unsafe extern "C" fn(
    *mut PyTypeObject,
    *mut PyObject,
    c_int,
    *const isize,
    *const isize,
    *mut c_void,
    c_int,
    *mut PyObject,
) -> *mut PyObject;
type SetBaseObject = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> c_int;
type SetHandler = unsafe extern "C" fn(*mut PyObject) -> *mut PyObject;
type GetVersion = unsafe extern "C" fn() -> c_uint;
type GetHandler = unsafe extern "C" fn() -> *mut PyObject;

/// `PyDataMemAllocator` of numpy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocator {
    pub(crate) context: *mut c_void,
    pub(crate) malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub(crate) calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    pub(crate) realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    pub(crate) free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

// SAFETY: the context is not followed here, but passed back to the functions that came with it,
// which numpy calls from any thread.
unsafe impl Send for Allocator {}
// SAFETY: as above.
unsafe impl Sync for Allocator {}

/// `PyDataMem_Handler` of numpy.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    allocator: Allocator,
}

/// The functions that are used here.
pub(crate) struct NumpyC {
    new_from_description: NewFromDescription,
    set_base_object: SetBaseObject,
    handlers: Option<(SetHandler, GetHandler)>,
}

impl NumpyC {
    /// The functions of the numpy that is imported.
    pub(crate) fn load(py: Python<'_>) -> PyResult<Self> {
        let table = [
            "numpy._core._multiarray_umath",
            "numpy.core._multiarray_umath",
        ]
        .iter()
        .find_map(|name| py.import(*name).ok()?.getattr("_ARRAY_API").ok())
        .ok_or_else(|| PyImportError::new_err("numpy has no functions for C"))?;
        // SAFETY: it is a capsule without a name, or this returns null and sets an exception.
        let table = unsafe { PyCapsule_GetPointer(table.as_ptr(), std::ptr::null()) };
        if table.is_null() {
            return Err(PyErr::fetch(py));
        }
        let table = Table(table.cast_const());
        // SAFETY: by the invariant above, here and below; the first place has not changed since
        // there is a table.
        let version: GetVersion = unsafe { table.at(GET_ABI_VERSION) };
        // SAFETY: it only returns a number.
        let version = unsafe { version() };
        if !ABIS.contains(&(version & ABI_MASK)) {
            return Err(PyImportError::new_err(format!(
                "pedl: numpy's binary interface is {version:#x}; those of numpy 1 and 2 are known, 0x1000000 and 0x2000000: \
                 install one of these"
            )));
        }
        // SAFETY: as above.
        let version: GetVersion = unsafe { table.at(GET_FEATURE_VERSION) };
        // SAFETY: it only returns a number.
        let handlers = if unsafe { version() } >= HANDLERS_SINCE {
            // SAFETY: as above.
            let set = unsafe { table.at(SET_HANDLER) };
            // SAFETY: as above.
            Some((set, unsafe { table.at(GET_HANDLER) }))
        } else {
            None
        };
        Ok(Self {
            // SAFETY: as above.
            new_from_description: unsafe { table.at(NEW_FROM_DESCRIPTION) },
            // SAFETY: as above.
            set_base_object: unsafe { table.at(SET_BASE_OBJECT) },
            handlers,
        })
    }

    /// A new array.
    ///
    /// Args:
    ///     `class`: `numpy.ndarray`.
    ///     `dtype`: a `numpy.dtype`.
    ///     `strides`: in bytes, one for each dimension.
    ///     `data`: where its elements are, or null: then numpy allocates memory, with anything in
    ///         it.
    ///
    /// # Safety
    ///
    /// There are elements of that dtype at `data`, as far as shape and strides reach, as long as
    /// the array lives.
    pub(crate) unsafe fn new_array<'py>(
        &self,
        class: &Bound<'py, PyType>,
        dtype: &Bound<'py, PyAny>,
        shape: &[isize],
        strides: &[isize],
        data: *mut u8,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rank = c_int::try_from(shape.len()).map_err(|_| inconsistent())?;
        if shape.len() != strides.len() {
            return Err(inconsistent());
        }
        let flags = if data.is_null() { 0 } else { FLAGS };
        // SAFETY: numpy takes over the reference to the dtype, also if it fails. The rest is the
        // caller's promise.
        let array = unsafe {
            (self.new_from_description)(
                class.as_type_ptr(),
                dtype.clone().into_ptr(),
                rank,
                shape.as_ptr(),
                strides.as_ptr(),
                data.cast(),
                flags,
                std::ptr::null_mut(),
            )
        };
        // SAFETY: it is a new reference, or null and an exception is set.
        unsafe { Bound::from_owned_ptr_or_err(class.py(), array) }
    }

    /// Makes an array keep a reference to the owner of its memory.
    pub(crate) fn set_base(
        &self,
        array: &Bound<'_, PyAny>,
        base: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        // SAFETY: it is an array; numpy takes over the reference to the base, also if it fails.
        let failed = unsafe { (self.set_base_object)(array.as_ptr(), base.clone().into_ptr()) };
        if failed == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(array.py()))
        }
    }

    /// The allocator of arrays in this thread; `None` if numpy does not support a choice.
    pub(crate) fn allocator(&self, py: Python<'_>) -> PyResult<Option<Allocator>> {
        let Some((_, get)) = self.handlers else {
            return Ok(None);
        };
        // SAFETY: this thread holds the GIL.
        let handler = unsafe { get() };
        // SAFETY: it is a new reference, or null and an exception is set.
        let handler = unsafe { Bound::<PyAny>::from_owned_ptr_or_err(py, handler) }?;
        let name = CString::new(HANDLER_NAME)?;
        // SAFETY: it is a capsule of that name, or this returns null and sets an exception.
        let handler = unsafe { PyCapsule_GetPointer(handler.as_ptr(), name.as_ptr()) };
        if handler.is_null() {
            return Err(PyErr::fetch(py));
        }
        // SAFETY: such a capsule holds this, by the invariant above. Handlers live as long as the
        // arrays that they have given memory, so numpy's default is never freed, and code that sets
        // another keeps it.
        Ok(Some(unsafe { (*handler.cast::<Handler>()).allocator }))
    }

    /// Makes arrays of this thread get their memory from another allocator from now on.
    ///
    /// # Safety
    ///
    /// The functions do what those of the C library do, in any thread.
    pub(crate) unsafe fn set_allocator(
        &self,
        py: Python<'_>,
        allocator: Allocator,
    ) -> PyResult<()> {
        let Some((set, _)) = self.handlers else {
            return Err(PyImportError::new_err(
                "pedl: numpy before 1.22 has one allocator",
            ));
        };
        let mut name = [0; 127];
        for (place, byte) in name.iter_mut().zip(*b"pedl") {
            *place = byte.cast_signed();
        }
        // Arrays refer to it as long as they live, which may be longer than anything here.
        let handler = Box::leak(Box::new(Handler {
            name,
            version: 1,
            allocator,
        }));
        let capsule_name = Box::leak(CString::new(HANDLER_NAME)?.into_boxed_c_str());
        // SAFETY: neither pointer is null, and both are valid forever.
        let capsule =
            unsafe { PyCapsule_New((&raw mut *handler).cast(), capsule_name.as_ptr(), None) };
        // SAFETY: it is a new reference, or null and an exception is set.
        let capsule = unsafe { Bound::<PyAny>::from_owned_ptr_or_err(py, capsule) }?;
        // SAFETY: it is a capsule of a handler, and numpy takes its own reference.
        let before = unsafe { set(capsule.as_ptr()) };
        // SAFETY: it is a new reference to the handler before, or null and an exception is set.
        let before = unsafe { Bound::<PyAny>::from_owned_ptr_or_err(py, before) }?;
        // Our functions still call those of the previous handler.
        mem::forget(before);
        Ok(())
    }
}

/// The table of numpy's functions.
struct Table(*const c_void);

impl Table {
    /// The entry at a place.
    ///
    /// # Safety
    ///
    /// The entry has this type.
    unsafe fn at<F: Copy>(&self, place: usize) -> F {
        // SAFETY: it is the caller's promise.
        unsafe { *self.0.cast::<F>().wrapping_add(place) }
    }
}
