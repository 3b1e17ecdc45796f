//! The JSON Schema of the configuration, made from the types, and the few look-ups that the checker does in it.

use std::sync::LazyLock;

use serde_json::Value;

use super::Config;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = schemars::schema_for!(Config);
    schema.insert("title".to_owned(), Value::from("manifold configuration"));
    schema.to_value()
});

/// The schema as a value.
pub(crate) fn value() -> &'static Value {
    &SCHEMA
}

/// The schema as text, with a newline at the end: what `manifold schema` prints and `config/manifold.schema.json` holds.
#[must_use]
pub fn json() -> String {
    let mut text = serde_json::to_string_pretty(value()).unwrap_or_default();
    text.push('\n');
    text
}

/// Follows a reference to its definition.
pub(crate) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let Some(name) = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|to| to.strip_prefix("#/$defs/"))
    else {
        return schema;
    };
    root.get("$defs")
        .and_then(|definitions| definitions.get(name))
        .unwrap_or(schema)
}

/// The schemas of which a value may fulfil any.
pub(crate) fn alternatives<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let schema = resolve(root, schema);
    for key in ["anyOf", "oneOf"] {
        if let Some(all) = schema.get(key).and_then(Value::as_array) {
            return all.iter().flat_map(|one| alternatives(root, one)).collect();
        }
    }
    vec![schema]
}

/// The JSON types that a schema names.
pub(crate) fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The words that an enumeration allows; empty if the schema is none.
pub(crate) fn words(schema: &Value) -> Vec<&str> {
    if let Some(word) = schema.get("const").and_then(Value::as_str) {
        return vec![word];
    }
    schema
        .get("enum")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}
