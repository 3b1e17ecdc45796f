//! A host on one two-way connection: standard input and output, or a 2024-11-05 pair.
//!
//! It tells the eras apart message by message, owns the connection's open requests and its legacy session, and puts
//! everything that goes back into one outbox. Reading, writing and framing are the caller's.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::identity::Identity;
use crate::pipeline::{HostRequest, HostService, Initialize};
use crate::revision::Revision;
use crate::runtime::tasks;
use crate::session::{Caller, HostStream, HostTransport, InFlight, Lane, ReverseVerdict, Session};
use crate::wire::{HostId, Kind, Member, Message};

use super::fault::{self, Fault};
use super::outbox::Outbox;
use super::slot::{Batch, Slot};
use super::streamable::{check_meta, check_rest};
use super::{HostSettings, caller};

/// How long requests may take to end once they are cancelled.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(crate) struct Conversation {
    service: Arc<dyn HostService>,
    settings: HostSettings,
    outbox: Arc<Outbox>,
    in_flight: Arc<InFlight>,
    identity: Identity,
    transport: HostTransport,
    /// Secret id and label of the legacy session.
    names: (Arc<str>, Arc<str>),
    legacy: OnceLock<Arc<Caller>>,
    requests: TaskTracker,
    /// Cancelled when the connection ends or manifold shuts down.
    ended: CancellationToken,
    /// Cancelled when requests that do not end are left alone.
    abandoned: CancellationToken,
}

/// Who is on a connection.
pub(crate) struct Party {
    pub(crate) identity: Identity,
    pub(crate) transport: HostTransport,
    pub(crate) id: Arc<str>,
    pub(crate) label: Arc<str>,
}

impl Conversation {
    pub(crate) fn new(
        service: Arc<dyn HostService>,
        settings: HostSettings,
        outbox: Arc<Outbox>,
        party: Party,
        ended: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            service,
            settings,
            outbox,
            in_flight: Arc::new(InFlight::default()),
            identity: party.identity,
            transport: party.transport,
            names: (party.id, party.label),
            legacy: OnceLock::new(),
            requests: TaskTracker::new(),
            ended,
            abandoned: CancellationToken::new(),
        })
    }

    /// Whether no request is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Waits until no request is open, at most so long.
    pub(crate) async fn idle(&self, at_most: Duration) {
        self.requests.close();
        let _ = timeout(at_most, self.requests.wait()).await;
        self.requests.reopen();
    }

    /// The connection has ended: everything in flight is cancelled and, for a moment, waited for.
    pub(crate) async fn end(&self) {
        self.end_now();
        self.idle(LAST_WORDS).await;
        self.abandoned.cancel();
    }

    /// The same without waiting.
    pub(crate) fn end_now(&self) {
        self.ended.cancel();
        self.in_flight.cancel_all();
        let Some(session) = self.legacy.get().and_then(|caller| caller.session.as_ref()) else {
            return;
        };
        if !session.ended.is_cancelled() {
            session.ended.cancel();
            session.reverse.close();
            self.service.session_ended(session);
        }
    }

    /// Refuses something that is not even a message.
    pub(crate) fn refuse(&self, fault: &Fault, id: Option<&HostId>) {
        self.service.rejected(self.transport, fault.what, &fault.message);
        self.outbox.send(Lane::Answer, fault.to_message(id));
    }

    /// Takes what stood on one line, or in one body.
    pub(crate) fn receive(self: &Arc<Self>, bytes: Bytes) {
        if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[') {
            self.receive_batch(&bytes);
            return;
        }
        match Message::parse(bytes, self.settings.json) {
            Ok(message) => {
                let slot = match message.id() {
                    Some(id) if message.kind() == Kind::Request => {
                        Some(Slot::alone(self.outbox.clone(), id, None))
                    }
                    _ => None,
                };
                self.take(message, slot, true);
            }
            Err(error) => {
                let fault = Fault::new(400, error.fault.code(), "unparsable", error.fault.to_string());
                self.refuse(&fault, error.id.as_ref());
            }
        }
    }

    fn receive_batch(self: &Arc<Self>, bytes: &Bytes) {
        let may = self
            .legacy
            .get()
            .is_some_and(|caller| caller.revision.features().batches);
        let parsed = super::batch::parts(bytes, &self.settings, may);
        match parsed {
            Err(fault) => self.refuse(&fault, None),
            Ok(parsed) => {
                let batch = Batch::new(self.outbox.clone(), parsed.answers, None);
                for refusal in parsed.refusals {
                    batch.add(Some(refusal));
                }
                for message in parsed.messages {
                    let slot = match message.id() {
                        Some(id) if message.kind() == Kind::Request => Some(Slot::of(batch.clone(), id)),
                        _ => None,
                    };
                    self.take(message, slot, false);
                }
            }
        }
    }

    fn take(self: &Arc<Self>, message: Message, slot: Option<Slot>, may_initialize: bool) {
        match slot {
            Some(slot) => self.request(message, slot, may_initialize),
            None if message.kind() == Kind::Notification => self.notification(message),
            None => self.response(message),
        }
    }

    fn refuse_slot(&self, slot: Slot, fault: &Fault) {
        self.service.rejected(self.transport, fault.what, &fault.message);
        slot.refuse(fault);
    }

    fn request(self: &Arc<Self>, message: Message, slot: Slot, may_initialize: bool) {
        let method = message.method().unwrap_or_default().into_owned();
        let modern = message.span(Member::MetaProtocolVersion).is_some();
        if modern && self.transport == HostTransport::Stdio {
            let checked = check_meta(&message, None)
                .and_then(|revision| check_rest(&message, &method).map(|()| revision));
            return match checked {
                Ok(revision) => {
                    let in_flight = Some(self.in_flight.clone());
                    let caller = caller::modern(
                        &message,
                        self.identity.clone(),
                        self.transport,
                        revision,
                        in_flight,
                    );
                    self.run(caller, message, slot);
                }
                Err(fault) => self.refuse_slot(slot, &fault),
            };
        }
        match (method.as_str(), self.legacy.get()) {
            ("initialize", None) if may_initialize => self.initialize(&message, slot),
            ("initialize", _) => {
                let text = "the connection is initialized already, or initialize stands in a batch";
                self.refuse_slot(
                    slot,
                    &Fault::new(400, fault::INVALID_REQUEST, "already_initialized", text),
                );
            }
            // Answered before a handshake too: some hosts look whether anyone is there.
            ("ping", _) => slot.fill(message.id().map(|id| fault::result(&id, "{}"))),
            (_, Some(caller)) => self.run(caller.clone(), message, slot),
            ("server/discover", None) => {
                let text = "params._meta must have io.modelcontextprotocol/protocolVersion";
                self.refuse_slot(
                    slot,
                    &Fault::new(400, fault::INVALID_PARAMS, "meta_missing", text),
                );
            }
            _ => {
                let text =
                    "send initialize first, or io.modelcontextprotocol/protocolVersion in params._meta";
                self.refuse_slot(
                    slot,
                    &Fault::new(404, fault::METHOD_NOT_FOUND, "not_initialized", text),
                );
            }
        }
    }

    fn initialize(self: &Arc<Self>, message: &Message, slot: Slot) {
        let (Some(requested), Some(id)) = (message.text(Member::ProtocolVersion), message.id()) else {
            let text = "initialize needs params.protocolVersion, a string";
            return self.refuse_slot(
                slot,
                &Fault::new(400, fault::INVALID_PARAMS, "version_missing", text),
            );
        };
        let revision = Revision::negotiate_legacy(&requested);
        let (secret, label) = self.names.clone();
        let mut session = Session::new(secret, label, self.identity.clone(), self.outbox.clone());
        session.in_flight = self.in_flight.clone();
        let caller = caller::legacy(message, self.transport, revision, Arc::new(session));
        if self.legacy.set(caller.clone()).is_err() {
            let text = "the connection is initialized already";
            return self.refuse_slot(
                slot,
                &Fault::new(400, fault::INVALID_REQUEST, "already_initialized", text),
            );
        }
        let service = self.service.clone();
        tasks::spawn_tracked(&self.requests, "initialize", async move {
            let result = service.initialize(Initialize { caller }).await;
            slot.fill(Some(fault::result(&id, &result)));
        });
    }

    fn run(self: &Arc<Self>, caller: Arc<Caller>, message: Message, slot: Slot) {
        let Some(id) = message.id() else { return };
        if self.in_flight.len() >= self.settings.open_requests {
            let fault = Fault::new(
                429,
                fault::BUSY,
                "too_many_requests",
                "too many requests are open",
            )
            .retryable();
            return self.refuse_slot(slot, &fault);
        }
        let cancel = self.ended.child_token();
        let Some(guard) = self.in_flight.open(id, cancel.clone()) else {
            let text = "a request with the same id is still open";
            return self.refuse_slot(slot, &Fault::new(400, fault::INVALID_REQUEST, "id_in_use", text));
        };
        let stream = self.outbox.clone();
        let call = self.service.clone().request(HostRequest {
            caller,
            message,
            stream,
            cancel,
            headers: None,
        });
        let abandoned = self.abandoned.clone();
        tasks::spawn_tracked(&self.requests, "host request", async move {
            let answer = tokio::select! {
                reply = call => reply.message,
                () = abandoned.cancelled() => None,
            };
            drop(guard);
            slot.fill(answer);
        });
    }

    fn notification(&self, message: Message) {
        if message
            .method()
            .is_some_and(|method| method == "notifications/cancelled")
            && let Some(id) = message.shared(Member::RequestId)
        {
            self.in_flight.cancel(&HostId::from_raw(id));
        }
        // Modern notifications have no effect beyond that: there is no caller to tell them of.
        if let Some(caller) = self.legacy.get() {
            self.service.notification(caller, message);
        }
    }

    fn response(&self, message: Message) {
        let verdict = match self.legacy.get() {
            Some(caller) => self.service.response(caller, message),
            None => ReverseVerdict::Unknown,
        };
        if verdict == ReverseVerdict::Unknown {
            self.service.rejected(
                self.transport,
                "response_unknown",
                "nothing was asked under that id",
            );
        }
    }
}
