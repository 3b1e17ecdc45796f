//! Passes on what connections report. Readers call it, so it never waits.

use std::sync::{Arc, Weak};

use super::super::connection::{Connection, Hooks};
use super::super::refresh::{self};
use super::*;
use crate::pipeline::port::{DownstreamEvents, Responder};
use crate::session::CapabilitySet;
use crate::wire::{HostId, Message};

/// Passes reports of connections on, without keeping the server alive.
#[derive(Debug)]
pub(super) struct ServerHooks {
    pub(super) server: Weak<Server>,
    pub(super) name: Arc<str>,
    pub(super) events: Arc<dyn DownstreamEvents>,
}

impl Hooks for ServerHooks {
    fn list_changed(&self, connection: &Arc<Connection>, method: &str) {
        let Some(server) = self.server.upgrade() else {
            return;
        };
        let is_base = server
            .base
            .load()
            .as_ref()
            .is_some_and(|base| Arc::ptr_eq(base, connection));
        let set = connection
            .facts()
            .map_or(CapabilitySet::NONE, |facts| facts.capabilities);
        for kind in refresh::kinds_of(method) {
            server.mark_stale((!is_base).then_some(set), *kind);
        }
    }

    fn acknowledged(&self) {
        if let Some(server) = self.server.upgrade() {
            server.acknowledgements.send_modify(|count| *count += 1);
        }
    }

    fn notice(&self, connection: &Arc<Connection>, message: Message) {
        let owner = connection.owner();
        match message.method().as_deref() {
            Some("notifications/resources/updated") => {
                self.events.resource_updated(&self.name, owner.as_ref(), &message);
            }
            _ => self.events.notice(&self.name, owner.as_ref(), message),
        }
    }

    fn reverse(&self, connection: &Arc<Connection>, message: Message, responder: Responder) {
        self.events
            .reverse(&self.name, connection.owner().as_ref(), message, responder);
    }

    fn withdrawn(&self, connection: &Arc<Connection>, id: &HostId, message: &Message) {
        self.events
            .withdrawn(&self.name, connection.owner().as_ref(), id, message);
    }

    fn closed(&self, connection: &Arc<Connection>, why: &str) {
        tracing::debug!(server = %self.name, late = connection.late_answers(), "connection ended: {why}");
    }
}
