//! Connections of legacy sessions: opened by the first call that needs one, told again what the session said,
//! closed with the session. Part of [`Server`]; it never decides whether a call is allowed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::super::connection::Connection;
use super::super::handshake::Opened;
use super::super::refresh;
use super::*;
use crate::config;
use crate::pipeline::port::{CallFault, DownstreamConnection, FaultKind};
use crate::runtime::tasks;
use crate::session::{Caller, CapabilitySet};
use crate::wire::json::quote;

impl Server {
    pub(super) fn slot_key(&self, caller: &Caller) -> Option<Arc<str>> {
        let session = caller.session.as_ref()?;
        match self.config.sharing {
            config::Sharing::Shared => None,
            config::Sharing::Identity => {
                Some(format!("{}#{}", caller.identity.key(), caller.capabilities.bits()).into())
            }
            config::Sharing::Auto | config::Sharing::Session => Some(session.label.clone()),
        }
    }

    /// The place of this caller's own connection, if it has been used.
    pub(super) fn slot(&self, caller: &Caller) -> Option<Arc<Slot>> {
        self.slots.get(&self.slot_key(caller)?).map(|slot| slot.clone())
    }

    pub(super) async fn open_dedicated(
        &self,
        caller: &Caller,
        key: Arc<str>,
    ) -> Result<Arc<Connection>, CallFault> {
        let slot = self.slots.entry(key).or_default().clone();
        slot.last_used.store(self.seconds(), Ordering::Relaxed);
        if let Some(connection) = slot.open() {
            return Ok(connection);
        }
        let mut held = slot.connection.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let again = held.is_some();
        let set = caller.capabilities;
        let connection = match self
            .spares
            .remove(&set.bits())
            .filter(|(_, spare)| !spare.is_closed())
        {
            Some((_, spare)) => spare,
            None => {
                self.make_room()?;
                let opened = self
                    .dial_legacy(set)
                    .await
                    .map_err(|fault| CallFault::unsent(fault.kind, self.failure(&fault)))?;
                self.learn(set, &opened);
                opened.connection
            }
        };
        if !matches!(self.config.sharing, config::Sharing::Identity) {
            connection.set_owner(caller.session.clone());
        }
        if caller
            .session
            .as_ref()
            .is_some_and(|session| session.ended.is_cancelled())
        {
            super::super::end(connection, "the session has ended");
            return Err(CallFault::unsent(FaultKind::Cancelled, "the session has ended"));
        }
        self.restore(&connection, caller, &slot, again);
        *held = Some(connection.clone());
        slot.current.store(Some(connection.clone()));
        Ok(connection)
    }

    /// Tells a new connection what the session has said before.
    pub(super) fn restore(&self, connection: &Arc<Connection>, caller: &Caller, slot: &Slot, again: bool) {
        let offers_logging = self
            .base_listing
            .load()
            .as_ref()
            .is_some_and(|listing| listing.offers.logging);
        if let Some(level) = caller.wanted_log_level().filter(|_| offers_logging) {
            let params = format!("{{\"level\":\"{}\"}}", level.as_str());
            let connection = connection.clone();
            tasks::spawn("restore log level", async move {
                let _ = connection.ask("logging/setLevel", params).await;
            });
        }
        if !again {
            return;
        }
        let uris: Vec<String> = slot.subscriptions().iter().cloned().collect();
        for uri in uris {
            let connection = connection.clone();
            tasks::spawn("restore subscription", async move {
                let _ = connection
                    .ask("resources/subscribe", format!("{{\"uri\":{}}}", quote(&uri)))
                    .await;
            });
        }
    }

    pub(super) fn make_room(&self) -> Result<(), CallFault> {
        let limit = self.shared.limits.connections_per_server;
        if self.connections().len() < limit {
            return Ok(());
        }
        let text = format!(
            "server \"{}\" has reached limits.connections_per_server ({limit})",
            self.name
        );
        Err(CallFault::unsent(FaultKind::Busy, text))
    }

    /// A connection with this set has been opened: its listing is read if there is none, or an old one.
    pub(super) fn learn(&self, set: CapabilitySet, opened: &Opened) {
        let Some(server) = self.me.upgrade().filter(|_| !self.is_base_set(set)) else {
            return;
        };
        if self.listings.contains_key(&set.bits()) {
            return;
        }
        let opened = opened.clone();
        tasks::spawn("first listing", async move {
            let read = refresh::read_all(&opened.connection, &opened, &server.shared.limits).await;
            let Some((listing, late)) = read else { return };
            server.publish(Some(set), listing);
            for kind in late {
                server.mark_stale(Some(set), kind);
            }
        });
    }

    /// Opens a connection only to learn what the server offers hosts with this set; once per set.
    pub(super) async fn probe_set(&self, set: CapabilitySet) {
        let gate = self.probing.entry(set.bits()).or_default().clone();
        let mut failed = gate.lock().await;
        let lately = failed.is_some_and(|at| at.elapsed() < Duration::from_secs(30));
        if lately || self.listings.contains_key(&set.bits()) || self.make_room().is_err() {
            return;
        }
        match self.dial_legacy(set).await {
            Ok(opened) => {
                let read = refresh::read_all(&opened.connection, &opened, &self.shared.limits).await;
                let Some((listing, _)) = read else {
                    *failed = Some(Instant::now());
                    return;
                };
                self.publish(Some(set), listing);
                if let Some(old) = self.spares.insert(set.bits(), opened.connection) {
                    super::super::end(old, "replaced");
                }
            }
            Err(fault) => {
                *failed = Some(Instant::now());
                tracing::debug!(server = %self.name, %fault, "could not list for another capability set");
            }
        }
    }

    pub(super) fn seconds(&self) -> u64 {
        self.opened.elapsed().as_secs()
    }

    /// Closes connections that nobody has used for long. Called by the janitor.
    pub fn close_idle(&self) {
        let idle = self.shared.limits.connection_idle.as_secs();
        let now = self.seconds();
        let old: Vec<Arc<Slot>> = self
            .slots
            .iter()
            .filter(|entry| now.saturating_sub(entry.value().last_used.load(Ordering::Relaxed)) >= idle)
            .map(|entry| entry.value().clone())
            .collect();
        for slot in old {
            // Updates would be lost on a closed connection: one with subscriptions stays.
            if let Some(connection) = slot
                .current
                .load_full()
                .filter(|connection| connection.calls_in_flight() == 0 && slot.subscriptions().is_empty())
            {
                slot.current.store(None);
                super::super::end(connection, "idle");
            }
        }
        let spares: Vec<u16> = self.spares.iter().map(|entry| *entry.key()).collect();
        for bits in spares {
            if let Some((_, spare)) = self.spares.remove(&bits) {
                super::super::end(spare, "idle");
            }
        }
    }
}

impl Slot {
    /// The connection, if it is open.
    pub(super) fn open(&self) -> Option<Arc<Connection>> {
        self.current
            .load_full()
            .filter(|connection| !connection.is_closed())
    }

    /// What a new connection must be told again.
    pub(super) fn subscriptions(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.subscriptions
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A dedicated connection of one legacy session; opened by the first call that needs it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Held while opening, so that many first calls open one connection.
    pub(super) connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// The same, for those who only want to know.
    pub(super) current: ArcSwapOption<Connection>,
    subscriptions: Mutex<BTreeSet<String>>,
    pub(super) last_used: AtomicU64,
}
