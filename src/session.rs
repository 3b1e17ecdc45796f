//! Host-side state that outlives one message: who calls, what that host can do, what it waits for.
//!
//! Host faces create sessions and callers; the pipeline reads them. Nothing here sends bytes or spawns.

pub mod capability;
pub mod in_flight;
pub mod replay;
pub mod reverse;
pub mod stream;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio_util::sync::CancellationToken;

use crate::identity::Identity;
use crate::revision::Revision;

pub use capability::CapabilitySet;
pub use in_flight::InFlight;
pub use reverse::{ReverseAnswer, ReverseTable, ReverseVerdict};
pub use stream::{HostStream, Lane, Sent};

/// How a host reached us.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum HostTransport {
    /// `manifold stdio`, or the command line itself.
    Stdio,
    /// Streamable HTTP over TCP.
    Http,
    /// Streamable HTTP over a Unix socket.
    Unix,
    /// The HTTP+SSE pair of 2024-11-05.
    Sse,
}

impl HostTransport {
    /// The word for logs, audit and status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Unix => "unix",
            Self::Sse => "sse",
        }
    }
}

/// Severity of log messages, as MCP names them, least severe first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum LogLevel {
    /// `debug`
    Debug = 0,
    /// `info`
    Info,
    /// `notice`
    Notice,
    /// `warning`
    Warning,
    /// `error`
    Error,
    /// `critical`
    Critical,
    /// `alert`
    Alert,
    /// `emergency`
    Emergency,
}

impl LogLevel {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Critical, "critical"),
        (Self::Alert, "alert"),
        (Self::Emergency, "emergency"),
    ];

    /// The level of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(level, _)| *level)
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(level, _)| *level == self)
            .map_or("info", |(_, name)| name)
    }
}

/// Who makes a request and what that host can do. One per legacy session, one per modern request.
#[derive(Debug)]
pub struct Caller {
    /// Who it is and how that was proven.
    pub identity: Identity,
    /// `clientInfo.name`, empty if the host gave none.
    pub host_name: Arc<str>,
    /// `clientInfo.version`, empty if the host gave none.
    pub host_version: Arc<str>,
    /// How it reached us.
    pub transport: HostTransport,
    /// The revision in force for this request.
    pub revision: Revision,
    /// What the host declared that we can bridge.
    pub capabilities: CapabilitySet,
    /// The legacy session; `None` for modern requests.
    pub session: Option<Arc<Session>>,
    /// Requests open on the same host connection (stdio) or session; `None` for modern HTTP, where closing the
    /// stream is the only cancellation.
    pub in_flight: Option<Arc<InFlight>>,
    /// Modern: the request's `logLevel`. Legacy callers use the session's.
    pub log_level: Option<LogLevel>,
}

impl Caller {
    /// The least severe log message this caller wants now; `None` wants none.
    #[must_use]
    pub fn wanted_log_level(&self) -> Option<LogLevel> {
        match &self.session {
            Some(session) => session.log_level(),
            None => self.log_level,
        }
    }
}

/// A legacy session: what `initialize` settled, and what lives until the session ends.
#[derive(Debug)]
pub struct Session {
    /// The session id as the host sends it (`Mcp-Session-Id`); a bearer secret, never logged. Empty on stdio.
    pub id: Arc<str>,
    /// A short label for logs, audit and status that does not reveal the id.
    pub label: Arc<str>,
    /// The identity that opened the session; every later request must have the same.
    pub identity: Identity,
    /// Messages that belong to no call: the GET stream, or standard output.
    pub general: Arc<dyn HostStream>,
    /// Open requests of this session.
    pub in_flight: Arc<InFlight>,
    /// Reverse requests that wait for this host's answer.
    pub reverse: ReverseTable,
    /// Cancelled when the session ends, by the host or by us.
    pub ended: CancellationToken,
    log_level: AtomicU8,
    initialized: AtomicBool,
}

impl Session {
    /// A session that has just been initialized.
    #[must_use]
    pub fn new(id: Arc<str>, label: Arc<str>, identity: Identity, general: Arc<dyn HostStream>) -> Self {
        Self {
            id,
            label,
            identity,
            general,
            in_flight: Arc::new(InFlight::default()),
            reverse: ReverseTable::default(),
            ended: CancellationToken::new(),
            log_level: AtomicU8::new(u8::MAX),
            initialized: AtomicBool::new(false),
        }
    }

    /// The level set by `logging/setLevel`; `None` until then, which for legacy servers means: what they like.
    #[must_use]
    pub fn log_level(&self) -> Option<LogLevel> {
        let stored = self.log_level.load(Ordering::Relaxed);
        LogLevel::ALL
            .iter()
            .find(|(level, _)| *level as u8 == stored)
            .map(|(level, _)| *level)
    }

    /// Remembers the level of `logging/setLevel`.
    pub fn set_log_level(&self, level: LogLevel) {
        self.log_level.store(level as u8, Ordering::Relaxed);
    }

    /// Whether `notifications/initialized` has arrived.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Relaxed)
    }

    /// Notes `notifications/initialized`.
    pub fn set_initialized(&self) {
        self.initialized.store(true, Ordering::Relaxed);
    }
}
