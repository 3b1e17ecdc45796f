//! The operators' listener: `/healthz`, `/readyz` and `/status`, apart from the hosts'.
//!
//! The daemon starts it with something that knows how things stand ([`StatusSource`]). It only ever reads, and it
//! answers `GET` and `HEAD` alone. Like the host listeners it refuses foreign `Host` and `Origin` headers, since a web
//! page in the operator's browser must not read it.

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::BindAddress;
use crate::crypto::constant_time_eq;
use crate::host::body::HostBody;
use crate::host::edge::{self, Bound, OriginCheck};
use crate::host::listener::{Socket, builder};
use crate::host::patience::Patience;
use crate::host::{BoundAddress, HostSettings, ListenError};
use crate::runtime::tasks;

/// Connections at once; more wait.
const CONNECTIONS: usize = 64;
/// How long a client may be silent, or take nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long answers may take to go out when the listener ends.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a pause after the system refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the listener shows. Called for each request; must not block.
pub trait StatusSource: Send + Sync + 'static {
    /// Whether calls can be served now.
    ///
    /// # Errors
    /// Why not, one line each.
    fn ready(&self) -> Result<(), Vec<String>>;

    /// How everything stands, as a JSON object.
    fn status_json(&self) -> String;

    /// Further pages, as (content type, text); `None` if there is none at this path.
    fn page(&self, path: &str) -> Option<(&'static str, String)> {
        let _ = path;
        None
    }
}

/// What the listener needs to know of the configuration.
#[derive(Clone, Debug, Default)]
pub struct AdminSettings {
    /// `Host` names beyond loopback and the bound address.
    pub allowed_hosts: Vec<String>,
    /// If set, everything but the two probes wants it as a bearer token.
    pub token: Option<String>,
}

/// The running listener.
pub struct AdminServer {
    address: BoundAddress,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl fmt::Debug for AdminServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

struct Served {
    source: Arc<dyn StatusSource>,
    settings: AdminSettings,
    bound: Bound,
}

impl AdminServer {
    /// Binds the address and starts answering.
    ///
    /// # Errors
    /// If it cannot be bound.
    pub async fn start(
        address: &BindAddress,
        settings: AdminSettings,
        source: Arc<dyn StatusSource>,
    ) -> Result<Self, ListenError> {
        let socket = Socket::bind(address).await?;
        let address = socket.address();
        let bound = match &address {
            BoundAddress::Tcp(tcp) => Bound::Tcp(tcp.ip()),
            BoundAddress::Unix(_) => Bound::Unix,
        };
        tracing::info!("listening for administration on {}", address.url("/status"));
        let server = Self {
            address,
            stop: CancellationToken::new(),
            connections: TaskTracker::new(),
        };
        let served = Arc::new(Served {
            source,
            settings,
            bound,
        });
        tasks::spawn(
            "admin acceptor",
            accept(socket, served, server.stop.clone(), server.connections.clone()),
        );
        Ok(server)
    }

    /// The address really bound.
    #[must_use]
    pub fn address(&self) -> &BoundAddress {
        &self.address
    }

    /// Stops answering. The listener is the last thing to end, so that a drain can be watched.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.connections.close();
        let _ = timeout(LAST_WORDS * 2, self.connections.wait()).await;
        if let BoundAddress::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(socket: Socket, served: Arc<Served>, stop: CancellationToken, connections: TaskTracker) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let next = async {
            let permit = permits.clone().acquire_owned().await.ok();
            let accepted = match &socket {
                Socket::Tcp(listener, _) => listener.accept().await.map(|(stream, _)| {
                    let connection = serve(stream, served.clone(), stop.clone());
                    tasks::spawn_tracked(&connections, "admin connection", async move {
                        connection.await;
                        drop(permit);
                    });
                }),
                Socket::Unix(listener, _) => listener.accept().await.map(|(stream, _)| {
                    let connection = serve(stream, served.clone(), stop.clone());
                    tasks::spawn_tracked(&connections, "admin connection", async move {
                        connection.await;
                        drop(permit);
                    });
                }),
            };
            if accepted.is_err() {
                sleep(ACCEPT_PAUSE).await;
            }
        };
        tokio::select! {
            () = next => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn serve<S>(stream: S, served: Arc<Served>, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let settings = HostSettings {
        head_timeout: PATIENCE,
        ..HostSettings::default()
    };
    let builder = builder(&settings);
    let io = TokioIo::new(Patience::new(stream, PATIENCE, PATIENCE));
    let service = service_fn(move |request: Request<Incoming>| {
        let served = served.clone();
        async move { Ok::<_, Infallible>(served.answer(&request)) }
    });
    let mut connection = pin!(builder.serve_connection(io, service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = timeout(LAST_WORDS, connection).await;
}

impl Served {
    fn answer(&self, request: &Request<Incoming>) -> Response<HostBody> {
        let headers = request.headers();
        let host = edge::host_allowed(
            headers,
            request.uri(),
            request.version(),
            self.bound,
            &self.settings.allowed_hosts,
        );
        let origin = matches!(
            edge::origin(headers, &[]),
            OriginCheck::Absent | OriginCheck::Loopback
        );
        if !host || !origin {
            return text(StatusCode::FORBIDDEN, "this Host or Origin is not served here\n");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n");
            answer
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        let path = request.uri().path();
        match path {
            "/healthz" => return text(StatusCode::OK, "ok\n"),
            "/readyz" => {
                return match self.source.ready() {
                    Ok(()) => text(StatusCode::OK, "ready\n"),
                    Err(reasons) => text(
                        StatusCode::SERVICE_UNAVAILABLE,
                        format!("not ready\n{}\n", reasons.join("\n")),
                    ),
                };
            }
            _ => {}
        }
        if !self.authorized(headers) {
            let mut answer = text(StatusCode::UNAUTHORIZED, "a bearer token is needed\n");
            answer
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return answer;
        }
        if path == "/status" {
            return page(StatusCode::OK, "application/json", self.source.status_json());
        }
        match self.source.page(path) {
            Some((kind, text)) => page(StatusCode::OK, kind, text),
            None => text(StatusCode::NOT_FOUND, "not found\n"),
        }
    }

    fn authorized(&self, headers: &http::HeaderMap) -> bool {
        let Some(token) = &self.settings.token else {
            return true;
        };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given
            .and_then(|value| value.split_once(' '))
            .filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        given.is_some_and(|(_, given)| constant_time_eq(given.trim().as_bytes(), token.as_bytes()))
    }
}

fn text(status: StatusCode, text: impl Into<String>) -> Response<HostBody> {
    page(status, "text/plain; charset=utf-8", text.into())
}

fn page(status: StatusCode, kind: &'static str, text: String) -> Response<HostBody> {
    let mut answer = Response::new(HostBody::text(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        http::header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

#[cfg(test)]
mod tests;
