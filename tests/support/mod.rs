//! What the tests share: a directory to work in, `pedl-run` to be started, and interpreters.

mod interpreters;
mod run;

pub(crate) use interpreters::{Host, hosts, python};
pub(crate) use run::{Dir, Output, Running, TestCommand, run_in, script};
