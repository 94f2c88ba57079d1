//! Promises of `pedl-run`, by what they are about.

mod configuration;
mod discovery;
mod library;
mod like_python;
mod signals;
mod soak;
mod trials;
mod usage;
mod verbs;
