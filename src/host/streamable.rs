//! Streamable HTTP: one path for every revision. Reads the body, settles the era of a request and hands it to the
//! modern or the legacy half. Holds no state.

mod answer;
mod legacy;
mod legacy_batch;
mod modern;

use std::sync::Arc;

use http::{Method, Request};
use hyper::body::Incoming;

use crate::revision::Revision;
use crate::wire::{Kind, Member, Message};

use super::Shared;
use super::edge;
use super::fault::{self, Fault};
use super::http::{Answer, Peer, VERSION, collect, not_allowed, refuse, text};

pub(crate) use legacy::label_of;
pub(crate) use modern::{check_meta, check_rest};

/// The methods of the endpoint.
const METHODS: &str = "POST, GET, DELETE";

/// Answers a request to the endpoint.
pub(crate) async fn handle(shared: &Arc<Shared>, peer: &Arc<Peer>, request: Request<Incoming>) -> Answer {
    match *request.method() {
        Method::POST => post(shared, peer, request).await,
        Method::GET => legacy::get(shared, peer, request.headers()),
        Method::DELETE => legacy::delete(shared, peer, request.headers()),
        _ => not_allowed(METHODS),
    }
}

async fn post(shared: &Arc<Shared>, peer: &Arc<Peer>, request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let accepts = edge::accepts(&parts.headers);
    if !accepts.json && !accepts.events {
        let fault = Fault::new(
            406,
            fault::INVALID_REQUEST,
            "not_acceptable",
            "Accept must allow application/json or text/event-stream",
        );
        return refuse(shared, peer, &fault, None);
    }
    let bytes = match collect(shared, &parts.headers, body).await {
        Ok(bytes) => bytes,
        Err(fault) => return refuse(shared, peer, &fault, None),
    };
    if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[') {
        return legacy_batch::post(shared, peer, &parts.headers, accepts, &bytes).await;
    }
    let message = match Message::parse(bytes, shared.settings.json) {
        Ok(message) => message,
        Err(error) => {
            let fault = Fault::new(400, error.fault.code(), "unparsable", error.fault.to_string());
            return refuse(shared, peer, &fault, error.id.as_ref());
        }
    };
    if is_modern(shared, &parts.headers, &message) {
        modern::post(shared, peer, parts.headers, accepts, message).await
    } else {
        legacy::post(shared, peer, &parts.headers, accepts, message).await
    }
}

/// The era of a message: its own word first, then the header, then whether it names a session we know.
fn is_modern(shared: &Shared, headers: &http::HeaderMap, message: &Message) -> bool {
    if message.kind() == Kind::Request && message.span(Member::MetaProtocolVersion).is_some() {
        return true;
    }
    // A handshake without the modern key is one, whatever the header says: hosts ask for the newest they know.
    if message.method().is_some_and(|method| method == "initialize") {
        return false;
    }
    let Some(version) = text(headers, &VERSION) else {
        return false;
    };
    if Revision::parse(version).is_some_and(Revision::is_legacy) {
        return false;
    }
    legacy::find(shared, headers).is_none()
}

/// Whether the version header alone names the modern family: for requests without a body.
fn header_is_modern(headers: &http::HeaderMap) -> bool {
    text(headers, &VERSION)
        .and_then(Revision::parse)
        .is_some_and(Revision::is_modern)
}
