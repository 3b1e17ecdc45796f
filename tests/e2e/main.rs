//! The built daemon between scripted hosts and scriptable servers.

#[path = "../support/mod.rs"]
mod support;

mod self_check;
