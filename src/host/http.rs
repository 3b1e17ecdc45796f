//! The HTTP edge of the host listeners: checks that come before any processing, routes, bodies, answers.
//!
//! The listener calls [`handle`] for each request. What a request means is the business of the faces.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::identity::Identity;
use crate::runtime::tasks;
use crate::session::HostTransport;
use crate::wire::{HostId, Outgoing, sse};

use super::Shared;
use super::body::HostBody;
use super::edge::{self, Accepts, Bound, OriginCheck};
use super::fault::{self, Fault};
use super::{sse as pair, streamable};

/// `Mcp-Session-Id`
pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// `MCP-Protocol-Version`
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Last-Event-ID`
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) type Answer = Response<HostBody>;

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) identity: Identity,
    pub(crate) transport: HostTransport,
    pub(crate) bound: Bound,
}

/// Answers one request.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let settings = &shared.settings;
    let host_ok = edge::host_allowed(
        request.headers(),
        request.uri(),
        request.version(),
        peer.bound,
        &settings.allowed_hosts,
    );
    if !host_ok {
        let fault = Fault::new(
            403,
            fault::INVALID_REQUEST,
            "host_refused",
            "this Host is not served here",
        );
        return Ok(refuse(&shared, &peer, &fault, None));
    }
    let listed = match edge::origin(request.headers(), &settings.allowed_origins) {
        OriginCheck::Absent | OriginCheck::Loopback => None,
        OriginCheck::Listed(origin) => Some(origin),
        OriginCheck::Foreign => {
            let fault = Fault::new(
                403,
                fault::INVALID_REQUEST,
                "origin_refused",
                "this Origin is not allowed here",
            );
            return Ok(refuse(&shared, &peer, &fault, None));
        }
    };
    let mut answer = match (request.method() == Method::OPTIONS, &listed) {
        (true, Some(_)) => {
            let mut answer = empty(StatusCode::NO_CONTENT);
            edge::add_preflight(answer.headers_mut(), request.headers());
            answer
        }
        _ => route(&shared, &peer, request).await,
    };
    if let Some(origin) = listed {
        edge::add_cors(answer.headers_mut(), &origin);
    }
    Ok(answer)
}

fn trimmed(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

async fn route(shared: &Arc<Shared>, peer: &Arc<Peer>, request: Request<Incoming>) -> Answer {
    let path = trimmed(request.uri().path());
    if path == trimmed(&shared.settings.path) {
        return streamable::handle(shared, peer, request).await;
    }
    if shared.settings.sse {
        match path {
            "/sse" => return pair::stream(shared, peer, &request),
            "/messages" => return pair::message(shared, peer, request).await,
            _ => {}
        }
    }
    let mut answer = json(StatusCode::NOT_FOUND, Outgoing::from("{\"error\":\"not found\"}"));
    answer
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(HostBody::empty());
    *answer.status_mut() = status;
    answer
}

/// One JSON text of known length.
pub(crate) fn json(status: StatusCode, message: Outgoing) -> Answer {
    let mut answer = Response::new(HostBody::message(message));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

/// A stream of events.
pub(crate) fn events(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    let mut answer = Response::new(HostBody::Events(Box::pin(pieces)));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    answer
}

/// One message in the form the host accepts: JSON if it can be.
pub(crate) fn single(accepts: Accepts, status: StatusCode, message: Outgoing) -> Answer {
    if accepts.json {
        return json(status, message);
    }
    let pieces = sse::event(None, Some("message"), message.into_pieces());
    events(futures_util::stream::iter(pieces))
}

/// 405 with the methods there are.
pub(crate) fn not_allowed(allow: &'static str) -> Answer {
    let fault = Fault::new(
        405,
        fault::INVALID_REQUEST,
        "method_not_allowed",
        "this HTTP method is not offered here",
    );
    let mut answer = json(StatusCode::METHOD_NOT_ALLOWED, fault.to_message(None));
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allow));
    answer
}

/// An error of a face, told to the counters and the host.
pub(crate) fn refuse(shared: &Shared, peer: &Peer, fault: &Fault, id: Option<&HostId>) -> Answer {
    shared
        .service
        .rejected(peer.transport, fault.what, &fault.message);
    let status = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut answer = json(status, fault.to_message(id));
    if matches!(fault.status, 408 | 413) {
        answer
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if fault.retryable {
        answer
            .headers_mut()
            .insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

/// A header's text; `None` if it is absent, `Some("")` never matches anything if it is not text.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("").trim())
}

/// Reads a JSON body up to the limit, into one piece.
///
/// # Errors
/// 415, 413, 408 or 400.
pub(crate) async fn collect(shared: &Shared, headers: &HeaderMap, body: Incoming) -> Result<Bytes, Fault> {
    if !edge::is_plain_json(headers) {
        return Err(Fault::new(
            415,
            fault::INVALID_REQUEST,
            "media_type",
            "the body must be application/json without a content encoding",
        ));
    }
    let limit = shared.settings.max_body;
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok())
        .unwrap_or(0);
    if declared > limit {
        // A host that asks before it sends has sent nothing that must be read away; another may be writing still, and
        // is answered at once all the same.
        if !headers.contains_key(http::header::EXPECT) {
            tasks::spawn("read a refused body away", async move {
                let _ = timeout(READ_AWAY, read(body, 0, 0)).await;
            });
        }
        return Err(too_large(limit));
    }
    match timeout(shared.settings.body_timeout, read(body, declared, limit)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => Err(too_large(limit)),
        Ok(Err(_)) => Err(Fault::new(
            400,
            fault::PARSE,
            "body_broken",
            "the body ended early",
        )),
        Err(_) => Err(Fault::new(
            408,
            fault::INVALID_REQUEST,
            "body_slow",
            "the body did not arrive in time",
        )
        .retryable()),
    }
}

fn too_large(limit: usize) -> Fault {
    let message = format!("the body is larger than the limit of {limit} bytes");
    Fault::new(413, fault::INVALID_REQUEST, "body_too_large", message)
}

/// How long the rest of a refused body is read, so that its sender meets the answer and no reset connection.
const READ_AWAY: std::time::Duration = std::time::Duration::from_secs(2);
/// How much is reserved on a host's word, in bytes.
const TRUSTED: usize = 1 << 20;

/// `None` if it is over the limit. Then some of the rest is read and thrown away, since a host that is still writing
/// would meet a reset connection instead of the answer.
async fn read(mut body: Incoming, declared: usize, limit: usize) -> Result<Option<Bytes>, hyper::Error> {
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut length = 0usize;
    let mut over = declared > limit;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        length = length.saturating_add(data.len());
        over |= length > limit;
        if over {
            if length > limit.saturating_mul(4).max(1 << 20) {
                return Ok(None);
            }
            continue;
        }
        if first.is_empty() && joined.is_empty() {
            first = data;
            if body.is_end_stream() {
                break;
            }
            continue;
        }
        if joined.is_empty() {
            // What a host declares is believed only so far: it may never send it.
            joined.reserve(declared.min(TRUSTED).max(length));
            joined.extend_from_slice(&std::mem::take(&mut first));
        }
        joined.extend_from_slice(&data);
    }
    Ok(match (over, joined.is_empty()) {
        (true, _) => None,
        (false, true) => Some(first),
        (false, false) => Some(joined.freeze()),
    })
}

#[cfg(test)]
mod tests;
