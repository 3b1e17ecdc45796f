//! The server as the pipeline sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;

use super::super::state::Phase;
use super::*;
use crate::catalog::listing::Listing;
use crate::config;
use crate::pipeline::port::{CallFault, Downstream, DownstreamConnection, FaultKind};
use crate::revision::Family;
use crate::runtime::tasks;
use crate::session::{Caller, CapabilitySet, Session};
use crate::wire::json::quote;

impl Downstream for Server {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn family(&self) -> Option<Family> {
        self.known_family()
    }

    fn listing(&self, set: Option<CapabilitySet>) -> Option<Arc<Listing>> {
        set.and_then(|set| self.exact_listing(set))
            .or_else(|| self.base_listing.load_full())
    }

    fn listed(&self, set: Option<CapabilitySet>) -> BoxFuture<'_, ()> {
        let new_set = |set: CapabilitySet| {
            let base_is_theirs = self.shared.single_host && self.known_family() == Some(Family::Legacy);
            let known = self.is_base_set(set) || self.listings.contains_key(&set.bits());
            self.serves_legacy() && !base_is_theirs && !known
        };
        if self.base_listing.load().is_some() && !set.is_some_and(new_set) {
            return Box::pin(std::future::ready(()));
        }
        Box::pin(async move {
            let mut listed = self.listed.subscribe();
            let since = self.running_since.get().copied().unwrap_or_else(Instant::now);
            let deadline = since + self.shared.start_wait;
            while self.base_listing.load().is_none() && !self.stop.is_cancelled() {
                let failed = self.state.borrow().phase == Phase::Failed;
                // One wait for a slow start, not one for each list that a host asks for.
                if failed
                    || !matches!(
                        tokio::time::timeout_at(deadline, listed.changed()).await,
                        Ok(Ok(()))
                    )
                {
                    return;
                }
            }
            // A task of its own: a list that waits no longer must not end the attempt.
            if let (Some(set), Some(server)) = (set.filter(|set| new_set(*set)), self.me.upgrade()) {
                let _ = tasks::spawn(
                    "list for a capability set",
                    async move { server.probe_set(set).await },
                )
                .await;
            }
        })
    }

    fn open<'a>(
        &'a self,
        caller: &'a Arc<Caller>,
    ) -> BoxFuture<'a, Result<Arc<dyn DownstreamConnection>, CallFault>> {
        if let Some(slot) = self.slot(caller)
            && let Some(connection) = slot.open()
        {
            // A connection of its own serves the session, however the base connection is doing.
            slot.last_used.store(self.seconds(), Ordering::Relaxed);
            return Box::pin(std::future::ready(Ok(connection as _)));
        }
        Box::pin(async move {
            let base = self.ready_base().await?;
            let modern = base.facts().is_some_and(|facts| facts.family == Family::Modern);
            let Some(key) = self.slot_key(caller).filter(|_| self.serves_legacy()) else {
                return Ok(base as _);
            };
            if self.shared.single_host && !modern {
                if base.owner().is_none() {
                    base.set_owner(caller.session.clone());
                    let slot = self.slots.entry(key).or_default().clone();
                    let again = slot.last_used.swap(self.seconds().max(1), Ordering::Relaxed) > 0;
                    self.restore(&base, caller, &slot, again);
                }
                return Ok(base as _);
            }
            match self.open_dedicated(caller, key).await {
                Ok(connection) => Ok(connection as _),
                // A modern server without a legacy side still serves what needs no bridging.
                Err(_) if modern && !self.serves_legacy() => Ok(base as _),
                Err(fault) => Err(fault),
            }
        })
    }

    fn opened(&self, caller: &Arc<Caller>) -> Option<Arc<dyn DownstreamConnection>> {
        self.slot_key(caller)?;
        if self.shared.single_host && self.known_family() == Some(Family::Legacy) {
            return self.base().map(|connection| connection as _);
        }
        self.slot(caller)?.open().map(|connection| connection as _)
    }

    fn admit(&self) -> BoxFuture<'_, Result<OwnedSemaphorePermit, CallFault>> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Box::pin(std::future::ready(Ok(place)));
        }
        Box::pin(async move {
            struct Queued<'a>(&'a AtomicUsize);
            impl Drop for Queued<'_> {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, Ordering::Relaxed);
                }
            }
            let busy =
                |what: &str| CallFault::unsent(FaultKind::Busy, format!("server \"{}\": {what}", self.name));
            if self.queued.fetch_add(1, Ordering::Relaxed) >= self.config.queue {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                return Err(busy("its queue is full; try again later"));
            }
            let _queued = Queued(&self.queued);
            match tokio::time::timeout(self.config.idle_timeout, self.places.clone().acquire_owned()).await {
                Ok(Ok(place)) => Ok(place),
                _ => Err(busy("no call has ended within idle_timeout; try again later")),
            }
        })
    }

    fn roots(&self) -> Option<String> {
        if self.config.roots.is_empty() {
            return None;
        }
        let roots: Vec<String> = self
            .config
            .roots
            .iter()
            .map(|uri| format!("{{\"uri\":{}}}", quote(uri)))
            .collect();
        Some(format!("{{\"roots\":[{}]}}", roots.join(",")))
    }

    fn watch(&self, uris: Vec<String>, tasks: Vec<String>) -> BoxFuture<'static, ()> {
        let wanted = Watched { uris, tasks };
        self.watched.send_if_modified(|now| {
            let changed = *now != wanted;
            if changed {
                now.clone_from(&wanted);
            }
            changed
        });
        let mut heard = self.heard.subscribe();
        Box::pin(async move {
            let all_of = |wanted: &[String], now: &[String]| wanted.iter().all(|one| now.contains(one));
            let _ = heard
                .wait_for(|now| all_of(&wanted.uris, &now.uris) && all_of(&wanted.tasks, &now.tasks))
                .await;
        })
    }

    fn subscribed(&self, caller: &Arc<Caller>, uri: &str) -> bool {
        self.slot(caller).is_some_and(|slot| {
            slot.subscriptions()
                .iter()
                .any(|watched| crate::pipeline::listen::concerns(watched, uri))
        })
    }

    fn note_subscription(&self, caller: &Arc<Caller>, uri: &str, on: bool) {
        let Some(key) = self.slot_key(caller) else { return };
        if on {
            let slot = self.slots.entry(key).or_default().clone();
            slot.subscriptions().insert(uri.to_owned());
        } else if let Some(slot) = self.slot(caller) {
            slot.subscriptions().remove(uri);
        }
    }

    fn session_ended(&self, session: &Arc<Session>) {
        if self.shared.single_host || matches!(self.config.sharing, config::Sharing::Identity) {
            return;
        }
        if let Some((_, slot)) = self.slots.remove(&session.label)
            && let Some(connection) = slot.current.swap(None)
        {
            connection.set_owner(None);
            super::super::end(connection, "the session has ended");
        }
    }
}
