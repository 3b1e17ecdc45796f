//! The open requests of one host connection or session, so that a cancellation finds the right one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::wire::HostId;

/// Open requests by the host's own id.
#[derive(Debug, Default)]
pub struct InFlight {
    // A plain map: there is one per session, and a sharded one would cost kilobytes for each core.
    open: Mutex<HashMap<HostId, CancellationToken>>,
}

/// Keeps a request in the table; dropping it takes it out.
#[derive(Debug)]
pub struct InFlightGuard {
    table: std::sync::Arc<InFlight>,
    id: HostId,
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, HashMap<HostId, CancellationToken>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an open request. `None` if one with the same id is still open: answer that with -32600.
    #[must_use]
    pub fn open(self: &std::sync::Arc<Self>, id: HostId, cancel: CancellationToken) -> Option<InFlightGuard> {
        match self.lock().entry(id.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                vacant.insert(cancel);
                Some(InFlightGuard {
                    table: self.clone(),
                    id,
                })
            }
        }
    }

    /// Cancels an open request. A cancellation for an id that is not open is everyday traffic: `false`, nothing else.
    pub fn cancel(&self, id: &HostId) -> bool {
        let found = self.lock().get(id).cloned();
        found.is_some_and(|token| {
            token.cancel();
            true
        })
    }

    /// Cancels everything that is open.
    pub fn cancel_all(&self) {
        let all: Vec<CancellationToken> = self.lock().values().cloned().collect();
        for token in all {
            token.cancel();
        }
    }

    /// How many requests are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.table.lock().remove(&self.id);
    }
}
