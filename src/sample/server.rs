//! The protocol of a sample server: which family a message belongs to, the lifecycle, the answers.
//!
//! What the server offers is behind [`Feature`]. Requests are handled on the reading thread; a tool that takes time
//! gets a thread of its own. The rules are those of the revisions, in the order in which the first failure answers.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use super::feature::{Call, Change, Feature};
use super::outbox::{Cancel, Outbox};
use super::rpc::{
    BAD_PARAMS, Family, Fault, INTERNAL, INVALID_REQUEST, LEGACY_NOT_FOUND, PARSE, Request,
    UNSUPPORTED_VERSION, answered, failure, is_id, meta, rank, success,
};
use subscriptions::can_subscribe;

mod subscriptions;

const MODERN: &str = "2026-07-28";
/// Newest first.
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Calls with a thread of their own that may run at once, and open subscriptions.
const MOST_OPEN: usize = 64;
const A_DAY: u64 = 86_400_000;

/// One server on one pair of streams.
pub(super) struct Server {
    feature: Box<dyn Feature>,
    out: Outbox,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    legacy: Option<LegacySession>,
    /// Calls on threads and subscriptions, by the text of their id (`1` and `"1"` differ).
    open: HashMap<String, Arc<Cancel>>,
    listens: Vec<Listen>,
}

struct LegacySession {
    revision: &'static str,
    /// Whether `notifications/initialized` has come; nothing is announced before.
    ready: bool,
    level: usize,
    uris: BTreeSet<String>,
}

/// One `subscriptions/listen`.
struct Listen {
    id: Value,
    list: bool,
    uris: Vec<String>,
    cancel: Arc<Cancel>,
}

/// Where the answer goes.
#[derive(Clone)]
pub(super) enum Reply {
    Line,
    Batch(Arc<Mutex<Batch>>),
}

/// The answers to a batch of a 2025-03-26 session; written when the last one is there.
pub(super) struct Batch {
    waiting: usize,
    answers: Vec<Value>,
}

/// What becomes of a request.
pub(super) enum Handled {
    Done(Value, Vec<Change>),
    /// Answered later, or never.
    Later,
}

impl Server {
    pub(super) fn start(feature: Box<dyn Feature>, output: impl Write + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            feature,
            out: Outbox::new(output),
            state: Mutex::default(),
        })
    }

    /// The first failure of the output.
    pub(super) fn outbox_state(&self) -> io::Result<()> {
        self.out.state()
    }

    /// The input has ended: nobody waits for the rest.
    pub(super) fn end(&self) {
        let open = std::mem::take(&mut self.state().open);
        open.values().for_each(|cancel| self.out.cancel(cancel));
    }

    pub(super) fn refuse_line(&self, limit: usize) {
        let fault = Fault::new(INVALID_REQUEST, format!("message longer than {limit} bytes"));
        self.out.send(&failure(None, fault));
    }

    /// Takes one line.
    pub(super) fn receive(self: &Arc<Self>, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let message = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(error) => {
                self.out
                    .send(&failure(None, Fault::new(PARSE, format!("not JSON: {error}"))));
                return;
            }
        };
        match message {
            Value::Array(messages) => self.batch(messages),
            message => self.message(message, &Reply::Line),
        }
    }

    fn batch(self: &Arc<Self>, messages: Vec<Value>) {
        let allowed = self
            .state()
            .legacy
            .as_ref()
            .is_some_and(|session| session.revision == "2025-03-26");
        if !allowed || messages.is_empty() {
            self.out.send(&failure(
                None,
                Fault::new(INVALID_REQUEST, "a batch is not allowed here"),
            ));
            return;
        }
        // What is no message gets an answer as well, so only what is plainly a notification or response gets none.
        let waiting = messages.iter().filter(|message| answered(message)).count();
        let reply = Reply::Batch(Arc::new(Mutex::new(Batch {
            waiting,
            answers: Vec::new(),
        })));
        for message in messages {
            if message.get("method").and_then(Value::as_str) == Some("initialize") {
                let id = message.get("id").filter(|id| is_id(id)).cloned();
                let fault = Fault::new(INVALID_REQUEST, "initialize may not be in a batch");
                self.answer(&reply, None, Some(failure(id, fault)));
            } else {
                self.message(message, &reply);
            }
        }
    }

    /// Takes one message that is not in an array.
    fn message(self: &Arc<Self>, message: Value, reply: &Reply) {
        let invalid = |id: Option<&Value>, text: &str| {
            let fault = Fault::new(INVALID_REQUEST, text);
            self.answer(
                reply,
                None,
                Some(failure(id.filter(|id| is_id(id)).cloned(), fault)),
            );
        };
        let Value::Object(mut message) = message else {
            return invalid(None, "a message is an object");
        };
        let id = message.remove("id");
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return invalid(id.as_ref(), "`jsonrpc` must be \"2.0\"");
        }
        let method = match message.remove("method") {
            Some(Value::String(method)) => method,
            Some(_) => return invalid(id.as_ref(), "`method` must be a string"),
            // We ask nothing, so an answer is to nothing of ours.
            None if message.contains_key("result") || message.contains_key("error") => return,
            None => return invalid(id.as_ref(), "`method` is missing"),
        };
        let params = match message.remove("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) if id.is_none() => return,
            Some(_) => {
                let fault = Fault::params("`params` must be an object");
                return self.answer(reply, None, Some(failure(id.filter(is_id), fault)));
            }
        };
        let Some(id) = id else {
            return self.notification(&method, &params);
        };
        if !is_id(&id) {
            return invalid(None, "an id is a string or an integer");
        }
        if self.state().open.contains_key(&id.to_string()) {
            return invalid(Some(&id), "the id is that of a request still open");
        }
        let handled = self.family(&method, &params).and_then(|family| {
            let request = Request {
                id: id.clone(),
                method,
                params,
                family,
                reply: reply.clone(),
            };
            self.handle(request)
        });
        match handled {
            Ok(Handled::Done(result, changes)) => {
                self.answer(reply, None, Some(success(&id, result)));
                changes.iter().for_each(|change| self.announce(change));
            }
            Ok(Handled::Later) => {}
            Err(fault) => self.answer(reply, None, Some(failure(Some(id), fault))),
        }
    }

    fn notification(&self, method: &str, params: &Map<String, Value>) {
        match method {
            "notifications/initialized" => {
                if let Some(session) = &mut self.state().legacy {
                    session.ready = true;
                }
            }
            "notifications/cancelled" => {
                let Some(id) = params.get("requestId") else { return };
                let cancelled = self.state().open.remove(&id.to_string());
                if let Some(cancel) = cancelled {
                    self.out.cancel(&cancel);
                    self.state().listens.retain(|listen| listen.id != *id);
                }
            }
            // Unknown ones are ignored.
            _ => {}
        }
    }

    /// Sorts a request into its family and checks what the modern one wants in each.
    fn family(&self, method: &str, params: &Map<String, Value>) -> Result<Family, Fault> {
        let meta = params.get("_meta");
        let entry = |name: &str| meta.and_then(|meta| meta.get(name));
        let Some(version) = entry(meta!("protocolVersion")) else {
            let legacy = self.state().legacy.is_some();
            return match method {
                "initialize" | "ping" => Ok(Family::Legacy),
                _ if legacy => Ok(Family::Legacy),
                _ if method == "server/discover" || entry(meta!("clientCapabilities")).is_some() => Err(
                    Fault::params(concat!("`_meta` lacks `", meta!("protocolVersion"), "`")),
                ),
                _ => Err(Fault::method(method)),
            };
        };
        let Some(version) = version.as_str() else {
            return Err(Fault::params(concat!(
                "`",
                meta!("protocolVersion"),
                "` must be a string"
            )));
        };
        if !entry(meta!("clientCapabilities")).is_some_and(Value::is_object) {
            return Err(Fault::params(concat!(
                "`_meta` lacks the object `",
                meta!("clientCapabilities"),
                "`"
            )));
        }
        if version != MODERN {
            let fault = Fault::new(
                UNSUPPORTED_VERSION,
                format!("unsupported protocol version: {version}"),
            );
            return Err(fault.with(json!({"supported": [MODERN], "requested": version})));
        }
        Ok(Family::Modern)
    }

    fn handle(self: &Arc<Self>, request: Request) -> Result<Handled, Fault> {
        let capabilities = self.feature.capabilities();
        let modern = request.family == Family::Modern;
        let has = |name: &str| capabilities.get(name).is_some();
        if modern && let Some(level) = request.meta(meta!("logLevel")) {
            rank(level)?;
        }
        let list = |key: &str, items: Value| {
            // Everything fits on one page, so no cursor was ever given out.
            let whole = |_| Fault::params("invalid cursor");
            request
                .params
                .get("cursor")
                .map_or(Ok(()), |cursor| Err(whole(cursor)))?;
            Ok(json!({ key: items }))
        };
        let result = match request.method.as_str() {
            "initialize" if !modern => self.initialize(&request.params)?,
            "ping" if !modern => json!({}),
            "logging/setLevel" if !modern && has("logging") => {
                let level = rank(request.params.get("level").unwrap_or(&Value::Null))?;
                if let Some(session) = &mut self.state().legacy {
                    session.level = level;
                }
                json!({})
            }
            "resources/subscribe" | "resources/unsubscribe" if !modern && can_subscribe(&capabilities) => {
                self.subscribe(&request)?
            }
            "server/discover" if modern => {
                let (_, instructions) = self.feature.info();
                let versions = json!([MODERN]);
                json!({"supportedVersions": versions, "capabilities": capabilities, "instructions": instructions})
            }
            "subscriptions/listen" if modern => return self.listen(&request, can_subscribe(&capabilities)),
            "tools/list" if has("tools") => list("tools", self.feature.tools())?,
            "tools/call" if has("tools") => return self.call(request),
            "resources/list" if has("resources") => list("resources", self.feature.resources())?,
            "resources/templates/list" if has("resources") => {
                list("resourceTemplates", self.feature.templates())?
            }
            "resources/read" if has("resources") => {
                let uri = request.text("uri")?;
                let contents = self.feature.read(uri).ok_or_else(|| {
                    let code = if modern { BAD_PARAMS } else { LEGACY_NOT_FOUND };
                    Fault::new(code, "resource not found").with(json!({ "uri": uri }))
                })?;
                json!({ "contents": contents })
            }
            "prompts/list" if has("prompts") => list("prompts", self.feature.prompts())?,
            "prompts/get" if has("prompts") => {
                let name = request.text("name")?;
                let arguments = request.arguments()?;
                if arguments.values().any(|value| !value.is_string()) {
                    return Err(Fault::params("the arguments of a prompt are strings"));
                }
                self.feature.prompt(name, &arguments)?
            }
            "completion/complete" if has("completions") => self.complete(&request.params)?,
            method => return Err(Fault::method(method)),
        };
        Ok(Handled::Done(self.dress(&request, result), Vec::new()))
    }

    fn initialize(&self, params: &Map<String, Value>) -> Result<Value, Fault> {
        let Some(asked) = params.get("protocolVersion").and_then(Value::as_str) else {
            return Err(Fault::params("`protocolVersion` must be a string"));
        };
        let revision = LEGACY
            .into_iter()
            .find(|known| *known == asked)
            .unwrap_or(LEGACY[0]);
        let mut state = self.state();
        if state.legacy.is_some() {
            return Err(Fault::new(INVALID_REQUEST, "already initialised"));
        }
        let level = 1; // info, until the host says otherwise
        state.legacy = Some(LegacySession {
            revision,
            ready: false,
            level,
            uris: BTreeSet::new(),
        });
        let (info, instructions) = self.feature.info();
        let mut capabilities = self.feature.capabilities();
        if let Some(capabilities) = capabilities.as_object_mut().filter(|_| revision == "2024-11-05") {
            capabilities.remove("completions"); // had no capability then; the method exists all the same
        }
        Ok(json!({
            "protocolVersion": revision, "capabilities": capabilities, "serverInfo": info,
            "instructions": instructions,
        }))
    }

    fn call(self: &Arc<Self>, request: Request) -> Result<Handled, Fault> {
        let arguments = request.arguments()?;
        let tool = request.text("name")?.to_owned();
        if !self.feature.is_slow(&tool) {
            let (result, changes) = self.run(&request, &tool, &arguments, &Cancel::default())?;
            return Ok(Handled::Done(result, changes));
        }
        let cancel = self.open(&request.id)?;
        let id = request.id.clone();
        let server = Arc::clone(self);
        let thread = std::thread::Builder::new().name(tool.clone()).spawn(move || {
            let ran = server.run(&request, &tool, &arguments, &cancel);
            let (answer, changes) = match ran {
                Ok((result, changes)) => (success(&request.id, result), changes),
                Err(fault) => (failure(Some(request.id.clone()), fault), Vec::new()),
            };
            // Out of the table first: whoever has the answer may use the id again.
            let mut state = server.state();
            if state
                .open
                .get(&request.id.to_string())
                .is_some_and(|open| Arc::ptr_eq(open, &cancel))
            {
                state.open.remove(&request.id.to_string());
            }
            drop(state);
            server.answer(&request.reply, Some(&cancel), Some(answer));
            changes.iter().for_each(|change| server.announce(change));
        });
        if thread.is_err() {
            self.state().open.remove(&id.to_string());
            return Err(Fault::new(INTERNAL, "no thread for the call"));
        }
        Ok(Handled::Later)
    }

    fn run(
        &self,
        request: &Request,
        tool: &str,
        arguments: &Map<String, Value>,
        cancel: &Cancel,
    ) -> Result<(Value, Vec<Change>), Fault> {
        let token = request.meta("progressToken").filter(|token| is_id(token));
        let level = match request.family {
            Family::Modern => request.meta(meta!("logLevel")).and_then(|level| rank(level).ok()),
            Family::Legacy => self.state().legacy.as_ref().map(|session| session.level),
        };
        let call = Call {
            out: &self.out,
            cancel,
            token,
            level,
        };
        let ran = self.feature.call(tool, arguments, &call);
        let (result, changes) = ran.ok_or_else(|| Fault::params(format!("unknown tool: {tool}")))?;
        Ok((self.dress(request, result), changes))
    }

    fn complete(&self, params: &Map<String, Value>) -> Result<Value, Fault> {
        let argument = params.get("argument");
        let part = |name: &str| argument.and_then(|argument| argument.get(name)?.as_str());
        let (Some(reference), Some(name), Some(prefix)) = (params.get("ref"), part("name"), part("value"))
        else {
            return Err(Fault::params(
                "`ref`, `argument.name` and `argument.value` are needed",
            ));
        };
        let mut values = self.feature.complete(reference, name, prefix)?;
        let total = values.len();
        values.truncate(100);
        Ok(json!({"completion": {"values": values, "total": total, "hasMore": total > values.len()}}))
    }

    /// Adds what the modern family wants in every result, and in those that may be cached.
    fn dress(&self, request: &Request, mut result: Value) -> Value {
        let (Family::Modern, Some(fields)) = (request.family, result.as_object_mut()) else {
            return result;
        };
        fields.insert("resultType".to_owned(), json!("complete"));
        fields.insert(
            "_meta".to_owned(),
            json!({meta!("serverInfo"): self.feature.info().0}),
        );
        let caching = match request.method.as_str() {
            "server/discover" | "tools/list" | "prompts/list" | "resources/templates/list" => {
                (A_DAY, "public")
            }
            "resources/list" | "resources/read" => self.feature.read_caching(),
            _ => return result,
        };
        fields.insert("ttlMs".to_owned(), json!(caching.0));
        fields.insert("cacheScope".to_owned(), json!(caching.1));
        result
    }

    /// Enters a request that stays open.
    fn open(&self, id: &Value) -> Result<Arc<Cancel>, Fault> {
        let mut state = self.state();
        if state.open.len() >= MOST_OPEN {
            return Err(Fault::new(INTERNAL, "too many requests are open"));
        }
        let cancel = Arc::new(Cancel::default());
        state.open.insert(id.to_string(), Arc::clone(&cancel));
        Ok(cancel)
    }

    /// Sends an answer to where it belongs; a cancelled request gets none, and its batch waits for one less.
    fn answer(&self, reply: &Reply, cancel: Option<&Cancel>, answer: Option<Value>) {
        match (reply, cancel, answer) {
            (Reply::Line, Some(cancel), Some(answer)) => self.out.send_for(cancel, &answer),
            (Reply::Line, None, Some(answer)) => self.out.send(&answer),
            (Reply::Line, _, None) => {}
            (Reply::Batch(batch), cancel, answer) => {
                let mut batch = batch.lock().unwrap_or_else(PoisonError::into_inner);
                batch
                    .answers
                    .extend(answer.filter(|_| !cancel.is_some_and(Cancel::is_set)));
                batch.waiting = batch.waiting.saturating_sub(1);
                if batch.waiting == 0 && !batch.answers.is_empty() {
                    self.out.send(&Value::Array(std::mem::take(&mut batch.answers)));
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
