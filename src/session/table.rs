//! The legacy sessions that are alive, with their caps and their idle expiry.
//!
//! Host faces put sessions in and look them up; the janitor sweeps. Ending a session happens here and only here, so
//! that it is the same whatever ended it: everything waiting is told, then the owner's call-back runs once. `X` is
//! what the face keeps beside a session.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::identity::Identity;

use super::{Caller, Session};

/// Bounds of the table.
#[derive(Clone, Copy, Debug)]
pub struct TableLimits {
    /// Sessions in all.
    pub total: usize,
    /// Sessions of one identity.
    pub per_identity: usize,
    /// A session without traffic, open streams and open requests is ended after this long.
    pub idle: Duration,
}

/// Why no further session is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableFull {
    /// The table is full.
    #[error("too many sessions are open; try again later")]
    Total,
    /// This identity has too many.
    #[error("this caller has too many open sessions; end some or try again later")]
    Identity,
}

/// One session of the table.
#[derive(Debug)]
pub struct Entry<X> {
    /// The session.
    pub session: Arc<Session>,
    /// Its caller.
    pub caller: Arc<Caller>,
    /// What the face keeps beside it.
    pub face: X,
    /// Streams open now; a session with one is not idle.
    streams: AtomicUsize,
    /// Milliseconds after the table was made.
    used: AtomicU64,
}

impl<X> Entry<X> {
    /// A session not yet in a table.
    #[must_use]
    pub fn new(session: Arc<Session>, caller: Arc<Caller>, face: X) -> Self {
        Self {
            session,
            caller,
            face,
            streams: AtomicUsize::new(0),
            used: AtomicU64::new(0),
        }
    }

    /// Counts an open stream of the session until the guard is dropped.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> StreamHold<X> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        StreamHold(self.clone())
    }

    /// Streams open now.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }
}

/// Keeps a session from being idle.
#[derive(Debug)]
pub struct StreamHold<X>(Arc<Entry<X>>);

impl<X> Drop for StreamHold<X> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

type OnEnd<X> = Box<dyn Fn(&Arc<Entry<X>>) + Send + Sync>;

/// The table.
pub struct SessionTable<X> {
    entries: DashMap<Arc<str>, Arc<Entry<X>>>,
    counts: Mutex<Counts>,
    limits: TableLimits,
    start: Instant,
    on_end: OnEnd<X>,
}

#[derive(Default)]
struct Counts {
    total: usize,
    by_identity: HashMap<Identity, usize>,
}

impl<X> fmt::Debug for SessionTable<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionTable")
            .field("sessions", &self.len())
            .finish_non_exhaustive()
    }
}

impl<X> SessionTable<X> {
    /// An empty table; `on_end` runs once for each session that ended, after everything waiting was told.
    #[must_use]
    pub fn new(limits: TableLimits, on_end: impl Fn(&Arc<Entry<X>>) + Send + Sync + 'static) -> Self {
        Self {
            entries: DashMap::new(),
            counts: Mutex::new(Counts::default()),
            limits,
            start: Instant::now(),
            on_end: Box::new(on_end),
        }
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Puts a session in.
    ///
    /// # Errors
    /// If a cap is reached; the session is then not in the table and nothing was called.
    pub fn insert(&self, entry: Arc<Entry<X>>) -> Result<(), TableFull> {
        {
            let mut counts = self.counts();
            if counts.total >= self.limits.total {
                return Err(TableFull::Total);
            }
            let of_identity = counts
                .by_identity
                .entry(entry.session.identity.clone())
                .or_default();
            if *of_identity >= self.limits.per_identity {
                return Err(TableFull::Identity);
            }
            *of_identity += 1;
            counts.total += 1;
        }
        entry.used.store(self.now(), Ordering::Relaxed);
        self.entries.insert(entry.session.id.clone(), entry);
        Ok(())
    }

    /// The live session with that id; counts as traffic.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<Entry<X>>> {
        let entry = self.entries.get(id).map(|entry| entry.value().clone())?;
        entry.used.store(self.now(), Ordering::Relaxed);
        Some(entry)
    }

    /// Ends a session: open requests are cancelled, waiting reverse requests told. `false` if there is none.
    pub fn end(&self, id: &str) -> bool {
        let Some((_, entry)) = self.entries.remove(id) else {
            return false;
        };
        {
            let mut counts = self.counts();
            counts.total = counts.total.saturating_sub(1);
            if let Some(of_identity) = counts.by_identity.get_mut(&entry.session.identity) {
                *of_identity -= 1;
                if *of_identity == 0 {
                    counts.by_identity.remove(&entry.session.identity);
                }
            }
        }
        entry.session.ended.cancel();
        entry.session.in_flight.cancel_all();
        entry.session.reverse.close();
        (self.on_end)(&entry);
        true
    }

    /// Ends the sessions that were idle for too long and returns how many there were.
    pub fn sweep(&self) -> usize {
        let now = self.now();
        let idle = u64::try_from(self.limits.idle.as_millis()).unwrap_or(u64::MAX);
        let mut gone = Vec::new();
        for entry in &self.entries {
            let busy = entry.streams() > 0 || !entry.session.in_flight.is_empty();
            if busy {
                entry.used.store(now, Ordering::Relaxed);
            } else if now.saturating_sub(entry.used.load(Ordering::Relaxed)) >= idle {
                gone.push(entry.key().clone());
            }
        }
        gone.into_iter().filter(|id| self.end(id)).count()
    }

    /// All live sessions.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Entry<X>>> {
        self.entries.iter().map(|entry| entry.value().clone()).collect()
    }

    /// Ends every session.
    pub fn end_all(&self) {
        for entry in self.all() {
            self.end(&entry.session.id);
        }
    }

    /// How many sessions are alive.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts().total
    }

    /// Whether none is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
