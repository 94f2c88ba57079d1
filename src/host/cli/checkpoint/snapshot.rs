//! `snapshot`: a copy of a trial that may be trained now, as a directory or as a tar archive.

use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pedl_core::live_copy::{Content, LiveCopy};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tar::{Builder, EntryType, Header};

use super::chosen::trial_dir;
use super::{Arguments, failure_of, print_json, usage};
use crate::cli::report;
use crate::cli::units::bytes;
use crate::failure::{Exit, Failure};

pub(super) fn snapshot(arguments: &Arguments) -> Result<i32, Failure> {
    let (Some(_), Some(destination)) = (&arguments.trial_dir, &arguments.destination) else {
        return Err(
            usage("`pedl checkpoint snapshot` needs a trial and a destination")
                .detail("expected: pedl checkpoint snapshot TRIAL_DIR DEST, or `-` for DEST"),
        );
    };
    let is_stream = destination == Path::new("-");
    if is_stream && io::stdout().is_terminal() {
        let what = "a tar archive is not written to a terminal";
        return Err(usage(what).detail("expected: standard output is a pipe or a file"));
    }
    let trial_dir = trial_dir(arguments)?;
    if !is_stream {
        check_outside(destination, &trial_dir)?;
    }
    allow_many_files();
    let copy = LiveCopy::take(&trial_dir).map_err(failure_of)?;
    if is_stream {
        write_archive(&copy, &trial_dir)?;
        return Ok(0);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .map_err(|error| Failure::bug("a system call failed").detail(error.to_string()))?;
    }
    let is_stopped = || interrupted.load(Ordering::Relaxed);
    let totals = copy.put_at(destination, &is_stopped).map_err(|error| {
        let mut failure = failure_of(error);
        failure.exit = if is_stopped() {
            Exit::Interrupted
        } else {
            Exit::CannotCreate
        };
        failure
    })?;
    if arguments.is_json {
        return Ok(print_json(&json!({
            "path": destination,
            "batch": copy.batch,
            "checkpoints": copy.checkpoints,
            "bytes": totals.bytes,
            "linked_bytes": totals.linked_bytes,
        })));
    }
    let text = format!(
        "{}: {}, {}, of which {} are hard links\n",
        destination.display(),
        copy.checkpoints.join(", "),
        bytes(totals.bytes),
        bytes(totals.linked_bytes)
    );
    Ok(report::answer(&text))
}

/// Refuses a destination in the trial itself.
fn check_outside(destination: &Path, trial_dir: &Path) -> Result<(), Failure> {
    let parent = destination
        .parent()
        .filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    let trial = trial_dir.canonicalize();
    if let (Ok(parent), Ok(trial)) = (parent, trial)
        && parent.starts_with(trial)
    {
        let what = format!("`{}` is in the trial itself", destination.display());
        return Err(Failure::new(Exit::Usage, what).hint("name a directory elsewhere"));
    }
    Ok(())
}

/// All files of a trial are open at once.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays: {error}");
    }
}

fn write_archive(copy: &LiveCopy, trial_dir: &Path) -> Result<(), Failure> {
    let cannot = |error: io::Error| {
        Failure::new(Exit::CannotCreate, "cannot write the archive")
            .detail(error.to_string())
            .detail("what was written of it is no trial")
    };
    let absolute = trial_dir.canonicalize().map_err(cannot)?;
    let top = Path::new(absolute.file_name().unwrap_or(OsStr::new("trial")));
    let mut archive = Builder::new(BufWriter::new(io::stdout().lock()));
    let header = |kind: EntryType, mode: u32, size: u64| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(0);
        header
    };
    let mut directory = header(EntryType::Directory, 0o755, 0);
    let appended = archive.append_data(&mut directory, top.join(""), io::empty());
    appended.map_err(cannot)?;
    for part in copy.parts() {
        let path = top.join(&part.name);
        match &part.content {
            Content::Directory => {
                let mut header = header(EntryType::Directory, 0o755, 0);
                archive.append_data(&mut header, path.join(""), io::empty())
            }
            Content::Link(target) => {
                archive.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)
            }
            Content::File {
                file, bytes, mode, ..
            } => {
                let mut reader = part.reader(file, *bytes);
                let mut header = header(EntryType::Regular, *mode, *bytes);
                let appended = archive.append_data(&mut header, path, &mut reader);
                reader.check_is_at_end().map_err(failure_of)?;
                appended
            }
        }
        .map_err(cannot)?;
    }
    let mut output = archive.into_inner().map_err(cannot)?;
    output.flush().map_err(cannot)
}
