//! Reading, keeping and listening for what the server offers. Part of the supervisor; nobody else calls it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::connection::Connection;
use super::super::refresh::{self, Wanted};
use super::*;
use crate::catalog::ListKind;
use crate::catalog::listing::Listing;
use crate::revision::Family;
use crate::runtime::tasks;
use crate::session::CapabilitySet;

impl Server {
    pub(super) async fn read_again(self: &Arc<Self>, wanted: &BTreeSet<Wanted>) {
        let mut sets: BTreeSet<Option<u16>> = wanted.iter().map(|wanted| wanted.set).collect();
        let base_changed = sets.contains(&None);
        if base_changed {
            // What the base connection was told may hold for the other sets too.
            sets.extend(self.listings.iter().map(|entry| Some(*entry.key())));
        }
        for bits in sets {
            let set = bits.map(CapabilitySet::from_bits);
            let (connection, old) = match set {
                None => (self.base(), self.base_listing.load_full()),
                Some(set) => (self.connection_with(set), self.exact_listing(set)),
            };
            let (Some(connection), Some(old)) = (connection, old) else {
                continue;
            };
            let kinds: Vec<ListKind> = wanted
                .iter()
                .filter(|wanted| wanted.set == bits || (base_changed && wanted.set.is_none()))
                .map(|wanted| wanted.kind)
                .collect();
            let listing = refresh::read_kinds(&connection, &old, &kinds, &self.shared.limits).await;
            self.publish(set, listing);
        }
    }

    pub(super) fn connection_with(&self, set: CapabilitySet) -> Option<Arc<Connection>> {
        let fits = |connection: &Arc<Connection>| {
            connection
                .facts()
                .is_some_and(|facts| facts.capabilities == set && facts.family == Family::Legacy)
        };
        self.connections().into_iter().find(fits)
    }

    pub(super) fn exact_listing(&self, set: CapabilitySet) -> Option<Arc<Listing>> {
        if self.is_base_set(set) {
            return self.base_listing.load_full();
        }
        self.listings.get(&set.bits()).map(|listing| listing.clone())
    }

    /// Keeps a listing of one capability set, or (`None`) of the base connection.
    pub(super) fn publish(&self, set: Option<CapabilitySet>, listing: Listing) {
        let old = match set {
            None => self.base_listing.load_full(),
            Some(set) => self.listings.get(&set.bits()).map(|listing| listing.clone()),
        };
        let changed = old.is_none_or(|old| !old.same_items(&listing));
        if let Some(dir) = self.shared.records.as_ref().filter(|_| changed) {
            // What the legacy side of a server says must not be taken for what it is to modern hosts: the record of the
            // base connection tells the next start which family to try first.
            let legacy = self.prefer_legacy.load(Ordering::Acquire);
            refresh::save(
                dir,
                &self.config,
                set.or_else(|| legacy.then(|| self.base_set())),
                &listing,
            );
        }
        let listing = Arc::new(listing);
        match set {
            None => self.base_listing.store(Some(listing)),
            Some(set) => {
                self.listings.insert(set.bits(), listing);
            }
        }
        if changed {
            self.shared.events.listings_changed();
        }
        self.note_listed();
    }

    pub(super) fn note_listed(&self) {
        self.listed.send_modify(|count| *count += 1);
    }

    pub(super) fn lock_stale(&self) -> std::sync::MutexGuard<'_, BTreeSet<Wanted>> {
        self.stale
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn mark_stale(&self, set: Option<CapabilitySet>, kind: ListKind) {
        // A session's own connection with the base's capabilities has no listing of its own: the base's is meant.
        let set = set.filter(|set| !self.is_base_set(*set));
        self.lock_stale().insert(Wanted {
            set: set.map(CapabilitySet::bits),
            kind,
        });
        self.refresh.notify_one();
    }

    /// Keeps one `subscriptions/listen` open on a modern base connection, with what hosts want to hear of. When that
    /// changes, the next stream is opened and acknowledged before the one that stands is given up, so that nothing
    /// falls between the two.
    pub(super) fn listen(self: &Arc<Self>, connection: &Arc<Connection>) {
        let (server, connection) = (self.clone(), connection.clone());
        tasks::spawn("listen", async move {
            server.keep_listening(&connection).await;
            server.heard.send_replace(Watched::default());
        });
    }

    async fn keep_listening(&self, connection: &Arc<Connection>) {
        /// How long an acknowledgement may take before the new stream is trusted without one.
        const ACKNOWLEDGED: Duration = Duration::from_secs(5);
        const SHORTEST: Duration = Duration::from_millis(200);
        let mut watched = self.watched.subscribe();
        let mut acknowledged = self.acknowledgements.subscribe();
        let mut delay = SHORTEST;
        let mut began = Instant::now();
        let mut standing = None;
        while !connection.is_closed() {
            let wanted = watched.borrow_and_update().clone();
            let filter =
                refresh::listen_filter(self.base_listing.load().as_deref(), &wanted.uris, &wanted.tasks);
            let ended = match filter {
                None => {
                    standing = None;
                    None
                }
                Some(filter) => {
                    acknowledged.borrow_and_update();
                    let stream = connection.clone();
                    let mut opening = AbortOnDropHandle::new(tasks::spawn("listen stream", async move {
                        stream
                            .own_request("subscriptions/listen", &filter, None, None)
                            .await
                    }));
                    tokio::select! {
                        ended = &mut opening => Some(ended),
                        // Wanted otherwise before it was acknowledged: what stands goes on until the next one is.
                        done = watched.changed() => if done.is_err() { return } else { continue },
                        _ = tokio::time::timeout(ACKNOWLEDGED, acknowledged.changed()) => {
                            began = Instant::now();
                            self.heard.send_replace(wanted);
                            // The older stream ends here.
                            standing = Some(opening);
                            None
                        }
                    }
                }
            };
            let ended = match (ended, standing.as_mut()) {
                (Some(ended), _) => ended,
                (None, None) => tokio::select! {
                    () = connection.ended() => return,
                    done = watched.changed() => if done.is_err() { return } else { continue },
                },
                (None, Some(stream)) => tokio::select! {
                    ended = stream => ended,
                    done = watched.changed() => if done.is_err() { return } else { continue },
                },
            };
            standing = None;
            if let Ok(Ok(message)) = &ended
                && message.kind() == crate::wire::Kind::Error
            {
                tracing::debug!(server = %self.name, "the server refuses subscriptions/listen");
                return;
            }
            if connection.is_closed() {
                return;
            }
            // Whatever changed meanwhile was not told.
            self.heard.send_replace(Watched::default());
            for kind in ListKind::ALL {
                self.mark_stale(None, kind);
            }
            if began.elapsed() > Duration::from_secs(30) {
                delay = SHORTEST;
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(Duration::from_secs(30));
        }
    }
}
