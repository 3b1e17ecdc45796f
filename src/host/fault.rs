//! The errors that host faces make themselves, as JSON-RPC text.
//!
//! Every one carries `data.manifold`, so that a person can tell that the request never reached a server. Host faces
//! and the administration listener call this; the pipeline has its own refusals.

use std::borrow::Cow;

use crate::wire::json::quote;
use crate::wire::{HostId, Outgoing};

/// Not JSON.
pub const PARSE: i32 = -32700;
/// Not a message that may be sent here.
pub const INVALID_REQUEST: i32 = -32600;
/// No such method.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// Parameters missing or wrong.
pub const INVALID_PARAMS: i32 = -32602;
/// Headers and body disagree.
pub const HEADER_MISMATCH: i32 = -32020;
/// A version we do not speak.
pub const UNSUPPORTED_VERSION: i32 = -32022;
/// We failed, or a limit of ours is reached.
pub const INTERNAL: i32 = -32603;
/// A limit is reached, try again later; told apart by `data.manifold`.
pub const BUSY: i32 = INTERNAL;

/// One error of a face.
#[derive(Clone, Debug)]
pub struct Fault {
    /// HTTP status.
    pub status: u16,
    /// JSON-RPC code.
    pub code: i32,
    /// A stable short word for `data.manifold.code`, the audit log and the counters.
    pub what: &'static str,
    /// For people.
    pub message: Cow<'static, str>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Further members of `data`, JSON text joined by commas; empty for none.
    pub data: String,
}

impl Fault {
    /// An error that will not go away by itself.
    #[must_use]
    pub fn new(status: u16, code: i32, what: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            code,
            what,
            message: message.into(),
            retryable: false,
            data: String::new(),
        }
    }

    /// The same, marked as worth another try.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// The same with further members of `data`.
    #[must_use]
    pub fn with_data(mut self, members: impl Into<String>) -> Self {
        self.data = members.into();
        self
    }

    /// The JSON-RPC error response; without an id if none could be read.
    #[must_use]
    pub fn to_json(&self, id: Option<&HostId>) -> String {
        let id = id
            .map(|id| format!("\"id\":{},", String::from_utf8_lossy(id.raw())))
            .unwrap_or_default();
        let side = if self.code == INTERNAL { "manifold" } else { "host" };
        let comma = if self.data.is_empty() { "" } else { "," };
        format!(
            "{{\"jsonrpc\":\"2.0\",{id}\"error\":{{\"code\":{},\"message\":{},\"data\":{{{}{comma}\"manifold\":{{\"side\":\"{side}\",\"code\":{},\"retryable\":{}}}}}}}}}",
            self.code,
            quote(&self.message),
            self.data,
            quote(self.what),
            self.retryable,
        )
    }

    /// The same as a message to send.
    #[must_use]
    pub fn to_message(&self, id: Option<&HostId>) -> Outgoing {
        Outgoing::from(self.to_json(id))
    }
}

/// The response with this `result` (JSON text).
#[must_use]
pub fn result(id: &HostId, result: &str) -> Outgoing {
    Outgoing::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}",
        String::from_utf8_lossy(id.raw())
    ))
}
