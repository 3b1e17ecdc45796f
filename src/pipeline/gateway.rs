//! The pipeline's state and its front door: one `match` on the method.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::catalogs::{CatalogKey, Catalogs, Settings};
use super::fault::{Fault, result};
use super::listen::Listener;
use super::outcome::{audit_caller, callee};
use super::port::{Downstream, Downstreams};
use super::service::{HostRequest, HostService, Initialize, Reply};
use crate::audit::{self, AuditLog, Event, Record};
use crate::catalog::page::{ListRequest, SERVER_INFO};
use crate::catalog::{Catalog, ListKind};
use crate::clock::SharedClock;
use crate::crypto::Sealer;
use crate::policy::{Kind as PolicyKind, decide};
use crate::revision::{Family, Revision};
use crate::session::{Caller, HostTransport, Lane, LogLevel, ReverseVerdict, Session};
use crate::wire::json::quote;
use crate::wire::{HostId, Member, Message, Outgoing, WireId};

/// Identity key and URI, to the server that named it.
pub(super) type Links = HashMap<(Arc<str>, String), Arc<str>>;

/// See the module.
#[derive(Debug)]
pub struct Gateway {
    pub(super) settings: ArcSwap<Settings>,
    pub(super) catalogs: Catalogs,
    pub(super) downstreams: OnceLock<Arc<dyn Downstreams>>,
    pub(super) sealer: Sealer,
    pub(super) audit: AuditLog,
    pub(super) clock: SharedClock,
    pub(super) started: Instant,
    /// Legacy sessions that have been initialized, by label.
    pub(super) sessions: DashMap<Arc<str>, Arc<Caller>>,
    /// Open `subscriptions/listen` requests.
    pub(super) listeners: DashMap<u64, Arc<Listener>>,
    /// Which server's results named an unlisted URI, per identity; bounded.
    pub(super) links: Mutex<Links>,
    /// Reverse requests outside of calls: by session label, server and the server's id.
    pub(super) loose: DashMap<(Arc<str>, Arc<str>, HostId), u64>,
    pub(super) changed: Notify,
    pub(super) calls: AtomicU64,
    pub(super) in_flight: AtomicUsize,
    pub(super) per_identity: DashMap<Arc<str>, Arc<AtomicUsize>>,
    pub(super) rejected: AtomicU64,
    /// Cancelled when the grace period of a shutdown is over.
    pub(super) aborted: CancellationToken,
    /// Cancelled when listen streams must end.
    pub(super) closing: CancellationToken,
    pub(super) me: Weak<Self>,
}

impl Gateway {
    /// A pipeline without downstreams; attach them before it is used.
    #[must_use]
    pub fn new(settings: Settings, sealer: Sealer, audit: AuditLog, clock: SharedClock) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            settings: ArcSwap::from_pointee(settings),
            catalogs: Catalogs::default(),
            downstreams: OnceLock::new(),
            sealer,
            audit,
            clock,
            started: Instant::now(),
            sessions: DashMap::new(),
            listeners: DashMap::new(),
            links: Mutex::new(HashMap::new()),
            loose: DashMap::new(),
            changed: Notify::new(),
            calls: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            per_identity: DashMap::new(),
            rejected: AtomicU64::new(0),
            aborted: CancellationToken::new(),
            closing: CancellationToken::new(),
            me: me.clone(),
        })
    }

    /// Attaches the downstreams; once.
    pub fn attach(&self, downstreams: Arc<dyn Downstreams>) {
        let _ = self.downstreams.set(downstreams);
    }

    /// Replaces configuration and policy for everything that is decided from now on.
    pub fn apply(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
        self.apply_again();
    }

    /// The servers changed: catalogs are rebuilt and hosts told.
    pub fn apply_again(&self) {
        self.catalogs.invalidate();
        self.changed.notify_one();
    }

    /// The grace period of a shutdown is over: every call that still runs is cancelled downstream, and its host told.
    pub fn abort_calls(&self) {
        self.aborted.cancel();
    }

    /// Ends listen streams with their result; new ones end at once.
    pub fn close_listeners(&self) {
        self.closing.cancel();
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Calls in flight now.
    #[must_use]
    pub fn calls_in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Calls since the start.
    #[must_use]
    pub fn calls_made(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Requests that were refused before policy.
    #[must_use]
    pub fn requests_rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Open legacy sessions and listeners.
    #[must_use]
    pub fn hosts(&self) -> (usize, usize) {
        (self.sessions.len(), self.listeners.len())
    }

    /// What the catalogs had to leave out.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.catalogs.warnings()
    }

    pub(super) fn server(&self, name: &str) -> Option<Arc<dyn Downstream>> {
        self.downstreams.get()?.get(name)
    }

    pub(super) fn servers(&self) -> Vec<Arc<dyn Downstream>> {
        self.downstreams
            .get()
            .map(|downstreams| downstreams.all())
            .unwrap_or_default()
    }

    /// The catalog that this caller lives with. A modern host's does not depend on what it declares.
    pub(super) fn key(caller: &Caller) -> CatalogKey {
        (caller.revision.family() == Family::Legacy).then_some(caller.capabilities)
    }

    /// The catalog of a key, as of now.
    #[must_use]
    pub fn catalog(&self, key: CatalogKey) -> Arc<Catalog> {
        match self.downstreams.get() {
            Some(downstreams) => self
                .catalogs
                .get(key, &self.settings.load(), downstreams.as_ref()),
            None => {
                let settings = self.settings.load();
                Arc::new(Catalog::build(0, &[], &settings.names, &settings.policy, None).catalog)
            }
        }
    }

    /// Waits, up to `start_wait`, for servers that were never listed before.
    pub async fn wait_listed(&self, key: CatalogKey) {
        let servers = self.servers();
        let settings = self.settings.load_full();
        let all = join_all(servers.iter().map(|server| server.listed(key)));
        if tokio::time::timeout(settings.config.start_wait, all)
            .await
            .is_err()
        {
            tracing::debug!("some servers were not listed within start_wait; the list goes out without them");
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether policy lets this server ask hosts such a thing; a refusal is recorded with its rules.
    pub(super) fn reverse_allowed(
        &self,
        server: &Arc<str>,
        word: &str,
        call: Option<u64>,
        caller: &Caller,
        message: &Message,
    ) -> bool {
        let bound = self
            .settings
            .load()
            .policy
            .bind(PolicyKind::Reverse, server, word);
        let Err(refusal) = decide(&bound) else { return true };
        self.audit.record(Record {
            call,
            caller: Some(audit_caller(caller)),
            callee: Some(callee(server)),
            method: message.method().map(|method| method.into_owned().into()),
            kind: Some(PolicyKind::Reverse),
            local: Some(refusal.local().clone()),
            decision: Some(crate::policy::Effect::Deny),
            layer: Some(refusal.layer()),
            rules: Some(refusal.rules().clone()),
            outcome: Some(audit::Outcome::Denied),
            ..Record::new(Event::Denied)
        });
        false
    }

    /// How the progress that a host reports for a reverse request finds its way back.
    pub(super) fn reverse_progress(
        &self,
        server: &Arc<str>,
        caller: &Arc<Caller>,
        token: bytes::Bytes,
    ) -> Box<dyn Fn(Message) + Send> {
        let (server, caller) = (self.server(server), caller.clone());
        Box::new(move |message: Message| {
            let connection = server.as_ref().and_then(|server| server.opened(&caller));
            if let (Some(connection), Some(span)) = (connection, message.span(Member::ProgressToken)) {
                let mut splice = crate::wire::Splice::new();
                splice.replace(span, token.clone());
                connection.notify(splice.apply(message.bytes()));
            }
        })
    }

    pub(super) fn note_reverse(
        &self,
        server: &Arc<str>,
        call: Option<u64>,
        caller: &Caller,
        message: &Message,
        what: &'static str,
    ) {
        self.audit.record(Record {
            call,
            caller: Some(audit_caller(caller)),
            callee: Some(callee(server)),
            method: message.method().map(|method| method.into_owned().into()),
            detail: Some(what.into()),
            ..Record::new(Event::ReverseRequest)
        });
    }

    async fn answer(self: &Arc<Self>, request: HostRequest) -> Reply {
        let method = request.message.method().unwrap_or_default().into_owned();
        let modern = request.caller.revision.family() == Family::Modern;
        if let Some(kind) = ListKind::of_method(&method) {
            return self.list(&request, kind).await;
        }
        let outcome = match method.as_str() {
            "tools/call" | "prompts/get" | "resources/read" | "completion/complete" => {
                return self.call(request, &method).await;
            }
            "resources/subscribe" | "resources/unsubscribe" if !modern => {
                return self.subscribe(request, &method).await;
            }
            "tasks/get" | "tasks/cancel" => return self.task(request, &method).await,
            "tasks/result" if !modern => return self.task(request, &method).await,
            "tasks/update" if modern => return self.task(request, &method).await,
            "tasks/list" if !modern => return self.list_tasks(&request).await,
            "logging/setLevel" if !modern => self.set_level(&request).await,
            "server/discover" if modern => {
                self.wait_listed(None).await;
                Ok(Outgoing::from(self.discover()))
            }
            "subscriptions/listen" if modern => return self.listen(request).await,
            "ping" if !modern => Ok(Outgoing::from("{}")),
            other => Err(Fault::method(other)),
        };
        match outcome {
            Ok(body) => Reply::ok(result(&request.message, body)),
            Err(fault) => reply_fault(&request.message, &fault),
        }
    }

    async fn list(&self, request: &HostRequest, kind: ListKind) -> Reply {
        let caller = &request.caller;
        let key = Self::key(caller);
        self.wait_listed(key).await;
        let catalog = self.catalog(key);
        let settings = self.settings.load();
        if !catalog.offered(caller.revision.family()).serves(kind) {
            // Not advertised: for a modern host the method does not exist, a legacy host gets an empty list.
            if caller.revision.family() == Family::Modern {
                return reply_fault(&request.message, &Fault::method(kind.method()));
            }
        }
        let wanted = ListRequest {
            kind,
            family: caller.revision.family(),
            cursor: request.message.raw(Member::Cursor),
            page_size: settings.config.limits.page_size,
            now_ms: self.now_ms(),
        };
        match catalog.list(wanted, &self.sealer) {
            Ok(body) => Reply::ok(result(&request.message, body)),
            Err(fault) => reply_fault(&request.message, &Fault::params(fault.to_string())),
        }
    }

    fn discover(&self) -> String {
        let catalog = self.catalog(None);
        let versions: Vec<String> = Revision::supported_modern()
            .iter()
            .map(|revision| quote(revision.as_str()))
            .collect();
        let instructions = instructions(&catalog);
        format!(
            "{{\"resultType\":\"complete\",\"supportedVersions\":[{}],\"capabilities\":{}{instructions},\"ttlMs\":0,\"cacheScope\":\"private\",\"_meta\":{{\"io.modelcontextprotocol/serverInfo\":{SERVER_INFO}}}}}",
            versions.join(","),
            String::from_utf8_lossy(catalog.capabilities(Family::Modern)),
        )
    }

    async fn set_level(&self, request: &HostRequest) -> Result<Outgoing, Fault> {
        let level = request
            .message
            .text(Member::Level)
            .and_then(|name| LogLevel::parse(&name))
            .ok_or_else(|| Fault::params("\"level\" must be one of debug, info, notice, warning, error, critical, alert, emergency"))?;
        let Some(session) = &request.caller.session else {
            return Err(Fault::method("logging/setLevel"));
        };
        session.set_log_level(level);
        // Connections that are open are told now, later ones when they open.
        let asks = self.servers().into_iter().filter_map(|server| {
            let listing = server.listing(Self::key(&request.caller))?;
            let connection = server.opened(&request.caller)?;
            let legacy = connection.family() == Family::Legacy;
            (legacy && listing.offers.logging).then(|| {
                connection.ask(
                    "logging/setLevel",
                    format!("{{\"level\":\"{}\"}}", level.as_str()),
                )
            })
        });
        let told = tokio::time::timeout(Duration::from_secs(5), join_all(asks)).await;
        if told.is_err() {
            tracing::debug!("a server did not answer logging/setLevel in time");
        }
        Ok(Outgoing::from("{}"))
    }
}

/// `,"instructions":...` if there are any.
fn instructions(catalog: &Catalog) -> String {
    catalog
        .instructions()
        .map(|text| format!(",\"instructions\":{}", quote(text)))
        .unwrap_or_default()
}

/// The reply for a fault of ours.
pub(super) fn reply_fault(message: &Message, fault: &Fault) -> Reply {
    Reply {
        status: fault.status,
        message: Some(fault.response(message.id().as_ref())),
    }
}

impl HostService for Gateway {
    fn request(self: Arc<Self>, request: HostRequest) -> BoxFuture<'static, Reply> {
        Box::pin(async move {
            let cancel = request.cancel.clone();
            if let Some(downstreams) = self.downstreams.get()
                && request.caller.session.is_none()
            {
                downstreams.host_seen(None);
            }
            let (aborted, message) = (self.aborted.clone(), request.message.clone());
            tokio::select! {
                biased;
                () = aborted.cancelled() => reply_fault(&message, &Fault::shutdown()),
                () = cancel.cancelled() => Reply::cancelled(),
                reply = self.answer(request) => reply,
            }
        })
    }

    fn notification(&self, caller: &Arc<Caller>, message: Message) {
        match message.method().as_deref() {
            Some("notifications/cancelled") => {
                let id = message.shared(Member::RequestId).map(HostId::from_raw);
                if let (Some(id), Some(table)) = (id, &caller.in_flight) {
                    table.cancel(&id);
                }
            }
            Some("notifications/initialized") => {
                if let Some(session) = &caller.session {
                    session.set_initialized();
                }
            }
            Some("notifications/progress") => {
                let id = message.raw(Member::ProgressToken).and_then(WireId::from_raw);
                if let (Some(id), Some(session)) = (id, &caller.session) {
                    session.reverse.progress(id.0, message);
                }
            }
            Some("notifications/roots/list_changed") => {
                for server in self.servers() {
                    if let Some(connection) = server.opened(caller)
                        && connection.family() == Family::Legacy
                        && connection
                            .capabilities()
                            .has(crate::session::CapabilitySet::ROOTS_LIST_CHANGED)
                    {
                        connection.notify(
                            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}".into(),
                        );
                    }
                }
            }
            _ => {}
        }
    }

    fn response(&self, caller: &Arc<Caller>, message: Message) -> ReverseVerdict {
        let verdict = match &caller.session {
            Some(session) => session.reverse.answer(message),
            None => ReverseVerdict::Unknown,
        };
        if verdict == ReverseVerdict::Unknown {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            self.audit.record(Record {
                caller: Some(audit_caller(caller)),
                detail: Some("an answer to a request that was never made to this host".into()),
                ..Record::new(Event::Rejected)
            });
        }
        verdict
    }

    fn initialize(&self, initialize: Initialize) -> BoxFuture<'_, String> {
        Box::pin(async move {
            let caller = initialize.caller;
            if let Some(downstreams) = self.downstreams.get() {
                downstreams.host_seen(Some(caller.capabilities));
            }
            if let Some(session) = &caller.session {
                self.sessions.insert(session.label.clone(), caller.clone());
            }
            // Capabilities and instructions are told once per session: servers never seen before get their chance.
            self.wait_listed(None).await;
            let catalog = self.catalog(Self::key(&caller));
            format!(
                "{{\"protocolVersion\":\"{}\",\"capabilities\":{},\"serverInfo\":{SERVER_INFO}{}}}",
                caller.revision.as_str(),
                String::from_utf8_lossy(catalog.capabilities(Family::Legacy)),
                instructions(&catalog),
            )
        })
    }

    fn session_ended(&self, session: &Arc<Session>) {
        self.sessions.remove(&session.label);
        self.loose.retain(|(label, _, _), _| *label != session.label);
        for server in self.servers() {
            server.session_ended(session);
        }
    }

    fn rejected(&self, transport: HostTransport, what: &'static str, detail: &str) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(transport = transport.as_str(), what, "{detail}");
        self.audit.record(Record {
            detail: Some(what.into()),
            ..Record::new(Event::Rejected)
        });
    }
}

impl Gateway {
    /// Tells every session and listener that a list changed for them.
    pub(super) fn announce(&self, key: CatalogKey, kinds: &[&'static str]) {
        for method in kinds {
            let text: Outgoing = Outgoing::from(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}"));
            for entry in self.sessions.iter() {
                let caller = entry.value();
                if Self::key(caller) != key {
                    continue;
                }
                if let Some(session) = caller.session.as_ref().filter(|session| session.is_initialized()) {
                    session.general.send(Lane::Notice, text.clone());
                }
            }
            if key.is_none() {
                for entry in self.listeners.iter() {
                    entry.value().list_changed(method);
                }
            }
        }
    }
}
