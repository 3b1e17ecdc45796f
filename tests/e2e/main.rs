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

mod audit;
mod bad_hosts;
mod calls;
mod crossing;
mod fidelity;
mod habits;
mod lifecycle;
mod lists;
mod names;
mod policy;
mod precedence;
mod reverse;
mod self_check;
mod sessions;
mod traps;
