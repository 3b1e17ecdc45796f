//! What was sent on the event streams of one legacy session, so that a host can take a broken stream up again.
//!
//! Event ids are `<stream>-<number>`, unique in the session and naming their stream. Only the stream that an id
//! belongs to is replayed, and nothing after its answer. What is kept is bounded in number, bytes and time. `S` is
//! the face's handle of a live stream; this module never sends and never waits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::wire::Outgoing;

/// The stream of messages that belong to no request.
pub const GENERAL: u64 = 0;

/// Bounds of what one session keeps.
#[derive(Clone, Copy, Debug)]
pub struct ReplayLimits {
    /// Events.
    pub events: usize,
    /// Bytes of events, and of the unread rest of streams that nobody reads.
    pub bytes: usize,
    /// How long an event, or the rest of a stream that nobody reads, is kept.
    pub keep: Duration,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self {
            events: 256,
            bytes: 4 * 1024 * 1024,
            keep: Duration::from_secs(5 * 60),
        }
    }
}

/// Streams whose last number is remembered after their end.
const REMEMBERED: usize = 256;

/// The place of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventId {
    /// The stream.
    pub stream: u64,
    /// The number within the stream, from 1; 0 is the start.
    pub number: u64,
}

impl EventId {
    /// Reads an id; `None` if it is not one of our spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (stream, number) = text.trim().split_once('-')?;
        let read = |digits: &str| {
            digits
                .bytes()
                .all(|b| b.is_ascii_digit())
                .then_some(digits)?
                .parse::<u64>()
                .ok()
        };
        Some(Self {
            stream: read(stream)?,
            number: read(number)?,
        })
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.stream, self.number)
    }
}

/// Why a stream cannot be taken up again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResumeFault {
    /// Not an event id of this session.
    #[error("no event of this session has that id")]
    Unknown,
    /// Messages after that event are no longer kept.
    #[error("the events after that id are no longer kept")]
    Lost,
}

/// A stream taken up again.
#[derive(Debug)]
pub struct Resumed<S> {
    /// Which stream.
    pub stream: u64,
    /// What was sent after the named event, in order.
    pub missed: Vec<(u64, Outgoing)>,
    /// The live rest; `None` if the stream ended with the last of `missed`.
    pub live: Option<S>,
}

#[derive(Debug)]
struct Kept {
    id: EventId,
    message: Outgoing,
    at: Instant,
}

#[derive(Debug)]
struct Open<S> {
    live: S,
    last: u64,
    /// Highest number that is no longer kept.
    forgotten: u64,
    /// Since when the stream is complete, with the bytes that nobody has read yet.
    finished: Option<(Instant, usize)>,
}

#[derive(Debug)]
struct Inner<S> {
    next: u64,
    open: HashMap<u64, Open<S>>,
    ended: VecDeque<(u64, Ended)>,
    events: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    last: u64,
    /// The rest was never read and is gone.
    lost: bool,
}

/// The record of one session.
#[derive(Debug)]
pub struct Replay<S> {
    limits: ReplayLimits,
    inner: Mutex<Inner<S>>,
}

impl<S: Clone> Replay<S> {
    /// A record with the general stream open.
    #[must_use]
    pub fn new(limits: ReplayLimits, general: S) -> Self {
        let mut open = HashMap::new();
        open.insert(
            GENERAL,
            Open {
                live: general,
                last: 0,
                forgotten: 0,
                finished: None,
            },
        );
        Self {
            limits,
            inner: Mutex::new(Inner {
                next: 0,
                open,
                ended: VecDeque::new(),
                events: VecDeque::new(),
                bytes: 0,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a stream and returns its number.
    pub fn open(&self, live: S) -> u64 {
        let mut inner = self.lock();
        inner.next += 1;
        let stream = inner.next;
        inner.open.insert(
            stream,
            Open {
                live,
                last: 0,
                forgotten: 0,
                finished: None,
            },
        );
        stream
    }

    /// Notes an event about to be written and returns its id.
    pub fn record(&self, stream: u64, message: Outgoing) -> EventId {
        let mut inner = self.lock();
        let number = match inner.open.get_mut(&stream) {
            Some(open) => {
                open.last += 1;
                open.last
            }
            None => return EventId { stream, number: 0 },
        };
        let id = EventId { stream, number };
        inner.bytes += message.len();
        inner.events.push_back(Kept {
            id,
            message,
            at: Instant::now(),
        });
        while inner.events.len() > self.limits.events || inner.bytes > self.limits.bytes {
            if !inner.forget_oldest() {
                break;
            }
        }
        id
    }

    /// The stream was written to its end.
    pub fn ended(&self, stream: u64) {
        if stream != GENERAL {
            self.lock().end(stream, false);
        }
    }

    /// The stream is complete, but nobody reads it; `unread` bytes of it wait for a host that comes back.
    pub fn finished(&self, stream: u64, unread: usize) {
        let mut inner = self.lock();
        if let Some(open) = inner.open.get_mut(&stream) {
            open.finished = Some((Instant::now(), unread));
        }
        loop {
            let waiting: usize = inner
                .open
                .values()
                .filter_map(|open| open.finished)
                .map(|(_, bytes)| bytes)
                .sum();
            if waiting <= self.limits.bytes {
                break;
            }
            let oldest = inner
                .open
                .iter()
                .filter_map(|(stream, open)| open.finished.map(|(at, _)| (at, *stream)))
                .min();
            let Some((_, oldest)) = oldest else { break };
            inner.end(oldest, true);
        }
    }

    /// Takes up the stream that `id` belongs to, after that event.
    ///
    /// # Errors
    /// If the id is not of this session, or events after it are gone.
    pub fn resume(&self, id: EventId) -> Result<Resumed<S>, ResumeFault> {
        let mut inner = self.lock();
        if id.stream > inner.next {
            return Err(ResumeFault::Unknown);
        }
        let missed: Vec<(u64, Outgoing)> = inner
            .events
            .iter()
            .filter(|kept| kept.id.stream == id.stream && kept.id.number > id.number)
            .map(|kept| (kept.id.number, kept.message.clone()))
            .collect();
        if let Some(open) = inner.open.get_mut(&id.stream) {
            if id.number > open.last {
                return Err(ResumeFault::Unknown);
            }
            if id.number < open.forgotten {
                return Err(ResumeFault::Lost);
            }
            open.finished = None;
            return Ok(Resumed {
                stream: id.stream,
                missed,
                live: Some(open.live.clone()),
            });
        }
        let ended = inner
            .ended
            .iter()
            .find(|(stream, _)| *stream == id.stream)
            .map(|(_, ended)| *ended);
        let complete = match ended {
            // Ended so long ago that its length is forgotten: it was read to its end.
            None => true,
            Some(ended) if id.number > ended.last => return Err(ResumeFault::Unknown),
            Some(ended) => !ended.lost && id.number + missed.len() as u64 == ended.last,
        };
        if complete {
            Ok(Resumed {
                stream: id.stream,
                missed,
                live: None,
            })
        } else {
            Err(ResumeFault::Lost)
        }
    }

    /// The session has ended: everything is forgotten, and `each` is called for every live stream.
    pub fn close(&self, each: impl Fn(&S)) {
        let live: Vec<S> = {
            let mut inner = self.lock();
            inner.events.clear();
            inner.bytes = 0;
            inner.open.drain().map(|(_, open)| open.live).collect()
        };
        live.iter().for_each(each);
    }

    /// Forgets what is older than the limit.
    pub fn sweep(&self) {
        let mut inner = self.lock();
        let now = Instant::now();
        let old = |at: Instant| now.duration_since(at) >= self.limits.keep;
        while inner.events.front().is_some_and(|kept| old(kept.at)) {
            inner.forget_oldest();
        }
        let gone: Vec<u64> = inner
            .open
            .iter()
            .filter(|(_, open)| open.finished.is_some_and(|(at, _)| old(at)))
            .map(|(stream, _)| *stream)
            .collect();
        for stream in gone {
            inner.end(stream, true);
        }
    }

    /// Events kept, and bytes of them.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.events.len(), inner.bytes)
    }

    /// Streams that are open, the general one included.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.lock().open.len()
    }
}

impl<S> Inner<S> {
    fn forget_oldest(&mut self) -> bool {
        let Some(kept) = self.events.pop_front() else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(kept.message.len());
        if let Some(open) = self.open.get_mut(&kept.id.stream) {
            open.forgotten = open.forgotten.max(kept.id.number);
        }
        true
    }

    fn end(&mut self, stream: u64, lost: bool) {
        let Some(open) = self.open.remove(&stream) else {
            return;
        };
        self.ended.push_back((
            stream,
            Ended {
                last: open.last,
                lost,
            },
        ));
        while self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
