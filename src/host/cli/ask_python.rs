//! Runs a verb of `pedl` that needs Python, in a separate interpreter: it touches no script and no
//! trial.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::failure::{Exit, Failure};
use crate::library::Library;

/// Runs `py_hooks/verbs/report.py` in an interpreter; its output is ours. If the reader of the
/// output has closed it, the interpreter ends by SIGPIPE, as we do, and nothing is printed.
pub(super) fn ask(
    python: &Path,
    library: &Library,
    verb: &str,
    words: &[OsString],
) -> Result<i32, Failure> {
    // The current directory may belong to somebody else in an export: no modules are imported from
    // it before `py_hooks/verbs/export.py` permits it.
    const REPORT: &str = "import sys; sys.argv[1] == 'export' and sys.path.remove(''); \
                          from py_hooks.verbs import report; sys.exit(report.main(sys.argv[1:]))";
    let mut path = env::var_os("PYTHONPATH")
        .filter(|path| !path.is_empty())
        .unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(&library.directory);
    let status = Command::new(python)
        .args(["-c", REPORT, verb])
        .args(words)
        .env("PYTHONPATH", path)
        .env("TF_CPP_MIN_LOG_LEVEL", "3")
        .status()
        .map_err(|error| {
            Failure::new(
                Exit::Interpreter,
                format!("cannot run `{}`", python.display()),
            )
            .detail(error.to_string())
        })?;
    let of_the_user = [Signal::PIPE, Signal::INT].map(Signal::as_raw);
    if let Some(signal) = status.signal().filter(|it| of_the_user.contains(it)) {
        return Ok(128 + signal);
    }
    status.code().ok_or_else(|| {
        Failure::new(
            Exit::Interpreter,
            format!("`{}` {status}", python.display()),
        )
        .hint("import the frameworks in it by hand: one of them may be broken")
    })
}
