//! Checks one file's tree against the schema: unknown keys, wrong types, words and numbers out of range.
//!
//! Reports everything at once and takes out what is wrong, so that the rest can be read and checked further.
//! The schema is the only source of what is allowed. Rules across keys are in `validate`.

use serde_json::Value;

use super::locate::{KeyPath, Step};
use super::problem::Problem;
use super::schema::{alternatives, resolve, types, words};
use super::suggest::nearest;
use super::tree::{Entry, Format, Kind, Node, parse};
use super::units::{ADDRESS_FORMAT, BindAddress, ByteSize, DURATION_FORMAT, SIZE_FORMAT, parse_duration};

/// Keys that the design knows and this version does not offer yet, with `*` for a server name or a list index.
const NOT_OFFERED_KEYS: &[&str] = &[
    "policy.lock",
    "policy.layers",
    "policy.tests",
    "policy.rules.*.who",
    "policy.rules.*.when",
    "policy.rules.*.annotations",
    "policy.rules.*.ask",
    "policy.rules.*.reveal",
    "policy.rules.*.mode",
    "audit.redact",
    "audit.sign",
    "telemetry.otlp",
    "listen.tls",
    "listen.auth",
    "servers.*.auth",
    "servers.*.oauth",
    "limits.rate",
    "limits.rate_per_identity",
    "limits.rate_per_tool",
];

/// Words of the same sort.
const NOT_OFFERED_WORDS: &[(&str, &str)] = &[
    ("policy.default", "ask"),
    ("policy.rules.*.effect", "ask"),
    ("audit.durability", "strict"),
    ("audit.arguments", "redacted"),
    ("audit.arguments", "full"),
];

/// Where a tree comes from, which decides how it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// A file of ours.
    Strict,
    /// A host's own file: unknown keys are warnings.
    HostFile,
    /// Variables and flags: every value is a text that may stand for a number, a list and so on.
    TextValues,
}

/// Checks one tree. `text` is the file that it was read from.
pub(crate) struct Checker<'a> {
    pub(crate) root: &'a Value,
    pub(crate) text: &'a str,
    pub(crate) manner: Manner,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(root: &'a Value, text: &'a str, manner: Manner) -> Self {
        Self {
            root,
            text,
            manner,
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Checks the whole tree and takes out of it what cannot be used.
    pub(crate) fn run(&mut self, tree: &mut Node) {
        if !self.value(tree, self.root, &KeyPath::default()) {
            tree.kind = Kind::Map(Vec::new());
        }
    }

    /// `false` if the value cannot be used.
    fn value(&mut self, node: &mut Node, schema: &'a Value, path: &KeyPath) -> bool {
        let choices = alternatives(self.root, schema);
        if self.manner == Manner::TextValues {
            interpret(node, &choices);
        }
        let fits = |choice: &&&Value| types(choice).iter().any(|name| is_of_type(node, name));
        let Some(choice) = choices.iter().find(fits).copied() else {
            return self.wrong_type(node, &choices, path);
        };
        match &node.kind {
            Kind::Map(_) => self.map(node, choice, path),
            Kind::List(_) => self.list(node, choice, path),
            Kind::Text(text) => {
                let text = text.clone();
                self.text(&text, node, &choices, path)
            }
            Kind::Integer(number) => self.number(*number, node, choice, path),
            _ => {
                self.keep_spelling(node, choice);
                true
            }
        }
    }

    fn wrong_type(&mut self, node: &Node, choices: &[&Value], path: &KeyPath) -> bool {
        let allowed: Vec<&str> = choices.iter().flat_map(|choice| types(choice)).collect();
        let is_section = allowed.contains(&"object") || allowed.contains(&"array");
        if node.kind == Kind::Null && is_section && path.to_string() != "policy" {
            return false; // a section left empty: its defaults hold
        }
        let format = choices
            .iter()
            .find_map(|choice| choice.get("format").and_then(Value::as_str));
        if let (Some(DURATION_FORMAT), Kind::Integer(number)) = (format, &node.kind) {
            let number = number.unsigned_abs();
            let message =
                format!("a duration needs a unit: {number}s, {number}ms, {number}m, {number}h or {number}d");
            self.problems
                .push(Problem::new(path, message).at(Some(node.mark)));
            return false;
        }
        // Where a text is meant, numbers are only taken for one; that need not be explained.
        let allowed = if format == Some("resolvable") {
            vec!["string"]
        } else {
            allowed
        };
        let mut expected: Vec<&str> = Vec::new();
        for word in allowed.iter().filter_map(|name| type_word(name)) {
            if !expected.contains(&word) {
                expected.push(word);
            }
        }
        let expected = expected.join(" or ");
        self.problems.push(
            Problem::new(path, format!("expected {expected}, found {}", node.what()))
                .at(Some(node.mark))
                .label(format!("expected {expected}")),
        );
        false
    }

    fn map(&mut self, node: &mut Node, schema: &'a Value, path: &KeyPath) -> bool {
        let Kind::Map(entries) = std::mem::replace(&mut node.kind, Kind::Null) else {
            return false;
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let others = schema
            .get("additionalProperties")
            .filter(|others| others.is_object());
        let mut complete = true;
        if path.0.iter().any(|step| matches!(step, Step::Index(_))) {
            complete = self.required(&entries, schema, path, node);
        }
        let mut kept = Vec::with_capacity(entries.len());
        for mut entry in entries {
            let here = path.key(&entry.key);
            let known = properties
                .and_then(|properties| properties.get(&entry.key))
                .or(others);
            let Some(known) = known else {
                let keys: Vec<&str> = properties
                    .into_iter()
                    .flat_map(|all| all.keys().map(String::as_str))
                    .collect();
                self.unknown(&entry, &keys, &here);
                continue;
            };
            if entry.value.mark == super::problem::Mark::default() {
                entry.value.mark = entry.key_mark;
            }
            if self.value(&mut entry.value, known, &here) {
                kept.push(entry);
            }
        }
        node.kind = Kind::Map(kept);
        complete
    }

    fn required(&mut self, entries: &[Entry], schema: &Value, path: &KeyPath, node: &Node) -> bool {
        let mut complete = true;
        for key in schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !entries.iter().any(|entry| entry.key == key) {
                complete = false;
                let mark = entries.first().map_or(node.mark, |first| first.key_mark);
                self.problems
                    .push(Problem::new(path, format!("the key `{key}` is missing")).at(Some(mark)));
            }
        }
        complete
    }

    fn unknown(&mut self, entry: &Entry, keys: &[&str], path: &KeyPath) {
        let pattern = path.pattern();
        let problem = Problem::new(path, String::new()).at(Some(entry.key_mark));
        if NOT_OFFERED_KEYS.contains(&pattern.as_str()) {
            self.problems.push(Problem {
                message: format!(
                    "`{}` is not offered by this version of manifold yet; remove it",
                    entry.key
                ),
                label: "not offered yet".to_owned(),
                ..problem
            });
            return;
        }
        if self.manner == Manner::HostFile {
            let message = format!("the key `{}` of this host's file is ignored", entry.key);
            self.warnings.push(Problem { message, ..problem });
            return;
        }
        let mut problem = problem.label("unknown key");
        problem.message = format!("unknown key `{}`", entry.key);
        problem.help = if let Some(meant) = nearest(&entry.key, keys.iter().copied()) {
            problem.label = format!("did you mean `{meant}`?");
            None
        } else if let Some(section) = self.home_of(&entry.key) {
            Some(format!("`{}` belongs under `{section}`", entry.key))
        } else {
            let mut keys = keys.to_vec();
            keys.sort_unstable();
            Some(format!("known keys here are {}", keys.join(", ")))
        };
        self.problems.push(problem);
    }

    /// The section in which a key would be known.
    fn home_of(&self, key: &str) -> Option<String> {
        let sections = self.root.get("properties")?.as_object()?;
        sections.iter().find_map(|(name, schema)| {
            alternatives(self.root, schema).into_iter().find_map(|schema| {
                let has = |schema: &Value| schema.get("properties").is_some_and(|all| all.get(key).is_some());
                if has(schema) {
                    return Some(name.clone());
                }
                let items = resolve(self.root, schema.get("additionalProperties")?);
                has(items).then(|| format!("{name}.<name>"))
            })
        })
    }

    fn list(&mut self, node: &mut Node, schema: &'a Value, path: &KeyPath) -> bool {
        let Kind::List(items) = &mut node.kind else {
            return false;
        };
        let Some(item_schema) = schema.get("items") else {
            return true;
        };
        let mut usable = true;
        for (index, item) in items.iter_mut().enumerate() {
            usable &= self.value(item, item_schema, &path.index(index));
        }
        usable
    }

    fn text(&mut self, text: &str, node: &Node, choices: &[&'a Value], path: &KeyPath) -> bool {
        let allowed: Vec<&str> = choices.iter().flat_map(|choice| words(choice)).collect();
        if !allowed.is_empty() && !allowed.contains(&text) {
            let pattern = path.pattern();
            let problem = if NOT_OFFERED_WORDS.contains(&(pattern.as_str(), text)) {
                Problem::new(
                    path,
                    format!(
                        "`{text}` is not offered by this version of manifold yet; use {}",
                        allowed.join(" or ")
                    ),
                )
                .label("not offered yet")
            } else {
                let problem = Problem::new(path, format!("`{text}` is not one of {}", allowed.join(", ")));
                match nearest(text, allowed.iter().copied()) {
                    Some(meant) => problem.label(format!("did you mean `{meant}`?")),
                    None => problem,
                }
            };
            self.problems.push(problem.at(Some(node.mark)));
            return false;
        }
        let format = choices
            .iter()
            .find_map(|choice| choice.get("format").and_then(Value::as_str));
        let checked = match format {
            Some(SIZE_FORMAT) => ByteSize::parse(text).map(|_| ()),
            Some(DURATION_FORMAT) => parse_duration(text).map(|_| ()),
            Some(ADDRESS_FORMAT) => BindAddress::parse(text).map(|_| ()),
            _ => Ok(()),
        };
        if let Err(fault) = checked {
            self.problems.push(Problem::new(path, fault).at(Some(node.mark)));
            return false;
        }
        true
    }

    fn number(&mut self, number: i64, node: &mut Node, schema: &Value, path: &KeyPath) -> bool {
        let bound = |key: &str| schema.get(key).and_then(Value::as_i64);
        let (least, most) = (bound("minimum"), bound("maximum"));
        if least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most) {
            let range = match (least, most) {
                (Some(least), Some(most)) => format!("between {least} and {most}"),
                (Some(least), None) => format!("at least {least}"),
                (_, most) => format!("at most {}", most.unwrap_or(i64::MAX)),
            };
            self.problems
                .push(Problem::new(path, format!("{number} is not {range}")).at(Some(node.mark)));
            return false;
        }
        self.keep_spelling(node, schema);
        true
    }

    /// Where texts are expected, an unquoted `1.10` or `on` is meant as it is spelled.
    fn keep_spelling(&self, node: &mut Node, schema: &Value) {
        if schema.get("format").and_then(Value::as_str) != Some("resolvable") {
            return;
        }
        if let Some(spelled) = self
            .text
            .get(node.mark.range())
            .filter(|spelled| !spelled.is_empty())
        {
            node.kind = Kind::Text(spelled.to_owned());
        }
    }
}

fn is_of_type(node: &Node, name: &str) -> bool {
    match name {
        "null" => node.kind == Kind::Null,
        "boolean" => matches!(node.kind, Kind::Bool(_)),
        "integer" => matches!(node.kind, Kind::Integer(_)),
        "number" => matches!(node.kind, Kind::Integer(_) | Kind::Float(_)),
        "string" => matches!(node.kind, Kind::Text(_)),
        "array" => matches!(node.kind, Kind::List(_)),
        "object" => matches!(node.kind, Kind::Map(_)),
        _ => false,
    }
}

fn type_word(name: &str) -> Option<&'static str> {
    match name {
        "boolean" => Some("true or false"),
        "integer" => Some("a whole number"),
        "number" => Some("a number"),
        "string" => Some("a text"),
        "array" => Some("a list"),
        "object" => Some("a map"),
        _ => None,
    }
}

/// Reads the text of a variable or flag as what its key takes.
fn interpret(node: &mut Node, choices: &[&Value]) {
    let Kind::Text(text) = &node.kind else { return };
    let allowed: Vec<&str> = choices.iter().flat_map(|choice| types(choice)).collect();
    let takes_list = allowed.contains(&"array");
    if allowed.contains(&"string") && !(takes_list && text.trim_start().starts_with('[')) {
        return;
    }
    let read = parse(text, Format::Yaml, node.mark.source).ok();
    let mut kind = match read {
        Some(read) if takes_list && !read.is_container() => {
            let item = |part: &str| Node {
                kind: Kind::Text(part.trim().to_owned()),
                mark: node.mark,
            };
            let parts = text.split(',').filter(|part| !part.trim().is_empty());
            Kind::List(parts.map(item).collect())
        }
        Some(read) => read.kind,
        None => return,
    };
    set_marks(&mut kind, node);
    node.kind = kind;
}

fn set_marks(kind: &mut Kind, outer: &Node) {
    match kind {
        Kind::List(items) => items.iter_mut().for_each(|item| {
            item.mark = outer.mark;
            set_marks(&mut item.kind, outer);
        }),
        Kind::Map(entries) => entries.iter_mut().for_each(|entry| {
            entry.key_mark = outer.mark;
            entry.value.mark = outer.mark;
            set_marks(&mut entry.value.kind, outer);
        }),
        _ => {}
    }
}
