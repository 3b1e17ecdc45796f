//! Opening a connection: which transport, which family, which revision. `protocol.md` b.5 to b.8.
//!
//! No single error code decides anything. A server says it is modern by answering `server/discover` with a list of
//! versions, or by a recognised modern error; everything else leads to `initialize`. Used by [`super::server`] only.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use super::connection::{Connection, Facts, Hooks};
use super::link::Link;
use super::transport::child::{self, ChildSpec, SecretOrString, StderrTail};
use super::transport::http::HttpTarget;
use super::transport::pipe::{PipeLimits, PipeLink, last_words};
use super::transport::sse::SseLink;
use super::transport::streamable::StreamableLink;
use crate::config;
use crate::pipeline::port::{CallFault, CallLimits, FaultKind};
use crate::revision::bridge::own_params;
use crate::revision::{Family, Revision};
use crate::runtime::tasks;
use crate::session::CapabilitySet;
use crate::wire::json::{items, quote, unquote};
use crate::wire::{Kind, Member, Message};

/// How long a server may think about a request it does not know before `initialize` follows.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// What is needed to reach one server.
#[derive(Debug)]
pub struct Dialer {
    /// Its configuration.
    pub config: Arc<config::Server>,
    /// The server name.
    pub server: Arc<str>,
    /// Bounds of pipes.
    pub pipe: PipeLimits,
    /// Lines of standard error that are kept.
    pub stderr_lines: usize,
    /// The HTTP side, for a server with a URL.
    pub http: Option<Arc<HttpTarget>>,
    /// Standard error of the child that was started last, for messages about starts that fail.
    pub stderr: Mutex<Option<StderrTail>>,
    /// Read while a start that failed is being cleared away.
    pub ending: Arc<tokio::sync::RwLock<()>>,
}

/// An open connection and what its handshake told.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The connection, settled.
    pub connection: Arc<Connection>,
    /// The revision that was agreed on.
    pub revision: Revision,
    /// The result object of `initialize` or `server/discover`.
    pub result: Bytes,
}

/// Why a server could not be opened, and where it failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{stage}: {message}")]
pub struct OpenFault {
    /// `start`, `connect` or `handshake`.
    pub stage: &'static str,
    /// What kind of fault.
    pub kind: FaultKind,
    /// For people.
    pub message: String,
    /// The server refused `initialize` with an error that only modern servers know.
    pub modern_error: bool,
}

impl OpenFault {
    fn from_call(stage: &'static str, fault: CallFault) -> Self {
        Self {
            stage,
            kind: fault.kind,
            message: fault.message,
            modern_error: false,
        }
    }
}

impl OpenFault {
    /// The first of several, which is the one about the family that was expected.
    fn first(faults: Vec<Self>) -> Self {
        faults.into_iter().next().unwrap_or_else(|| Self {
            stage: "handshake",
            kind: FaultKind::Malformed,
            message: "it answers neither server/discover nor initialize".into(),
            modern_error: false,
        })
    }
}

enum Probe {
    Modern(Opened),
    Legacy,
}

impl Dialer {
    /// Opens a connection that declares `set` if it turns out legacy. `prefer` is the family to try first; it is
    /// not trusted, unless the configuration pins one.
    ///
    /// # Errors
    /// Where and why it failed; nothing is left open then.
    pub async fn open(
        &self,
        hooks: &Arc<dyn Hooks>,
        set: CapabilitySet,
        prefer: Family,
    ) -> Result<Opened, OpenFault> {
        let order: &[Family] = match (self.pinned(), prefer) {
            (Some(Family::Legacy), _) => &[Family::Legacy],
            (Some(Family::Modern), _) => &[Family::Modern],
            (None, Family::Legacy) => &[Family::Legacy, Family::Modern],
            (None, Family::Modern) => &[Family::Modern, Family::Legacy],
        };
        if self.http.is_some() {
            self.open_http(hooks, set, order).await
        } else {
            self.open_pipe(hooks, set, order).await
        }
    }

    /// Opens a legacy connection to a server that also speaks the modern family, for hosts that do not.
    ///
    /// # Errors
    /// If the server has no legacy side, or cannot be reached; see [`OpenFault::kind`].
    pub async fn open_legacy(&self, hooks: &Arc<dyn Hooks>, set: CapabilitySet) -> Result<Opened, OpenFault> {
        let order = &[Family::Legacy];
        if self.http.is_some() {
            self.open_http(hooks, set, order).await
        } else {
            self.open_pipe(hooks, set, order).await
        }
    }

    /// What the child that was started last wrote to standard error, as the end of a sentence.
    #[must_use]
    pub fn last_words(&self) -> String {
        let tail = self.stderr.lock().ok().and_then(|last| last.clone());
        tail.map(|tail| last_words(&tail)).unwrap_or_default()
    }

    fn closing(&self, connection: Arc<Connection>) -> Closing {
        Closing(Some(connection), self.ending.clone())
    }

    /// Waits until nothing of a failed start is left: a retry never runs beside the copy before it.
    pub async fn cleared(&self) {
        drop(self.ending.write().await);
    }

    /// The family that the configuration pins.
    #[must_use]
    pub fn pinned(&self) -> Option<Family> {
        self.config.family.map(|family| match family {
            config::Family::Legacy => Family::Legacy,
            config::Family::Modern => Family::Modern,
        })
    }

    async fn open_pipe(
        &self,
        hooks: &Arc<dyn Hooks>,
        set: CapabilitySet,
        order: &[Family],
    ) -> Result<Opened, OpenFault> {
        let mut faults: Vec<OpenFault> = Vec::new();
        let mut reusable: Option<Closing> = None;
        for family in order {
            // Some servers leave on a request they do not know: those are started again.
            let closing = match reusable.take().filter(Closing::is_alive) {
                Some(closing) => closing,
                None => self.closing(self.spawn(hooks).await?),
            };
            let Some(connection) = closing.0.clone() else {
                continue;
            };
            let attempt = match family {
                Family::Modern => match self.probe(&connection, order.len() == 1).await {
                    Ok(Probe::Modern(opened)) => Ok(opened),
                    Ok(Probe::Legacy) => Err(None),
                    Err(fault) => Err(Some(fault)),
                },
                Family::Legacy => self.initialize(&connection, set).await.map_err(Some),
            };
            match attempt {
                Ok(opened) => return Ok(closing.keep(opened)),
                Err(fault) => faults.extend(fault),
            }
            reusable = Some(closing);
        }
        // A slow modern server answers the probe after we gave it up, and then refuses the handshake in its own words.
        if faults.iter().any(|fault| fault.modern_error)
            && self.pinned().is_none()
            && order.len() > 1
            && let Some(closing) = reusable.filter(Closing::is_alive)
            && let Some(connection) = closing.0.clone()
        {
            match self.probe(&connection, true).await {
                Ok(Probe::Modern(opened)) => return Ok(closing.keep(opened)),
                Ok(Probe::Legacy) => {}
                Err(fault) => faults.push(fault),
            }
        }
        Err(OpenFault::first(faults))
    }

    async fn spawn(&self, hooks: &Arc<dyn Hooks>) -> Result<Arc<Connection>, OpenFault> {
        let config = &self.config;
        let spec = ChildSpec {
            command: config
                .command
                .as_ref()
                .map(|command| command.expose().to_owned())
                .unwrap_or_default(),
            args: config.args.iter().map(|arg| arg.expose().to_owned()).collect(),
            env: config
                .env
                .iter()
                .map(|(key, value)| (key.clone(), secret(value)))
                .collect(),
            cwd: config.cwd.as_ref().map(|cwd| cwd.expose().into()),
            stderr_lines: self.stderr_lines,
            label: self.server.clone(),
        };
        let child = child::spawn(&spec).await.map_err(|error| OpenFault {
            stage: "start",
            kind: FaultKind::Unavailable,
            message: error.to_string(),
            modern_error: false,
        })?;
        if let Ok(mut last) = self.stderr.lock() {
            *last = Some(child.stderr.clone());
        }
        let connection = Connection::new(self.server.clone(), hooks.clone());
        connection.attach(Link::Pipe(PipeLink::start_child(&connection, child, self.pipe)));
        Ok(connection)
    }

    async fn open_http(
        &self,
        hooks: &Arc<dyn Hooks>,
        set: CapabilitySet,
        order: &[Family],
    ) -> Result<Opened, OpenFault> {
        let Some(target) = &self.http else {
            return Err(OpenFault {
                stage: "connect",
                kind: FaultKind::Unavailable,
                message: "no url".into(),
                modern_error: false,
            });
        };
        if self.config.transport == Some(config::TransportKind::Sse) {
            return self.open_sse(target, hooks, set).await;
        }
        let mut faults: Vec<OpenFault> = Vec::new();
        for family in order {
            let connection = Connection::new(self.server.clone(), hooks.clone());
            let closing = self.closing(connection.clone());
            let link = StreamableLink::new(target.clone(), *family);
            connection.attach(Link::Streamable(link.clone()));
            match family {
                Family::Modern => match self.probe(&connection, order.len() == 1).await {
                    Ok(Probe::Modern(opened)) => return Ok(closing.keep(opened)),
                    Ok(Probe::Legacy) => {}
                    // Authorization, overload and an unreachable address say nothing about the family.
                    Err(fault) => return Err(fault),
                },
                Family::Legacy => match self.handshake(&connection, set).await {
                    Ok(message) => match self.settle_legacy(&connection, &message, set) {
                        Ok(opened) => {
                            link.listen(&connection);
                            return Ok(closing.keep(opened));
                        }
                        Err(fault) => faults.push(fault),
                    },
                    Err(fault) => match fault.status {
                        Some(400 | 404 | 405 | 406 | 415) => {
                            let mut fault = OpenFault::from_call("handshake", fault);
                            if order.len() == 1 {
                                // Its modern side is known: whatever the refusal, there is no legacy one.
                                fault.kind = FaultKind::Malformed;
                            }
                            faults.push(fault);
                        }
                        _ => return Err(OpenFault::from_call("handshake", fault)),
                    },
                },
            }
        }
        if self.config.transport.is_none() && order.len() > 1 {
            match self.open_sse(target, hooks, set).await {
                Ok(opened) => return Ok(opened),
                Err(fault) => tracing::debug!(server = %self.server, %fault, "no HTTP+SSE pair there either"),
            }
        }
        Err(OpenFault::first(faults))
    }

    async fn open_sse(
        &self,
        target: &Arc<HttpTarget>,
        hooks: &Arc<dyn Hooks>,
        set: CapabilitySet,
    ) -> Result<Opened, OpenFault> {
        let connection = Connection::new(self.server.clone(), hooks.clone());
        let closing = self.closing(connection.clone());
        let link = SseLink::connect(target.clone(), &connection)
            .await
            .map_err(|fault| OpenFault::from_call("connect", fault))?;
        connection.attach(Link::Sse(link));
        self.initialize(&connection, set)
            .await
            .map(|opened| closing.keep(opened))
    }

    /// Asks `server/discover`. Without `must`, everything but a modern answer means legacy.
    async fn probe(&self, connection: &Arc<Connection>, must: bool) -> Result<Probe, OpenFault> {
        let revision = Revision::newest_modern();
        let limit = if must {
            self.config.start_timeout
        } else {
            PROBE_LIMIT.min(self.config.start_timeout)
        };
        let params = own_params("{}", revision);
        let http = self.http.is_some();
        let refused = |message: String| OpenFault {
            stage: "handshake",
            kind: FaultKind::Unavailable,
            message,
            modern_error: false,
        };
        match connection
            .request_with("server/discover", &params, None, Some(limit))
            .await
        {
            Ok(message) if message.kind() == Kind::Result => {
                let speaks = |wanted: Revision| {
                    message.span(Member::SupportedVersions).is_some_and(|versions| {
                        items(message.bytes(), versions)
                            .iter()
                            .any(|version| unquote(version.of(message.bytes())) == wanted.as_str())
                    })
                };
                if !speaks(revision) {
                    return if must {
                        Err(refused("it speaks no modern revision that we do".into()))
                    } else {
                        Ok(Probe::Legacy)
                    };
                }
                self.settle(connection, Family::Modern, revision, CapabilitySet::NONE);
                Ok(Probe::Modern(Opened {
                    connection: connection.clone(),
                    revision,
                    result: super::refresh::result_bytes(&message),
                }))
            }
            Ok(message) => match message.error_code() {
                Some(-32022) => Err(refused(format!(
                    "it refuses revision {} (its answer names others)",
                    revision.as_str()
                ))),
                Some(-32021 | -32020) => Err(refused("it refuses our probe with a modern error".into())),
                _ if must => Err(refused("it does not know server/discover".into())),
                _ => Ok(Probe::Legacy),
            },
            Err(fault) if must => Err(OpenFault::from_call("handshake", fault)),
            Err(fault) => match (http, fault.status, fault.kind) {
                (_, Some(401 | 403), _) => Err(OpenFault::from_call("handshake", fault)),
                (_, Some(429 | 500..), _) => Err(OpenFault::from_call("handshake", fault)),
                (_, Some(_), _) => Ok(Probe::Legacy),
                // Silence says nothing: `initialize` follows.
                (_, None, FaultKind::TimedOut | FaultKind::Malformed) => Ok(Probe::Legacy),
                _ => Err(OpenFault::from_call("handshake", fault)),
            },
        }
    }

    async fn handshake(
        &self,
        connection: &Arc<Connection>,
        set: CapabilitySet,
    ) -> Result<Message, CallFault> {
        let params = format!(
            "{{\"protocolVersion\":\"{}\",\"capabilities\":{},\"clientInfo\":{{\"name\":\"manifold\",\"version\":{}}}}}",
            Revision::newest_legacy().as_str(),
            set.to_json(),
            quote(env!("CARGO_PKG_VERSION")),
        );
        connection
            .request_with("initialize", &params, None, Some(self.config.start_timeout * 2))
            .await
    }

    async fn initialize(
        &self,
        connection: &Arc<Connection>,
        set: CapabilitySet,
    ) -> Result<Opened, OpenFault> {
        let message = self
            .handshake(connection, set)
            .await
            .map_err(|fault| OpenFault::from_call("handshake", fault))?;
        self.settle_legacy(connection, &message, set)
    }

    fn settle_legacy(
        &self,
        connection: &Arc<Connection>,
        message: &Message,
        set: CapabilitySet,
    ) -> Result<Opened, OpenFault> {
        let refused = |message: String| OpenFault {
            stage: "handshake",
            kind: FaultKind::Malformed,
            message,
            modern_error: false,
        };
        if message.kind() == Kind::Error {
            let text = message.text(Member::ErrorMessage).unwrap_or_default();
            let code = message.error_code().unwrap_or_default();
            let mut fault = refused(format!("it refused initialize with error {code}: {text}"));
            fault.modern_error = (-32022..=-32020).contains(&code);
            return Err(fault);
        }
        let version = message
            .text(Member::ProtocolVersion)
            .unwrap_or_default()
            .into_owned();
        let revision = Revision::parse(&version)
            .filter(|revision| revision.family() == Family::Legacy)
            .ok_or_else(|| {
                refused(format!(
                    "it answered initialize with the unknown revision {version:?}"
                ))
            })?;
        self.settle(connection, Family::Legacy, revision, set);
        if let Some(Link::Streamable(link)) = connection.link() {
            link.set_revision(revision);
        }
        if let Some(link) = connection.link() {
            link.notify(
                connection,
                "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}".into(),
            );
        }
        Ok(Opened {
            connection: connection.clone(),
            revision,
            result: super::refresh::result_bytes(message),
        })
    }

    fn settle(
        &self,
        connection: &Connection,
        family: Family,
        revision: Revision,
        capabilities: CapabilitySet,
    ) {
        connection.settle(Facts {
            family,
            revision,
            capabilities,
            limits: CallLimits {
                idle: self.config.idle_timeout,
                max: self.config.max_timeout,
            },
        });
    }
}

/// A value of the environment; only one that came from a reference is a secret to be masked.
fn secret(value: &config::SecretText) -> SecretOrString {
    SecretOrString::Secret(value.expose().to_owned().into())
}

/// Closes a connection that did not make it through the handshake, so that no child is left behind.
struct Closing(Option<Arc<Connection>>, Arc<tokio::sync::RwLock<()>>);

impl Closing {
    fn is_alive(&self) -> bool {
        self.0.as_ref().is_some_and(|connection| !connection.is_closed())
    }

    fn keep(mut self, opened: Opened) -> Opened {
        self.0 = None;
        opened
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.close("the handshake failed");
            let ending = self.1.clone().try_read_owned();
            tasks::spawn("clear a failed start away", async move {
                if let Some(link) = connection.link() {
                    link.close().await;
                }
                drop(ending);
            });
        }
    }
}
