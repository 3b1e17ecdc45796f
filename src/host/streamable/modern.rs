//! Streamable HTTP of 2026-07-28: `POST` only, no session, every request self-contained.
//!
//! The call is owned by the answer: when the host closes the stream, dropping the answer drops the call, and that is
//! the cancellation. Nothing of a request lives in a task of its own.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use crate::host::Shared;
use crate::host::caller;
use crate::host::edge::Accepts;
use crate::host::events::EventStream;
use crate::host::fault::{self, Fault};
use crate::host::http::{Answer, Peer, VERSION, empty, events, json, refuse, text};
use crate::host::outbox::Outbox;
use crate::pipeline::HostRequest;
use crate::revision::Revision;
use crate::session::LogLevel;
use crate::wire::headers;
use crate::wire::json::{ValueKind, kind_of, quote};
use crate::wire::method::{Method, MethodKind};
use crate::wire::{Kind, Member, Message};

use super::answer::{Start, first_of_call};

/// Answers a modern `POST`.
pub(super) async fn post(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    headers: HeaderMap,
    accepts: Accepts,
    message: Message,
) -> Answer {
    let id = match (message.kind(), message.id()) {
        (Kind::Request, Some(id)) => id,
        // Cancelling is closing the stream, so no notification has an effect here.
        (Kind::Notification, _) => return empty(StatusCode::ACCEPTED),
        _ => {
            let fault = Fault::new(
                400,
                fault::INVALID_REQUEST,
                "unexpected_response",
                "a response may not be sent here: the server asks through input_required results",
            );
            return refuse(shared, peer, &fault, None);
        }
    };
    let revision = match check_meta(&message, text(&headers, &VERSION)) {
        Ok(revision) => revision,
        Err(fault) => return refuse(shared, peer, &fault, Some(&id)),
    };
    let method = message.method().unwrap_or(Cow::Borrowed("")).into_owned();
    if let Err(fault) =
        check_headers(&message, &method, revision, &headers).and_then(|()| check_rest(&message, &method))
    {
        return refuse(shared, peer, &fault, Some(&id));
    }
    if method == "subscriptions/listen" && !accepts.events {
        let fault = Fault::new(
            406,
            fault::INVALID_REQUEST,
            "not_acceptable",
            "subscriptions/listen answers with text/event-stream only",
        );
        return refuse(shared, peer, &fault, Some(&id));
    }
    let outbox = Outbox::new(shared.settings.outbox);
    if !accepts.events {
        outbox.answers_only();
    }
    let mut reader = outbox.attach();
    // A subscription waits for nothing that must be finished: it ends when the shutdown starts.
    let phase = if method == "subscriptions/listen" {
        &shared.draining
    } else {
        &shared.calls
    };
    let cancel = phase.child_token();
    let guard = cancel.clone().drop_guard();
    let request = HostRequest {
        caller: caller::modern(&message, peer.identity.clone(), peer.transport, revision, None),
        message,
        stream: outbox,
        cancel,
        headers: Some(Arc::new(headers)),
    };
    let mut call = Some(shared.service.clone().request(request));
    match first_of_call(&mut call, &mut reader, accepts, shared.settings.keep_alive).await {
        Start::Json(status, message) => json(StatusCode::from_u16(status).unwrap_or(StatusCode::OK), message),
        Start::Events => {
            let stop = tokio_util::sync::CancellationToken::new();
            let stream = EventStream::new(reader, shared.settings.keep_alive, stop).with_call(call, guard);
            events(stream.into_pieces())
        }
        // The host has not cancelled, or nobody would read this: manifold is shutting down.
        Start::Nothing => {
            let fault =
                Fault::new(503, fault::BUSY, "shutting_down", "manifold is shutting down").retryable();
            refuse(shared, peer, &fault, Some(&id))
        }
    }
}

/// The version and the capabilities that every modern request carries.
pub(crate) fn check_meta(message: &Message, header: Option<&str>) -> Result<Revision, Fault> {
    let named = message.text(Member::MetaProtocolVersion);
    if let (Some(named), Some(header)) = (&named, header)
        && named != header
    {
        return Err(mismatch("MCP-Protocol-Version and the version in _meta differ"));
    }
    let capabilities = message.raw(Member::MetaClientCapabilities);
    let (Some(named), Some(true)) = (
        named,
        capabilities.map(|raw| kind_of(raw) == Some(ValueKind::Object)),
    ) else {
        return Err(Fault::new(
            400,
            fault::INVALID_PARAMS,
            "meta_missing",
            "params._meta must have io.modelcontextprotocol/protocolVersion (a string) and \
             io.modelcontextprotocol/clientCapabilities (an object)",
        ));
    };
    match Revision::parse(&named).filter(|revision| revision.is_modern()) {
        Some(revision) => Ok(revision),
        None => {
            let supported: Vec<String> = Revision::supported_modern()
                .iter()
                .map(|revision| quote(revision.as_str()))
                .collect();
            let data = format!(
                "\"supported\":[{}],\"requested\":{}",
                supported.join(","),
                quote(&named)
            );
            Err(Fault::new(
                400,
                fault::UNSUPPORTED_VERSION,
                "version_unsupported",
                "this protocol version is not supported in _meta",
            )
            .with_data(data))
        }
    }
}

/// Methods and log levels that no modern request may have. The same on standard input.
pub(crate) fn check_rest(message: &Message, method: &str) -> Result<(), Fault> {
    let newest = Revision::newest_modern().as_str();
    let known = Method::find(method)
        .is_some_and(|facts| facts.is_in(newest) && facts.from_host() && facts.kind == MethodKind::Request);
    if !known {
        let message = format!("there is no method {} in this revision", quote(method));
        return Err(Fault::new(
            404,
            fault::METHOD_NOT_FOUND,
            "method_unknown",
            message,
        ));
    }
    if message.span(Member::MetaLogLevel).is_some()
        && message
            .text(Member::MetaLogLevel)
            .and_then(|level| LogLevel::parse(&level))
            .is_none()
    {
        return Err(Fault::new(
            400,
            fault::INVALID_PARAMS,
            "log_level",
            "io.modelcontextprotocol/logLevel is not one of the eight levels",
        ));
    }
    Ok(())
}

fn mismatch(message: impl Into<Cow<'static, str>>) -> Fault {
    Fault::new(400, fault::HEADER_MISMATCH, "header_mismatch", message)
}

/// Headers that must agree with the body, so that whoever routes or decides by headers saw the truth.
fn check_headers(
    message: &Message,
    method: &str,
    revision: Revision,
    given: &HeaderMap,
) -> Result<(), Fault> {
    let one = |name: &'static str| {
        let mut values = given.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(_), Some(_)) => Err(mismatch(format!("{name} is given twice"))),
            (Some(value), None) => Ok(Some(value.as_bytes())),
        }
    };
    match one(headers::PROTOCOL_VERSION)? {
        Some(version) if version == revision.as_str().as_bytes() => {}
        Some(_) => {
            return Err(mismatch("MCP-Protocol-Version and the version in _meta differ"));
        }
        None => return Err(mismatch("the header MCP-Protocol-Version is missing")),
    }
    match one(headers::METHOD)? {
        Some(named) if named == method.as_bytes() => {}
        Some(_) => return Err(mismatch("Mcp-Method and the method of the body differ")),
        None => return Err(mismatch("the header Mcp-Method is missing")),
    }
    let named_by = Method::find(method).and_then(|facts| facts.named_by);
    // Without a name in the body there is nothing to agree with; the pipeline says what is wrong then.
    let Some(named) = named_by.and_then(|member| message.text(member)) else {
        return Ok(());
    };
    let Some(header) = one(headers::NAME)? else {
        return Err(mismatch("the header Mcp-Name is missing"));
    };
    match headers::value_is(header, &named) {
        Ok(true) => Ok(()),
        Ok(false) => Err(mismatch("Mcp-Name and the name in the body differ")),
        Err(fault) => Err(mismatch(format!("Mcp-Name: {fault}"))),
    }
}

#[cfg(test)]
mod tests;
