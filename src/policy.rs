//! What may be called, listed and asked: rules over server and local names, compiled once and bound to each item.
//!
//! It owns the rule types, their compilation and the only constructor of [`Permit`]. The catalog binds items with it,
//! the pipeline decides with it, `check` reports its problems. It does no I/O, keeps no state between decisions and
//! never looks at a public name: renaming or prefixing an item changes nothing here.

pub mod compile;
pub mod decide;
pub mod model;
mod pattern;
pub mod permit;

pub use compile::{CompiledPolicy, PolicyProblem, REVERSE_WORDS, Shorthand};
pub use decide::{Bound, Layer, Refusal, decide};
pub use model::{Effect, Kind, PolicyFile, Rule};
pub use permit::Permit;
