//! Canned logs: a record of calls that a test writes down, and starts that replay it.

use std::path::PathBuf;

use super::Session;
use crate::calls::value::{Encoded, Token};
use crate::calls::{Answer, Call, Mark, kind};
use crate::error::Result;

/// A call as tests write it: its kind, what is called, a checksum of its arguments, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CannedCall {
    pub(super) kind: u8,
    pub(super) identity: &'static str,
    pub(super) arguments: u64,
    pub(super) value: i64,
}

impl CannedCall {
    pub(super) fn with_value(self, value: i64) -> Self {
        Self { value, ..self }
    }

    pub(super) const fn with_arguments(self, arguments: u64) -> Self {
        Self { arguments, ..self }
    }

    fn encoded(self) -> Encoded {
        let mut encoded = Encoded::default();
        encoded.encoder().int(self.value);
        encoded
    }
}

/// A training call of batch `value`.
pub(super) const fn train(value: i64) -> CannedCall {
    canned(kind::TRAIN, "train model 0", value)
}

/// A read of a variable.
pub(super) const fn read(value: i64) -> CannedCall {
    canned(kind::READ, "read variable 0", value)
}

/// A write of a variable by the script.
pub(super) const fn write(checksum: u64) -> CannedCall {
    canned(kind::WRITE, "write variable 0", 0).with_arguments(checksum)
}

const fn canned(kind: u8, identity: &'static str, value: i64) -> CannedCall {
    CannedCall {
        kind,
        identity,
        arguments: 0,
        value,
    }
}

/// A log of calls, and the starts of a trial that use it.
#[derive(Debug)]
pub(super) struct Canned {
    _directory: tempfile::TempDir,
    path: PathBuf,
    /// The place of the checkpoint.
    mark: Option<Mark>,
}

impl Canned {
    /// A log that a first start has recorded: `calls` before its checkpoint, and `lost` after it.
    pub(super) fn of(calls: &[CannedCall], lost: &[CannedCall]) -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("calls.log");
        let mut log = Self {
            _directory: directory,
            path,
            mark: None,
        };
        let mut first = log.start();
        for &call in calls {
            first.make(call).expect("there is room");
        }
        log.mark = (!calls.is_empty()).then(|| first.session.mark().expect("there is room"));
        for &call in lost {
            first.make(call).expect("there is room");
        }
        first.session.flush().expect("there is room");
        log
    }

    /// The bytes of the log.
    pub(super) fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).expect("it is there")
    }

    /// A log that is given as bytes, with `calls` before the checkpoint at its end.
    pub(super) fn of_bytes(bytes: &[u8], calls: u64) -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("calls.log");
        std::fs::write(&path, bytes).expect("there is room");
        let offset = bytes.len() as u64;
        Self {
            _directory: directory,
            path,
            mark: Some(Mark { offset, calls }),
        }
    }

    /// A start that has not made a call.
    pub(super) fn untouched() -> Start {
        Start {
            session: Session::default(),
        }
    }

    /// A start that has begun: it replays the calls before the checkpoint.
    pub(super) fn start(&self) -> Start {
        let mut start = Self::untouched();
        start.begin(self).expect("the log is whole");
        start
    }
}

/// One start of a trial with a canned log.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) session: Session,
}

impl Start {
    pub(super) fn begin(&mut self, log: &Canned) -> Result<()> {
        let opened = match log.mark {
            Some(mark) => Some(self.session.open(&log.path, mark)?),
            None => None,
        };
        let recorded = log.mark.map_or(0, |mark| mark.calls);
        self.session.begin(&log.path, opened, recorded)
    }

    fn call(&mut self, call: CannedCall) -> Call {
        Call {
            kind: call.kind,
            identity: self.session.intern(call.identity.as_bytes()),
            site: self.session.intern(b"train.py:31"),
            draws: 0,
            arguments: call.arguments,
        }
    }

    /// Records a call that was made.
    pub(super) fn make(&mut self, call: CannedCall) -> Result<()> {
        let recorded = self.call(call);
        self.session.append(&recorded, &call.encoded())
    }

    /// Answers a call; returns the recorded value.
    pub(super) fn answer(&mut self, call: CannedCall) -> Result<i64> {
        let mut answer = Answer::default();
        let recorded = self.call(call);
        self.session.answer(&recorded, &mut answer)?;
        match answer.decoder().node() {
            Ok(Token::Int(value)) => Ok(value),
            other => panic!("{other:?} was not recorded"),
        }
    }

    /// Compares a call that was made again.
    pub(super) fn check(&mut self, call: CannedCall) -> Result<()> {
        let mut answer = Answer::default();
        let recorded = self.call(call);
        let is_last = self.session.check(&recorded, &call.encoded(), &mut answer);
        is_last.map(|_| ())
    }
}
