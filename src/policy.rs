//! What may be called, listed and asked: rules over server and local names, compiled once and bound to each item.
//!
//! It owns the rule types, their compilation and the only constructor of a permit. The catalog binds items with it,
//! the pipeline decides with it, `check` reports its problems. It does no I/O, keeps no state between decisions and
//! never looks at a public name: renaming or prefixing an item changes nothing here.

pub mod model;

pub use model::{Effect, Kind, PolicyFile, Rule};
