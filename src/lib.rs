//! manifold: one MCP server in front of many. This page is the table of contents; `ARCHITECTURE.md` says how the
//! parts fit, `docs/life-of-a-call.md` follows one call through them.

pub mod admin;
pub mod audit;
pub mod catalog;
pub mod cli;
pub mod clock;
pub mod config;
pub mod crypto;
pub mod downstream;
pub mod host;
pub mod identity;
pub mod pipeline;
pub mod policy;
pub mod revision;
pub mod runtime;
pub mod sample;
pub mod session;
pub mod telemetry;
pub mod wire;
