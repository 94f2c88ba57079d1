//! The replay: the one place that decides what becomes of a call of the script.
//!
//! After a kill the script runs again from its first line. Its calls into a framework are answered
//! from the log of calls, up to the last one before the checkpoint; there hooks put the saved state
//! in, and from then on every call is made and recorded.
//!
//! # Who owns what
//!
//! Core owns
//!
//! - the log, its records, and the place in it;
//! - the [`State`], and every transition of it;
//! - whether a call is made, answered or made again ([`Next`]);
//! - whether a record is of this call, and the message if it is not;
//! - what is due after a batch ([`Due`]).
//!
//! The hooks own
//!
//! - how a call is identified: kind, identity, place in the script, random numbers drawn, and a
//!   checksum of its arguments;
//! - how it is made (`compute`), what is done in its place if it is answered (`skip`), and how its
//!   record becomes a value (`decode`);
//! - which calls belong into the log: the outermost ones of the main thread;
//! - the state of the framework in a checkpoint, and its restoration at the resume point;
//! - doing what is due.
//!
//! # States
//!
//! ```text
//!                begin, a checkpoint                     the last call before the
//!   Untouched ------------------------> Replaying --.    checkpoint is answered
//!       |                                 ^ answer | |
//!       |                                 `--------' |
//!       |  begin, no checkpoint                      v           close
//!       `------------------------------------------> Live --------------> Closed
//!                                                  ^ record |   the script has ended
//!                                                  `--------'
//!   any state -- stand aside --> Inert     a forked child, a worker server, a bug of ours
//! ```
//!
//! [`State::after`] is the whole table, and a test covers every pair of a state and an event. What
//! has no transition is an error: a call that is recorded in a replay, or answered outside of one,
//! is a bug; the end of the script in a replay is a divergence, also after the process was closed.
//!
//! # What becomes of a call
//!
//! ```text
//! kind of call                          Live        Replaying
//! compute function: train, test,        made,       answered; made again if its record says that
//!   predict                             recorded      it built something (it traced)
//! read, metrics, validation             made,       answered
//!                                       recorded
//! save, load of weights (composite)     made,       answered; its files come from the
//!                                       recorded      checkpoint
//! the script's act: write, entry,       its         done again, and its checksum is compared
//!   load of a model (checked)           checksum
//!                                       recorded
//! ```
//!
//! Inside of a recorded call, in another thread and in a forked child every call is only made.
//! Training in another thread, and a read there of what training changed, are causes of inexact
//! resume.
//!
//! A call of a step callback of the script would have to be recorded; it is refused.
//!
//! Tests build a log and a replay of it by `canned::Canned`, without any framework.

#[cfg(test)]
mod canned;
mod due;
mod session;
mod state;

pub use due::Due;
pub use session::{Next, Session};
pub use state::{Event, State};

#[cfg(test)]
mod tests;
