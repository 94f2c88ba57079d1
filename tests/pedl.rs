//! The tests of the executable, in one binary: each starts real processes and none sleeps.
//!
//! Tests that need an interpreter run with every one of this machine, in both modes; those that are
//! missing are printed as skipped, with the reason.

#![allow(clippy::print_stderr, reason = "tests say what they skip")]

mod cli;
mod file_sizes;
mod support;
mod unsafe_files;
