//! One build: items in the order of the configuration, names and URIs given out, collisions settled.
//!
//! It owns the order in which names are claimed. Only [`Catalog::build`] runs it.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use super::{Catalog, ServerEntry, offers};
use crate::catalog::item::{self, Changes, Entry, Parsed};
use crate::catalog::listing::{id_of, plain};
use crate::catalog::name::NameRules;
use crate::catalog::uri::UriTable;
use crate::catalog::{ListKind, PerKind};
use crate::policy::{Bound, CompiledPolicy};
use crate::revision::Family;

/// A build in progress.
pub(super) struct Merge<'a> {
    servers: &'a [ServerEntry],
    rules: &'a NameRules,
    policy: &'a CompiledPolicy,
    previous: Option<&'a Catalog>,
    pub(super) uris: UriTable,
    pub(super) entries: PerKind<Vec<Entry>>,
    pub(super) names: PerKind<HashMap<Arc<str>, usize>>,
    /// By position of the server.
    pub(super) warnings: Vec<Vec<String>>,
}

/// An item that has been read and not yet been given a public name.
struct Candidate<'a> {
    server: usize,
    item: &'a Bytes,
    parsed: Parsed,
    family: Family,
    bound: Bound,
}

impl<'a> Merge<'a> {
    /// Gives out all names and URIs.
    pub(super) fn run(
        servers: &'a [ServerEntry],
        rules: &'a NameRules,
        policy: &'a CompiledPolicy,
        previous: Option<&'a Catalog>,
    ) -> Self {
        let mut merge = Self {
            servers,
            rules,
            policy,
            previous,
            uris: UriTable::new(servers.iter().map(|s| (&s.name, offers(s, ListKind::Resources)))),
            entries: PerKind::default(),
            names: PerKind::default(),
            warnings: servers.iter().map(|_| Vec::new()).collect(),
        };
        // URIs first: a tool may name a resource whose URI has to be rewritten.
        merge.uris(ListKind::Resources);
        merge.uris(ListKind::Templates);
        merge.names(ListKind::Tools);
        merge.names(ListKind::Prompts);
        merge.unused_settings();
        let (resources, templates) = (
            merge.entries.get(ListKind::Resources),
            merge.entries.get(ListKind::Templates),
        );
        merge.uris.fill(resources, templates);
        merge
    }

    fn warn(&mut self, server: usize, text: String) {
        if let Some(warnings) = self.warnings.get_mut(server) {
            warnings.push(plain(&text));
        }
    }

    /// The acceptable items of a kind in order; the others are warned about.
    fn candidates(&mut self, kind: ListKind) -> Vec<Candidate<'a>> {
        let mut out = Vec::new();
        for (server, entry) in self.servers.iter().enumerate() {
            let Some(listing) = &entry.listing else { continue };
            let mut seen = HashSet::new();
            for item in listing.items(kind) {
                let parsed = match item::parse(kind, item) {
                    Ok(parsed) => parsed,
                    Err(problem) => {
                        let id = id_of(kind, item);
                        self.warn(server, format!("{} {id} {problem}: left out", kind.noun()));
                        continue;
                    }
                };
                if let (Family::Modern, Some(fault)) = (listing.family(), &parsed.header_fault) {
                    let id = id_of(kind, item);
                    self.warn(server, format!("{} {id} {fault}: left out", kind.noun()));
                    continue;
                }
                if !seen.insert(parsed.local.clone()) {
                    let id = id_of(kind, item);
                    self.warn(
                        server,
                        format!("{} {id} is listed twice: the second is left out", kind.noun()),
                    );
                    continue;
                }
                let bound = self.policy.bind(kind.policy_kind(), &entry.name, &parsed.local);
                let family = listing.family();
                out.push(Candidate {
                    server,
                    item,
                    parsed,
                    family,
                    bound,
                });
            }
        }
        out
    }

    /// Tools or prompts: whoever comes later with a name that is taken is left out.
    fn names(&mut self, kind: ListKind) {
        let candidates = self.candidates(kind);
        let mut owners: HashMap<Arc<str>, usize> = HashMap::with_capacity(candidates.len());
        let mut publics = Vec::with_capacity(candidates.len());
        for (at, candidate) in candidates.iter().enumerate() {
            let Some(server) = self.servers.get(candidate.server) else {
                continue;
            };
            let local = &candidate.parsed.local;
            let renamed = server.rename.get(local).unwrap_or(local);
            let name = self.rules.public_name(&server.prefix, renamed);
            let loser = match owners.entry(name.text.clone()) {
                Slot::Vacant(slot) => {
                    slot.insert(at);
                    None
                }
                Slot::Occupied(mut slot) => {
                    let first = *slot.get();
                    if self.keeps(kind, &name.text, &candidates, at, first) {
                        slot.insert(at);
                        Some((first, at))
                    } else {
                        Some((at, first))
                    }
                }
            };
            if let Some((loser, winner)) = loser {
                self.warn_collision(kind, &name.text, &candidates, loser, winner);
            }
            publics.push(name);
        }
        let mut entries = Vec::with_capacity(owners.len());
        for (at, (candidate, name)) in candidates.into_iter().zip(publics).enumerate() {
            if owners.get(&name.text) != Some(&at) {
                continue;
            }
            let Some(server) = self.servers.get(candidate.server) else {
                continue;
            };
            let local = &candidate.parsed.local;
            let renamed = server.rename.get(local).unwrap_or(local);
            let description = server
                .describe
                .get(renamed)
                .or_else(|| server.describe.get(local));
            let changes = Changes {
                public: (*name.text != **local).then_some(&*name.text),
                title: name.altered.then_some(renamed.as_str()),
                description: description.map(String::as_str),
                rewrite: &|uri| self.rewritten(candidate.server, uri),
            };
            entries.push(finish(kind, server, &candidate, name.text.clone(), &changes));
        }
        let table = entries
            .iter()
            .enumerate()
            .map(|(at, e)| (e.public.clone(), at))
            .collect();
        *self.names.get_mut(kind) = table;
        *self.entries.get_mut(kind) = entries;
    }

    /// Resources or templates: a URI goes to the first that hosts may see; the others get a manifold URI.
    fn uris(&mut self, kind: ListKind) {
        let candidates = self.candidates(kind);
        let mut owners: HashMap<&str, usize> = HashMap::with_capacity(candidates.len());
        for visible in [true, false] {
            for (at, candidate) in candidates.iter().enumerate() {
                if candidate.bound.listed() != visible {
                    continue;
                }
                let local = candidate.parsed.local.as_str();
                match owners.entry(local) {
                    Slot::Vacant(slot) => {
                        slot.insert(at);
                    }
                    Slot::Occupied(mut slot) => {
                        let first = *slot.get();
                        let equals = candidates.get(first).is_some_and(|c| c.bound.listed() == visible);
                        if equals && self.keeps(kind, local, &candidates, at, first) {
                            slot.insert(at);
                        }
                    }
                }
            }
        }
        let owners: HashMap<String, usize> =
            owners.into_iter().map(|(uri, at)| (uri.to_owned(), at)).collect();
        let mut taken: HashMap<Arc<str>, usize> = HashMap::with_capacity(candidates.len());
        let mut entries = Vec::with_capacity(candidates.len());
        for (at, candidate) in candidates.iter().enumerate() {
            let Some(server) = self.servers.get(candidate.server) else {
                continue;
            };
            let local = &candidate.parsed.local;
            let owns = owners.get(local) == Some(&at);
            let public = if owns {
                Arc::from(local.as_str())
            } else {
                self.uris.manifold_uri(candidate.server, local)
            };
            if let Some(first) = taken.get(&public) {
                let first = *first;
                self.warn_collision(kind, &public, &candidates, at, first);
                continue;
            }
            taken.insert(public.clone(), at);
            let changes = Changes {
                public: (!owns).then_some(&*public),
                title: None,
                description: None,
                rewrite: &|_| None,
            };
            entries.push(finish(kind, server, candidate, public.clone(), &changes));
        }
        let table = entries
            .iter()
            .enumerate()
            .map(|(at, e)| (e.public.clone(), at))
            .collect();
        *self.names.get_mut(kind) = table;
        *self.entries.get_mut(kind) = entries;
    }

    /// Whether the candidate `at` keeps a public name although `first` comes before it: it held the name in the
    /// previous catalog, which knew the other server without that item.
    fn keeps(
        &self,
        kind: ListKind,
        public: &str,
        candidates: &[Candidate<'_>],
        at: usize,
        first: usize,
    ) -> bool {
        let Some(previous) = self.previous else {
            return false;
        };
        let (Some(late), Some(early)) = (candidates.get(at), candidates.get(first)) else {
            return false;
        };
        let name = |candidate: &Candidate<'_>| self.servers.get(candidate.server).map(|s| s.name.clone());
        let (Some(late_server), Some(early_server)) = (name(late), name(early)) else {
            return false;
        };
        previous.holds(kind, public, &late_server, &late.parsed.local) && previous.knew(&early_server)
    }

    fn warn_collision(
        &mut self,
        kind: ListKind,
        public: &str,
        candidates: &[Candidate<'_>],
        loser: usize,
        winner: usize,
    ) {
        let (Some(loser), Some(winner)) = (candidates.get(loser), candidates.get(winner)) else {
            return;
        };
        let owner = self.servers.get(winner.server).map_or("", |s| &*s.name);
        let text = format!(
            "{} {:?} would have the public name {public:?}, which {:?} of server {owner} has: left out",
            kind.noun(),
            loser.parsed.local,
            winner.parsed.local,
        );
        self.warn(loser.server, text);
    }

    /// The public form of a server's resource URI, if it is rewritten. Only listed resources: tools name no others.
    fn rewritten(&self, server: usize, uri: &str) -> Option<Arc<str>> {
        let public = self.uris.manifold_uri(server, uri);
        let at = self.names.get(ListKind::Resources).get(&public)?;
        let entry = self.entries.get(ListKind::Resources).get(*at)?;
        (entry.server == server && &*entry.local == uri).then_some(public)
    }

    /// Renames and descriptions that found nothing, once the whole list is known.
    fn unused_settings(&mut self) {
        for (at, server) in self.servers.iter().enumerate() {
            let Some(listing) = server.listing.as_ref().filter(|l| !l.incomplete) else {
                continue;
            };
            if server.rename.is_empty() && server.describe.is_empty() {
                continue;
            }
            let mut known = HashSet::new();
            for kind in [ListKind::Tools, ListKind::Prompts] {
                for item in listing.items(kind) {
                    if let Ok(parsed) = item::parse(kind, item) {
                        known.extend(server.rename.get(&parsed.local).cloned());
                        known.insert(parsed.local);
                    }
                }
            }
            let renames = server.rename.keys().map(|name| ("rename", name));
            let describes = server.describe.keys().map(|name| ("describe", name));
            let unused: Vec<String> = renames
                .chain(describes)
                .filter(|(_, name)| !known.contains(*name))
                .map(|(key, name)| format!("`{key}` names {name:?}, which the server does not offer"))
                .collect();
            unused.into_iter().for_each(|text| self.warn(at, text));
        }
    }
}

fn finish(
    kind: ListKind,
    server: &ServerEntry,
    candidate: &Candidate<'_>,
    public: Arc<str>,
    changes: &Changes<'_>,
) -> Entry {
    let (legacy, modern) = item::render(candidate.item, &candidate.parsed, changes, candidate.family);
    let local: Arc<str> = if *public == *candidate.parsed.local {
        public.clone()
    } else {
        candidate.parsed.local.as_str().into()
    };
    Entry {
        kind,
        server: candidate.server,
        server_name: server.name.clone(),
        family: candidate.family,
        local,
        public,
        bound: candidate.bound.clone(),
        facts: candidate.parsed.facts.clone(),
        legacy,
        modern,
    }
}
