//! Trials, recorded calls, checkpoints and the sequencer of pedl-run; knows no Python.

pub mod trial;
