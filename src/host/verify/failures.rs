//! Why `pedl verify` stops: what is printed when nothing can be shown.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use super::request;
use crate::failure::{Exit, Failure};

pub(super) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot make `{}`", path.display());
    Failure::new(Exit::CannotCreate, what)
        .detail(error.to_string())
        .hint("make room there, or name another directory with `--work-dir DIR`")
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of the error")]
pub(super) fn unexpected(error: io::Error) -> Failure {
    Failure::bug("a process cannot be waited for").detail(error.to_string())
}

pub(super) fn interrupted(work: &Path) -> Failure {
    Failure::new(Exit::Interrupted, "verifying was interrupted")
        .detail(format!("the directories are kept in `{}`", work.display()))
}

pub(super) fn too_large(origin: &Path, limit: u64) -> Failure {
    let what = format!("`{}` holds more than {limit} bytes", origin.display());
    Failure::new(Exit::Configuration, what)
        .detail("each run gets a copy of the current directory, for it to stay untouched")
        .detail("nothing was copied, and the script was not started")
        .hint("move data that is only read elsewhere and link it, or allow more with `--copy-limit BYTES`")
}

/// The script of a configuration runs and writes in its directory.
pub(super) fn not_copied(directory: &OsStr) -> Failure {
    let directory = Path::new(directory).display();
    let what = format!("`{directory}` is not below the current directory");
    request::usage(what)
        .detail("each run gets a copy of the current directory; the script would run in your own")
        .hint(format!("change into `{directory}`, and name it `.`"))
}

pub(super) fn unreadable(what: String) -> Failure {
    Failure::bug("what a run left cannot be read").detail(what)
}
