//! The layout of the log: header, frames, and the chain of checksums. The module above shows it.

use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};

use super::{Damaged, OtherVersion};
use crate::error::{Error, Result};
use crate::file::{File, memory};

const MAGIC: &[u8; 8] = b"pedlcall";
pub(crate) const VERSION: u32 = 2;
const CRC_BYTES: usize = 4;

/// Where the first frame begins.
pub(super) const HEADER_BYTES: usize = MAGIC.len() + size_of::<u32>() + CRC_BYTES;

/// Length and type, before the content of a frame.
pub(super) const HEAD_BYTES: usize = size_of::<u64>() + 1;

/// A blob begins with a hash of its bytes.
pub(super) const HASH_BYTES: usize = 32;

/// The reader takes pieces of this size from the file. Larger ones are no faster.
const WINDOW_BYTES: usize = 1 << 20;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text = 1,
    Skeleton = 2,
    Blob = 3,
    Calls = 4,
}

impl Type {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Text, Self::Skeleton, Self::Blob, Self::Calls]
            .into_iter()
            .find(|known| *known as u8 == byte)
    }
}

/// The header of a log, and the first link of its chain.
pub(super) fn header() -> ([u8; HEADER_BYTES], u32) {
    let mut header = [0; HEADER_BYTES];
    let (content, crc_field) = header.split_at_mut(HEADER_BYTES - CRC_BYTES);
    let (magic, version) = content.split_at_mut(MAGIC.len());
    magic.copy_from_slice(MAGIC);
    version.copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c(content);
    crc_field.copy_from_slice(&crc.to_le_bytes());
    (header, crc)
}

/// The version of an intact log, whatever version of this program wrote it.
fn version_of(header: &[u8; HEADER_BYTES]) -> Option<u32> {
    let (content, crc) = header.split_at(HEADER_BYTES - CRC_BYTES);
    let (magic, version) = content.split_at(MAGIC.len());
    let is_whole = magic == MAGIC && crc32c(content).to_le_bytes() == *crc;
    is_whole.then(|| u32::from_le_bytes(version.try_into().expect("it was cut to size")))
}

/// The head of a frame.
pub(super) fn head(frame_type: Type, len: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..size_of::<u64>()].copy_from_slice(&(len as u64).to_le_bytes());
    head[size_of::<u64>()] = frame_type as u8;
    head
}

/// Appends a frame, and returns the next link of the chain.
pub(super) fn put(out: &mut Vec<u8>, crc: u32, frame_type: Type, content: &[u8]) -> u32 {
    let start = out.len();
    out.extend(head(frame_type, content.len()));
    out.extend(content);
    let crc = crc32c_append(crc, &out[start..]);
    out.extend(crc.to_le_bytes());
    crc
}

/// A frame that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) holds: Type,
    /// Where the content begins in the file; of a blob, where its bytes after the hash begin.
    pub(super) offset: u64,
    /// Length of the content; of a blob, length of the bytes after the hash.
    pub(super) len: usize,
}

/// Whether the bytes of blobs are read and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blobs {
    Checked,
    /// They were checked before; the chain continues with the stored link.
    Skipped,
}

/// Streams the frames before a mark, and checks each of them.
#[derive(Debug)]
pub(super) struct Frames {
    source: Source,
    crc: u32,
    content: Vec<u8>,
}

impl Frames {
    /// A reader of the frames that end at `end`.
    ///
    /// # Errors
    ///
    /// Damaged, if the file is shorter or has another header.
    pub(super) fn new(file: Arc<File>, end: u64) -> Result<Self> {
        let size = file.size()?;
        if size < end {
            return Err(Damaged::new(file.path(), size, "it ends").into());
        }
        let mut source = Source {
            file,
            position: 0,
            end,
            window: Vec::new(),
            used: 0,
        };
        let (header, crc) = header();
        let mut found = [0; HEADER_BYTES];
        source.read(&mut found)?;
        if found != header {
            return Err(match version_of(&found) {
                Some(version) => OtherVersion::new(source.file.path(), version, VERSION).into(),
                None => source.damaged(0, "it has another header"),
            });
        }
        Ok(Self {
            source,
            crc,
            content: Vec::new(),
        })
    }

    /// The next frame; `None` at the end.
    pub(super) fn next(&mut self, blobs: Blobs) -> Result<Option<Frame>> {
        let start = self.source.position;
        if start == self.source.end {
            return Ok(None);
        }
        let mut head = [0; HEAD_BYTES];
        self.source.read(&mut head)?;
        let (len, type_byte) = head.split_at(size_of::<u64>());
        let len = u64::from_le_bytes(len.try_into().expect("it was cut to size"));
        let room = self.source.rest().saturating_sub(CRC_BYTES as u64);
        let len = usize::try_from(len).ok().filter(|&len| len as u64 <= room);
        let (Some(frame_type), Some(len)) = (Type::from_byte(type_byte[0]), len) else {
            return Err(self.damaged(start, "a frame has no valid head"));
        };
        let hash_bytes = if frame_type == Type::Blob {
            HASH_BYTES
        } else {
            0
        };
        if len < hash_bytes {
            return Err(self.damaged(start, "a frame is too short"));
        }
        // A sparse file can have any size.
        if frame_type != Type::Blob && len as u64 > memory() {
            return Err(self.damaged(start, "a frame is larger than the memory of this machine"));
        }
        self.content.resize(
            if frame_type == Type::Blob {
                HASH_BYTES
            } else {
                len
            },
            0,
        );
        self.source.read(&mut self.content)?;
        let offset = start + (HEAD_BYTES + hash_bytes) as u64;
        let len = len - hash_bytes;

        let mut crc = crc32c_append(crc32c_append(self.crc, &head), &self.content);
        let is_checked = frame_type != Type::Blob || blobs == Blobs::Checked;
        if frame_type == Type::Blob {
            match blobs {
                Blobs::Checked => crc = self.source.checksum(crc, len)?,
                Blobs::Skipped => self.source.skip(len),
            }
        }
        let mut stored = [0; CRC_BYTES];
        self.source.read(&mut stored)?;
        let stored = u32::from_le_bytes(stored);
        if is_checked && crc != stored {
            return Err(self.damaged(start, "a frame has another checksum"));
        }
        self.crc = stored;
        Ok(Some(Frame {
            holds: frame_type,
            offset,
            len,
        }))
    }

    /// The content of the last frame; of a blob, its hash.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

    /// The chain after the last frame.
    pub(super) fn crc(&self) -> u32 {
        self.crc
    }

    pub(super) fn position(&self) -> u64 {
        self.source.position
    }

    pub(super) fn damaged(&self, offset: u64, problem: &'static str) -> Error {
        self.source.damaged(offset, problem)
    }
}

/// Reads the log front to back, in large pieces, up to its end at the mark.
#[derive(Debug)]
struct Source {
    file: Arc<File>,
    position: u64,
    end: u64,
    /// Bytes that were read ahead; the first `used` of them lie before `position`.
    window: Vec<u8>,
    used: usize,
}

impl Source {
    fn rest(&self) -> u64 {
        self.end - self.position
    }

    fn read(&mut self, mut out: &mut [u8]) -> Result<()> {
        if out.len() as u64 > self.rest() {
            return Err(self.damaged(self.position, "a frame is cut off"));
        }
        while !out.is_empty() {
            let len = out.len();
            let piece = self.piece(len)?;
            let (filled, rest) = out.split_at_mut(piece.len());
            filled.copy_from_slice(piece);
            out = rest;
        }
        Ok(())
    }

    /// Continues a checksum over the next `len` bytes.
    fn checksum(&mut self, mut crc: u32, mut len: usize) -> Result<u32> {
        while len > 0 {
            let piece = self.piece(len)?;
            crc = crc32c_append(crc, piece);
            len -= piece.len();
        }
        Ok(crc)
    }

    fn skip(&mut self, len: usize) {
        self.position += len as u64;
        self.used = self.window.len().min(self.used + len);
    }

    /// Takes up to `len` bytes, at least one. The caller knows that they exist.
    fn piece(&mut self, len: usize) -> Result<&[u8]> {
        if self.used == self.window.len() {
            let size = usize::try_from(self.rest())
                .unwrap_or(usize::MAX)
                .min(WINDOW_BYTES);
            self.window.resize(size, 0);
            self.used = 0;
            self.file.read_at(&mut self.window, self.position)?;
        }
        let start = self.used;
        let end = self.window.len().min(start + len);
        self.used = end;
        self.position += (end - start) as u64;
        Ok(&self.window[start..end])
    }

    fn damaged(&self, offset: u64, problem: &'static str) -> Error {
        Damaged::new(self.file.path(), offset, problem).into()
    }
}
