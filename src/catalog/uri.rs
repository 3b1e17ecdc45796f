//! Which server a URI belongs to, and which URIs had to be rewritten to keep that unique.
//!
//! It owns the table of public URIs and templates, the manifold URIs (`mcp+LABEL:ORIGINAL`) of those that collide,
//! and the rewriting of links in results of servers that have such. The catalog builds and asks it. It never changes
//! a URI that is unique, and routing never grants anything: each route carries the rules bound to that server's URI.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

use super::ListKind;
use super::item::Entry;
use super::merge::Catalog;
use super::name::scheme_label;
use super::template::Template;
use crate::policy::{Bound, Kind};
use crate::wire::Span;
use crate::wire::json::{ValueKind, items, kind_of, member, quote, unquote};

/// Templates of one server that are matched; further ones count by equality only.
const MATCHED_TEMPLATES: usize = 200;

/// Where a resource request goes.
#[derive(Clone, Debug)]
pub struct Route {
    /// Position of the server in the configuration.
    pub server: usize,
    /// The server's name.
    pub server_name: Arc<str>,
    /// The URI (or, for completions, the template) as the server says it.
    pub local: Arc<str>,
    /// The rules about it. They may deny it: the request is then answered as for an unknown URI.
    pub bound: Bound,
}

/// One server's side of the table.
#[derive(Debug, Default)]
struct ServerUris {
    scheme: String,
    name: Arc<str>,
    /// Local URI to the position of its entry among the resources.
    resources: HashMap<Arc<str>, usize>,
    serves: bool,
    /// Some URI or template of this server is not public as it is.
    rewritten: bool,
}

/// What routes besides the catalog's public names. Positions are those of the catalog's entries.
#[derive(Debug, Default)]
pub(super) struct UriTable {
    /// Templates that are public as they are, the most specific first.
    by_specificity: Vec<(usize, Template)>,
    servers: Vec<ServerUris>,
    /// The only server that serves resources at all.
    sole: Option<usize>,
}

impl UriTable {
    pub(super) fn new<'a>(servers: impl Iterator<Item = (&'a Arc<str>, bool)>) -> Self {
        let servers: Vec<ServerUris> = servers
            .map(|(name, serves)| ServerUris {
                scheme: format!("mcp+{}:", scheme_label(name)),
                name: name.clone(),
                serves,
                ..ServerUris::default()
            })
            .collect();
        let mut serving = servers.iter().enumerate().filter(|(_, s)| s.serves);
        let sole = match (serving.next(), serving.next()) {
            (Some((only, _)), None) => Some(only),
            _ => None,
        };
        Self {
            servers,
            sole,
            ..Self::default()
        }
    }

    /// The manifold form of a server's URI or template.
    pub(super) fn manifold_uri(&self, server: usize, local: &str) -> Arc<str> {
        let scheme = self.servers.get(server).map_or("", |s| &s.scheme);
        format!("{scheme}{local}").into()
    }

    /// Takes the finished entries into the table.
    pub(super) fn fill(&mut self, resources: &[Entry], templates: &[Entry]) {
        for (at, entry) in resources.iter().enumerate() {
            if let Some(server) = self.servers.get_mut(entry.server) {
                server.rewritten |= entry.public != entry.local;
                server.resources.insert(entry.local.clone(), at);
            }
        }
        let mut matched = HashMap::<usize, usize>::new();
        for (at, entry) in templates.iter().enumerate() {
            if entry.public != entry.local {
                if let Some(server) = self.servers.get_mut(entry.server) {
                    server.rewritten = true;
                }
                continue;
            }
            let count = matched.entry(entry.server).or_default();
            if let Some(template) = Template::parse(&entry.local).filter(|_| *count < MATCHED_TEMPLATES) {
                *count += 1;
                self.by_specificity.push((at, template));
            }
        }
        // The sort is stable: among equals the order of the configuration decides.
        self.by_specificity
            .sort_by_key(|(_, template)| std::cmp::Reverse(template.literal_length()));
    }

    /// The server whose manifold URI this is, and the URI as that server says it.
    fn manifold<'u>(&self, uri: &'u str) -> Option<(usize, &'u str)> {
        let (scheme, local) = uri.split_at_checked(uri.find(':')? + 1)?;
        // Schemes are case-insensitive, and some hosts write them in lower case.
        let at = self
            .servers
            .iter()
            .position(|s| s.scheme.eq_ignore_ascii_case(scheme))?;
        Some((at, local))
    }
}

impl Catalog {
    /// Where a read (or subscription) of a public URI goes: the server that lists it, the server a manifold URI names,
    /// the server with the most specific template that yields it, or the only one that serves resources at all. Among
    /// several, one whose rules allow it comes first; if all are denied, the first of them is returned, to be
    /// recorded. `None` if nobody could own it.
    #[must_use]
    pub fn resource(&self, uri: &str) -> Option<Route> {
        let mut denied = None;
        let mut consider = |route: Route| {
            if route.bound.listed() {
                return Some(route);
            }
            denied.get_or_insert(route);
            None
        };
        let exact = self.names.get(ListKind::Resources).get(uri);
        if let Some(route) = exact.and_then(|at| self.route_to(*at)).and_then(&mut consider) {
            return Some(route);
        }
        if let Some((server, local)) = self.uris.manifold(uri) {
            let route = self.resource_of(server, local);
            if let Some(route) = route.and_then(&mut consider) {
                return Some(route);
            }
        }
        for (at, template) in &self.uris.by_specificity {
            if !template.matches(uri) {
                continue;
            }
            let entry = self.entries.get(ListKind::Templates).get(*at);
            let route = entry.and_then(|entry| self.bound_route(entry.server, uri));
            if let Some(route) = route.and_then(&mut consider) {
                return Some(route);
            }
        }
        denied.or_else(|| self.bound_route(self.uris.sole?, uri))
    }

    /// A URI as one certain server says it: for links that this server's results gave. `None` if that server serves
    /// no resources.
    #[must_use]
    pub fn resource_of(&self, server: usize, local: &str) -> Option<Route> {
        let uris = self.uris.servers.get(server)?;
        match uris.resources.get(local) {
            Some(at) => self.route_to(*at),
            None => self.bound_route(server, local).filter(|_| uris.serves),
        }
    }

    /// What a completion with a `ref/resource` is about: a public template by its text, else a resource.
    #[must_use]
    pub fn completion_resource(&self, uri: &str) -> Option<Route> {
        let template = self.names.get(ListKind::Templates).get(uri);
        match template.and_then(|at| self.entries.get(ListKind::Templates).get(*at)) {
            Some(entry) => Some(Route {
                server: entry.server,
                server_name: entry.server_name.clone(),
                local: entry.local.clone(),
                bound: entry.bound.clone(),
            }),
            None => self.resource(uri),
        }
    }

    fn route_to(&self, at: usize) -> Option<Route> {
        let entry = self.entries.get(ListKind::Resources).get(at)?;
        Some(Route {
            server: entry.server,
            server_name: entry.server_name.clone(),
            local: entry.local.clone(),
            bound: entry.bound.clone(),
        })
    }

    fn bound_route(&self, server: usize, local: &str) -> Option<Route> {
        let name = &self.uris.servers.get(server)?.name;
        Some(Route {
            server,
            server_name: name.clone(),
            local: local.into(),
            bound: self.policy.bind(Kind::Resource, name, local),
        })
    }

    /// Whether this server has URIs that are public in another form, so that its results must be looked through.
    #[must_use]
    pub fn rewrites_uris(&self, server: usize) -> bool {
        self.uris.servers.get(server).is_some_and(|s| s.rewritten)
    }

    /// The public form of a URI that a server says, if it differs: its own rewritten URIs, and any other that
    /// would lead to another server.
    #[must_use]
    pub fn public_uri(&self, server: usize, local: &str) -> Option<Arc<str>> {
        let uris = self.uris.servers.get(server).filter(|s| s.rewritten)?;
        if let Some(at) = uris.resources.get(local) {
            let entry = self.entries.get(ListKind::Resources).get(*at)?;
            return (entry.public != entry.local).then(|| entry.public.clone());
        }
        let elsewhere = self.resource(local).is_some_and(|route| route.server != server);
        elsewhere.then(|| self.uris.manifold_uri(server, local))
    }

    /// The edits that make the links in a message of a server public: in `contents`, `content`, `messages`, a
    /// top-level `uri` (`notifications/resources/updated`) and the `_meta` members that name a `ui://` resource.
    /// `payload` is the span of `result` or `params`. Nothing is looked at if the server has no rewritten URI.
    #[must_use]
    pub fn rewrite_links(&self, server: usize, bytes: &Bytes, payload: Span) -> Vec<(Span, Bytes)> {
        if !self.rewrites_uris(server) {
            return Vec::new();
        }
        let mut walk = LinkWalk {
            catalog: self,
            server,
            bytes,
            edits: Vec::new(),
        };
        walk.payload(payload);
        walk.edits
    }
}

/// Visits the places where the protocol puts URIs, and no others: text is nobody's to rewrite.
struct LinkWalk<'a> {
    catalog: &'a Catalog,
    server: usize,
    bytes: &'a Bytes,
    edits: Vec<(Span, Bytes)>,
}

impl LinkWalk<'_> {
    fn payload(&mut self, payload: Span) {
        for found in crate::wire::json::members(self.bytes, payload) {
            match &*unquote(found.key.of(self.bytes)) {
                "uri" => self.uri(Some(found.value)),
                "_meta" => self.meta(found.value),
                "contents" => {
                    for content in items(self.bytes, found.value) {
                        self.uri(member(self.bytes, content, "uri"));
                    }
                }
                "content" => self.content(found.value),
                "messages" => {
                    for message in items(self.bytes, found.value) {
                        if let Some(content) = member(self.bytes, message, "content") {
                            self.content(content);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// One content block or an array of them.
    fn content(&mut self, span: Span) {
        if kind_of(span.of(self.bytes)) == Some(ValueKind::Array) {
            for block in items(self.bytes, span) {
                self.block(block);
            }
        } else {
            self.block(span);
        }
    }

    fn block(&mut self, block: Span) {
        let kind = member(self.bytes, block, "type").map(|span| unquote(span.of(self.bytes)));
        match kind.as_deref() {
            Some("resource_link") => self.uri(member(self.bytes, block, "uri")),
            Some("resource") => {
                let resource = member(self.bytes, block, "resource");
                self.uri(resource.and_then(|span| member(self.bytes, span, "uri")));
            }
            _ => return,
        }
        if let Some(meta) = member(self.bytes, block, "_meta") {
            self.meta(meta);
        }
    }

    fn meta(&mut self, meta: Span) {
        let nested = member(self.bytes, meta, "ui").and_then(|ui| member(self.bytes, ui, "resourceUri"));
        self.uri(nested);
        self.uri(member(self.bytes, meta, "ui/resourceUri"));
    }

    fn uri(&mut self, place: Option<Span>) {
        let Some(place) = place.filter(|p| kind_of(p.of(self.bytes)) == Some(ValueKind::String)) else {
            return;
        };
        let local = unquote(place.of(self.bytes));
        if let Some(public) = self.catalog.public_uri(self.server, &local) {
            self.edits.push((place, Bytes::from(quote(&public))));
        }
    }
}

#[cfg(test)]
mod tests;
