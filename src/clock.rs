//! Wall time and monotonic time behind one trait, so that tests can move both by hand.
//!
//! Everyone may use it; it imports nothing of ours. Wall time is for people and records and may jump; durations and
//! deadlines are made from monotonic time only. Timers that a task waits on are Tokio's and follow its paused time.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// Where the time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time of day, UTC. May jump in either direction.
    fn wall(&self) -> Timestamp;
    /// A point that only ever moves forward.
    fn monotonic(&self) -> Instant;
}

/// A clock that is shared between the parts of one daemon.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The machine's clocks in the form that everything takes.
    #[must_use]
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// A clock that stands still until it is moved. Clones share one time.
#[derive(Clone, Debug)]
pub struct FakeClock(Arc<Mutex<FakeTime>>);

#[derive(Debug)]
struct FakeTime {
    wall: Timestamp,
    monotonic: Instant,
}

impl FakeClock {
    /// A clock that stands at `wall`.
    #[must_use]
    pub fn at(wall: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(FakeTime {
            wall,
            monotonic: Instant::now(),
        })))
    }

    /// Moves both times forward.
    pub fn advance(&self, by: Duration) {
        let mut time = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let signed = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        time.wall = time.wall.saturating_add(signed).unwrap_or(Timestamp::MAX);
        time.monotonic += by;
    }

    /// Sets the time of day alone, as an operator or a time server does.
    pub fn set_wall(&self, wall: Timestamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wall = wall;
    }
}

impl Clock for FakeClock {
    fn wall(&self) -> Timestamp {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wall
    }

    fn monotonic(&self) -> Instant {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).monotonic
    }
}

#[cfg(test)]
mod tests;
