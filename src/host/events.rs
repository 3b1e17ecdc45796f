//! The body of an answer that is a stream of events, whoever it is for: a modern request that owns its call, a legacy
//! request or general stream whose events are kept for resumption, or the stream of a 2024-11-05 pair.
//!
//! One event is one or more body pieces. Before the answer the stream pauses, if progress was written just before:
//! some hosts lose a progress message that arrives in the same read as the answer.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, stream};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::pipeline::Reply;
use crate::session::table::StreamHold;
use crate::session::{HostStream, Lane};
use crate::wire::{Outgoing, sse};

use super::outbox::OutboxReader;
use super::{LegacyFace, SessionEntry};
use std::sync::Arc;

/// How long after a notification the answer may follow at the earliest.
const APART: Duration = Duration::from_millis(1);

/// Events are kept for resumption under this stream of this session.
pub(crate) struct Logged {
    pub(crate) entry: Arc<SessionEntry>,
    pub(crate) stream: u64,
    pub(crate) _hold: StreamHold<LegacyFace>,
}

/// What an event stream is made of.
pub(crate) struct EventStream {
    reader: OutboxReader,
    keep_alive: Duration,
    /// Modern: the call itself. Dropping it cancels the call.
    call: Option<BoxFuture<'static, Reply>>,
    _cancel: Option<DropGuard>,
    log: Option<Logged>,
    /// What a host missed and gets first.
    missed: VecDeque<(u64, Outgoing)>,
    pending: VecDeque<Bytes>,
    notified: Option<Instant>,
    /// Ends the stream when nothing more is to be waited for.
    stop: CancellationToken,
    written_to_end: bool,
}

impl EventStream {
    /// A stream of what `reader` yields until `stop`.
    pub(crate) fn new(reader: OutboxReader, keep_alive: Duration, stop: CancellationToken) -> Self {
        Self {
            reader,
            keep_alive,
            call: None,
            _cancel: None,
            log: None,
            missed: VecDeque::new(),
            pending: VecDeque::new(),
            notified: None,
            stop,
            written_to_end: false,
        }
    }

    /// The stream owns a call; its answer is the last event.
    pub(crate) fn with_call(mut self, call: Option<BoxFuture<'static, Reply>>, cancel: DropGuard) -> Self {
        self.call = call;
        self._cancel = Some(cancel);
        self
    }

    /// Events get ids and are kept.
    pub(crate) fn with_log(mut self, log: Logged) -> Self {
        self.log = Some(log);
        self
    }

    /// Starts with these events.
    pub(crate) fn with_missed(mut self, missed: Vec<(u64, Outgoing)>) -> Self {
        self.missed = missed.into();
        self
    }

    /// Starts with this text.
    pub(crate) fn with_first(mut self, first: Bytes) -> Self {
        self.pending.push_back(first);
        self
    }

    /// The stream of body pieces.
    pub(crate) fn into_pieces(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut this| async move {
            this.step().await.map(|piece| (piece, this))
        })
    }

    fn event(&mut self, id: Option<String>, message: Outgoing) {
        self.pending
            .extend(sse::event(id.as_deref(), Some("message"), message.into_pieces()));
    }

    async fn step(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.pending.pop_front() {
                return Some(piece);
            }
            if let (Some((number, message)), Some(log)) = (self.missed.pop_front(), &self.log) {
                let id = format!("{}-{number}", log.stream);
                self.event(Some(id), message);
                continue;
            }
            tokio::select! {
                biased;
                reply = async {
                    match self.call.as_mut() {
                        Some(call) => call.await,
                        None => std::future::pending().await,
                    }
                } => {
                    self.call = None;
                    if let Some(message) = reply.message {
                        self.reader.outbox().send(Lane::Answer, message);
                    }
                    self.reader.outbox().finish();
                }
                ready = self.reader.ready() => {
                    if !ready {
                        self.end();
                        return None;
                    }
                    self.take().await;
                }
                () = self.stop.cancelled() => {
                    self.end();
                    return None;
                }
                () = sleep(self.keep_alive) => self.pending.push_back(sse::comment("keep-alive")),
            }
        }
    }

    /// Takes the message that waits. What is taken is noted at once: between the two there is no point at which the
    /// stream could be dropped with the message in hand.
    async fn take(&mut self) {
        if self.reader.peek() == Some(Lane::Answer)
            && let Some(at) = self.notified.take()
        {
            sleep_until(at + APART).await;
        }
        let Some(item) = self.reader.try_next() else {
            return;
        };
        if item.lane != Lane::Answer {
            self.notified = Some(Instant::now());
        }
        let id = self.log.as_ref().map(|log| {
            log.entry
                .face
                .replay
                .record(log.stream, item.message.clone())
                .to_string()
        });
        self.event(id, item.message);
    }

    fn end(&mut self) {
        self.written_to_end = true;
        if let Some(log) = &self.log
            && !self.reader.is_replaced()
        {
            log.entry.face.replay.ended(log.stream);
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if self.written_to_end || self.reader.is_replaced() {
            return;
        }
        self.reader.detach();
        let Some(log) = &self.log else { return };
        let outbox = self.reader.outbox();
        if outbox.is_finished() {
            log.entry.face.replay.finished(log.stream, outbox.queued_bytes());
        }
    }
}
