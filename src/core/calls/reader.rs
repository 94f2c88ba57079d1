//! Reads the log: once as a whole when a trial is opened, then record by record in the replay.

use std::sync::Arc;

use super::frame::{Blobs, Frames, Type};
use super::record::{self, Call, Head};
use super::tables::{BlobPlace, Tables};
use super::value::{Decoder, Encoded};
use super::{Divergence, Mark};
use crate::error::{Bug, Error, Result};
use crate::file::File;

/// Reads and checks everything before a mark, fills the tables with its definitions, and returns
/// the last link of the chain.
///
/// # Errors
///
/// Damaged, if anything differs from what was written.
pub(super) fn load(file: &Arc<File>, mark: Mark, tables: &mut Tables) -> Result<u32> {
    tables.forget_log();
    let mut frames = Frames::new(Arc::clone(file), mark.offset)?;
    let mut calls = 0;
    let mut large = Vec::new();
    while let Some(frame) = frames.next(Blobs::Checked)? {
        match frame.holds {
            Type::Text => {
                let id = tables.intern(frames.content());
                tables.define_text(id);
            }
            Type::Skeleton => {
                tables.define_skeleton(frames.content());
            }
            Type::Blob => {
                let hash = frames
                    .content()
                    .try_into()
                    .expect("the reader has checked the length");
                tables.define_blob(BlobPlace {
                    offset: frame.offset,
                    size: frame.len,
                    hash,
                });
            }
            Type::Calls => {
                let mut rest = frames.content();
                let mut previous = Head::default();
                while !rest.is_empty() {
                    let record = record::take(&mut rest, &previous, &mut large)
                        .filter(|(head, _)| is_defined(tables, head, &large));
                    let problem = "a frame holds a record that is not valid";
                    (previous, _) = record.ok_or_else(|| frames.damaged(frame.offset, problem))?;
                    calls += 1;
                }
            }
        }
    }
    if calls != mark.calls {
        return Err(frames.damaged(
            mark.offset,
            "there are not as many calls as the checkpoint says",
        ));
    }
    Ok(frames.crc())
}

/// Whether the log defines all that a record names before the record.
fn is_defined(tables: &Tables, head: &Head, large: &[u64]) -> bool {
    tables.text_of_log(head.identity).is_some()
        && tables.text_of_log(head.site).is_some()
        && tables.skeleton(head.skeleton).is_some()
        && large.iter().all(|&blob| tables.blob(blob).is_some())
}

/// What a recorded call returned, separate from the log; a buffer that is used again.
#[derive(Debug, Default)]
pub struct Answer {
    skeleton: Option<Arc<[u8]>>,
    payload: Vec<u8>,
    large: Vec<BlobPlace>,
    file: Option<Arc<File>>,
}

impl Answer {
    /// A reader of the nodes of the value.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(self.skeleton.as_deref().unwrap_or(&[]), &self.payload)
    }

    /// Reads the large leaf of this index. `out` has its size.
    ///
    /// # Errors
    ///
    /// Storage, if the file cannot be read.
    pub fn read_large(&self, index: usize, out: &mut [u8]) -> Result<()> {
        let (Some(place), Some(file)) = (self.large.get(index), &self.file) else {
            return Err(Bug(format!("there is no large leaf {index}")).into());
        };
        file.read_at(out, place.offset)
    }

    /// The size of a large leaf; `None` if the value has no such leaf. The size in the skeleton is
    /// not trusted.
    pub fn large_size(&self, index: usize) -> Option<usize> {
        self.large.get(index).map(|place| place.size)
    }

    /// The hash of a large leaf.
    pub(super) fn large_hash(&self, index: usize) -> Option<&[u8; 32]> {
        self.large.get(index).map(|place| &place.hash)
    }
}

/// The records before the checkpoint, in order, while the script catches up with them.
#[derive(Debug)]
pub(crate) struct Replay {
    file: Arc<File>,
    frames: Frames,
    mark: Mark,
    /// The rest of the current frame of calls begins at `place` in its content.
    in_block: bool,
    place: usize,
    previous: Head,
    position: u64,
    next: Option<Record>,
    /// Blobs of the large leaves of `next`.
    large: Vec<u64>,
}

/// A record that was read, but not answered yet.
#[derive(Clone, Copy, Debug)]
struct Record {
    call: Call,
    head: Head,
    /// The place of its payload in the current frame.
    payload: (usize, usize),
}

impl Replay {
    pub(super) fn new(file: Arc<File>, mark: Mark) -> Result<Self> {
        let frames = Frames::new(Arc::clone(&file), mark.offset)?;
        Ok(Self {
            file,
            frames,
            mark,
            in_block: false,
            place: 0,
            previous: Head::default(),
            position: 0,
            next: None,
            large: Vec::new(),
        })
    }

    /// Calls answered so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next recorded call; `None` at the checkpoint.
    pub(crate) fn peek(&mut self, tables: &Tables) -> Result<Option<Call>> {
        self.load_next(tables)?;
        Ok(self.next.map(|record| record.call))
    }

    /// Puts the value of the next record into `answer` and advances, if the record is of this call.
    ///
    /// # Errors
    ///
    /// A [`Divergence`], if it is of another call or does not exist; the record stays the next one.
    pub(crate) fn answer(
        &mut self,
        tables: &Tables,
        call: &Call,
        answer: &mut Answer,
    ) -> Result<()> {
        self.load_next(tables)?;
        let number = self.position + 1;
        let Some(record) = self.next else {
            return Err(Divergence::no_record(tables, number, call).into());
        };
        if record.call != *call {
            return Err(Divergence::of_calls(tables, number, &record.call, call).into());
        }
        let (start, end) = record.payload;
        answer.payload.clear();
        answer.payload.extend(&self.frames.content()[start..end]);
        answer.skeleton = tables.skeleton(record.head.skeleton).cloned();
        answer.large.clear();
        for &blob in &self.large {
            answer.large.extend(tables.blob(blob));
        }
        answer.file = Some(Arc::clone(&self.file));
        self.next = None;
        self.previous = record.head;
        self.position += 1;
        Ok(())
    }

    /// Like [`Replay::answer`], for a call that was made again and must return the same value.
    pub(crate) fn check(
        &mut self,
        tables: &Tables,
        call: &Call,
        value: &Encoded,
        answer: &mut Answer,
    ) -> Result<()> {
        self.answer(tables, call, answer)?;
        let same_leaves = || {
            let now = value
                .large_leaves()
                .map(|leaf| *blake3::hash(leaf).as_bytes());
            now.eq(answer.large.iter().map(|place| place.hash))
        };
        if answer.skeleton.as_deref() == Some(&value.skeleton)
            && answer.payload == value.payload
            && same_leaves()
        {
            return Ok(());
        }
        Err(Divergence::of_values(tables, self.position, call, answer, value).into())
    }

    /// Reads the next record into `self.next`, unless it is already read or the checkpoint is
    /// reached.
    fn load_next(&mut self, tables: &Tables) -> Result<()> {
        if self.next.is_some() || self.position == self.mark.calls {
            return Ok(());
        }
        while !self.in_block || self.place == self.frames.content().len() {
            let frame = self.frames.next(Blobs::Skipped)?;
            let frame = frame.ok_or_else(|| self.damaged("there are too few records"))?;
            self.in_block = frame.holds == Type::Calls;
            self.place = 0;
            self.previous = Head::default();
        }
        let content = self.frames.content();
        let mut rest = &content[self.place..];
        let record = record::take(&mut rest, &self.previous, &mut self.large);
        let place = content.len() - rest.len();
        let record = record.and_then(|(head, payload)| {
            let call = Call {
                kind: head.kind,
                identity: tables.text_of_log(head.identity)?,
                site: tables.text_of_log(head.site)?,
                draws: head.draws,
                arguments: head.arguments,
            };
            let start = payload.as_ptr().addr() - content.as_ptr().addr();
            Some(Record {
                call,
                head,
                payload: (start, start + payload.len()),
            })
        });
        if record.is_none_or(|record| !is_defined(tables, &record.head, &self.large)) {
            return Err(self.damaged("a record is not valid"));
        }
        self.next = record;
        self.place = place;
        Ok(())
    }

    fn damaged(&self, problem: &'static str) -> Error {
        self.frames.damaged(self.frames.position(), problem)
    }
}
