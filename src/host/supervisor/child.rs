//! Starts the trial process and waits for its end.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use pedl_core::trial::{Again, LAUNCH_VARIABLE, Launch, REFUSED_SIGNAL};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};
use serde_json::{Value, json};

use super::launch::Prepared;
use super::signals::{self, Signals};
use super::{preemption, unexpected};
use crate::failure::{Exit, Failure};
use crate::interpreter::Interpreter;
use crate::library::Library;
use crate::trial_process::{START_VARIABLE, Start};

/// This very executable, even if its file was replaced meanwhile.
const THIS_EXECUTABLE: &str = "/proc/self/exe";

/// The environment variable with which `pedl` answers the script, in the trial process and in every
/// process below it.
const CONTEXT_VARIABLE: &str = "PEDL_CONTEXT";

/// Python seeds the hashes of texts, and therefore the order of sets, from it.
const HASH_SEED_VARIABLE: &str = "PYTHONHASHSEED";

/// The value of the user in its place, if that is no seed: `random`, empty, or [`UNSET`].
const USER_HASH_SEED_VARIABLE: &str = "PEDL_USER_HASH_SEED";

/// The user has no such variable.
const UNSET: &str = "unset";

/// `MAX_ARG_STRLEN` of Linux, on machines with pages of 4 KiB.
const LONGEST_VARIABLE_BYTES: usize = 32 * 4096;

/// What a worker server runs, after the options of Python.
pub(crate) const SERVE: [&str; 2] = ["-c", "from py_hooks.boot import process; process.serve()"];

/// A running trial process.
pub(super) struct Child {
    pid: Pid,
    /// Starts a second process, which starts worker processes for it.
    server: Command,
}

/// How a trial process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Child {
    pub(super) fn start(
        interpreter: &Interpreter,
        library: &Library,
        prepared: &Prepared,
        python_arguments: &[OsString],
        signals: &Signals,
    ) -> Result<Self, Failure> {
        let mut command = python(interpreter, library, prepared, &prepared.launch)?;
        command.args(python_arguments);
        signals.keep_ignored(&mut command);
        let child = command
            .spawn()
            .map_err(|error| unexpected("the start of a process", error))?;
        let pid = Pid::from_raw(child.id().cast_signed())
            .ok_or_else(|| Failure::bug("a process without a number was started"))?;
        let launch = Launch {
            serves: Some(pid.as_raw_nonzero().get()),
            resume: false,
            ..prepared.launch.clone()
        };
        let mut server = python(interpreter, library, prepared, &launch)?;
        server
            .args(&launch.python_options)
            .args(SERVE)
            .stdin(Stdio::null());
        signals.keep_ignored(&mut server);
        Ok(Self { pid, server })
    }

    /// Waits for the end and forwards signals meanwhile. If the time after SIGTERM is over, and
    /// `may_kill` says so, kills the process. Reaps every other child as well: those of the program
    /// that `exec`ed us, and as process 1 all orphans.
    pub(super) fn watch(
        &mut self,
        signals: &mut Signals,
        may_kill: impl Fn() -> bool,
    ) -> Result<End, Failure> {
        signals.forward_pending(self.pid);
        loop {
            if let Some(end) = self.reap()? {
                return Ok(end);
            }
            signals.wait_and_forward(self.pid);
            if signals.take_wish_for_server()
                && let Err(error) = self.server.spawn()
            {
                // The process that requested it waits a while, and then forks its workers.
                tracing::debug!("no worker server was started: {error}");
            }
            if signals.is_time_over() && !self.ignores(Signal::TERM) && may_kill() {
                tracing::warn!(
                    "the trial process did not end within {} s of SIGTERM (`--grace`, and {} s more); it is killed",
                    signals.patience().as_secs(),
                    preemption::KILL_MARGIN.as_secs()
                );
                // It fails only if the process has ended meanwhile, which SIGCHLD reports next.
                let _ = kill_process(self.pid, Signal::KILL);
            }
        }
    }

    /// Whether the process ignores a signal: then it lives on deliberately.
    fn ignores(&self, signal: Signal) -> bool {
        let process = self.pid.as_raw_nonzero().to_string();
        signals::ignored(&process) & (1 << (signal.as_raw() - 1)) != 0
    }

    fn reap(&self) -> Result<Option<End>, Failure> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(None) => return Ok(None),
                Ok(Some((pid, status))) if pid == self.pid => {
                    if status.terminating_signal() == Some(REFUSED_SIGNAL) {
                        return Ok(Some(End::Code(Exit::NotShown as i32)));
                    }
                    let code = status.exit_status().map(End::Code);
                    if let Some(end) = code.or(status.terminating_signal().map(End::Signal)) {
                        return Ok(Some(end));
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Err(error) => return Err(unexpected("waiting for the trial process", error)),
            }
        }
    }
}

/// A process of this executable that becomes the Python of a trial, with arguments that the caller
/// adds.
fn python(
    interpreter: &Interpreter,
    library: &Library,
    prepared: &Prepared,
    launch: &Launch,
) -> Result<Command, Failure> {
    let start = Start {
        supervisor: getpid().as_raw_nonzero().get(),
        interpreter: interpreter.clone(),
        library: library.directory.clone(),
    };
    let start_text = to_variable(START_VARIABLE, &start)?;
    let launch = Launch {
        again: Some(Again {
            supervisor: start.supervisor,
            start: (START_VARIABLE.to_owned(), start_text.clone()),
            boot_site: interpreter.boots_from_path().then(|| library.boot_site()),
        }),
        ..launch.clone()
    };
    let mut command = Command::new(THIS_EXECUTABLE);
    command
        .arg0(&interpreter.executable)
        .env(START_VARIABLE, start_text)
        .envs(prepared.environment.iter().cloned())
        .env(LAUNCH_VARIABLE, to_variable(LAUNCH_VARIABLE, &launch)?)
        .env(
            CONTEXT_VARIABLE,
            to_variable(CONTEXT_VARIABLE, &context(prepared))?,
        )
        .env("PYTHONPATH", python_path(interpreter, library, prepared));
    if let Some(directory) = &prepared.working_directory {
        command.current_dir(directory);
    }
    // Below the script, the number belongs to another file, or none.
    command.env_remove("PEDL_EVENTS_FD");
    if !user_set_hash_seed() {
        // The script finds the user's value, and so do processes that it starts
        // (`py_hooks/boot/process.py`).
        let user = env::var_os(HASH_SEED_VARIABLE);
        command
            .env(
                USER_HASH_SEED_VARIABLE,
                user.unwrap_or(OsString::from(UNSET)),
            )
            .env(HASH_SEED_VARIABLE, launch.hash_seed.to_string());
    }
    Ok(command)
}

/// The user's value takes precedence; `random` is what Python does without one.
pub(super) fn user_set_hash_seed() -> bool {
    env::var_os(HASH_SEED_VARIABLE).is_some_and(|value| !value.is_empty() && value != "random")
}

/// The user's `PYTHONPATH` with our library after it, for every process below the trial; and before
/// it, if needed, the boot site, which removes itself again.
fn python_path(interpreter: &Interpreter, library: &Library, prepared: &Prepared) -> OsString {
    let configured = prepared.environment.iter().rev();
    let configured = configured.filter(|(name, _)| name == "PYTHONPATH");
    let user = configured
        .map(|(_, value)| OsString::from(value))
        .next()
        .or_else(|| env::var_os("PYTHONPATH"))
        .filter(|path| !path.is_empty());
    let boot = interpreter
        .boots_from_path()
        .then(|| library.boot_site().into_os_string());
    let ours = library.directory.clone().into_os_string();
    // A run below another run already has it.
    let ours = Some(ours).filter(|ours| {
        !user
            .as_ref()
            .is_some_and(|user| env::split_paths(user).any(|path| path == *ours))
    });
    let entries: Vec<_> = [boot, user, ours].into_iter().flatten().collect();
    entries.join(OsStr::new(":"))
}

/// What a script may ask about its trial (`shims/pedl`).
fn context(prepared: &Prepared) -> Value {
    let launch = &prepared.launch;
    json!({
        "trial_id": launch.trial_id,
        "experiment_id": launch.experiment_id,
        "trial_seed": launch.trial_seed,
        "hyperparameters": launch.hyperparameters,
        "configuration": prepared.configuration,
        "batches_per_step": launch.batches_per_step,
        "definition": prepared.definition,
        "ranks": prepared.ranks,
    })
}

/// A message as the value of a variable, whose length the kernel limits.
fn to_variable(name: &str, message: &impl serde::Serialize) -> Result<String, Failure> {
    let text = to_json(message)?;
    if name.len() + text.len() + 2 <= LONGEST_VARIABLE_BYTES {
        return Ok(text);
    }
    let what = format!(
        "the command line, the configuration and the hyperparameters have {} bytes together",
        text.len()
    );
    Err(Failure::new(Exit::Configuration, what)
        .detail(format!(
            "expected: less than {LONGEST_VARIABLE_BYTES}, which is what Linux passes to a process"
        ))
        .hint("name a directory instead of many files, and keep what is long in a file of its own"))
}

/// JSON in ASCII: Python decodes the environment by the locale, which may support nothing else.
fn to_json(message: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(message)
        .map_err(|error| Failure::bug("a message cannot be written").detail(error.to_string()))?;
    let mut ascii = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            // Outside of strings JSON is already ASCII; in strings `\u` denotes a unit of UTF-16.
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string never fails.
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    Ok(ascii)
}
