//! Streamable HTTP towards a server, both families: one POST per message, answers as JSON or as events.
//!
//! [`Link`](crate::downstream::link::Link) calls it. A call runs in its caller's future: dropping it closes the
//! stream. It owns the session id and the GET stream of the legacy family. It never repeats a request.
//!
//! It is long because one exchange shares its session, its resumption and its faults with the GET stream.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::http::{
    Delivered, Delivery, EventStream, Head, HttpTarget, Outbox, Pieces, ReadFault, collect, mentions_session,
    short_body,
};
use crate::downstream::connection::{Connection, Origin};
use crate::downstream::link::{Answer, RequestHead};
use crate::pipeline::port::{CallFault, FaultKind};
use crate::revision::{Family, Revision};
use crate::runtime::tasks;
use crate::wire::sse::SseFault;
use crate::wire::{Member, Message, Outgoing, Splice, WireId, headers};

/// How long to wait before coming back to a stream, unless the server says.
const RETRY: Duration = Duration::from_secs(1);
/// A server may not make us wait longer than this, nor shorter than [`SHORTEST_RETRY`].
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// See [`LONGEST_RETRY`].
const SHORTEST_RETRY: Duration = Duration::from_millis(10);
/// Attempts in a row to resume the stream of a call that bring nothing; each wait is longer than the one before.
const RESUMES: u32 = 5;
/// A GET stream that lived this long was fine: the next wait is short again.
const GOOD_STREAM: Duration = Duration::from_secs(30);
/// How long the end of a session may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// What a lost session is called, in the call that noticed and as the end of the connection.
const FORGOTTEN: &str = "the server has forgotten the session";

/// The way to a server over Streamable HTTP.
#[derive(Debug)]
pub struct StreamableLink(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    target: Arc<HttpTarget>,
    family: Family,
    revision: OnceLock<HeaderValue>,
    session: OnceLock<HeaderValue>,
    /// The server does not know our session any more: there is nothing to end.
    forgotten: AtomicBool,
    outbox: Arc<Outbox>,
    stop: CancellationToken,
    /// A refused notification was logged.
    grumbled: AtomicBool,
}

impl StreamableLink {
    /// A link that has sent nothing yet.
    #[must_use]
    pub fn new(target: Arc<HttpTarget>, family: Family) -> Arc<Self> {
        Arc::new(Self(Arc::new(Shared {
            target,
            family,
            revision: OnceLock::new(),
            session: OnceLock::new(),
            forgotten: AtomicBool::new(false),
            outbox: Arc::default(),
            stop: CancellationToken::new(),
            grumbled: AtomicBool::new(false),
        })))
    }

    /// Whether it speaks the modern family.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.0.family == Family::Modern
    }

    /// Legacy: what `MCP-Protocol-Version` says from now on; once.
    pub fn set_revision(&self, revision: Revision) {
        let _ = self.0.revision.set(HeaderValue::from_static(revision.as_str()));
    }

    /// Sends one request and waits for its answer. Dropping the future closes the stream.
    ///
    /// # Errors
    /// Why there is no answer; `status` is set when an HTTP status was the reason.
    pub async fn call(
        &self,
        connection: &Arc<Connection>,
        id: WireId,
        head: RequestHead,
        body: Outgoing,
        mut answered: oneshot::Receiver<Answer>,
    ) -> Answer {
        let shared = self.0.as_ref();
        shared.outbox.introduced().await;
        let request = shared.post(&head, body);
        if !connection.begin_sending(id) {
            let text = format!(
                "server \"{}\": the call was given up before it was sent",
                connection.server()
            );
            return Err(CallFault::unsent(FaultKind::Cancelled, text));
        }
        let gone = |_| {
            let text = format!("server \"{}\": the call was given up", connection.server());
            Err(CallFault::sent(FaultKind::Lost, text))
        };
        let exchange = Exchange {
            shared,
            connection,
            id,
            in_session: request.headers().contains_key(headers::SESSION_ID),
        };
        let outcome = {
            let exchange = pin!(exchange.run(request, head.method == "initialize"));
            tokio::select! {
                biased;
                answer = &mut answered => return answer.unwrap_or_else(gone),
                outcome = exchange => outcome,
            }
        };
        match outcome {
            Ok(()) => answered.await.unwrap_or_else(gone),
            Err(fault) => {
                // The answer may have come another way at the very end.
                if let Some(Ok(answer)) = (&mut answered).now_or_never() {
                    return answer;
                }
                if fault.kind != FaultKind::Lost || fault.status.is_some() {
                    // Nothing runs there: a cancellation would be noise.
                    connection.fail(id, fault.kind, String::new());
                }
                Err(fault)
            }
        }
    }

    /// Sends a notification or a response in the background, in the order of the calls; best effort.
    pub fn notify(&self, connection: &Arc<Connection>, message: Outgoing) {
        let (shared, server) = (self.0.clone(), connection.server().clone());
        self.0.outbox.push(message, move |message| {
            let (shared, server) = (shared.clone(), server.clone());
            async move { shared.tell(&server, message).await }.boxed()
        });
    }

    /// Legacy: keeps the GET stream open, on which servers send what belongs to no call. A server that offers none
    /// is asked once. Ends with the connection.
    ///
    /// What changed while a stream was down is not told: the owner of the connection may want to look at the lists
    /// after a gap, and there is no hook for that yet.
    pub fn listen(self: &Arc<Self>, connection: &Arc<Connection>) {
        if self.is_modern() {
            return;
        }
        let (shared, weak, end) = (self.0.clone(), Arc::downgrade(connection), connection.end_token());
        drop(tasks::spawn("http stream", async move {
            let stop = shared.stop.clone();
            let listening = pin!(shared.keep_listening(&weak));
            tokio::select! {
                () = end.cancelled() => {}
                () = stop.cancelled() => {}
                () = listening => {}
            }
        }));
    }

    /// Stops listening and ends the session; a server that cannot end one is fine.
    pub async fn close(&self) {
        let shared = &self.0;
        shared.stop.cancel();
        if self.is_modern() || shared.session.get().is_none() || shared.forgotten.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let request = shared.bare(Method::DELETE, Outgoing::new());
        match tokio::time::timeout(GOODBYE, shared.target.send("", request)).await {
            Ok(Ok(response)) => tracing::debug!(status = response.status().as_u16(), "ended an HTTP session"),
            Ok(Err(fault)) => tracing::debug!(%fault, "an HTTP session could not be ended"),
            Err(_) => tracing::debug!("an HTTP session was not ended in time"),
        }
    }
}

impl Shared {
    /// A request with the headers that every one has.
    fn bare(&self, method: Method, body: Outgoing) -> Request<Pieces> {
        let mut request = self.target.request(method, self.target.uri(), body);
        let map = request.headers_mut();
        match self.family {
            Family::Modern => {
                map.insert(
                    headers::PROTOCOL_VERSION,
                    HeaderValue::from_static(Revision::newest_modern().as_str()),
                );
            }
            Family::Legacy => {
                if let Some(revision) = self.revision.get() {
                    map.insert(headers::PROTOCOL_VERSION, revision.clone());
                }
                if let Some(session) = self.session.get() {
                    map.insert(headers::SESSION_ID, session.clone());
                }
            }
        }
        request
    }

    fn post(&self, head: &RequestHead, body: Outgoing) -> Request<Pieces> {
        let mut request = self.bare(Method::POST, body);
        if self.family == Family::Modern {
            let map = request.headers_mut();
            if let Some(method) = header_value(&head.method) {
                map.insert(headers::METHOD, method);
            }
            if let Some(name) = head.name.as_deref().and_then(header_value) {
                map.insert(headers::NAME, name);
            }
            for (name, value) in &head.params {
                // These come encoded: what is a valid header value goes as it is.
                let value = HeaderValue::from_str(value).ok().or_else(|| header_value(value));
                if let (Ok(name), Some(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
                    map.insert(name, value);
                }
            }
        }
        request
    }

    /// POSTs something that has no answer.
    async fn tell(&self, server: &str, message: Outgoing) {
        let head = match self.family {
            Family::Legacy => RequestHead::default(),
            Family::Modern => {
                let parsed = Message::parse(message.clone().into_bytes(), self.target.limits().json).ok();
                let method = parsed
                    .as_ref()
                    .and_then(Message::method)
                    .unwrap_or_default()
                    .into_owned();
                RequestHead {
                    method,
                    ..RequestHead::default()
                }
            }
        };
        let problem = match self.target.send(server, self.post(&head, message)).await {
            Ok(response) if response.status().is_success() => {
                let (_, body) = Head::split(response);
                // Read to its end, so that the connection can be used again.
                let _ = short_body(body).await;
                return;
            }
            Ok(response) => format!("HTTP {}", response.status().as_u16()),
            Err(fault) => fault.message,
        };
        if !self.grumbled.swap(true, Ordering::AcqRel) {
            tracing::debug!(
                server,
                problem,
                "a notification was not taken; further ones are not reported"
            );
        }
    }

    fn remember_session(&self, server: &str, head: &Head) {
        let Some(value) = head.get(headers::SESSION_ID) else {
            return;
        };
        if value.is_empty() || !value.as_bytes().iter().all(u8::is_ascii_graphic) {
            tracing::warn!(server, "ignored a session id that is not visible ASCII");
            return;
        }
        let mut value = value.clone();
        value.set_sensitive(true);
        let _ = self.session.set(value);
    }

    /// The session is gone: this connection is of no use any more.
    fn forget(&self, connection: &Arc<Connection>) {
        self.forgotten.store(true, Ordering::Release);
        connection.close(FORGOTTEN);
    }

    fn get(&self, last_event_id: Option<&str>) -> Request<Pieces> {
        let mut request = self.bare(Method::GET, Outgoing::new());
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            request.headers_mut().insert(headers::LAST_EVENT_ID, id);
        }
        request
    }

    async fn keep_listening(&self, weak: &Weak<Connection>) {
        let mut last_event_id: Option<Box<str>> = None;
        let mut fruitless = 0u32;
        let mut retry = RETRY;
        loop {
            let Some(server) = weak.upgrade().map(|connection| connection.server().clone()) else {
                return;
            };
            let in_session = self.session.get().is_some();
            match self
                .target
                .send(&server, self.get(last_event_id.as_deref()))
                .await
            {
                Ok(response) => {
                    let (head, body) = Head::split(response);
                    if head.status == StatusCode::NOT_FOUND && in_session {
                        if let Some(connection) = weak.upgrade() {
                            self.forget(&connection);
                        }
                        return;
                    }
                    if head.status.is_success() && head.is_event_stream() {
                        let since = Instant::now();
                        let mut stream = EventStream::new(body, &self.target.limits());
                        self.read_events(weak, &mut stream).await;
                        if since.elapsed() >= GOOD_STREAM {
                            fruitless = 0;
                        }
                        retry = bounded(stream.decoder().retry());
                        if let Some(id) = stream.decoder().last_event_id() {
                            last_event_id = Some(id.into());
                        }
                        tracing::debug!(%server, "the GET stream {}", stream.ending());
                    } else if head.status.is_server_error() && head.status != StatusCode::NOT_IMPLEMENTED
                        || head.status == StatusCode::TOO_MANY_REQUESTS
                    {
                        tracing::debug!(%server, status = head.status.as_u16(), "no GET stream for now");
                    } else {
                        tracing::debug!(%server, status = head.status.as_u16(), "the server offers no GET stream");
                        return;
                    }
                }
                Err(fault) => tracing::debug!(%server, %fault, "no GET stream for now"),
            }
            tokio::time::sleep(grown(retry, fruitless)).await;
            fruitless = fruitless.saturating_add(1);
        }
    }

    async fn read_events(&self, weak: &Weak<Connection>, stream: &mut EventStream) {
        while let Some(event) = stream.next().await {
            let Some(connection) = weak.upgrade() else { return };
            let json = self.target.limits().json;
            let delivery = Delivery {
                connection: &connection,
                origin: Origin::Connection,
                in_session: false,
                json,
            };
            take_stray(&self.target, &delivery, event);
        }
    }
}

/// Delivers an event of a stream that belongs to no call.
pub(super) fn take_stray(
    target: &HttpTarget,
    delivery: &Delivery<'_>,
    event: Result<crate::wire::sse::Event, SseFault>,
) {
    let connection = delivery.connection;
    let server = connection.server();
    match event {
        Ok(event) if event.data.is_empty() || event.name.is_some() => {}
        Ok(event) => match delivery.deliver(event.data.clone()) {
            Delivered::Unreadable(why) => {
                let shown = target.excerpt(&event.data);
                tracing::warn!(%server, "skipped an event that is no message ({why}): {shown}");
            }
            Delivered::Anonymous(message) => {
                let text = message
                    .text(Member::ErrorMessage)
                    .unwrap_or_default()
                    .into_owned();
                tracing::warn!(%server, "the server reports an error that names no request: {text}");
            }
            _ => {}
        },
        Err(fault) => {
            let SseFault::TooLarge { head, .. } = &fault;
            let text = format!("server \"{server}\": {fault}");
            match answer_id(head).or_else(|| connection.only_call()) {
                Some(id) => connection.fail(id, FaultKind::TooLarge, text),
                None => tracing::warn!("{text}"),
            }
        }
    }
}

/// The id of an answer, dug out of the start of an event that is too long to be read.
fn answer_id(head: &[u8]) -> Option<WireId> {
    let text = String::from_utf8_lossy(head.get(..200).unwrap_or(head));
    let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let rest = compact.strip_prefix('{')?;
    let rest = rest.strip_prefix("\"jsonrpc\":\"2.0\",").unwrap_or(rest);
    let digits: String = rest
        .strip_prefix("\"id\":")?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    WireId::from_raw(digits.as_bytes())
}

fn header_value(text: &str) -> Option<HeaderValue> {
    if text.is_empty() {
        return None;
    }
    HeaderValue::from_str(&headers::encode_value(text)).ok()
}

fn bounded(retry: Option<Duration>) -> Duration {
    retry.unwrap_or(RETRY).clamp(SHORTEST_RETRY, LONGEST_RETRY)
}

/// The wait after so many attempts in vain: doubled each time, up to the longest.
fn grown(retry: Duration, fruitless: u32) -> Duration {
    retry
        .saturating_mul(1 << fruitless.min(6))
        .min(LONGEST_RETRY.max(retry))
}

/// One call under way.
struct Exchange<'a> {
    shared: &'a Shared,
    connection: &'a Arc<Connection>,
    id: WireId,
    in_session: bool,
}

/// How reading one stream of a call ended.
enum Stream {
    Answered,
    /// Ended without the answer.
    Ended,
}

impl Exchange<'_> {
    /// `Ok` when the answer has been dispatched.
    async fn run(&self, request: Request<Pieces>, opening: bool) -> Result<(), CallFault> {
        let target = &self.shared.target;
        let response = target.send(self.connection.server(), request).await?;
        let (head, body) = Head::split(response);
        if opening && self.shared.family == Family::Legacy && head.status.is_success() {
            self.shared.remember_session(self.connection.server(), &head);
        }
        if head.is_event_stream() {
            let stream = EventStream::new(body, &target.limits());
            return self.events(&head, stream).await;
        }
        if head.status.is_redirection() || head.status == StatusCode::UNAUTHORIZED {
            return Err(target.refused(self.connection, &head, b""));
        }
        let body = if head.status.is_success() {
            collect(body, target.limits().body)
                .await
                .map_err(|fault| self.unread(&fault))?
        } else {
            short_body(body).await
        };
        self.take_body(&head, body)
    }

    fn delivery(&self) -> Delivery<'_> {
        Delivery {
            connection: self.connection,
            origin: Origin::Call(self.id),
            in_session: self.in_session,
            json: self.shared.target.limits().json,
        }
    }

    fn fault(&self, kind: FaultKind, text: &str) -> CallFault {
        CallFault::sent(kind, format!("server \"{}\": {text}", self.connection.server()))
    }

    fn unread(&self, fault: &ReadFault) -> CallFault {
        let kind = match fault {
            ReadFault::TooLarge { .. } => FaultKind::TooLarge,
            ReadFault::Broken(_) => FaultKind::Lost,
        };
        self.fault(kind, &fault.to_string())
    }

    fn forgotten(&self, status: Option<StatusCode>) -> CallFault {
        let fault = CallFault {
            status: status.map(|status| status.as_u16()),
            // Refused before it ran: the host is told that it may send the call again, which manifold never does.
            sent: false,
            ..self.fault(FaultKind::Lost, FORGOTTEN)
        };
        // First this call, then the connection with the calls that may have run.
        self.connection.refuse(self.id, fault.clone());
        self.shared.forget(self.connection);
        fault
    }

    /// An answer that is not a stream.
    fn take_body(&self, head: &Head, body: bytes::Bytes) -> Result<(), CallFault> {
        let target = &self.shared.target;
        let status = head.status;
        let failed = !status.is_success();
        if failed && self.in_session && self.means_forgotten(status, &body) {
            return Err(self.forgotten(Some(status)));
        }
        if body.trim_ascii().is_empty() {
            if failed {
                return Err(target.refused(self.connection, head, b""));
            }
            let text = format!("HTTP {} without an answer in it", status.as_u16());
            return Err(self.fault(FaultKind::Malformed, &text));
        }
        match self.delivery().deliver(body.clone()) {
            Delivered::Answer => Ok(()),
            Delivered::Forgotten => Err(self.forgotten(None)),
            Delivered::Anonymous(message) => self.anonymous(head, &message, &body),
            _ if failed => Err(target.refused(self.connection, head, &body)),
            Delivered::Other => {
                let text = format!(
                    "what it sent is not the answer of this call: {}",
                    target.excerpt(&body)
                );
                Err(self.fault(FaultKind::Malformed, &text))
            }
            Delivered::Unreadable(why) => {
                let kind = head.media_type();
                let text = format!(
                    "what it sent is no message ({kind:?}, {why}): {}",
                    target.excerpt(&body)
                );
                Err(self.fault(FaultKind::Malformed, &text))
            }
        }
    }

    /// A refusal of a request that named a session: 404 by the protocol, 400 with a word on it by habit.
    fn means_forgotten(&self, status: StatusCode, body: &[u8]) -> bool {
        /// The one error for which a modern habit gives 404 as well.
        const METHOD_NOT_FOUND: i64 = -32601;
        match status {
            StatusCode::NOT_FOUND => {
                let parsed = Message::parse(
                    bytes::Bytes::copy_from_slice(body),
                    self.shared.target.limits().json,
                );
                !parsed.is_ok_and(|message| {
                    message.wire_id() == Some(self.id) && message.error_code() == Some(METHOD_NOT_FOUND)
                })
            }
            StatusCode::BAD_REQUEST => mentions_session(body),
            _ => false,
        }
    }

    /// An error without an id, in answer to our one request: it is about that, and is given its id. While the
    /// family is not known, a status of refusal says more, unless the error is one that only modern servers send.
    fn anonymous(&self, head: &Head, message: &Message, body: &[u8]) -> Result<(), CallFault> {
        /// Unsupported version, missing capability, header mismatch.
        const MODERN: std::ops::RangeInclusive<i64> = -32022..=-32020;
        let is_modern = message.error_code().is_some_and(|code| MODERN.contains(&code));
        if !head.status.is_success() && !is_modern {
            return Err(self.shared.target.refused(self.connection, head, body));
        }
        let Some(error) = message.payload() else {
            return Err(self.fault(FaultKind::Malformed, "an error without content"));
        };
        let mut splice = Splice::new();
        splice.replace(
            message.extent(),
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{}}}",
                self.id,
                error.text(message.bytes())
            ),
        );
        match self
            .delivery()
            .deliver(splice.apply(message.bytes()).into_bytes())
        {
            Delivered::Answer => Ok(()),
            _ => Err(self.fault(FaultKind::Malformed, "an error that cannot be read")),
        }
    }

    /// An answer that is a stream, and the streams that continue it.
    async fn events(&self, head: &Head, mut stream: EventStream) -> Result<(), CallFault> {
        let mut last_event_id: Option<Box<str>> = None;
        let mut retry = RETRY;
        let mut fruitless = 0u32;
        loop {
            if let Stream::Answered = self.read(&mut stream).await? {
                return Ok(());
            }
            if !head.status.is_success() {
                return Err(self.shared.target.refused(self.connection, head, b""));
            }
            let decoder = stream.decoder();
            retry = decoder.retry().map_or(retry, |retry| bounded(Some(retry)));
            match decoder.last_event_id() {
                Some(id) if last_event_id.as_deref() != Some(id) => {
                    last_event_id = Some(id.into());
                    fruitless = 0;
                }
                _ => fruitless += 1,
            }
            let resume = last_event_id
                .as_deref()
                .filter(|_| self.shared.family == Family::Legacy);
            let Some(resume) = resume else {
                let text = format!("the stream {} before the answer", stream.ending());
                return Err(self.fault(FaultKind::Lost, &text));
            };
            drop(stream);
            stream = loop {
                if fruitless > RESUMES {
                    return Err(self.fault(
                        FaultKind::Lost,
                        "the stream ended before the answer and did not come back",
                    ));
                }
                tokio::time::sleep(grown(retry, fruitless)).await;
                match self.resume(resume).await? {
                    Some(stream) => break stream,
                    None => fruitless += 1,
                }
            };
        }
    }

    /// Comes back to a stream. `None` if it is worth another attempt.
    async fn resume(&self, last_event_id: &str) -> Result<Option<EventStream>, CallFault> {
        let target = &self.shared.target;
        let Ok(response) = target
            .send(self.connection.server(), self.shared.get(Some(last_event_id)))
            .await
        else {
            return Ok(None);
        };
        let (head, body) = Head::split(response);
        match head.status {
            status if status.is_success() && head.is_event_stream() => {
                Ok(Some(EventStream::new(body, &target.limits())))
            }
            StatusCode::NOT_FOUND if self.in_session => Err(self.forgotten(None)),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => Ok(None),
            status => {
                let text = format!(
                    "the stream ended before the answer and cannot be resumed (HTTP {})",
                    status.as_u16()
                );
                Err(self.fault(FaultKind::Lost, &text))
            }
        }
    }

    async fn read(&self, stream: &mut EventStream) -> Result<Stream, CallFault> {
        let target = &self.shared.target;
        while let Some(event) = stream.next().await {
            let data = match event {
                // A name makes it something else; without data it only carries an id.
                Ok(event) if event.data.is_empty() || event.name.is_some() => continue,
                Ok(event) => event.data,
                Err(fault) => {
                    let SseFault::TooLarge { head, .. } = &fault;
                    if memchr::memmem::find(head, b"\"method\"").is_some() {
                        tracing::warn!(server = %self.connection.server(), "dropped an event ({fault})");
                        continue;
                    }
                    return Err(self.fault(FaultKind::TooLarge, &fault.to_string()));
                }
            };
            match self.delivery().deliver(data.clone()) {
                Delivered::Answer => return Ok(Stream::Answered),
                Delivered::Forgotten => return Err(self.forgotten(None)),
                Delivered::Other => {}
                Delivered::Anonymous(message) => {
                    let text = message
                        .text(Member::ErrorMessage)
                        .unwrap_or_default()
                        .into_owned();
                    let text = format!(
                        "an error that names no request: {}",
                        target.excerpt(text.as_bytes())
                    );
                    return Err(self.fault(FaultKind::Malformed, &text));
                }
                Delivered::Unreadable(why) => {
                    let shown = target.excerpt(&data);
                    tracing::warn!(server = %self.connection.server(), "skipped an event that is no message ({why}): {shown}");
                }
            }
        }
        Ok(Stream::Ended)
    }
}
