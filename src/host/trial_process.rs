//! The trial process: becomes the Python that runs the script.
//!
//! The supervisor starts this executable again with the arguments of Python, so that process lists
//! show the script. Two environment variables say what to do: the launch message of
//! `pedl_core::trial`, which is for Python, and [`Start`], which is for us. A script sees neither.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use pedl_core::trial::LAUNCH_VARIABLE;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::failure::{Exit, Failure};
use crate::interpreter::{self, Interpreter};

/// The environment variable that makes a process of this executable a trial process.
pub(crate) const START_VARIABLE: &str = "PEDL_START";

/// The message of the supervisor to the Rust side of a trial process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The process id of the supervisor.
    pub(crate) supervisor: i32,
    pub(crate) interpreter: Interpreter,
    /// The directory with `_pedl`, `pedl` and `py_hooks`.
    pub(crate) library: PathBuf,
}

/// Whether this process was started as a trial process.
pub(crate) fn is_this() -> bool {
    env::var_os(START_VARIABLE).is_some()
}

/// Runs the script and returns Python's exit code; in exec mode it does not return.
pub(crate) fn run() -> Result<i32, Failure> {
    let start: Start = env::var(START_VARIABLE)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .ok_or_else(|| Failure::bug(format!("{START_VARIABLE} is not understood")))?;
    if !dies_with(start.supervisor) {
        return Ok(128 + Signal::KILL.as_raw());
    }
    let arguments: Vec<OsString> = env::args_os().collect();
    let Some(libpython) = &start.interpreter.library else {
        return Err(execute(&start.interpreter, &arguments));
    };
    let launch = env::var(LAUNCH_VARIABLE)
        .map_err(|_| Failure::bug(format!("{LAUNCH_VARIABLE} is not set")))?;
    // Without this, the process would be called `exe`, because it was started from
    // `/proc/self/exe`.
    let _ = rustix::thread::set_name(c"pedl-run");
    interpreter::forget_variable(START_VARIABLE);
    if !start.interpreter.boots_from_path() {
        interpreter::forget_variable(LAUNCH_VARIABLE);
    }
    interpreter::embed(
        &start.interpreter,
        libpython,
        arguments,
        &start.library,
        &launch,
    )
}

/// Ensures that this process does not outlive the supervisor: a SIGKILL to the supervisor must not
/// leave a training run behind that nobody watches. `false`: the supervisor is already gone.
fn dies_with(supervisor: i32) -> bool {
    // If the kernel refuses (no kernel that runs Python does), the process simply lives on.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // The supervisor may have died before the line above.
    getppid()
        .map(Pid::as_raw_nonzero)
        .is_some_and(|parent| parent.get() == supervisor)
}

/// Replaces this process with the real interpreter; returns only if that fails.
fn execute(interpreter: &Interpreter, arguments: &[OsString]) -> Failure {
    let mut python = Command::new(&interpreter.executable);
    if let Some((name, rest)) = arguments.split_first() {
        python.arg0(name).args(rest);
    }
    let error = python.env_remove(START_VARIABLE).exec();
    let what = format!("cannot execute `{}`", interpreter.executable.display());
    Failure::new(Exit::Interpreter, what).detail(error.to_string())
}
