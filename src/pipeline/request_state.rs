//! `requestState` of servers, sealed for hosts: bound to identity, server, request and a time of life. What a host
//! sends back is an attacker's input until it has been opened here.

use std::time::Duration;

use bytes::Bytes;

use super::fault::Fault;
use super::gateway::Gateway;
use crate::session::Caller;
use crate::wire::json::{Span, unquote};
use crate::wire::{Member, Message};

/// How long a state that we sealed may be used.
const STATE_LIFE: Duration = Duration::from_secs(3600);
const STATE_PURPOSE: &str = "request state";

impl Gateway {
    /// What a sealed state is bound to, besides its inner text.
    pub(super) fn state_context(caller: &Caller, server: &str, message: &Message, method: &str) -> String {
        let subject = message
            .raw(Member::Name)
            .or_else(|| message.raw(Member::Uri))
            .unwrap_or_default();
        let arguments: Vec<u8> = message
            .raw(Member::Arguments)
            .unwrap_or(b"{}")
            .iter()
            .copied()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        let digest = crate::crypto::sha256_hex(
            &[
                method.as_bytes(),
                b"\0",
                unquote(subject).as_bytes(),
                b"\0",
                &arguments,
            ]
            .concat(),
        );
        format!("{}\n{server}\n{digest}", caller.identity.key())
    }

    pub(super) fn seal_state(
        &self,
        caller: &Caller,
        server: &str,
        message: &Message,
        method: &str,
        inner: &[u8],
    ) -> String {
        let expires = self.clock.wall().as_second() + i64::try_from(STATE_LIFE.as_secs()).unwrap_or(i64::MAX);
        let context = Self::state_context(caller, server, message, method);
        let plain = [format!("{expires}\n{context}\n").as_bytes(), inner].concat();
        self.sealer.seal(STATE_PURPOSE, &plain)
    }

    /// The downstream's own state (JSON text) of a state we sealed for this caller, server and request.
    pub(super) fn open_state(
        &self,
        caller: &Caller,
        server: &str,
        message: &Message,
        method: &str,
        state: Span,
    ) -> Result<Bytes, Fault> {
        let bad = |why: &str| Fault {
            ..Fault::host(-32602, "bad_request_state", format!("\"requestState\" {why}"))
        };
        let sealed = unquote(state.of(message.bytes()));
        let plain = self
            .sealer
            .open(STATE_PURPOSE, &sealed)
            .map_err(|_| bad("is not one that this gateway gave"))?;
        let context = format!("{}\n", Self::state_context(caller, server, message, method));
        let newline = memchr::memchr(b'\n', &plain).ok_or_else(|| bad("is damaged"))?;
        let expires: i64 = std::str::from_utf8(plain.get(..newline).unwrap_or_default())
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| bad("is damaged"))?;
        let rest = plain.get(newline + 1..).unwrap_or_default();
        let inner = rest
            .strip_prefix(context.as_bytes())
            .ok_or_else(|| bad("belongs to another request"))?;
        if expires < self.clock.wall().as_second() {
            return Err(bad("has expired"));
        }
        Ok(Bytes::copy_from_slice(inner))
    }
}
