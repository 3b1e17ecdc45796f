//! What the daemon is made of.
//!
//! [`tasks`] may be used from everywhere above `wire`; everything else here imports the whole crate and is imported
//! by `cli` alone.

pub mod daemon;
pub mod reload;
pub mod signal;
pub mod status;
pub mod tasks;

pub use daemon::{BuildError, Daemon, Role};
