//! All listings, the configuration and the policy become one catalog.
//!
//! It owns the order, the collisions and the warnings. The runtime builds a catalog whenever a listing, the
//! configuration or the policy changes; nobody changes one afterwards. The order is that of the configuration, inside
//! a server its own, so the same input gives the same bytes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::item::Entry;
use super::listing::{ItemList, Listing};
use super::name::{NameRules, Prefix};
use super::offers::Offered;
use super::page::JoinedLists;
use super::summary;
use super::uri::UriTable;
use super::{ListKind, PerKind};
use crate::policy::CompiledPolicy;
use crate::revision::Family;

mod build;

use build::Merge;

/// One configured server, as the catalog needs it.
#[derive(Clone, Debug)]
pub struct ServerEntry {
    /// The server name.
    pub name: Arc<str>,
    /// What people read in instructions: usually the server name.
    pub label: Arc<str>,
    /// Its prefix, made by [`NameRules::prefix`].
    pub prefix: Prefix,
    /// Local tool and prompt names to other local names, before the prefix.
    pub rename: BTreeMap<String, String>,
    /// Descriptions in place of the server's, by the (renamed) local name of a tool or prompt.
    pub describe: BTreeMap<String, String>,
    /// What it offers; `None` if it was never listed.
    pub listing: Option<Arc<Listing>>,
    /// When `listing` was read from the server, on the caller's monotonic clock in milliseconds; `None` if it comes
    /// from disk, so that nothing is promised about its freshness.
    pub read_at_ms: Option<u64>,
}

impl ServerEntry {
    /// A server without renames, descriptions or a listing.
    #[must_use]
    pub fn new(name: &str, prefix: Prefix) -> Self {
        Self {
            name: name.into(),
            label: name.into(),
            prefix,
            rename: BTreeMap::new(),
            describe: BTreeMap::new(),
            listing: None,
            read_at_ms: None,
        }
    }
}

/// Something that a person should know: what was left out or changed, and why. The same input gives the same
/// warnings, so the caller can tell new ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Warning {
    /// The server that it is about.
    pub server: Arc<str>,
    /// A sentence that names the item.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}: {}", self.server, self.text)
    }
}

/// A catalog and what a person should know about it.
#[derive(Debug)]
pub struct Built {
    /// The catalog.
    pub catalog: Catalog,
    /// In order of the servers.
    pub warnings: Vec<Warning>,
}

/// What stays of a server after the merge.
#[derive(Debug)]
pub(super) struct ServerFacts {
    pub(super) name: Arc<str>,
    pub(super) family: Option<Family>,
    /// Which lists it serves; `None` if it was never listed.
    pub(super) serves: Option<PerKind<bool>>,
    /// The freshness hints of its lists; their items are not kept here.
    pub(super) fresh: PerKind<ItemList>,
    pub(super) read_at_ms: Option<u64>,
    pub(super) completions: bool,
    pub(super) label: Option<Arc<str>>,
}

/// Everything that all servers offer under public names. Immutable; shared by `Arc`.
#[derive(Debug)]
pub struct Catalog {
    pub(super) version: u64,
    pub(super) policy: Arc<CompiledPolicy>,
    pub(super) servers: Vec<ServerFacts>,
    pub(super) entries: PerKind<Vec<Entry>>,
    pub(super) names: PerKind<HashMap<Arc<str>, usize>>,
    pub(super) uris: UriTable,
    pub(super) joined: JoinedLists,
    unprefixed: OnceLock<HashMap<Arc<str>, Option<usize>>>,
    offered: [Offered; 2],
    capabilities: [Bytes; 2],
    instructions: Option<Arc<str>>,
}

/// What changed between two catalogs as hosts of one family see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changed {
    /// `notifications/tools/list_changed` is due.
    pub tools: bool,
    /// `notifications/prompts/list_changed` is due.
    pub prompts: bool,
    /// `notifications/resources/list_changed` is due: resources or templates.
    pub resources: bool,
}

impl Changed {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl Catalog {
    /// Merges. `servers` are all configured servers in configuration order. `version` must differ from that of every
    /// other catalog of this process; cursors are bound to it.
    ///
    /// `previous` is the catalog that this one takes the place of: a server that starts to offer a name which
    /// another one holds in it cannot take it over, wherever it stands in the configuration.
    #[must_use]
    pub fn build(
        version: u64,
        servers: &[ServerEntry],
        rules: &NameRules,
        policy: &Arc<CompiledPolicy>,
        previous: Option<&Self>,
    ) -> Built {
        let Merge {
            uris,
            entries,
            names,
            warnings,
            ..
        } = Merge::run(servers, rules, policy, previous);
        let heard: Vec<_> = servers
            .iter()
            .map(|s| s.listing.as_ref().map(|l| (l.family(), &l.offers)))
            .collect();
        let offered = [Family::Legacy, Family::Modern].map(|family| Offered::merge(family, &heard));
        let capabilities = offered.each_ref().map(|offered| Bytes::from(offered.to_json()));
        let instructions = summary::instructions(servers, &entries).map(Arc::from);
        let warnings = servers
            .iter()
            .zip(warnings)
            .flat_map(|(server, texts)| {
                texts.into_iter().map(|text| Warning {
                    server: server.name.clone(),
                    text,
                })
            })
            .collect();
        let catalog = Self {
            version,
            policy: policy.clone(),
            servers: servers.iter().map(facts).collect(),
            entries,
            names,
            uris,
            joined: JoinedLists::default(),
            unprefixed: OnceLock::new(),
            offered,
            capabilities,
            instructions,
        };
        Built { catalog, warnings }
    }

    /// The version given at the build.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The policy that its entries are bound to.
    #[must_use]
    pub fn policy(&self) -> &Arc<CompiledPolicy> {
        &self.policy
    }

    /// The tool of this public name, compared byte for byte. It may be denied: then the answer is as for an unknown
    /// name, and the denial is recorded.
    #[must_use]
    pub fn tool(&self, public: &str) -> Option<&Entry> {
        self.named(ListKind::Tools, public)
    }

    /// The prompt of this public name, compared byte for byte; it may be denied.
    #[must_use]
    pub fn prompt(&self, public: &str) -> Option<&Entry> {
        self.named(ListKind::Prompts, public)
    }

    fn named(&self, kind: ListKind, public: &str) -> Option<&Entry> {
        let at = self.names.get(kind).get(public)?;
        self.entries.get(kind).get(*at)
    }

    /// The tool that exactly one server calls so among those that hosts see. For interactive resources, which call
    /// the tools of their own server by local names; only asked when there is no public name like it.
    #[must_use]
    pub fn unprefixed_tool(&self, local: &str) -> Option<&Entry> {
        let table = self.unprefixed.get_or_init(|| {
            let mut table = HashMap::new();
            for (at, entry) in self.entries.get(ListKind::Tools).iter().enumerate() {
                if entry.listed() {
                    table
                        .entry(entry.local.clone())
                        .and_modify(|owner| *owner = None)
                        .or_insert(Some(at));
                }
            }
            table
        });
        self.entries.get(ListKind::Tools).get((*table.get(local)?)?)
    }

    /// All entries of a kind, denied ones too, in order. For `manifold tools`, `check` and status.
    #[must_use]
    pub fn entries(&self, kind: ListKind) -> &[Entry] {
        self.entries.get(kind)
    }

    /// What is offered to hosts of a family. What is not offered answers as an unknown method.
    #[must_use]
    pub fn offered(&self, family: Family) -> &Offered {
        let [legacy, modern] = &self.offered;
        match family {
            Family::Legacy => legacy,
            Family::Modern => modern,
        }
    }

    /// The `capabilities` object for `initialize` (legacy) or `server/discover` (modern), as JSON text.
    #[must_use]
    pub fn capabilities(&self, family: Family) -> &Bytes {
        let [legacy, modern] = &self.capabilities;
        match family {
            Family::Legacy => legacy,
            Family::Modern => modern,
        }
    }

    /// The merged instructions, if any server gave some.
    #[must_use]
    pub fn instructions(&self) -> Option<&Arc<str>> {
        self.instructions.as_ref()
    }

    /// The family that a server speaks, if it was ever listed.
    #[must_use]
    pub fn family(&self, server: usize) -> Option<Family> {
        self.servers.get(server)?.family
    }

    /// Where this server stands among those the catalog was made from.
    #[must_use]
    pub fn position(&self, server: &str) -> Option<usize> {
        self.servers.iter().position(|known| &*known.name == server)
    }

    /// The prefix of a server's public names; `None` if its names are public as they are.
    #[must_use]
    pub fn label(&self, server: &str) -> Option<Arc<str>> {
        self.servers
            .iter()
            .find(|known| &*known.name == server)?
            .label
            .clone()
    }

    /// Whether a server completes arguments. One that does not is not asked: the answer is an empty list.
    #[must_use]
    pub fn completes(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|s| s.completions)
    }

    /// What hosts of a family see differently since `older`.
    #[must_use]
    pub fn changed_since(&self, older: &Self, family: Family) -> Changed {
        let differs = |kind: ListKind| {
            let now = self.listed(kind).map(|entry| entry.json(family));
            let then = older.listed(kind).map(|entry| entry.json(family));
            !now.eq(then)
        };
        Changed {
            tools: differs(ListKind::Tools),
            prompts: differs(ListKind::Prompts),
            resources: differs(ListKind::Resources) || differs(ListKind::Templates),
        }
    }

    /// The entry that holds a public name or URI, if it is the one of this server.
    fn holds(&self, kind: ListKind, public: &str, server: &str, local: &str) -> bool {
        let held = self
            .names
            .get(kind)
            .get(public)
            .and_then(|at| self.entries.get(kind).get(*at));
        held.is_some_and(|entry| &*entry.server_name == server && &*entry.local == local)
    }

    /// Whether this server had a listing when the catalog was built.
    fn knew(&self, server: &str) -> bool {
        self.servers
            .iter()
            .any(|s| &*s.name == server && s.serves.is_some())
    }
}

fn offers(server: &ServerEntry, kind: ListKind) -> bool {
    server
        .listing
        .as_ref()
        .is_none_or(|listing| listing.offers.serves(kind))
}

fn facts(server: &ServerEntry) -> ServerFacts {
    let mut fresh = PerKind::default();
    let serves = server.listing.as_ref().map(|listing| {
        let mut serves = PerKind::default();
        for kind in ListKind::ALL {
            let list = listing.lists.get(kind);
            *serves.get_mut(kind) = listing.offers.serves(kind);
            *fresh.get_mut(kind) = ItemList {
                items: Vec::new(),
                ttl_ms: list.ttl_ms,
                public: list.public,
            };
        }
        serves
    });
    ServerFacts {
        name: server.name.clone(),
        label: server.prefix.text().map(Arc::from),
        family: server.listing.as_ref().map(|listing| listing.family()),
        serves,
        fresh,
        read_at_ms: server.read_at_ms,
        completions: server
            .listing
            .as_ref()
            .is_none_or(|listing| listing.offers.completions),
    }
}

#[cfg(test)]
pub(super) mod tests;
