//! The daemon's view of itself, as `/status` and `manifold status` show it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::daemon::Daemon;
use super::tasks;
use crate::audit::AuditStatus;
use crate::catalog::ListKind;
use crate::pipeline::port::{Downstream, DownstreamConnection};

/// The last reloads.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReloadReport {
    /// How many took effect.
    pub applied: u64,
    /// How many were refused.
    pub refused: u64,
    /// What was wrong with the last refused one, until one takes effect.
    pub last_error: Option<String>,
}

/// One server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The server name.
    pub name: String,
    /// `idle`, `starting`, `ready`, `failed`, `refused`.
    pub state: String,
    /// Since when, RFC 3339.
    pub since: Option<String>,
    /// The stage of the failure it is in.
    pub stage: Option<String>,
    /// For people.
    pub detail: String,
    /// The last failure, even if it is well now.
    pub last_failure: Option<String>,
    /// `stdio`, `http`, `sse`.
    pub transport: Option<String>,
    /// The revision it speaks.
    pub revision: Option<String>,
    /// `legacy` or `modern`.
    pub family: Option<String>,
    /// Tools it lists.
    pub tools: usize,
    /// Prompts it lists.
    pub prompts: usize,
    /// Resources and templates it lists.
    pub resources: usize,
    /// Whether a list could not be read to its end.
    pub incomplete: bool,
    /// Connections (children, HTTP sessions) that are open.
    pub connections: usize,
    /// Calls in flight.
    pub calls_in_flight: usize,
    /// Calls that wait for a place.
    pub queued: usize,
    /// Attempts to start or connect so far.
    pub starts: u64,
    /// The last lines of standard error, if it failed or is a child.
    pub stderr: Vec<String>,
}

/// Everything.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Of manifold.
    pub version: &'static str,
    /// When this process started.
    pub started: String,
    /// Digest of the configuration in force.
    pub configuration: String,
    /// Digest of the policy in force.
    pub policy: String,
    /// Whether everything is allowed for want of a policy.
    pub policy_open: bool,
    /// The servers, in configuration order.
    pub servers: Vec<ServerStatus>,
    /// Legacy sessions.
    pub sessions: usize,
    /// Open `subscriptions/listen` requests.
    pub listeners: usize,
    /// Calls in flight.
    pub calls_in_flight: usize,
    /// Calls since the start.
    pub calls: u64,
    /// Requests refused before policy.
    pub rejected: u64,
    /// What the catalogs left out, and why.
    pub warnings: Vec<String>,
    /// The audit log.
    pub audit: AuditStatus,
    /// Reloads.
    pub reloads: ReloadReport,
    /// Panics that were contained.
    pub panics: u64,
}

fn text(time: Timestamp) -> String {
    time.to_string()
}

impl Daemon {
    /// The status now.
    #[must_use]
    pub fn status(&self) -> Status {
        let settings = self.gateway.settings();
        let mut servers: Vec<ServerStatus> = self
            .downstreams
            .servers()
            .iter()
            .map(|server| server_status(server))
            .collect();
        for (name, problem) in self.refused.load().iter() {
            servers.push(ServerStatus {
                name: name.clone(),
                state: "refused".into(),
                since: None,
                stage: Some("configuration".into()),
                detail: problem.clone(),
                last_failure: None,
                transport: None,
                revision: None,
                family: None,
                tools: 0,
                prompts: 0,
                resources: 0,
                incomplete: false,
                connections: 0,
                calls_in_flight: 0,
                queued: 0,
                starts: 0,
                stderr: Vec::new(),
            });
        }
        let (sessions, listeners) = self.gateway.hosts();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            started: text(self.started),
            configuration: self.digest.load().to_string(),
            policy: settings.policy.digest().to_string(),
            policy_open: settings.policy.is_open(),
            servers,
            sessions,
            listeners,
            calls_in_flight: self.gateway.calls_in_flight(),
            calls: self.gateway.calls_made(),
            rejected: self.gateway.requests_rejected(),
            warnings: self.gateway.warnings(),
            audit: self.audit.status(),
            reloads: self
                .reloads
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clone(),
            panics: tasks::panics(),
        }
    }

    /// Whether hosts can be served: servers marked `required` are up, and the audit can be written.
    ///
    /// # Errors
    /// What is missing, for people.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        let mut missing = Vec::new();
        if self.draining.load(std::sync::atomic::Ordering::Acquire) {
            missing.push("manifold is stopping".into());
        }
        let config = self.config();
        for server in self.downstreams.servers() {
            let required = config.server(server.name()).is_some_and(|server| server.required);
            let state = server.state();
            if required && server.base().is_none() {
                missing.push(format!(
                    "required server \"{}\" is {}",
                    server.name(),
                    state.phase.as_str()
                ));
            }
        }
        if self.audit.status().failing {
            missing.push("the audit log cannot be written".into());
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}

impl crate::admin::StatusSource for Daemon {
    fn ready(&self) -> Result<(), Vec<String>> {
        Self::ready(self)
    }

    fn status_json(&self) -> String {
        serde_json::to_string(&self.status()).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }
}

fn server_status(server: &crate::downstream::server::Server) -> ServerStatus {
    let report = server.state();
    let listing = server.listing(None);
    let count = |kind: ListKind| listing.as_ref().map_or(0, |listing| listing.items(kind).len());
    let connections = server.connections();
    let base = server.base();
    ServerStatus {
        name: server.name().to_string(),
        state: report.phase.as_str().into(),
        since: Some(text(report.since)),
        stage: report.stage.map(Into::into),
        detail: report.detail,
        last_failure: report
            .last_failure
            .map(|(at, what)| format!("{}: {what}", text(at))),
        transport: base.as_ref().map(|base| base.transport().to_owned()),
        revision: base
            .as_ref()
            .and_then(|base| base.facts().map(|facts| facts.revision))
            .or_else(|| listing.as_ref().map(|listing| listing.revision))
            .map(|revision| revision.as_str().to_owned()),
        family: server.family().map(|family| family.as_str().to_owned()),
        tools: count(ListKind::Tools),
        prompts: count(ListKind::Prompts),
        resources: count(ListKind::Resources) + count(ListKind::Templates),
        incomplete: listing.is_some_and(|listing| listing.incomplete),
        calls_in_flight: connections
            .iter()
            .map(|connection| connection.calls_in_flight())
            .sum(),
        connections: connections.len(),
        queued: server.queued(),
        starts: server.starts(),
        stderr: base
            .and_then(|base| base.link().map(crate::downstream::link::Link::stderr_tail))
            .unwrap_or_default(),
    }
}
