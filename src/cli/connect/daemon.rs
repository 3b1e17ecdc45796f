//! The daemon at the other end: one HTTP exchange at a time, and what comes back as messages.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::sync::oneshot;

use crate::cli::net::{Body, Target};
use crate::wire::headers;
use crate::wire::sse::{SseDecoder, SseFault, SseLimits};

/// Longest answer and longest event; the daemon's own limits are below.
const MAX_ANSWER: usize = 256 * 1024 * 1024;
/// How much of a wrong answer a message quotes, in characters.
const EXCERPT: usize = 200;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    target: Target,
}

/// The answer to a `POST`.
#[derive(Debug)]
pub(super) enum Answer {
    /// Taken, with nothing to say.
    Accepted,
    /// One JSON body, with the status it came with.
    Json(StatusCode, Bytes),
    /// A stream of messages.
    Events(Box<Events>),
    /// Something that is no MCP: the status and the start of the text.
    Refused(StatusCode, String),
}

impl Daemon {
    pub(super) fn new(target: Target) -> Self {
        Self { target }
    }

    pub(super) fn shown(&self) -> &str {
        self.target.shown()
    }

    /// Posts a message. Returns the answer and its headers.
    pub(super) async fn post(
        &self,
        message: Bytes,
        mut head: HeaderMap,
        sent: Option<oneshot::Sender<()>>,
    ) -> Result<(HeaderMap, Answer), String> {
        head.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        head.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        let response = self
            .target
            .send(Method::POST, head, Body::new(message, sent))
            .await?;
        let head = response.headers().clone();
        Ok((head, self.answer(response).await?))
    }

    async fn answer(&self, response: Response<Incoming>) -> Result<Answer, String> {
        let status = response.status();
        let kind = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        if kind.starts_with("text/event-stream") && status.is_success() {
            return Ok(Answer::Events(Box::new(Events::new(response.into_body()))));
        }
        if status == StatusCode::ACCEPTED || status == StatusCode::NO_CONTENT {
            return Ok(Answer::Accepted);
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER)
            .collect()
            .await
            .map_err(|error| format!("the answer of {} broke off: {error}", self.shown()))?
            .to_bytes();
        if kind.starts_with("application/json") {
            return Ok(Answer::Json(status, body));
        }
        let text: String = String::from_utf8_lossy(&body).chars().take(EXCERPT).collect();
        Ok(Answer::Refused(status, text))
    }

    /// Opens the stream of a session, after `last` if given; `None` if the daemon has none to give.
    pub(super) async fn open_stream(
        &self,
        mut head: HeaderMap,
        last: Option<&str>,
    ) -> Result<Result<Box<Events>, StatusCode>, String> {
        head.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            head.insert(headers::LAST_EVENT_ID, last);
        }
        let response = self
            .target
            .send(Method::GET, head, Body::new(Bytes::new(), None))
            .await?;
        let status = response.status();
        if status == StatusCode::OK {
            Ok(Ok(Box::new(Events::new(response.into_body()))))
        } else {
            Ok(Err(status))
        }
    }

    /// Ends a session.
    pub(super) async fn delete(&self, head: HeaderMap) {
        let _ = self
            .target
            .send(Method::DELETE, head, Body::new(Bytes::new(), None))
            .await;
    }
}

/// A stream of events. Dropping it closes its connection, which is how a modern request is cancelled.
#[derive(Debug)]
pub(super) struct Events {
    body: Incoming,
    decoder: SseDecoder,
    broken: Option<String>,
}

impl Events {
    fn new(body: Incoming) -> Self {
        let limits = SseLimits {
            line: MAX_ANSWER,
            event: MAX_ANSWER,
        };
        Self {
            body,
            decoder: SseDecoder::new(limits),
            broken: None,
        }
    }

    /// The data of the next event that has some; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.decoder.next_event() {
                Some(Ok(event)) if event.data.is_empty() => continue,
                Some(Ok(event)) => return Some(event.data),
                Some(Err(fault @ SseFault::TooLarge { .. })) => {
                    self.broken = Some(fault.to_string());
                    continue;
                }
                None => {}
            }
            match self.body.frame().await {
                None => return None,
                Some(Err(error)) => {
                    self.broken = Some(error.to_string());
                    return None;
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.decoder.push(data);
                    }
                }
            }
        }
    }

    /// What to resume after.
    pub(super) fn last_id(&self) -> Option<String> {
        self.decoder.last_event_id().map(str::to_owned)
    }

    /// How long the daemon wants us to wait before coming back.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.decoder.retry()
    }

    /// Why it ended, if it broke.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
}
