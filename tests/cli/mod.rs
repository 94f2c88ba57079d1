//! Promises of `pedl-run`, by what they are about.

mod checkpoint;
mod configuration;
mod discovery;
mod ignore_files;
mod library;
mod like_python;
mod package;
mod preemption;
mod reference;
mod signals;
mod soak;
mod trials;
mod usage;
mod verbs;
