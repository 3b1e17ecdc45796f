//! The headers of modern requests: from the request itself and from the tool lists that were seen passing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::wire::headers::{self, HeaderAnnotations, HeaderParam};
use crate::wire::json::{ValueKind, items, kind_of, member, unquote};
use crate::wire::method::Method;
use crate::wire::{Member, Message};

/// Tools whose parameters are remembered; more are forgotten all at once, and learned again.
const MAX_TOOLS: usize = 100_000;

/// Which parameters each tool wants in headers.
#[derive(Debug, Default)]
pub(super) struct Learned {
    tools: Mutex<HashMap<String, Vec<HeaderParam>>>,
}

impl Learned {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<HeaderParam>>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the result of a `tools/list` that passes.
    pub(super) fn see(&self, answer: &Message) {
        let bytes = answer.bytes();
        let Some(list) = answer.payload().and_then(|result| member(bytes, result, "tools")) else {
            return;
        };
        let mut tools = self.lock();
        if tools.len() > MAX_TOOLS {
            tools.clear();
        }
        for item in items(bytes, list) {
            let name = member(bytes, item, "name")
                .map(|span| span.of(bytes))
                .filter(|raw| kind_of(raw) == Some(ValueKind::String))
                .map(|raw| unquote(raw).into_owned());
            let schema = member(bytes, item, "inputSchema");
            let (Some(name), Some(schema)) = (name, schema) else {
                continue;
            };
            match HeaderAnnotations::from_schema(schema.of(bytes)) {
                Ok(params) if !params.is_empty() => tools.insert(name, params),
                _ => tools.remove(&name),
            };
        }
    }

    /// The headers that a modern request must have.
    pub(super) fn headers(&self, request: &Message, version: &str) -> HeaderMap {
        let mut head = HeaderMap::new();
        let method = request.method().unwrap_or_default();
        let mut put = |name: &str, value: &str| {
            if let (Ok(name), Ok(value)) = (
                HeaderName::from_bytes(name.as_bytes()),
                HeaderValue::from_str(value),
            ) {
                head.insert(name, value);
            }
        };
        put(headers::PROTOCOL_VERSION, version);
        put(headers::METHOD, &method);
        let named_by = Method::find(&method).and_then(|facts| facts.named_by);
        if let Some(name) = named_by.and_then(|member| request.text(member)) {
            put(headers::NAME, &headers::encode_value(&name));
        }
        if method == "tools/call"
            && let Some(name) = request.text(Member::Name)
        {
            let tools = self.lock();
            if let Some(params) = tools.get(&*name) {
                let arguments = request.raw(Member::Arguments).unwrap_or(b"{}");
                for (name, value) in headers::values(params, arguments) {
                    put(&name, &value);
                }
            }
        }
        head
    }
}

#[cfg(test)]
mod tests;
