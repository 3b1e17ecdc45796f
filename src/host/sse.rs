//! The HTTP+SSE pair of 2024-11-05: a stream whose first event names the address to post to. The stream is the
//! session: when it closes, the session is over.

use std::sync::Arc;

use dashmap::DashMap;
use futures_util::{Stream, StreamExt as _};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;

use crate::crypto;
use crate::identity::Identity;
use crate::session::HostTransport;
use crate::wire::sse;

use super::Shared;
use super::conversation::{Conversation, Party};
use super::edge;
use super::events::EventStream;
use super::fault::{self, Fault};
use super::http::{Answer, Peer, collect, empty, events, not_allowed, refuse};
use super::outbox::Outbox;
use super::streamable::label_of;

/// The pairs that are open, by the token in their posting address.
#[derive(Default)]
pub(crate) struct Pairs {
    open: DashMap<Arc<str>, Arc<Pair>>,
}

struct Pair {
    identity: Identity,
    outbox: Arc<Outbox>,
    conversation: Arc<Conversation>,
}

impl Pairs {
    /// Ends the pairs that have no request open, or all.
    pub(crate) fn end(&self, idle_only: bool) {
        let gone: Vec<Arc<Pair>> = self
            .open
            .iter()
            .map(|entry| entry.value().clone())
            .filter(|pair| !idle_only || pair.conversation.is_idle())
            .collect();
        for pair in gone {
            pair.conversation.end_now();
            pair.outbox.finish();
        }
    }
}

/// Ends a pair when its stream is dropped.
struct Ends(Arc<Shared>, Arc<str>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some((_, pair)) = self.0.pairs.open.remove(&self.1) {
            pair.outbox.close();
            pair.conversation.end_now();
        }
    }
}

/// Answers `GET /sse`.
pub(crate) fn stream(shared: &Arc<Shared>, peer: &Arc<Peer>, request: &Request<Incoming>) -> Answer {
    if request.method() != Method::GET {
        return not_allowed("GET");
    }
    if !edge::accepts(request.headers()).events {
        let fault = Fault::new(
            406,
            fault::INVALID_REQUEST,
            "not_acceptable",
            "Accept must allow text/event-stream",
        );
        return refuse(shared, peer, &fault, None);
    }
    if shared.pairs.open.len() >= shared.settings.sessions.total {
        let fault = Fault::new(
            503,
            fault::BUSY,
            "too_many_sessions",
            "too many sessions are open",
        )
        .retryable();
        return refuse(shared, peer, &fault, None);
    }
    let token: Arc<str> = crypto::hex(&crypto::random::<24>()).into();
    let outbox = Outbox::new(shared.settings.outbox);
    let party = Party {
        identity: peer.identity.clone(),
        transport: HostTransport::Sse,
        id: token.clone(),
        label: label_of(&token),
    };
    let conversation = Conversation::new(
        shared.service.clone(),
        shared.settings.clone(),
        outbox.clone(),
        party,
        shared.calls.child_token(),
    );
    let reader = outbox.attach();
    let pair = Pair {
        identity: peer.identity.clone(),
        outbox,
        conversation,
    };
    shared.pairs.open.insert(token.clone(), Arc::new(pair));
    // Relative, so that it is right behind any proxy.
    let up = if request.uri().path().ends_with('/') {
        "../"
    } else {
        ""
    };
    let address = format!("{up}messages?session_id={token}");
    let first = sse::event(None, Some("endpoint"), [address.into()]);
    let stop = tokio_util::sync::CancellationToken::new();
    let mut body = EventStream::new(reader, shared.settings.keep_alive, stop);
    for piece in first {
        body = body.with_first(piece);
    }
    events(until_dropped(body.into_pieces(), Ends(shared.clone(), token)))
}

fn until_dropped<S: Stream>(stream: S, ends: Ends) -> impl Stream<Item = S::Item> {
    stream.map(move |item| {
        let _alive = &ends;
        item
    })
}

/// Answers `POST /messages`.
pub(crate) async fn message(shared: &Arc<Shared>, peer: &Arc<Peer>, request: Request<Incoming>) -> Answer {
    if request.method() != Method::POST {
        return not_allowed("POST");
    }
    let (parts, body) = request.into_parts();
    let token = parts.uri.query().unwrap_or("").split('&').find_map(|pair| {
        pair.strip_prefix("session_id=")
            .or_else(|| pair.strip_prefix("sessionId="))
    });
    let pair = token.and_then(|token| shared.pairs.open.get(token).map(|pair| pair.value().clone()));
    let Some(pair) = pair.filter(|pair| pair.identity == peer.identity) else {
        let fault = Fault::new(
            404,
            fault::INVALID_REQUEST,
            "session_unknown",
            "there is no such session, or its stream was closed: open /sse again",
        );
        return refuse(shared, peer, &fault, None);
    };
    match collect(shared, &parts.headers, body).await {
        Ok(bytes) => {
            pair.conversation.receive(bytes);
            empty(StatusCode::ACCEPTED)
        }
        Err(fault) => refuse(shared, peer, &fault, None),
    }
}

#[cfg(test)]
mod tests;
