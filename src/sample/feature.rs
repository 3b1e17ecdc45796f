//! What a sample server offers, apart from how the protocol is spoken.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::outbox::{Cancel, Outbox};
use super::rpc::{Fault, LEVELS, notification};

/// What a call changed, for those who subscribed.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// The list of resources.
    List,
    /// The resource that this URI names, however it is spelled.
    Resource(String),
}

/// What a server offers.
pub(super) trait Feature: Send + Sync {
    /// `serverInfo` and the instructions.
    fn info(&self) -> (Value, &'static str);
    /// The capabilities, as both families spell them. A method whose capability is absent does not exist.
    fn capabilities(&self) -> Value;
    fn tools(&self) -> Value;
    /// Whether the tool takes time.
    fn is_slow(&self, _tool: &str) -> bool {
        false
    }
    /// `None` if there is no such tool. Bad arguments are a result with `isError`.
    fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        call: &Call<'_>,
    ) -> Option<(Value, Vec<Change>)>;
    fn resources(&self) -> Value;
    fn templates(&self) -> Value {
        json!([])
    }
    /// The `contents`; `None` if there is no such resource.
    fn read(&self, uri: &str) -> Option<Value>;
    /// For how long, in ms, and for whom what was read holds.
    fn read_caching(&self) -> (u64, &'static str);
    /// Whether two URIs name the same resource.
    fn same(&self, one: &str, other: &str) -> bool {
        one == other
    }
    /// Whether the URI could name a resource, now or later.
    fn may_subscribe(&self, _uri: &str) -> bool {
        false
    }
    fn prompts(&self) -> Value {
        json!([])
    }
    fn prompt(&self, name: &str, _arguments: &Map<String, Value>) -> Result<Value, Fault> {
        Err(Fault::params(format!("unknown prompt: {name}")))
    }
    /// Every value that fits, at most what the server likes to count.
    fn complete(&self, _reference: &Value, _argument: &str, _prefix: &str) -> Result<Vec<String>, Fault> {
        Err(Fault::params("nothing to complete"))
    }
}

/// The way from a running tool to the one who called it.
pub(super) struct Call<'a> {
    pub(super) out: &'a Outbox,
    pub(super) cancel: &'a Cancel,
    pub(super) token: Option<&'a Value>,
    /// Messages below are not sent; `None` sends none.
    pub(super) level: Option<usize>,
}

impl Call<'_> {
    /// Reports progress if the caller gave a token. `done` must rise.
    pub(super) fn progress(&self, done: u64, total: u64, message: &str) {
        let Some(token) = self.token else { return };
        let params = json!({"progressToken": token, "progress": done, "total": total, "message": message});
        self.out
            .send_for(self.cancel, &notification("notifications/progress", params));
    }

    /// Sends a log message if the caller wants its level.
    pub(super) fn log(&self, level: &str, logger: &str, data: Value) {
        let Some(rank) = LEVELS.iter().position(|known| *known == level) else {
            return;
        };
        if self.level.is_some_and(|least| rank >= least) {
            let params = json!({"level": level, "logger": logger, "data": data});
            self.out
                .send_for(self.cancel, &notification("notifications/message", params));
        }
    }

    /// Sleeps; `true` if the call was cancelled meanwhile.
    pub(super) fn sleep_until(&self, time: Instant) -> bool {
        self.cancel.sleep_until(time)
    }
}
