//! A file as a tree of values that know where they stand, the same for YAML, TOML and JSON.
//!
//! Order of keys and spelling of scalars are kept, keys given twice are reported, nothing is interpreted. Only the
//! loader makes and changes trees.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_saphyr::Spanned;

use super::problem::{Mark, Problem};
use crate::wire::json::{JsonFault, JsonLimits, Scanner, ValueKind, check_utf8, unquote};

/// How deep a configuration may nest.
const MAX_DEPTH: u32 = 64;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mark: Mark,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_mark: Mark,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn is_container(&self) -> bool {
        matches!(self.kind, Kind::List(_) | Kind::Map(_))
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries()
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What the value is, for messages.
    pub(crate) fn what(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "a boolean",
            Kind::Integer(_) | Kind::Float(_) => "a number",
            Kind::Text(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            Kind::Null => serializer.serialize_none(),
            Kind::Bool(value) => serializer.serialize_bool(*value),
            Kind::Integer(value) => serializer.serialize_i64(*value),
            Kind::Float(value) => serializer.serialize_f64(*value),
            Kind::Text(value) => serializer.serialize_str(value),
            Kind::List(items) => serializer.collect_seq(items),
            Kind::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for entry in entries {
                    map.serialize_entry(&entry.key, &entry.value)?;
                }
                map.end()
            }
        }
    }
}

/// The languages a file may be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Yaml,
    Toml,
    Json,
}

impl Format {
    /// By extension; without a known one, a text that starts with `{` is JSON and any other YAML.
    pub(crate) fn of(path: &Path, text: &str) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => Self::Toml,
            Some("json") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            _ if text.trim_start().starts_with('{') => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// Reads a file into a tree. An empty file is an empty map.
///
/// # Errors
/// The first violation of the grammar, or every key that is given twice.
pub(crate) fn parse(text: &str, format: Format, source: usize) -> Result<Node, Vec<Problem>> {
    let node = match format {
        Format::Yaml => parse_yaml(text, source),
        Format::Toml => parse_toml(text, source),
        Format::Json => parse_json(text, source),
    }?;
    let mut duplicates = Vec::new();
    find_duplicates(&node, &mut duplicates);
    if duplicates.is_empty() {
        Ok(node)
    } else {
        Err(duplicates)
    }
}

fn find_duplicates(node: &Node, out: &mut Vec<Problem>) {
    match &node.kind {
        Kind::List(items) => items.iter().for_each(|item| find_duplicates(item, out)),
        Kind::Map(entries) => {
            let mut seen = BTreeSet::new();
            for entry in entries {
                if !seen.insert(entry.key.as_str()) {
                    let first = entries
                        .iter()
                        .find(|other| other.key == entry.key)
                        .map(|other| other.key_mark);
                    out.push(
                        Problem::new("", format!("the key `{}` is given twice", entry.key))
                            .at(Some(entry.key_mark))
                            .label("given again here")
                            .related(first, "first given here"),
                    );
                }
                find_duplicates(&entry.value, out);
            }
        }
        _ => {}
    }
}

/// A YAML value as serde hands it over, every value and key with its position.
enum Raw {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        // Only numbers that no key accepts are too large for i64.
        Ok(i64::try_from(value).map_or(Raw::Float(f64::MAX), Raw::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

fn yaml_mark(location: serde_saphyr::Location, source: usize) -> Mark {
    let clip = |value: Option<u64>| value.and_then(|value| usize::try_from(value).ok()).unwrap_or(0);
    let start = clip(location.span().byte_offset());
    Mark {
        source,
        start,
        end: start + clip(location.span().byte_len()),
    }
}

fn yaml_node(marked: Spanned<Raw>, source: usize) -> Node {
    let mark = yaml_mark(marked.referenced, source);
    let kind = match marked.value {
        Raw::Null => Kind::Null,
        Raw::Bool(value) => Kind::Bool(value),
        Raw::Integer(value) => Kind::Integer(value),
        Raw::Float(value) => Kind::Float(value),
        Raw::Text(value) => Kind::Text(value),
        Raw::List(items) => Kind::List(items.into_iter().map(|item| yaml_node(item, source)).collect()),
        Raw::Map(entries) => Kind::Map(
            entries
                .into_iter()
                .map(|(key, value)| Entry {
                    key_mark: yaml_mark(key.referenced, source),
                    key: key.value,
                    value: yaml_node(value, source),
                })
                .collect(),
        ),
    };
    Node { kind, mark }
}

fn parse_yaml(text: &str, source: usize) -> Result<Node, Vec<Problem>> {
    let whole = Mark {
        source,
        start: 0,
        end: 0,
    };
    let only_comments = text.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line == "---"
    });
    if only_comments {
        return Ok(Node {
            kind: Kind::Map(Vec::new()),
            mark: whole,
        });
    }
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH as usize },
    };
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options) {
        Ok(marked) => Ok(yaml_node(marked, source)),
        Err(error) => {
            let mark = error.location().map(|location| {
                let start = offset_of(text, location.line(), location.column());
                Mark {
                    source,
                    start,
                    end: start + 1,
                }
            });
            let told = error.without_snippet().to_string();
            // The position is drawn by us; the library repeats it at the end of its message.
            let message = told
                .split(" at line ")
                .next()
                .unwrap_or(&told)
                .trim_end_matches([':', ' ']);
            Err(vec![
                Problem::new("", format!("this is no valid YAML: {message}")).at(mark.or(Some(whole))),
            ])
        }
    }
}

/// The byte offset of a line and column that count from 1.
fn offset_of(text: &str, line: u64, column: u64) -> usize {
    let line = usize::try_from(line).unwrap_or(1).max(1) - 1;
    let column = usize::try_from(column).unwrap_or(1).max(1) - 1;
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    start + rest.chars().take(column).map(char::len_utf8).sum::<usize>()
}

fn parse_toml(text: &str, source: usize) -> Result<Node, Vec<Problem>> {
    let mark = |span: Option<Range<usize>>| {
        let span = span.unwrap_or_default();
        Mark {
            source,
            start: span.start,
            end: span.end,
        }
    };
    match toml_edit::ImDocument::parse(text) {
        Ok(document) => Ok(toml_item(document.as_item(), &mark)),
        Err(error) => {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            Err(vec![
                Problem::new("", format!("this is no valid TOML: {message}")).at(Some(mark(error.span()))),
            ])
        }
    }
}

fn toml_item(item: &toml_edit::Item, mark: &impl Fn(Option<Range<usize>>) -> Mark) -> Node {
    let kind = match item {
        toml_edit::Item::None => Kind::Null,
        toml_edit::Item::Value(value) => toml_value(value, mark),
        toml_edit::Item::Table(table) => toml_table(table, mark),
        toml_edit::Item::ArrayOfTables(tables) => Kind::List(
            tables
                .iter()
                .map(|table| Node {
                    kind: toml_table(table, mark),
                    mark: mark(table.span()),
                })
                .collect(),
        ),
    };
    Node {
        kind,
        mark: mark(item.span()),
    }
}

fn toml_table(table: &dyn toml_edit::TableLike, mark: &impl Fn(Option<Range<usize>>) -> Mark) -> Kind {
    let entry = |(key, item): (&str, &toml_edit::Item)| Entry {
        key: key.to_owned(),
        key_mark: mark(table.key(key).and_then(toml_edit::Key::span)),
        value: toml_item(item, mark),
    };
    Kind::Map(table.iter().map(entry).collect())
}

fn toml_value(value: &toml_edit::Value, mark: &impl Fn(Option<Range<usize>>) -> Mark) -> Kind {
    match value {
        toml_edit::Value::String(text) => Kind::Text(text.value().clone()),
        toml_edit::Value::Integer(value) => Kind::Integer(*value.value()),
        toml_edit::Value::Float(value) => Kind::Float(*value.value()),
        toml_edit::Value::Boolean(value) => Kind::Bool(*value.value()),
        toml_edit::Value::Datetime(value) => Kind::Text(value.value().to_string()),
        toml_edit::Value::Array(items) => Kind::List(
            items
                .iter()
                .map(|item| Node {
                    kind: toml_value(item, mark),
                    mark: mark(item.span()),
                })
                .collect(),
        ),
        toml_edit::Value::InlineTable(table) => toml_table(table, mark),
    }
}

fn parse_json(text: &str, source: usize) -> Result<Node, Vec<Problem>> {
    let limits = JsonLimits { depth: MAX_DEPTH };
    let bytes = text.as_bytes();
    if text.trim().is_empty() {
        return Ok(Node {
            kind: Kind::Map(Vec::new()),
            mark: Mark {
                source,
                start: 0,
                end: 0,
            },
        });
    }
    let mut scanner = Scanner::new(bytes, limits);
    let parsed = check_utf8(bytes).and_then(|()| {
        let node = json_value(&mut scanner, bytes, source)?;
        scanner.end()?;
        Ok(node)
    });
    parsed.map_err(|fault| {
        let start = match fault {
            JsonFault::Syntax(at) | JsonFault::Trailing(at) | JsonFault::NotUtf8(at) => at,
            _ => text.trim_end().len().saturating_sub(1),
        };
        let rest = text.get(start..).unwrap_or_default();
        let message = if rest.starts_with("//") || rest.starts_with("/*") {
            "JSON has no comments; write YAML to have them"
        } else if rest.starts_with(['}', ']']) {
            "something is missing here, or there is a comma too many before"
        } else {
            "this does not belong here"
        };
        let message = match fault {
            JsonFault::Syntax(_) => message.to_owned(),
            JsonFault::Trailing(_) => "something follows the end".to_owned(),
            JsonFault::Truncated => "the text ends too early".to_owned(),
            other => other.to_string(),
        };
        let mark = Mark {
            source,
            start,
            end: start + 1,
        };
        vec![Problem::new("", format!("this is no valid JSON: {message}")).at(Some(mark))]
    })
}

fn json_value(scanner: &mut Scanner<'_>, bytes: &[u8], source: usize) -> Result<Node, JsonFault> {
    let kind = scanner.next_kind()?;
    let mark = |span: crate::wire::json::Span| {
        let range = span.range();
        Mark {
            source,
            start: range.start,
            end: range.end,
        }
    };
    match kind {
        ValueKind::Object => {
            let mut entries = Vec::new();
            let span = scanner.object(|inner, key| {
                let value = json_value(inner, bytes, source)?;
                let name = unquote(key.of(bytes)).into_owned();
                entries.push(Entry {
                    key: name,
                    key_mark: mark(key),
                    value,
                });
                Ok(())
            })?;
            Ok(Node {
                kind: Kind::Map(entries),
                mark: mark(span),
            })
        }
        ValueKind::Array => {
            let mut items = Vec::new();
            let span = scanner.array(|inner| {
                items.push(json_value(inner, bytes, source)?);
                Ok(())
            })?;
            Ok(Node {
                kind: Kind::List(items),
                mark: mark(span),
            })
        }
        _ => {
            let span = scanner.value()?;
            let text = span.text(bytes);
            let kind = match kind {
                ValueKind::Null => Kind::Null,
                ValueKind::Bool => Kind::Bool(text == "true"),
                ValueKind::Number => match text.parse() {
                    Ok(integer) => Kind::Integer(integer),
                    Err(_) => Kind::Float(text.parse().unwrap_or(f64::MAX)),
                },
                _ => Kind::Text(unquote(span.of(bytes)).into_owned()),
            };
            Ok(Node {
                kind,
                mark: mark(span),
            })
        }
    }
}

#[cfg(test)]
mod tests;
