//! The built daemon between scripted hosts and scriptable servers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test program: helpers are not marked as tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod self_check;
