//! Runs a script in an embedded Python 3.8 or later. Holds unsafe code.
//!
//! The sequence is that of the `python` executable (`Py_BytesMain` in CPython's `Modules/main.c`),
//! with our boot between its two halves:
//!
//! 1. `PyConfig_InitPythonConfig`, `PyConfig_SetBytesArgv`: CPython reads its own options, finds
//!    `pyvenv.cfg` beside `argv[0]`, and so `sys.prefix` and `sys.executable`;
//! 2. `Py_InitializeFromConfig`: `site` runs, and with it the user's `sitecustomize`;
//! 3. `py_hooks.boot.host.start` with the launch message: an import hook is installed, nothing
//!    else;
//! 4. `Py_RunMain`: CPython runs the script, finalises, and returns the exit code.
//!
//! The layout of `PyConfig` differs by minor version. This module never reads it: CPython fills an
//! ample buffer through its own functions.

#![allow(unsafe_code, reason = "libpython is called")]

use std::ffi::{CStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::libpython::{LibPython, c_functions, leaked_argv};
use crate::failure::Failure;

/// An object of Python, only ever handled through pointers.
#[repr(C)]
struct PyObject {
    _opaque: [u8; 0],
}

/// Room for a `PyConfig`. The largest so far (3.13) has less than 600 bytes. If a later one were
/// larger than this, CPython would write past the end, so unknown versions are refused.
#[repr(C, align(16))]
struct PyConfig([u8; 8192]);

/// Source: `PyStatus` in CPython's `Include/cpython/initconfig.h`, unchanged from 3.8 to 3.13.
#[repr(C)]
#[derive(Clone, Copy)]
struct PyStatus {
    kind: c_int,
    function: *const c_char,
    message: *const c_char,
    exit_code: c_int,
}

/// A function that makes a `str` from bytes.
type Decode = unsafe extern "C" fn(*const c_char, isize) -> *mut PyObject;

c_functions! {
    /// Source: `initconfig.h`, `pylifecycle.h`, `pystate.h`, `import.h`, `object.h`, `abstract.h`,
    /// `listobject.h`, `unicodeobject.h`, `sysmodule.h` and `pyerrors.h` below CPython's `Include`.
    struct Functions {
        PyConfig_InitPythonConfig: unsafe extern "C" fn(*mut PyConfig),
        PyConfig_SetBytesArgv:
            unsafe extern "C" fn(*mut PyConfig, isize, *const *mut c_char) -> PyStatus,
        PyConfig_Clear: unsafe extern "C" fn(*mut PyConfig),
        Py_InitializeFromConfig: unsafe extern "C" fn(*const PyConfig) -> PyStatus,
        PyStatus_Exception: unsafe extern "C" fn(PyStatus) -> c_int,
        Py_ExitStatusException: unsafe extern "C" fn(PyStatus) -> !,
        Py_RunMain: unsafe extern "C" fn() -> c_int,
        PyGILState_Check: unsafe extern "C" fn() -> c_int,
        PyImport_ImportModule: unsafe extern "C" fn(*const c_char) -> *mut PyObject,
        PyObject_GetAttrString: unsafe extern "C" fn(*mut PyObject, *const c_char) -> *mut PyObject,
        PyObject_CallFunctionObjArgs: unsafe extern "C" fn(*mut PyObject, ...) -> *mut PyObject,
        PySequence_Contains: unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> c_int,
        PyList_Append: unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> c_int,
        PyUnicode_DecodeFSDefaultAndSize: Decode,
        PyUnicode_FromStringAndSize: Decode,
        PySys_GetObject: unsafe extern "C" fn(*const c_char) -> *mut PyObject,
        PyErr_Print: unsafe extern "C" fn(),
    }
}

/// Runs the script and returns Python's exit code.
pub(super) fn run(
    python: &LibPython,
    arguments: Vec<OsString>,
    our_library: &Path,
    launch: &str,
) -> Result<i32, Failure> {
    let functions = Functions::load(python)?;
    functions.initialize(arguments)?;
    functions.assert_attached();
    functions.boot(our_library, launch)?;
    functions.assert_attached();
    // SAFETY: Python is initialised and this thread holds the GIL, as `Py_RunMain` requires.
    Ok(unsafe { (functions.Py_RunMain)() })
}

impl Functions {
    /// Initialises Python with the command line, as the `python` executable does.
    fn initialize(&self, arguments: Vec<OsString>) -> Result<(), Failure> {
        let (argc, argv) = leaked_argv(arguments)?;
        let argc = argc as isize;
        let mut config = Box::new(PyConfig([0; 8192]));
        let config = &raw mut *config;
        // SAFETY: `config` points to more memory than a `PyConfig` of any supported version takes.
        unsafe { (self.PyConfig_InitPythonConfig)(config) };
        // SAFETY: `config` was initialised, `argv` holds `argc` strings that are never freed.
        let status = unsafe { (self.PyConfig_SetBytesArgv)(config, argc, argv) };
        self.check(status);
        // SAFETY: `config` was initialised; this is the main thread, and Python was not initialised
        // before.
        let status = unsafe { (self.Py_InitializeFromConfig)(config) };
        self.check(status);
        // SAFETY: `config` was initialised, and Python has copied what it needs of it.
        unsafe { (self.PyConfig_Clear)(config) };
        Ok(())
    }

    /// Ends the process, with the messages and the exit code of CPython, if Python could not be
    /// initialised, or has answered an option such as `-V`.
    fn check(&self, status: PyStatus) {
        // SAFETY: a function of one argument, without preconditions.
        if unsafe { (self.PyStatus_Exception)(status) } != 0 {
            // SAFETY: the status is an exception or an exit, as required.
            unsafe { (self.Py_ExitStatusException)(status) }
        }
    }

    fn assert_attached(&self) {
        // SAFETY: may be called at any time after initialisation.
        let attached = unsafe { (self.PyGILState_Check)() };
        debug_assert_eq!(attached, 1, "this thread must hold the GIL");
    }

    /// Calls `py_hooks.boot.host.start(launch)`, which itself reports failures and ends the
    /// process.
    fn boot(&self, our_library: &Path, launch: &str) -> Result<(), Failure> {
        let failed = |what: &str| {
            // SAFETY: Python is initialised, and this thread holds the GIL. Without an exception
            // set it would be a fatal error, but each caller saw a function fail.
            unsafe { (self.PyErr_Print)() };
            Failure::bug(format!("the interceptions could not be started: {what}"))
                .detail(format!("they are laid out in `{}`", our_library.display()))
                .detail("the script did not run")
        };
        self.append_to_path(our_library)
            .ok_or_else(|| failed("sys.path cannot be extended"))?;
        let start = self
            .attribute_of_module(c"py_hooks.boot.host", c"start")
            .ok_or_else(|| failed("`py_hooks.boot.host` cannot be imported"))?;
        let launch = text(self.PyUnicode_FromStringAndSize, launch.as_bytes())
            .ok_or_else(|| failed("no memory"))?;
        // SAFETY: both are valid objects; a null pointer ends the variable arguments.
        let result = unsafe {
            (self.PyObject_CallFunctionObjArgs)(start, launch, ptr::null_mut::<PyObject>())
        };
        // The returned reference is kept: it is to `None`.
        if result.is_null() {
            Err(failed("`py_hooks.boot.host.start` raised"))
        } else {
            Ok(())
        }
    }

    /// Appends our library to `sys.path` if it is missing: `-I` and `-E` ignore `PYTHONPATH`.
    fn append_to_path(&self, our_library: &Path) -> Option<()> {
        let entry = text(
            self.PyUnicode_DecodeFSDefaultAndSize,
            our_library.as_os_str().as_bytes(),
        )?;
        // SAFETY: Python is initialised; the reference is borrowed and `sys` keeps it alive.
        let path = unsafe { (self.PySys_GetObject)(c"path".as_ptr()) };
        if path.is_null() {
            return None;
        }
        // SAFETY: both are valid objects.
        match unsafe { (self.PySequence_Contains)(path, entry) } {
            1 => Some(()),
            // SAFETY: both are valid objects; the call fails for anything but a list.
            0 => (unsafe { (self.PyList_Append)(path, entry) } == 0).then_some(()),
            _ => None,
        }
    }

    /// A new reference to an attribute, or `None` with an exception set. The reference to the
    /// module is kept: `sys.modules` holds one until the end anyway.
    fn attribute_of_module(&self, module: &CStr, name: &CStr) -> Option<*mut PyObject> {
        // SAFETY: Python is initialised and this thread holds the GIL.
        let module = unsafe { (self.PyImport_ImportModule)(module.as_ptr()) };
        if module.is_null() {
            return None;
        }
        // SAFETY: `module` is a valid object.
        let attribute = unsafe { (self.PyObject_GetAttrString)(module, name.as_ptr()) };
        (!attribute.is_null()).then_some(attribute)
    }
}

/// A new `str`, or `None` with an exception set. Python must be initialised.
fn text(decode: Decode, bytes: &[u8]) -> Option<*mut PyObject> {
    let size = isize::try_from(bytes.len()).ok()?;
    // SAFETY: `bytes` holds `size` bytes, which are copied; `boot`, the only caller apart from its
    // own parts, runs with Python initialised.
    let text = unsafe { decode(bytes.as_ptr().cast(), size) };
    (!text.is_null()).then_some(text)
}
