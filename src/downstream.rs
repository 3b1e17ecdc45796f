//! The MCP servers behind us.

pub mod backoff;
pub mod transport;
