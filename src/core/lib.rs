//! Trials, recorded calls, checkpoints and the sequencer of pedl-run; knows no Python.
//!
//! A **trial** is one training run, in a directory of its own. Its training is cut into **steps** of
//! a fixed number of **batches**. The calls that train are **recorded**; a **checkpoint** holds the
//! state after one of them; a **replay** answers recorded calls up to the checkpoint.
//!
//! | module | what it knows |
//! |---|---|
//! | [`trial`] | the launch message, and who a trial is |
//! | [`directory`] | the trial directory: its lock, and `trial.json` |
//! | [`training`] | one process's training of a trial: ties the modules below together |
//! | [`sequencer`] | which workload is next; arithmetic of batches and steps |
//! | [`calls`] | the log of recorded calls |
//! | `saver` | writes checkpoints in the background |
//! | [`checkpoint`] | checkpoints: layout, commit, fall back, retention |
//! | [`retention`] | which checkpoints of an experiment stay |
//! | [`inspect`] | checkpoints for people and tools |
//! | [`live_copy`] | a copy of a trial that is trained meanwhile |
//! | [`secrets`] | what looks like a credential |
//! | [`printable`] | texts of others, without what a terminal acts upon |
//! | `metrics` | averages over a step |
//! | [`events`], [`event_kinds`] | the journal for people and tools, and the table of its events |
//! | `file` | files with their path |
//! | [`error`] | the one error |
//! | [`exit_codes`] | what a process ends with |
//!
//! Nothing here prints, and nothing ends the process.

pub mod calls;
pub mod checkpoint;
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
pub mod retention;
mod saver;
pub mod secrets;
pub mod sequencer;
pub mod training;
pub mod trial;
mod varint;
pub mod workload;

pub use error::{Class, Error, Result};
