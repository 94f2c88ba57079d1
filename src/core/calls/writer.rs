//! Appends records to the log.

use std::path::Path;
use std::sync::Arc;

use crc32c::crc32c_append;

use super::frame::{self, HASH_BYTES, Type};
use super::reader::{self, Replay};
use super::record::{self, Call, Head};
use super::tables::{BlobPlace, Tables, TextId};
use super::value::Encoded;
use super::{Damaged, Mark};
use crate::error::{Error, Result};
use crate::file::{self, File};

/// A block of records becomes a frame at this size, and the buffer goes to the operating system at
/// four times this size. Smaller sizes cost more checksums and system calls; larger ones cost
/// memory.
const BLOCK_BYTES: usize = 64 << 10;
const BUFFER_BYTES: usize = 4 * BLOCK_BYTES;

/// The log, open for appending. Appended records stay in memory until [`Log::mark`], or until there
/// are many of them.
#[derive(Debug)]
pub(crate) struct Log {
    file: Arc<File>,
    /// Length of the part of the file that belongs to the log.
    written: u64,
    /// Complete frames that follow it.
    buffer: Vec<u8>,
    /// The chain after the frames of the buffer.
    crc: u32,
    /// Records that are not a frame yet.
    block: Vec<u8>,
    previous: Head,
    /// The skeleton of the last record: the best guess for the next.
    last_skeleton: u64,
    calls: u64,
    large: Vec<u64>,
}

impl Log {
    /// Begins an empty log, and replaces an existing one.
    pub(crate) fn create(path: &Path, tables: &mut Tables) -> Result<Self> {
        let file = Arc::new(File::create(path)?);
        // A checkpoint is useless without its log, so its name must be durable before any commit.
        path.parent().map_or(Ok(()), file::sync_directory)?;
        let (header, crc) = frame::header();
        tables.forget_log();
        let log = Self::at(
            file,
            Mark {
                offset: 0,
                calls: 0,
            },
            crc,
        );
        Ok(Self {
            buffer: header.to_vec(),
            ..log
        })
    }

    /// Opens the log of a checkpoint: checks it up to the mark, and fills the tables.
    ///
    /// # Errors
    ///
    /// Damaged, if it differs from what was written; in that case, nothing has been changed.
    pub(crate) fn open(path: &Path, mark: Mark, tables: &mut Tables) -> Result<Self> {
        let file = Arc::new(File::open(path).map_err(|error| or_damaged(path, error))?);
        let crc = reader::load(&file, mark, tables)?;
        Ok(Self::at(file, mark, crc))
    }

    /// Checks a log up to a mark, and does not open it for anything else.
    pub(crate) fn check(path: &Path, mark: Mark) -> Result<()> {
        let file = File::open_to_read(path).map_err(|error| or_damaged(path, error))?;
        reader::load(&Arc::new(file), mark, &mut Tables::default()).map(drop)
    }

    /// Cuts off what follows the mark at which the log was opened.
    pub(crate) fn cut_back(&self) -> Result<()> {
        self.file.set_size(self.written)
    }

    /// The records that the log had when it was opened.
    pub(crate) fn replay(&self) -> Result<Replay> {
        let mark = Mark {
            offset: self.written,
            calls: self.calls,
        };
        Replay::new(Arc::clone(&self.file), mark)
    }

    fn at(file: Arc<File>, mark: Mark, crc: u32) -> Self {
        Self {
            file,
            written: mark.offset,
            buffer: Vec::new(),
            crc,
            block: Vec::new(),
            previous: Head::default(),
            last_skeleton: 0,
            calls: mark.calls,
            large: Vec::new(),
        }
    }

    /// Length of the log in bytes, including what is still in memory.
    pub(crate) fn size(&self) -> u64 {
        self.size_of_frames() + self.block.len() as u64
    }

    fn size_of_frames(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Number of calls, including those before this process.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// Appends a call and its value.
    pub(crate) fn append(
        &mut self,
        tables: &mut Tables,
        call: &Call,
        value: &Encoded,
    ) -> Result<()> {
        let head = Head {
            kind: call.kind,
            identity: self.text(tables, call.identity),
            site: self.text(tables, call.site),
            draws: call.draws,
            arguments: call.arguments,
            skeleton: self.skeleton(tables, &value.skeleton),
        };
        let mut large = std::mem::take(&mut self.large);
        large.clear();
        for leaf in value.large_leaves() {
            large.push(self.blob(tables, leaf)?);
        }
        record::put(
            &mut self.block,
            &head,
            &self.previous,
            &value.payload,
            &large,
        );
        self.large = large;
        self.previous = head;
        self.calls += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.end_block();
            if self.buffer.len() >= BUFFER_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Hands everything to the operating system. A power loss may still lose it.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.end_block();
        self.write()
    }

    /// The point where the log ends now. All that is before it was handed to the operating system;
    /// it is durable once [`Log::file`] is synced.
    pub(crate) fn mark(&mut self) -> Result<Mark> {
        self.flush()?;
        Ok(Mark {
            offset: self.written,
            calls: self.calls,
        })
    }

    /// The file, for a commit to sync it.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    fn text(&mut self, tables: &mut Tables, id: TextId) -> u64 {
        tables.text_in_log(id).unwrap_or_else(|| {
            self.crc = frame::put(&mut self.buffer, self.crc, Type::Text, tables.text(id));
            tables.define_text(id)
        })
    }

    fn skeleton(&mut self, tables: &mut Tables, skeleton: &[u8]) -> u64 {
        let known = tables.skeleton_in_log(skeleton, self.last_skeleton);
        self.last_skeleton = known.unwrap_or_else(|| {
            self.crc = frame::put(&mut self.buffer, self.crc, Type::Skeleton, skeleton);
            tables.define_skeleton(skeleton)
        });
        self.last_skeleton
    }

    fn blob(&mut self, tables: &mut Tables, bytes: &[u8]) -> Result<u64> {
        let hash: [u8; HASH_BYTES] = *blake3::hash(bytes).as_bytes();
        if let Some(known) = tables.blob_in_log(&hash) {
            return Ok(known);
        }
        let mut head = frame::head(Type::Blob, HASH_BYTES + bytes.len()).to_vec();
        head.extend(hash);
        let crc = crc32c_append(crc32c_append(self.crc, &head), bytes);
        let start = self.size_of_frames() + head.len() as u64;
        let pieces = [&head[..], bytes, &crc.to_le_bytes()];
        if bytes.len() >= BLOCK_BYTES {
            // This bypasses the buffer: the blob may be larger than everything else together.
            // Nothing changes until all of it is written.
            self.write()?;
            let mut end = self.written;
            for piece in pieces {
                self.file.write_at(piece, end)?;
                end += piece.len() as u64;
            }
            self.written = end;
        } else {
            self.buffer.extend(pieces.concat());
        }
        self.crc = crc;
        let size = bytes.len();
        Ok(tables.define_blob(BlobPlace {
            offset: start,
            size,
            hash,
        }))
    }

    fn end_block(&mut self) {
        if !self.block.is_empty() {
            self.crc = frame::put(&mut self.buffer, self.crc, Type::Calls, &self.block);
            self.block.clear();
            self.previous = Head::default();
        }
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// A missing log counts as a damaged one.
fn or_damaged(path: &Path, error: Error) -> Error {
    if error.is_not_found() {
        Damaged::new(path, 0, "it is gone").into()
    } else {
        error
    }
}
