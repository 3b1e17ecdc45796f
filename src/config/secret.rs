//! Texts that may refer to secrets: `${env:NAME}`, `${file:/path}`, `${exec:command}`.
//!
//! This module owns the two text types and their resolution. What a reference resolved to is reachable only by
//! [`expose`](Resolvable::expose); no `Debug`, `Display` or `Serialize` of these types ever prints it.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::resolve::Resolver;

/// A text of the configuration that may hold references to secrets: a command, an argument, a URL.
///
/// `Debug` and `Serialize` print it as it stands in the file, with the references and without their values.
#[derive(Clone, Default)]
pub struct Resolvable {
    written: String,
    resolved: Option<SecretString>,
}

impl Resolvable {
    /// A text without references: it is what it says, even if it contains `${`.
    #[must_use]
    pub fn literal(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            resolved: Some(SecretString::from(text.clone())),
            written: text,
        }
    }

    /// The text to use, with secrets in it. Never print, log or store what this returns.
    ///
    /// Before `load::load` has resolved it, it is the text as written.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.resolved
            .as_ref()
            .map_or(&self.written, |secret| secret.expose_secret())
    }

    pub(super) fn resolve(&mut self, resolver: &Resolver<'_>) -> Result<(), String> {
        let value = resolver.expand(&self.written)?;
        self.resolved = Some(SecretString::from(value));
        Ok(())
    }

    /// The text as it stands in the file: safe to print.
    #[must_use]
    pub fn written(&self) -> &str {
        &self.written
    }
}

impl From<&str> for Resolvable {
    fn from(text: &str) -> Self {
        Self::literal(text)
    }
}

impl PartialEq for Resolvable {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written && self.expose() == other.expose()
    }
}

impl Eq for Resolvable {}

impl fmt::Debug for Resolvable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.written, f)
    }
}

impl Serialize for Resolvable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written)
    }
}

impl<'de> Deserialize<'de> for Resolvable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl de::Visitor<'_> for Scalar {
            type Value = String;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
                Ok(text.to_owned())
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<String, E> {
                Ok(value.to_string())
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<String, E> {
                Ok(value.to_string())
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<String, E> {
                Ok(value.to_string())
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<String, E> {
                Ok(value.to_string())
            }
        }
        Ok(Self {
            written: deserializer.deserialize_any(Scalar)?,
            resolved: None,
        })
    }
}

const REFERENCES: &str = "May hold references: ${env:NAME}, ${file:/path}, ${exec:command}, ${NAME}, ${NAME:-default}; $${ is a plain ${.";

impl JsonSchema for Resolvable {
    fn schema_name() -> Cow<'static, str> {
        "Resolvable".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": REFERENCES, "type": ["string", "integer", "number", "boolean"], "format": "resolvable" })
    }
}

/// A text that is likely a secret itself, reference or not: a header, an environment variable, a token.
///
/// `Debug` and `Serialize` print it only if it contains a reference, as written; otherwise `[hidden]`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretText(Resolvable);

impl SecretText {
    /// A text without references.
    #[must_use]
    pub fn literal(text: impl Into<String>) -> Self {
        Self(Resolvable::literal(text))
    }

    /// The text to use. Never print, log or store what this returns.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    pub(super) fn resolve(&mut self, resolver: &Resolver<'_>) -> Result<(), String> {
        self.0.resolve(resolver)
    }

    /// What may be printed of it.
    #[must_use]
    pub fn shown(&self) -> &str {
        if self.0.written.contains("${") {
            &self.0.written
        } else {
            "[hidden]"
        }
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self::literal(text)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

impl JsonSchema for SecretText {
    fn schema_name() -> Cow<'static, str> {
        "SecretText".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Resolvable::json_schema(generator)
    }
}
