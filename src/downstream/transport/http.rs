//! The HTTP client of the downstream side: one pooled client for the process, and what one server's URL needs.
//!
//! It owns connecting, request heads, bounded reading and the wording of HTTP faults. [`super::streamable`] and
//! [`super::sse`] call it. It never follows a redirect, never repeats a request, and never shows a header value, a
//! user name or a query in a message.

mod body;
mod outbox;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioTimer;
use url::{Host, Url};

use crate::downstream::connection::Connection;
use crate::pipeline::port::{CallFault, FaultKind};
use crate::runtime::tasks;
use crate::wire::json::JsonLimits;
use crate::wire::{Outgoing, headers};

pub(super) use body::{Delivered, Delivery, EventStream, Pieces, ReadFault, collect};
pub(super) use outbox::Outbox;

/// How long one attempt to connect may take, all addresses of the name together.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Shorter than the five seconds after which common servers close an idle connection: a request never meets a
/// connection that its server is about to close.
const IDLE_LIMIT: Duration = Duration::from_secs(4);
/// Dead HTTP/2 peers are noticed after this plus [`PING_LIMIT`].
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long an HTTP/2 ping may stay unanswered.
const PING_LIMIT: Duration = Duration::from_secs(20);
/// Dead HTTP/1 peers are noticed by the kernel.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);
/// What an HTTP/2 peer may send ahead on one stream.
const H2_STREAM_WINDOW: u32 = 2 * 1024 * 1024;
/// What an HTTP/2 peer may send ahead on one connection.
const H2_CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;
/// How much of a wrong answer a message quotes, in bytes.
const EXCERPT: usize = 200;
/// Configured values shorter than this are not searched for in excerpts.
const SECRET_LENGTH: usize = 6;

/// The two types that an answer may have.
const BOTH_TYPES: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON_TYPE: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_TYPE: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Headers that belong to the protocol or to the connection: a configured one of these names is ignored.
const OURS: [&str; 17] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

type Client = legacy::Client<HttpsConnector<HttpConnector>, Pieces>;

/// Runs the connections of the pool like every other task of ours.
#[derive(Clone, Copy, Debug)]
struct Tasks;

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(tasks::spawn("http connection", future));
    }
}

/// The one client of the process; cloning it is cheap.
fn client() -> Result<Client, String> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client.clone());
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    tcp.set_keepalive(Some(TCP_KEEP_ALIVE));
    // The provider is named because a test build may link a second one, and then there is no default.
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_webpki_roots(rustls::crypto::aws_lc_rs::default_provider())
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(tcp);
    let client = legacy::Client::builder(Tasks)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_LIMIT)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_LIMIT)
        .http2_initial_stream_window_size(H2_STREAM_WINDOW)
        .http2_initial_connection_window_size(H2_CONNECTION_WINDOW)
        .build(connector);
    Ok(CLIENT.get_or_init(|| client).clone())
}

/// Bounds of what a server may send over HTTP.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Longest JSON body, in bytes.
    pub body: usize,
    /// Longest event of a stream, in bytes.
    pub event: usize,
    /// JSON nesting.
    pub json: JsonLimits,
}

/// One server's URL, the headers configured for it and the client to reach it with.
pub struct HttpTarget {
    url: Url,
    uri: Uri,
    /// Scheme, host and port: all of the URL that messages show.
    origin: String,
    headers: HeaderMap,
    limits: HttpLimits,
    client: Client,
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.keys().map(HeaderName::as_str).collect();
        f.debug_struct("HttpTarget")
            .field("origin", &self.origin)
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

impl HttpTarget {
    /// A target. A user name and password in the URL become an `Authorization` header unless one is configured;
    /// configured headers that would break the protocol are ignored with a warning.
    ///
    /// # Errors
    /// What is wrong with the URL or with a header, without its value.
    pub fn new(url: &str, headers: Vec<(String, String)>, limits: HttpLimits) -> Result<Arc<Self>, String> {
        let mut url = Url::parse(url).map_err(|error| format!("the url is not valid: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!(
                "the url must start with http:// or https://, not {}:",
                url.scheme()
            ));
        }
        let mut map = HeaderMap::with_capacity(headers.len() + 8);
        for (name, value) in headers {
            let lower = name.to_ascii_lowercase();
            if OURS.contains(&lower.as_str()) || lower.starts_with(headers::PARAM_PREFIX) {
                tracing::warn!(header = %lower, "ignored a configured header: the protocol sets it");
                continue;
            }
            let key = HeaderName::from_bytes(lower.as_bytes())
                .map_err(|_| format!("\"{}\" is not a header name", name.escape_debug()))?;
            let mut value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| {
                format!("the value of header \"{key}\" has characters that headers cannot hold")
            })?;
            value.set_sensitive(true);
            map.append(key, value);
        }
        if let Some(value) = basic_credentials(&url)
            && !map.contains_key(AUTHORIZATION)
        {
            map.insert(AUTHORIZATION, value);
        }
        let agent = HeaderValue::from_static(concat!("manifold/", env!("CARGO_PKG_VERSION")));
        map.entry(USER_AGENT).or_insert(agent);
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        let uri = url
            .as_str()
            .parse()
            .map_err(|error| format!("the url is not valid: {error}"))?;
        let origin = url.origin().ascii_serialization();
        Ok(Arc::new(Self {
            url,
            uri,
            origin,
            headers: map,
            limits,
            client: client()?,
        }))
    }

    /// Scheme, host and port: all of the URL that may be shown.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> HttpLimits {
        self.limits
    }

    /// The URL itself.
    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Where a reference leads that the server named on a stream from our URL.
    ///
    /// # Errors
    /// If it is no URL, or leads to another origin.
    pub(super) fn resolve(&self, reference: &str) -> Result<Uri, String> {
        let mut url = self
            .url
            .join(reference.trim())
            .map_err(|error| format!("it names an endpoint that is not valid: {error}"))?;
        if url.origin() != self.url.origin() {
            let other = url.origin().ascii_serialization();
            return Err(format!(
                "it names an endpoint of another origin ({other}), which is refused"
            ));
        }
        url.set_fragment(None);
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.as_str()
            .parse()
            .map_err(|error| format!("it names an endpoint that is not valid: {error}"))
    }

    /// A request with the configured headers and those that its method needs.
    pub(super) fn request(&self, method: Method, uri: &Uri, body: Outgoing) -> Request<Pieces> {
        let mut headers = self.headers.clone();
        match method {
            Method::POST => {
                headers.insert(CONTENT_TYPE, JSON_TYPE);
                headers.insert(ACCEPT, BOTH_TYPES);
            }
            Method::GET => {
                headers.insert(ACCEPT, EVENT_TYPE);
            }
            _ => {}
        }
        let mut request = Request::new(Pieces::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers;
        request
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// If there is none: `sent` tells whether the request may have reached the server.
    pub(super) async fn send(
        &self,
        server: &str,
        request: Request<Pieces>,
    ) -> Result<Response<Incoming>, CallFault> {
        self.client
            .request(request)
            .await
            .map_err(|error| self.unreachable(server, &error))
    }

    fn unreachable(&self, server: &str, error: &legacy::Error) -> CallFault {
        let (cause, refused) = root_cause(error);
        if !error.is_connect() {
            let text = format!(
                "server \"{server}\": the connection to {} broke before the answer ({cause})",
                self.origin
            );
            return CallFault::sent(FaultKind::Lost, text);
        }
        let hint = if refused && self.is_loopback() {
            " (nothing listens there; inside a container, localhost is the container itself)"
        } else {
            ""
        };
        let text = format!(
            "server \"{server}\": cannot connect to {}: {cause}{hint}",
            self.origin
        );
        CallFault::unsent(FaultKind::Unavailable, text)
    }

    fn is_loopback(&self) -> bool {
        match self.url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => address.is_loopback() || address.is_unspecified(),
            Some(Host::Ipv6(address)) => address.is_loopback() || address.is_unspecified(),
            None => false,
        }
    }

    /// The fault of an answer whose status is not a success and whose body is no message for us.
    pub(super) fn refused(&self, connection: &Connection, head: &Head, body: &[u8]) -> CallFault {
        let (server, origin, status) = (connection.server(), &self.origin, head.status);
        let (kind, text) = match status {
            StatusCode::UNAUTHORIZED => (
                FaultKind::Unauthorized,
                format!("{origin} needs authorization (HTTP 401): check the configured headers"),
            ),
            StatusCode::FORBIDDEN => (
                FaultKind::Unauthorized,
                format!("{origin} refuses us (HTTP 403): check the configured headers"),
            ),
            _ if status.is_redirection() => {
                let target = head
                    .redirect_origin(&self.url)
                    .unwrap_or_else(|| "nowhere".to_owned());
                let text = format!(
                    "{origin} redirects (HTTP {}) to {target}; redirects are not followed, configure the final url",
                    status.as_u16()
                );
                (FaultKind::Unavailable, text)
            }
            StatusCode::INTERNAL_SERVER_ERROR => (FaultKind::Lost, self.status_text(status, body)),
            _ => (FaultKind::Unavailable, self.status_text(status, body)),
        };
        CallFault {
            kind,
            message: format!("server \"{server}\": {text}"),
            sent: true,
            status: Some(status.as_u16()),
        }
    }

    fn status_text(&self, status: StatusCode, body: &[u8]) -> String {
        let reason = status.canonical_reason().unwrap_or("no known reason");
        let said = if body.trim_ascii().is_empty() {
            String::new()
        } else {
            format!(": {}", self.excerpt(body))
        };
        format!(
            "{} answered HTTP {} ({reason}){said}",
            self.origin,
            status.as_u16()
        )
    }

    /// The start of a body for people: bounded, on one line, without control characters, and without the
    /// credentials that the server may have echoed.
    pub(super) fn excerpt(&self, body: &[u8]) -> String {
        let head = body.get(..EXCERPT * 4).unwrap_or(body);
        let mut text = String::from_utf8_lossy(head).into_owned();
        for value in self.headers.values().filter(|value| value.is_sensitive()) {
            let Ok(value) = value.to_str() else { continue };
            for secret in [value, value.rsplit(' ').next().unwrap_or(value)] {
                if secret.len() >= SECRET_LENGTH {
                    text = text.replace(secret, "***");
                }
            }
        }
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut out: String = words.chars().take(EXCERPT).flat_map(char::escape_debug).collect();
        if body.len() > head.len() || words.chars().nth(EXCERPT).is_some() {
            out.push_str("...");
        }
        out
    }
}

fn basic_credentials(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decode = |text: &str| percent_decode(text);
    let mut pair = decode(url.username());
    pair.push(b':');
    pair.extend(decode(url.password().unwrap_or_default()));
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn percent_decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let code = more
            .get(..2)
            .filter(|_| first == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = more.get(2..).unwrap_or_default();
            }
            None => {
                out.push(first);
                rest = more;
            }
        }
    }
    out
}

/// The innermost error, which says what happened, and whether it was a refused connection.
fn root_cause(error: &legacy::Error) -> (String, bool) {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let refused = cause
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    (cause.to_string(), refused)
}

/// What the head of an answer says.
#[derive(Debug)]
pub(super) struct Head {
    /// The status.
    pub status: StatusCode,
    headers: HeaderMap,
}

impl Head {
    /// Takes an answer apart.
    pub(super) fn split(response: Response<Incoming>) -> (Self, Incoming) {
        let (parts, body) = response.into_parts();
        (
            Self {
                status: parts.status,
                headers: parts.headers,
            },
            body,
        )
    }

    /// The value of a header.
    pub(super) fn get(&self, name: &str) -> Option<&HeaderValue> {
        self.headers.get(name)
    }

    /// The media type without parameters, in lower case.
    pub(super) fn media_type(&self) -> String {
        let value = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        value
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    }

    /// Whether the body is an event stream.
    pub(super) fn is_event_stream(&self) -> bool {
        let value = self
            .headers
            .get(CONTENT_TYPE)
            .map(HeaderValue::as_bytes)
            .unwrap_or_default();
        let kind = value
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        kind.eq_ignore_ascii_case(b"text/event-stream")
    }

    fn redirect_origin(&self, from: &Url) -> Option<String> {
        let target = from.join(self.headers.get(LOCATION)?.to_str().ok()?).ok()?;
        Some(target.origin().ascii_serialization())
    }
}

/// Whether a text speaks of a session, as servers do that have lost one.
pub(super) fn mentions_session(text: &[u8]) -> bool {
    text.windows(7)
        .any(|window| window.eq_ignore_ascii_case(b"session"))
}

/// Reads a short body for its excerpt; what cannot be read is nothing.
pub(super) async fn short_body(body: Incoming) -> Bytes {
    /// Enough for an error in JSON and for every excerpt.
    const SHORT: usize = 256 * 1024;
    /// A server that has answered with an error must not hold the call by dribbling its text.
    const PATIENCE: Duration = Duration::from_secs(5);
    match tokio::time::timeout(PATIENCE, collect(body, SHORT)).await {
        Ok(Ok(bytes)) => bytes,
        _ => Bytes::new(),
    }
}
