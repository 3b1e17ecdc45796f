//! Batches over Streamable HTTP, for sessions of 2025-03-26 and nobody else.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::host::edge::Accepts;
use crate::host::fault::{self, Fault};
use crate::host::http::{Answer, Peer, empty, refuse};
use crate::host::slot::{Batch, Slot};
use crate::host::{Shared, batch};
use crate::wire::Kind;

use super::legacy::{self, LegacyCall};

/// Answers a `POST` whose body is an array.
pub(super) async fn post(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    headers: &HeaderMap,
    accepts: Accepts,
    bytes: &Bytes,
) -> Answer {
    let entry = legacy::find(shared, headers).filter(|entry| entry.session.identity == peer.identity);
    let may = entry
        .as_ref()
        .is_some_and(|entry| entry.caller.revision.features().batches);
    let (parts, entry) = match (batch::parts(bytes, &shared.settings, may), entry) {
        (Ok(parts), Some(entry)) => (parts, entry),
        (Err(fault), _) => return refuse(shared, peer, &fault, None),
        (Ok(_), None) => {
            let fault = Fault::new(
                400,
                fault::INVALID_REQUEST,
                "batch",
                "a batch is not allowed here",
            );
            return refuse(shared, peer, &fault, None);
        }
    };
    let call = LegacyCall::new(shared, accepts);
    let reader = call.outbox.attach();
    let (complete, of) = (call.clone(), entry.clone());
    let then = Box::new(move || complete.complete(&of));
    let gathered = Batch::new(call.outbox.clone(), parts.answers, Some(then));
    for refusal in parts.refusals {
        gathered.add(Some(refusal));
    }
    for message in parts.messages {
        let (Kind::Request, Some(id)) = (message.kind(), message.id()) else {
            // A response nobody waits for has no answer of its own here; it is recorded all the same.
            if let Err(fault) = legacy::take(shared, &entry, message) {
                shared
                    .service
                    .rejected(peer.transport, fault.what, &fault.message);
            }
            continue;
        };
        let slot = Slot::of(gathered.clone(), id.clone());
        let method = message.method().unwrap_or_default().into_owned();
        match method.as_str() {
            "ping" => slot.fill(Some(fault::result(&id, "{}"))),
            "initialize" => slot.refuse(&Fault::new(
                400,
                fault::INVALID_REQUEST,
                "batch",
                "initialize may not stand in a batch",
            )),
            _ => match call.admit(shared, &entry, message, &id) {
                Ok((request, guard)) => legacy::run(shared, &entry, request, guard, slot),
                Err(fault) => slot.refuse(&fault),
            },
        }
    }
    if parts.answers == 0 {
        return empty(StatusCode::ACCEPTED);
    }
    call.answer(shared, entry, reader, accepts).await
}
