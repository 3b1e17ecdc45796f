//! The strict reader: untrusted JSON that a decision is going to look at, as a small tree.
//!
//! It owns the refusal of texts that two readers may understand differently: a key given twice, a lone surrogate,
//! absurd nesting. Policy conditions call it for arguments. It never edits and never forwards: the message goes on
//! as its bytes.

use std::collections::HashSet;

use super::json::{JsonFault, JsonLimits, Scanner, Span, ValueKind, check_utf8, quote, unquote};
use super::number::Decimal;

/// Bounds of one strict reading.
#[derive(Clone, Copy, Debug)]
pub struct StrictLimits {
    /// How deep arrays and objects may nest. Every level costs stack when the tree is read and dropped.
    pub depth: u32,
}

impl Default for StrictLimits {
    fn default() -> Self {
        Self { depth: 64 }
    }
}

/// Why a text is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StrictFault {
    /// Not acceptable JSON, or nested too deeply.
    #[error("{0}")]
    Json(#[from] JsonFault),
    /// An object gives a key twice, perhaps in different spellings.
    #[error("the key {} is given twice (at byte {at})", quote(key))]
    DuplicateKey {
        /// The key, decoded.
        key: String,
        /// Where it is given again.
        at: usize,
    },
    /// A string has half of a surrogate pair, which is not a character.
    #[error("the string at byte {at} has a lone surrogate")]
    LoneSurrogate {
        /// Where the string starts.
        at: usize,
    },
}

/// A JSON value. Numbers stay as written, so none loses digits.
#[derive(Clone, Debug)]
pub enum StrictValue {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number as written.
    Number(Box<str>),
    /// A string, decoded.
    String(String),
    /// An array.
    Array(Vec<Self>),
    /// An object: keys are decoded, distinct and in the order of the text.
    Object(Vec<(String, Self)>),
}

impl StrictValue {
    /// Reads one whole text.
    ///
    /// # Errors
    /// The first thing that makes the text ambiguous or ill-formed.
    pub fn parse(bytes: &[u8], limits: StrictLimits) -> Result<Self, StrictFault> {
        check_utf8(bytes)?;
        let mut reader = Reader { bytes, refused: None };
        let mut scanner = Scanner::new(bytes, JsonLimits { depth: limits.depth });
        let read = reader
            .value(&mut scanner)
            .and_then(|value| scanner.end().map(|()| value));
        match (reader.refused, read) {
            (Some(refused), _) => Err(refused),
            (None, read) => Ok(read?),
        }
    }

    /// The value of a key, `None` if this is not an object or has no such key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(entries) => entries
                .iter()
                .find(|(known, _)| known == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The value that these keys lead to, from object to object. The empty path leads here.
    pub fn at<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Option<&Self> {
        path.into_iter().try_fold(self, |value, key| value.get(key))
    }

    /// The text, if this is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, exact and comparable, if this is one.
    #[must_use]
    pub fn as_decimal(&self) -> Option<Decimal> {
        match self {
            Self::Number(text) => Decimal::parse(text),
            _ => None,
        }
    }

    /// The items, if this is an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The entries, if this is an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(entries) => Some(entries),
            _ => None,
        }
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// What the value is called in messages to people.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }
}

/// By value: `1` equals `1.0`, and the order of keys does not matter.
impl PartialEq for StrictValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Number(a), Self::Number(b)) => {
                a == b || matches!((Decimal::parse(a), Decimal::parse(b)), (Some(a), Some(b)) if a == b)
            }
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(key, value)| other.get(key) == Some(value))
            }
            _ => false,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// Why the walk was broken off, where the scanner's faults have no word for it.
    refused: Option<StrictFault>,
}

impl Reader<'_> {
    /// Recursion is bounded by the scanner's depth limit.
    fn value(&mut self, scanner: &mut Scanner<'_>) -> Result<StrictValue, JsonFault> {
        Ok(match scanner.next_kind()? {
            ValueKind::Object => {
                let mut entries = Vec::new();
                let mut keys = Keys::default();
                scanner.object(|scanner, key| {
                    let text = self.text(key)?;
                    if !keys.insert(&entries, &text) {
                        return self.refuse(StrictFault::DuplicateKey {
                            key: text,
                            at: key.start as usize,
                        });
                    }
                    let value = self.value(scanner)?;
                    entries.push((text, value));
                    Ok(())
                })?;
                StrictValue::Object(entries)
            }
            ValueKind::Array => {
                let mut items = Vec::new();
                scanner.array(|scanner| {
                    items.push(self.value(scanner)?);
                    Ok(())
                })?;
                StrictValue::Array(items)
            }
            ValueKind::String => {
                let span = scanner.value()?;
                StrictValue::String(self.text(span)?)
            }
            ValueKind::Number => StrictValue::Number(scanner.value()?.text(self.bytes).into()),
            ValueKind::Bool => StrictValue::Bool(scanner.value()?.of(self.bytes) == b"true"),
            ValueKind::Null => {
                scanner.value()?;
                StrictValue::Null
            }
        })
    }

    fn text(&mut self, quoted: Span) -> Result<String, JsonFault> {
        let raw = quoted.of(self.bytes);
        if has_lone_surrogate(raw) {
            self.refuse(StrictFault::LoneSurrogate {
                at: quoted.start as usize,
            })?;
        }
        Ok(unquote(raw).into_owned())
    }

    /// Breaks the walk off; the returned fault is only a signal.
    fn refuse(&mut self, fault: StrictFault) -> Result<(), JsonFault> {
        self.refused.get_or_insert(fault);
        Err(JsonFault::Truncated)
    }
}

/// The keys seen in one object; a set only once there are many, so that hostile objects cost no square of their size.
#[derive(Default)]
struct Keys {
    many: HashSet<String>,
}

impl Keys {
    const FEW: usize = 16;

    /// Whether the key is new. `entries` are those before it.
    fn insert(&mut self, entries: &[(String, StrictValue)], key: &str) -> bool {
        if entries.len() < Self::FEW {
            return entries.iter().all(|(known, _)| known != key);
        }
        if self.many.is_empty() {
            self.many = entries.iter().map(|(known, _)| known.clone()).collect();
        }
        self.many.insert(key.to_owned())
    }
}

/// Whether a quoted string that the scanner has accepted holds half a surrogate pair.
fn has_lone_surrogate(quoted: &[u8]) -> bool {
    let mut rest = quoted;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let escape = rest.get(at..).unwrap_or_default();
        let skip = match unit(escape) {
            None => 2,
            Some(0xDC00..=0xDFFF) => return true,
            Some(0xD800..=0xDBFF) => {
                let next = escape.get(6..).unwrap_or_default();
                if !matches!(unit(next), Some(0xDC00..=0xDFFF)) {
                    return true;
                }
                12
            }
            Some(_) => 6,
        };
        rest = escape.get(skip..).unwrap_or_default();
    }
    false
}

/// The code unit of a `\uXXXX` escape at the start of these bytes.
fn unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests;
