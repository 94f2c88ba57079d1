//! The log of calls, open: answers from its records first, appends afterwards.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::value::Value;
use super::wire::{
    BLOB, CALLS, Cursor, FRAME_HEAD_BYTES, FrameHead, HASH_BYTES, HEADER_BYTES, SKELETON, TEXT,
    damaged, header, put_frame, put_varint, unzigzag, zigzag,
};
use super::{CallKey, CallKind};
use crate::{Error, Kind, Result};

/// Payloads of more bytes are stored once each, by content. Below, the reference would save nothing.
const INLINE_BYTES: usize = 256;

/// Bytes that may wait in memory. What waits is lost in a crash, and was not promised to anybody.
const BUFFER_BYTES: usize = 1 << 20;

type Hash = [u8; HASH_BYTES];

/// Where a blob's bytes are in the file.
#[derive(Clone, Copy, Debug)]
struct BlobAt {
    offset: u64,
    length: u32,
}

/// A record that was read and not yet asked for.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What identifies it.
    pub key: CallKey,
    skeleton: u32,
    payload: Payload,
}

#[derive(Clone, Debug)]
enum Payload {
    Inline(Vec<u8>),
    Blob(u32),
}


/// Texts or skeletons by id, and their ids.
#[derive(Debug, Default)]
struct Definitions {
    items: Vec<Box<[u8]>>,
    ids: HashMap<Box<[u8]>, u32>,
}

impl Definitions {
    fn id(&self, item: &[u8]) -> Option<u32> {
        self.ids.get(item).copied()
    }

    fn add(&mut self, item: &[u8]) -> u32 {
        let id = u32::try_from(self.items.len()).expect("fewer than 2^32 definitions");
        self.items.push(item.into());
        // A log may repeat a definition; the first id stays the one that is written.
        self.ids.entry(item.into()).or_insert(id);
        id
    }

    fn get(&self, id: u32) -> Result<&[u8]> {
        self.items
            .get(id as usize)
            .map(AsRef::as_ref)
            .ok_or_else(|| damaged("a record names a definition that is not there"))
    }
}

/// The recorded calls of a trial. See the module above for the file.
#[derive(Debug)]
pub struct CallLog {
    path: PathBuf,
    file: File,
    /// Length of the file with what waits in `buffer`.
    end: u64,
    buffer: Vec<u8>,
    texts: Definitions,
    skeletons: Definitions,
    blobs: Vec<BlobAt>,
    blob_ids: HashMap<Hash, u32>,
    /// Bodies of CALLS frames that were not handed out yet.
    frames: VecDeque<Vec<u8>>,
    /// Where the next record begins in the first of `frames`.
    frame_position: usize,
    records_left_in_frame: u64,
    next: Option<Recorded>,
    recorded: u64,
    position: u64,
    /// Draws of the last record read or written; records hold differences.
    draws: u64,
}

impl CallLog {
    /// A new, empty log. What stood in the file is gone.
    pub fn create(path: &Path) -> Result<Self> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| Error::io("create", path, &error))?;
        file.write_all(&header())
            .map_err(|error| Error::io("write", path, &error))?;
        Ok(Self::empty(path, file))
    }

    /// Opens a log and cuts it back to `length`, the one that a checkpoint names.
    ///
    /// # Errors
    ///
    /// Corrupt, if the first `length` bytes are not whole, undamaged frames.
    pub fn open(path: &Path, length: u64) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|error| Error::io("open", path, &error))?;
        let mut log = Self::empty(path, file);
        log.scan(length)?;
        log.file
            .set_len(length)
            .and_then(|()| log.file.seek(SeekFrom::Start(length)))
            .map_err(|error| Error::io("cut back", path, &error))?;
        log.end = length;
        log.read_next()?;
        Ok(log)
    }

    fn empty(path: &Path, file: File) -> Self {
        Self {
            path: path.to_owned(),
            file,
            end: HEADER_BYTES,
            buffer: Vec::new(),
            texts: Definitions::default(),
            skeletons: Definitions::default(),
            blobs: Vec::new(),
            blob_ids: HashMap::new(),
            frames: VecDeque::new(),
            frame_position: 0,
            records_left_in_frame: 0,
            next: None,
            recorded: 0,
            position: 0,
            draws: 0,
        }
    }

    // -- reading ---------------------------------------------------------------------------------

    fn scan(&mut self, length: u64) -> Result<()> {
        let mut reader = BufReader::with_capacity(1 << 16, &self.file);
        let mut start = [0; HEADER_BYTES as usize];
        read_exactly(&mut reader, &mut start)?;
        if start != header() {
            return Err(damaged("it does not begin as one of this version"));
        }
        let mut at = HEADER_BYTES;
        while at < length {
            let mut head = [0; FRAME_HEAD_BYTES as usize];
            read_exactly(&mut reader, &mut head)?;
            let head = FrameHead::parse(head);
            let body_at = at + FRAME_HEAD_BYTES;
            at = body_at + u64::from(head.length);
            if at > length {
                return Err(damaged("a frame reaches over the checkpoint"));
            }
            let mut body = vec![0; head.length as usize];
            read_exactly(&mut reader, &mut body)?;
            if !head.matches(&body) {
                return Err(damaged(&format!("a checksum differs at byte {body_at}")));
            }
            match head.kind {
                TEXT => {
                    self.texts.add(&body);
                }
                SKELETON => {
                    self.skeletons.add(&body);
                }
                BLOB => {
                    let hash = body
                        .first_chunk::<HASH_BYTES>()
                        .ok_or_else(|| damaged("a value ends too early"))?;
                    let id = u32::try_from(self.blobs.len()).expect("fewer than 2^32 blobs");
                    self.blob_ids.insert(*hash, id);
                    self.blobs.push(BlobAt {
                        offset: body_at + HASH_BYTES as u64,
                        length: head.length - HASH_BYTES as u32,
                    });
                }
                CALLS => {
                    self.recorded += Cursor::new(&body).varint()?;
                    self.frames.push_back(body);
                }
                _ => return Err(damaged("a frame of no known type")),
            }
        }
        Ok(())
    }

    fn read_next(&mut self) -> Result<()> {
        self.next = None;
        while let Some(frame) = self.frames.front() {
            let mut cursor = Cursor::new(&frame[self.frame_position..]);
            if self.frame_position == 0 {
                self.records_left_in_frame = cursor.varint()?;
            }
            if self.records_left_in_frame == 0 {
                self.frames.pop_front();
                self.frame_position = 0;
                continue;
            }
            let record = read_record(&mut cursor, self.draws)?;
            self.draws = record.key.draws;
            self.records_left_in_frame -= 1;
            self.frame_position = frame.len() - cursor.left();
            self.next = Some(record);
            return Ok(());
        }
        Ok(())
    }

    /// The next record, where there is one left to answer.
    pub fn peek(&self) -> Option<&Recorded> {
        self.next.as_ref()
    }

    /// Records that were in the log when it was opened.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Calls answered or appended so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The value of the next record, which must have this key.
    ///
    /// # Errors
    ///
    /// Divergence, if the record has another key, or there is none.
    pub fn answer(&mut self, key: CallKey) -> Result<Value> {
        let Some(record) = self.next.take() else {
            return Err(self.diverged("nothing: the record ends before this call", &self.describe(key)));
        };
        if record.key != key {
            return Err(self.diverged(&self.describe(record.key), &self.describe(key)));
        }
        let value = self.value_of(&record)?;
        self.position += 1;
        self.read_next()?;
        Ok(value)
    }

    /// Like [`Self::answer`], for a call that was made again: its value must be the recorded one.
    pub fn check(&mut self, key: CallKey, value: &Value) -> Result<()> {
        let recorded = self.answer(key)?;
        if recorded.encode() == value.encode() {
            return Ok(());
        }
        self.position -= 1;
        let call = self.describe(key);
        Err(self.diverged(
            &format!("{call}, which gave {}", shortened(&recorded)),
            &format!("the same call gave {}", shortened(value)),
        ))
    }

    fn value_of(&self, record: &Recorded) -> Result<Value> {
        let skeleton = self.skeletons.get(record.skeleton)?;
        match &record.payload {
            Payload::Inline(bytes) => Value::decode(skeleton, bytes),
            Payload::Blob(id) => {
                let at = self
                    .blobs
                    .get(*id as usize)
                    .ok_or_else(|| damaged("a record names a value that is not there"))?;
                let mut bytes = vec![0; at.length as usize];
                self.file
                    .read_exact_at(&mut bytes, at.offset)
                    .map_err(|error| Error::io("read", &self.path, &error))?;
                Value::decode(skeleton, &bytes)
            }
        }
    }

    fn describe(&self, key: CallKey) -> String {
        let text = |id| {
            self.texts
                .get(id)
                .map_or_else(|_| "?".into(), |text| String::from_utf8_lossy(text).into_owned())
        };
        let mut line = format!(
            "{} `{}` at {}, after {} random draws",
            key.kind.name(),
            text(key.identity),
            text(key.site),
            key.draws
        );
        if key.arguments > 1 {
            line += &format!(", given {:08x}", key.arguments);
        }
        line
    }

    fn diverged(&self, recorded: &str, now: &str) -> Error {
        Error::new(
            Kind::Divergence,
            format!(
                "the replay differs from the record at call {}\n  recorded: {recorded}\n  now:      {now}\n  \
                 the run was stopped; the checkpoint and the log are kept",
                self.position + 1
            ),
        )
        .with_hint(
            "look for the clock, os.urandom, the order of a set, the environment, or a script or data file that was \
             changed; `--fresh` begins a new trial",
        )
    }

    // -- appending -------------------------------------------------------------------------------

    /// The id of an identity or a place; stored in the log when it is new.
    pub fn intern(&mut self, text: &str) -> Result<u32> {
        if let Some(id) = self.texts.id(text.as_bytes()) {
            return Ok(id);
        }
        self.put(TEXT, &[text.as_bytes()])?;
        Ok(self.texts.add(text.as_bytes()))
    }

    /// Appends calls that were made, as one frame. They are on disk after [`Self::sync`].
    pub fn append(&mut self, calls: &[(CallKey, Value)]) -> Result<()> {
        let mut body = Vec::with_capacity(16 + 24 * calls.len());
        put_varint(&mut body, calls.len() as u64);
        for (key, value) in calls {
            let (skeleton, payload) = value.encode();
            let skeleton = match self.skeletons.id(&skeleton) {
                Some(id) => id,
                None => {
                    self.put(SKELETON, &[&skeleton])?;
                    self.skeletons.add(&skeleton)
                }
            };
            body.push(key.kind as u8);
            put_varint(&mut body, key.identity.into());
            put_varint(&mut body, key.site.into());
            put_varint(&mut body, zigzag(key.draws, self.draws));
            put_varint(&mut body, key.arguments.into());
            put_varint(&mut body, skeleton.into());
            if payload.len() > INLINE_BYTES {
                put_varint(&mut body, u64::from(self.blob(&payload)?) << 1 | 1);
            } else {
                put_varint(&mut body, (payload.len() as u64) << 1);
                body.extend_from_slice(&payload);
            }
            self.draws = key.draws;
        }
        self.put(CALLS, &[&body])?;
        self.position += calls.len() as u64;
        if self.buffer.len() > BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn blob(&mut self, payload: &[u8]) -> Result<u32> {
        let hash = *blake3::hash(payload).as_bytes();
        if let Some(&id) = self.blob_ids.get(&hash) {
            return Ok(id);
        }
        let offset = self.end + FRAME_HEAD_BYTES + HASH_BYTES as u64;
        self.put(BLOB, &[&hash, payload])?;
        let id = u32::try_from(self.blobs.len()).expect("fewer than 2^32 blobs");
        let length = u32::try_from(payload.len()).expect("checked by the frame");
        self.blobs.push(BlobAt { offset, length });
        self.blob_ids.insert(hash, id);
        Ok(id)
    }

    fn put(&mut self, kind: u8, parts: &[&[u8]]) -> Result<()> {
        let before = self.buffer.len();
        put_frame(&mut self.buffer, kind, parts)?;
        self.end += (self.buffer.len() - before) as u64;
        Ok(())
    }

    /// Hands what waits to the operating system, and returns the length of the log.
    pub fn flush(&mut self) -> Result<u64> {
        if !self.buffer.is_empty() {
            self.file
                .write_all(&self.buffer)
                .map_err(|error| Error::io("write", &self.path, &error))?;
            self.buffer.clear();
        }
        Ok(self.end)
    }

    /// A handle with which another thread can sync what was flushed.
    pub fn sync_handle(&self) -> Result<File> {
        self.file
            .try_clone()
            .map_err(|error| Error::io("open", &self.path, &error))
    }

    /// Length in bytes, with what waits.
    pub fn len_bytes(&self) -> u64 {
        self.end
    }
}

fn read_record(cursor: &mut Cursor<'_>, draws_before: u64) -> Result<Recorded> {
    let kind = CallKind::from_number(cursor.byte()?)
        .ok_or_else(|| damaged("a record of no known kind"))?;
    let key = CallKey {
        kind,
        identity: cursor.varint_u32()?,
        site: cursor.varint_u32()?,
        draws: unzigzag(cursor.varint()?, draws_before),
        arguments: cursor.varint_u32()?,
    };
    let skeleton = cursor.varint_u32()?;
    let tag = cursor.varint()?;
    let payload = if tag & 1 == 1 {
        Payload::Blob(u32::try_from(tag >> 1).map_err(|_| damaged("a blob's number"))?)
    } else {
        let length = usize::try_from(tag >> 1).map_err(|_| damaged("a payload's length"))?;
        Payload::Inline(cursor.take(length)?.to_vec())
    };
    Ok(Recorded {
        key,
        skeleton,
        payload,
    })
}

fn read_exactly(reader: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    reader.read_exact(bytes).map_err(|error| {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            damaged("it is shorter than its checkpoint says")
        } else {
            damaged(&error.to_string())
        }
    })
}

/// A value in a message: the numbers of small ones, the shape of large ones.
fn shortened(value: &Value) -> String {
    if let Some(number) = value.as_scalar() {
        return number.to_string();
    }
    match value {
        Value::Str(text) => format!("{text:?}"),
        Value::Dict(entries) if entries.len() <= 8 => {
            let parts: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", shortened(key), shortened(value)))
                .collect();
            format!("{{{}}}", parts.join(", "))
        }
        Value::List(items) | Value::Tuple(items) if items.len() <= 8 => {
            let parts: Vec<String> = items.iter().map(shortened).collect();
            format!("[{}]", parts.join(", "))
        }
        Value::Array {
            dtype,
            shape,
            bytes,
            ..
        } => format!("{dtype}{shape:?} with crc {:08x}", crc32c::crc32c(bytes)),
        _ => format!("{value:?}").chars().take(60).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(identity: u32, draws: u64) -> CallKey {
        CallKey {
            kind: CallKind::Train,
            identity,
            site: 0,
            draws,
            arguments: 0,
        }
    }

    /// A log with a place, an identity and three calls, one of them large. Returns its length.
    fn write_log(path: &Path) -> u64 {
        let mut log = CallLog::create(path).expect("created");
        assert_eq!(log.intern("train.py:3").expect("interned"), 0);
        assert_eq!(log.intern("train model 0").expect("interned"), 1);
        log.append(&[
            (key(1, 7), Value::Float(0.5)),
            (key(1, 7), Value::Bytes(vec![9; 1000])),
        ])
        .expect("appended");
        log.append(&[(key(1, 9), Value::Float(0.25))]).expect("appended");
        log.flush().expect("flushed")
    }

    #[test]
    fn calls_are_answered_in_order_with_their_values() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.log");
        let length = write_log(&path);
        let mut log = CallLog::open(&path, length).expect("opened");
        assert_eq!(log.recorded(), 3);
        assert_eq!(log.intern("train model 0").expect("interned"), 1);
        assert_eq!(log.answer(key(1, 7)).expect("answered"), Value::Float(0.5));
        assert_eq!(
            log.answer(key(1, 7)).expect("answered"),
            Value::Bytes(vec![9; 1000])
        );
        log.check(key(1, 9), &Value::Float(0.25)).expect("equal");
        assert!(log.peek().is_none());
        assert_eq!(log.position(), 3);
    }

    #[test]
    fn what_follows_the_checkpoint_is_cut_off_and_written_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.log");
        let length = write_log(&path);
        let mut torn = std::fs::read(&path).expect("read");
        torn.extend_from_slice(b"\x05\x00\x00");
        std::fs::write(&path, torn).expect("written");
        let mut log = CallLog::open(&path, length).expect("opened");
        for _ in 0..3 {
            let next = log.peek().expect("a record").key;
            log.answer(next).expect("answered");
        }
        log.append(&[(key(1, 9), Value::Bytes(vec![9; 1000]))]).expect("appended");
        let longer = log.flush().expect("flushed");
        // The large value is stored already: only the reference is new.
        assert!(longer - length < 40, "{} bytes", longer - length);
        assert_eq!(CallLog::open(&path, longer).expect("opened").recorded(), 4);
    }

    #[test]
    fn another_call_is_a_divergence_that_names_both_sides() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.log");
        let length = write_log(&path);
        let mut log = CallLog::open(&path, length).expect("opened");
        let error = log.answer(key(1, 8)).expect_err("another number of draws");
        assert_eq!(error.kind(), Kind::Divergence);
        assert_eq!(
            error.to_string(),
            "the replay differs from the record at call 1\n  \
             recorded: training call `train model 0` at train.py:3, after 7 random draws\n  \
             now:      training call `train model 0` at train.py:3, after 8 random draws\n  \
             the run was stopped; the checkpoint and the log are kept"
        );
    }

    #[test]
    fn another_value_is_a_divergence() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.log");
        let length = write_log(&path);
        let mut log = CallLog::open(&path, length).expect("opened");
        let error = log.check(key(1, 7), &Value::Float(0.75)).expect_err("another value");
        assert!(error.to_string().contains("which gave 0.5\n"), "{error}");
        assert!(error.to_string().contains("the same call gave 0.75\n"), "{error}");
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.log");
        let length = write_log(&path);
        let whole = std::fs::read(&path).expect("read");
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, flipped).expect("written");
            let error = CallLog::open(&path, length).expect_err("damage");
            assert!(error.is_corrupt(), "bit {bit}: {error}");
        }
    }

    #[test]
    fn a_training_call_with_two_metrics_takes_less_than_24_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.log");
        let mut log = CallLog::create(&path).expect("created");
        let site = log.intern("train.py:3").expect("interned");
        let logs = |loss: f32| {
            let scalar = |number: f32| Value::Array {
                class: super::super::value::ArrayClass::Tensor,
                dtype: "float32".into(),
                shape: vec![],
                bytes: number.to_le_bytes().to_vec(),
            };
            Value::Dict(vec![
                (Value::Str("accuracy".into()), scalar(loss)),
                (Value::Str("loss".into()), scalar(loss)),
            ])
        };
        let mut call = key(0, 5);
        call.site = site;
        let calls: Vec<_> = (0..100).map(|n: u16| (call, logs(f32::from(n)))).collect();
        log.append(&calls).expect("appended");
        let before = log.len_bytes();
        log.append(&calls).expect("appended");
        assert!(log.len_bytes() - before <= 24 * 100, "{}", log.len_bytes() - before);
    }
}
