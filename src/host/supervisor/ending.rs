//! Ends this process by the signal that ended the trial process, so that a shell, a scheduler or a
//! container engine sees exactly what it would have seen of Python.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getpid, getrlimit, set_dumpable_behavior, setrlimit,
};
use signal_hook::low_level;

/// How a shell counts a death by signal as an exit code.
const SIGNAL_BASE: i32 = 128;

/// Dies of a signal. If that is not possible (for the first process of a container, which the
/// kernel protects), returns the exit code of that signal.
pub(super) fn die_of(signal: i32) -> i32 {
    if !getpid().is_init() {
        prevent_core_dump();
        // On success neither returns. The first knows no real-time signals; we have no handlers for
        // those, and their default is the end.
        let _ = low_level::emulate_default_handler(signal);
        let _ = low_level::raise(signal);
    }
    SIGNAL_BASE + signal
}

/// The trial process has left the useful core dump; ours would overwrite it.
fn prevent_core_dump() {
    let limit = Rlimit {
        current: Some(0),
        maximum: getrlimit(Resource::Core).maximum,
    };
    // The kernel ignores a limit of 0 if it pipes dumps to a program, hence both. If they fail,
    // there is one core file too many.
    let _ = setrlimit(Resource::Core, limit);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
