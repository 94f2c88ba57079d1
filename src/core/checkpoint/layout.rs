//! Names and paths of all files. The drawing is at the head of [`super`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const STATE: &str = "state.json";

pub(crate) const CHECKPOINTS: &str = "checkpoints";
pub(crate) const LATEST: &str = "latest";
pub(crate) const LATEST_NEW: &str = ".latest-new";
pub(super) const FILES: &str = "files";
pub(super) const TENSORS: &str = "tensors";
pub(super) const PACK: &str = ".safetensors";
const COMMITTED: &str = "batch-";
const REPLACED: &str = ".replaced-";
const DAMAGED: &str = "damaged-";
const STAGING: &str = ".staging-";

/// Paths in one trial directory.
#[derive(Debug)]
pub(super) struct Layout {
    trial_dir: PathBuf,
}

impl Layout {
    pub(super) fn new(trial_dir: &Path) -> Self {
        Self {
            trial_dir: trial_dir.to_owned(),
        }
    }

    pub(super) fn trial_dir(&self) -> &Path {
        &self.trial_dir
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.trial_dir.join(CHECKPOINTS)
    }

    pub(super) fn files(&self) -> PathBuf {
        self.checkpoints().join(FILES)
    }

    pub(super) fn content(&self, hash: &str) -> PathBuf {
        self.files().join(hash)
    }

    pub(super) fn tensors(&self) -> PathBuf {
        self.checkpoints().join(TENSORS)
    }

    pub(super) fn pack(&self, hash: &str) -> PathBuf {
        self.tensors().join(format!("{hash}{PACK}"))
    }

    pub(super) fn committed(&self, batch: u64) -> PathBuf {
        self.checkpoints().join(committed_name(batch))
    }

    pub(super) fn replaced(&self, batch: u64) -> PathBuf {
        self.checkpoints()
            .join(format!("{REPLACED}{}", committed_name(batch)))
    }

    pub(super) fn damaged(&self, batch: u64) -> PathBuf {
        self.checkpoints()
            .join(format!("{DAMAGED}{}", committed_name(batch)))
    }

    pub(super) fn staging(&self, process: u32, number: u64) -> PathBuf {
        self.checkpoints()
            .join(format!("{STAGING}{process}-{number}"))
    }

    pub(super) fn latest(&self) -> PathBuf {
        self.trial_dir.join(LATEST)
    }

    /// The temporary name for a new `latest`. One is enough, because one process at a time writes.
    pub(super) fn latest_new(&self) -> PathBuf {
        self.trial_dir.join(LATEST_NEW)
    }

    /// A new name for a folder that was found at one of these two names.
    pub(super) fn latest_aside(&self, number: u32) -> PathBuf {
        self.trial_dir.join(format!("latest.{number}"))
    }

    /// The target of `latest`: a relative path, so that it stays right if the trial directory is
    /// moved.
    pub(super) fn link_target(&self, folder: &Path) -> PathBuf {
        folder
            .strip_prefix(&self.trial_dir)
            .unwrap_or(folder)
            .to_owned()
    }
}

/// `batch-0000000700` of 700. Ten digits sort as text up to 10¹⁰ batches; above, names only grow.
pub(super) fn committed_name(batch: u64) -> String {
    format!("{COMMITTED}{batch:010}")
}

/// The meaning of a name in the folder of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Committed(u64),
    Replaced(u64),
    Damaged,
    Staging,
    /// `files`, `tensors`, and whatever pedl did not make.
    Other,
}

impl Name {
    pub(super) fn parse(name: &OsStr) -> Self {
        let Some(name) = name.to_str() else {
            return Self::Other;
        };
        if let Some(batch) = parse_batch(name) {
            Self::Committed(batch)
        } else if let Some(batch) = name.strip_prefix(REPLACED).and_then(parse_batch) {
            Self::Replaced(batch)
        } else if name.strip_prefix(DAMAGED).and_then(parse_batch).is_some() {
            Self::Damaged
        } else if name.starts_with(STAGING) {
            Self::Staging
        } else {
            Self::Other
        }
    }
}

/// The hash in the name of a pack.
pub(super) fn parse_pack(name: &OsStr) -> Option<&str> {
    name.to_str()?.strip_suffix(PACK)
}

fn parse_batch(name: &str) -> Option<u64> {
    let batch = name.strip_prefix(COMMITTED)?.parse().ok()?;
    (committed_name(batch) == name).then_some(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_understood_only_as_it_is_written() {
        for (name, expected) in [
            ("batch-0000000700", Name::Committed(700)),
            ("batch-12345678901", Name::Committed(12_345_678_901)),
            ("batch-700", Name::Other),
            ("batch-+000000700", Name::Other),
            (".replaced-batch-0000000700", Name::Replaced(700)),
            ("damaged-batch-0000000700", Name::Damaged),
            (".staging-1-0", Name::Staging),
            ("files", Name::Other),
            ("tensors", Name::Other),
        ] {
            assert_eq!(Name::parse(OsStr::new(name)), expected, "{name}");
        }
    }
}
