//! One item of the catalog: what is known of it and its public JSON in the two spellings that hosts may need.
//!
//! It owns the one walk over a listed item and the splicing of its name, URI and texts. The merge calls it. It never
//! changes a byte besides the named members, and never looks at other items.

use bytes::Bytes;
use std::sync::Arc;

use super::ListKind;
use crate::policy::Bound;
use crate::revision::Family;
use crate::wire::headers::{HeaderAnnotations, HeaderParam};
use crate::wire::json::{JsonLimits, ObjectMember, Scanner, ValueKind, kind_of, member, quote, unquote};
use crate::wire::{Span, Splice};

/// Whether a tool runs as a core task of 2025-11-25.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TaskSupport {
    /// Never, or the tool does not say.
    #[default]
    Forbidden,
    /// If the host asks for it.
    Optional,
    /// Always.
    Required,
}

/// What the catalog knows about an item besides its name. Hints are the server's own claims: whether they may relax
/// anything is for policy to say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// `annotations.readOnlyHint`
    pub read_only: Option<bool>,
    /// `annotations.destructiveHint`
    pub destructive: Option<bool>,
    /// `annotations.idempotentHint`
    pub idempotent: Option<bool>,
    /// `annotations.openWorldHint`
    pub open_world: Option<bool>,
    /// `execution.taskSupport`
    pub task_support: TaskSupport,
    /// The tool's output schema describes something else than an object, so legacy hosts are not shown it and must
    /// not be sent `structuredContent` either.
    pub free_output: bool,
    /// The `ui://` resource that a host shows for the tool, as the server says it.
    pub ui_resource: Option<Arc<str>>,
    /// The arguments that a modern host repeats in headers, and that we repeat towards a modern HTTP server.
    pub header_params: Vec<HeaderParam>,
}

/// An item in the catalog.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which list it belongs to.
    pub kind: ListKind,
    /// Position of its server in the configuration.
    pub server: usize,
    /// Its server's name.
    pub server_name: Arc<str>,
    /// The family that its server speaks.
    pub family: Family,
    /// The name, URI or URI template as the server says it.
    pub local: Arc<str>,
    /// The same as hosts see it.
    pub public: Arc<str>,
    /// The rules about it; hosts see it only if they say so, and calls must have them decided.
    pub bound: Bound,
    /// What is known of it.
    pub facts: Facts,
    pub(super) legacy: Bytes,
    pub(super) modern: Bytes,
}

impl Entry {
    /// The item's JSON for hosts of a family.
    #[must_use]
    pub fn json(&self, family: Family) -> &Bytes {
        match family {
            Family::Legacy => &self.legacy,
            Family::Modern => &self.modern,
        }
    }

    /// Whether hosts see it in lists.
    #[must_use]
    pub fn listed(&self) -> bool {
        self.bound.listed()
    }
}

/// Where the interesting members of an item stand.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    id: Span,
    pub(super) local: String,
    title: Option<Span>,
    description: Option<ObjectMember>,
    output_schema: Option<ObjectMember>,
    execution: Option<ObjectMember>,
    /// Places of `ui://` references in `_meta`, quoted.
    ui: Vec<Span>,
    pub(super) facts: Facts,
    /// What is wrong with the parameter headers. A modern server's tool is not shown to anybody then.
    pub(super) header_fault: Option<String>,
}

/// Reads an item. The error says what is wrong with it, to follow its name in a warning.
///
/// Hosts that check lists strictly lose a whole list over one item that breaks the schema, and with it the items of
/// all other servers. So such an item is refused here. `null` for an optional member passes: many servers write it,
/// and hosts that cannot read it are few.
pub(super) fn parse(kind: ListKind, item: &Bytes) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    let mut id = None;
    let mut name = None;
    let mut input_schema = None;
    let mut annotations = None;
    let mut meta = None;
    let mut problem: Option<String> = None;
    let mut scanner = Scanner::new(item, JsonLimits::default());
    let walked = scanner.object(|s, quoted| {
        let value = s.value()?;
        let pair = ObjectMember { key: quoted, value };
        let key = unquote(quoted.of(item));
        let found = kind_of(value.of(item));
        let wanted = match &*key {
            "name" | "title" | "description" | "uri" | "uriTemplate" | "mimeType" => ValueKind::String,
            "inputSchema" | "outputSchema" | "annotations" | "execution" | "_meta" => ValueKind::Object,
            "arguments" if kind == ListKind::Prompts => ValueKind::Array,
            "icons" => ValueKind::Array,
            _ => return Ok(()),
        };
        let null = found == Some(ValueKind::Null) && key != kind.id_key();
        if null && !matches!(&*key, "title" | "description") {
            return Ok(());
        }
        if found != Some(wanted) && !null {
            problem.get_or_insert_with(|| format!("has a \"{key}\" that is no {}", word(wanted)));
            return Ok(());
        }
        let twice = match &*key {
            "name" => name.replace(value).is_some(),
            "inputSchema" => input_schema.replace(value).is_some(),
            "annotations" => annotations.replace(value).is_some(),
            "_meta" => meta.replace(value).is_some(),
            "title" => parsed.title.replace(value).is_some(),
            "description" => parsed.description.replace(pair).is_some(),
            "outputSchema" => parsed.output_schema.replace(pair).is_some(),
            "execution" => parsed.execution.replace(pair).is_some(),
            _ => false,
        } || (key == kind.id_key() && id.replace(value).is_some());
        if twice {
            problem.get_or_insert_with(|| format!("gives \"{key}\" twice"));
        }
        Ok(())
    });
    if let Err(fault) = walked {
        return Err(format!("is not acceptable: {fault}"));
    }
    if let Some(problem) = problem {
        return Err(problem);
    }
    let Some(id) = id else {
        return Err(format!("has no \"{}\"", kind.id_key()));
    };
    parsed.id = id;
    parsed.local = unquote(id.of(item)).into_owned();
    if name.is_none() {
        return Err("has no \"name\"".to_owned());
    }
    if kind == ListKind::Tools {
        let Some(schema) = input_schema.filter(|schema| describes_object(item, *schema)) else {
            return Err("has no \"inputSchema\" of \"type\": \"object\"".to_owned());
        };
        match HeaderAnnotations::from_schema(schema.of(item)) {
            Ok(params) => parsed.facts.header_params = params,
            Err(fault) => parsed.header_fault = Some(fault.to_string()),
        }
        let hint = |key: &str| match member(item, annotations?, key)?.of(item) {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        };
        parsed.facts.read_only = hint("readOnlyHint");
        parsed.facts.destructive = hint("destructiveHint");
        parsed.facts.idempotent = hint("idempotentHint");
        parsed.facts.open_world = hint("openWorldHint");
        // Hosts show this one where there is no other title.
        parsed.title = parsed.title.or_else(|| member(item, annotations?, "title"));
        parsed.facts.free_output = parsed
            .output_schema
            .is_some_and(|schema| !describes_object(item, schema.value));
        let support = parsed
            .execution
            .and_then(|e| member(item, e.value, "taskSupport"))
            .map(|span| span.of(item));
        parsed.facts.task_support = match support {
            Some(b"\"optional\"") => TaskSupport::Optional,
            Some(b"\"required\"") => TaskSupport::Required,
            _ => TaskSupport::Forbidden,
        };
        if let Some(meta) = meta {
            let nested = member(item, meta, "ui").and_then(|ui| member(item, ui, "resourceUri"));
            let flat = member(item, meta, "ui/resourceUri");
            let places = [nested, flat].into_iter().flatten();
            parsed.ui = places
                .filter(|span| kind_of(span.of(item)) == Some(ValueKind::String))
                .collect();
            parsed.facts.ui_resource = parsed.ui.first().map(|span| Arc::from(&*unquote(span.of(item))));
        }
    }
    Ok(parsed)
}

fn word(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Object => "object",
        ValueKind::Array => "array",
        ValueKind::String => "string",
        ValueKind::Number => "number",
        ValueKind::Bool => "boolean",
        ValueKind::Null => "null",
    }
}

fn describes_object(item: &[u8], schema: Span) -> bool {
    member(item, schema, "type").is_some_and(|span| unquote(span.of(item)) == "object")
}

/// What is to be different in the public spelling of an item.
pub(super) struct Changes<'a> {
    /// The public name, URI or template, if it differs from the local one.
    pub(super) public: Option<&'a str>,
    /// A title to add if the item has none.
    pub(super) title: Option<&'a str>,
    /// A description in place of the server's.
    pub(super) description: Option<&'a str>,
    /// The public form of a URI that is rewritten.
    pub(super) rewrite: &'a dyn Fn(&str) -> Option<Arc<str>>,
}

/// The item's JSON for legacy and for modern hosts.
pub(super) fn render(item: &Bytes, parsed: &Parsed, changes: &Changes<'_>, server: Family) -> (Bytes, Bytes) {
    let whole = Span::new(0, item.len());
    let mut splice = Splice::new();
    if let Some(public) = changes.public {
        splice.replace(parsed.id, quote(public));
    }
    let mut added = Vec::new();
    if let (Some(title), None) = (changes.title, parsed.title) {
        added.push(format!("\"title\":{}", quote(title)));
    }
    if let Some(text) = changes.description {
        match parsed.description {
            Some(place) => {
                splice.replace(place.value, quote(text));
            }
            None => added.push(format!("\"description\":{}", quote(text))),
        }
    }
    if !added.is_empty() {
        splice.insert_members(item, whole, added.join(","));
    }
    for place in &parsed.ui {
        if let Some(public) = (changes.rewrite)(&unquote(place.of(item))) {
            splice.replace(*place, quote(&public));
        }
    }
    let apply = |splice: Splice| {
        if splice.is_empty() {
            item.clone()
        } else {
            splice.apply(item).into_bytes()
        }
    };
    let legacy = parsed
        .output_schema
        .filter(|_| parsed.facts.free_output)
        .map(|place| {
            let mut legacy = splice.clone();
            legacy.remove_member(item, place);
            apply(legacy)
        });
    let modern = parsed
        .execution
        .filter(|_| server == Family::Legacy)
        .and_then(|execution| {
            let inner = crate::wire::json::members(item, execution.value);
            let place = inner.iter().find(|m| unquote(m.key.of(item)) == "taskSupport")?;
            let mut modern = splice.clone();
            modern.remove_member(item, if inner.len() == 1 { execution } else { *place });
            Some(apply(modern))
        });
    match (legacy, modern) {
        (Some(legacy), Some(modern)) => (legacy, modern),
        (Some(legacy), None) => (legacy, apply(splice)),
        (None, Some(modern)) => (apply(splice), modern),
        (None, None) => {
            let both = apply(splice);
            (both.clone(), both)
        }
    }
}

#[cfg(test)]
mod tests;
