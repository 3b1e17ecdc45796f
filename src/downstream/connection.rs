//! One live connection to a server: our ids, the calls that wait for answers, and where everything else goes.
//!
//! It owns the pending table, which lives and dies with the connection, so a late answer of an old connection can
//! never meet a new call. Readers call [`Connection::dispatch`], which never waits. Who may be called at all is
//! decided before: [`DownstreamConnection::call`] takes a [`Permit`].
//!
//! It is long because the pending table is one secret: whatever adds to it or ends one of its calls is read together.

mod face;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::link::{Link, RequestHead};
use crate::pipeline::port::{CallFault, CallLimits, CallSink, FaultKind, Responder, ReverseReply};
use crate::revision::bridge;
use crate::revision::{Family, Revision};
use crate::session::{CapabilitySet, Session};
use crate::wire::json::quote;
use crate::wire::{HostId, Kind, Member, Message, Outgoing, Splice, WireId};

/// Which stream a message arrived on, as far as the transport can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// On the response stream of this request.
    Call(WireId),
    /// On the connection itself: a pipe, a GET stream.
    Connection,
}

/// What a connection reports to the server it belongs to. Called by readers: must never wait.
pub trait Hooks: Send + Sync + std::fmt::Debug {
    /// A list of this kind changed (the method of the notification).
    fn list_changed(&self, connection: &Arc<Connection>, method: &str);
    /// The server has acknowledged the listen request that was sent last.
    fn acknowledged(&self);
    /// A notification outside of calls.
    fn notice(&self, connection: &Arc<Connection>, message: Message);
    /// A reverse request that no call can be named for.
    fn reverse(&self, connection: &Arc<Connection>, message: Message, responder: Responder);
    /// A reverse request made outside of calls was withdrawn.
    fn withdrawn(&self, connection: &Arc<Connection>, id: &HostId, message: &Message);
    /// The connection has ended.
    fn closed(&self, connection: &Arc<Connection>, why: &str);
}

/// What is fixed when a connection has been opened.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The family it speaks.
    pub family: Family,
    /// The revision it speaks.
    pub revision: Revision,
    /// What was declared to it (legacy).
    pub capabilities: CapabilitySet,
    /// Limits of calls on it.
    pub limits: CallLimits,
}

struct Pending {
    answer: oneshot::Sender<Result<Message, CallFault>>,
    sink: Arc<dyn CallSink>,
    /// Milliseconds since the connection was opened, at the last sign of life of this call.
    active: Arc<AtomicU64>,
    /// Whether the transport has begun to send the request.
    sent: bool,
    /// A call of a host, as opposed to a request of our own; only those can cause reverse requests.
    of_host: bool,
}

/// A live connection. See the module.
pub struct Connection {
    facts: OnceLock<Facts>,
    server: Arc<str>,
    link: OnceLock<Link>,
    owner: ArcSwapOption<Session>,
    next: AtomicU64,
    pending: DashMap<u64, Pending>,
    /// Open reverse requests by the server's id, with the call they were attributed to.
    reverse: Mutex<HashMap<HostId, Option<Weak<dyn CallSink>>>>,
    hooks: Arc<dyn Hooks>,
    opened: Instant,
    closed: CancellationToken,
    why: OnceLock<String>,
    late: AtomicU64,
    is_closed: AtomicBool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.server)
            .field("pending", &self.pending.len())
            .finish()
    }
}

/// Takes the pending entry out and tells the server, unless the call was answered.
struct CallGuard {
    connection: Arc<Connection>,
    id: WireId,
    reason: &'static str,
    cancellable: bool,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let Some((_, pending)) = self.connection.pending.remove(&self.id.0) else {
            return;
        };
        if pending.sent
            && self.cancellable
            && !self.connection.is_closed()
            && let Some(link) = self.connection.link.get()
        {
            link.cancel(&self.connection, self.id, self.reason);
        }
    }
}

impl Connection {
    /// A connection whose transport is not attached yet.
    #[must_use]
    pub fn new(server: Arc<str>, hooks: Arc<dyn Hooks>) -> Arc<Self> {
        Arc::new(Self {
            facts: OnceLock::new(),
            server,
            link: OnceLock::new(),
            owner: ArcSwapOption::empty(),
            next: AtomicU64::new(1),
            pending: DashMap::new(),
            reverse: Mutex::new(HashMap::new()),
            hooks,
            opened: Instant::now(),
            closed: CancellationToken::new(),
            why: OnceLock::new(),
            late: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Attaches the transport; once.
    pub fn attach(&self, link: Link) {
        let _ = self.link.set(link);
    }

    /// Notes what the handshake settled; once.
    pub fn settle(&self, facts: Facts) {
        let _ = self.facts.set(facts);
    }

    /// The transport, if attached.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        self.link.get()
    }

    /// What the handshake settled; `None` before.
    #[must_use]
    pub fn facts(&self) -> Option<&Facts> {
        self.facts.get()
    }

    /// The server name.
    #[must_use]
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }

    /// The legacy session that owns this connection, if it is a dedicated one.
    #[must_use]
    pub fn owner(&self) -> Option<Arc<Session>> {
        self.owner.load_full()
    }

    /// Gives the connection to a session.
    pub fn set_owner(&self, owner: Option<Arc<Session>>) {
        self.owner.store(owner);
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Resolves when it has ended.
    pub async fn ended(&self) {
        self.closed.cancelled().await;
    }

    /// A token that is cancelled when it ends.
    #[must_use]
    pub fn end_token(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// Why it ended.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }

    /// How many calls of hosts wait for answers.
    #[must_use]
    pub fn calls_in_flight(&self) -> usize {
        self.pending.iter().filter(|entry| entry.of_host).count()
    }

    /// Answers that came for calls that nobody waits for any more.
    #[must_use]
    pub fn late_answers(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Ends the connection: every waiting call gets a typed error, at once.
    pub fn close(self: &Arc<Self>, why: &str) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = self.why.set(why.to_owned());
        self.closed.cancel();
        let waiting: Vec<u64> = self.pending.iter().map(|entry| *entry.key()).collect();
        for id in waiting {
            if let Some((_, pending)) = self.pending.remove(&id) {
                let message = format!("server \"{}\": {why}", self.server);
                let _ = pending.answer.send(Err(CallFault {
                    kind: FaultKind::Lost,
                    message,
                    sent: pending.sent,
                    status: None,
                }));
            }
        }
        self.lock_reverse().clear();
        self.hooks.closed(self, why);
    }

    fn lock_reverse(&self) -> std::sync::MutexGuard<'_, HashMap<HostId, Option<Weak<dyn CallSink>>>> {
        self.reverse
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Marks a queued request as being sent. `false` if its call was cancelled: it must not be sent.
    #[must_use]
    pub fn begin_sending(&self, id: WireId) -> bool {
        match self.pending.get_mut(&id.0) {
            Some(mut pending) => {
                pending.sent = true;
                true
            }
            None => false,
        }
    }

    /// Ends one call with a fault that the transport found.
    pub fn fail(&self, id: WireId, kind: FaultKind, message: String) {
        if let Some((_, pending)) = self.pending.remove(&id.0) {
            let _ = pending.answer.send(Err(CallFault {
                kind,
                message,
                sent: pending.sent,
                status: None,
            }));
        }
    }

    /// Ends one call with a fault that knows more than the table does.
    pub fn refuse(&self, id: WireId, fault: CallFault) {
        if let Some((_, pending)) = self.pending.remove(&id.0) {
            let _ = pending.answer.send(Err(fault));
        }
    }

    /// The one call that is in flight, if there is exactly one.
    #[must_use]
    pub fn only_call(&self) -> Option<WireId> {
        let mut calls = self
            .pending
            .iter()
            .filter(|entry| entry.of_host)
            .map(|entry| *entry.key());
        match (calls.next(), calls.next()) {
            (Some(id), None) => Some(WireId(id)),
            _ => None,
        }
    }

    fn sink(&self, id: WireId) -> Option<Arc<dyn CallSink>> {
        self.pending
            .get(&id.0)
            .filter(|pending| pending.of_host)
            .map(|pending| pending.sink.clone())
    }

    /// The call of a progress message, whose idle limit begins anew. Nothing else that a server says may do that: a
    /// server that only logs would hold its calls up to their maximum.
    fn progressed(&self, id: WireId) -> Option<Arc<dyn CallSink>> {
        if let Some(pending) = self.pending.get(&id.0) {
            pending.active.store(self.now(), Ordering::Relaxed);
        }
        self.sink(id)
    }

    /// The call that a message without a token belongs to: the stream's own, else the only one in flight, else, on
    /// a connection that one session owns, the latest.
    fn attribute(&self, origin: Origin) -> Option<Arc<dyn CallSink>> {
        if let Origin::Call(id) = origin
            && let Some(sink) = self.sink(id)
        {
            return Some(sink);
        }
        if let Some(id) = self.only_call() {
            return self.sink(id);
        }
        self.owner.load().as_ref()?;
        let latest = self
            .pending
            .iter()
            .filter(|entry| entry.of_host)
            .map(|entry| *entry.key())
            .max()?;
        self.sink(WireId(latest))
    }

    /// Takes one message of the server. Never waits.
    pub fn dispatch(self: &Arc<Self>, origin: Origin, message: Message) {
        match message.kind() {
            Kind::Result | Kind::Error => self.answered(message),
            Kind::Request => self.reverse_request(origin, message),
            Kind::Notification => self.notification(origin, message),
        }
    }

    fn answered(&self, message: Message) {
        let pending = message.wire_id().and_then(|id| self.pending.remove(&id.0));
        match pending {
            Some((_, pending)) => {
                let _ = pending.answer.send(Ok(message));
            }
            None => {
                self.late.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(server = %self.server, "dropped an answer that no call waits for");
            }
        }
    }

    fn reverse_request(self: &Arc<Self>, origin: Origin, message: Message) {
        let Some(id) = message.id() else { return };
        let modern = self
            .facts
            .get()
            .is_some_and(|facts| facts.family == Family::Modern);
        if modern {
            tracing::warn!(server = %self.server, "dropped a request: servers of this revision may not send any");
            return;
        }
        let method = message.method().unwrap_or_default().into_owned();
        match method.as_str() {
            "ping" => self.respond(&id, ReverseReply::Result("{}".into())),
            "roots/list" | "sampling/createMessage" | "elicitation/create" => {
                let sink = self.attribute(origin);
                self.lock_reverse()
                    .insert(id.clone(), sink.as_ref().map(Arc::downgrade));
                let (connection, server_id) = (Arc::downgrade(self), id);
                let responder = Responder::new(move |reply| {
                    if let Some(connection) = connection.upgrade()
                        && connection.lock_reverse().remove(&server_id).is_some()
                    {
                        connection.respond(&server_id, reply);
                    }
                });
                match sink {
                    Some(sink) => sink.reverse(message, responder),
                    None => self.hooks.reverse(self, message, responder),
                }
            }
            other => {
                let message = format!("method not found: {other}");
                self.respond(
                    &id,
                    ReverseReply::Error {
                        code: -32601,
                        message,
                    },
                );
            }
        }
    }

    fn respond(self: &Arc<Self>, id: &HostId, reply: ReverseReply) {
        let outgoing = match reply {
            ReverseReply::Response(message) => {
                let mut splice = Splice::new();
                if let Some(span) = message.id_span() {
                    splice.replace(span, id.raw().clone());
                }
                splice.apply(message.bytes())
            }
            ReverseReply::Result(result) => {
                let mut out = Outgoing::from("{\"jsonrpc\":\"2.0\",\"id\":");
                out.push(id.raw().clone());
                out.push(format!(",\"result\":{result}}}"));
                out
            }
            ReverseReply::Error { code, message } => {
                let mut out = Outgoing::from("{\"jsonrpc\":\"2.0\",\"id\":");
                out.push(id.raw().clone());
                out.push(format!(
                    ",\"error\":{{\"code\":{code},\"message\":{}}}}}",
                    quote(&message)
                ));
                out
            }
        };
        if let Some(link) = self.link.get() {
            link.notify(self, outgoing.compact());
        }
    }

    fn notification(self: &Arc<Self>, origin: Origin, message: Message) {
        let method = message.method().unwrap_or_default().into_owned();
        match method.as_str() {
            "notifications/progress" => {
                let sink = message
                    .raw(Member::ProgressToken)
                    .and_then(WireId::from_raw)
                    .and_then(|token| self.progressed(token));
                match sink {
                    Some(sink) => sink.progress(message),
                    None => tracing::trace!(server = %self.server, "dropped progress of a call that is over"),
                }
            }
            "notifications/cancelled" => self.withdrawn(&message),
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => self.hooks.list_changed(self, &method),
            "notifications/subscriptions/acknowledged" => self.hooks.acknowledged(),
            "notifications/message" => match self.attribute(origin) {
                Some(sink) => sink.notice(message),
                None => self.hooks.notice(self, message),
            },
            _ => self.hooks.notice(self, message),
        }
    }

    fn withdrawn(self: &Arc<Self>, message: &Message) {
        let Some(id) = message.shared(Member::RequestId).map(HostId::from_raw) else {
            return;
        };
        let open = self.lock_reverse().remove(&id);
        match open {
            Some(Some(sink)) => {
                if let Some(sink) = sink.upgrade() {
                    sink.withdrawn(&id, message);
                }
            }
            Some(None) => self.hooks.withdrawn(self, &id, message),
            None => {
                // A modern server ends our listen request this way.
                if let Some(own) = WireId::from_raw(id.raw()) {
                    self.fail(
                        own,
                        FaultKind::Lost,
                        format!("server \"{}\" ended the request", self.server),
                    );
                }
            }
        }
    }

    /// One exchange: `prepare` makes the message for our id.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn exchange(
        self: &Arc<Self>,
        prepare: impl FnOnce(WireId) -> Outgoing,
        head: RequestHead,
        sink: Arc<dyn CallSink>,
        of_host: bool,
        limits: Option<CallLimits>,
    ) -> Result<Message, CallFault> {
        let gone = |connection: &Self| {
            let why = connection.why().unwrap_or("the connection has ended");
            CallFault::unsent(
                FaultKind::Lost,
                format!("server \"{}\": {why}", connection.server),
            )
        };
        if self.is_closed() {
            return Err(gone(self));
        }
        let Some(link) = self.link.get() else {
            return Err(gone(self));
        };
        let id = WireId(self.next.fetch_add(1, Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        let active = Arc::new(AtomicU64::new(self.now()));
        // A probe of an unknown server must not be followed by a notification before the handshake.
        let cancellable = self.facts.get().is_some();
        self.pending.insert(
            id.0,
            Pending {
                answer,
                sink: sink.clone(),
                active: active.clone(),
                sent: false,
                of_host,
            },
        );
        let mut guard = CallGuard {
            connection: self.clone(),
            id,
            reason: "the call was cancelled",
            cancellable,
        };
        // Closing walks the table once; an entry that came after the walk must notice by itself.
        if self.is_closed() {
            return Err(gone(self));
        }
        let body = prepare(id);
        let work = link.call(self, id, head, body, answered);
        match limits {
            None => work.await,
            Some(limits) => {
                tokio::select! {
                    biased;
                    done = work => done,
                    limit = self.overdue(&active, sink.as_ref(), limits) => {
                        let sent = self.pending.get(&id.0).is_none_or(|pending| pending.sent);
                        guard.reason = limit.0;
                        let text = format!("server \"{}\": {} ({:?})", self.server, limit.0, limit.1);
                        Err(CallFault { kind: FaultKind::TimedOut, message: text, sent, status: None })
                    }
                }
            }
        }
    }

    /// Resolves when a limit is passed: which, and its length.
    async fn overdue(
        &self,
        active: &AtomicU64,
        sink: &dyn CallSink,
        limits: CallLimits,
    ) -> (&'static str, Duration) {
        let start = Instant::now();
        let end = start + limits.max;
        loop {
            let idle_end = self.opened + Duration::from_millis(active.load(Ordering::Relaxed)) + limits.idle;
            let now = Instant::now();
            if now >= end {
                return ("no answer within the maximum time", limits.max);
            }
            if now >= idle_end {
                if sink.waiting_for_host() == 0 {
                    return ("no answer and no progress within the idle time", limits.idle);
                }
                active.store(self.now(), Ordering::Relaxed);
                continue;
            }
            tokio::time::sleep_until(idle_end.min(end)).await;
        }
    }

    /// A request of our own, without a host behind it.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn own_request(
        self: &Arc<Self>,
        method: &'static str,
        params: &str,
        name: Option<String>,
        limit: Option<Duration>,
    ) -> Result<Message, CallFault> {
        let modern = self.facts.get().map(|facts| (facts.family, facts.revision));
        let params = match modern {
            Some((Family::Modern, revision)) => bridge::own_params(params, revision),
            _ => params.to_owned(),
        };
        self.request_with(method, &params, name, limit).await
    }

    /// A request of our own whose `params` are exactly these.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn request_with(
        self: &Arc<Self>,
        method: &'static str,
        params: &str,
        name: Option<String>,
        limit: Option<Duration>,
    ) -> Result<Message, CallFault> {
        let prepare = |id: WireId| {
            Outgoing::from(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}"
            ))
        };
        let head = RequestHead {
            method: method.to_owned(),
            name,
            params: Vec::new(),
        };
        let limits = limit.map(|limit| CallLimits {
            idle: limit,
            max: limit,
        });
        self.exchange(prepare, head, Arc::new(Discard), false, limits)
            .await
    }
}

/// The sink of our own requests: nobody listens.
#[derive(Debug)]
struct Discard;

impl CallSink for Discard {
    fn progress(&self, _: Message) {}
    fn notice(&self, _: Message) {}
    fn reverse(&self, _: Message, responder: Responder) {
        responder.reply(ReverseReply::Error {
            code: -32602,
            message: "no host call is in flight".into(),
        });
    }
    fn withdrawn(&self, _: &HostId, _: &Message) {}
    fn waiting_for_host(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests;
