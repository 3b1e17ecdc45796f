//! Scripted hosts: every transport and family behind one set of verbs, each message kept as it came with its stream.
//! The file is long since one host has one set of verbs, whatever its transport.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::daemon::Daemon;
use super::http::{self, Address, Exchange, Socket};
use super::process::{MANIFOLD, Process};
use super::{LIMIT, never, until};

pub const MODERN: &str = "2026-07-28";
pub const PREFIX: &str = "io.modelcontextprotocol/";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostKind {
    /// `manifold stdio --config F`, legacy.
    Stdio,
    /// The same process, spoken to in the modern way.
    StdioModern,
    /// Streamable HTTP with a session.
    Http,
    HttpModern,
}

impl HostKind {
    pub fn own_process(self) -> bool {
        matches!(self, Self::Stdio | Self::StdioModern)
    }
    pub fn modern(self) -> bool {
        matches!(self, Self::StdioModern | Self::HttpModern)
    }
}

#[derive(Clone)]
pub struct Options {
    pub version: String,
    /// Raw JSON text of the capabilities declared.
    pub capabilities: String,
    pub name: String,
    /// Legacy HTTP: open the GET stream.
    pub get_stream: bool,
    /// Do not shake hands.
    pub silent: bool,
    /// Arguments in place of `--config F`.
    pub connect: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: "2025-11-25".into(),
            capabilities: "{}".into(),
            name: "scripted".into(),
            get_stream: true,
            silent: false,
            connect: None,
        }
    }
}

impl Options {
    pub fn asking() -> Self {
        Self {
            capabilities:
                r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}}"#.into(),
            ..Self::default()
        }
    }
    pub fn capabilities(text: &str) -> Self {
        Self {
            capabilities: text.into(),
            ..Self::default()
        }
    }
    pub fn version(version: &str) -> Self {
        Self {
            version: version.into(),
            ..Self::default()
        }
    }
}

/// One message that reached the host.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `stdout`, `get`, `post:ID`, `resume`.
    pub stream: String,
    pub raw: String,
    pub value: Value,
    pub event_id: Option<String>,
    /// HTTP status of the answer that carried it; 200 on stdio.
    pub status: u16,
}

impl Seen {
    pub fn method(&self) -> &str {
        self.value["method"].as_str().unwrap_or_default()
    }
    pub fn result(&self) -> &Value {
        assert!(self.value.get("result").is_some(), "not a result: {}", self.raw);
        &self.value["result"]
    }
    pub fn error(&self) -> &Value {
        assert!(self.value.get("error").is_some(), "not an error: {}", self.raw);
        &self.value["error"]
    }
    pub fn code(&self) -> i64 {
        self.error()["code"].as_i64().unwrap_or_default()
    }
    /// The raw text of one member.
    pub fn member(&self, name: &str) -> String {
        raw_member(&self.raw, name).unwrap_or_else(|| panic!("no {name} in {}", self.raw))
    }
    /// The text of the first content block.
    pub fn text(&self) -> String {
        self.result()["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
    /// Whether this is the answer to that call, by the raw text of its id.
    pub fn answers(&self, call: &Call) -> bool {
        is_answer(self, &call.id)
    }
    pub fn is_request(&self) -> bool {
        self.value.get("method").is_some() && self.value.get("id").is_some()
    }
}

pub fn raw_member(object: &str, name: &str) -> Option<String> {
    let members: HashMap<String, Box<RawValue>> = serde_json::from_str(object).ok()?;
    members.get(name).map(|raw| raw.get().to_owned())
}

/// The value of a text that may hold what `Value` cannot (1e400, lone surrogates): those leaves become null.
pub fn lenient(text: &str) -> Option<Value> {
    lenient_within(text, 20)
}

fn lenient_within(text: &str, depth: u32) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let inner = |raw: Box<RawValue>| lenient_within(raw.get(), depth - 1).unwrap_or_default();
    if depth == 0 {
        return None;
    }
    if let Ok(members) = serde_json::from_str::<HashMap<String, Box<RawValue>>>(text) {
        return Some(members.into_iter().map(|(key, raw)| (key, inner(raw))).collect());
    }
    let items: Vec<Box<RawValue>> = serde_json::from_str(text).ok()?;
    Some(items.into_iter().map(inner).collect())
}

/// The raw texts of an array.
pub fn raw_items(array: &str) -> Vec<String> {
    let items: Vec<Box<RawValue>> = serde_json::from_str(array).unwrap();
    items.into_iter().map(|raw| raw.get().to_owned()).collect()
}

type Responder = Arc<dyn Fn(&Seen) -> Option<String> + Send + Sync>;

#[derive(Default)]
struct Shared {
    list: Mutex<Vec<Seen>>,
    changed: Condvar,
    responder: Mutex<Option<Responder>>,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Call {
    /// The raw text of the id.
    pub id: String,
}

enum Link {
    Pipe(Process),
    Web {
        address: Address,
        session: Mutex<Option<String>>,
        sockets: Arc<Mutex<HashMap<String, Socket>>>,
    },
}

struct Inner {
    kind: HostKind,
    options: Options,
    link: Link,
    shared: Shared,
    next: AtomicU64,
}

/// A host; a clone is the same host.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

impl Host {
    pub fn connect(daemon: &Daemon, kind: HostKind) -> Self {
        Self::with(daemon, kind, Options::default())
    }

    pub fn with(daemon: &Daemon, kind: HostKind, options: Options) -> Self {
        let host = if kind.own_process() {
            let mut command = match &options.connect {
                None => daemon.command(&["stdio"]),
                Some(url) => {
                    let mut command = Command::new(MANIFOLD);
                    command.args(["stdio", "--connect", url]).env("NO_COLOR", "1");
                    command
                }
            };
            Self::spawn(&mut command, kind, options)
        } else {
            Self::at(daemon.address(), kind, options)
        };
        host.shake_hands();
        host
    }

    fn new(kind: HostKind, options: Options, link: Link) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                options,
                link,
                shared: Shared::default(),
                next: AtomicU64::new(1),
            }),
        }
    }

    /// A host on the pipes of any command, without a handshake.
    pub fn spawn(command: &mut Command, kind: HostKind, options: Options) -> Self {
        let (process, stdout) = Process::start("manifold stdio", command);
        let host = Self::new(kind, options, Link::Pipe(process));
        let inner = Arc::downgrade(&host.inner);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let Some(inner) = inner.upgrade() else { return };
                let whole = line.pop() == Some(b'\n');
                let raw = String::from_utf8_lossy(&line).into_owned();
                assert!(whole, "a line without newline on stdout: {raw}");
                Self { inner }.arrived("stdout", &raw, None, 200);
                line.clear();
            }
        });
        host
    }

    /// A host over HTTP, without a handshake.
    pub fn at(address: Address, kind: HostKind, options: Options) -> Self {
        Self::new(
            kind,
            options,
            Link::Web {
                address,
                session: Mutex::default(),
                sockets: Arc::default(),
            },
        )
    }

    fn shake_hands(&self) {
        if self.kind().modern() || self.inner.options.silent {
            return;
        }
        self.initialize().result();
        self.notify("notifications/initialized", "");
        if self.inner.options.get_stream && self.kind() == HostKind::Http {
            self.open_get(None);
        }
    }

    pub fn kind(&self) -> HostKind {
        self.inner.kind
    }

    /// The legacy handshake's request.
    pub fn initialize(&self) -> Seen {
        let options = &self.inner.options;
        let params = format!(
            r#"{{"protocolVersion":{},"capabilities":{},"clientInfo":{{"name":{},"version":"1"}}}}"#,
            json!(options.version),
            options.capabilities,
            json!(options.name)
        );
        self.request("initialize", &params)
    }

    pub fn session(&self) -> Option<String> {
        match &self.inner.link {
            Link::Pipe(_) => None,
            Link::Web { session, .. } => session.lock().unwrap().clone(),
        }
    }

    pub fn process(&self) -> &Process {
        match &self.inner.link {
            Link::Pipe(process) => process,
            Link::Web { .. } => panic!("no process: this host speaks HTTP"),
        }
    }

    pub fn address(&self) -> Address {
        match &self.inner.link {
            Link::Pipe(_) => panic!("no address: this host speaks over pipes"),
            Link::Web { address, .. } => address.clone(),
        }
    }

    /// Answers reverse requests as they arrive: the raw `"result":...` or `"error":...` member, or nothing.
    pub fn respond(&self, responder: impl Fn(&Seen) -> Option<String> + Send + Sync + 'static) {
        *self.inner.shared.responder.lock().unwrap() = Some(Arc::new(responder));
    }

    fn arrived(&self, stream: &str, raw: &str, event_id: Option<String>, status: u16) {
        let value: Value = lenient(raw).unwrap_or_else(|| json!({ "not json": raw }));
        let seen = Seen {
            stream: stream.to_owned(),
            raw: raw.to_owned(),
            value,
            event_id,
            status,
        };
        self.inner.shared.list.lock().unwrap().push(seen.clone());
        self.inner.shared.changed.notify_all();
        if seen.is_request() {
            let responder = self.inner.shared.responder.lock().unwrap().clone();
            if let Some(answer) = responder.and_then(|responder| responder(&seen)) {
                self.answer(&seen, &answer);
            }
        }
    }

    /// Answers a reverse request: `member` is `"result":{...}` or `"error":{...}`.
    pub fn answer(&self, request: &Seen, member: &str) {
        let id = request.member("id");
        self.answer_id(&id, member);
    }

    pub fn answer_id(&self, id: &str, member: &str) {
        self.send_text(&format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#), "answer");
    }

    pub fn messages(&self) -> Vec<Seen> {
        self.inner.shared.list.lock().unwrap().clone()
    }

    pub fn matching(&self, matches: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        self.messages().into_iter().filter(|seen| matches(seen)).collect()
    }

    pub fn with_method(&self, method: &str) -> Vec<Seen> {
        self.matching(|seen| seen.method() == method)
    }

    /// Waits for a message.
    pub fn wait(&self, what: &str, matches: impl Fn(&Seen) -> bool) -> Seen {
        self.wait_count(what, 1, matches).remove(0)
    }

    pub fn wait_count(&self, what: &str, count: usize, matches: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let shared = &self.inner.shared;
        let end = Instant::now() + LIMIT;
        let mut list = shared.list.lock().unwrap();
        loop {
            let found: Vec<Seen> = list.iter().filter(|seen| matches(seen)).cloned().collect();
            if found.len() >= count {
                return found;
            }
            if Instant::now() > end {
                drop(list);
                panic!(
                    "the host waited {LIMIT:?} for {what}; it has seen: {:#?}",
                    self.messages().iter().map(shorten).collect::<Vec<_>>()
                );
            }
            list = shared
                .changed
                .wait_timeout(list, Duration::from_millis(200))
                .unwrap()
                .0;
        }
    }

    pub fn wait_method(&self, method: &str) -> Seen {
        self.wait(method, |seen| seen.method() == method)
    }

    pub fn never(&self, what: &str, matches: impl Fn(&Seen) -> bool) {
        never(what, || self.messages().iter().any(&matches));
    }

    fn next_id(&self) -> String {
        self.inner.next.fetch_add(1, Ordering::SeqCst).to_string()
    }

    /// The params with what this family puts into `_meta`; `meta` is raw text of further members.
    pub fn params(&self, params: &str, meta: &str) -> String {
        let mut members = Vec::new();
        if self.kind().modern() {
            let options = &self.inner.options;
            members.push(format!(
                r#""{PREFIX}protocolVersion":"{MODERN}","{PREFIX}clientCapabilities":{},"{PREFIX}clientInfo":{{"name":{},"version":"1"}}"#,
                options.capabilities,
                json!(options.name)
            ));
        }
        if !meta.is_empty() {
            members.push(meta.to_owned());
        }
        let params = if params.is_empty() { "{}" } else { params };
        if members.is_empty() {
            return params.to_owned();
        }
        let rest = params.trim_start().trim_start_matches('{');
        let comma = if rest.trim_start().starts_with('}') {
            ""
        } else {
            ","
        };
        format!(r#"{{"_meta":{{{}}}{comma}{rest}"#, members.join(","))
    }

    /// Sends a request and does not wait.
    pub fn send(&self, method: &str, params: &str) -> Call {
        self.send_with(&self.next_id(), method, params, "")
    }

    /// The same with a raw id and raw members for `_meta`.
    pub fn send_with(&self, id: &str, method: &str, params: &str, meta: &str) -> Call {
        let params = self.params(params, meta);
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{params}}}"#,
            json!(method)
        );
        self.send_text(&text, id);
        Call { id: id.to_owned() }
    }

    pub fn notify(&self, method: &str, params: &str) {
        let params = if params.is_empty() && !self.kind().modern() {
            String::new()
        } else {
            format!(r#","params":{}"#, self.params(params, ""))
        };
        self.send_text(
            &format!(r#"{{"jsonrpc":"2.0","method":{}{params}}}"#, json!(method)),
            "note",
        );
    }

    /// Any text, as it is, over the transport of this host.
    pub fn send_text(&self, text: &str, label: &str) {
        match &self.inner.link {
            Link::Pipe(process) => {
                let mut stdin = process.stdin.lock().unwrap();
                let stdin = stdin.as_mut().expect("stdin is open");
                stdin
                    .write_all(format!("{text}\n").as_bytes())
                    .unwrap_or_else(|error| panic!("stdin: {error}; log:\n{}", process.log_tail(30)));
                stdin.flush().unwrap();
            }
            Link::Web { .. } => self.post(text, label),
        }
    }

    fn post_headers(&self, text: &str) -> Vec<(String, String)> {
        let value: Value = lenient(text).unwrap_or_default();
        let mut headers = vec![
            (http::BOTH.0.to_owned(), http::BOTH.1.to_owned()),
            (http::JSON.0.to_owned(), http::JSON.1.to_owned()),
        ];
        if self.kind().modern() {
            headers.push(("mcp-protocol-version".into(), MODERN.into()));
            if let Some(method) = value["method"].as_str() {
                headers.push(("mcp-method".into(), method.into()));
                let named = match method {
                    "tools/call" | "prompts/get" => &value["params"]["name"],
                    "resources/read" => &value["params"]["uri"],
                    "tasks/get" | "tasks/update" | "tasks/cancel" => &value["params"]["taskId"],
                    _ => &Value::Null,
                };
                if let Some(name) = named.as_str() {
                    headers.push(("mcp-name".into(), name.into()));
                }
            }
        } else if value["method"] != json!("initialize") {
            headers.push(("mcp-protocol-version".into(), self.inner.options.version.clone()));
            if let Some(session) = self.session() {
                headers.push(("mcp-session-id".into(), session));
            }
        }
        headers
    }

    fn post(&self, text: &str, label: &str) {
        let Link::Web { address, .. } = &self.inner.link else {
            unreachable!()
        };
        let headers = self.post_headers(text);
        let borrowed: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let head = http::head("POST", "/mcp", &address.host(), &borrowed, Some(text.len()));
        let exchange =
            Exchange::send(address, &head, text.as_bytes()).unwrap_or_else(|error| panic!("POST: {error}"));
        let one_way = matches!(label, "note" | "answer");
        let reader = self.read(exchange, &format!("post:{label}"), label);
        if one_way {
            // Order matters for what follows: wait until it was taken.
            reader.join().unwrap();
        }
    }

    fn read(&self, mut exchange: Exchange, stream: &str, label: &str) -> std::thread::JoinHandle<()> {
        let Link::Web { sockets, .. } = &self.inner.link else {
            unreachable!()
        };
        sockets
            .lock()
            .unwrap()
            .insert(label.to_owned(), exchange.socket.copy());
        let inner = Arc::downgrade(&self.inner);
        let stream = stream.to_owned();
        let sockets = sockets.clone();
        let label = label.to_owned();
        std::thread::spawn(move || {
            let up = || inner.upgrade().map(|inner| Self { inner });
            if exchange.read_head().is_err() {
                return;
            }
            if let (Some(id), Some(Self { inner })) = (exchange.header("mcp-session-id"), up())
                && let Link::Web { session, .. } = &inner.link
            {
                *session.lock().unwrap() = Some(id);
            }
            let status = exchange.status;
            if exchange.is_stream() {
                while let Ok(Some(event)) = exchange.event() {
                    let Some(host) = up() else { return };
                    if event.data.is_empty() {
                        // A place to resume from.
                        host.inner.shared.list.lock().unwrap().push(Seen {
                            stream: stream.clone(),
                            raw: String::new(),
                            value: Value::Null,
                            event_id: event.id,
                            status,
                        });
                        host.inner.shared.changed.notify_all();
                    } else {
                        host.arrived(&stream, &event.data, event.id, status);
                    }
                }
            } else if let Ok(body) = exchange.body()
                && let (false, Some(host)) = (body.is_empty(), up())
            {
                host.arrived(&stream, &String::from_utf8_lossy(&body), None, status);
            }
            sockets.lock().unwrap().remove(&label);
            exchange.socket.close();
        })
    }

    /// Opens the GET stream, or resumes after an event.
    pub fn open_get(&self, last: Option<&str>) {
        let mut headers = vec![("accept", "text/event-stream")];
        let session = self.session().expect("a session");
        headers.push(("mcp-session-id", session.as_str()));
        headers.push(("mcp-protocol-version", self.inner.options.version.as_str()));
        if let Some(last) = last {
            headers.push(("last-event-id", last));
        }
        let address = self.address();
        let head = http::head("GET", "/mcp", &address.host(), &headers, None);
        let exchange = Exchange::send(&address, &head, b"").unwrap();
        let label = if last.is_some() { "resume" } else { "get" };
        self.read(exchange, label, label);
    }

    /// Closes the stream of a request (its id), of `get` or of `resume`; only over HTTP.
    pub fn close_stream(&self, label: &str) {
        let Link::Web { sockets, .. } = &self.inner.link else {
            panic!("no streams on pipes")
        };
        let socket = sockets.lock().unwrap().remove(label);
        socket.unwrap_or_else(|| panic!("no open stream {label}")).close();
    }

    /// Cancels in the way of this transport and family.
    pub fn cancel(&self, call: &Call) {
        if self.kind() == HostKind::HttpModern {
            self.close_stream(&call.id);
        } else {
            self.notify(
                "notifications/cancelled",
                &format!(
                    r#"{{"requestId":{},"reason":"the user changed their mind"}}"#,
                    call.id
                ),
            );
        }
    }

    pub fn answered(&self, call: &Call) -> Option<Seen> {
        self.messages().into_iter().find(|seen| is_answer(seen, &call.id))
    }

    pub fn wait_answer(&self, call: &Call) -> Seen {
        self.wait(&format!("the answer to {}", call.id), |seen| {
            is_answer(seen, &call.id)
        })
    }

    pub fn request(&self, method: &str, params: &str) -> Seen {
        let call = self.send(method, params);
        self.wait_answer(&call)
    }

    /// `tools/call` without waiting.
    pub fn start_call(&self, name: &str, arguments: &str) -> Call {
        self.start_call_with(&self.next_id(), name, arguments, "")
    }

    pub fn start_call_with(&self, id: &str, name: &str, arguments: &str, meta: &str) -> Call {
        self.send_with(
            id,
            "tools/call",
            &format!(r#"{{"name":{},"arguments":{arguments}}}"#, json!(name)),
            meta,
        )
    }

    pub fn call(&self, name: &str, arguments: &str) -> Seen {
        let call = self.start_call(name, arguments);
        self.wait_answer(&call)
    }

    /// A call that may ask: in the modern family every round is answered by `answers`.
    pub fn call_answering(
        &self,
        name: &str,
        arguments: &str,
        answers: impl Fn(&str, &Value) -> Value,
    ) -> Seen {
        let base = format!(r#"{{"name":{},"arguments":{arguments}"#, json!(name));
        let mut seen = self.request("tools/call", &format!("{base}}}"));
        for _ in 0..8 {
            if seen.value["result"]["resultType"] != json!("input_required") {
                return seen;
            }
            let asked = seen.value["result"]["inputRequests"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            let given: serde_json::Map<String, Value> = asked
                .iter()
                .map(|(key, ask)| (key.clone(), answers(key, ask)))
                .collect();
            let state = raw_member(&seen.member("result"), "requestState")
                .map_or(String::new(), |state| format!(r#","requestState":{state}"#));
            seen = self.request(
                "tools/call",
                &format!(r#"{base},"inputResponses":{}{state}}}"#, Value::Object(given)),
            );
        }
        panic!("asked for ever: {}", seen.raw);
    }

    /// Every item of a list, following cursors; raw texts.
    pub fn list(&self, method: &str, key: &str) -> Vec<String> {
        let mut items = Vec::new();
        let mut params = String::new();
        for _ in 0..1000 {
            let page = self.request(method, &params);
            let result = page.member("result");
            items.extend(raw_items(
                &raw_member(&result, key).unwrap_or_else(|| panic!("no {key} in {result}")),
            ));
            match page.result().get("nextCursor") {
                None => return items,
                Some(cursor) => params = format!(r#"{{"cursor":{cursor}}}"#),
            }
        }
        panic!("{method} never ends");
    }

    pub fn tools(&self) -> Vec<String> {
        self.list("tools/list", "tools")
    }

    pub fn tool_names(&self) -> Vec<String> {
        names(&self.tools())
    }

    /// Polls the list until it is as wanted.
    pub fn wait_tools(&self, what: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        until(
            &format!("tools/list has {what}; last: {:?}", self.tool_names()),
            || {
                let found = self.tool_names();
                if wanted(&found) {
                    return Some(found);
                }
                std::thread::sleep(Duration::from_millis(25));
                None
            },
        )
    }

    pub fn wait_tool(&self, name: &str) {
        self.wait_tools(name, |names| names.iter().any(|found| found == name));
    }

    /// Progress for a raw token, in order.
    pub fn progress(&self, token: &str) -> Vec<Seen> {
        self.matching(|seen| {
            seen.method() == "notifications/progress"
                && raw_member(&seen.member("params"), "progressToken").as_deref() == Some(token)
        })
    }

    /// Ends the session as this transport does: DELETE, or the end of stdin.
    pub fn end(&self) -> Option<u16> {
        match &self.inner.link {
            Link::Pipe(process) => {
                process.stdin.lock().unwrap().take();
                None
            }
            Link::Web { address, session, .. } => {
                let session = session.lock().unwrap().clone()?;
                Some(
                    http::request(
                        address,
                        "DELETE",
                        "/mcp",
                        &[
                            ("mcp-session-id", &session),
                            ("mcp-protocol-version", &self.inner.options.version),
                        ],
                        None,
                    )
                    .status,
                )
            }
        }
    }

    /// SIGKILL for a stdio host's process.
    pub fn kill(&self) {
        self.process().signal(Signal::KILL);
        self.process().wait_exit("the process ends");
    }
}

fn is_answer(seen: &Seen, id: &str) -> bool {
    seen.value.get("method").is_none() && seen.value.is_object() && !seen.raw.is_empty() && {
        match raw_member(&seen.raw, "id") {
            Some(found) => found == id || (found == "null" && seen.stream == format!("post:{id}")),
            None => seen.stream == format!("post:{id}"),
        }
    }
}

fn shorten(seen: &Seen) -> String {
    let text: String = seen.raw.chars().take(400).collect();
    format!("[{} {}] {text}", seen.stream, seen.status)
}

pub fn names(items: &[String]) -> Vec<String> {
    items
        .iter()
        .map(|item| {
            lenient(item).unwrap()["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

impl Drop for Inner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let list = self
                .shared
                .list
                .lock()
                .map(|list| list.clone())
                .unwrap_or_default();
            eprintln!("--- last messages of host {:?}:", self.kind);
            for seen in list.iter().skip(list.len().saturating_sub(15)) {
                eprintln!("{}", shorten(seen));
            }
        }
        if let Link::Web { sockets, .. } = &self.link {
            for (_, socket) in sockets.lock().unwrap().drain() {
                socket.close();
            }
        }
    }
}
