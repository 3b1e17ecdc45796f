//! Bodies: pieces going out, bounded bytes or events coming in, and the way of a received text into the connection.
//!
//! Used by the HTTP transports only. It never decides what a fault means for a call.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::{HttpLimits, mentions_session};
use crate::downstream::connection::{Connection, Origin};
use crate::pipeline::port::FaultKind;
use crate::wire::json::JsonLimits;
use crate::wire::message::ParseFault;
use crate::wire::sse::{Event, SseDecoder, SseFault, SseLimits};
use crate::wire::{Kind, Member, Message, Outgoing, WireId};

/// What a peer may claim ahead of sending it.
const RESERVE: usize = 4 * 1024 * 1024;
/// Room for the field name of an event's only line.
const FIELD: usize = 16;

/// A request body: the pieces of a message as they lie, with their exact length.
#[derive(Debug)]
pub(in crate::downstream::transport) struct Pieces {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl Pieces {
    /// A body of these pieces; small ones are joined.
    pub(in crate::downstream::transport) fn new(message: Outgoing) -> Self {
        let message = message.compact();
        let left = u64::try_from(message.len()).unwrap_or(u64::MAX);
        Self {
            pieces: message.into_pieces().into(),
            left,
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        if let Some(piece) = &piece {
            self.left -= u64::try_from(piece.len()).unwrap_or(self.left).min(self.left);
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::downstream::transport) enum ReadFault {
    /// Over the limit.
    #[error("the answer is larger than the limit of {limit} bytes ({length} bytes {how})")]
    TooLarge {
        /// Bytes announced or read so far.
        length: u64,
        /// The limit.
        limit: usize,
        /// Which of the two.
        how: &'static str,
    },
    /// The stream broke.
    #[error("the answer broke off ({0})")]
    Broken(hyper::Error),
}

/// Reads a body to its end. One frame is handed on as it came; more are joined once.
///
/// # Errors
/// If it is too large, or broke off.
pub(in crate::downstream::transport) async fn collect(
    mut body: Incoming,
    limit: usize,
) -> Result<Bytes, ReadFault> {
    let bound = u64::try_from(limit).unwrap_or(u64::MAX);
    let announced = body.size_hint().lower();
    if announced > bound {
        return Err(ReadFault::TooLarge {
            length: announced,
            limit,
            how: "announced",
        });
    }
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ReadFault::Broken)?.into_data() else {
            continue;
        };
        let length = first.len() + joined.len() + data.len();
        if length > limit {
            let length = u64::try_from(length).unwrap_or(u64::MAX);
            return Err(ReadFault::TooLarge {
                length,
                limit,
                how: "read so far",
            });
        }
        if first.is_empty() && joined.is_empty() {
            first = data;
            continue;
        }
        if joined.is_empty() {
            let expected = usize::try_from(announced).unwrap_or(RESERVE).min(RESERVE);
            joined.reserve(expected.max(length));
            joined.extend_from_slice(&std::mem::take(&mut first));
        }
        joined.extend_from_slice(&data);
    }
    Ok(if joined.is_empty() { first } else { joined.freeze() })
}

/// An event stream being read.
#[derive(Debug)]
pub(in crate::downstream::transport) struct EventStream {
    body: Incoming,
    decoder: SseDecoder,
    ended: bool,
    broken: Option<hyper::Error>,
}

impl EventStream {
    /// Reads `body` as events.
    pub(in crate::downstream::transport) fn new(body: Incoming, limits: &HttpLimits) -> Self {
        let limits = SseLimits {
            line: limits.event.saturating_add(FIELD),
            event: limits.event,
        };
        Self {
            body,
            decoder: SseDecoder::new(limits),
            ended: false,
            broken: None,
        }
    }

    /// The next event; `None` when the stream is over.
    pub(in crate::downstream::transport) async fn next(&mut self) -> Option<Result<Event, SseFault>> {
        loop {
            if let Some(event) = self.decoder.next_event() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.decoder.push(data);
                    }
                }
                end => {
                    self.ended = true;
                    self.broken = end.and_then(Result::err);
                    // An event without its blank line: if it was cut, it does not parse and does no harm.
                    if let Some(event) = self.decoder.finish() {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// The decoder, for ids and waiting times.
    pub(in crate::downstream::transport) fn decoder(&self) -> &SseDecoder {
        &self.decoder
    }

    /// How the stream ended, for people.
    pub(in crate::downstream::transport) fn ending(&self) -> String {
        match &self.broken {
            Some(error) => format!("broke off ({error})"),
            None => "ended".to_owned(),
        }
    }
}

/// What became of a received text.
#[derive(Debug)]
pub(in crate::downstream::transport) enum Delivered {
    /// It held the answer of the call.
    Answer,
    /// It held messages, none of them the answer.
    Other,
    /// An error that names no request.
    Anonymous(Message),
    /// The answer says that our session is gone.
    Forgotten,
    /// It is no message.
    Unreadable(String),
}

/// Brings received texts to the connection.
#[derive(Clone, Copy)]
pub(in crate::downstream::transport) struct Delivery<'a> {
    /// The connection.
    pub(in crate::downstream::transport) connection: &'a Arc<Connection>,
    /// The stream that the text arrived on.
    pub(in crate::downstream::transport) origin: Origin,
    /// Whether a session was named in the request.
    pub(in crate::downstream::transport) in_session: bool,
    /// Bounds.
    pub(in crate::downstream::transport) json: JsonLimits,
}

impl Delivery<'_> {
    /// Parses one text, a message or a batch, and dispatches what it holds.
    pub(in crate::downstream::transport) fn deliver(&self, mut text: Bytes) -> Delivered {
        if text.starts_with(b"\xef\xbb\xbf") {
            let _ = text.split_to(3);
        }
        match Message::parse(text.clone(), self.json) {
            Ok(message) => self.one(message),
            Err(error) if error.fault == ParseFault::Batch => match Message::split_batch(&text, self.json) {
                Ok(parts) => self.batch(parts),
                Err(fault) => Delivered::Unreadable(fault.to_string()),
            },
            Err(error) => self.unreadable(&text, error.to_string()),
        }
    }

    fn batch(&self, parts: Vec<Bytes>) -> Delivered {
        let mut outcome = Delivered::Other;
        for part in parts {
            let one = match Message::parse(part.clone(), self.json) {
                Ok(message) => self.one(message),
                Err(error) => self.unreadable(&part, error.to_string()),
            };
            outcome = match (outcome, one) {
                (Delivered::Answer, _) | (_, Delivered::Answer) => Delivered::Answer,
                (Delivered::Other, one) => one,
                (outcome, _) => outcome,
            };
        }
        outcome
    }

    fn one(&self, message: Message) -> Delivered {
        let is_answer = matches!(message.kind(), Kind::Result | Kind::Error);
        if message.kind() == Kind::Error && message.id_span().is_none() {
            return Delivered::Anonymous(message);
        }
        let own = is_answer && self.own().is_some() && message.wire_id() == self.own();
        if own && self.in_session && says_session_lost(&message) {
            return Delivered::Forgotten;
        }
        self.connection.dispatch(self.origin, message);
        if own { Delivered::Answer } else { Delivered::Other }
    }

    fn own(&self) -> Option<WireId> {
        match self.origin {
            Origin::Call(id) => Some(id),
            Origin::Connection => None,
        }
    }

    /// The answer of a call, only badly encoded, ends that call; it must not wait for its deadline.
    fn unreadable(&self, text: &Bytes, why: String) -> Delivered {
        let readable = Bytes::from(String::from_utf8_lossy(text).into_owned());
        if readable != *text
            && let Ok(message) = Message::parse(readable, self.json)
            && matches!(message.kind(), Kind::Result | Kind::Error)
            && let Some(id) = message.wire_id()
        {
            let text = format!(
                "server \"{}\" sent an answer that is not valid: {why}",
                self.connection.server()
            );
            self.connection.fail(id, FaultKind::Malformed, text);
            return if Some(id) == self.own() {
                Delivered::Answer
            } else {
                Delivered::Other
            };
        }
        Delivered::Unreadable(why)
    }
}

/// Whether an error, whatever its status, says that the session is unknown.
pub(in crate::downstream::transport) fn says_session_lost(message: &Message) -> bool {
    /// What the reference servers use for it.
    const SESSION_NOT_FOUND: i64 = -32001;
    message.error_code() == Some(SESSION_NOT_FOUND)
        && message
            .text(Member::ErrorMessage)
            .is_some_and(|text| mentions_session(text.as_bytes()))
}
