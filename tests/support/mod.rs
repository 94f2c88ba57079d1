//! What the tests share: a working directory, the start of `pedl-run`, and interpreters.

mod interpreters;
mod run;

pub(crate) use interpreters::{Host, hosts, python};
pub(crate) use run::{Dir, Output, Running, TestCommand, run_in, script};
