//! Runs a script in an embedded Python 3.7. Holds unsafe code.
//!
//! 3.7 has no `PyConfig`: none of our code can run between initialisation and the script without
//! disabling `-O -I -W -X`. So the process calls exactly what the `python` executable of that
//! version calls, and `sitecustomize` does the boot, as in exec mode.

#![allow(unsafe_code, reason = "libpython is called")]

use std::ffi::{OsString, c_char, c_int};

use super::libpython::{LibPython, c_functions, leaked_argv};
use crate::failure::Failure;

c_functions! {
    /// Source: `Programs/python.c`, CPython 3.7.
    struct Functions {
        _Py_UnixMain: unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int,
    }
}

/// Runs the script and returns Python's exit code.
pub(super) fn run(python: &LibPython, arguments: Vec<OsString>) -> Result<i32, Failure> {
    let functions = Functions::load(python)?;
    let (argc, argv) = leaked_argv(arguments)?;
    // SAFETY: `argv` holds `argc` strings and a null pointer, and is never freed. This is the main
    // thread, and Python was not initialised before.
    Ok(unsafe { (functions._Py_UnixMain)(argc, argv) })
}
