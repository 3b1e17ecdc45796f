//! Answers to list requests: one slice built once, or pages with sealed cursors.
//!
//! It owns the joined lists, the cursors and the members that a modern list result carries. The pipeline asks it with
//! the catalog that the request began with. It never filters by itself: what is listed was bound at the merge.

use bytes::{BufMut as _, Bytes, BytesMut};
use std::sync::OnceLock;

use super::item::Entry;
use super::merge::Catalog;
use super::{ListKind, PerKind};
use crate::crypto::Sealer;
use crate::revision::Family;
use crate::wire::Outgoing;
use crate::wire::json::{ValueKind, kind_of, quote, unquote};

/// The `Implementation` object that manifold names itself by, in handshakes and in the `_meta` of modern results.
pub const SERVER_INFO: &str = concat!(
    "{\"name\":\"manifold\",\"title\":\"manifold\",\"version\":\"",
    env!("CARGO_PKG_VERSION"),
    "\"}"
);

const CURSOR_PURPOSE: &str = "list cursor";

/// A cursor that this list cannot be continued with: not ours, changed, of another list or of a catalog that is no
/// more. Answered with -32602; the host starts again without a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the cursor is unknown or has expired: list again without one")]
pub struct CursorFault;

impl CursorFault {
    /// The JSON-RPC code for it.
    pub const CODE: i32 = -32602;
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct ListRequest<'a> {
    /// Which list.
    pub kind: ListKind,
    /// The family that the host speaks.
    pub family: Family,
    /// The JSON text of the request's `cursor`, if it has one. An empty string is a cursor; `null` is none.
    pub cursor: Option<&'a [u8]>,
    /// Items per page; 0 = all in one.
    pub page_size: usize,
    /// The caller's monotonic time in milliseconds, by the clock that [`super::ServerEntry::read_at_ms`] is from.
    pub now_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Joined {
    legacy: OnceLock<Bytes>,
    modern: OnceLock<Bytes>,
}

/// The lists, each built when it is first asked for.
pub(super) type JoinedLists = PerKind<Joined>;

impl Catalog {
    /// The result object of a list request.
    ///
    /// # Errors
    /// If the cursor is not one of ours for this list of this catalog.
    pub fn list(&self, request: ListRequest<'_>, sealer: &Sealer) -> Result<Outgoing, CursorFault> {
        let ListRequest { kind, family, .. } = request;
        let cursor = request.cursor.filter(|raw| kind_of(raw) != Some(ValueKind::Null));
        let mut out = Outgoing::new();
        if cursor.is_none() && request.page_size == 0 {
            out.push(self.joined(kind, family));
        } else {
            let offset = match cursor {
                Some(raw) => self.open_cursor(kind, raw, sealer)?,
                None => 0,
            };
            let size = if request.page_size == 0 {
                usize::MAX
            } else {
                request.page_size
            };
            let mut rest = self.listed(kind).skip(offset);
            let page: Vec<&Bytes> = rest.by_ref().take(size).map(|entry| entry.json(family)).collect();
            let end = offset + page.len();
            out.push(open_list(kind, page.into_iter()));
            if rest.next().is_some() {
                let next = quote(&self.seal_cursor(kind, end, sealer));
                out.push(format!(",\"nextCursor\":{next}"));
            }
        }
        out.push(match family {
            Family::Legacy => Bytes::from_static(b"}"),
            Family::Modern => Bytes::from(self.modern_tail(kind, request.now_ms)),
        });
        Ok(out)
    }

    /// The entries that hosts see, in order.
    pub fn listed(&self, kind: ListKind) -> impl Iterator<Item = &Entry> + Clone {
        self.entries.get(kind).iter().filter(|entry| entry.listed())
    }

    /// The whole list without its closing brace.
    fn joined(&self, kind: ListKind, family: Family) -> Bytes {
        let lists = self.joined.get(kind);
        let build = |family: Family| open_list(kind, self.listed(kind).map(move |entry| entry.json(family)));
        match family {
            Family::Legacy => lists.legacy.get_or_init(|| build(family)).clone(),
            Family::Modern => lists
                .modern
                .get_or_init(|| {
                    let same = |entry: &Entry| entry.legacy.as_ptr() == entry.modern.as_ptr();
                    if self.listed(kind).all(same) {
                        return self.joined(kind, Family::Legacy);
                    }
                    build(family)
                })
                .clone(),
        }
    }

    /// What closes a modern list result.
    fn modern_tail(&self, kind: ListKind, now_ms: u64) -> String {
        let (ttl, scope) = self.freshness(kind, now_ms);
        format!(
            ",\"resultType\":\"complete\",\"ttlMs\":{ttl},\"cacheScope\":\"{scope}\",\
             \"_meta\":{{\"io.modelcontextprotocol/serverInfo\":{SERVER_INFO}}}}}"
        )
    }

    /// `ttlMs` and `cacheScope` of a list: the shortest time that any contributor still stays fresh, 0 for a legacy
    /// one or one that is missing; public only if every contributor says so.
    #[must_use]
    pub fn freshness(&self, kind: ListKind, now_ms: u64) -> (u64, &'static str) {
        let mut ttl = None::<u64>;
        let mut public = true;
        for server in &self.servers {
            if !server.serves.as_ref().is_none_or(|serves| *serves.get(kind)) {
                continue;
            }
            let hint = server.fresh.get(kind);
            let until = server.read_at_ms.unwrap_or(0).saturating_add(hint.ttl_ms);
            let left = match server.read_at_ms {
                Some(_) => until.saturating_sub(now_ms).min(hint.ttl_ms),
                None => 0,
            };
            ttl = Some(ttl.map_or(left, |all| all.min(left)));
            public &= hint.public;
        }
        let scope = if public && ttl.is_some() {
            "public"
        } else {
            "private"
        };
        (ttl.unwrap_or(0), scope)
    }

    fn seal_cursor(&self, kind: ListKind, offset: usize, sealer: &Sealer) -> String {
        let mut plain = Vec::with_capacity(32);
        plain.extend_from_slice(&self.version.to_be_bytes());
        plain.extend_from_slice(&(offset as u64).to_be_bytes());
        plain.extend_from_slice(kind.result_key().as_bytes());
        sealer.seal_stable(CURSOR_PURPOSE, &plain)
    }

    fn open_cursor(&self, kind: ListKind, raw: &[u8], sealer: &Sealer) -> Result<usize, CursorFault> {
        if kind_of(raw) != Some(ValueKind::String) {
            return Err(CursorFault);
        }
        let plain = sealer
            .open(CURSOR_PURPOSE, &unquote(raw))
            .map_err(|_| CursorFault)?;
        let (version, rest) = plain.split_first_chunk::<8>().ok_or(CursorFault)?;
        let (offset, list) = rest.split_first_chunk::<8>().ok_or(CursorFault)?;
        if u64::from_be_bytes(*version) != self.version || list != kind.result_key().as_bytes() {
            return Err(CursorFault);
        }
        usize::try_from(u64::from_be_bytes(*offset)).map_err(|_| CursorFault)
    }
}

/// `{"tools":[...]` without the closing brace.
fn open_list<'a>(kind: ListKind, items: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
    let key = kind.result_key();
    let size: usize = items.clone().map(|item| item.len() + 1).sum();
    let mut out = BytesMut::with_capacity(size + key.len() + 6);
    out.put_slice(b"{\"");
    out.put_slice(key.as_bytes());
    out.put_slice(b"\":[");
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        out.put_slice(item);
    }
    out.put_u8(b']');
    out.freeze()
}

#[cfg(test)]
mod tests;
