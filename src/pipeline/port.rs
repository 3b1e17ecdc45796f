//! What the pipeline may ask of the downstreams, and what they report back: the seam between the two.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::catalog::listing::Listing;
use crate::policy::Permit;
use crate::revision::{Family, Revision};
use crate::session::{Caller, CapabilitySet, Session};
use crate::wire::{HostId, Message, Outgoing, Splice};

/// The payload that answers a reverse request.
#[derive(Debug)]
pub enum ReverseReply {
    /// The host's response; its id is replaced by the server's own.
    Response(Message),
    /// A result of ours (JSON text), such as roots from the configuration.
    Result(String),
    /// A refusal of ours.
    Error {
        /// JSON-RPC code.
        code: i32,
        /// For people.
        message: String,
    },
}

/// Answers one reverse request of a server, once. Dropping it unanswered refuses the request.
pub struct Responder(Option<Box<dyn FnOnce(ReverseReply) + Send>>);

impl Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Responder")
    }
}

impl Responder {
    /// A responder that runs `send`, which must not wait.
    #[must_use]
    pub fn new(send: impl FnOnce(ReverseReply) + Send + 'static) -> Self {
        Self(Some(Box::new(send)))
    }

    /// Answers.
    pub fn reply(mut self, reply: ReverseReply) {
        if let Some(send) = self.0.take() {
            send(reply);
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(send) = self.0.take() {
            send(ReverseReply::Error {
                code: -32603,
                message: "the host went away before it answered".into(),
            });
        }
    }
}

/// Receives what a server sends about one call while it runs. Called by the reader: must never wait.
pub trait CallSink: Send + Sync + Debug {
    /// Progress of this call; the token is ours.
    fn progress(&self, message: Message);
    /// Any other notification that belongs to this call.
    fn notice(&self, message: Message);
    /// A reverse request that this call caused.
    fn reverse(&self, message: Message, responder: Responder);
    /// The server withdrew a reverse request it had made with this id.
    fn withdrawn(&self, id: &HostId, message: &Message);
    /// How many reverse requests of this call wait for the host; the idle limit does not run meanwhile.
    fn waiting_for_host(&self) -> usize;
}

/// Why a call got no answer from its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The server could not be reached or started.
    Unavailable,
    /// The server's queue is full.
    Busy,
    /// The connection ended while the call ran.
    Lost,
    /// No answer within the idle or the maximum limit.
    TimedOut,
    /// The host cancelled (or policy, or shutdown).
    Cancelled,
    /// The answer is larger than the limit.
    TooLarge,
    /// What the server sent is not an answer.
    Malformed,
    /// The server refuses our credentials.
    Unauthorized,
    /// This combination is not offered by this version.
    NotOffered,
}

impl FaultKind {
    /// The stable word in `data.manifold.code` and the audit log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Busy => "busy",
            Self::Lost => "lost",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::Unauthorized => "unauthorized",
            Self::NotOffered => "not_offered",
        }
    }
}

/// A call without an answer of its server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CallFault {
    /// What kind.
    pub kind: FaultKind,
    /// For people: names the server, the phase and the remedy.
    pub message: String,
    /// Whether any byte of the call was handed to the transport. Only an unsent call may ever be repeated by us.
    pub sent: bool,
    /// The HTTP status that the server answered with, if that was the fault.
    pub status: Option<u16>,
}

impl CallFault {
    /// A fault before anything was sent.
    #[must_use]
    pub fn unsent(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            sent: false,
            status: None,
        }
    }

    /// A fault after the call was handed over.
    #[must_use]
    pub fn sent(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            sent: true,
            status: None,
        }
    }
}

/// One call on its way to a server: the host's message and the edits that are not the connection's own business.
/// The connection adds its id, its progress token and the `_meta` keys of its revision.
#[derive(Debug)]
pub struct OutboundCall {
    /// The host's request.
    pub message: Message,
    /// Names, URIs, task ids and state, already translated.
    pub splice: Splice,
    /// Who asks.
    pub caller: Arc<Caller>,
    /// Where side messages go.
    pub sink: Arc<dyn CallSink>,
    /// The downstream's own name, URI or task id, for `Mcp-Name`.
    pub name: Option<String>,
    /// `Mcp-Param-*` headers for a modern HTTP server: full header name and encoded value.
    pub params: Vec<(String, String)>,
}

/// One live connection to a server.
pub trait DownstreamConnection: Send + Sync + Debug {
    /// The family it speaks.
    fn family(&self) -> Family;
    /// The revision it speaks.
    fn revision(&self) -> Revision;
    /// `stdio`, `http` or `sse`, for the audit log.
    fn transport(&self) -> &'static str;
    /// What the host side declared when it was opened (legacy).
    fn capabilities(&self) -> CapabilitySet;
    /// Makes one call. Dropping the future cancels it downstream.
    fn call(
        self: Arc<Self>,
        permit: Permit,
        call: OutboundCall,
    ) -> BoxFuture<'static, Result<Message, CallFault>>;
    /// Sends a notification of ours or of the host; best effort.
    fn notify(self: Arc<Self>, message: Outgoing);
    /// A request of manifold's own (no host call behind it): `params` is JSON text.
    fn ask(
        self: Arc<Self>,
        method: &'static str,
        params: String,
    ) -> BoxFuture<'static, Result<Message, CallFault>>;
}

/// One configured server.
pub trait Downstream: Send + Sync + Debug {
    /// The server name.
    fn name(&self) -> &Arc<str>;
    /// The family, once known (from a connection or from records).
    fn family(&self) -> Option<Family>;
    /// The last listing made with these host capabilities; the base listing for `None`, and if there is none of
    /// that set.
    fn listing(&self, set: Option<CapabilitySet>) -> Option<Arc<Listing>>;
    /// Resolves when a listing for this set exists or the server has failed to give one; never before the
    /// server had its chance, never later than the server's start limit.
    fn listed(&self, set: Option<CapabilitySet>) -> BoxFuture<'_, ()>;
    /// The connection on which this caller's calls run; opens it if need be.
    fn open<'a>(
        &'a self,
        caller: &'a Arc<Caller>,
    ) -> BoxFuture<'a, Result<Arc<dyn DownstreamConnection>, CallFault>>;
    /// The connection of a legacy session if it is open already.
    fn opened(&self, caller: &Arc<Caller>) -> Option<Arc<dyn DownstreamConnection>>;
    /// A place among the calls in flight to this server; waits in the bounded queue.
    fn admit(&self) -> BoxFuture<'_, Result<tokio::sync::OwnedSemaphorePermit, CallFault>>;
    /// The roots of the configuration, as the `result` of `roots/list`.
    fn roots(&self) -> Option<String>;
    /// Modern: what hosts listen to on this server from now on: resource URIs and task ids, as the server says them.
    /// The future resolves once the server has acknowledged that it tells of all of it; it may be dropped.
    fn watch(&self, uris: Vec<String>, tasks: Vec<String>) -> BoxFuture<'static, ()>;
    /// Whether this session has subscribed to this resource, or to one that it is a part of.
    fn subscribed(&self, caller: &Arc<Caller>, uri: &str) -> bool;
    /// Remembers a resource subscription of a session, so that a new connection can be told again.
    fn note_subscription(&self, caller: &Arc<Caller>, uri: &str, on: bool);
    /// A legacy session has ended: its connections may close.
    fn session_ended(&self, session: &Arc<Session>);
}

/// All configured servers.
pub trait Downstreams: Send + Sync + Debug {
    /// The server of that name.
    fn get(&self, server: &str) -> Option<Arc<dyn Downstream>>;
    /// All, in configuration order.
    fn all(&self) -> Vec<Arc<dyn Downstream>>;
    /// A host is here: a legacy one with what it can do, or (`None`) a modern one. Starts the base connections if
    /// they wait for that.
    fn host_seen(&self, capabilities: Option<CapabilitySet>);
}

/// Receives what servers say outside of calls. Called by readers: must never wait.
pub trait DownstreamEvents: Send + Sync + Debug {
    /// A server's listing changed, appeared or went.
    fn listings_changed(&self);
    /// A resource changed; `uri` as the server says it. `session` is the legacy session that owns the connection.
    fn resource_updated(&self, server: &Arc<str>, session: Option<&Arc<Session>>, message: &Message);
    /// A notification outside of calls (log message, task status) on a connection owned by `session`.
    fn notice(&self, server: &Arc<str>, session: Option<&Arc<Session>>, message: Message);
    /// A reverse request that no call can be named for.
    fn reverse(
        &self,
        server: &Arc<str>,
        session: Option<&Arc<Session>>,
        message: Message,
        responder: Responder,
    );
    /// The server withdrew a reverse request that was made outside of calls.
    fn withdrawn(&self, server: &Arc<str>, session: Option<&Arc<Session>>, id: &HostId, message: &Message);
    /// A server's state changed, for audit and status.
    fn state_changed(&self, server: &Arc<str>, state: &'static str, detail: &str);
}

/// Limits of one call.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// Without progress for this long, the call ends.
    pub idle: Duration,
    /// The call ends after this, progress or not.
    pub max: Duration,
}
