//! The spellings of sizes, durations and addresses in the file, and the types that they become.
//!
//! Parsing is strict and total: each function says in plain words what is wrong. No floating point.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes. Written as an integer or with a unit: `512KiB`, `16MiB`, `1GiB`, `10MB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteSize(u64);

impl ByteSize {
    /// This many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// This many KiB.
    #[must_use]
    pub const fn kibibytes(count: u64) -> Self {
        Self(count * 1024)
    }

    /// This many MiB.
    #[must_use]
    pub const fn mebibytes(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes to compare a length in memory with; saturates.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Reads a spelling such as `16MiB`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (number, unit) = split_number(text)?;
        let factor: u64 = match unit {
            "" | "B" => 1,
            "KiB" | "K" | "k" => 1 << 10,
            "MiB" | "M" => 1 << 20,
            "GiB" | "G" => 1 << 30,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => {
                return Err(format!(
                    "`{unit}` is no unit of size; use B, KiB, MiB, GiB, kB, MB or GB"
                ));
            }
        };
        number
            .checked_mul(factor)
            .map(Self)
            .ok_or_else(|| "this size is too large".to_owned())
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (factor, unit) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;
        impl de::Visitor<'_> for Size {
            type Value = ByteSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 16MiB")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                ByteSize::parse(text).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes)
                    .map(ByteSize)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }
        }
        deserializer.deserialize_any(Size)
    }
}

/// The `format` that marks a size in the schema.
pub(crate) const SIZE_FORMAT: &str = "byte-size";
/// The `format` that marks a duration in the schema.
pub(crate) const DURATION_FORMAT: &str = "duration-text";
/// The `format` that marks a listen address in the schema.
pub(crate) const ADDRESS_FORMAT: &str = "listen-address";

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A size: a number of bytes, or a number with B, KiB, MiB, GiB, kB, MB or GB.",
            "type": ["string", "integer"],
            "format": SIZE_FORMAT,
            "minimum": 0,
            "examples": ["16MiB"],
        })
    }
}

/// Splits `15m` into 15 and `m`.
fn split_number(text: &str) -> Result<(u64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() {
        return Err(format!("`{text}` does not start with a whole number"));
    }
    let number = digits.parse().map_err(|_| format!("`{digits}` is too large"))?;
    Ok((number, unit.trim_start()))
}

/// Reads a spelling such as `500ms`, `5s`, `15m`, `24h` or `30d`, or several together: `1h30m`.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    if rest.is_empty() {
        return Err("a duration is a number with a unit, such as 5s".to_owned());
    }
    while !rest.is_empty() {
        let (number, tail) = split_number(rest)?;
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c.is_whitespace())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let factor: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" if number == 0 => 1,
            "." => return Err("durations are whole numbers; write 1500ms for 1.5s".to_owned()),
            "" => {
                return Err(format!(
                    "`{text}` has no unit; write {number}s, {number}ms, {number}m, {number}h or {number}d"
                ));
            }
            _ => return Err(format!("`{unit}` is no unit of time; use ms, s, m, h or d")),
        };
        total = number
            .checked_mul(factor)
            .and_then(|part| total.checked_add(part))
            .filter(|ms| *ms <= 1_000 * 86_400_000)
            .ok_or_else(|| "a duration is at most 1000d".to_owned())?;
        rest = tail.trim_start();
    }
    Ok(Duration::from_millis(total))
}

/// The shortest spelling that [`parse_duration`] reads back.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (factor, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms >= factor && ms.is_multiple_of(factor) {
            return format!("{}{unit}", ms / factor);
        }
    }
    if ms == 0 {
        "0s".to_owned()
    } else {
        format!("{ms}ms")
    }
}

/// Stands for a duration in the schema; never a value.
pub(crate) struct DurationText;

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration: a whole number with ms, s, m, h or d; several may follow each other.",
            "type": "string",
            "format": DURATION_FORMAT,
            "examples": ["5s", "15m", "500ms"],
        })
    }
}

/// Durations as text, for `#[serde(with)]`.
pub(crate) mod duration {
    use super::{Deserialize, Deserializer, Duration, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::duration_text(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_duration(&text).map_err(de::Error::custom)
    }
}

/// An address to listen on.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub enum BindAddress {
    /// `host:port`; the host is an IP address or a name such as `localhost`, IPv6 in brackets.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl BindAddress {
    /// Reads `127.0.0.1:8420`, `[::1]:8420`, `localhost:0` or `unix:/path`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(PathBuf::from(path)))
            } else {
                Err("the path of a Unix socket starts with `/`: unix:/run/manifold/mcp.sock".to_owned())
            };
        }
        if text.contains("://") {
            return Err(
                "an address to listen on is no URL; write host:port, such as 127.0.0.1:8420".to_owned(),
            );
        }
        if text.parse::<std::net::SocketAddr>().is_ok() {
            return Ok(Self::Tcp(text.to_owned()));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err("the port is missing; write host:port, such as 127.0.0.1:8420".to_owned());
        };
        if port.parse::<u16>().is_err() {
            return Err(format!("`{port}` is no port; ports are 0 to 65535"));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        if host.is_empty() || !host.chars().all(plain) {
            return Err("the host is an IP address (IPv6 in brackets) or a name, such as 127.0.0.1, [::1] or localhost".to_owned());
        }
        Ok(Self::Tcp(text.to_owned()))
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Serialize for BindAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BindAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for BindAddress {
    fn schema_name() -> Cow<'static, str> {
        "BindAddress".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "`host:port` or `unix:/path`.",
            "type": "string",
            "format": ADDRESS_FORMAT,
            "examples": ["127.0.0.1:8420", "unix:/run/manifold/mcp.sock"],
        })
    }
}

/// One value or a list of them, in the schema and while reading.
#[derive(JsonSchema, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany<T> {
    /// One.
    One(T),
    /// A list.
    Many(Vec<T>),
}

/// A list that may be written as its only item, for `#[serde(with)]`.
pub(crate) mod one_or_many {
    use super::{Deserialize, Deserializer, OneOrMany, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer, T: Serialize>(
        values: &[T],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match values {
            [only] => only.serialize(serializer),
            many => many.serialize(serializer),
        }
    }

    pub(crate) fn deserialize<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        Ok(match OneOrMany::deserialize(deserializer)? {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        })
    }
}

#[cfg(test)]
mod tests;
