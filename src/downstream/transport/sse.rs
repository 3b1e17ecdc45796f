//! The HTTP+SSE pair of 2024-11-05: one GET stream for everything that comes, POSTs to the endpoint it names.
//!
//! [`Link`](crate::downstream::link::Link) calls it. The end of the stream is the end of the connection. It never
//! sends to another origin than that of the configured URL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Method, StatusCode, Uri};
use tokio_util::sync::CancellationToken;

use super::http::{Delivery, EventStream, Head, HttpTarget, Outbox, short_body};
use super::streamable::take_stray;
use crate::downstream::connection::{Connection, Origin};
use crate::pipeline::port::{CallFault, FaultKind};
use crate::runtime::tasks;
use crate::wire::{Outgoing, WireId};

/// How long a server may take to open the stream and to name its endpoint.
const OPENING: Duration = Duration::from_secs(20);

/// The way to a server over the pair.
#[derive(Debug)]
pub struct SseLink(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    target: Arc<HttpTarget>,
    endpoint: Uri,
    outbox: Arc<Outbox>,
    stop: CancellationToken,
    /// A refused notification was logged.
    grumbled: AtomicBool,
}

impl SseLink {
    /// Opens the stream, learns the endpoint and starts reading.
    ///
    /// # Errors
    /// If the server offers no such stream, or names an endpoint of another origin.
    pub async fn connect(
        target: Arc<HttpTarget>,
        connection: &Arc<Connection>,
    ) -> Result<Arc<Self>, CallFault> {
        let opened = tokio::time::timeout(OPENING, open(&target, connection)).await;
        let (stream, endpoint) = opened.unwrap_or_else(|_| {
            let text = format!(
                "server \"{}\" named no endpoint within {OPENING:?}",
                connection.server()
            );
            Err(CallFault::unsent(FaultKind::TimedOut, text))
        })?;
        let shared = Arc::new(Shared {
            target,
            endpoint,
            outbox: Arc::default(),
            stop: CancellationToken::new(),
            grumbled: AtomicBool::new(false),
        });
        let (reader, weak, end) = (shared.clone(), Arc::downgrade(connection), connection.end_token());
        drop(tasks::spawn("sse stream", async move {
            let ending = tokio::select! {
                () = end.cancelled() => return,
                () = reader.stop.cancelled() => return,
                ending = reader.read(&weak, stream) => ending,
            };
            if let Some(connection) = weak.upgrade() {
                connection.close(&format!("the event stream {ending}"));
            }
        }));
        Ok(Arc::new(Self(shared)))
    }

    /// Sends one request; its answer comes on the stream.
    ///
    /// # Errors
    /// If the server did not take it.
    pub async fn send(
        &self,
        connection: &Arc<Connection>,
        id: WireId,
        body: Outgoing,
    ) -> Result<(), CallFault> {
        let shared = &self.0;
        shared.outbox.introduced().await;
        if !connection.begin_sending(id) {
            let text = format!(
                "server \"{}\": the call was given up before it was sent",
                connection.server()
            );
            return Err(CallFault::unsent(FaultKind::Cancelled, text));
        }
        let posted = shared.post(connection, Origin::Call(id), body).await;
        if let Err(fault) = &posted
            && (fault.kind != FaultKind::Lost || fault.status.is_some())
        {
            // Nothing runs there: a cancellation would be noise.
            connection.fail(id, fault.kind, fault.message.clone());
        }
        posted
    }

    /// Sends a notification or a response in the background, in the order of the calls; best effort.
    pub fn notify(&self, connection: &Arc<Connection>, message: Outgoing) {
        let (shared, connection) = (self.0.clone(), connection.clone());
        self.0.outbox.push(message, move |message| {
            let (shared, connection) = (shared.clone(), connection.clone());
            async move {
                if let Err(fault) = shared.post(&connection, Origin::Connection, message).await
                    && !shared.grumbled.swap(true, Ordering::AcqRel)
                {
                    let server = connection.server();
                    tracing::debug!(%server, %fault, "a notification was not taken; further ones are not reported");
                }
            }
            .boxed()
        });
    }

    /// Closes the stream, which ends the session.
    #[allow(clippy::unused_async, reason = "like the other transports")]
    pub async fn close(&self) {
        self.0.stop.cancel();
    }
}

/// Opens the stream and reads up to the endpoint.
async fn open(
    target: &Arc<HttpTarget>,
    connection: &Arc<Connection>,
) -> Result<(EventStream, Uri), CallFault> {
    let request = target.request(Method::GET, target.uri(), Outgoing::new());
    let response = target.send(connection.server(), request).await?;
    let (head, body) = Head::split(response);
    if !head.status.is_success() {
        let body = short_body(body).await;
        return Err(CallFault {
            sent: false,
            ..target.refused(connection, &head, &body)
        });
    }
    let wrong = |text: &str| {
        CallFault::unsent(
            FaultKind::Malformed,
            format!("server \"{}\": {text}", connection.server()),
        )
    };
    if !head.is_event_stream() {
        return Err(wrong(&format!(
            "its GET answer is {:?}, not an event stream",
            head.media_type()
        )));
    }
    let mut stream = EventStream::new(body, &target.limits());
    while let Some(event) = stream.next().await {
        let Ok(event) = event else { continue };
        if event.name.as_deref() == Some("endpoint") {
            let endpoint = target
                .resolve(&String::from_utf8_lossy(&event.data))
                .map_err(|why| wrong(&why))?;
            return Ok((stream, endpoint));
        }
    }
    Err(wrong(&format!(
        "its event stream {} before it named an endpoint",
        stream.ending()
    )))
}

impl Shared {
    async fn read(&self, weak: &std::sync::Weak<Connection>, mut stream: EventStream) -> String {
        let json = self.target.limits().json;
        while let Some(event) = stream.next().await {
            let Some(connection) = weak.upgrade() else { break };
            let delivery = Delivery {
                connection: &connection,
                origin: Origin::Connection,
                in_session: false,
                json,
            };
            take_stray(&self.target, &delivery, event);
        }
        stream.ending()
    }

    async fn post(
        &self,
        connection: &Arc<Connection>,
        origin: Origin,
        body: Outgoing,
    ) -> Result<(), CallFault> {
        let request = self.target.request(Method::POST, &self.endpoint, body);
        let response = self.target.send(connection.server(), request).await?;
        let (head, body) = Head::split(response);
        let body = short_body(body).await;
        if head.status.is_success() {
            // Some servers answer here instead of on the stream.
            if head.media_type() == "application/json" && body.trim_ascii().starts_with(b"{") {
                let json = self.target.limits().json;
                let _ = Delivery {
                    connection,
                    origin,
                    in_session: false,
                    json,
                }
                .deliver(body);
            }
            return Ok(());
        }
        let fault = self.target.refused(connection, &head, &body);
        if head.status == StatusCode::NOT_FOUND || head.status == StatusCode::GONE {
            connection.close("the server has forgotten the session");
            return Err(CallFault {
                kind: FaultKind::Lost,
                ..fault
            });
        }
        Err(fault)
    }
}
