//! What becomes of each message of the host, and of what the daemon sends.
//!
//! Messages are handed to the connection in the order of the host: the next line is read once the one before is on
//! its way. Answers come in any order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::daemon::{Answer, Daemon, Events};
use super::learned::Learned;
use crate::cli::print;
use crate::revision::Family;
use crate::runtime::tasks;
use crate::wire::json::{JsonLimits, quote};
use crate::wire::{HostId, Kind, Member, Message, headers};

/// How often a broken stream of a legacy call is taken up again.
const RESUMES: u32 = 5;
/// The first pause before a stream is opened again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The error code of a modern request whose headers do not fit its body.
const HEADER_MISMATCH: i64 = -32020;

/// The legacy session.
#[derive(Clone, Debug, Default)]
struct Session {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

impl Session {
    fn headers(&self) -> HeaderMap {
        let mut head = HeaderMap::new();
        if let Some(id) = &self.id {
            head.insert(headers::SESSION_ID, id.clone());
        }
        if let Some(version) = &self.version {
            head.insert(headers::PROTOCOL_VERSION, version.clone());
        }
        head
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Relay {
    daemon: Daemon,
    out: mpsc::Sender<Bytes>,
    session: Mutex<Session>,
    learned: Learned,
    /// Requests that are open. Cancelling one closes its exchange: for a modern request that is the whole
    /// cancellation, for a legacy one the daemon is told besides.
    open: Mutex<HashMap<HostId, (Family, CancellationToken)>>,
    requests: TaskTracker,
    ended: CancellationToken,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    pub(super) fn new(daemon: Daemon, out: mpsc::Sender<Bytes>) -> Self {
        Self {
            daemon,
            out,
            session: Mutex::default(),
            learned: Learned::default(),
            open: Mutex::default(),
            requests: TaskTracker::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Takes one line of the host and returns once it is on its way.
    pub(super) async fn from_host(self: &Arc<Self>, line: Bytes) {
        let Ok(message) = Message::parse(line.clone(), JsonLimits::default()) else {
            // A batch of 2025-03-26, or nothing that is MCP: the daemon has the right answer to both.
            let head = lock(&self.session).headers();
            self.start(move |relay, sent| async move { relay.unreadable(line, head, sent).await })
                .await;
            return;
        };
        let method = message.method().unwrap_or_default().into_owned();
        match (message.kind(), message.id()) {
            (Kind::Request, Some(id)) => {
                if let Some(version) = message.text(Member::MetaProtocolVersion) {
                    let version = version.into_owned();
                    self.exchange(Family::Modern, id.clone(), move |relay, sent| async move {
                        relay.modern(&message, &id, &version, sent).await;
                    })
                    .await;
                } else if method == "initialize" {
                    // Everything that follows needs the session.
                    self.initialize(&message, &id).await;
                } else {
                    self.exchange(Family::Legacy, id.clone(), move |relay, sent| async move {
                        relay.legacy(&message, &id, sent).await;
                    })
                    .await;
                }
            }
            (Kind::Notification, _) if method == "notifications/cancelled" => self.cancel(&message).await,
            _ => self.tell(&message, &method).await,
        }
    }

    /// Runs one exchange in a task of its own; returns once its request is on the way, or failed.
    async fn start<F, R>(self: &Arc<Self>, exchange: F)
    where
        F: FnOnce(Arc<Self>, oneshot::Sender<()>) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        let (sent, on_the_way) = oneshot::channel();
        let (exchange, ended) = (exchange(self.clone(), sent), self.ended.clone());
        tasks::spawn_tracked(&self.requests, "relayed request", async move {
            tokio::select! {
                () = exchange => {}
                () = ended.cancelled() => {}
            }
        });
        let _ = on_the_way.await;
    }

    /// Runs the exchange of one request until its end or its cancellation.
    async fn exchange<F, R>(self: &Arc<Self>, family: Family, id: HostId, exchange: F)
    where
        F: FnOnce(Arc<Self>, oneshot::Sender<()>) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        let cancel = CancellationToken::new();
        lock(&self.open).insert(id.clone(), (family, cancel.clone()));
        self.start(move |relay, sent| {
            let exchange = exchange(relay.clone(), sent);
            async move {
                tokio::select! {
                    // Dropping the exchange closes its connection.
                    () = cancel.cancelled() => {}
                    () = exchange => {}
                }
                lock(&relay.open).remove(&id);
            }
        })
        .await;
    }

    /// A host gets no answer to what it cancelled.
    async fn cancel(self: &Arc<Self>, message: &Message) {
        let id = message.shared(Member::RequestId).map(HostId::from_raw);
        let open = id.and_then(|id| lock(&self.open).get(&id).cloned());
        if let Some((_, cancel)) = &open {
            // First: the daemon ends the exchange of a cancelled request without an answer, which is none to report.
            cancel.cancel();
        }
        if !matches!(open, Some((Family::Modern, _))) {
            self.tell(message, "notifications/cancelled").await;
        }
    }

    async fn put(&self, message: Bytes) {
        // The writer is gone only when the host is.
        let _ = self.out.send(message).await;
    }

    async fn fail(&self, id: &HostId, code: &str, why: &str) {
        print::note(&format!("manifold: {why}"));
        let mut text = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        text.extend_from_slice(id.raw());
        text.extend_from_slice(
            format!(
                ",\"error\":{{\"code\":-32603,\"message\":{},\"data\":{{\"manifold\":{{\"side\":\"manifold\",\"code\":\"{code}\",\"retryable\":true}}}}}}}}",
                quote(why)
            )
            .as_bytes(),
        );
        self.put(text.into()).await;
    }

    fn unreachable(&self, why: &str) -> String {
        format!("{why}; is the daemon running? Start it with `manifold serve`, or correct --connect")
    }

    async fn initialize(self: &Arc<Self>, message: &Message, id: &HostId) {
        *lock(&self.session) = Session::default();
        let (head, answer) = match self
            .daemon
            .post(message.bytes().clone(), HeaderMap::new(), None)
            .await
        {
            Ok(answered) => answered,
            Err(why) => return self.fail(id, "daemon_unreachable", &self.unreachable(&why)).await,
        };
        let session = head.get(headers::SESSION_ID).cloned();
        let note = |answer: &Message| {
            let version = answer
                .text(Member::ProtocolVersion)
                .and_then(|version| HeaderValue::from_str(&version).ok());
            *lock(&self.session) = Session {
                id: session.clone(),
                version,
            };
        };
        self.deliver(answer, id, true, note).await;
    }

    async fn legacy(self: Arc<Self>, message: &Message, id: &HostId, sent: oneshot::Sender<()>) {
        let head = lock(&self.session).headers();
        match self.daemon.post(message.bytes().clone(), head, Some(sent)).await {
            Ok((_, answer)) => self.deliver(answer, id, true, |_| {}).await,
            Err(why) => self.fail(id, "daemon_unreachable", &self.unreachable(&why)).await,
        }
    }

    async fn modern(
        self: &Arc<Self>,
        message: &Message,
        id: &HostId,
        version: &str,
        sent: oneshot::Sender<()>,
    ) {
        let lists = message.method().as_deref() == Some("tools/list");
        let head = self.learned.headers(message, version);
        let mut answer = self.daemon.post(message.bytes().clone(), head, Some(sent)).await;
        if let Ok((_, Answer::Json(StatusCode::BAD_REQUEST, body))) = &answer
            && message.method().as_deref() == Some("tools/call")
            && Message::parse(body.clone(), JsonLimits::default())
                .is_ok_and(|error| error.error_code() == Some(HEADER_MISMATCH))
        {
            // A host that kept an older list: learn what this tool wants now, and ask once more. Nothing was called.
            self.learn(message, version).await;
            let head = self.learned.headers(message, version);
            answer = self.daemon.post(message.bytes().clone(), head, None).await;
        }
        match answer {
            Ok((_, answer)) => {
                let see = |answer: &Message| {
                    if lists {
                        self.learned.see(answer);
                    }
                };
                self.deliver(answer, id, false, see).await;
            }
            Err(why) => self.fail(id, "daemon_unreachable", &self.unreachable(&why)).await,
        }
    }

    /// Reads the tool list with the context of a request.
    async fn learn(&self, request: &Message, version: &str) {
        let Some(meta) = request.shared(Member::Meta) else {
            return;
        };
        let meta = String::from_utf8_lossy(&meta).into_owned();
        let mut cursor = String::new();
        loop {
            let text = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":\"learn\",\"method\":\"tools/list\",\"params\":{{{cursor}\"_meta\":{meta}}}}}"
            );
            let Ok(list) = Message::parse(text.into(), JsonLimits::default()) else {
                return;
            };
            let head = self.learned.headers(&list, version);
            let Ok((_, Answer::Json(StatusCode::OK, body))) =
                self.daemon.post(list.bytes().clone(), head, None).await
            else {
                return;
            };
            let Ok(page) = Message::parse(body, JsonLimits::default()) else {
                return;
            };
            self.learned.see(&page);
            match page.text(Member::NextCursor) {
                Some(next) => cursor = format!("\"cursor\":{},", quote(&next)),
                None => return,
            }
        }
    }

    /// A batch, or something that is no message.
    async fn unreadable(self: Arc<Self>, line: Bytes, head: HeaderMap, sent: oneshot::Sender<()>) {
        match self.daemon.post(line, head, Some(sent)).await {
            Ok((_, Answer::Json(_, body))) => self.put(body).await,
            Ok((_, Answer::Events(mut events))) => {
                while let Some(data) = events.next().await {
                    self.put(data).await;
                }
            }
            Ok((_, Answer::Refused(status, text))) => {
                print::note(&format!("manifold: the daemon answered {status}: {text}"));
            }
            Ok((_, Answer::Accepted)) => {}
            Err(why) => print::note(&format!("manifold: {}", self.unreachable(&why))),
        }
    }

    /// Hands the answer of a request to the host. `seen` is shown the final answer.
    async fn deliver(&self, answer: Answer, id: &HostId, legacy: bool, seen: impl Fn(&Message)) {
        match answer {
            Answer::Json(status, body) => {
                let message = Message::parse(body.clone(), JsonLimits::default()).ok();
                if legacy && status == StatusCode::NOT_FOUND {
                    let why = "the daemon does not know this session any more (it was restarted, or the session was idle for too long): restart this connection";
                    return self.fail(id, "session_lost", why).await;
                }
                match message.filter(|message| answers(message, id)) {
                    Some(message) => {
                        seen(&message);
                        self.put(body).await;
                    }
                    None => {
                        let why = format!("the daemon answered {status} without an answer to this request");
                        self.fail(id, "bad_answer", &why).await;
                    }
                }
            }
            Answer::Events(events) => self.stream(events, id, legacy, seen).await,
            Answer::Accepted => {
                self.fail(id, "bad_answer", "the daemon took a request without an answer")
                    .await
            }
            Answer::Refused(status, text) => {
                let why = format!(
                    "{} answered {status}: {}; is it a manifold, and is the path right?",
                    self.daemon.shown(),
                    text.trim()
                );
                self.fail(id, "bad_answer", &why).await;
            }
        }
    }

    /// Passes the messages of a stream on until the answer; a broken stream of a legacy session is taken up again.
    async fn stream(&self, mut events: Box<Events>, id: &HostId, legacy: bool, seen: impl Fn(&Message)) {
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        loop {
            while let Some(data) = events.next().await {
                let last = Message::parse(data.clone(), JsonLimits::default())
                    .ok()
                    .filter(|message| answers(message, id));
                if let Some(message) = &last {
                    seen(message);
                }
                self.put(data).await;
                if last.is_some() {
                    return;
                }
            }
            let why = events.broken().unwrap_or("the stream ended").to_owned();
            let resumable = events.last_id().filter(|_| legacy);
            let mut resumed = None;
            while let Some(after) = &resumable
                && tries < RESUMES
            {
                tries += 1;
                sleep(events.retry().unwrap_or(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                let head = lock(&self.session).headers();
                match self.daemon.open_stream(head, Some(after)).await {
                    Ok(Ok(stream)) => {
                        resumed = Some(stream);
                        break;
                    }
                    Ok(Err(_)) => break,
                    Err(_) => {}
                }
            }
            match resumed {
                Some(stream) => events = stream,
                None => {
                    let why = format!("the connection to the daemon broke before its answer: {why}");
                    return self.fail(id, "daemon_lost", &why).await;
                }
            }
        }
    }

    /// A notification or an answer of the host: nothing comes back.
    async fn tell(self: &Arc<Self>, message: &Message, method: &str) {
        let head = lock(&self.session).headers();
        if !head.contains_key(headers::SESSION_ID) {
            // Outside of a session nothing of the kind has an effect.
            return;
        }
        match self.daemon.post(message.bytes().clone(), head, None).await {
            Ok((_, Answer::Accepted)) => {}
            Ok((_, Answer::Json(status, _) | Answer::Refused(status, _))) => {
                print::note(&format!(
                    "manifold: the daemon refused a message of the host: {status}"
                ));
            }
            Ok((_, Answer::Events(_))) => {}
            Err(why) => print::note(&format!("manifold: {}", self.unreachable(&why))),
        }
        if method == "notifications/initialized" {
            let relay = self.clone();
            tasks::spawn("relayed stream", async move {
                let ended = relay.ended.clone();
                tokio::select! {
                    () = relay.general() => {}
                    () = ended.cancelled() => {}
                }
            });
        }
    }

    /// What the daemon says outside of requests, as long as the session lives.
    async fn general(&self) {
        let head = lock(&self.session).headers();
        let mut last: Option<String> = None;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.daemon.open_stream(head.clone(), last.as_deref()).await {
                Ok(Ok(mut events)) => {
                    while let Some(data) = events.next().await {
                        pause = FIRST_PAUSE;
                        self.put(data).await;
                    }
                    last = events.last_id().or(last);
                    sleep(events.retry().unwrap_or(pause)).await;
                }
                Ok(Err(StatusCode::NOT_FOUND)) => {
                    print::note("manifold: the daemon has ended this session");
                    return;
                }
                // It has none to give.
                Ok(Err(StatusCode::METHOD_NOT_ALLOWED)) => return,
                Ok(Err(_)) | Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until no request is open.
    pub(super) async fn idle(&self) {
        self.requests.close();
        self.requests.wait().await;
    }

    /// Ends the session: open streams are closed, the daemon is told.
    pub(super) async fn end(&self) {
        self.ended.cancel();
        let head = lock(&self.session).headers();
        if head.contains_key(headers::SESSION_ID) {
            self.daemon.delete(head).await;
        }
    }
}

/// Whether this is the answer to the request of that id. An error whose id the daemon could not read counts.
fn answers(message: &Message, id: &HostId) -> bool {
    match message.kind() {
        Kind::Result => message.id().as_ref() == Some(id),
        Kind::Error => message.id().is_none_or(|answered| answered == *id),
        _ => false,
    }
}
