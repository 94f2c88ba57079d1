//! Promises of `pedl-run`, by what they are about.

mod discovery;
mod like_python;
mod signals;
mod trials;
mod usage;
mod verbs;
