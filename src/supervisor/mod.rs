//! The supervisor: what stands between whoever started `pedl-run` and the process that trains.
//!
//! It has no thread but its first and no line of Python in it, and nearly all of its life it sleeps
//! in one `read`. It
//!
//! 1. decides which trial this is (`launch`, `trial_dir`);
//! 2. starts the trial process (`child`) and forwards the signals that are meant for it (`signals`);
//! 3. reaps it, and as process 1 of a container every orphan as well;
//! 4. starts it again after a crash, as long as the last start made progress;
//! 5. otherwise ends as it ended: with its exit code, or by the same signal (`ending`).
//!
//! **The restart rule.** A death by a signal that nobody sent through the supervisor is a crash: a
//! segmentation fault, the kernel out of memory, `kill -9`. The trial is started again if the symlink
//! `latest` points to another checkpoint than when that start began; without progress the same crash
//! would come again, for ever. With a `max_restarts` of 0 it is not. Two signals are a script's own
//! doing and no crash: SIGINT, by which Python ends after an unhandled `KeyboardInterrupt`, and
//! SIGPIPE, of a script that wants to die with its reader.
//!
//! An exit code is the script's answer and passed on. But with `--max-restarts`, or under an experiment
//! configuration, whose `max_restarts` is 5 by default, a script that fails after its training has
//! begun is started again so often, unless the fault is one that comes again for certain: the codes of
//! ours (64 to 77), and storage (201).

mod child;
mod ending;
mod launch;
mod signals;
mod trial_dir;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;

use rustix::process::Signal;

use crate::cli::parse::CommandLine;
use crate::cli::report;
use crate::configuration::Configuration;
use crate::failure::{Exit, Failure};
use crate::{interpreter, library};
use child::{Child, End};
pub(crate) use launch::TRIALS;
use signals::Signals;

/// With what a trial process ends whose storage failed after training began.
const STORAGE_FAILED: i32 = 201;

/// Runs the script of a command line to its end and returns the exit code.
pub(crate) fn run(
    line: &CommandLine,
    configuration: Option<&Configuration>,
) -> Result<i32, Failure> {
    hold_standard_descriptors();
    let library = library::locate()?;
    let interpreter = interpreter::choose(line, &library.cache)?;
    library.compile_with(&interpreter);
    let mut prepared = launch::prepare(line, configuration, &interpreter, &library)?;
    let max_restarts = line
        .options
        .max_restarts
        .or_else(|| configuration.map(Configuration::max_restarts));
    let mut restarts_after_errors = 0;
    let mut signals = Signals::catch().map_err(|error| {
        Failure::new(Exit::Bug, "signals cannot be received").detail(error.to_string())
    })?;
    let begun = prepared.directory.progress();
    loop {
        let before = prepared.directory.progress();
        prepared.launch.resume = before.inode.is_some() && before.inode != prepared.launch.replaces;
        let arguments = &line.python_arguments;
        let child = Child::start(&interpreter, &library, &prepared, arguments, &signals)?;
        let end = child.watch(&mut signals)?;
        if matches!(end, End::Signal(_)) && prepared.directory.has_new_events_since(&begun) {
            report::erase_rest_of_line(&line.options);
        }
        let now = prepared.directory.progress();
        let again = match end {
            End::Signal(signal) => {
                is_crash(signal)
                    && max_restarts != Some(0)
                    && !signals.ended_by(signal)
                    && now.has_new_checkpoint_since(&before)
            }
            End::Code(code) => {
                is_error(code)
                    && signals.request_to_end().is_none()
                    && restarts_after_errors < max_restarts.unwrap_or(0)
                    && now.has_new_events_since(&before)
            }
        };
        if again {
            let attempt = &mut prepared.launch.attempt;
            *attempt += 1;
            match end {
                End::Signal(signal) => tracing::warn!(
                    "the trial process was killed by {}; it is started again from the newest \
                     checkpoint (restart {attempt})",
                    ending::name(signal)
                ),
                End::Code(code) => {
                    restarts_after_errors += 1;
                    tracing::warn!(
                        "the script ended with exit code {code}; it is started again \
                         ({restarts_after_errors} of {} restarts)",
                        max_restarts.unwrap_or(0)
                    );
                }
            }
            prepared.directory.record_restart(end, *attempt);
            continue;
        }
        prepared
            .directory
            .record_end(&begun, end, signals.request_to_end());
        return Ok(match end {
            End::Code(code) => code,
            End::Signal(signal) => ending::die_of(signal),
        });
    }
}

/// Whether an exit code is an error of the script, which another start may be spared.
fn is_error(code: i32) -> bool {
    !matches!(code, 0 | 64..=77 | STORAGE_FAILED)
}

fn is_crash(signal: i32) -> bool {
    ![Signal::INT, Signal::PIPE]
        .map(Signal::as_raw)
        .contains(&signal)
}

/// Makes sure that no file of ours gets a number below 3, where a closed standard stream leaves a
/// gap: our messages would be written into it. The placeholders are closed on `exec`, so the script
/// finds the gaps that its starter left.
fn hold_standard_descriptors() {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    while let Ok(file) = options.open("/dev/null") {
        if file.as_raw_fd() > 2 {
            break;
        }
        std::mem::forget(file);
    }
}

/// An error of a system call that cannot fail when used as it is here.
fn unexpected(call: &str, error: impl Into<io::Error>) -> Failure {
    Failure::bug(format!("{call} failed")).detail(error.into().to_string())
}
