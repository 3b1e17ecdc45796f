//! A scripted pipeline and a small HTTP client, for the tests of the host faces only.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::config::BindAddress;
use crate::pipeline::{HostRequest, HostService, Initialize, Reply};
use crate::runtime::tasks;
use crate::session::reverse::ReverseAnswer;
use crate::session::{Caller, HostStream, HostTransport, Lane, ReverseVerdict, Session};
use crate::wire::{HostId, Member, Message, Outgoing};

use super::{BoundAddress, HostServer, HostSettings};

/// A pipeline whose tools do what their names say:
/// `echo` answers with its arguments; `progress` reports three times, then answers; `first` reports once and then
/// waits for the gate; `slow` waits for the gate or its cancellation; `ask` asks the host and answers with what came
/// back; `big` answers with 2 MiB; `panic` panics; `flood` reports 5,000 times and then waits for the gate.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) gate: Semaphore,
    pub(crate) started: AtomicUsize,
    /// Calls whose future was dropped before it was done.
    pub(crate) dropped: AtomicUsize,
    /// Calls that saw their token cancelled.
    pub(crate) cancelled: AtomicUsize,
    pub(crate) answered: AtomicUsize,
    pub(crate) ended: Mutex<Vec<String>>,
    pub(crate) notes: Mutex<Vec<String>>,
    pub(crate) rejected: Mutex<Vec<&'static str>>,
    pub(crate) callers: Mutex<Vec<Arc<Caller>>>,
}

impl Fake {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Semaphore::new(0),
            started: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            ended: Mutex::default(),
            notes: Mutex::default(),
            rejected: Mutex::default(),
            callers: Mutex::default(),
        })
    }

    /// Lets this many waiting calls go on.
    pub(crate) fn open(&self, calls: usize) {
        self.gate.add_permits(calls);
    }

    pub(crate) fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::SeqCst)
    }

    fn add(counter: &AtomicUsize) {
        counter.fetch_add(1, Ordering::SeqCst);
    }

    /// The newest legacy session.
    pub(crate) fn session(&self) -> Arc<Session> {
        let callers = self.callers.lock().unwrap();
        callers
            .iter()
            .rev()
            .find_map(|caller| caller.session.clone())
            .unwrap()
    }
}

struct Watch<'f>(&'f Fake, bool);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.1 {
            Fake::add(&self.0.dropped);
        }
    }
}

pub(crate) fn result(id: &HostId, result: &str) -> Outgoing {
    super::fault::result(id, result)
}

fn report(stream: &dyn HostStream, n: usize) {
    let text = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":1,\"progress\":{n}}}}}"
    );
    stream.send(Lane::Progress(1), Outgoing::from(text));
}

impl HostService for Fake {
    fn request(self: Arc<Self>, request: HostRequest) -> BoxFuture<'static, Reply> {
        Self::add(&self.started);
        self.callers.lock().unwrap().push(request.caller.clone());
        Box::pin(async move {
            let mut watch = Watch(&self, false);
            let id = request.message.id().unwrap();
            let name = request
                .message
                .text(Member::Name)
                .unwrap_or_default()
                .into_owned();
            let mut cancelled = false;
            let wait = async {
                tokio::select! {
                    permit = self.gate.acquire() => { permit.unwrap().forget(); false }
                    () = request.cancel.cancelled() => true,
                }
            };
            let body = match name.as_str() {
                "progress" => {
                    for n in 1..=3 {
                        report(request.stream.as_ref(), n);
                    }
                    "{\"done\":true}".to_owned()
                }
                "first" => {
                    report(request.stream.as_ref(), 1);
                    cancelled = wait.await;
                    "{\"first\":true}".to_owned()
                }
                "slow" => {
                    cancelled = wait.await;
                    "{\"slow\":true}".to_owned()
                }
                "flood" => {
                    for n in 1..=5_000 {
                        report(request.stream.as_ref(), n);
                    }
                    cancelled = wait.await;
                    "{\"flood\":true}".to_owned()
                }
                "ask" => {
                    let session = request.caller.session.clone().unwrap();
                    let (send, receive) = oneshot::channel();
                    let asked = session.reverse.ask(
                        move |answer| {
                            let _ = send.send(answer);
                        },
                        None,
                    );
                    let question = format!(
                        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"elicitation/create\",\"params\":{{}}}}",
                        asked.unwrap()
                    );
                    request.stream.send(Lane::Request, Outgoing::from(question));
                    match receive.await.unwrap() {
                        ReverseAnswer::Answered(message) => {
                            let span = message.payload().unwrap();
                            String::from_utf8_lossy(&message.slice(span)).into_owned()
                        }
                        ReverseAnswer::Gone => "{\"gone\":true}".to_owned(),
                    }
                }
                "big" => format!("{{\"text\":\"{}\"}}", "x".repeat(2 << 20)),
                "panic" => panic!("as scripted"),
                _ => format!(
                    "{{\"echo\":{}}}",
                    String::from_utf8_lossy(request.message.raw(Member::Arguments).unwrap_or(b"null"))
                ),
            };
            watch.1 = true;
            if cancelled {
                Self::add(&self.cancelled);
                return Reply::cancelled();
            }
            Self::add(&self.answered);
            Reply::ok(result(&id, &body))
        })
    }

    fn notification(&self, _caller: &Arc<Caller>, message: Message) {
        self.notes
            .lock()
            .unwrap()
            .push(message.method().unwrap_or_default().into_owned());
    }

    fn response(&self, caller: &Arc<Caller>, message: Message) -> ReverseVerdict {
        match &caller.session {
            Some(session) => session.reverse.answer(message),
            None => ReverseVerdict::Unknown,
        }
    }

    fn initialize(&self, initialize: Initialize) -> BoxFuture<'_, String> {
        self.callers.lock().unwrap().push(initialize.caller.clone());
        let version = initialize.caller.revision.as_str();
        Box::pin(async move { format!("{{\"protocolVersion\":\"{version}\",\"capabilities\":{{}}}}") })
    }

    fn session_ended(&self, session: &Arc<Session>) {
        self.ended.lock().unwrap().push(session.label.to_string());
    }

    fn rejected(&self, _transport: HostTransport, what: &'static str, _detail: &str) {
        self.rejected.lock().unwrap().push(what);
    }
}

/// Waits until the condition holds, at most ten seconds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..5_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("never: {what}");
}

/// A server on a free port of loopback, with the scripted pipeline.
pub(crate) struct Rig {
    pub(crate) fake: Arc<Fake>,
    pub(crate) server: HostServer,
    pub(crate) address: std::net::SocketAddr,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(HostSettings::default()).await
    }

    pub(crate) async fn with(settings: HostSettings) -> Self {
        let fake = Fake::new();
        let listen = [BindAddress::Tcp("127.0.0.1:0".to_owned())];
        let server = HostServer::start(&listen, settings, fake.clone()).await.unwrap();
        let BoundAddress::Tcp(address) = server.addresses()[0].clone() else {
            panic!("not TCP")
        };
        Self {
            fake,
            server,
            address,
        }
    }

    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Opened {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let connection = tasks::spawn("test client", async move {
            let _ = connection.await;
        });
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        Opened {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.into_body(),
            seen: String::new(),
            _sender: sender,
            connection,
        }
    }

    /// Starts a request and drops its connection as soon as the pipeline has it, without waiting for an answer.
    pub(crate) async fn abandon(&self, headers: &[(&str, &str)], body: &str) {
        use tokio::io::AsyncWriteExt as _;
        let before = Fake::count(&self.fake.started);
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut text = format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(body);
        stream.write_all(text.as_bytes()).await.unwrap();
        until("the call starts", || Fake::count(&self.fake.started) > before).await;
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Opened {
        let mut opened = self.open(method, path, headers, body).await;
        opened.rest().await;
        opened
    }

    /// A modern request with complete headers.
    pub(crate) async fn modern(&self, id: &str, name: &str, arguments: &str) -> Opened {
        self.open(
            "POST",
            "/mcp",
            &modern_headers("tools/call", name),
            &modern_call(id, name, arguments),
        )
        .await
    }

    /// A legacy session; returns its id.
    pub(crate) async fn initialize(&self, version: &str) -> String {
        let answer = self.send("POST", "/mcp", &PLAIN, &initialize(version)).await;
        assert_eq!(answer.status, 200, "{}", answer.seen);
        answer.headers["mcp-session-id"].to_str().unwrap().to_owned()
    }

    pub(crate) async fn legacy(&self, session: &str, body: &str) -> Opened {
        let headers = [PLAIN[0], PLAIN[1], ("mcp-session-id", session)];
        self.open("POST", "/mcp", &headers, body).await
    }
}

/// `Content-Type` and `Accept` as a careful host sends them.
pub(crate) const PLAIN: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
];

pub(crate) fn modern_headers<'h>(method: &'h str, name: &'h str) -> Vec<(&'h str, &'h str)> {
    let mut headers = PLAIN.to_vec();
    headers.extend([
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("mcp-name", name),
    ]);
    headers
}

pub(crate) const META: &str = "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
    \"io.modelcontextprotocol/clientCapabilities\":{}}";

pub(crate) fn modern_call(id: &str, name: &str, arguments: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{name}\",\"arguments\":{arguments},{META}}}}}"
    )
}

pub(crate) fn call(id: &str, name: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{name}\",\"arguments\":{{\"n\":{id}}}}}}}"
    )
}

pub(crate) fn initialize(version: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{{\"protocolVersion\":\"{version}\",\
         \"capabilities\":{{\"roots\":{{}}}},\"clientInfo\":{{\"name\":\"test\",\"version\":\"1\"}}}}}}"
    )
}

/// An answer, read as it comes.
pub(crate) struct Opened {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    pub(crate) seen: String,
    _sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
}

impl Opened {
    pub(crate) fn content_type(&self) -> &str {
        self.headers
            .get("content-type")
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.content_type() == "text/event-stream"
    }

    /// Reads one more body frame; `None` at the end.
    pub(crate) async fn frame(&mut self) -> Option<String> {
        let frame = tokio::time::timeout(Duration::from_secs(10), self.body.frame())
            .await
            .expect("no frame")?;
        let text = String::from_utf8(frame.ok()?.into_data().ok()?.to_vec()).unwrap();
        self.seen.push_str(&text);
        Some(text)
    }

    /// Reads until the text has come.
    pub(crate) async fn read_until(&mut self, text: &str) {
        while !self.seen.contains(text) {
            assert!(
                self.frame().await.is_some(),
                "ended before {text:?}: {}",
                self.seen
            );
        }
    }

    /// Reads to the end.
    pub(crate) async fn rest(&mut self) -> &str {
        while self.frame().await.is_some() {}
        &self.seen
    }

    /// The data of all events so far, with their ids.
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for event in self.seen.split("\n\n") {
            let fields: BTreeMap<&str, &str> =
                event.lines().filter_map(|line| line.split_once(": ")).collect();
            if let Some(data) = fields.get("data") {
                out.push(((*fields.get("id").unwrap_or(&"")).to_owned(), (*data).to_owned()));
            }
        }
        out
    }

    /// Closes the connection.
    pub(crate) fn close(self) {
        self.connection.abort();
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
