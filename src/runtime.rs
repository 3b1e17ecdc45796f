//! What the daemon is made of.
//!
//! [`tasks`] may be used from everywhere above `wire`; everything else here imports the whole crate and is imported
//! by `cli` alone.

pub mod tasks;
