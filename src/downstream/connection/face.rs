//! The connection as the pipeline sees it: a call needs a permit, and spends it.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::super::link::{Link, RequestHead};
use crate::pipeline::port::{CallFault, DownstreamConnection, OutboundCall};
use crate::policy::Permit;
use crate::revision::bridge::{self, OutboundMeta};
use crate::revision::{Family, Revision};
use crate::session::CapabilitySet;
use crate::wire::{Message, Outgoing, WireId};

use super::*;

impl DownstreamConnection for Connection {
    fn family(&self) -> Family {
        self.facts.get().map_or(Family::Legacy, |facts| facts.family)
    }

    fn revision(&self) -> Revision {
        self.facts
            .get()
            .map_or(Revision::newest_legacy(), |facts| facts.revision)
    }

    fn transport(&self) -> &'static str {
        self.link.get().map_or("none", Link::transport)
    }

    fn capabilities(&self) -> CapabilitySet {
        self.facts
            .get()
            .map_or(CapabilitySet::NONE, |facts| facts.capabilities)
    }

    fn call(
        self: Arc<Self>,
        permit: Permit,
        call: OutboundCall,
    ) -> BoxFuture<'static, Result<Message, CallFault>> {
        Box::pin(async move {
            // The permit is spent here: whoever holds a connection cannot call without one.
            drop(permit);
            let OutboundCall {
                message,
                mut splice,
                caller,
                sink,
                name,
                params,
            } = call;
            let (family, revision) = (self.family(), self.revision());
            let limits = self.facts.get().map(|facts| facts.limits);
            let method = message.method().unwrap_or_default().into_owned();
            let wants_token = method == "tools/call";
            let prepare = |id: WireId| {
                if let Some(span) = message.id_span() {
                    splice.replace(span, id.to_raw());
                }
                let token: Bytes = id.to_raw();
                let meta = OutboundMeta {
                    host: caller.revision.family(),
                    host_info: (&caller.host_name, &caller.host_version),
                    log_level: caller.wanted_log_level().map(crate::session::LogLevel::as_str),
                    family,
                    revision,
                    token,
                    wants_token,
                };
                bridge::outbound_meta(&message, &meta, &mut splice);
                splice.apply(message.bytes())
            };
            self.exchange(prepare, RequestHead { method, name, params }, sink, true, limits)
                .await
        })
    }

    fn notify(self: Arc<Self>, message: Outgoing) {
        if let Some(link) = self.link.get() {
            link.notify(&self, message);
        }
    }

    fn ask(
        self: Arc<Self>,
        method: &'static str,
        params: String,
    ) -> BoxFuture<'static, Result<Message, CallFault>> {
        Box::pin(async move {
            let limit = self.facts.get().map(|facts| facts.limits.idle);
            self.own_request(method, &params, None, limit).await
        })
    }
}
