//! Everything that faces hosts: listeners, HTTP routes, the two families of Streamable HTTP, the 2024-11-05 pair and
//! standard input and output.
//!
//! A face reads what a host sends, settles its era, revision and session, and hands requests to the
//! [`HostService`](crate::pipeline::HostService); it writes back what comes of them. It decides nothing about tools,
//! knows no downstream, and holds no request longer than the host's protocol family says.

mod batch;
pub mod body;
pub mod caller;
mod conversation;
pub mod edge;
mod events;
pub mod fault;
pub mod http;
pub mod listener;
pub mod outbox;
pub(crate) mod patience;
mod slot;
mod sse;
pub mod stdio;
mod streamable;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{Limits, Listen};
use crate::pipeline::HostService;
use crate::session::replay::{Replay, ReplayLimits};
use crate::session::table::{Entry, SessionTable, TableLimits};
use crate::wire::JsonLimits;

use outbox::{Outbox, OutboxLimits};

pub use listener::{BoundAddress, Forced, HostServer, ListenError};
pub use stdio::serve_stdio;

/// What the host faces need to know of the configuration.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Path of the Streamable HTTP endpoint, with a leading slash.
    pub path: String,
    /// Whether the 2024-11-05 pair is served at `/sse` and `/messages`.
    pub sse: bool,
    /// Browser origins beyond loopback, as `scheme://host[:port]`.
    pub allowed_origins: Vec<String>,
    /// `Host` names beyond loopback and the bound address, without port.
    pub allowed_hosts: Vec<String>,
    /// Largest request body in bytes.
    pub max_body: usize,
    /// Longest message line on standard input in bytes.
    pub max_line: usize,
    /// Bounds of JSON.
    pub json: JsonLimits,
    /// Bounds of the session table.
    pub sessions: TableLimits,
    /// Bounds of what a session keeps for streams that are taken up again.
    pub replay: ReplayLimits,
    /// Bounds of what waits on one stream.
    pub outbox: OutboxLimits,
    /// Host connections in all; past it no more are accepted until one ends.
    pub connections: usize,
    /// Requests that may be open on one standard-input connection, and in one legacy session.
    pub open_requests: usize,
    /// Messages in one batch.
    pub batch: usize,
    /// How often a silent event stream carries a comment.
    pub keep_alive: Duration,
    /// A host that takes nothing for this long is disconnected.
    pub write_timeout: Duration,
    /// How long a connection may take to send a request's head, also between requests.
    pub head_timeout: Duration,
    /// How long a request's body may take.
    pub body_timeout: Duration,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            path: "/mcp".to_owned(),
            sse: false,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            max_body: 16 * 1024 * 1024,
            max_line: 16 * 1024 * 1024,
            json: JsonLimits::default(),
            sessions: TableLimits {
                total: 1_000,
                per_identity: 256,
                idle: Duration::from_secs(30 * 60),
            },
            replay: ReplayLimits::default(),
            outbox: OutboxLimits::default(),
            connections: 4_096,
            open_requests: 1_024,
            batch: 64,
            keep_alive: Duration::from_secs(15),
            write_timeout: Duration::from_secs(30),
            head_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(60),
        }
    }
}

impl HostSettings {
    /// The settings that a configuration asks for.
    #[must_use]
    pub fn from_config(listen: &Listen, limits: &Limits) -> Self {
        let defaults = Self::default();
        Self {
            path: listen.path.clone(),
            sse: listen.sse,
            allowed_origins: listen.allowed_origins.clone(),
            allowed_hosts: listen.allowed_hosts.clone(),
            max_body: listen.max_body.as_usize(),
            max_line: limits.line.as_usize(),
            json: JsonLimits {
                depth: limits.json_depth,
            },
            sessions: TableLimits {
                total: limits.sessions,
                per_identity: limits.sessions_per_identity,
                idle: limits.session_idle,
            },
            replay: ReplayLimits {
                events: limits.replay_events,
                bytes: limits.replay_bytes.as_usize(),
                ..defaults.replay
            },
            outbox: OutboxLimits {
                notifications: limits.queued_notifications,
                ..defaults.outbox
            },
            connections: limits.connections,
            keep_alive: limits.keep_alive,
            ..defaults
        }
    }
}

/// What the HTTP face keeps beside a legacy session.
#[derive(Debug)]
pub(crate) struct LegacyFace {
    /// What was sent, for streams that are taken up again.
    pub(crate) replay: Replay<Arc<Outbox>>,
    /// Messages that belong to no request.
    pub(crate) general: Arc<Outbox>,
}

pub(crate) type SessionEntry = Entry<LegacyFace>;

/// What all HTTP connections share.
pub(crate) struct Shared {
    pub(crate) service: Arc<dyn HostService>,
    pub(crate) settings: HostSettings,
    pub(crate) table: SessionTable<LegacyFace>,
    pub(crate) pairs: sse::Pairs,
    /// Cancelled when calls in flight are to end: after the grace of a shutdown.
    pub(crate) calls: CancellationToken,
    /// Cancelled at the start of a shutdown: streams that wait for nothing in particular end.
    pub(crate) draining: CancellationToken,
}

impl Shared {
    pub(crate) fn new(service: Arc<dyn HostService>, settings: HostSettings) -> Arc<Self> {
        let told = service.clone();
        let table = SessionTable::new(settings.sessions, move |entry: &Arc<SessionEntry>| {
            entry.face.replay.close(|outbox| outbox.close());
            told.session_ended(&entry.session);
        });
        Arc::new(Self {
            service,
            table,
            pairs: sse::Pairs::default(),
            settings,
            calls: CancellationToken::new(),
            draining: CancellationToken::new(),
        })
    }
}
