//! The promises of `pedl-run`, by topic.

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
