//! Crate docs follow.
