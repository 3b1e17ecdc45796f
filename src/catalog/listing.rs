//! What one server offers, as last read for one set of host capabilities.
//!
//! It owns the reading of handshake results and list pages with their limits, and the copy on disk that makes the
//! next start instant. Downstream refresh builds listings, the merge reads them. It never changes an item and never
//! asks a server.

use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;

use super::offers::Offers;
use super::{ListKind, PerKind};
use crate::revision::{Family, Revision};
use crate::wire::Span;
use crate::wire::json::{JsonFault, JsonLimits, Scanner, ValueKind, kind_of, member, unquote};

mod store;

pub use store::StoreFault;

/// What one server may put into a listing. Past a limit the item, or the rest of the list, is left out with a
/// warning; the server's other items stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItemLimits {
    /// Items of one list.
    pub items: usize,
    /// Bytes of one item.
    pub item_bytes: usize,
    /// Bytes of all items of one server.
    pub total_bytes: usize,
    /// How deep one item may nest; never more than [`ItemLimits::DEEPEST`].
    pub depth: u32,
    /// Pages of one list.
    pub pages: usize,
}

impl ItemLimits {
    /// Many JSON readers of hosts stop at 128 levels, and a host that cannot read one item loses the whole list and
    /// with it the items of all other servers.
    pub const DEEPEST: u32 = 120;
}

impl Default for ItemLimits {
    fn default() -> Self {
        Self {
            items: 5_000,
            item_bytes: 1024 * 1024,
            total_bytes: 32 * 1024 * 1024,
            depth: 100,
            pages: 1_000,
        }
    }
}

/// Who a server says it is. For people only: nothing is ever decided by it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerInfo {
    /// The object as received; empty if the server gave none.
    pub raw: Bytes,
    /// `name`
    pub name: Arc<str>,
    /// `version`
    pub version: Arc<str>,
}

impl ServerInfo {
    fn parse(raw: Bytes) -> Self {
        let text = |key: &str| -> Arc<str> {
            member(&raw, Span::new(0, raw.len()), key)
                .map(|span| span.of(&raw))
                .filter(|value| kind_of(value) == Some(ValueKind::String))
                .map(|value| Arc::from(&*unquote(value)))
                .unwrap_or_default()
        };
        let (name, version) = (text("name"), text("version"));
        Self { raw, name, version }
    }
}

/// One list of one server, all pages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ItemList {
    /// The items exactly as received, in the server's order.
    pub items: Vec<Bytes>,
    /// How long the server says this stays fresh, in milliseconds; 0 if it does not say (legacy). The smallest of
    /// all pages.
    pub ttl_ms: u64,
    /// Whether the server says that everybody gets this list. Legacy servers do not say, so it is false.
    pub public: bool,
}

/// Everything one server offers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// The revision that was agreed on.
    pub revision: Revision,
    /// Who the server says it is.
    pub server: ServerInfo,
    /// What the server tells models about itself.
    pub instructions: Option<Arc<str>>,
    /// What it says it offers.
    pub offers: Offers,
    /// The lists.
    pub lists: PerKind<ItemList>,
    /// Some list could not be read to its end: it was refused, failed or ran into a limit.
    pub incomplete: bool,
}

impl Listing {
    /// An empty listing from the result of `initialize` or `server/discover` (the JSON text of the result object).
    #[must_use]
    pub fn from_handshake(revision: Revision, result: &Bytes) -> Self {
        let whole = Span::new(0, result.len());
        let find = |key: &str| member(result, whole, key);
        let of_kind = |span: Option<Span>, kind: ValueKind| {
            span.filter(|s| kind_of(s.of(result)) == Some(kind))
                .map(|s| result.slice(s.range()))
        };
        let in_meta = |key: &str| member(result, find("_meta")?, key);
        let info = of_kind(in_meta("io.modelcontextprotocol/serverInfo"), ValueKind::Object)
            .or_else(|| of_kind(find("serverInfo"), ValueKind::Object));
        let instructions = of_kind(find("instructions"), ValueKind::String);
        Self {
            revision,
            server: info.map(ServerInfo::parse).unwrap_or_default(),
            instructions: instructions
                .map(|raw| Arc::<str>::from(&*unquote(&raw)))
                .filter(|text| !text.trim().is_empty()),
            offers: of_kind(find("capabilities"), ValueKind::Object)
                .map(|raw| Offers::parse(&raw))
                .unwrap_or_default(),
            lists: PerKind::default(),
            incomplete: false,
        }
    }

    /// The family of its revision.
    #[must_use]
    pub fn family(&self) -> Family {
        self.revision.family()
    }

    /// Items of one kind.
    #[must_use]
    pub fn items(&self, kind: ListKind) -> &[Bytes] {
        &self.lists.get(kind).items
    }

    /// Bytes of all items.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        ListKind::ALL
            .iter()
            .flat_map(|kind| self.items(*kind))
            .map(Bytes::len)
            .sum()
    }

    /// Whether a host could see no difference between the two: items byte for byte, capabilities, instructions,
    /// family. How long they stay fresh does not count.
    #[must_use]
    pub fn same_items(&self, other: &Self) -> bool {
        self.family() == other.family()
            && self.offers.raw == other.offers.raw
            && self.instructions == other.instructions
            && self.server == other.server
            && ListKind::ALL.iter().all(|kind| {
                self.items(*kind) == other.items(*kind) && self.scope(*kind) == other.scope(*kind)
            })
    }

    fn scope(&self, kind: ListKind) -> bool {
        self.lists.get(kind).public
    }

    /// The kinds whose items differ from another listing's.
    #[must_use]
    pub fn changed_kinds(&self, other: &Self) -> Vec<ListKind> {
        ListKind::ALL
            .into_iter()
            .filter(|kind| self.items(*kind) != other.items(*kind))
            .collect()
    }
}

/// Why a list result could not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageFault {
    /// The result has no array of items.
    #[error("the result has no array \"{0}\"")]
    NoItems(&'static str),
    /// The result is not acceptable JSON.
    #[error("{0}")]
    Json(#[from] JsonFault),
}

/// One page, cut into items that share the received bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// The items.
    pub items: Vec<Bytes>,
    /// The JSON text (a quoted string) of the cursor of the next page. An empty string is a cursor too.
    pub next_cursor: Option<Bytes>,
    /// `ttlMs`; 0 if absent or negative.
    pub ttl_ms: u64,
    /// `cacheScope` is `public`.
    pub public: bool,
}

impl Page {
    /// Cuts the result of a list method (the JSON text of the result object).
    ///
    /// # Errors
    /// If it is no object or has no array of items.
    pub fn parse(kind: ListKind, result: &Bytes) -> Result<Self, PageFault> {
        // One absurdly nested item must not cost the others: depth is judged per item, and this walk needs no stack.
        let mut scanner = Scanner::new(result, JsonLimits { depth: u32::MAX });
        let mut page = Self::default();
        let mut found = false;
        scanner.object(|s, key| {
            let key = unquote(key.of(result));
            if key == kind.result_key() && s.next_kind()? == ValueKind::Array {
                found = true;
                page.items.clear();
                s.array(|s| {
                    page.items.push(result.slice(s.value()?.range()));
                    Ok(())
                })?;
                return Ok(());
            }
            let value = s.value()?;
            let text = value.of(result);
            match &*key {
                "nextCursor" if kind_of(text) == Some(ValueKind::String) => {
                    page.next_cursor = Some(result.slice(value.range()));
                }
                "ttlMs" => page.ttl_ms = value.text(result).parse().unwrap_or(0),
                "cacheScope" => page.public = text == b"\"public\"",
                _ => {}
            }
            Ok(())
        })?;
        if found {
            Ok(page)
        } else {
            Err(PageFault::NoItems(kind.result_key()))
        }
    }
}

/// Reads one list to its end: takes pages, says which page to ask for next, and stops at the limits.
#[derive(Debug)]
pub struct ListReader {
    kind: ListKind,
    limits: ItemLimits,
    list: ItemList,
    bytes: usize,
    pages: usize,
    cursors: HashSet<Bytes>,
    warnings: Vec<String>,
    incomplete: bool,
}

impl ListReader {
    /// A reader of one list. `used` is what the server's other lists take already, in bytes.
    #[must_use]
    pub fn new(kind: ListKind, limits: ItemLimits, used: usize) -> Self {
        Self {
            kind,
            limits,
            list: ItemList {
                items: Vec::new(),
                ttl_ms: u64::MAX,
                public: true,
            },
            bytes: used,
            pages: 0,
            cursors: HashSet::new(),
            warnings: Vec::new(),
            incomplete: false,
        }
    }

    /// Takes a page: the JSON text of the result object. Returns the JSON text of the cursor to ask for next, or
    /// `None` at the end. It always ends: a cursor that comes back, and any limit, end it with a warning.
    ///
    /// # Errors
    /// If the result is none of this list; what was read before stays.
    pub fn add(&mut self, result: &Bytes) -> Result<Option<Bytes>, PageFault> {
        let page = match Page::parse(self.kind, result) {
            Ok(page) => page,
            Err(fault) => {
                self.incomplete = true;
                return Err(fault);
            }
        };
        self.pages += 1;
        self.list.ttl_ms = self.list.ttl_ms.min(page.ttl_ms);
        self.list.public &= page.public;
        let method = self.kind.method();
        for item in page.items {
            if self.list.items.len() >= self.limits.items {
                let limit = self.limits.items;
                self.stop(format!(
                    "{method} has more than {limit} items: the rest is left out"
                ));
                return Ok(None);
            }
            if let Some(problem) = self.problem(&item) {
                let at = self.list.items.len() + 1;
                let name = id_of(self.kind, &item);
                let noun = self.kind.noun();
                self.warnings
                    .push(format!("{noun} {name} (item {at}) {problem}: left out"));
                continue;
            }
            self.bytes += item.len();
            if self.bytes > self.limits.total_bytes {
                let limit = self.limits.total_bytes;
                self.stop(format!(
                    "the items are larger than {limit} bytes together: {method} is cut"
                ));
                return Ok(None);
            }
            self.list.items.push(item);
        }
        let Some(cursor) = page.next_cursor else {
            return Ok(None);
        };
        if !self.cursors.insert(cursor.clone()) {
            self.stop(format!(
                "{method} gave the same cursor twice: the list ends there"
            ));
            return Ok(None);
        }
        if self.pages >= self.limits.pages {
            let limit = self.limits.pages;
            self.stop(format!(
                "{method} has more than {limit} pages: the rest is left out"
            ));
            return Ok(None);
        }
        Ok(Some(cursor))
    }

    fn stop(&mut self, warning: String) {
        self.incomplete = true;
        self.warnings.push(warning);
    }

    fn problem(&self, item: &Bytes) -> Option<String> {
        let limit = self.limits.item_bytes;
        if item.len() > limit {
            return Some(format!("is larger than {limit} bytes"));
        }
        let depth = self.limits.depth.min(ItemLimits::DEEPEST);
        let mut scanner = Scanner::new(item, JsonLimits { depth });
        match scanner.value() {
            Err(JsonFault::TooDeep(_)) => Some(format!("is nested deeper than {depth} levels")),
            Err(fault) => Some(fault.to_string()),
            Ok(_) if kind_of(item) != Some(ValueKind::Object) => Some("is not an object".to_owned()),
            Ok(_) => None,
        }
    }

    /// The list may go on, but the server failed to give the rest.
    pub fn gave_up(&mut self) {
        self.incomplete = true;
    }

    /// Puts the list into a listing. Returns what was left out and why, in words.
    pub fn finish(mut self, listing: &mut Listing) -> Vec<String> {
        let warnings = self.warnings.iter().map(|text| plain(text)).collect();
        if self.pages == 0 {
            self.list.public = false;
        }
        if self.list.ttl_ms == u64::MAX {
            self.list.ttl_ms = 0;
        }
        listing.incomplete |= self.incomplete;
        *listing.lists.get_mut(self.kind) = self.list;
        warnings
    }
}

/// A warning fit for a log and a terminal: what servers say may hold anything.
pub(super) fn plain(text: &str) -> String {
    const LONGEST: usize = 400;
    let spelled = |c: char| {
        if c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    text.chars().take(LONGEST).map(spelled).collect()
}

/// The name of an item for a warning, shortened; it may be a hostile text.
pub(super) fn id_of(kind: ListKind, item: &Bytes) -> String {
    let whole = Span::new(0, item.len());
    let mut scanner = Scanner::at(item, whole, JsonLimits { depth: u32::MAX });
    let mut found = None;
    let walked = scanner.object(|s, key| {
        let value = s.value()?;
        if unquote(key.of(item)) == kind.id_key() {
            found = Some(value);
        }
        Ok(())
    });
    match found {
        Some(span) if walked.is_ok() && kind_of(span.of(item)) == Some(ValueKind::String) => {
            let text = unquote(span.of(item));
            let short: String = text.chars().take(80).collect();
            format!("{short:?}")
        }
        _ => "without a name".to_owned(),
    }
}

#[cfg(test)]
mod tests;
