//! `export`: the model of a checkpoint, as its framework reads it.
//!
//! The framework itself makes an export, in a separate interpreter (`py_hooks/verbs/export.py`),
//! which receives the tensors in a directory that is removed afterwards.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pedl_core::inspect::{self, Depth};
use signal_hook::consts::SIGINT;

use super::chosen::{chosen, entries};
use super::{Arguments, failure_of, usage};
use crate::cli::{ask_python, parse};
use crate::failure::{Exit, Failure};
use crate::{interpreter, library};

pub(super) fn export(arguments: &Arguments) -> Result<i32, Failure> {
    let output = arguments.output.as_deref().filter(|name| !name.is_empty());
    let output = output.ok_or_else(|| usage("`pedl checkpoint export` needs `--output FILE`"))?;
    if fs::symlink_metadata(output).is_ok() {
        let what = format!("`{}` is there already", output.display());
        let failure = Failure::new(Exit::Usage, what);
        return Err(failure.hint("name another file with `--output FILE`"));
    }
    let (trial_dir, entries) = entries(arguments, Depth::Sizes)?;
    let (entry, _) = chosen(&trial_dir, &entries, arguments.checkpoint.as_deref())?;
    let mut options = arguments.python.clone();
    options.push("-".into());
    let line = parse::parse(options, |name| env::var_os(name))?;
    let library = library::locate()?;
    let (python, _) = interpreter::find(&line, &library.cache)?;

    let folder = Unpacked::new()?;
    inspect::unpack(&trial_dir, entry.batch, &folder.0).map_err(failure_of)?;
    let batch = entry.batch.to_string();
    let flag = |is_set| OsStr::new(if is_set { "1" } else { "0" });
    let words = [
        folder.0.as_os_str(),
        output,
        OsStr::new(&arguments.model),
        flag(arguments.weights_only),
        OsStr::new(&batch),
        flag(arguments.is_trusted),
    ];
    let words = words.map(OsStr::to_owned);
    // Ctrl-C also reaches the interpreter and ends it; then the unpacked directory is removed.
    let interrupted = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(SIGINT, interrupted) {
        tracing::debug!("Ctrl-C may leave `{}`: {error}", folder.0.display());
    }
    ask_python::ask(&python.executable, &library, "export", &words)
}

/// A directory that is removed when it is dropped.
struct Unpacked(PathBuf);

impl Unpacked {
    fn new() -> Result<Self, Failure> {
        let mut names = (1_u32..).map(|number| format!("pedl-export-{}-{number}", process::id()));
        loop {
            let name = names.next().unwrap_or_default();
            let path = env::temp_dir().join(name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // It belongs to a process that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let what = format!("cannot make directory `{}`", path.display());
                    return Err(Failure::new(Exit::CannotCreate, what)
                        .detail(error.to_string())
                        .hint("name a directory with room in `TMPDIR`"));
                }
            }
        }
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!("`{}` is left: {error}", self.0.display());
        }
    }
}
