//! The rewrites that a (host, downstream) pair of families needs, as edits on spans. Pure.
//!
//! Requests: the `_meta` keys that belong to a hop are replaced, everything else in `_meta` passes. Results: the
//! fields that only one family has are added or removed. Which reverse traffic a pair can carry is decided
//! elsewhere.

use bytes::Bytes;

use super::{Family, Revision};
use crate::wire::json::{Span, ValueKind, kind_of, quote};
use crate::wire::splice::rebuild;
use crate::wire::{Member, Message, Splice};

/// The name of the prefix that the protocol reserves.
const PREFIX: &str = "io.modelcontextprotocol/";

/// What a request's `_meta` must say on the downstream hop.
#[derive(Clone, Debug)]
pub struct OutboundMeta<'a> {
    /// Whether the host speaks the modern family, so that its own hop keys stand in the message.
    pub host: Family,
    /// The host's name and version, for `clientInfo` where the host's message has none.
    pub host_info: (&'a str, &'a str),
    /// The log level that the host wants, for modern downstreams behind legacy hosts.
    pub log_level: Option<&'a str>,
    /// The downstream's family.
    pub family: Family,
    /// The downstream's revision.
    pub revision: Revision,
    /// Our progress token (JSON text).
    pub token: Bytes,
    /// Whether to ask for progress although the host did not: it drives our own idle limit.
    pub wants_token: bool,
}

fn is_object(message: &Message, span: Span) -> bool {
    kind_of(span.of(message.bytes())) == Some(ValueKind::Object)
}

/// Edits a host's request so that its `_meta` is right for the downstream.
pub fn outbound_meta(message: &Message, meta: &OutboundMeta<'_>, splice: &mut Splice) {
    let existing = message
        .span(Member::Meta)
        .filter(|span| is_object(message, *span));
    let host_token = message.span(Member::MetaProgressToken);
    let token = std::str::from_utf8(&meta.token).unwrap_or("0");
    if meta.host == meta.family {
        match (host_token, existing) {
            (Some(span), _) => {
                splice.replace(span, meta.token.clone());
            }
            (None, Some(object)) if meta.wants_token => {
                splice.insert_members(message.bytes(), object, format!("\"progressToken\":{token}"));
            }
            (None, None) if meta.wants_token => {
                insert_meta(message, &format!("{{\"progressToken\":{token}}}"), splice)
            }
            _ => {}
        }
        return;
    }
    // Crossing families: the hop's own keys are dropped and made anew.
    let mut extra = Vec::new();
    if host_token.is_some() || meta.wants_token {
        extra.push(format!("\"progressToken\":{token}"));
    }
    if meta.family == Family::Modern {
        extra.push(modern_context(meta.revision, meta.host_info));
        if let Some(level) = meta.log_level {
            extra.push(format!("\"{PREFIX}logLevel\":\"{level}\""));
        }
    }
    let extra = extra.join(",");
    let keep = |key: &str| {
        let hop = key.strip_prefix(PREFIX).is_some_and(|name| {
            matches!(
                name,
                "protocolVersion" | "clientCapabilities" | "clientInfo" | "logLevel"
            )
        });
        !hop && key != "progressToken"
    };
    match existing {
        Some(object) => {
            splice.replace(object, rebuild(message.bytes(), object, keep, &extra));
        }
        None if extra.is_empty() => {}
        None => insert_meta(message, &format!("{{{extra}}}"), splice),
    }
}

/// The members that every modern request must have in its `_meta`. No capability is declared on behalf of a
/// legacy host: what it could do cannot be asked for on this road yet, and an honest server then uses its own way.
fn modern_context(revision: Revision, (name, version): (&str, &str)) -> String {
    format!(
        "\"{PREFIX}protocolVersion\":\"{}\",\"{PREFIX}clientCapabilities\":{{}},\"{PREFIX}clientInfo\":{{\"name\":{},\"version\":{}}}",
        revision.as_str(),
        quote(name),
        quote(version)
    )
}

fn insert_meta(message: &Message, value: &str, splice: &mut Splice) {
    if let Some(bad) = message.span(Member::Meta) {
        // `_meta` that is no object: the server would refuse it anyway; it is replaced.
        splice.replace(bad, value.to_owned());
    } else if let Some(params) = message.payload().filter(|span| is_object(message, *span)) {
        splice.insert_members(message.bytes(), params, format!("\"_meta\":{value}"));
    } else {
        let end = message.extent().end.saturating_sub(1);
        splice.insert(end, format!(",\"params\":{{\"_meta\":{value}}}"));
    }
}

/// The `params` of a request of manifold's own to a modern server: `params` (a JSON object) with the context added.
#[must_use]
pub fn own_params(params: &str, revision: Revision) -> String {
    let context = modern_context(revision, ("manifold", env!("CARGO_PKG_VERSION")));
    let inner = params.trim().trim_start_matches('{').trim_start();
    let comma = if inner.starts_with('}') { "" } else { "," };
    format!("{{\"_meta\":{{{context}}}{comma}{inner}")
}

/// Edits a server's result so that it is right for the host's family.
pub fn inbound_result(message: &Message, host: Family, server: Family, method: &str, splice: &mut Splice) {
    let Some(result) = message.payload().filter(|span| is_object(message, *span)) else {
        return;
    };
    match (server, host) {
        (Family::Legacy, Family::Modern) => {
            let mut extra = Vec::new();
            if message.span(Member::ResultType).is_none() {
                extra.push("\"resultType\":\"complete\"".to_owned());
            }
            if method == "resources/read" {
                if message.span(Member::TimeToLive).is_none() {
                    extra.push("\"ttlMs\":0".to_owned());
                }
                if message.span(Member::CacheScope).is_none() {
                    extra.push("\"cacheScope\":\"private\"".to_owned());
                }
            }
            if !extra.is_empty() {
                splice.insert_members(message.bytes(), result, extra.join(","));
            }
        }
        (Family::Modern, Family::Legacy) => {
            if let Some(member) = message.noted(Member::ResultType) {
                splice.remove_member(message.bytes(), member);
            }
        }
        (Family::Modern, Family::Modern) => {
            // A server that left it out means "complete"; the host's revision demands it.
            if message.span(Member::ResultType).is_none() {
                splice.insert_members(message.bytes(), result, "\"resultType\":\"complete\"");
            }
        }
        (Family::Legacy, Family::Legacy) => {}
    }
}

/// What a server's error code becomes for a host: the code, and whether the original must be kept in `data`.
#[must_use]
pub fn inbound_error_code(code: i64, host: Family) -> (i64, bool) {
    match (host, code) {
        (Family::Modern, -32002) => (-32602, false),
        // A modern host may only see the codes that its specification knows; -32020 and -32022 are between us and
        // the server, -32021 names a capability that the host itself did not declare.
        (Family::Modern, -32021) => (-32021, false),
        (Family::Modern, -32099..=-32020) => (-32603, true),
        (Family::Legacy, -32022..=-32020) => (-32603, true),
        _ => (code, false),
    }
}

#[cfg(test)]
mod tests;
