//! JSON-RPC and MCP framing: bytes in, spans out, spans replaced, bytes out.
//!
//! Pure: no Tokio, no clock, no randomness, nothing of the rest of the crate. Everyone may call it.
//! It never decides anything and never changes a byte that it was not asked to change.

pub mod headers;
pub mod id;
pub mod json;
pub mod lines;
pub mod message;
pub mod method;
pub mod number;
pub mod splice;
pub mod sse;
pub mod strict;

pub use id::{HostId, WireId};
pub use json::{JsonFault, JsonLimits, Span};
pub use message::{Kind, Member, Message, ParseError};
pub use splice::{Outgoing, Splice};
