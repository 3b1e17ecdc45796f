//! Streamable HTTP of 2025-03-26 to 2025-11-25: sessions, streams that can be taken up again, and requests that go
//! on when their connection is gone.
//!
//! A request runs in a task that belongs to its session. Its messages and its answer go to an outbox; the connection
//! only reads it. So a dropped connection cancels nothing, and a host that comes back finds the rest.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::sleep;

use crate::crypto;
use crate::host::caller;
use crate::host::edge::{self, Accepts};
use crate::host::events::{EventStream, Logged};
use crate::host::fault::{self, Fault};
use crate::host::http::{
    Answer, LAST_EVENT_ID, Peer, SESSION, VERSION, empty, events, json, not_allowed, refuse, single, text,
};
use crate::host::outbox::{Outbox, OutboxReader};
use crate::host::slot::Slot;
use crate::host::{LegacyFace, SessionEntry, Shared};
use crate::pipeline::{HostRequest, Initialize};
use crate::revision::Revision;
use crate::runtime::tasks;
use crate::session::in_flight::InFlightGuard;
use crate::session::replay::{EventId, GENERAL, Replay};
use crate::session::table::TableFull;
use crate::session::{ReverseVerdict, Session};
use crate::wire::{HostId, Kind, Member, Message, sse};

use super::answer::{Start, first_of_outbox};
use super::header_is_modern;

/// How long a host should wait before it takes a stream up again.
const RETRY: Duration = Duration::from_secs(1);
/// How long a request may take to end after its session.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The live session that a request names, whoever it belongs to.
pub(super) fn find(shared: &Shared, headers: &HeaderMap) -> Option<Arc<SessionEntry>> {
    shared.table.get(text(headers, &SESSION)?)
}

/// The session of a request, checked.
pub(super) fn session_of(
    shared: &Shared,
    peer: &Peer,
    headers: &HeaderMap,
) -> Result<Arc<SessionEntry>, Fault> {
    if !headers.contains_key(&SESSION) {
        return Err(Fault::new(
            400,
            fault::INVALID_REQUEST,
            "session_missing",
            "the header Mcp-Session-Id is missing: send initialize first and repeat the id of its answer",
        ));
    }
    // A session of someone else is answered like one that does not exist.
    match find(shared, headers).filter(|entry| entry.session.identity == peer.identity) {
        Some(entry) => Ok(entry),
        None => Err(Fault::new(
            404,
            fault::INVALID_REQUEST,
            "session_unknown",
            "there is no such session, or it has ended: send initialize again",
        )),
    }
}

fn check_version(headers: &HeaderMap) -> Result<(), Fault> {
    match text(headers, &VERSION) {
        None => Ok(()),
        Some(version) if Revision::parse(version).is_some_and(Revision::is_legacy) => Ok(()),
        Some(_) => Err(Fault::new(
            400,
            fault::INVALID_REQUEST,
            "version_unsupported",
            "MCP-Protocol-Version names no revision that this session can speak",
        )),
    }
}

/// Answers a legacy `POST` of one message.
pub(super) async fn post(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    headers: &HeaderMap,
    accepts: Accepts,
    message: Message,
) -> Answer {
    if message.kind() == Kind::Request && message.method().is_some_and(|method| method == "initialize") {
        return initialize(shared, peer, headers, accepts, message).await;
    }
    let id = message.id();
    let entry =
        match session_of(shared, peer, headers).and_then(|entry| check_version(headers).map(|()| entry)) {
            Ok(entry) => entry,
            Err(fault) => {
                return refuse(
                    shared,
                    peer,
                    &fault,
                    id.as_ref().filter(|_| message.kind() == Kind::Request),
                );
            }
        };
    match (message.kind(), id) {
        (Kind::Request, Some(id)) => {
            if message.method().is_some_and(|method| method == "ping") {
                return single(accepts, StatusCode::OK, fault::result(&id, "{}"));
            }
            let call = LegacyCall::new(shared, accepts);
            let reader = call.outbox.attach();
            match call.start(shared, &entry, message, &id) {
                Ok(()) => call.answer(shared, entry, reader, accepts).await,
                Err(fault) => refuse(shared, peer, &fault, Some(&id)),
            }
        }
        _ => match take(shared, &entry, message) {
            Ok(()) => empty(StatusCode::ACCEPTED),
            Err(fault) => refuse(shared, peer, &fault, None),
        },
    }
}

/// Takes a notification or a response.
pub(super) fn take(shared: &Shared, entry: &SessionEntry, message: Message) -> Result<(), Fault> {
    if message.kind() == Kind::Notification {
        notify(shared, entry, message);
        return Ok(());
    }
    match shared.service.response(&entry.caller, message) {
        ReverseVerdict::Accepted | ReverseVerdict::AlreadyAnswered => Ok(()),
        ReverseVerdict::Unknown => Err(Fault::new(
            400,
            fault::INVALID_REQUEST,
            "response_unknown",
            "this session was never asked anything under that id",
        )),
    }
}

fn notify(shared: &Shared, entry: &SessionEntry, message: Message) {
    if message
        .method()
        .is_some_and(|method| method == "notifications/cancelled")
        && let Some(id) = message.shared(Member::RequestId)
    {
        entry.session.in_flight.cancel(&HostId::from_raw(id));
    }
    shared.service.notification(&entry.caller, message);
}

/// One `POST` whose answer comes from the session: a request, or a batch of them.
pub(super) struct LegacyCall {
    pub(super) outbox: Arc<Outbox>,
    /// The stream's number, once events of it are written.
    stream: OnceLock<u64>,
}

impl LegacyCall {
    pub(super) fn new(shared: &Shared, accepts: Accepts) -> Arc<Self> {
        let outbox = Outbox::new(shared.settings.outbox);
        if !accepts.events {
            outbox.answers_only();
        }
        Arc::new(Self {
            outbox,
            stream: OnceLock::new(),
        })
    }

    /// Starts one request of the `POST` whose only request it is.
    fn start(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        entry: &Arc<SessionEntry>,
        message: Message,
        id: &HostId,
    ) -> Result<(), Fault> {
        let (request, guard) = self.admit(shared, entry, message, id)?;
        let (this, of) = (self.clone(), entry.clone());
        let complete = Box::new(move || this.complete(&of));
        run(
            shared,
            entry,
            request,
            guard,
            Slot::alone(self.outbox.clone(), id.clone(), Some(complete)),
        );
        Ok(())
    }

    /// Makes the request and notes it as open.
    pub(super) fn admit(
        &self,
        shared: &Shared,
        entry: &SessionEntry,
        message: Message,
        id: &HostId,
    ) -> Result<(HostRequest, InFlightGuard), Fault> {
        let in_flight = &entry.session.in_flight;
        if in_flight.len() >= shared.settings.open_requests {
            return Err(Fault::new(
                429,
                fault::BUSY,
                "too_many_requests",
                "too many requests are open in this session",
            )
            .retryable());
        }
        let cancel = entry.session.ended.child_token();
        let Some(guard) = in_flight.open(id.clone(), cancel.clone()) else {
            return Err(Fault::new(
                400,
                fault::INVALID_REQUEST,
                "id_in_use",
                "a request with the same id is still open in this session",
            ));
        };
        let request = HostRequest {
            caller: entry.caller.clone(),
            message,
            stream: self.outbox.clone(),
            cancel,
            headers: None,
        };
        Ok((request, guard))
    }

    /// No further answer will come.
    pub(super) fn complete(&self, entry: &SessionEntry) {
        self.outbox.finish();
        if let Some(stream) = self.stream.get()
            && !self.outbox.has_reader()
        {
            entry.face.replay.finished(*stream, self.outbox.queued_bytes());
        }
    }

    /// Answers the `POST` with the first form that fits.
    pub(super) async fn answer(
        self: Arc<Self>,
        shared: &Shared,
        entry: Arc<SessionEntry>,
        mut reader: OutboxReader,
        accepts: Accepts,
    ) -> Answer {
        match first_of_outbox(&mut reader, accepts, shared.settings.keep_alive).await {
            Start::Json(_, message) => json(StatusCode::OK, message),
            Start::Events => self.events(shared, entry, reader),
            Start::Nothing => empty(if entry.session.ended.is_cancelled() {
                StatusCode::NOT_FOUND
            } else {
                StatusCode::ACCEPTED
            }),
        }
    }

    /// From here on a stream, which the host can take up again.
    pub(super) fn events(&self, shared: &Shared, entry: Arc<SessionEntry>, reader: OutboxReader) -> Answer {
        let stream = *self
            .stream
            .get_or_init(|| entry.face.replay.open(self.outbox.clone()));
        let hold = entry.hold();
        let primed = entry.caller.revision.features().priming_event;
        let log = Logged {
            entry,
            stream,
            _hold: hold,
        };
        // What is streaming ends with its answer; only the end of the session cuts it short, by closing the outbox.
        let stop = tokio_util::sync::CancellationToken::new();
        let mut body = EventStream::new(reader, shared.settings.keep_alive, stop).with_log(log);
        if primed {
            let start = EventId { stream, number: 0 }.to_string();
            body = body.with_first(sse::priming(&start, Some(RETRY)));
        }
        events(body.into_pieces())
    }
}

/// Runs a request in a task of its own: it goes on when the connection is gone.
pub(super) fn run(
    shared: &Shared,
    entry: &SessionEntry,
    request: HostRequest,
    guard: InFlightGuard,
    slot: Slot,
) {
    let call = shared.service.clone().request(request);
    let ended = entry.session.ended.clone();
    tasks::spawn("legacy request", async move {
        let answer = tokio::select! {
            reply = call => reply.message,
            // It was cancelled with its session; one that does not end by itself is dropped.
            () = async { ended.cancelled().await; sleep(LAST_WORDS).await } => None,
        };
        // Before the answer: once a host has it, it may use the id again.
        drop(guard);
        slot.fill(answer);
    });
}

/// Ends a session that was made but never told to its host.
struct Unannounced<'s>(&'s Shared, Option<Arc<str>>);

impl Drop for Unannounced<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.1.take() {
            self.0.table.end(&id);
        }
    }
}

async fn initialize(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    headers: &HeaderMap,
    accepts: Accepts,
    message: Message,
) -> Answer {
    let Some(id) = message.id() else {
        return empty(StatusCode::ACCEPTED);
    };
    if find(shared, headers).is_some_and(|entry| entry.session.identity == peer.identity) {
        let fault = Fault::new(
            400,
            fault::INVALID_REQUEST,
            "already_initialized",
            "this session is initialized already; send initialize without Mcp-Session-Id for a new one",
        );
        return refuse(shared, peer, &fault, Some(&id));
    }
    let Some(requested) = message.text(Member::ProtocolVersion) else {
        let fault = Fault::new(
            400,
            fault::INVALID_PARAMS,
            "version_missing",
            "initialize needs params.protocolVersion, a string",
        );
        return refuse(shared, peer, &fault, Some(&id));
    };
    let revision = Revision::negotiate_legacy(&requested);
    let secret: Arc<str> = crypto::hex(&crypto::random::<24>()).into();
    let general = Outbox::new(shared.settings.outbox);
    let session = Arc::new(Session::new(
        secret.clone(),
        label_of(&secret),
        peer.identity.clone(),
        general.clone(),
    ));
    let caller = caller::legacy(&message, peer.transport, revision, session.clone());
    let face = LegacyFace {
        replay: Replay::new(shared.settings.replay, general.clone()),
        general,
    };
    if let Err(full) = shared
        .table
        .insert(Arc::new(SessionEntry::new(session, caller.clone(), face)))
    {
        let status = match full {
            TableFull::Total => 503,
            TableFull::Identity => 429,
        };
        let fault = Fault::new(status, fault::BUSY, "too_many_sessions", full.to_string()).retryable();
        return refuse(shared, peer, &fault, Some(&id));
    }
    let mut unannounced = Unannounced(shared, Some(secret.clone()));
    let result = shared.service.initialize(Initialize { caller }).await;
    let mut answer = single(accepts, StatusCode::OK, fault::result(&id, &result));
    if let Ok(value) = HeaderValue::from_str(&secret) {
        answer.headers_mut().insert(SESSION, value);
    }
    unannounced.1 = None;
    answer
}

/// A label that says which session it is without being its id.
pub(crate) fn label_of(id: &str) -> Arc<str> {
    crypto::sha256_hex(id.as_bytes())
        .chars()
        .take(8)
        .collect::<String>()
        .into()
}

/// Answers `GET`: the general stream, or a stream taken up again.
pub(super) fn get(shared: &Arc<Shared>, peer: &Arc<Peer>, headers: &HeaderMap) -> Answer {
    if header_is_modern(headers) && find(shared, headers).is_none() {
        return not_allowed("POST");
    }
    let entry =
        match session_of(shared, peer, headers).and_then(|entry| check_version(headers).map(|()| entry)) {
            Ok(entry) => entry,
            Err(fault) => return refuse(shared, peer, &fault, None),
        };
    if !edge::accepts(headers).events {
        let fault = Fault::new(
            406,
            fault::INVALID_REQUEST,
            "not_acceptable",
            "Accept must allow text/event-stream",
        );
        return refuse(shared, peer, &fault, None);
    }
    let resumed = match text(headers, &LAST_EVENT_ID).filter(|id| !id.is_empty()) {
        None => None,
        Some(id) => match EventId::parse(id).map(|id| entry.face.replay.resume(id)) {
            Some(Ok(resumed)) => Some(resumed),
            fault => {
                let message = match fault {
                    Some(Err(fault)) => fault.to_string(),
                    _ => "Last-Event-ID is no event id of this session".to_owned(),
                };
                let fault = Fault::new(400, fault::INVALID_REQUEST, "event_unknown", message);
                return refuse(shared, peer, &fault, None);
            }
        },
    };
    let (stream, missed, live) = match resumed {
        None => (GENERAL, Vec::new(), Some(entry.face.general.clone())),
        Some(resumed) => (resumed.stream, resumed.missed, resumed.live),
    };
    let outbox = live.unwrap_or_else(|| {
        let ended = Outbox::new(shared.settings.outbox);
        ended.finish();
        ended
    });
    let stop = if stream == GENERAL {
        shared.draining.clone()
    } else {
        tokio_util::sync::CancellationToken::new()
    };
    let hold = entry.hold();
    let body = EventStream::new(outbox.attach(), shared.settings.keep_alive, stop)
        .with_log(Logged {
            entry,
            stream,
            _hold: hold,
        })
        .with_missed(missed);
    events(body.into_pieces())
}

/// Answers `DELETE`: ends the session.
pub(super) fn delete(shared: &Arc<Shared>, peer: &Arc<Peer>, headers: &HeaderMap) -> Answer {
    if header_is_modern(headers) && find(shared, headers).is_none() {
        return not_allowed("POST");
    }
    match session_of(shared, peer, headers) {
        Ok(entry) => {
            shared.table.end(&entry.session.id);
            empty(StatusCode::NO_CONTENT)
        }
        Err(fault) => refuse(shared, peer, &fault, None),
    }
}

#[cfg(test)]
mod tests;
