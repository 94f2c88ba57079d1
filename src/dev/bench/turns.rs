//! Two processes that take turns: each has a pipe, from which it reads a byte before its turn, and
//! writes one into the pipe of the other after it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::failure::{At as _, Failure, Result};

/// The directory of two processes that take turns, and the pipes that give each of them its turn.
pub(super) struct Turns {
    pub(super) directory: PathBuf,
    pub(super) of_python: String,
    pub(super) of_ours: String,
    /// Holds the first turn until its process has opened the pipe.
    _first: File,
}

impl Turns {
    /// The pipes in a new directory. The first turn is that of plain Python, or of `pedl-run`.
    pub(super) fn new(directory: PathBuf, is_python_first: bool) -> Result<Self> {
        let turn = |name: &str| {
            let path = directory.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                .map_err(std::io::Error::from)
                .at("create", &path)?;
            Ok::<_, Failure>(path)
        };
        let (of_python, of_ours) = (turn("turn-of-python")?, turn("turn-of-pedl-run")?);
        let first = if is_python_first {
            &of_python
        } else {
            &of_ours
        };
        // Opened for reading and writing, so that the open does not block and the pipe keeps the
        // first turn.
        let pipe = OpenOptions::new().read(true).write(true).open(first);
        let mut pipe = pipe.at("open", first)?;
        pipe.write_all(b".").at("write", first)?;
        Ok(Self {
            directory,
            of_python: of_python.to_string_lossy().into_owned(),
            of_ours: of_ours.to_string_lossy().into_owned(),
            _first: pipe,
        })
    }
}
