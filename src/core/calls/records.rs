//! Reads a log from its beginning to its end, to compare it with another one.
//!
//! Unlike a replay this needs no checkpoint: it takes what is there. What a kill has torn at the end is no
//! record.

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

/// One recorded call, with what it returned. Two are equal where a replay would take one for the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which call of the run it is, from 1.
    pub number: u64,
    /// Batches trained by then; of a training call, the batch that it trained, from 1.
    pub batch: u64,
    /// One of [`kind`](super::kind).
    pub kind: u8,
    /// What is called.
    pub identity: Arc<str>,
    /// The script's file and line.
    pub site: Arc<str>,
    /// Random numbers drawn by the script before it.
    pub draws: u64,
    /// Checksum of what the call is given; 0 where it has none.
    pub arguments: u64,
    /// What it returned.
    pub value: Value,
}

/// What a recorded call returned; of large leaves the hash of their bytes.
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
    /// The name of its kind.
    pub fn kind_name(&self) -> &'static str {
        kind::name(self.kind)
    }
}

impl Records {
    /// Opens a log that nobody writes to.
    ///
    /// # Errors
    ///
    /// It is not there, or is none; storage.
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

    /// The next record. A frame that is torn or damaged is an error, and the end.
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
