//! One call, step by step: route, check headers, decide, admit, open, record the intent, dispatch, translate the
//! answer, record the outcome. The order is a security property; read it in [`Gateway::forward`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::fault::{Fault, result};
use super::gateway::{Gateway, reply_fault};
use super::outcome::CallRecord;
use super::port::{CallFault, FaultKind, OutboundCall};
use super::relay::CallRelay;
use super::service::{HostRequest, Reply};
use crate::catalog::Catalog;
use crate::catalog::page::SERVER_INFO;
use crate::policy::{Bound, decide};
use crate::revision::{Family, bridge};
use crate::session::Caller;
use crate::wire::json::{Span, member, quote, unquote};
use crate::wire::{Kind, Member, Message, Outgoing, Splice};

/// Where a request goes and how it must be spelled there.
pub(super) struct Target {
    pub(super) server: Arc<str>,
    pub(super) bound: Bound,
    pub(super) public: Arc<str>,
    pub(super) splice: Splice,
    /// For `Mcp-Name`.
    pub(super) name: Option<String>,
    /// For `Mcp-Param-*`.
    pub(super) params: Vec<(String, String)>,
    /// What an unknown or hidden one is answered with.
    pub(super) unknown: Fault,
    /// The legacy tool's `structuredContent` is not for legacy hosts.
    pub(super) free_output: bool,
}

impl Gateway {
    /// `tools/call`, `prompts/get`, `resources/read`, `completion/complete`.
    pub(super) async fn call(self: &Arc<Self>, request: HostRequest, method: &str) -> Reply {
        let key = Self::key(&request.caller);
        let target = match self.route(&request, method, key) {
            Ok(target) => Ok(target),
            Err(fault) if fault.code.starts_with("unknown_") => {
                // A server that was never listed may own it.
                self.wait_listed(key).await;
                self.route(&request, method, key)
            }
            Err(fault) => Err(fault),
        };
        match target {
            Ok(Some(target)) => self.forward(request, method, target).await,
            Ok(None) => Reply::ok(result(
                &request.message,
                empty_completion(request.caller.revision.family()),
            )),
            Err(fault) => self.refuse(&request, method, &fault),
        }
    }

    pub(super) fn refuse(&self, request: &HostRequest, method: &str, fault: &Fault) -> Reply {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        super::outcome::rejected(self, &request.caller, &request.message, method, fault);
        reply_fault(&request.message, fault)
    }

    /// Decides, admits, records, calls and translates.
    pub(super) async fn forward(
        self: &Arc<Self>,
        request: HostRequest,
        method: &str,
        target: Target,
    ) -> Reply {
        let HostRequest {
            caller,
            message,
            stream,
            ..
        } = &request;
        let Target {
            server: name,
            bound,
            public,
            mut splice,
            name: header_name,
            params,
            unknown,
            free_output,
        } = target;
        let key = Self::key(caller);
        let arrived = Instant::now();
        // Decide. The same bound value that the list was made from.
        let permit = match decide(&bound) {
            Ok(permit) => permit,
            Err(refusal) => {
                super::outcome::denied(self, caller, message, method, &public, &refusal);
                return reply_fault(message, &unknown);
            }
        };
        // A state that we sealed must be ours, and for this very request.
        if let Some(state) = message.span(Member::RequestState) {
            match self.open_state(caller, &name, message, method, state) {
                Ok(inner) => splice.replace(state, inner),
                Err(fault) => return self.refuse(&request, method, &fault),
            };
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let Ok(_in_flight) = self.admit(caller) else {
            return self.refuse(
                &request,
                method,
                &Fault::limit("too many calls of this identity are in flight; try again later"),
            );
        };
        let Some(server) = self.server(&name) else {
            let gone = CallFault::unsent(FaultKind::Unavailable, format!("server \"{name}\" was removed"));
            return self.refuse(&request, method, &Fault::call(&name, &gone));
        };
        let mut record = CallRecord::new(self, number, caller, message, method, &bound, &public);
        let opened = match server.open(caller).await {
            Ok(connection) => server.admit().await.map(|place| (connection, place)),
            Err(fault) => Err(fault),
        };
        let (connection, _place) = match opened {
            Ok(opened) => opened,
            Err(fault) => {
                record.intent(None, arrived.elapsed());
                record.failed(&fault);
                return reply_fault(message, &Fault::call(&name, &fault));
            }
        };
        if let Err(fault) = crossing(caller, connection.family(), method, message, &name) {
            record.intent(Some(connection.as_ref()), arrived.elapsed());
            record.refused(&fault);
            return reply_fault(message, &fault);
        }
        record.intent(Some(connection.as_ref()), arrived.elapsed());
        let catalog = self.catalog(key);
        let relay = Arc::new_cyclic(|me| CallRelay {
            gateway: self.me.clone(),
            server: name.clone(),
            call: number,
            caller: caller.clone(),
            stream: stream.clone(),
            token: message.shared(Member::MetaProgressToken),
            label: catalog.label(&name),
            open: Mutex::new(HashMap::new()),
            waiting: Arc::new(AtomicUsize::new(0)),
            asked: AtomicUsize::new(0),
            me: me.clone(),
        });
        let family = connection.family();
        let call = OutboundCall {
            message: message.clone(),
            splice,
            caller: caller.clone(),
            sink: relay.clone(),
            name: header_name,
            params,
        };
        let outcome = connection.call(permit, call).await;
        drop(relay);
        match outcome {
            Ok(answer) => {
                let reply = self.translate(&request, method, &catalog, family, &bound, free_output, &answer);
                record.answered(&answer, reply.message.as_ref().map_or(0, Outgoing::len));
                reply
            }
            Err(fault) => {
                record.failed(&fault);
                reply_fault(message, &Fault::call(&name, &fault))
            }
        }
    }

    /// A place among the calls of this identity.
    fn admit(&self, caller: &Caller) -> Result<Admitted, ()> {
        let limit = self.settings.load().config.limits.calls_per_identity;
        let count = self
            .per_identity
            .entry(caller.identity.key().clone())
            .or_default()
            .clone();
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let admitted = Admitted {
            count,
            gateway: self.me.clone(),
        };
        if admitted.count.fetch_add(1, Ordering::Relaxed) >= limit {
            Err(())
        } else {
            Ok(admitted)
        }
    }

    /// The server's answer as the host must see it.
    #[expect(
        clippy::too_many_arguments,
        reason = "one step of the pipeline, called in one place"
    )]
    fn translate(
        &self,
        request: &HostRequest,
        method: &str,
        catalog: &Catalog,
        family: Family,
        bound: &Bound,
        free_output: bool,
        answer: &Message,
    ) -> Reply {
        let (caller, message, server) = (&request.caller, &request.message, bound.server());
        let host = caller.revision.family();
        let mut splice = Splice::new();
        if let (Some(own), Some(id)) = (answer.id_span(), message.id()) {
            splice.replace(own, id.raw().clone());
        }
        if answer.kind() == Kind::Error {
            return translate_error(host, answer, splice);
        }
        let kind = answer
            .text(Member::ResultType)
            .unwrap_or(Cow::Borrowed("complete"));
        match &*kind {
            "complete" => {}
            "input_required" | "task" if host == Family::Modern => {}
            "input_required" | "task" => {
                let fault = Fault::not_offered(
                    server,
                    format!(
                        "server \"{server}\" answered \"{kind}\", which hosts of this revision need bridging for; that is not offered yet"
                    ),
                );
                return reply_fault(message, &fault);
            }
            other => {
                let fault = CallFault::sent(
                    FaultKind::Malformed,
                    format!("server \"{server}\" answered with the unknown resultType {other:?}"),
                );
                return reply_fault(message, &Fault::call(server, &fault));
            }
        }
        if let (Some(state), "input_required") = (answer.span(Member::RequestState), &*kind) {
            let sealed = self.seal_state(caller, server, message, method, state.of(answer.bytes()));
            splice.replace(state, quote(&sealed));
        }
        // A legacy revision allows objects only; the text block carries the value.
        let crossed = free_output && host == Family::Legacy && family == Family::Modern;
        match answer.noted(Member::StructuredContent).filter(|_| crossed) {
            // One member of an object can be removed; `resultType`, which a legacy host ignores, stays then.
            Some(member) => {
                splice.remove_member(answer.bytes(), member);
            }
            None => bridge::inbound_result(answer, host, family, method, &mut splice),
        }
        publish_links(catalog, server, answer, &mut splice);
        self.publish_task_ids(server, caller, bound.local(), answer, &mut splice);
        self.remember_links(server, caller, answer);
        Reply::ok(splice.apply(answer.bytes()))
    }

    /// Remembers which server named a URI in a `resource_link`, so that it can be read although nobody lists it.
    fn remember_links(&self, server: &Arc<str>, caller: &Caller, answer: &Message) {
        /// Links kept per process; the oldest knowledge goes when there is more.
        const KEPT: usize = 4096;
        let Some(content) = answer.raw(Member::Content) else {
            return;
        };
        if memchr::memmem::find(content, b"resource_link").is_none() {
            return;
        }
        let Some(span) = answer.span(Member::Content) else {
            return;
        };
        let bytes = answer.bytes();
        let is_link = |item: &Span| {
            member(bytes, *item, "type").is_some_and(|kind| unquote(kind.of(bytes)) == "resource_link")
        };
        let mut links = self
            .links
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for item in crate::wire::json::items(bytes, span)
            .into_iter()
            .filter(is_link)
            .take(256)
        {
            if let Some(uri) = member(bytes, item, "uri") {
                if links.len() >= KEPT {
                    links.clear();
                }
                links.insert(
                    (caller.identity.key().clone(), unquote(uri.of(bytes)).into_owned()),
                    server.clone(),
                );
            }
        }
    }

    pub(super) fn linked(&self, caller: &Caller, uri: &str) -> Option<Arc<str>> {
        let links = self
            .links
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        links
            .get(&(caller.identity.key().clone(), uri.to_owned()))
            .cloned()
    }

    /// `resources/subscribe` and `resources/unsubscribe` of a legacy host.
    pub(super) async fn subscribe(self: &Arc<Self>, request: HostRequest, method: &str) -> Reply {
        let key = Self::key(&request.caller);
        let target = match self.route_uri(&request, key) {
            Ok(target) => target,
            Err(fault) => return self.refuse(&request, method, &fault),
        };
        let (server, local) = (target.server.clone(), target.name.clone().unwrap_or_default());
        let offers = self.server(&server).and_then(|server| server.listing(key));
        if offers.is_some_and(|listing| !listing.offers.subscribe) && target.bound.listed() {
            let fault = Fault::params(format!("server \"{server}\" does not offer subscriptions"));
            return self.refuse(&request, method, &fault);
        }
        let caller = request.caller.clone();
        let subscribes = method == "resources/subscribe";
        let note = |on: bool| {
            if let Some(server) = self.server(&server) {
                server.note_subscription(&caller, &local, on);
            }
        };
        if subscribes && target.bound.listed() {
            // Before the server knows: an update may come as fast as the answer.
            note(true);
        }
        let reply = self.forward(request, method, target).await;
        let failed = reply.message.as_ref().is_none_or(|message| {
            let bytes = message.clone().into_bytes();
            Message::parse(bytes, crate::wire::JsonLimits::default())
                .is_ok_and(|message| message.kind() == Kind::Error)
        });
        if subscribes == failed {
            note(false);
        }
        reply
    }
}

/// A server's error as the host must see it.
fn translate_error(host: Family, answer: &Message, mut splice: Splice) -> Reply {
    let code = answer.error_code().unwrap_or(-32603);
    let (public, keep) = bridge::inbound_error_code(code, host);
    if public != code
        && let (Some(span), Some(error)) = (answer.span(Member::ErrorCode), answer.payload())
    {
        splice.replace(span, public.to_string());
        if keep && answer.span(Member::ErrorData).is_none() {
            splice.insert_members(
                answer.bytes(),
                error,
                format!("\"data\":{{\"original\":{{\"code\":{code}}}}}"),
            );
        }
    }
    let status = match public {
        -32021 => 400,
        -32601 => 404,
        _ => 200,
    };
    Reply {
        status,
        message: Some(splice.apply(answer.bytes())),
    }
}

/// Makes the links in a message of this server public.
pub(super) fn publish_links(catalog: &Catalog, server: &str, message: &Message, splice: &mut Splice) {
    if let (Some(position), Some(payload)) = (catalog.position(server), message.payload()) {
        for (span, text) in catalog.rewrite_links(position, message.bytes(), payload) {
            splice.replace(span, text);
        }
    }
}

/// Whether this pair of families can carry this request; the rest is bridging.
fn crossing(
    caller: &Caller,
    family: Family,
    method: &str,
    message: &Message,
    server: &str,
) -> Result<(), Fault> {
    let host = caller.revision.family();
    if host == family {
        return Ok(());
    }
    let not = |what: &str| {
        let text = format!(
            "server \"{server}\" is {family}, the host is {host}: {what} between the two families need bridging, which is not offered yet"
        );
        Err(Fault::not_offered(server, text))
    };
    if matches!(method, "resources/subscribe" | "resources/unsubscribe") {
        return not("subscriptions");
    }
    if method.starts_with("tasks/") || message.span(Member::Task).is_some() {
        return not("tasks");
    }
    if message.span(Member::InputResponses).is_some() {
        return not("answers to input requests");
    }
    Ok(())
}

struct Admitted {
    count: Arc<AtomicUsize>,
    gateway: std::sync::Weak<Gateway>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        if let Some(gateway) = self.gateway.upgrade() {
            gateway.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn empty_completion(family: Family) -> Outgoing {
    let values = "\"completion\":{\"values\":[],\"total\":0,\"hasMore\":false}";
    match family {
        Family::Legacy => Outgoing::from(format!("{{{values}}}")),
        Family::Modern => Outgoing::from(format!(
            "{{\"resultType\":\"complete\",{values},\"_meta\":{{\"io.modelcontextprotocol/serverInfo\":{SERVER_INFO}}}}}"
        )),
    }
}
