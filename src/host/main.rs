//! `pedl-run`: runs an unmodified Python script with exact resume.
//!
//! One executable has two roles. If a user starts it, it is the **supervisor**: it reads the
//! command line, finds the interpreter, starts itself again and watches that process. If the
//! supervisor starts it (which an environment variable shows), it is the **trial process**: it
//! becomes the Python that runs the script, and its exit status is Python's own.
//!
//! There is no Rust `main`. With one, the standard library would reopen closed file descriptors 0
//! to 2 and install handlers for SIGSEGV and SIGBUS; Python's `faulthandler` restores those
//! handlers and re-raises, and a crashed script would exit with 0 (rust-lang/rust#140662).

// The test harness has its own `main`.
#![cfg_attr(not(any(test, fuzzing)), no_main)]
#![cfg_attr(fuzzing, allow(dead_code, reason = "only what is tried is called"))]

mod cli;
mod configuration;
mod definition;
mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod interpreter;
mod library;
mod package;
mod supervisor;
mod trial_process;
mod verify;

use std::ffi::c_int;
use std::panic;

use failure::Failure;

/// The entry point for the C runtime. `std::env::args_os` works nevertheless: glibc passes the
/// arguments to the standard library's initialiser as well.
#[cfg(not(any(test, fuzzing)))]
#[expect(
    unsafe_code,
    reason = "an exported `main` is the only way around Rust's own"
)]
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: c_int, _argv: *const *const std::ffi::c_char) -> c_int {
    run()
}

/// Runs the role of this process, and returns its exit code.
#[cfg_attr(
    test,
    allow(dead_code, reason = "the test harness has another main function")
)]
fn run() -> c_int {
    let outcome = panic::catch_unwind(|| {
        if trial_process::is_this() {
            trial_process::run()
        } else {
            cli::run()
        }
    });
    let outcome = outcome.unwrap_or_else(|_| Err(Failure::bug("the host panicked")));
    outcome.unwrap_or_else(|failure| cli::report::failure(&failure))
}
