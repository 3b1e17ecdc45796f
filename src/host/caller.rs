//! Callers from what hosts say about themselves, in both families. Pure; host faces call it.

use std::sync::Arc;

use crate::identity::Identity;
use crate::revision::Revision;
use crate::session::{Caller, CapabilitySet, HostTransport, InFlight, LogLevel, Session};
use crate::wire::json::{Span, ValueKind, kind_of, member, unquote};
use crate::wire::{Member, Message};

/// Longest name or version of a host that is kept, in bytes; they end up in logs and audit records.
const NAME_LENGTH: usize = 128;

fn text_of(object: &[u8], key: &str) -> Arc<str> {
    let Some(span) = member(object, Span::new(0, object.len()), key) else {
        return Arc::from("");
    };
    let raw = span.of(object);
    if kind_of(raw) != Some(ValueKind::String) {
        return Arc::from("");
    }
    let text = unquote(raw);
    let mut end = text.len().min(NAME_LENGTH);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Arc::from(text.get(..end).unwrap_or_default())
}

/// Who the host says it is: name and version, empty where it says nothing.
#[must_use]
pub fn client_info(info: Option<&[u8]>) -> (Arc<str>, Arc<str>) {
    match info {
        Some(info) if kind_of(info) == Some(ValueKind::Object) => {
            (text_of(info, "name"), text_of(info, "version"))
        }
        _ => (Arc::from(""), Arc::from("")),
    }
}

fn capabilities(raw: Option<&[u8]>) -> CapabilitySet {
    match raw {
        Some(raw) if kind_of(raw) == Some(ValueKind::Object) => CapabilitySet::from_json(raw),
        _ => CapabilitySet::NONE,
    }
}

/// The caller of a legacy session, from its `initialize`.
#[must_use]
pub fn legacy(
    initialize: &Message,
    transport: HostTransport,
    revision: Revision,
    session: Arc<Session>,
) -> Arc<Caller> {
    let (host_name, host_version) = client_info(initialize.raw(Member::ClientInfo));
    Arc::new(Caller {
        identity: session.identity.clone(),
        host_name,
        host_version,
        transport,
        revision,
        capabilities: capabilities(initialize.raw(Member::Capabilities)),
        in_flight: Some(session.in_flight.clone()),
        session: Some(session),
        log_level: None,
    })
}

/// The caller of one modern request. `in_flight` is the connection's on stdio, `None` over HTTP.
#[must_use]
pub fn modern(
    request: &Message,
    identity: Identity,
    transport: HostTransport,
    revision: Revision,
    in_flight: Option<Arc<InFlight>>,
) -> Arc<Caller> {
    let (host_name, host_version) = client_info(request.raw(Member::MetaClientInfo));
    Arc::new(Caller {
        identity,
        host_name,
        host_version,
        transport,
        revision,
        capabilities: capabilities(request.raw(Member::MetaClientCapabilities)),
        session: None,
        in_flight,
        log_level: request
            .text(Member::MetaLogLevel)
            .and_then(|level| LogLevel::parse(&level)),
    })
}
