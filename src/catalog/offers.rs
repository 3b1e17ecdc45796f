//! What a server's capabilities say it offers, and the capabilities that manifold states to hosts.
//!
//! It owns the reading of `capabilities` objects and their merge. The downstream handshake reads with it, the merge
//! states with it. It never decides whether something is allowed.

use bytes::Bytes;
use std::fmt::Write as _;
use std::sync::Arc;

use super::ListKind;
use crate::revision::Family;
use crate::wire::Span;
use crate::wire::json::{ValueKind, kind_of, member, members, quote, unquote};

/// The extension of long-running calls; it needs more than passing bytes, so it never crosses families by itself.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// The extension of interactive resources: only `_meta` and resources, which pass through everywhere.
pub const UI_EXTENSION: &str = "io.modelcontextprotocol/ui";

/// What one server offers, read from its capabilities.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offers {
    /// The `capabilities` object as received; empty if there was none.
    pub raw: Bytes,
    /// `tools`
    pub tools: bool,
    /// `prompts`
    pub prompts: bool,
    /// `resources`; templates belong to it.
    pub resources: bool,
    /// `tools.listChanged`
    pub tools_changed: bool,
    /// `prompts.listChanged`
    pub prompts_changed: bool,
    /// `resources.listChanged`
    pub resources_changed: bool,
    /// `resources.subscribe`
    pub subscribe: bool,
    /// `completions`
    pub completions: bool,
    /// `logging`
    pub logging: bool,
    /// The core tasks of 2025-11-25.
    pub tasks: Option<CoreTasks>,
    /// Extensions by name with their settings, as received.
    pub extensions: Vec<(Arc<str>, Bytes)>,
    /// Experimental capabilities by name, as received.
    pub experimental: Vec<(Arc<str>, Bytes)>,
}

/// The `tasks` capability of 2025-11-25.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoreTasks {
    /// `tasks.list`
    pub list: bool,
    /// `tasks.cancel`
    pub cancel: bool,
    /// `tasks.requests.tools.call`
    pub tool_calls: bool,
}

impl Offers {
    /// Reads a `capabilities` object. Anything that is not one offers nothing.
    #[must_use]
    pub fn parse(capabilities: &Bytes) -> Self {
        let bytes: &[u8] = capabilities;
        let whole = Span::new(0, bytes.len());
        let object = |span: Option<Span>, key: &str| {
            member(bytes, span?, key).filter(|s| kind_of(s.of(bytes)) == Some(ValueKind::Object))
        };
        let flag = |span: Option<Span>, key: &str| {
            span.and_then(|s| member(bytes, s, key))
                .is_some_and(|s| s.of(bytes) == b"true")
        };
        let pairs = |span: Option<Span>| -> Vec<(Arc<str>, Bytes)> {
            let all = span.map(|s| members(bytes, s)).unwrap_or_default();
            all.iter()
                .map(|m| {
                    (
                        Arc::from(&*unquote(m.key.of(bytes))),
                        capabilities.slice(m.value.range()),
                    )
                })
                .collect()
        };
        let top = |key: &str| object(Some(whole), key);
        let tasks = top("tasks");
        Self {
            raw: capabilities.clone(),
            tools: top("tools").is_some(),
            prompts: top("prompts").is_some(),
            resources: top("resources").is_some(),
            tools_changed: flag(top("tools"), "listChanged"),
            prompts_changed: flag(top("prompts"), "listChanged"),
            resources_changed: flag(top("resources"), "listChanged"),
            subscribe: flag(top("resources"), "subscribe"),
            completions: top("completions").is_some(),
            logging: top("logging").is_some(),
            tasks: tasks.map(|_| CoreTasks {
                list: object(tasks, "list").is_some(),
                cancel: object(tasks, "cancel").is_some(),
                tool_calls: object(object(object(tasks, "requests"), "tools"), "call").is_some(),
            }),
            extensions: pairs(top("extensions")),
            experimental: pairs(top("experimental")),
        }
    }

    /// Whether the server serves lists of this kind. One that does not is never asked for it.
    #[must_use]
    pub fn serves(&self, kind: ListKind) -> bool {
        match kind {
            ListKind::Tools => self.tools,
            ListKind::Prompts => self.prompts,
            ListKind::Resources | ListKind::Templates => self.resources,
        }
    }

    /// Whether the server says when lists of this kind change.
    #[must_use]
    pub fn announces(&self, kind: ListKind) -> bool {
        match kind {
            ListKind::Tools => self.tools_changed,
            ListKind::Prompts => self.prompts_changed,
            ListKind::Resources | ListKind::Templates => self.resources_changed,
        }
    }

    /// The settings of an extension, as received.
    #[must_use]
    pub fn extension(&self, name: &str) -> Option<&Bytes> {
        self.extensions
            .iter()
            .find(|(known, _)| &**known == name)
            .map(|(_, raw)| raw)
    }
}

/// What is offered to hosts of one family: the union of what the servers offer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offered {
    /// Lists of tools are served.
    pub tools: bool,
    /// Lists of prompts are served.
    pub prompts: bool,
    /// Lists of resources and templates are served.
    pub resources: bool,
    /// Some server lets resources be subscribed to.
    pub subscribe: bool,
    /// Some server completes arguments.
    pub completions: bool,
    /// Some server logs.
    pub logging: bool,
    /// Core tasks (legacy hosts only).
    pub tasks: Option<CoreTasks>,
    /// Extensions with their settings, in order of the servers.
    pub extensions: Vec<(Arc<str>, Bytes)>,
    /// Experimental capabilities that exactly one server has.
    pub experimental: Vec<(Arc<str>, Bytes)>,
}

impl Offered {
    /// The union for hosts of `family`. `None` stands for a server that was never listed: it may offer lists of any
    /// kind. So may servers that are added later, if there is none at all.
    #[must_use]
    pub fn merge(family: Family, servers: &[Option<(Family, &Offers)>]) -> Self {
        let unknown = servers.is_empty() || servers.iter().any(Option::is_none);
        let mut out = Self {
            tools: unknown,
            prompts: unknown,
            resources: unknown,
            ..Self::default()
        };
        let mut owners: Vec<(Arc<str>, Bytes, usize)> = Vec::new();
        for (from, offers) in servers.iter().flatten() {
            out.tools |= offers.tools;
            out.prompts |= offers.prompts;
            out.resources |= offers.resources;
            out.subscribe |= offers.subscribe;
            out.completions |= offers.completions;
            out.logging |= offers.logging;
            if let (Family::Legacy, Family::Legacy, Some(tasks)) = (family, *from, offers.tasks) {
                let all = out.tasks.get_or_insert_default();
                all.list |= tasks.list;
                all.cancel |= tasks.cancel;
                all.tool_calls |= tasks.tool_calls;
            }
            for (name, raw) in &offers.extensions {
                let carried = *from == family || &**name == UI_EXTENSION;
                if carried && !out.extensions.iter().any(|(known, _)| known == name) {
                    out.extensions.push((name.clone(), raw.clone()));
                }
            }
            for (name, raw) in &offers.experimental {
                match owners.iter_mut().find(|(known, _, _)| known == name) {
                    Some((_, _, count)) => *count += 1,
                    None => owners.push((name.clone(), raw.clone(), 1)),
                }
            }
        }
        let single = owners.into_iter().filter(|(_, _, count)| *count == 1);
        out.experimental = single.map(|(name, raw, _)| (name, raw)).collect();
        out
    }

    /// Whether lists of this kind are offered.
    #[must_use]
    pub fn serves(&self, kind: ListKind) -> bool {
        match kind {
            ListKind::Tools => self.tools,
            ListKind::Prompts => self.prompts,
            ListKind::Resources | ListKind::Templates => self.resources,
        }
    }

    /// The `capabilities` object for `initialize` and `server/discover`. Changes are always announced: servers come
    /// and go behind us whatever each of them says.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut members: Vec<String> = Vec::new();
        if let Some(tasks) = self.tasks {
            let mut inner = Vec::new();
            if tasks.list {
                inner.push("\"list\":{}");
            }
            if tasks.cancel {
                inner.push("\"cancel\":{}");
            }
            if tasks.tool_calls {
                inner.push("\"requests\":{\"tools\":{\"call\":{}}}");
            }
            members.push(format!("\"tasks\":{{{}}}", inner.join(",")));
        }
        for (on, text) in [
            (self.tools, "\"tools\":{\"listChanged\":true}"),
            (self.prompts, "\"prompts\":{\"listChanged\":true}"),
            (
                self.resources && self.subscribe,
                "\"resources\":{\"listChanged\":true,\"subscribe\":true}",
            ),
            (
                self.resources && !self.subscribe,
                "\"resources\":{\"listChanged\":true}",
            ),
            (self.completions, "\"completions\":{}"),
            (self.logging, "\"logging\":{}"),
        ] {
            if on {
                members.push(text.to_owned());
            }
        }
        for (key, pairs) in [
            ("extensions", &self.extensions),
            ("experimental", &self.experimental),
        ] {
            if pairs.is_empty() {
                continue;
            }
            let mut text = format!("\"{key}\":{{");
            for (at, (name, raw)) in pairs.iter().enumerate() {
                let comma = if at > 0 { "," } else { "" };
                let raw = String::from_utf8_lossy(raw);
                // Writing to a String cannot fail.
                let _ = write!(text, "{comma}{}:{raw}", quote(name));
            }
            text.push('}');
            members.push(text);
        }
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests;
