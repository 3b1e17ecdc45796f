//! The server itself: sessions, the record, and the usual answer to every method.
//! The file is long since the usual answers of both families are best read beside each other.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::reply::{Context, Journal, Outbox, Reply};
use crate::script::{Command, Item, Script};
use crate::steps::{self, Flow};

pub const MODERN: &str = "2026-07-28";
pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
pub const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Everything that reached us, one JSON object per line, written with one `write` each.
pub struct Recorder {
    file: Mutex<File>,
    sequence: AtomicU64,
}

impl Recorder {
    pub fn add(&self, kind: &str, fields: &Value) {
        let mut entry = json!({ "kind": kind, "pid": std::process::id(), "seq": self.sequence.fetch_add(1, Ordering::SeqCst) });
        if let (Some(entry), Some(fields)) = (entry.as_object_mut(), fields.as_object()) {
            entry.extend(fields.clone());
        }
        let mut line = serde_json::to_vec(&entry).unwrap();
        line.push(b'\n');
        let _ = self.file.lock().unwrap().write_all(&line);
    }

    pub fn message(&self, session: &Session, raw: &str, headers: &[(String, String)]) {
        self.add(
            "message",
            &json!({ "session": session.id, "raw": raw, "headers": headers }),
        );
    }
}

pub struct Session {
    pub id: String,
    pub version: Mutex<Option<String>>,
    pub capabilities: Mutex<Value>,
    pub initialized: AtomicBool,
    pub counter: AtomicU64,
    pub outbox: Mutex<Outbox>,
    pub cancelled: Mutex<HashSet<String>>,
    pub seen_ids: Mutex<HashSet<String>>,
    pub next_ask: AtomicU64,
    pub ask_answers: Mutex<HashMap<u64, String>>,
    pub listeners: Mutex<Vec<Listener>>,
    pub ended: AtomicBool,
}

pub struct Listener {
    pub id: String,
    pub filter: Value,
    pub reply: Arc<dyn Reply>,
}

impl Session {
    pub fn attach(&self, stream: Arc<dyn Reply>) {
        let mut outbox = self.outbox.lock().unwrap();
        while let Some(text) = outbox.backlog.pop_front() {
            stream.note(&text);
        }
        outbox.stream = Some(stream);
    }

    /// A message that belongs to no request.
    pub fn send(&self, text: &[u8]) {
        let mut outbox = self.outbox.lock().unwrap();
        match outbox.stream.clone() {
            Some(stream) if !stream.gone() => {
                drop(outbox);
                stream.note(text);
            }
            _ => outbox.backlog.push_back(text.to_vec()),
        }
    }
}

#[derive(Default)]
pub struct State {
    pub variants: HashMap<String, usize>,
    pub enabled: HashSet<String>,
    pub disabled: HashSet<String>,
    pub calls: HashMap<String, u32>,
    pub sessions: HashMap<String, Arc<Session>>,
    pub journals: HashMap<u64, Arc<Journal>>,
}

pub struct Server {
    pub script: Script,
    pub record: Recorder,
    pub state: Mutex<State>,
    pub next_session: AtomicU64,
    /// The how-manieth process of this control folder we are, from 1.
    pub run: u32,
}

/// The parts of a message, as written.
pub struct Parsed {
    pub id: Option<String>,
    pub method: Option<String>,
    pub params: String,
    pub arguments: String,
    pub meta: String,
    pub token: Option<String>,
    pub name: String,
    pub modern: bool,
}

type RawObject = HashMap<String, Box<RawValue>>;

pub fn raw_object(text: &str) -> RawObject {
    serde_json::from_str(text).unwrap_or_default()
}

pub fn raw_text(object: &RawObject, key: &str) -> Option<String> {
    object
        .get(key)
        .and_then(|raw| serde_json::from_str::<String>(raw.get()).ok())
}

impl Parsed {
    pub fn read(text: &str) -> Option<Self> {
        let message: RawObject = serde_json::from_str(text).ok()?;
        let params = message.get("params").map_or("{}", |raw| raw.get()).to_owned();
        let inside = raw_object(&params);
        let meta = inside.get("_meta").map_or("{}", |raw| raw.get()).to_owned();
        let meta_inside = raw_object(&meta);
        Some(Self {
            id: message.get("id").map(|raw| raw.get().to_owned()),
            method: raw_text(&message, "method"),
            arguments: inside.get("arguments").map_or("{}", |raw| raw.get()).to_owned(),
            token: meta_inside.get("progressToken").map(|raw| raw.get().to_owned()),
            name: raw_text(&inside, "name")
                .or_else(|| raw_text(&inside, "uri"))
                .or_else(|| raw_text(&inside, "taskId"))
                .unwrap_or_default(),
            modern: meta_inside.contains_key(VERSION_KEY),
            params,
            meta,
        })
    }
}

impl Server {
    pub fn new(script: Script) -> Arc<Self> {
        std::fs::create_dir_all(&script.control).expect("the control folder can be made");
        let mut run = 1;
        while std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(script.control.join(format!("run-{run}")))
            .is_err()
        {
            run += 1;
        }
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(script.control.join("record.jsonl"))
            .expect("the record can be opened");
        Arc::new(Self {
            script,
            record: Recorder {
                file: Mutex::new(file),
                sequence: AtomicU64::new(0),
            },
            state: Mutex::default(),
            next_session: AtomicU64::new(1),
            run,
        })
    }

    pub fn violation(&self, what: &str, raw: &str) {
        self.record.add("violation", &json!({ "what": what, "raw": raw }));
    }

    pub fn open_session(&self, prefix: &str) -> Arc<Session> {
        let number = self.next_session.fetch_add(1, Ordering::SeqCst);
        self.named_session(format!("{prefix}-{}-{number}", std::process::id()))
    }

    /// The session of that id, made when it is missing.
    pub fn named_session(&self, id: String) -> Arc<Session> {
        let mut state = self.state.lock().unwrap();
        if let Some(session) = state.sessions.get(&id) {
            return session.clone();
        }
        let session = Arc::new(Session {
            id: id.clone(),
            version: Mutex::default(),
            capabilities: Mutex::new(json!({})),
            initialized: AtomicBool::new(false),
            counter: AtomicU64::new(0),
            outbox: Mutex::default(),
            cancelled: Mutex::default(),
            seen_ids: Mutex::default(),
            next_ask: AtomicU64::new(1),
            ask_answers: Mutex::default(),
            listeners: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        state.sessions.insert(id, session.clone());
        session
    }

    pub fn control(&self, name: &str) -> PathBuf {
        self.script.control.join(name)
    }

    /// Runs the command files that appear, each once, in every session.
    pub fn watch_commands(self: &Arc<Self>) {
        let mut seen = HashSet::new();
        for (name, text) in self.command_files() {
            let command: Command = serde_json::from_str(&text).expect("a command file");
            if command.sticky {
                self.run_command(&command);
            }
            seen.insert(name);
        }
        let server = self.clone();
        std::thread::spawn(move || {
            loop {
                for (name, text) in server.command_files() {
                    if seen.insert(name.clone()) {
                        let command: Command =
                            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
                        server.run_command(&command);
                        server.record.add("command", &json!({ "name": name }));
                    }
                }
                std::thread::sleep(Duration::from_millis(4));
            }
        });
    }

    fn command_files(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.script.control)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("cmd-")
                && name.ends_with(".json")
                && let Ok(text) = std::fs::read_to_string(entry.path())
            {
                found.push((name, text));
            }
        }
        found.sort();
        found
    }

    fn run_command(self: &Arc<Self>, command: &Command) {
        let mut sessions: Vec<Arc<Session>> = self.state.lock().unwrap().sessions.values().cloned().collect();
        if sessions.is_empty() {
            sessions.push(self.open_session("nobody"));
        }
        for session in sessions {
            let stream: Arc<dyn Reply> = Arc::new(SessionStream(session.clone()));
            steps::run(&Context::outside(self, &session, stream), &command.steps);
        }
    }

    /// One message. Requests run on a thread of their own when `spawn`.
    pub fn receive(self: &Arc<Self>, session: &Arc<Session>, text: &str, reply: Arc<dyn Reply>, spawn: bool) {
        let Some(parsed) = Parsed::read(text) else {
            self.violation("not one JSON object", text);
            reply.answer(br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not JSON"}}"#);
            return;
        };
        let Some(method) = parsed.method.clone() else {
            self.answered(session, &parsed, text);
            return;
        };
        let context = Context {
            server: self.clone(),
            session: session.clone(),
            reply,
            id: parsed.id.clone(),
            token: parsed.token.clone(),
            params: parsed.params.clone(),
            arguments: parsed.arguments.clone(),
            meta: parsed.meta.clone(),
            name: parsed.name.clone(),
            modern: parsed.modern && self.script.family != "legacy",
            answers: Mutex::default(),
            progress: Mutex::default(),
            asks: Mutex::default(),
        };
        if parsed.id.is_none() {
            self.notified(session, &method, &parsed);
            if let Some(steps) = self.script.on.get(&method).cloned() {
                std::thread::spawn(move || steps::run(&context, &steps));
            }
            return;
        }
        let id = parsed.id.clone().unwrap_or_default();
        if !session.seen_ids.lock().unwrap().insert(id) && session.id != "modern" {
            self.violation("an id used twice in one session", text);
        }
        let server = self.clone();
        let work = move || server.request(&context, &method);
        if spawn {
            std::thread::spawn(work);
        } else {
            work();
        }
    }

    fn answered(&self, session: &Session, parsed: &Parsed, text: &str) {
        let number = parsed.id.as_deref().and_then(|id| id.parse::<u64>().ok());
        match number {
            Some(number) if number < session.next_ask.load(Ordering::SeqCst) => {
                if session
                    .ask_answers
                    .lock()
                    .unwrap()
                    .insert(number, text.to_owned())
                    .is_some()
                {
                    self.violation("a second answer to one request of ours", text);
                }
            }
            _ => self.violation("an answer to a request that we never made", text),
        }
    }

    fn notified(&self, session: &Session, method: &str, parsed: &Parsed) {
        match method {
            "notifications/initialized" => session.initialized.store(true, Ordering::SeqCst),
            "notifications/cancelled" => {
                let inside = raw_object(&parsed.params);
                let id = inside
                    .get("requestId")
                    .map(|raw| raw.get().to_owned())
                    .unwrap_or_default();
                if !session.seen_ids.lock().unwrap().contains(&id) {
                    self.violation("a cancellation of a request that never came", &parsed.params);
                }
                session.cancelled.lock().unwrap().insert(id);
            }
            _ => {}
        }
    }

    pub fn error(&self, context: &Context, code: i64, message: &str, data: &str) {
        let data = if data.is_empty() {
            String::new()
        } else {
            format!(r#","data":{data}"#)
        };
        let message = serde_json::to_string(message).unwrap();
        let id = context.id.as_deref().unwrap_or("null");
        context.reply.answer(
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#)
                .as_bytes(),
        );
    }

    /// The answer with this raw result; adds what a modern result needs when the text does not say it.
    pub fn result(&self, context: &Context, result: &str, cacheable: bool) {
        let id = context.id.as_deref().unwrap_or("null");
        let mut result = result.to_owned();
        if context.modern && !result.contains("\"resultType\"") && result.starts_with('{') {
            let mut extra = r#""resultType":"complete""#.to_owned();
            if (cacheable || result.contains("\"contents\":")) && !result.contains("\"ttlMs\"") {
                extra.push_str(r#","ttlMs":0,"cacheScope":"public""#);
            }
            let comma = if result.trim_start_matches('{').trim_start().starts_with('}') {
                ""
            } else {
                ","
            };
            result = format!("{{{extra}{comma}{}", &result[1..]);
        }
        context
            .reply
            .answer(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).as_bytes());
    }

    fn request(self: &Arc<Self>, context: &Context, method: &str) {
        let script = &self.script;
        let before = context.session.version.lock().unwrap().is_none();
        let foreign = match script.family.as_str() {
            "legacy" => before && method != "initialize" && method != "ping",
            "modern" => !context.modern,
            _ => before && !context.modern && method != "initialize" && method != "ping",
        };
        if foreign && script.transport == "stdio" {
            match script.before_handshake.as_str() {
                "silence" => return,
                "exit" => std::process::exit(3),
                "garbage" => {
                    context.reply.bytes(b"what is that?\n");
                    return;
                }
                "empty" => {
                    self.result(context, "{}", false);
                    return;
                }
                "error" => self.error(context, -32601, "Method not found", ""),
                code => self.error(context, code.parse().unwrap_or(-32000), "not now", ""),
            }
            return;
        }
        if context.modern && !self.modern_request_ok(context) {
            return;
        }
        if context.modern {
            let state: Value = serde_json::from_str(&context.params).unwrap_or_default();
            let mut answers = context.answers.lock().unwrap();
            if let Some(Ok(Value::Object(kept))) = state["requestState"].as_str().map(serde_json::from_str) {
                answers.extend(kept);
            }
            if let Some(new) = state["inputResponses"].as_object() {
                answers.extend(new.clone());
            }
        }
        if let Some(steps) = script.on.get(method)
            && steps::run(context, steps) != Flow::Fell
        {
            return;
        }
        self.usual(context, method);
    }

    fn modern_request_ok(&self, context: &Context) -> bool {
        let meta: Value = serde_json::from_str(&context.meta).unwrap_or_default();
        if meta[VERSION_KEY] != json!(MODERN) {
            self.error(
                context,
                -32022,
                "Unsupported protocol version",
                &json!({ "supported": [MODERN], "requested": meta[VERSION_KEY] }).to_string(),
            );
            return false;
        }
        if !meta[CAPABILITIES_KEY].is_object() {
            self.violation("a modern request without client capabilities", &context.params);
        }
        *context.session.capabilities.lock().unwrap() = meta[CAPABILITIES_KEY].clone();
        true
    }

    fn capabilities(&self) -> String {
        let script = &self.script;
        script.capabilities.clone().unwrap_or_else(|| {
            let mut all = serde_json::Map::new();
            let nothing =
                script.prompts.is_empty() && script.resources.is_empty() && script.templates.is_empty();
            if !script.tools.is_empty() || nothing {
                all.insert("tools".into(), json!({ "listChanged": true }));
            }
            if !script.prompts.is_empty() {
                all.insert("prompts".into(), json!({ "listChanged": true }));
                all.insert("completions".into(), json!({}));
            }
            if !script.resources.is_empty() || !script.templates.is_empty() {
                all.insert(
                    "resources".into(),
                    json!({ "listChanged": true, "subscribe": true }),
                );
            }
            all.insert("logging".into(), json!({}));
            Value::Object(all).to_string()
        })
    }

    fn usual(self: &Arc<Self>, context: &Context, method: &str) {
        let script = &self.script;
        match method {
            "initialize" if !context.modern && script.family != "modern" => {
                let params: Value = serde_json::from_str(&context.params).unwrap_or_default();
                let asked = params["protocolVersion"].as_str().unwrap_or_default().to_owned();
                let version = if script.legacy_versions.contains(&asked) { asked } else { script.legacy_versions[0].clone() };
                if context.session.version.lock().unwrap().replace(version.clone()).is_some() {
                    self.violation("initialize twice", &context.params);
                }
                *context.session.capabilities.lock().unwrap() = params["capabilities"].clone();
                let instructions = script.instructions.as_ref().map_or(String::new(), |text| format!(r#","instructions":{}"#, json!(text)));
                let capabilities = self.capabilities();
                let name = json!(script.name);
                self.result(
                    context,
                    &format!(r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{{"name":{name},"version":"1.0"}}{instructions}}}"#),
                    false,
                );
            }
            "server/discover" if context.modern => {
                let instructions = script.instructions.as_ref().map_or(String::new(), |text| format!(r#","instructions":{}"#, json!(text)));
                let capabilities = self.capabilities();
                let name = json!(script.name);
                self.result(
                    context,
                    &format!(
                        r#"{{"supportedVersions":["{MODERN}"],"capabilities":{capabilities}{instructions},"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":{name},"version":"1.0"}}}}}}"#
                    ),
                    true,
                );
            }
            "ping" if !context.modern => self.result(context, "{}", false),
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" if !context.modern => self.result(context, "{}", false),
            "tools/list" => self.list(context, "tools", &script.tools),
            "prompts/list" => self.list(context, "prompts", &script.prompts),
            "resources/list" => self.list(context, "resources", &script.resources),
            "resources/templates/list" => self.list(context, "resourceTemplates", &script.templates),
            "tools/call" => self.act(context, &script.tools, r#"{"content":[{"type":"text","text":"echo"}],"structuredContent":{"arguments":@@ARGS@@}}"#, -32602),
            "prompts/get" => self.act(
                context,
                &script.prompts,
                r#"{"messages":[{"role":"user","content":{"type":"text","text":"@@NAME@@"}}],"_meta":{"arguments":@@ARGS@@}}"#,
                -32602,
            ),
            "resources/read" => {
                let contents = format!(r#"{{"contents":[{{"uri":"@@NAME@@","text":{}}}]}}"#, json!(format!("{} has @@NAME@@", script.name)));
                if script.resources.iter().any(|item| item.key == context.name) || script.templates.is_empty() {
                    self.act(context, &script.resources, &contents, if context.modern { -32602 } else { -32002 });
                } else {
                    self.result(context, &context.fill(&contents), true);
                }
            }
            "completion/complete" => self.result(context, &format!(r#"{{"completion":{{"values":[{}]}}}}"#, json!(script.name)), false),
            "subscriptions/listen" if context.modern => self.listen(context),
            _ => self.error(context, -32601, "Method not found", ""),
        }
    }

    pub fn enabled_file(&self, key: &str) -> PathBuf {
        let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.control(&format!("enabled-{hex}"))
    }

    fn visible(&self, context: &Context, item: &Item) -> bool {
        let state = self.state.lock().unwrap();
        let enabled = state.enabled.contains(&item.key) || self.enabled_file(&item.key).exists();
        if state.disabled.contains(&item.key) || (item.hidden && !enabled) {
            return false;
        }
        item.needs
            .as_ref()
            .is_none_or(|need| context.session.capabilities.lock().unwrap().get(need).is_some())
    }

    fn list(&self, context: &Context, kind: &str, items: &[Item]) {
        let params: Value = serde_json::from_str(&context.params).unwrap_or_default();
        let start = match params.get("cursor") {
            None => 0,
            Some(cursor) => match cursor
                .as_str()
                .and_then(|text| text.strip_prefix("page-"))
                .and_then(|text| text.parse::<usize>().ok())
            {
                Some(start) => start,
                None => {
                    self.violation("a cursor that is not ours", &context.params);
                    self.error(context, -32602, "unknown cursor", "");
                    return;
                }
            },
        };
        let shown: Vec<&Item> = items.iter().filter(|item| self.visible(context, item)).collect();
        let size = if self.script.page_size == 0 {
            shown.len().max(1)
        } else {
            self.script.page_size
        };
        let mut texts = Vec::new();
        for item in shown.iter().skip(start).take(size) {
            let variant = self
                .state
                .lock()
                .unwrap()
                .variants
                .get(&item.key)
                .copied()
                .unwrap_or(0);
            texts.push(if variant == 0 {
                item.raw.clone()
            } else {
                item.variants[variant - 1].clone()
            });
        }
        let next = if start + size < shown.len() {
            format!(r#","nextCursor":"page-{}""#, start + size)
        } else {
            String::new()
        };
        self.result(
            context,
            &format!(r#"{{"{kind}":[{}]{next}}}"#, texts.join(",")),
            true,
        );
    }

    fn act(self: &Arc<Self>, context: &Context, items: &[Item], usual: &str, missing: i64) {
        let Some(item) = items.iter().find(|item| item.key == context.name) else {
            self.violation("an unknown name was called", &context.params);
            self.error(
                context,
                missing,
                &format!("Unknown: {}", context.name),
                &json!({ "uri": context.name }).to_string(),
            );
            return;
        };
        *self
            .state
            .lock()
            .unwrap()
            .calls
            .entry(item.key.clone())
            .or_default() += 1;
        if steps::run(context, &item.steps) == Flow::Fell {
            self.result(context, &context.fill(usual), false);
        }
    }

    /// Acknowledges and then holds the stream open.
    fn listen(self: &Arc<Self>, context: &Context) {
        let params: Value = serde_json::from_str(&context.params).unwrap_or_default();
        let id = context.id.clone().unwrap_or_default();
        let filter = params["notifications"].clone();
        // Whoever has been acknowledged hears of everything from then on.
        context.session.listeners.lock().unwrap().push(Listener {
            id: id.clone(),
            filter: filter.clone(),
            reply: context.reply.clone(),
        });
        context.reply.note(
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"notifications":{filter},"_meta":{{"{SUBSCRIPTION_KEY}":{id}}}}}}}"#
            )
            .as_bytes(),
        );
        self.record.add(
            "event",
            &json!({ "name": "listening", "session": context.session.id }),
        );
        steps::wait_end(context, Duration::from_secs(600));
        context
            .session
            .listeners
            .lock()
            .unwrap()
            .retain(|listener| listener.id != id);
    }

    /// A change notice, in the way of the session's family.
    pub fn change(&self, session: &Session, method: &str, params: &Value, flag: &str) {
        let listeners = session.listeners.lock().unwrap();
        if session.version.lock().unwrap().is_some() {
            session.send(
                json!({ "jsonrpc": "2.0", "method": method, "params": params })
                    .to_string()
                    .as_bytes(),
            );
        }
        for listener in listeners.iter() {
            let wanted = match flag {
                "uri" => listener.filter["resourceSubscriptions"]
                    .as_array()
                    .is_some_and(|uris| uris.contains(&params["uri"])),
                flag => listener.filter[flag] == json!(true),
            };
            if wanted {
                let uri = if flag == "uri" {
                    format!(r#""uri":{},"#, params["uri"])
                } else {
                    String::new()
                };
                let id = &listener.id;
                listener.reply.note(format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{uri}"_meta":{{"{SUBSCRIPTION_KEY}":{id}}}}}}}"#).as_bytes());
            }
        }
    }

    /// Waits for a file of the control folder.
    pub fn wait_file(&self, name: &str, mut give_up: impl FnMut() -> bool) -> bool {
        let path = self.control(name);
        let end = Instant::now() + Duration::from_secs(120);
        while !path.exists() {
            if give_up() || Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

/// The session's own stream as a place to speak.
struct SessionStream(Arc<Session>);

impl Reply for SessionStream {
    fn note(&self, text: &[u8]) {
        self.0.send(text);
    }
    fn answer(&self, text: &[u8]) {
        self.0.send(text);
    }
    fn big(&self, head: &str, filler: usize, tail: &str) {
        self.0
            .send(format!("{head}{}{tail}", "x".repeat(filler)).as_bytes());
    }
    fn bytes(&self, bytes: &[u8]) {
        let stream = self.0.outbox.lock().unwrap().stream.clone();
        if let Some(stream) = stream {
            stream.bytes(bytes);
        }
    }
    fn status(&self, _: u16, _: &str, _: &str) {}
    fn close(&self) {
        let stream = self.0.outbox.lock().unwrap().stream.take();
        if let Some(stream) = stream {
            stream.close();
        }
    }
    fn cut(&self) {
        self.close();
    }
    fn gone(&self) -> bool {
        false
    }
}
