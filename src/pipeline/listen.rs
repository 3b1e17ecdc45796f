//! `subscriptions/listen` and everything that servers say outside of calls.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};

use super::call::publish_links;
use super::catalogs::CatalogKey;
use super::fault::{Fault, result};
use super::gateway::{Gateway, reply_fault};
use super::outcome::callee;
use super::port::{DownstreamEvents, Responder, ReverseReply};
use super::relay::log_message;
use super::service::{HostRequest, Reply};
use crate::audit::{Event, Record};
use crate::catalog::page::SERVER_INFO;
use crate::policy::decide;
use crate::revision::Family;
use crate::session::reverse::withdrawal;
use crate::session::{Caller, HostStream, HostTransport, Lane, Session};
use crate::wire::json::{Span, items, member, quote, unquote};
use crate::wire::{HostId, Member, Message, Outgoing, Splice};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A resource or task that a listener asked for.
#[derive(Debug)]
struct Watch {
    server: Arc<str>,
    local: String,
    public: String,
}

/// One open listen request.
#[derive(Debug)]
pub struct Listener {
    /// The listen request's id as the host wrote it: the subscription id.
    id: Bytes,
    stream: Arc<dyn HostStream>,
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: Vec<Watch>,
    tasks: Vec<Watch>,
    /// What came before the acknowledgement, which must be the first message; `None` from then on.
    held: Mutex<Option<Vec<Outgoing>>>,
}

/// How long the acknowledgement waits for servers that must listen to more; hosts expect it within a second.
const SERVERS_LISTEN: Duration = Duration::from_millis(500);
/// Notifications that are held until then.
const HELD: usize = 256;

impl Listener {
    fn lock_held(&self) -> std::sync::MutexGuard<'_, Option<Vec<Outgoing>>> {
        self.held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn send(&self, message: Outgoing) {
        match self.lock_held().as_mut() {
            Some(held) if held.len() < HELD => held.push(message),
            Some(_) => {}
            None => {
                self.stream.send(Lane::Notice, message);
            }
        }
    }

    /// Sends the acknowledgement, then what was held for it.
    fn acknowledge(&self) {
        let mut held = self.lock_held();
        self.stream.send(Lane::Notice, acknowledgement(self));
        for message in held.take().unwrap_or_default() {
            self.stream.send(Lane::Notice, message);
        }
    }

    /// Sends a list notification if it was asked for.
    pub(super) fn list_changed(&self, method: &str) {
        let wanted = match method {
            "notifications/tools/list_changed" => self.tools,
            "notifications/prompts/list_changed" => self.prompts,
            "notifications/resources/list_changed" => self.resources,
            _ => false,
        };
        if wanted {
            let id = String::from_utf8_lossy(&self.id);
            self.send(Outgoing::from(format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{{\"_meta\":{{\"{SUBSCRIPTION}\":{id}}}}}}}"
                )));
        }
    }

    /// Passes a server's notification on under our subscription id, with `span` (its URI or task id) made public.
    fn forward(&self, message: &Message, span: Option<Span>, public: &str) {
        let mut splice = Splice::new();
        match (
            message.span(Member::MetaSubscriptionId),
            message.span(Member::Meta),
            message.payload(),
        ) {
            (Some(own), _, _) => {
                splice.replace(own, self.id.clone());
            }
            (None, Some(meta), _) => {
                let id = String::from_utf8_lossy(&self.id);
                splice.insert_members(message.bytes(), meta, format!("\"{SUBSCRIPTION}\":{id}"));
            }
            (None, None, Some(params)) => {
                let id = String::from_utf8_lossy(&self.id);
                splice.insert_members(
                    message.bytes(),
                    params,
                    format!("\"_meta\":{{\"{SUBSCRIPTION}\":{id}}}"),
                );
            }
            _ => {}
        }
        if let Some(span) = span {
            splice.replace(span, quote(public));
        }
        self.send(splice.apply(message.bytes()));
    }
}

/// Takes the listener out when the request ends, however it ends.
struct Listening {
    gateway: Arc<Gateway>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.gateway.listeners.remove(&self.number);
        drop(self.gateway.update_watches());
    }
}

fn strings(message: &Message, filter: Span, key: &str) -> Vec<String> {
    let bytes = message.bytes();
    member(bytes, filter, key)
        .map(|list| {
            items(bytes, list)
                .iter()
                .map(|item| unquote(item.of(bytes)).into_owned())
                .collect()
        })
        .unwrap_or_default()
}

impl Gateway {
    pub(super) async fn listen(self: &Arc<Self>, request: HostRequest) -> Reply {
        let message = &request.message;
        let (Some(id), Some(filter)) = (message.id(), message.span(Member::Notifications)) else {
            return reply_fault(message, &Fault::params("\"notifications\" must be an object"));
        };
        let limit = self.settings.load().config.limits.subscriptions_per_session;
        let flag = |key: &str| {
            member(message.bytes(), filter, key).is_some_and(|span| span.of(message.bytes()) == b"true")
        };
        let catalog = self.catalog(None);
        let mut uris = Vec::new();
        for public in strings(message, filter, "resourceSubscriptions")
            .into_iter()
            .take(limit)
        {
            let Some(route) = catalog
                .resource(&public)
                .filter(|route| decide(&route.bound).is_ok())
            else {
                continue;
            };
            // Only a modern server can be listened to for a modern host; the rest is bridging, not offered yet.
            let watchable = self.server(&route.server_name).is_some_and(|server| {
                server.family() == Some(Family::Modern)
                    && server
                        .listing(None)
                        .is_some_and(|listing| listing.offers.subscribe)
            });
            if watchable {
                uris.push(Watch {
                    server: route.server_name,
                    local: route.local.to_string(),
                    public,
                });
            }
        }
        let mut tasks = Vec::new();
        for public in strings(message, filter, "taskIds").into_iter().take(limit) {
            if let Some(task) = self.open_task(&request.caller, &public) {
                tasks.push(Watch {
                    server: task.server,
                    local: task.local,
                    public,
                });
            }
        }
        let listener = Listener {
            id: id.raw().clone(),
            stream: request.stream.clone(),
            tools: flag("toolsListChanged"),
            prompts: flag("promptsListChanged"),
            resources: flag("resourcesListChanged"),
            uris,
            tasks,
            held: Mutex::new(Some(Vec::new())),
        };
        let listener = Arc::new(listener);
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.listeners.insert(number, listener.clone());
        let _listening = Listening {
            gateway: self.clone(),
            number,
        };
        // Once acknowledged, a host may change something at once and expects to hear of it.
        let concerned = |server: &Arc<str>| {
            let mut watches = listener.uris.iter().chain(&listener.tasks);
            watches.any(|watch| watch.server == *server)
        };
        let waits = self.update_watches();
        let waits = waits.into_iter().filter(|(server, _)| concerned(server));
        let all = join_all(waits.map(|(_, heard)| heard));
        if tokio::time::timeout(SERVERS_LISTEN, all).await.is_err() {
            tracing::debug!("a server was slow to listen to more; the host is acknowledged all the same");
        }
        listener.acknowledge();
        self.closing.cancelled().await;
        if request.caller.transport == HostTransport::Stdio {
            request.stream.send(
                Lane::Request,
                Outgoing::from(format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":\"manifold is shutting down\"}}}}"
                )),
            );
        }
        Reply::ok(result(
            message,
            format!(
                "{{\"resultType\":\"complete\",\"_meta\":{{\"{SUBSCRIPTION}\":{id},\"io.modelcontextprotocol/serverInfo\":{SERVER_INFO}}}}}"
            ),
        ))
    }

    /// Tells every server what hosts watch on it now; the futures resolve as the servers acknowledge it.
    pub(super) fn update_watches(&self) -> Vec<(Arc<str>, BoxFuture<'static, ()>)> {
        let mut waits = Vec::new();
        for server in self.servers() {
            let (mut uris, mut tasks) = (Vec::new(), Vec::new());
            for entry in self.listeners.iter() {
                let of = |watches: &[Watch]| -> Vec<String> {
                    watches
                        .iter()
                        .filter(|watch| watch.server == *server.name())
                        .map(|watch| watch.local.clone())
                        .collect()
                };
                uris.extend(of(&entry.uris));
                tasks.extend(of(&entry.tasks));
            }
            for list in [&mut uris, &mut tasks] {
                list.sort_unstable();
                list.dedup();
            }
            waits.push((server.name().clone(), server.watch(uris, tasks)));
        }
        waits
    }

    /// Rebuilds the catalogs whenever listings or settings change, and tells hosts whose view became another one.
    /// Runs until shutdown.
    pub async fn keep_catalogs(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.closing.cancelled() => return,
            }
            let Some(downstreams) = self.downstreams.get() else {
                continue;
            };
            let settings = self.settings.load_full();
            for (key, old, new) in self.catalogs.rebuild(&settings, downstreams.as_ref()) {
                let family = if key.is_none() {
                    Family::Modern
                } else {
                    Family::Legacy
                };
                let changed = new.changed_since(&old, family);
                let mut methods = Vec::new();
                if changed.tools {
                    methods.push("notifications/tools/list_changed");
                }
                if changed.prompts {
                    methods.push("notifications/prompts/list_changed");
                }
                if changed.resources {
                    methods.push("notifications/resources/list_changed");
                }
                self.announce(key, &methods);
            }
        }
    }

    fn session_caller(&self, session: Option<&Arc<Session>>) -> Option<Arc<Caller>> {
        self.sessions
            .get(&session?.label)
            .map(|entry| entry.value().clone())
    }

    /// The server's messages with its links and task ids made public for this caller.
    pub(super) fn public_notice(
        &self,
        server: &Arc<str>,
        key: CatalogKey,
        caller: &Caller,
        message: &Message,
    ) -> Outgoing {
        let mut splice = Splice::new();
        publish_links(&self.catalog(key), server, message, &mut splice);
        self.publish_task_ids(server, caller, "", message, &mut splice);
        splice.apply(message.bytes())
    }
}

fn acknowledgement(listener: &Listener) -> Outgoing {
    let mut honoured = Vec::new();
    for (on, flag) in [
        (listener.tools, "toolsListChanged"),
        (listener.prompts, "promptsListChanged"),
        (listener.resources, "resourcesListChanged"),
    ] {
        if on {
            honoured.push(format!("\"{flag}\":true"));
        }
    }
    for (watches, key) in [
        (&listener.uris, "resourceSubscriptions"),
        (&listener.tasks, "taskIds"),
    ] {
        if !watches.is_empty() {
            let list: Vec<String> = watches.iter().map(|watch| quote(&watch.public)).collect();
            honoured.push(format!("\"{key}\":[{}]", list.join(",")));
        }
    }
    let id = String::from_utf8_lossy(&listener.id);
    Outgoing::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"_meta\":{{\"{SUBSCRIPTION}\":{id}}},\"notifications\":{{{}}}}}}}",
        honoured.join(",")
    ))
}

/// Whether an update of `changed` concerns someone who watches `watched`: the same, or a part of it.
#[must_use]
pub fn concerns(watched: &str, changed: &str) -> bool {
    changed
        .strip_prefix(watched)
        .is_some_and(|rest| rest.is_empty() || watched.ends_with('/') || rest.starts_with(['/', '?', '#']))
}

impl DownstreamEvents for Gateway {
    fn listings_changed(&self) {
        self.apply_again();
    }

    fn resource_updated(&self, server: &Arc<str>, session: Option<&Arc<Session>>, message: &Message) {
        let Some(span) = message.span(Member::Uri) else {
            return;
        };
        if let Some(caller) = self.session_caller(session) {
            // Only what the session subscribed to; some servers tell everybody everything.
            let changed = unquote(span.of(message.bytes()));
            let wanted = self
                .server(server)
                .is_some_and(|server| server.subscribed(&caller, &changed));
            if let Some(session) = session.filter(|_| wanted) {
                let outgoing = self.public_notice(server, Self::key(&caller), &caller, message);
                session.general.send(Lane::Notice, outgoing);
            }
            return;
        }
        let changed = unquote(span.of(message.bytes())).into_owned();
        for entry in self.listeners.iter() {
            let listener = entry.value();
            let watch = listener
                .uris
                .iter()
                .find(|watch| watch.server == *server && concerns(&watch.local, &changed));
            if let Some(watch) = watch {
                let rest = changed.strip_prefix(watch.local.as_str()).unwrap_or_default();
                listener.forward(message, Some(span), &format!("{}{rest}", watch.public));
            }
        }
    }

    fn notice(&self, server: &Arc<str>, session: Option<&Arc<Session>>, message: Message) {
        if let (Some(caller), Some(session)) = (self.session_caller(session), session) {
            if message.method().as_deref() == Some("notifications/message") {
                let label = self.catalog(Self::key(&caller)).label(server);
                if let Some(outgoing) = log_message(&message, &caller, label.as_deref()) {
                    session.general.send(Lane::Notice, outgoing);
                }
                return;
            }
            let outgoing = self.public_notice(server, Self::key(&caller), &caller, &message);
            session.general.send(Lane::Notice, outgoing);
            return;
        }
        if message.method().as_deref() == Some("notifications/tasks") {
            let Some(span) = message.span(Member::TaskId) else {
                return;
            };
            let local = unquote(span.of(message.bytes())).into_owned();
            for entry in self.listeners.iter() {
                let listener = entry.value();
                if let Some(watch) = listener
                    .tasks
                    .iter()
                    .find(|watch| watch.server == *server && watch.local == local)
                {
                    listener.forward(&message, Some(span), &watch.public);
                }
            }
            return;
        }
        tracing::trace!(%server, "dropped a notification that no host can be named for");
    }

    fn reverse(
        &self,
        server: &Arc<str>,
        session: Option<&Arc<Session>>,
        message: Message,
        responder: Responder,
    ) {
        let roots = || self.server(server).and_then(|server| server.roots());
        let is_roots = message.method().as_deref() == Some("roots/list");
        if let (Some(caller), Some(session)) = (self.session_caller(session), session)
            && session.general.attached()
            && let Some(server_id) = message.id()
        {
            let key = (session.label.clone(), server.clone(), server_id);
            let (gateway, done) = (self.me.clone(), key.clone());
            let general = session.general.clone();
            let asked = self.ask_host(
                server,
                None,
                &caller,
                session,
                general.as_ref(),
                &message,
                responder,
                move || {
                    if let Some(gateway) = gateway.upgrade() {
                        gateway.loose.remove(&done);
                    }
                },
            );
            if let Some(id) = asked {
                self.loose.insert(key, id);
            }
            return;
        }
        match roots().filter(|_| is_roots) {
            Some(roots) => responder.reply(ReverseReply::Result(roots)),
            None => {
                self.audit.record(Record {
                    callee: Some(callee(server)),
                    method: message.method().map(|method| method.into_owned().into()),
                    detail: Some("refused: no host call is in flight that it could belong to".into()),
                    ..Record::new(Event::ReverseRequest)
                });
                responder.reply(ReverseReply::Error {
                    code: -32602,
                    message: "no host call is in flight that this request could belong to".into(),
                });
            }
        }
    }

    fn withdrawn(&self, server: &Arc<str>, session: Option<&Arc<Session>>, id: &HostId, message: &Message) {
        let Some(session) = session else { return };
        let key = (session.label.clone(), server.clone(), id.clone());
        if let Some((_, ours)) = self.loose.remove(&key)
            && session.reverse.forget(ours)
        {
            session.general.send(
                Lane::Request,
                withdrawal(ours, message.text(Member::Reason).as_deref()),
            );
        }
    }

    fn state_changed(&self, server: &Arc<str>, state: &'static str, _detail: &str) {
        // The detail may quote the server: it is for the log, not for the record.
        self.audit.record(Record {
            callee: Some(callee(server)),
            state: Some(state),
            ..Record::new(Event::ServerState)
        });
    }
}
