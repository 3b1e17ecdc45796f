//! The queue between the pipeline and one stream to a host: bounded whatever the reader does.
//!
//! Messages keep the order in which they were handed in. Past the limits the lanes differ: progress is coalesced per
//! key (the latest value stays, at its own place in the order), the oldest notice is dropped and counted, requests
//! are refused, and the final answer is always taken. Host faces create outboxes and read them; the pipeline only
//! sees them as [`HostStream`]. Nothing here waits or spawns.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;

use crate::session::{HostStream, Lane, Sent};
use crate::wire::Outgoing;

/// Bounds of one outbox.
#[derive(Clone, Copy, Debug)]
pub struct OutboxLimits {
    /// Progress and notices that may wait, each.
    pub notifications: usize,
    /// Reverse requests that may wait.
    pub requests: usize,
    /// Bytes of everything but answers that may wait. One message is taken whatever its size.
    pub bytes: usize,
}

impl Default for OutboxLimits {
    fn default() -> Self {
        Self {
            notifications: 256,
            requests: 64,
            bytes: 8 * 1024 * 1024,
        }
    }
}

/// One queued message.
#[derive(Debug)]
pub struct Item {
    /// Which lane it came in by.
    pub lane: Lane,
    /// The message.
    pub message: Outgoing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Takes messages.
    Open,
    /// Takes no more; what is queued can still be read.
    Finished,
    /// Nobody will ever read it.
    Closed,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<Item>,
    progress: usize,
    notices: usize,
    requests: usize,
    /// Bytes of everything but answers.
    bytes: usize,
    /// Bytes of answers.
    answer_bytes: usize,
    dropped: u64,
    coalesced: u64,
    phase: Phase,
    answers_only: bool,
    /// Counts readers; the one with the current number reads, older ones have ended.
    reader: u64,
    attached: bool,
    waker: Option<Waker>,
    /// Who waits for the queue to become short.
    drained: Option<Waker>,
}

/// The queue. Cheap to share; at most one reader at a time.
#[derive(Debug)]
pub struct Outbox {
    limits: OutboxLimits,
    state: Mutex<State>,
}

impl State {
    fn account(&mut self, item: &Item, add: bool) {
        let step = |count: &mut usize, by: usize| {
            *count = if add {
                *count + by
            } else {
                count.saturating_sub(by)
            };
        };
        let length = item.message.len();
        match item.lane {
            Lane::Progress(_) => step(&mut self.progress, 1),
            Lane::Notice => step(&mut self.notices, 1),
            Lane::Request => step(&mut self.requests, 1),
            Lane::Answer => {
                step(&mut self.answer_bytes, length);
                return;
            }
        }
        step(&mut self.bytes, length);
    }

    fn push(&mut self, lane: Lane, message: Outgoing) {
        let item = Item { lane, message };
        self.account(&item, true);
        self.queue.push_back(item);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.queue.pop_front()?;
        self.account(&item, false);
        if let Some(waker) = self.drained.take() {
            waker.wake();
        }
        Some(item)
    }

    fn remove(&mut self, at: Option<usize>) -> bool {
        let Some(item) = at.and_then(|at| self.queue.remove(at)) else {
            return false;
        };
        self.account(&item, false);
        true
    }

    /// Makes room for one more progress message with this key.
    fn make_room_for_progress(&mut self, key: u64, limits: OutboxLimits, length: usize) {
        let many = |state: &Self| state.progress >= limits.notifications;
        let full = |state: &Self| many(state) || state.bytes + length > limits.bytes;
        if full(self) {
            let same = self
                .queue
                .iter()
                .rposition(|item| item.lane == Lane::Progress(key));
            self.coalesced += u64::from(self.remove(same));
        }
        while full(self) {
            let superseded = self.oldest_superseded();
            if self.remove(superseded) {
                self.coalesced += 1;
                continue;
            }
            // Each key has its latest value only: the oldest of all gives way.
            let oldest = self
                .queue
                .iter()
                .position(|item| matches!(item.lane, Lane::Progress(_)));
            if many(self) && self.remove(oldest) {
                self.dropped += 1;
            } else if !self.drop_oldest() {
                break;
            }
        }
    }

    /// The oldest progress message with a later one of the same key behind it.
    fn oldest_superseded(&self) -> Option<usize> {
        let mut seen = HashSet::new();
        let mut found = None;
        for (at, item) in self.queue.iter().enumerate().rev() {
            if let Lane::Progress(key) = item.lane
                && !seen.insert(key)
            {
                found = Some(at);
            }
        }
        found
    }

    fn drop_oldest(&mut self) -> bool {
        let oldest = self
            .queue
            .iter()
            .position(|item| matches!(item.lane, Lane::Progress(_) | Lane::Notice));
        let removed = self.remove(oldest);
        self.dropped += u64::from(removed);
        removed
    }

    fn make_room_for_notice(&mut self, limits: OutboxLimits, length: usize) {
        while self.notices >= limits.notifications {
            let oldest = self.queue.iter().position(|item| item.lane == Lane::Notice);
            if !self.remove(oldest) {
                break;
            }
            self.dropped += 1;
        }
        while self.bytes + length > limits.bytes && self.drop_oldest() {}
    }
}

impl Outbox {
    /// An empty outbox without a reader.
    #[must_use]
    pub fn new(limits: OutboxLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                progress: 0,
                notices: 0,
                requests: 0,
                bytes: 0,
                answer_bytes: 0,
                dropped: 0,
                coalesced: 0,
                phase: Phase::Open,
                answers_only: false,
                reader: 0,
                attached: false,
                waker: None,
                drained: None,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes the reader. An older reader ends at once, and what it had not taken is read by the new one.
    #[must_use]
    pub fn attach(self: &Arc<Self>) -> OutboxReader {
        let mut state = self.lock();
        state.reader += 1;
        state.attached = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        OutboxReader {
            outbox: self.clone(),
            number: state.reader,
        }
    }

    /// From now on only answers are taken: the host accepts no stream. Notices vanish, requests are refused.
    pub fn answers_only(&self) {
        self.lock().answers_only = true;
    }

    /// No more messages will come; the reader ends after what is queued.
    pub fn finish(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Finished;
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Nobody will ever read it: everything queued is dropped, everything later refused.
    pub fn close(&self) {
        let mut state = self.lock();
        state.phase = Phase::Closed;
        while state.pop().is_some() {}
        for waker in [state.waker.take(), state.drained.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    /// Whether [`Self::finish`] or [`Self::close`] was called.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.lock().phase != Phase::Open
    }

    /// Whether someone reads it now, finished or not.
    #[must_use]
    pub fn has_reader(&self) -> bool {
        self.lock().attached
    }

    /// Bytes that wait, answers included.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        let state = self.lock();
        state.bytes + state.answer_bytes
    }

    /// Messages that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().queue.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notifications dropped since the start because the reader was too slow.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Progress messages replaced by later ones of the same call since the start.
    #[must_use]
    pub fn coalesced(&self) -> u64 {
        self.lock().coalesced
    }

    /// Waits until fewer than `messages` messages and fewer than `bytes` bytes wait, or the outbox is closed. For
    /// one waiter: whoever produces answers faster than the host reads them.
    pub async fn short(&self, messages: usize, bytes: usize) {
        std::future::poll_fn(|context| {
            let mut state = self.lock();
            let long =
                state.queue.len() >= messages.max(1) || state.bytes + state.answer_bytes >= bytes.max(1);
            if !long || state.phase == Phase::Closed {
                return Poll::Ready(());
            }
            state.drained = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl HostStream for Outbox {
    fn send(&self, lane: Lane, message: Outgoing) -> Sent {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Sent::Refused;
        }
        let length = message.len();
        if state.answers_only && lane != Lane::Answer {
            if lane == Lane::Request {
                return Sent::Refused;
            }
            state.dropped += 1;
            return Sent::Queued;
        }
        match lane {
            Lane::Answer => {}
            Lane::Progress(key) => state.make_room_for_progress(key, self.limits, length),
            Lane::Notice => state.make_room_for_notice(self.limits, length),
            Lane::Request => {
                if state.requests >= self.limits.requests {
                    return Sent::Refused;
                }
                while state.bytes + length > self.limits.bytes && state.drop_oldest() {}
                if state.requests > 0 && state.bytes + length > self.limits.bytes {
                    return Sent::Refused;
                }
            }
        }
        state.push(lane, message);
        Sent::Queued
    }

    fn attached(&self) -> bool {
        let state = self.lock();
        state.attached && state.phase == Phase::Open && !state.answers_only
    }
}

/// The one reader of an outbox. Ends after the last message of a finished outbox, or when a newer reader took over.
#[derive(Debug)]
pub struct OutboxReader {
    outbox: Arc<Outbox>,
    number: u64,
}

impl OutboxReader {
    /// The next message if one waits.
    pub fn try_next(&mut self) -> Option<Item> {
        let mut state = self.outbox.lock();
        if state.reader == self.number {
            state.pop()
        } else {
            None
        }
    }

    /// The lane of the next message, if one waits.
    #[must_use]
    pub fn peek(&self) -> Option<Lane> {
        let state = self.outbox.lock();
        if state.reader == self.number {
            state.queue.front().map(|item| item.lane)
        } else {
            None
        }
    }

    /// Waits until a message waits or none will come any more; takes nothing. `true` if one waits.
    pub async fn ready(&mut self) -> bool {
        std::future::poll_fn(|context| {
            let mut state = self.outbox.lock();
            if state.reader != self.number {
                return Poll::Ready(false);
            }
            if !state.queue.is_empty() || state.phase != Phase::Open {
                return Poll::Ready(!state.queue.is_empty());
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Stops reading before the reader is dropped; what is queued stays for the next one.
    pub fn detach(&mut self) {
        let mut state = self.outbox.lock();
        if state.reader == self.number {
            state.attached = false;
            state.waker = None;
            // No reader has this number any more.
            state.reader += 1;
        }
    }

    /// Whether a newer reader took over.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.outbox.lock().reader != self.number
    }

    /// The outbox it reads.
    #[must_use]
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }
}

impl Stream for OutboxReader {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let mut state = self.outbox.lock();
        if state.reader != self.number {
            return Poll::Ready(None);
        }
        if let Some(item) = state.pop() {
            return Poll::Ready(Some(item));
        }
        if state.phase != Phase::Open {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for OutboxReader {
    fn drop(&mut self) {
        self.detach();
    }
}

#[cfg(test)]
mod tests;
