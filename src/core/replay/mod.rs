//! The replay: the one place that decides what becomes of a call of the script.
//!
//! After a kill the script runs again from its first line. Its calls into a framework are answered
//! from the log of calls, up to the last one before the checkpoint; there hooks put the saved state
//! in, and from then on every call is made and recorded.
//!
//! # Who owns what
//!
//! | core owns | the hooks own |
//! |---|---|
//! | the log, its records, and the place in it | how a call is identified: kind, identity, place in the script, random numbers drawn, checksum of its arguments |
//! | the [`State`], and every transition of it | how a call is made (`compute`), what is done in its place if it is answered (`skip`), and how its record becomes a value (`decode`) |
//! | whether a call is made, answered or made again ([`Next`]) | which calls belong into the log: outermost calls of the main thread |
//! | whether a record is of this call, and the message if it is not | the state of the framework in a checkpoint, and its restoration at the resume point |
//! | what is due after a batch ([`Due`]) | doing it |
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
//! | kind of call | Live | Replaying | in a callback, or inside of a recorded call | another thread | forked child |
//! |---|---|---|---|---|---|
//! | compute function: train, test, predict | made, recorded | answered; **made again** if its record says that it built something (it traced) | made, part of the outer call | made; training there is a cause | made |
//! | read, metrics, validation | made, recorded | answered | made | made; a read of what training changed is a cause | made |
//! | save, load of weights (composite) | made, recorded | answered; its files come from the checkpoint | made | made | made |
//! | the script's own act: write, entry, load of a model (checked) | recorded with a checksum | the script does it again, and its checksum is **compared** | made | made | made |
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
