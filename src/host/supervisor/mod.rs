//! The supervisor: the process between the caller of `pedl-run` and the process that trains.
//!
//! It has a single thread and no line of Python in it, and nearly all of its life it sleeps in one
//! `read`. It
//!
//! 1. decides which trial this is (`launch`, `trial_dir`);
//! 2. starts the trial process (`child`) and forwards the signals that are meant for it
//!    (`signals`);
//! 3. starts a worker server beside it, if that requests one (`child`;
//!    `py_hooks/boot/worker_server.py`);
//! 4. reaps it, and as process 1 of a container every orphan as well;
//! 5. starts it again after a crash, as long as the last start made progress (`restarts`);
//! 6. otherwise ends as it ended: with its exit code, or by the same signal (`ending`).
//!
//! **The restart rule.** A death by a signal that nobody sent through the supervisor is a crash: a
//! segmentation fault, the kernel out of memory, `kill -9`. The trial is started again if the
//! newest checkpoint is another one than when that start began; without progress the same crash
//! would come again, forever. With a `max_restarts` of 0 it is not. Two signals come from the
//! script itself and are no crash: SIGINT, by which Python ends after an unhandled
//! `KeyboardInterrupt`, and SIGPIPE, of a script that wants to die with its reader.
//!
//! **Preemption.** A death by SIGTERM or SIGUSR1, whoever sent it, is no crash either, once the
//! trial has begun: a scheduler wants the machine back (`preemption`). The trial is not started
//! again here, none of its restarts is counted, and the run ends by that signal, or with
//! `--preempt-exit-code`. A trial process that does not end within `--grace` seconds of SIGTERM,
//! and a few more, is killed.
//!
//! **Ranks** (`ranks`). One of several processes that train one model is not started again here:
//! without it the others end as well, and the process that started all of them starts all of them
//! again.
//!
//! An exit code is the answer of the script and passed on. But with `--max-restarts`, or under an
//! experiment configuration, whose `max_restarts` is 5 by default, a script that fails after its
//! training has begun is started again up to that number of times. The exceptions are faults that
//! are certain to come again: our exit codes (64 to 77), and storage (201).

mod child;
mod ending;
mod launch;
mod preemption;
mod ranks;
mod restarts;
mod signals;
mod trial_dir;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use signal_hook::consts::signal::SIGKILL;

use crate::cli::parse::CommandLine;
use crate::cli::report;
use crate::configuration::Configuration;
use crate::failure::{Exit, Failure};
use crate::{interpreter, library};
pub(crate) use child::SERVE;
use child::{Child, End};
pub(crate) use launch::TRIALS;
use preemption::Preemption;
use restarts::{EndedStart, Restarts};
use signals::Signals;
use trial_dir::{Progress, TrialDir};

/// The exit code of scripts that do not understand their command line (argparse, click).
const USAGE_OF_SCRIPTS: i32 = 2;

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
    let mut restarts = Restarts::new(
        line.options
            .max_restarts
            .or_else(|| configuration.map(Configuration::max_restarts)),
    );
    let grace = Duration::try_from_secs_f64(line.options.grace_seconds).unwrap_or(Duration::MAX);
    let patience = grace.saturating_add(preemption::KILL_MARGIN);
    let mut signals = Signals::catch(patience).map_err(|error| {
        Failure::new(Exit::Bug, "signals cannot be received").detail(error.to_string())
    })?;
    let begun = prepared.directory.progress();
    loop {
        let before = prepared.directory.progress();
        prepared.launch.resume = before.inode.is_some() && before.inode != prepared.launch.replaces;
        let arguments = &line.python_arguments;
        let mut child = Child::start(&interpreter, &library, &prepared, arguments, &signals)?;
        // A script that trains nothing, or trains on, handles signals as it wants.
        let may_kill = || {
            let events = prepared.directory.events_since(&before);
            prepared.directory.has_new_events_since(&before) && !preemption::has_trained_on(&events)
        };
        let end = child.watch(&mut signals, may_kill)?;
        if matches!(end, End::Signal(_)) && prepared.directory.has_new_events_since(&begun) {
            report::erase_rest_of_line(&line.options);
        }
        let now = prepared.directory.progress();
        let requested_by = signals.request_to_end();
        let is_of_trial = prepared.launch.resume || now.has_new_events_since(&before);
        let preempted = is_of_trial
            .then(|| Preemption::of(&prepared.directory, &before, end, requested_by))
            .flatten();
        let start = EndedStart {
            end,
            before,
            now,
            requested_by,
            is_of_trial,
            preempted,
        };
        if restarts.is_due(&start, !prepared.ranks.is_null(), &mut signals) {
            let attempt = &mut prepared.launch.attempt;
            *attempt += 1;
            restarts.announce(end, *attempt);
            prepared.directory.record_restart(end, *attempt);
            continue;
        }
        record_end(&prepared.directory, &begun, &start);
        if end == End::Code(USAGE_OF_SCRIPTS)
            && let Some(option) = line.our_option_behind_the_script()
        {
            tracing::info!(
                "`{option}` stood behind the script, and was the script's; if it is meant for pedl-run: \
                 `pedl-run {option} SCRIPT`"
            );
        }
        return Ok(exit_code(line, end, preempted));
    }
}

/// Writes the end of the run into the journal, and says why it came if the script did not decide
/// it. `begun` is the progress before the first start.
fn record_end(directory: &TrialDir, begun: &Progress, last: &EndedStart) {
    let end = last.end;
    if let Some(preempted) = last.preempted {
        if directory.has_new_events_since(begun) {
            preempted.record(directory);
        }
        preempted.tell(end);
    } else if let End::Signal(signal) = end
        && last.is_of_trial
    {
        preemption::tell_of_death(signal, last.now.checkpoint());
    }
    let is_own_end = last.preempted.is_none()
        && end == End::Code(0)
        && preemption::has_outlived(&directory.events_since(&last.before));
    let signal = last
        .preempted
        .map(|preempted| preempted.signal)
        .or(last.requested_by)
        .filter(|_| !is_own_end);
    directory.record_end(begun, end, signal);
}

/// The exit code of the run; it may not return, but end the process by the signal that ended the
/// trial process.
fn exit_code(line: &CommandLine, end: End, preempted: Option<Preemption>) -> i32 {
    let chosen = line.options.preempt_exit_code.map(i32::from);
    let continues = preempted.filter(|preempted| preempted.checkpoint.is_some());
    match (end, chosen, preempted) {
        // The answer of the script, except 0: a reader of 0 takes the trial to be over.
        (End::Code(code), Some(_), _) if code != 0 => code,
        (_, Some(chosen), Some(_)) if continues.is_some() => chosen,
        (End::Code(code), _, _) => code,
        // We had to kill it.
        (End::Signal(SIGKILL), _, Some(preempted)) => ending::die_of(preempted.signal),
        (End::Signal(signal), _, _) => ending::die_of(signal),
    }
}

/// Ensures that none of our files gets a number below 3, if a standard stream is closed: our
/// messages would be written into it. The placeholders are closed on `exec`, so the script finds
/// the closed streams that its parent left.
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
