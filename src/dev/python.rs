//! The program that tests start as python in `cargo dev conformance`: a copy of it is named
//! `python`.
//!
//! It becomes the command in the file `commands` beside it, followed by its arguments. That file
//! has two lines, of words between tabs: the command, and the one that replaces it if the options
//! of Python leave out the environment or `site` (`-I`, `-E`, `-S`).
//!
//! A shell does not do, because some tests look closely: it drops environment variables whose names
//! it cannot have, and cannot be run by a file descriptor. Rust's `main` does not do either: it
//! opens standard streams that are closed.

// The test harness has another `main`.
#![cfg_attr(not(test), no_main)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The function that the C runtime calls.
#[cfg(not(test))]
#[expect(
    unsafe_code,
    reason = "an exported `main` is the only way around Rust's own"
)]
#[unsafe(no_mangle)]
pub extern "C" fn main(
    _argc: std::ffi::c_int,
    _argv: *const *const std::ffi::c_char,
) -> std::ffi::c_int {
    run()
}

/// Becomes the command; returns only if that is not possible, with the exit code of a shell.
#[cfg_attr(
    test,
    allow(dead_code, reason = "the test harness has another main function")
)]
fn run() -> i32 {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let file = std::env::current_exe().map(|this| this.with_file_name("commands"));
    let Ok(text) = file.and_then(fs::read) else {
        return 127;
    };
    let line = usize::from(is_isolated(&arguments));
    let Some(line) = text.split(|byte| *byte == b'\n').nth(line) else {
        return 127;
    };
    let mut words = line.split(|byte| *byte == b'\t').map(OsStr::from_bytes);
    let Some(program) = words.next() else {
        return 127;
    };
    // It returns only if it fails.
    let _ = Command::new(program).args(words).args(arguments).exec();
    126
}

/// Whether the options of Python leave out the environment or `site`.
fn is_isolated(arguments: &[OsString]) -> bool {
    let mut arguments = arguments.iter().map(|argument| argument.as_bytes());
    let mut isolated = false;
    while let Some(argument) = arguments.next() {
        match argument {
            b"-X" | b"-W" | b"--check-hash-based-pycs" => {
                arguments.next();
            }
            [b'-', b'X' | b'W' | b'-', ..] => {}
            [b'-', b'c' | b'm', ..] | b"-" => break,
            [b'-', letters @ ..] => {
                let options = letters.split(|letter| b"cmWX".contains(letter)).next();
                isolated |= options.is_some_and(|all| all.iter().any(|one| b"IES".contains(one)));
                if letters.iter().any(|letter| b"cm".contains(letter)) {
                    break;
                }
            }
            _ => break,
        }
    }
    isolated
}

#[cfg(test)]
mod tests {
    use super::is_isolated;

    fn check(line: &str) -> bool {
        let arguments: Vec<_> = line.split(' ').map(Into::into).collect();
        is_isolated(&arguments)
    }

    #[test]
    fn options_before_the_program_count() {
        assert!(check("-I -c pass"));
        assert!(check("-X utf8 -W error -sE x.py"));
        assert!(check("-Ic pass"));
        assert!(!check("x.py -I"));
        assert!(!check("-c pass -S"));
        assert!(!check("-cI"));
        assert!(!check("-W E -m x -S"));
        assert!(!check("-uc pass -I"));
        assert!(!check("-"));
    }
}
