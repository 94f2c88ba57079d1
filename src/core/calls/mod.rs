//! Recorded calls: the log from which a replay is answered. This is its design document.
//!
//! # What it is for
//!
//! A training script is killed and started again. Its code runs again from the first line, but the
//! calls that train, evaluate or read the model are answered from `calls.log` up to the point of
//! the newest checkpoint. There the replay ends for good: the log is cut back to the length that
//! the checkpoint names, and the calls that follow are recorded again.
//!
//! So no record is needed after a checkpoint, and none is durable before one: records are collected
//! in memory, handed to the operating system in large pieces, and synced only by the commit of a
//! checkpoint. If the process dies before that, the log is longer than the checkpoint says, or
//! torn; the excess is cut and never read.
//!
//! # Layout
//!
//! ```text
//! file      header, then frames
//!
//! header    0   8  magic "pedlcall"
//!           8   4  version, u32
//!          12   4  crc32c of the 12 bytes before; the first link of the chain
//!
//! frame     0   8  n, the length of the content, u64
//!           8   1  type: 1 text, 2 skeleton, 3 blob, 4 calls
//!           9   n  content
//!         9+n   4  crc32c of the frame up to here, continued from the link before
//! ```
//!
//! All numbers are little-endian. The checksums are a chain: each continues the previous one, so a
//! changed, lost, added or moved frame is always found. The log before a checkpoint is read and
//! checked as a whole when a trial is opened: its frames must end where the checkpoint says, with
//! as many calls as it says.
//!
//! Definitions are numbered from 0 by type, in the order of their frames. A definition is before
//! its first use:
//!
//! ```text
//! text      what a call is ("train model 0"), or where the script is ("train.py:31")
//! skeleton  the structure of a value (`value.rs`)
//! blob      a leaf of more than 256 bytes; stored once, found by the hash (blake3) of its bytes
//! ```
//!
//! A frame of calls holds a sequence of records:
//!
//! ```text
//! flags     1 byte   bit 0 kind, 1 identity, 2 site, 3 draws, 4 arguments, 5 skeleton: as in the
//!                    record before in this frame (before the first one all are 0), and left out
//!                    bit 6: the value has large leaves
//! kind      1 byte   1 train, 2 test, 3 predict, 4 metrics, 5 read, 6 write, 7 composite, 8 entry,
//!                    9 draw
//! identity  varint   text
//! site      varint   text
//! draws     varint   random numbers drawn so far, as the zigzagged difference to the record before
//! arguments varint   checksum of what the call was given
//! skeleton  varint
//! payload   varint   its length, then its bytes
//! large     varint   how many, then the number of each one's blob as a varint
//! ```
//!
//! The usual record of a training step has its flags, one byte of length and eight bytes of
//! payload.
//!
//! # Which module does what
//!
//! [`value`] turns values into bytes and back. `record` and `frame` know the layout above. `tables`
//! holds the definitions in memory. `Log` appends; `Replay` streams the records up to the
//! checkpoint; [`Records`] streams all of them, to compare two logs; [`Divergence`] says how a call
//! differs from its record.

mod batch;
mod divergence;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod reader;
mod record;
mod records;
mod tables;
pub mod value;
mod writer;

#[cfg(test)]
mod tests;

pub use batch::BatchChecksum;
pub use divergence::Divergence;
#[cfg(test)]
pub(crate) use frame::VERSION;
pub use reader::Answer;
pub(crate) use reader::Replay;
pub use record::{Call, TRACED, kind};
pub use records::{Record, Records, Value};
pub(crate) use tables::Tables;
pub use tables::TextId;
pub(crate) use writer::Log;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Class, Kind};

/// A point in the log: everything before it belongs to a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Length of the log in bytes.
    pub offset: u64,
    /// Number of recorded calls.
    pub calls: u64,
}

/// The log before a checkpoint is not what was written.
#[derive(Debug)]
pub(crate) struct Damaged {
    path: PathBuf,
    offset: u64,
    problem: &'static str,
}

impl Damaged {
    fn new(path: &Path, offset: u64, problem: &'static str) -> Self {
        Self {
            path: path.to_owned(),
            offset,
            problem,
        }
    }
}

impl Kind for Damaged {
    fn class(&self) -> Class {
        Class::CheckpointCorrupt
    }

    fn hint(&self) -> Option<String> {
        Some("restore the folder from a backup, or begin a new trial with `--fresh`".to_owned())
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            offset,
            problem,
        } = self;
        write!(
            formatter,
            "`{}` is damaged: {problem} at byte {offset}",
            path.display()
        )
    }
}

/// The log was written by a program that uses another layout. It is not damaged, and an older
/// checkpoint would not help: it has the same log.
#[derive(Debug)]
pub(crate) struct OtherVersion {
    path: PathBuf,
    version: u32,
    known: u32,
}

impl OtherVersion {
    fn new(path: &Path, version: u32, known: u32) -> Self {
        Self {
            path: path.to_owned(),
            version,
            known,
        }
    }
}

impl Kind for OtherVersion {
    fn class(&self) -> Class {
        Class::OtherVersion
    }

    fn hint(&self) -> Option<String> {
        Some(
            "continue with the pedl-run that began it, or begin a new trial with `--fresh`"
                .to_owned(),
        )
    }
}

impl fmt::Display for OtherVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "`{}` was written by another version of pedl-run\n  its layout: {}; known here: {}\n  nothing was \
             changed, and the run was stopped before it trained",
            self.path.display(),
            self.version,
            self.known
        )
    }
}
