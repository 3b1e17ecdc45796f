//! What a host face may ask of the pipeline: the seam between the two.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::session::{Caller, HostStream, ReverseVerdict, Session};
use crate::wire::{Message, Outgoing};

/// One request of a host, with the way back.
#[derive(Debug)]
pub struct HostRequest {
    /// Who asks.
    pub caller: Arc<Caller>,
    /// The request; its revision, identity and headers have been checked by the face.
    pub message: Message,
    /// The call's own stream: progress, log messages and reverse requests go there. The answer does not: it is
    /// what the future returns.
    pub stream: Arc<dyn HostStream>,
    /// Cancelled when the host cancels this request, its session ends or manifold shuts down.
    pub cancel: CancellationToken,
    /// The HTTP headers of a modern request (`Mcp-Param-*` are checked against the tool's schema); `None` on stdio.
    pub headers: Option<Arc<http::HeaderMap>>,
}

/// What a host said in `initialize`.
#[derive(Debug)]
pub struct Initialize {
    /// The caller as it will be for the session's requests; its revision is already negotiated.
    pub caller: Arc<Caller>,
}

/// The answer to one request.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status that a modern face answers with, should nothing have been streamed yet. Legacy faces
    /// answer 200 whatever stands here.
    pub status: u16,
    /// The complete JSON-RPC response; `None` if the host cancelled and must get nothing more.
    pub message: Option<Outgoing>,
}

impl Reply {
    /// A normal answer.
    #[must_use]
    pub fn ok(message: Outgoing) -> Self {
        Self {
            status: 200,
            message: Some(message),
        }
    }

    /// Nothing: the host cancelled.
    #[must_use]
    pub fn cancelled() -> Self {
        Self {
            status: 499,
            message: None,
        }
    }
}

/// The pipeline as host faces see it.
///
/// Dropping the future that [`HostService::request`] returned cancels the request downstream: a modern HTTP face
/// owns it in the response body, so that a closed stream is the cancellation. Legacy faces spawn it, so that a
/// dropped connection cancels nothing.
pub trait HostService: Send + Sync + 'static {
    /// Handles one request (everything but `initialize` and `ping`, which faces answer through
    /// [`HostService::initialize`] and by themselves).
    fn request(self: Arc<Self>, request: HostRequest) -> BoxFuture<'static, Reply>;

    /// Handles one notification of a host. `notifications/cancelled`, `notifications/initialized`,
    /// `notifications/progress` and `notifications/roots/list_changed` have an effect, all others none.
    fn notification(&self, caller: &Arc<Caller>, message: Message);

    /// Hands over a response that a legacy host sent.
    fn response(&self, caller: &Arc<Caller>, message: Message) -> ReverseVerdict;

    /// The `result` object (JSON text) of the host's `initialize`. Called once, right after the session was made.
    fn initialize(&self, initialize: Initialize) -> BoxFuture<'_, String>;

    /// A session has ended (DELETE, idle, standard input closed, shutdown): everything it owned is released.
    fn session_ended(&self, session: &Arc<Session>);

    /// A face refused a request before the pipeline saw it (bad origin, unknown session, unparsable); for the
    /// audit log and the counters. `what` is a stable short code, `detail` is for people.
    fn rejected(&self, transport: crate::session::HostTransport, what: &'static str, detail: &str);
}
