//! The transports of a connection behind one type: how a request, a cancellation and a notification travel.
//!
//! Used by [`Connection`] only. It never looks into the pending table except through the connection's methods.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::connection::Connection;
use super::transport::pipe::PipeLink;
use super::transport::sse::SseLink;
use super::transport::streamable::StreamableLink;
use crate::pipeline::port::{CallFault, FaultKind};
use crate::wire::json::quote;
use crate::wire::{Message, Outgoing, WireId};

/// What an HTTP transport must know of a request besides its bytes.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The method, for `Mcp-Method`.
    pub method: String,
    /// The downstream's own name, URI or task id, for `Mcp-Name`.
    pub name: Option<String>,
    /// `Mcp-Param-*`: full header name and encoded value.
    pub params: Vec<(String, String)>,
}

/// What arrives on the answer channel of a pending call.
pub type Answer = Result<Message, CallFault>;

/// One of the transports.
#[derive(Debug)]
pub enum Link {
    /// A child's pipes, or any pair of byte streams.
    Pipe(PipeLink),
    /// Streamable HTTP, both families.
    Streamable(Arc<StreamableLink>),
    /// The HTTP+SSE pair of 2024-11-05.
    Sse(Arc<SseLink>),
}

impl Link {
    /// The word for audit and status.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Pipe(_) => "stdio",
            Self::Streamable(_) => "http",
            Self::Sse(_) => "sse",
        }
    }

    /// Sends one request and waits for its answer. Dropping the future stops waiting; what the server is told is
    /// the business of [`Link::cancel`].
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn call(
        &self,
        connection: &Arc<Connection>,
        id: WireId,
        head: RequestHead,
        body: Outgoing,
        answered: oneshot::Receiver<Answer>,
    ) -> Answer {
        match self {
            Self::Pipe(link) => {
                link.send(id, body).await?;
                wait(connection, answered).await
            }
            Self::Streamable(link) => link.call(connection, id, head, body, answered).await,
            Self::Sse(link) => {
                link.send(connection, id, body).await?;
                wait(connection, answered).await
            }
        }
    }

    /// Tells the server that a request is not wanted any more, ahead of everything that is queued.
    pub fn cancel(&self, connection: &Arc<Connection>, id: WireId, reason: &str) {
        if let Self::Streamable(link) = self
            && link.is_modern()
        {
            // There the closed stream is the cancellation, and the dropped future has closed it.
            return;
        }
        self.notify(
            connection,
            Outgoing::from(format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":{}}}}}",
                quote(reason)
            )),
        );
    }

    /// Sends a notification or a response, ahead of queued requests; best effort.
    pub fn notify(&self, connection: &Arc<Connection>, message: Outgoing) {
        match self {
            Self::Pipe(link) => link.send_urgent(connection, message),
            Self::Streamable(link) => link.notify(connection, message),
            Self::Sse(link) => link.notify(connection, message),
        }
    }

    /// Ends the transport in good order: closes standard input and climbs the ladder, or ends the HTTP session.
    pub async fn close(&self) {
        match self {
            Self::Pipe(link) => link.close().await,
            Self::Streamable(link) => link.close().await,
            Self::Sse(link) => link.close().await,
        }
    }

    /// The last lines of the child's standard error, for error messages.
    #[must_use]
    pub fn stderr_tail(&self) -> Vec<String> {
        match self {
            Self::Pipe(link) => link.stderr_tail(),
            _ => Vec::new(),
        }
    }

    /// The child's process id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Pipe(link) => link.pid(),
            _ => None,
        }
    }
}

async fn wait(connection: &Arc<Connection>, answered: oneshot::Receiver<Answer>) -> Answer {
    answered.await.unwrap_or_else(|_| {
        let text = format!("server \"{}\": the call was given up", connection.server());
        Err(CallFault::sent(FaultKind::Lost, text))
    })
}
