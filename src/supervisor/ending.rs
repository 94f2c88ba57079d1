//! Ends this process by the signal that ended the trial process, so that a shell, a scheduler or a
//! container engine sees exactly what it would have seen of Python.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getpid, getrlimit, set_dumpable_behavior, setrlimit,
};
use signal_hook::low_level;

/// How a shell counts a death by signal as an exit code.
const SIGNAL_BASE: i32 = 128;

/// Dies of a signal. Returns the exit code that stands for it where that is not possible: for the
/// first process of a container, which the kernel protects.
pub(super) fn die_of(signal: i32) -> i32 {
    if !getpid().is_init() {
        prevent_core_dump();
        // Neither returns where it succeeds. The first knows no real-time signals; there are no handlers
        // of ours for those, and their default is the end.
        let _ = low_level::emulate_default_handler(signal);
        let _ = low_level::raise(signal);
    }
    SIGNAL_BASE + signal
}

/// The trial process has left the core dump that tells something; ours would overwrite it.
fn prevent_core_dump() {
    let limit = Rlimit {
        current: Some(0),
        maximum: getrlimit(Resource::Core).maximum,
    };
    // A limit of 0 is ignored where the kernel pipes dumps to a program, hence both. Should they
    // fail, there is one core file too many.
    let _ = setrlimit(Resource::Core, limit);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
