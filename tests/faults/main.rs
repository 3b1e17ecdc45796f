//! Faults that users of comparable gateways met in the field, by the identifiers of the collection, on the built binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test program: helpers are not marked as tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod children;
mod correlation;
mod edge;
mod fidelity;
mod isolation;
mod names;
mod operations;
mod sessions;
mod sizes;
