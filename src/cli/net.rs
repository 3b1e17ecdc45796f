//! HTTP to a running manifold, over TCP or a Unix socket: what `status` and `stdio --connect` need of a client.
//!
//! It sends one request and hands back the answer. It follows no redirect, repeats nothing, and knows no MCP.

use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use crate::runtime::tasks;

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Shorter than after what common servers close an idle connection.
const IDLE_LIMIT: Duration = Duration::from_secs(4);

/// A request body that tells when it was handed to the connection, so that what follows cannot overtake it.
#[derive(Debug)]
pub struct Body {
    bytes: Option<Bytes>,
    sent: Option<oneshot::Sender<()>>,
}

impl Body {
    /// A body. `sent` is told, or dropped with the request.
    #[must_use]
    pub fn new(bytes: Bytes, sent: Option<oneshot::Sender<()>>) -> Self {
        Self {
            bytes: Some(bytes).filter(|bytes| !bytes.is_empty()),
            sent,
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = self.bytes.take();
        if let Some(sent) = self.sent.take() {
            let _ = sent.send(());
        }
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[derive(Clone, Debug)]
enum Way {
    Pooled(Box<legacy::Client<HttpsConnector<HttpConnector>, Body>>),
    Unix(PathBuf),
}

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Target {
    way: Way,
    uri: Uri,
    /// For messages.
    shown: String,
}

impl Target {
    /// Reads `http://host:port/path`, `https://...`, or `unix:/path.sock`. `path` is used where the address has none.
    ///
    /// # Errors
    /// What is wrong with it, and what to write.
    pub fn parse(address: &str, path: &str) -> Result<Self, String> {
        if let Some(socket) = address.strip_prefix("unix:") {
            let socket = socket
                .strip_prefix("//")
                .filter(|rest| rest.starts_with('/'))
                .unwrap_or(socket);
            if !socket.starts_with('/') {
                return Err(format!(
                    "\"{address}\" is no address: a Unix socket is written unix:/absolute/path.sock"
                ));
            }
            return Ok(Self {
                way: Way::Unix(PathBuf::from(socket)),
                uri: path.parse().map_err(|_| format!("\"{path}\" is not a path"))?,
                shown: format!("unix:{socket}"),
            });
        }
        let wrong = || {
            format!(
                "\"{address}\" is no address: write http://127.0.0.1:8420/mcp, https://host/mcp or unix:/path.sock"
            )
        };
        let mut url = url::Url::parse(address).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(wrong());
        }
        if url.path() == "/" {
            url.set_path(path);
        }
        url.set_fragment(None);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_LIMIT));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::aws_lc_rs::default_provider())
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_LIMIT)
            .build(connector);
        Ok(Self {
            way: Way::Pooled(Box::new(client)),
            uri: url.as_str().parse().map_err(|_| wrong())?,
            shown: format!("{}://{}", url.scheme(), url.authority()),
        })
    }

    /// The address for messages, without path, query and credentials.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Sends one request and waits for the head of the answer.
    ///
    /// # Errors
    /// That nothing answers there, and why, for people.
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Incoming>, String> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        request.headers_mut().insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("manifold/", env!("CARGO_PKG_VERSION"))),
        );
        match &self.way {
            Way::Pooled(client) => client
                .request(request)
                .await
                .map_err(|error| format!("{} does not answer: {}", self.shown, innermost(&error))),
            Way::Unix(path) => {
                let failed =
                    |error: &dyn std::fmt::Display| format!("{} does not answer: {error}", self.shown);
                let stream = tokio::time::timeout(CONNECT_LIMIT, UnixStream::connect(path))
                    .await
                    .map_err(|_| failed(&"no connection in time"))?
                    .map_err(|error| failed(&error))?;
                let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(|error| failed(&error))?;
                tasks::spawn("unix socket connection", async move {
                    // How it ends is told by the answer's body.
                    let _ = connection.await;
                });
                request
                    .headers_mut()
                    .insert(HOST, HeaderValue::from_static("localhost"));
                sender
                    .send_request(request)
                    .await
                    .map_err(|error| failed(&innermost(&error)))
            }
        }
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(next) = inner.source() {
        inner = next;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests;
