//! Errors that manifold makes, and their one translation to the wire.
//!
//! Every one carries `data.manifold = {side, code, server, retryable}`, so that a person can tell who failed.

use bytes::Bytes;

use super::port::{CallFault, FaultKind};
use crate::wire::json::quote;
use crate::wire::{HostId, Message, Outgoing};

/// Who is to blame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The request is wrong.
    Host,
    /// The server failed.
    Downstream,
    /// We did, or we do not offer it.
    Manifold,
}

impl Side {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Downstream => "downstream",
            Self::Manifold => "manifold",
        }
    }
}

/// One error of ours.
#[derive(Clone, Debug)]
pub struct Fault {
    /// HTTP status for a modern host.
    pub status: u16,
    /// JSON-RPC code.
    pub rpc: i32,
    /// For people.
    pub message: String,
    /// Who.
    pub side: Side,
    /// The stable short word.
    pub code: &'static str,
    /// The server it is about.
    pub server: Option<String>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Further members of `data`, as JSON text `"key":value`, joined by commas.
    pub extra: String,
}

impl Fault {
    /// A fault of the host's request.
    #[must_use]
    pub fn host(rpc: i32, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status: 200,
            rpc,
            message: message.into(),
            side: Side::Host,
            code,
            server: None,
            retryable: false,
            extra: String::new(),
        }
    }

    /// Invalid params.
    #[must_use]
    pub fn params(message: impl Into<String>) -> Self {
        Self::host(-32602, "invalid_params", message)
    }

    /// A method that does not exist here.
    #[must_use]
    pub fn method(method: &str) -> Self {
        Self {
            status: 404,
            ..Self::host(-32601, "unknown_method", format!("Method not found: {method}"))
        }
    }

    /// A tool or prompt that does not exist for this host: the same whether it is hidden or unknown.
    #[must_use]
    pub fn unknown(noun: &str, name: &str) -> Self {
        let code = if noun == "prompt" {
            "unknown_prompt"
        } else {
            "unknown_tool"
        };
        Self::host(-32602, code, format!("Unknown {noun}: {name}"))
    }

    /// A resource that does not exist for this host.
    #[must_use]
    pub fn unknown_resource(uri: &str, modern: bool) -> Self {
        let rpc = if modern { -32602 } else { -32002 };
        let mut fault = Self::host(rpc, "unknown_resource", format!("Resource not found: {uri}"));
        fault.extra = format!("\"uri\":{}", quote(uri));
        fault
    }

    /// Something this version does not do yet.
    #[must_use]
    pub fn not_offered(server: &str, message: impl Into<String>) -> Self {
        Self {
            side: Side::Manifold,
            server: Some(server.to_owned()),
            ..Self::host(-32603, "not_offered", message)
        }
    }

    /// A limit of ours was reached.
    #[must_use]
    pub fn limit(message: impl Into<String>) -> Self {
        Self {
            side: Side::Manifold,
            retryable: true,
            ..Self::host(-32603, "limit", message)
        }
    }

    /// The call was ended by our own end.
    #[must_use]
    pub fn shutdown() -> Self {
        Self {
            side: Side::Manifold,
            retryable: true,
            ..Self::host(
                -32603,
                "shutdown",
                "manifold is stopping and the call did not end within the grace period",
            )
        }
    }

    /// A call that got no answer.
    #[must_use]
    pub fn call(server: &str, fault: &CallFault) -> Self {
        let retryable = match fault.kind {
            FaultKind::Unavailable | FaultKind::Busy => true,
            FaultKind::Lost => !fault.sent,
            _ => false,
        };
        let side = match fault.kind {
            FaultKind::Busy | FaultKind::NotOffered | FaultKind::Cancelled => Side::Manifold,
            _ => Side::Downstream,
        };
        Self {
            status: 200,
            rpc: -32603,
            message: fault.message.clone(),
            side,
            code: fault.kind.as_str(),
            server: Some(server.to_owned()),
            retryable,
            extra: String::new(),
        }
    }

    /// The complete error response. `id` is `None` if the request's could not be read.
    #[must_use]
    pub fn response(&self, id: Option<&HostId>) -> Outgoing {
        let mut out = Outgoing::from("{\"jsonrpc\":\"2.0\"");
        if let Some(id) = id {
            out.push(Bytes::from_static(b",\"id\":"));
            out.push(id.raw().clone());
        }
        let server = self
            .server
            .as_ref()
            .map(|server| format!(",\"server\":{}", quote(server)))
            .unwrap_or_default();
        let extra = if self.extra.is_empty() {
            String::new()
        } else {
            format!(",{}", self.extra)
        };
        out.push(format!(
            ",\"error\":{{\"code\":{},\"message\":{},\"data\":{{\"manifold\":{{\"side\":\"{}\",\"code\":\"{}\"{server},\"retryable\":{}}}{extra}}}}}}}",
            self.rpc,
            quote(&self.message),
            self.side.as_str(),
            self.code,
            self.retryable,
        ));
        out.compact()
    }
}

/// A complete result response of ours: `result` is JSON text.
#[must_use]
pub fn result(message: &Message, result: impl Into<Outgoing>) -> Outgoing {
    let mut out = Outgoing::from("{\"jsonrpc\":\"2.0\",\"id\":");
    if let Some(id) = message.id() {
        out.push(id.raw().clone());
    }
    out.push(Bytes::from_static(b",\"result\":"));
    out.append(result.into());
    out.push(Bytes::from_static(b"}"));
    out.compact()
}
