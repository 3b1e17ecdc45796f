//! Reverse requests that wait for a host: our ids, and who gets the answer.
//!
//! Ids count up per session and are never forwarded from a server (two servers both use 1). An answer goes to
//! the session that was asked, once; anything else is refused.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use crate::wire::{Message, Outgoing};

/// What came back for a reverse request.
#[derive(Debug)]
pub enum ReverseAnswer {
    /// The host answered: a result or an error response, with the host's id still in it.
    Answered(Message),
    /// The host is gone or did not answer in time.
    Gone,
}

/// What an arriving response turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReverseVerdict {
    /// It answered an open reverse request.
    Accepted,
    /// That request was answered before; taken in silence.
    AlreadyAnswered,
    /// No such request was ever made to this host.
    Unknown,
}

type Deliver = Box<dyn FnOnce(ReverseAnswer) + Send>;

struct Waiting {
    deliver: Deliver,
    /// How to pass on progress that the host reports for the reverse request.
    progress: Option<Box<dyn Fn(Message) + Send>>,
}

#[derive(Default)]
struct Table {
    next: u64,
    waiting: HashMap<u64, Waiting>,
    closed: bool,
}

/// The table of one session.
#[derive(Default)]
pub struct ReverseTable {
    table: Mutex<Table>,
}

impl fmt::Debug for ReverseTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReverseTable")
            .field("waiting", &self.len())
            .finish()
    }
}

impl ReverseTable {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Registers a reverse request and returns our id for it; `None` if the session has ended.
    /// `deliver` runs exactly once; it must not wait.
    pub fn ask(
        &self,
        deliver: impl FnOnce(ReverseAnswer) + Send + 'static,
        progress: Option<Box<dyn Fn(Message) + Send>>,
    ) -> Option<u64> {
        let mut table = self.lock();
        if table.closed {
            return None;
        }
        table.next += 1;
        let id = table.next;
        table.waiting.insert(
            id,
            Waiting {
                deliver: Box::new(deliver),
                progress,
            },
        );
        Some(id)
    }

    /// Hands an arriving response to whoever waits for it.
    pub fn answer(&self, message: Message) -> ReverseVerdict {
        let Some(id) = message.wire_id().map(|id| id.0) else {
            return ReverseVerdict::Unknown;
        };
        let waiting = {
            let mut table = self.lock();
            match table.waiting.remove(&id) {
                Some(waiting) => waiting,
                None if id >= 1 && id <= table.next => return ReverseVerdict::AlreadyAnswered,
                None => return ReverseVerdict::Unknown,
            }
        };
        (waiting.deliver)(ReverseAnswer::Answered(message));
        ReverseVerdict::Accepted
    }

    /// Passes the host's progress on an open reverse request to the server; `false` if there is none.
    pub fn progress(&self, id: u64, message: Message) -> bool {
        let table = self.lock();
        match table
            .waiting
            .get(&id)
            .and_then(|waiting| waiting.progress.as_ref())
        {
            Some(forward) => {
                forward(message);
                true
            }
            None => false,
        }
    }

    /// Forgets a reverse request, because the server withdrew it or its call ended. `true` if it was open.
    pub fn forget(&self, id: u64) -> bool {
        self.lock().waiting.remove(&id).is_some()
    }

    /// The session has ended: everyone who waits is told, nobody may ask any more.
    pub fn close(&self) {
        let waiting: Vec<Waiting> = {
            let mut table = self.lock();
            table.closed = true;
            table.waiting.drain().map(|(_, waiting)| waiting).collect()
        };
        for one in waiting {
            (one.deliver)(ReverseAnswer::Gone);
        }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The message that withdraws a reverse request from a host.
#[must_use]
pub fn withdrawal(id: u64, reason: Option<&str>) -> Outgoing {
    let reason = reason
        .map(|text| format!(",\"reason\":{}", crate::wire::json::quote(text)))
        .unwrap_or_default();
    Outgoing::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}{reason}}}}}"
    ))
}
