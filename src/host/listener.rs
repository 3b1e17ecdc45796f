//! Sockets that hosts connect to: binding, accepting, connections and their orderly end.
//!
//! The daemon starts a [`HostServer`], asks it for the addresses really bound, and drains it. What a request means
//! is not known here.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::BindAddress;
use crate::identity::Identity;
use crate::pipeline::HostService;
use crate::runtime::tasks;
use crate::session::HostTransport;

use super::edge::Bound;
use super::http::{Peer, handle};
use super::patience::Patience;
use super::{HostSettings, Shared};

/// How long a pause after the system refused a connection, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long connections may take to end once their calls are cancelled.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often a drain looks whether everything has ended.
const LOOK: Duration = Duration::from_millis(20);

/// An address that is really bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BoundAddress {
    /// TCP, with the port that the system gave if 0 was asked for.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl BoundAddress {
    /// How to reach `path` here: a URL, or `unix:` and the file.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}{path}"),
            Self::Unix(file) => format!("unix:{}", file.display()),
        }
    }
}

/// Why a listener could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The address as configured.
    pub address: String,
    /// What the system said.
    pub source: io::Error,
}

/// A socket that is bound and not yet accepted from.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

impl Socket {
    pub(crate) async fn bind(address: &BindAddress) -> Result<Self, ListenError> {
        match address {
            BindAddress::Tcp(text) => {
                let failed = |source| ListenError {
                    address: text.clone(),
                    source,
                };
                let listener = TcpListener::bind(text.as_str()).await.map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                Ok(Self::Tcp(listener, bound))
            }
            BindAddress::Unix(path) => {
                let failed = |source| ListenError {
                    address: format!("unix:{}", path.display()),
                    source,
                };
                remove_stale(path).await.map_err(failed)?;
                let listener = UnixListener::bind(path).map_err(failed)?;
                Ok(Self::Unix(listener, path.clone()))
            }
        }
    }

    pub(crate) fn address(&self) -> BoundAddress {
        match self {
            Self::Tcp(_, address) => BoundAddress::Tcp(*address),
            Self::Unix(_, path) => BoundAddress::Unix(path.clone()),
        }
    }
}

/// Removes a socket file that nobody listens on any more.
async fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && UnixStream::connect(path).await.is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Tasks through our own spawn, for hyper's HTTP/2 streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tasks;

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        tasks::spawn("http2 stream", future);
    }
}

/// The HTTP listeners of the daemon.
pub struct HostServer {
    pub(crate) shared: Arc<Shared>,
    addresses: Vec<BoundAddress>,
    accepting: CancellationToken,
    /// Cancelled when connections are to be dropped whatever they do.
    abort: CancellationToken,
    connections: TaskTracker,
    janitor: CancellationToken,
}

impl fmt::Debug for HostServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostServer")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

/// What a drain had to force.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Forced {
    /// Connections that still had something to do when the grace was over.
    pub connections: usize,
    /// Legacy requests that were cancelled when the grace was over.
    pub requests: usize,
}

impl HostServer {
    /// Binds all addresses and starts accepting. Each is logged as `listening on URL`.
    ///
    /// # Errors
    /// If one cannot be bound; then none is.
    pub async fn start(
        listen: &[BindAddress],
        settings: HostSettings,
        service: Arc<dyn HostService>,
    ) -> Result<Self, ListenError> {
        let mut sockets = Vec::new();
        for address in listen {
            sockets.push(Socket::bind(address).await?);
        }
        let addresses: Vec<BoundAddress> = sockets.iter().map(Socket::address).collect();
        let permits = Arc::new(Semaphore::new(settings.connections));
        let shared = Shared::new(service, settings);
        let server = Self {
            shared: shared.clone(),
            addresses,
            accepting: CancellationToken::new(),
            abort: CancellationToken::new(),
            connections: TaskTracker::new(),
            janitor: CancellationToken::new(),
        };
        for (socket, address) in sockets.into_iter().zip(&server.addresses) {
            let acceptor = Acceptor {
                shared: shared.clone(),
                permits: permits.clone(),
                accepting: server.accepting.clone(),
                abort: server.abort.clone(),
                connections: server.connections.clone(),
                builder: builder(&shared.settings),
            };
            tracing::info!("listening on {}", address.url(&shared.settings.path));
            tasks::spawn("host acceptor", acceptor.run(socket));
        }
        tasks::spawn("session janitor", janitor(shared, server.janitor.clone()));
        Ok(server)
    }

    /// The addresses really bound, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[BoundAddress] {
        &self.addresses
    }

    /// Legacy sessions that are alive.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.shared.table.len()
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Phase one of a shutdown: no more connections are accepted, and streams that wait for nothing in particular end.
    pub fn stop_accepting(&self) {
        self.accepting.cancel();
        self.shared.draining.cancel();
        for address in &self.addresses {
            if let BoundAddress::Unix(path) = address {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Lets calls finish for `grace`, cancels the rest, ends all sessions and connections. Takes at most `grace` and a
    /// few seconds.
    pub async fn drain(&self, grace: Duration) -> Forced {
        self.stop_accepting();
        self.connections.close();
        let all_done = async {
            loop {
                self.shared.pairs.end(true);
                if self.connections.is_empty() && self.open_requests() == 0 {
                    break;
                }
                sleep(LOOK).await;
            }
        };
        let mut forced = Forced::default();
        if timeout(grace, all_done).await.is_err() {
            forced = Forced {
                connections: self.connections.len(),
                requests: self.open_requests(),
            };
        }
        self.shared.calls.cancel();
        self.shared.pairs.end(false);
        self.shared.table.end_all();
        let _ = timeout(LAST_WORDS, self.connections.wait()).await;
        self.abort.cancel();
        let _ = timeout(LAST_WORDS, self.connections.wait()).await;
        self.janitor.cancel();
        forced
    }

    fn open_requests(&self) -> usize {
        self.shared
            .table
            .all()
            .iter()
            .map(|entry| entry.session.in_flight.len())
            .sum()
    }
}

impl Drop for HostServer {
    fn drop(&mut self) {
        self.stop_accepting();
        self.shared.calls.cancel();
        self.abort.cancel();
        self.janitor.cancel();
        self.shared.table.end_all();
    }
}

/// Ends idle sessions and forgets old events.
async fn janitor(shared: Arc<Shared>, stop: CancellationToken) {
    let every = (shared.settings.sessions.idle / 4).clamp(Duration::from_millis(50), Duration::from_secs(30));
    while timeout(every, stop.cancelled()).await.is_err() {
        let ended = shared.table.sweep();
        if ended > 0 {
            tracing::debug!(ended, "idle sessions ended");
        }
        for entry in shared.table.all() {
            entry.face.replay.sweep();
        }
    }
}

pub(crate) fn builder(settings: &HostSettings) -> auto::Builder<Tasks> {
    let mut builder = auto::Builder::new(Tasks);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .max_header_list_size(64 * 1024)
        .keep_alive_interval(settings.keep_alive)
        .keep_alive_timeout(settings.write_timeout);
    builder
}

struct Acceptor {
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
    accepting: CancellationToken,
    abort: CancellationToken,
    connections: TaskTracker,
    builder: auto::Builder<Tasks>,
}

impl Acceptor {
    async fn run(self, socket: Socket) {
        loop {
            // Waiting here leaves further connections to the system's backlog.
            let permit = tokio::select! {
                permit = self.permits.clone().acquire_owned() => permit,
                () = self.accepting.cancelled() => return,
            };
            let Ok(permit) = permit else { return };
            let accepted = tokio::select! {
                accepted = self.accept(&socket, permit) => accepted,
                () = self.accepting.cancelled() => return,
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    async fn accept(&self, socket: &Socket, permit: OwnedSemaphorePermit) -> io::Result<()> {
        match socket {
            Socket::Tcp(listener, bound) => {
                let (stream, from) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(error) if is_of_one_connection(&error) => return Ok(()),
                    Err(error) => return Err(error),
                };
                let _ = stream.set_nodelay(true);
                self.connection::<TcpStream>(stream, tcp_peer(from, bound), permit);
            }
            Socket::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                let peer = Peer {
                    identity: Identity::unix_peer(uid),
                    transport: HostTransport::Unix,
                    bound: Bound::Unix,
                };
                self.connection::<UnixStream>(stream, peer, permit);
            }
        }
        Ok(())
    }

    fn connection<S>(&self, stream: S, peer: Peer, permit: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (shared, builder, abort) = (self.shared.clone(), self.builder.clone(), self.abort.clone());
        let peer = Arc::new(peer);
        tasks::spawn_tracked(&self.connections, "host connection", async move {
            let _permit = permit;
            let (first, write) = (shared.settings.head_timeout, shared.settings.write_timeout);
            let io = TokioIo::new(Patience::new(stream, first, write));
            let draining = shared.draining.clone();
            let service =
                service_fn(move |request: Request<Incoming>| handle(shared.clone(), peer.clone(), request));
            let mut connection = pin!(builder.serve_connection(io, service));
            let mut told = false;
            loop {
                tokio::select! {
                    ended = connection.as_mut() => {
                        if let Err(error) = ended {
                            tracing::debug!(error, "a host connection ended");
                        }
                        break;
                    }
                    () = draining.cancelled(), if !told => {
                        told = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    () = abort.cancelled() => break,
                }
            }
        });
    }
}

fn tcp_peer(from: SocketAddr, bound: &SocketAddr) -> Peer {
    let local = from.ip().to_canonical().is_loopback();
    Peer {
        identity: if local {
            Identity::http_loopback()
        } else {
            Identity::http_anonymous()
        },
        transport: HostTransport::Http,
        bound: Bound::Tcp(bound.ip()),
    }
}

/// Errors that say something about the connection that was to be accepted, not about the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

#[cfg(test)]
mod tests;
