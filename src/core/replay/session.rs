//! The calls of one process: recorded in the log, or answered from it.

use std::path::Path;
use std::sync::Arc;

use super::state::{Event, State};
use crate::calls::value::Encoded;
use crate::calls::{Answer, Call, Divergence, Log, Mark, Replay, TRACED, Tables, TextId};
use crate::error::{Bug, Error, Result};
use crate::file::File;

/// What becomes of a call that the script makes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// It is made, and its result is recorded.
    Compute,
    /// It is not made: its record is its result.
    Answer,
    /// It is made, because it built something when it was made first. Its result is compared with
    /// the record, or discarded if calls before it were not made.
    Remake,
    /// It is made, and nothing is recorded.
    Pass,
}

/// The calls of one process.
#[derive(Debug, Default)]
pub struct Session {
    state: State,
    tables: Tables,
    log: Option<Log>,
    replay: Option<Replay>,
    /// The number of calls before the checkpoint.
    resume_call: u64,
}

impl Session {
    /// The state of the replay.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// The texts of the calls.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The id of a text. Available in every state.
    pub(crate) fn intern(&mut self, text: &[u8]) -> TextId {
        self.tables.intern(text)
    }

    /// The id that has this number.
    pub(crate) fn id(&self, number: u32) -> Option<TextId> {
        self.tables.id(number)
    }

    /// Opens the log of a trial up to the mark of a checkpoint.
    pub(crate) fn open(&mut self, path: &Path, mark: Mark) -> Result<Log> {
        Log::open(path, mark, &mut self.tables)
    }

    /// The trial begins.
    ///
    /// Args:
    ///     `path`: of the log, which is created if there is none.
    ///     `log`: the log up to the checkpoint; it is cut there.
    ///     `recorded`: the number of calls before the checkpoint.
    pub(crate) fn begin(&mut self, path: &Path, log: Option<Log>, recorded: u64) -> Result<()> {
        let is_recorded = recorded > 0;
        let next = self.after(Event::Begin { is_recorded })?;
        let log = match log {
            Some(log) => {
                log.cut_back()?;
                self.replay = Some(log.replay()?);
                log
            }
            None => Log::create(path, &mut self.tables)?,
        };
        self.log = Some(log);
        self.resume_call = recorded;
        self.state = next;
        Ok(())
    }

    /// What becomes of the call that the script makes now.
    ///
    /// Args:
    ///     `may_trace`: whether the call, made again, builds what it built the first time.
    ///
    /// # Errors
    ///
    /// Corrupt, or storage; a bug, before the trial has begun.
    pub fn next(&mut self, may_trace: bool) -> Result<Next> {
        match self.state {
            State::Untouched => Err(not_begun()),
            State::Live => Ok(Next::Compute),
            State::Closed | State::Inert => Ok(Next::Pass),
            State::Replaying => {
                let record = if may_trace { self.peek()? } else { None };
                // Without a record, `answer` reports the divergence.
                let traced = record.is_some_and(|call| call.arguments & TRACED != 0);
                Ok(if traced { Next::Remake } else { Next::Answer })
            }
        }
    }

    /// Records a call that was made, and its result. It stays in memory until [`Session::flush`].
    pub(crate) fn append(&mut self, call: &Call, value: &Encoded) -> Result<()> {
        let next = self.after(Event::Record)?;
        let log = self.log.as_mut().ok_or_else(not_begun)?;
        log.append(&mut self.tables, call, value)?;
        self.state = next;
        Ok(())
    }

    /// Puts the result in the next record into `answer`, if that record is of this call. Returns
    /// whether it is the last one before the checkpoint.
    #[inline]
    pub(crate) fn answer(&mut self, call: &Call, answer: &mut Answer) -> Result<bool> {
        let replay = replaying(self.state, &mut self.replay)?;
        replay.answer(&self.tables, call, answer)?;
        self.answered()
    }

    /// Like [`Session::answer`], for a call that was made again: its result must be the same.
    #[inline]
    pub(crate) fn check(
        &mut self,
        call: &Call,
        value: &Encoded,
        answer: &mut Answer,
    ) -> Result<bool> {
        let replay = replaying(self.state, &mut self.replay)?;
        replay.check(&self.tables, call, value, answer)?;
        self.answered()
    }

    #[inline]
    fn answered(&mut self) -> Result<bool> {
        let answered = self.replay.as_ref().map_or(0, Replay::position);
        let is_last = answered >= self.resume_call;
        self.state = self.after(Event::Answer { is_last })?;
        Ok(is_last)
    }

    /// The next record; `None` if the replay is over.
    pub(crate) fn peek(&mut self) -> Result<Option<Call>> {
        match &mut self.replay {
            Some(replay) => replay.peek(&self.tables),
            None => Ok(None),
        }
    }

    /// The number of calls before the checkpoint; 0 if there is none.
    pub fn resume_call(&self) -> u64 {
        self.resume_call
    }

    /// The number of calls that were answered or recorded.
    pub fn position(&self) -> u64 {
        match (&self.replay, &self.log) {
            (Some(replay), _) if replay.position() < self.resume_call => replay.position(),
            (_, Some(log)) => log.calls(),
            (_, None) => 0,
        }
    }

    /// The number of bytes of the log.
    pub(crate) fn size(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::size)
    }

    /// Hands the recorded calls to the operating system. Not durable.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.log.as_mut().map_or(Ok(()), Log::flush)
    }

    /// The end of the recorded calls, for a checkpoint.
    pub(crate) fn mark(&mut self) -> Result<Mark> {
        self.log.as_mut().ok_or_else(not_begun)?.mark()
    }

    /// The file of the log.
    pub(crate) fn file(&self) -> Result<Arc<File>> {
        Ok(self.log.as_ref().ok_or_else(not_begun)?.file())
    }

    /// The script has reached its end.
    ///
    /// # Errors
    ///
    /// A divergence, if it made fewer calls than were recorded before the checkpoint; corrupt, or
    /// storage.
    pub(crate) fn end(&mut self, is_recorded: bool) -> Result<()> {
        if let Some(next) = self.state.after(Event::End { is_recorded }) {
            self.state = next;
            return Ok(());
        }
        let recorded = self.peek()?;
        let number = self.position() + 1;
        Err(Divergence::ended(&self.tables, number, recorded.as_ref()).into())
    }

    /// The process ends.
    pub(crate) fn close(&mut self) {
        self.state = self.state.after(Event::Close).unwrap_or(State::Closed);
    }

    fn after(&self, event: Event) -> Result<State> {
        self.state
            .after(event)
            .ok_or_else(|| impossible(self.state, event))
    }
}

fn replaying(state: State, replay: &mut Option<Replay>) -> Result<&mut Replay> {
    let is_last = false;
    let replay = replay
        .as_mut()
        .filter(|_| state.after(Event::Answer { is_last }).is_some());
    replay.ok_or_else(|| impossible(state, Event::Answer { is_last }))
}

fn not_begun() -> Error {
    Bug("the trial has not begun".to_owned()).into()
}

fn impossible(state: State, event: Event) -> Error {
    let what = match event {
        Event::Begin { .. } => "the trial begins",
        Event::Answer { .. } => "a call is to be answered",
        Event::Record => "a call is to be recorded",
        Event::End { .. } => "the script ends",
        Event::Close => "the process ends",
        Event::StandAside => "the process stands aside",
    };
    Bug(format!("{what}, and the replay is {}", state.name())).into()
}
