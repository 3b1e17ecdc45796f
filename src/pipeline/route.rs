//! Which server and item a request means, and how it must be spelled there. Names are looked up, never split.

use super::call::Target;
use super::catalogs::CatalogKey;
use super::fault::Fault;
use super::gateway::Gateway;
use super::service::HostRequest;
use crate::catalog::ListKind;
use crate::revision::Family;
use crate::wire::headers;
use crate::wire::json::{ValueKind, kind_of, member, quote, unquote};
use crate::wire::{Member, Splice};

impl Gateway {
    pub(super) fn route(
        &self,
        request: &HostRequest,
        method: &str,
        key: CatalogKey,
    ) -> Result<Option<Target>, Fault> {
        match method {
            "tools/call" => self.route_named(request, key, ListKind::Tools).map(Some),
            "prompts/get" => self.route_named(request, key, ListKind::Prompts).map(Some),
            "completion/complete" => self.route_completion(request, key),
            _ => self.route_uri(request, key).map(Some),
        }
    }

    pub(super) fn route_named(
        &self,
        request: &HostRequest,
        key: CatalogKey,
        kind: ListKind,
    ) -> Result<Target, Fault> {
        let message = &request.message;
        let noun = if kind == ListKind::Prompts {
            "prompt"
        } else {
            "tool"
        };
        let (Some(name), Some(span)) = (message.text(Member::Name), message.span(Member::Name)) else {
            return Err(Fault::params("\"params.name\" must be a string"));
        };
        let unknown = Fault::unknown(noun, &name);
        let catalog = self.catalog(key);
        let found = if kind == ListKind::Prompts {
            catalog.prompt(&name)
        } else {
            catalog.tool(&name)
        };
        let Some(entry) = found else { return Err(unknown) };
        let mut splice = Splice::new();
        if entry.public != entry.local {
            splice.replace(span, quote(&entry.local));
        }
        let mut params = Vec::new();
        let annotations = &entry.facts.header_params;
        if !annotations.is_empty() {
            let arguments = message.raw(Member::Arguments).unwrap_or(b"{}");
            if let Some(given) = &request.headers {
                headers::check(annotations, arguments, |name| {
                    given.get(name).map(http::HeaderValue::as_bytes)
                })
                .map_err(|mismatch| Fault {
                    status: 400,
                    ..Fault::host(-32020, "header_mismatch", mismatch.to_string())
                })?;
            }
            params = headers::values(annotations, arguments);
        }
        Ok(Target {
            server: entry.server_name.clone(),
            bound: entry.bound.clone(),
            public: entry.public.clone(),
            splice,
            name: Some(entry.local.to_string()),
            params,
            unknown,
            free_output: entry.facts.free_output,
        })
    }

    pub(super) fn route_uri(&self, request: &HostRequest, key: CatalogKey) -> Result<Target, Fault> {
        let message = &request.message;
        let (Some(uri), Some(span)) = (message.text(Member::Uri), message.span(Member::Uri)) else {
            return Err(Fault::params("\"params.uri\" must be a string"));
        };
        let modern = request.caller.revision.family() == Family::Modern;
        let unknown = Fault::unknown_resource(&uri, modern);
        let catalog = self.catalog(key);
        let route = catalog.resource(&uri).or_else(|| {
            // A link that a result of this identity named need not be listed anywhere.
            let server = self.linked(&request.caller, &uri)?;
            catalog.resource_of(catalog.position(&server)?, &uri)
        });
        let Some(route) = route else { return Err(unknown) };
        let mut splice = Splice::new();
        if *route.local != *uri {
            splice.replace(span, quote(&route.local));
        }
        Ok(Target {
            server: route.server_name,
            bound: route.bound,
            public: uri.as_ref().into(),
            splice,
            name: Some(route.local.to_string()),
            params: Vec::new(),
            unknown,
            free_output: false,
        })
    }

    /// `None`: the owner completes nothing, so the answer is empty.
    pub(super) fn route_completion(
        &self,
        request: &HostRequest,
        key: CatalogKey,
    ) -> Result<Option<Target>, Fault> {
        let message = &request.message;
        let bytes = message.bytes();
        let wrong =
            || Fault::params("\"params.ref\" must be a ref/prompt with a name or a ref/resource with a uri");
        let reference = message.span(Member::Ref).ok_or_else(wrong)?;
        let text = |key: &str| {
            member(bytes, reference, key)
                .filter(|span| kind_of(span.of(bytes)) == Some(ValueKind::String))
                .map(|span| (unquote(span.of(bytes)).into_owned(), span))
        };
        let catalog = self.catalog(key);
        let mut splice = Splice::new();
        let (server, bound, local, public, unknown) = match text("type").ok_or_else(wrong)?.0.as_str() {
            "ref/prompt" => {
                let (name, span) = text("name").ok_or_else(wrong)?;
                let unknown = Fault::unknown("prompt", &name);
                let Some(entry) = catalog.prompt(&name) else {
                    return Err(unknown);
                };
                if entry.public != entry.local {
                    splice.replace(span, quote(&entry.local));
                }
                (
                    entry.server_name.clone(),
                    entry.bound.clone(),
                    entry.local.clone(),
                    entry.public.clone(),
                    unknown,
                )
            }
            "ref/resource" => {
                let (uri, span) = text("uri").ok_or_else(wrong)?;
                let modern = request.caller.revision.family() == Family::Modern;
                let unknown = Fault::unknown_resource(&uri, modern);
                let Some(route) = catalog.completion_resource(&uri) else {
                    return Err(unknown);
                };
                if *route.local != *uri {
                    splice.replace(span, quote(&route.local));
                }
                (
                    route.server_name,
                    route.bound,
                    route.local,
                    uri.as_str().into(),
                    unknown,
                )
            }
            _ => return Err(wrong()),
        };
        let completes = self
            .server(&server)
            .and_then(|s| s.listing(key))
            .is_some_and(|l| l.offers.completions);
        if !completes && bound.listed() {
            return Ok(None);
        }
        let name = Some(local.to_string());
        Ok(Some(Target {
            server,
            bound,
            public,
            splice,
            name,
            params: Vec::new(),
            unknown,
            free_output: false,
        }))
    }
}
