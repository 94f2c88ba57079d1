//! Reads a log from its beginning to its end, to compare it with another one.
//!
//! Unlike a replay, this needs no checkpoint: it reads all that is in the log. An incomplete frame
//! that a kill left at the end is not a record.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::divergence::describe;
use super::frame::{Blobs, Frames, Type};
use super::record::{self, Head, kind};
use super::value::Decoder;
use crate::error::Result;
use crate::file::File;

/// The records of a log, in order.
#[derive(Debug)]
pub struct Records {
    frames: Frames,
    texts: Vec<Arc<str>>,
    skeletons: Vec<Arc<[u8]>>,
    blobs: Vec<[u8; 32]>,
    /// The rest of the current frame of calls.
    block: Vec<u8>,
    place: usize,
    previous: Head,
    number: u64,
    batch: u64,
    is_over: bool,
}

/// One recorded call, with what it returned. Two are equal if a replay would accept one for the
/// other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of the call in the run, from 1.
    pub number: u64,
    /// Batches trained by then; for a training call, the batch that it trained, from 1.
    pub batch: u64,
    /// One of [`kind`](super::kind).
    pub kind: u8,
    /// What is called.
    pub identity: Arc<str>,
    /// File and line in the script.
    pub site: Arc<str>,
    /// Random numbers that the script drew before the call.
    pub draws: u64,
    /// Checksum of the arguments; 0 if there is none.
    pub arguments: u64,
    /// What it returned.
    pub value: Value,
}

/// What a recorded call returned; large leaves as hashes of their bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Value {
    skeleton: Arc<[u8]>,
    payload: Vec<u8>,
    large: Vec<[u8; 32]>,
}

impl Value {
    /// A short text, more or less as Python prints it.
    pub fn describe(&self) -> String {
        let decoder = Decoder::new(&self.skeleton, &self.payload);
        describe(decoder, |index| self.large.get(index).copied())
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.describe())
    }
}

impl Record {
    /// The name of the kind.
    pub fn kind_name(&self) -> &'static str {
        kind::name(self.kind)
    }
}

impl Records {
    /// Opens a log that nobody writes to.
    ///
    /// # Errors
    ///
    /// The file does not exist, or is no log; storage.
    pub fn open(path: &Path) -> Result<Self> {
        let file = Arc::new(File::open(path)?);
        let size = file.size()?;
        Ok(Self {
            frames: Frames::new(file, size)?,
            texts: Vec::new(),
            skeletons: Vec::new(),
            blobs: Vec::new(),
            block: Vec::new(),
            place: 0,
            previous: Head::default(),
            number: 0,
            batch: 0,
            is_over: false,
        })
    }

    fn load_block(&mut self) -> Result<bool> {
        while let Some(frame) = self.frames.next(Blobs::Skipped)? {
            let content = self.frames.content();
            match frame.holds {
                Type::Text => self.texts.push(String::from_utf8_lossy(content).into()),
                Type::Skeleton => self.skeletons.push(content.into()),
                Type::Blob => self.blobs.push(
                    content
                        .try_into()
                        .expect("the reader has checked the length"),
                ),
                Type::Calls => {
                    self.block.clear();
                    self.block.extend_from_slice(content);
                    self.place = 0;
                    self.previous = Head::default();
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn take(&mut self) -> Option<Record> {
        let mut rest = &self.block[self.place..];
        let mut large = Vec::new();
        let (head, payload) = record::take(&mut rest, &self.previous, &mut large)?;
        let at = |number: u64| usize::try_from(number).ok();
        let text = |number| self.texts.get(at(number)?).cloned();
        let blob = |&number: &u64| self.blobs.get(at(number)?).copied();
        let value = Value {
            skeleton: self.skeletons.get(at(head.skeleton)?)?.clone(),
            payload: payload.to_vec(),
            large: large.iter().map(blob).collect::<Option<_>>()?,
        };
        let record = Record {
            number: self.number + 1,
            batch: self.batch + u64::from(head.kind == kind::TRAIN),
            kind: head.kind,
            identity: text(head.identity)?,
            site: text(head.site)?,
            draws: head.draws,
            arguments: head.arguments,
            value,
        };
        self.place = self.block.len() - rest.len();
        self.previous = head;
        (self.number, self.batch) = (record.number, record.batch);
        Some(record)
    }
}

impl Iterator for Records {
    type Item = Result<Record>;

    /// The next record. A torn or damaged frame is an error, and ends the iteration.
    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over && self.place == self.block.len() {
            match self.load_block() {
                Ok(is_there) => self.is_over = !is_there,
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        if self.is_over {
            return None;
        }
        let record = self.take();
        self.is_over = record.is_none();
        Some(record.ok_or_else(|| {
            let position = self.frames.position();
            self.frames.damaged(position, "a record is not valid")
        }))
    }
}
