//! JSON-RPC as the sample servers need it: requests, errors, envelopes, log levels.

use serde_json::{Map, Value, json};

use super::server::Reply;

pub(super) const PARSE: i64 = -32700;
pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const NO_METHOD: i64 = -32601;
pub(super) const BAD_PARAMS: i64 = -32602;
pub(super) const INTERNAL: i64 = -32603;
pub(super) const UNSUPPORTED_VERSION: i64 = -32022;
pub(super) const LEGACY_NOT_FOUND: i64 = -32002;

/// Severities, the least first.
pub(super) const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];
macro_rules! meta {
    ($name:literal) => {
        concat!("io.modelcontextprotocol/", $name)
    };
}
pub(super) use meta;

/// A JSON-RPC error.
#[derive(Debug)]
pub(super) struct Fault {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl Fault {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(super) fn params(message: impl Into<String>) -> Self {
        Self::new(BAD_PARAMS, message)
    }

    pub(super) fn with(self, data: Value) -> Self {
        Self {
            data: Some(data),
            ..self
        }
    }

    pub(super) fn method(method: &str) -> Self {
        Self::new(NO_METHOD, format!("method not found: {method}"))
    }
}

/// The family that a request is served by.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Family {
    Legacy,
    Modern,
}

pub(super) struct Request {
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
    pub(super) family: Family,
    pub(super) reply: Reply,
}

impl Request {
    pub(super) fn meta(&self, name: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Result<&str, Fault> {
        let text = self.params.get(name).and_then(Value::as_str);
        text.ok_or_else(|| Fault::params(format!("`{name}` must be a string")))
    }

    pub(super) fn arguments(&self) -> Result<Map<String, Value>, Fault> {
        match self.params.get("arguments") {
            None => Ok(Map::new()),
            Some(Value::Object(arguments)) => Ok(arguments.clone()),
            Some(_) => Err(Fault::params("`arguments` must be an object")),
        }
    }
}

pub(super) fn rank(level: &Value) -> Result<usize, Fault> {
    let rank = level
        .as_str()
        .and_then(|level| LEVELS.iter().position(|known| *known == level));
    rank.ok_or_else(|| Fault::params(format!("unknown log level: {level}")))
}

/// Ids and progress tokens are strings or integers.
pub(super) fn is_id(value: &Value) -> bool {
    value.is_string() || value.is_i64() || value.is_u64()
}

/// Whether a member of a batch gets an answer: all but notifications and responses.
pub(super) fn answered(message: &Value) -> bool {
    let Some(message) = message.as_object() else {
        return true;
    };
    let has = |name| message.contains_key(name);
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return true;
    }
    match message.get("method") {
        Some(Value::String(_)) => has("id"),
        Some(_) => true,
        None => !has("result") && !has("error"),
    }
}

pub(super) fn success(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// An error without id if the id could not be read.
pub(super) fn failure(id: Option<Value>, fault: Fault) -> Value {
    let mut error = json!({"code": fault.code, "message": fault.message});
    let mut message = json!({"jsonrpc": "2.0"});
    if let (Some(data), Some(error)) = (fault.data, error.as_object_mut()) {
        error.insert("data".to_owned(), data);
    }
    if let Some(message) = message.as_object_mut() {
        message.extend(id.map(|id| ("id".to_owned(), id)));
        message.insert("error".to_owned(), error);
    }
    message
}

pub(super) fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}
