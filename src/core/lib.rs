//! Trials, recorded calls, checkpoints and the sequencer of pedl-run; knows no Python.
//!
//! A **trial** is one training run, in a separate directory. Its training is divided into **steps**
//! of a fixed number of **batches**. The calls that train are **recorded**; a **checkpoint** holds
//! the state after one of them; a **replay** answers recorded calls up to the checkpoint.
//!
//! | module | what it knows |
//! |---|---|
//! | [`trial`] | the launch message, and the identity of a trial |
//! | [`directory`] | the trial directory: its lock, and `trial.json` |
//! | [`training`] | the training of a trial in one process: connects the modules below |
//! | [`sequencer`] | which workload is next; arithmetic of batches and steps |
//! | [`calls`] | the log of recorded calls |
//! | [`replay`] | what becomes of a call: made, answered, made again; what is due after it |
//! | `console` | the sentences about a training, and its progress |
//! | `saver` | writes checkpoints in the background |
//! | [`checkpoint`] | checkpoints: layout, commit, fall back, retention |
//! | [`retention`] | which checkpoints of an experiment stay |
//! | [`inspect`] | checkpoints for people and tools |
//! | [`live_copy`] | a copy of a trial while it is trained |
//! | [`secrets`] | what looks like a credential |
//! | [`printable`] | untrusted texts, without characters that a terminal interprets |
//! | `metrics` | averages over a step |
//! | [`events`], [`event_kinds`] | the journal for people and tools, and the table of its events |
//! | `file` | files with their paths |
//! | [`error`] | the error type |
//! | [`exit_codes`] | the exit codes |
//!
//! Nothing here prints, and nothing ends the process.

pub mod calls;
pub mod checkpoint;
mod console;
pub mod directory;
pub mod error;
pub mod event_kinds;
pub mod event_stream;
pub mod events;
pub mod exit_codes;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod inspect;
pub mod live_copy;
mod metrics;
pub mod printable;
pub mod replay;
pub mod retention;
mod saver;
pub mod secrets;
pub mod sequencer;
pub mod training;
pub mod trial;
mod varint;
pub mod workload;

pub use error::{Class, Error, Result};
