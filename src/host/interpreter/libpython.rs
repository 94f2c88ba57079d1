//! Opens libpython and looks up its functions. Holds unsafe code.
//!
//! The library is opened for the whole process (`RTLD_GLOBAL`), because extension modules,
//! including ours, resolve the C API from it. It is never closed: Python leaves pointers into
//! itself everywhere.

#![allow(unsafe_code, reason = "a foreign library is opened and called")]

use std::ffi::{CStr, c_char};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::{Interpreter, Version};
use crate::failure::{Exit, Failure};

/// An open libpython.
pub(super) struct LibPython {
    library: ManuallyDrop<Library>,
    path: PathBuf,
}

impl LibPython {
    /// Opens the library; a bare name is looked up in the linker's cache.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        // SAFETY: opening runs the library's initialisers. libpython has none that depend on the
        // state of the process; the library that is opened belongs to the interpreter that the user
        // chose to run.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| {
            Failure::new(
                Exit::Interpreter,
                format!("cannot load `{}`", path.display()),
            )
            .detail(error.to_string())
            .hint("`--mode exec` runs the interpreter without its library")
        })?;
        Ok(Self {
            library: ManuallyDrop::new(library),
            path: path.to_owned(),
        })
    }

    /// Checks that this is the library of the interpreter: another of the same name may have been
    /// found first.
    pub(super) fn check_version(&self, interpreter: &Interpreter) -> Result<(), Failure> {
        // SAFETY: this is the declaration of `Py_GetVersion` in pylifecycle.h.
        let get_version =
            unsafe { self.symbol::<unsafe extern "C" fn() -> *const c_char>(c"Py_GetVersion")? };
        // SAFETY: `Py_GetVersion` may be called before initialisation.
        let text = unsafe { get_version() };
        // SAFETY: it returns a static string that ends in NUL.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        let matches = match &interpreter.full_version {
            Some(expected) => text == expected.as_str(),
            None => minor_version(&text) == Some(interpreter.version),
        };
        if matches {
            return Ok(());
        }
        let what = format!(
            "`{}` is not the library of the interpreter",
            self.path.display()
        );
        Err(Failure::new(Exit::Interpreter, what)
            .detail(format!("the library is Python {}", text.replace('\n', " ")))
            .detail(format!(
                "`{}` is Python {}",
                interpreter.executable.display(),
                match &interpreter.full_version {
                    Some(version) => version.replace('\n', " "),
                    None => interpreter.version.to_string(),
                }
            ))
            .hint("`--mode exec` runs the interpreter without its library"))
    }

    /// Looks up a function.
    ///
    /// # Safety
    ///
    /// `T` must be a function pointer of the type that the C header of that name declares.
    pub(super) unsafe fn symbol<T: Copy>(&self, name: &CStr) -> Result<T, Failure> {
        // SAFETY: the caller vouches for the type; the library is never closed (see
        // `ManuallyDrop` above), so the pointer stays valid.
        let found = unsafe { self.library.get::<T>(name.to_bytes_with_nul()) };
        found.map(|symbol| *symbol).map_err(|error| {
            let what = format!(
                "`{}` has no function `{}`",
                self.path.display(),
                name.to_string_lossy()
            );
            Failure::new(Exit::Interpreter, what).detail(error.to_string())
        })
    }
}

/// Removes a variable from the environment of this process, which becomes the script's.
#[expect(
    clippy::disallowed_methods,
    reason = "the script runs in this process, not in a child"
)]
pub(crate) fn forget_variable(name: &str) {
    // SAFETY: no other thread exists in this process, so none reads the environment meanwhile.
    unsafe { std::env::remove_var(name) }
}

/// The version in a text such as `3.11.7 (main, Dec 8 2023) [GCC 12.2.0]`.
fn minor_version(text: &str) -> Option<Version> {
    let mut parts = text.split(|letter: char| !letter.is_ascii_digit());
    Some(Version(
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
    ))
}

/// Declares a struct of functions of libpython, and how to load it. The name of a field is that of
/// the C function, and its type is the one that the C header declares.
macro_rules! c_functions {
    ($(#[$attribute:meta])* struct $name:ident { $($function:ident: $type:ty,)+ }) => {
        $(#[$attribute])*
        #[allow(non_snake_case, reason = "the names are CPython's")]
        struct $name { $($function: $type,)+ }

        impl $name {
            fn load(python: &$crate::interpreter::libpython::LibPython)
                -> Result<Self, $crate::failure::Failure>
            {
                Ok(Self {
                    $(
                        // SAFETY: each row repeats the declaration of the C header named above it.
                        $function: unsafe {
                            let name = concat!(stringify!($function), "\0");
                            python.symbol(
                                std::ffi::CStr::from_bytes_with_nul(name.as_bytes())
                                    .expect("`concat!` put the one NUL at the end"),
                            )?
                        },
                    )+
                })
            }
        }
    };
}
pub(super) use c_functions;

/// The arguments in the form that C expects: an array of mutable strings that ends in a null
/// pointer. Never freed, since Python may keep pointers into it until the process ends.
pub(super) fn leaked_argv(
    arguments: Vec<std::ffi::OsString>,
) -> Result<(i32, *mut *mut c_char), Failure> {
    use std::os::unix::ffi::OsStringExt;
    let mut argv = Vec::with_capacity(arguments.len() + 1);
    for argument in arguments {
        let argument = std::ffi::CString::new(argument.into_vec())
            .map_err(|_| Failure::bug("an argument contains NUL"))?;
        argv.push(argument.into_raw());
    }
    let argc = i32::try_from(argv.len()).map_err(|_| Failure::bug("too many arguments"))?;
    argv.push(std::ptr::null_mut());
    Ok((argc, Box::leak(argv.into_boxed_slice()).as_mut_ptr()))
}
