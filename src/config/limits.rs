//! Bounds on everything that a peer can grow, with their defaults.
//!
//! Plain numbers; whoever holds the thing that grows reads its limit here. Past a limit the peer gets a clear error
//! and nobody else notices.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{self, ByteSize};

/// All limits. The request body's is `listen.max_body`; a server's own are `concurrency` and `queue`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The longest message line on a stdio transport.
    pub line: ByteSize,
    /// The longest event on an event stream.
    pub event: ByteSize,
    /// The longest HTTP response body of a downstream.
    pub response_body: ByteSize,
    /// How deep JSON may nest.
    #[schemars(range(min = 16, max = 4096))]
    pub json_depth: u32,
    /// Listed items of one kind (tools, prompts, ...) per server; later ones are left out with a warning.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub list_items: usize,
    /// Pages read of one listing.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub list_pages: usize,
    /// Bytes of one server's listings together.
    pub listing_bytes: ByteSize,
    /// Bytes of one tool's schemas; a tool past it is left out with a warning.
    pub schema_bytes: ByteSize,
    /// Host sessions in all.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub sessions: usize,
    /// Host sessions of one identity.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub sessions_per_identity: usize,
    /// A host session without traffic is forgotten after this long.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub session_idle: Duration,
    /// Calls of one identity in flight at once.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub calls_per_identity: usize,
    /// Calls parked until a host answers a reverse request by retrying.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub parked_calls: usize,
    /// How long a reverse request waits for the host's answer.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub reverse_timeout: Duration,
    /// Last lines of a child's stderr that are kept for error messages.
    #[schemars(range(min = 1, max = 100_000))]
    pub stderr_lines: usize,
    /// Bytes kept of one stderr line.
    pub stderr_line: ByteSize,
    /// Notifications that wait on one stream of a slow host; older progress is coalesced first.
    #[schemars(range(min = 16, max = 1_000_000))]
    pub queued_notifications: usize,
    /// Events kept per session for a stream that is taken up again.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub replay_events: usize,
    /// Bytes of the events kept per session for a stream that is taken up again.
    pub replay_bytes: ByteSize,
    /// Open event streams of one session.
    #[schemars(range(min = 1, max = 10_000))]
    pub streams_per_session: usize,
    /// HTTP connections of hosts in all.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub connections: usize,
    /// Resource subscriptions of one session.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub subscriptions_per_session: usize,
    /// Dedicated connections to one server beyond the base one.
    #[schemars(range(min = 1, max = 100_000))]
    pub connections_per_server: usize,
    /// A dedicated connection to a server is closed after this long without a call.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub connection_idle: Duration,
    /// Items per page of a list that a host reads. 0 = all in one page.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub page_size: usize,
    /// How often a silent event stream carries a comment, so that proxies do not close it.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub keep_alive: Duration,
    /// How long a `list_changed` waits for further changes.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub list_changed_quiet: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line: ByteSize::mebibytes(16),
            event: ByteSize::mebibytes(16),
            response_body: ByteSize::mebibytes(64),
            json_depth: 512,
            list_items: 10_000,
            list_pages: 1_000,
            listing_bytes: ByteSize::mebibytes(64),
            schema_bytes: ByteSize::mebibytes(1),
            sessions: 4_096,
            sessions_per_identity: 2_048,
            session_idle: Duration::from_secs(30 * 60),
            calls_per_identity: 256,
            parked_calls: 1_000,
            reverse_timeout: Duration::from_secs(10 * 60),
            stderr_lines: 200,
            stderr_line: ByteSize::kibibytes(4),
            queued_notifications: 256,
            replay_events: 256,
            replay_bytes: ByteSize::mebibytes(4),
            streams_per_session: 64,
            connections: 4_096,
            subscriptions_per_session: 1_000,
            connections_per_server: 256,
            connection_idle: Duration::from_secs(5 * 60),
            page_size: 0,
            keep_alive: Duration::from_secs(15),
            list_changed_quiet: Duration::from_millis(100),
        }
    }
}
