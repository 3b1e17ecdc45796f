//! The headers of Streamable HTTP: their names, the encoding of values, and the parameters that a tool wants
//! repeated in headers (`x-mcp-header`).
//!
//! It owns the agreement of headers and body. Both HTTP sides and the catalog call it. It knows no HTTP types,
//! reads no request and decides nothing but whether two texts say the same.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use std::borrow::Cow;
use std::collections::HashSet;

use super::json::{JsonFault, JsonLimits, Scanner, Span, ValueKind, kind_of, members, quote, unquote};
use super::number::Decimal;

/// The revision that a request speaks.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// The legacy session.
pub const SESSION_ID: &str = "mcp-session-id";
/// The method of the body, modern only.
pub const METHOD: &str = "mcp-method";
/// The tool, prompt, URI or task that the body names, modern only.
pub const NAME: &str = "mcp-name";
/// What the name of a parameter header starts with.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// Where a resumed event stream goes on, legacy only.
pub const LAST_EVENT_ID: &str = "last-event-id";

/// The schema keyword that asks for a header.
const ANNOTATION: &str = "x-mcp-header";
const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

// ---- values ----

/// Why a header value is not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ValueFault {
    /// A byte outside visible ASCII, space and tab.
    #[error("the value has characters that must be Base64-encoded")]
    Characters,
    /// Not standard, padded Base64.
    #[error("the value is marked as Base64 and is not valid Base64")]
    Base64,
    /// Base64 of something that is not UTF-8.
    #[error("the value is Base64 of something that is not UTF-8")]
    NotUtf8,
}

/// The header value for a text: the text itself if it is visible ASCII with spaces inside at most, else Base64
/// between markers. A text that looks like such an encoding is encoded too.
#[must_use]
pub fn encode_value(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let plain = bytes.iter().all(|b| matches!(b, b' '..=b'~'))
        && bytes.first() != Some(&b' ')
        && bytes.last() != Some(&b' ')
        && !looks_encoded(text);
    if plain {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{SENTINEL_START}{}{SENTINEL_END}", STANDARD.encode(text)))
}

/// Generous, so that no reader, however lenient with the markers, decodes what was meant literally.
fn looks_encoded(text: &str) -> bool {
    let start = text.get(..SENTINEL_START.len()).unwrap_or_default();
    start.eq_ignore_ascii_case(SENTINEL_START) && text.ends_with(SENTINEL_END)
}

/// The text of a header value. Without both markers, spelt exactly, a value is literal.
///
/// # Errors
/// If the value has characters that no sender may use, or markers around something that is not Base64 of UTF-8.
pub fn decode_value(value: &[u8]) -> Result<Cow<'_, str>, ValueFault> {
    let value = value.trim_ascii();
    if !value.iter().all(|b| matches!(b, b' '..=b'~' | b'\t')) {
        return Err(ValueFault::Characters);
    }
    let text = std::str::from_utf8(value).map_err(|_| ValueFault::Characters)?;
    let Some(encoded) = text
        .strip_prefix(SENTINEL_START)
        .and_then(|rest| rest.strip_suffix(SENTINEL_END))
    else {
        return Ok(Cow::Borrowed(text));
    };
    let decoded = STANDARD.decode(encoded).map_err(|_| ValueFault::Base64)?;
    String::from_utf8(decoded)
        .map(Cow::Owned)
        .map_err(|_| ValueFault::NotUtf8)
}

/// Whether a header value says this text.
///
/// # Errors
/// If it is not a valid header value.
pub fn value_is(value: &[u8], text: &str) -> Result<bool, ValueFault> {
    decode_value(value).map(|decoded| decoded == text)
}

// ---- annotations ----

/// The type that a schema gives to an annotated parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// `"type": "string"`
    String,
    /// `"type": "integer"`
    Integer,
    /// `"type": "boolean"`
    Boolean,
}

/// A parameter that a tool wants repeated in a header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderParam {
    /// The whole name of the header, in lower case.
    pub header: String,
    /// The property names from the arguments object to the value.
    pub path: Vec<String>,
    /// The type in the schema.
    pub kind: ParamKind,
}

/// Why the annotations of a tool are invalid. Such a tool must be dropped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnnotationFault {
    /// The schema is not an object, or not JSON.
    #[error("the input schema is not a JSON object")]
    Schema,
    /// The annotation is not a string.
    #[error("x-mcp-header at {place} is not a string")]
    NotText {
        /// The property names, joined by dots.
        place: String,
    },
    /// The annotation is not an HTTP token: empty, or with spaces, colons, control or non-ASCII characters.
    #[error("x-mcp-header at {place} is not a header name: {}", quote(name))]
    NotToken {
        /// The property names, joined by dots.
        place: String,
        /// What was given.
        name: String,
    },
    /// Two parameters ask for the same header; case does not distinguish them.
    #[error("x-mcp-header {} is asked for twice", quote(name))]
    Duplicate {
        /// The name of the later one.
        name: String,
    },
    /// The parameter is neither a string, an integer nor a boolean.
    #[error("x-mcp-header at {place} is on a type that no header can carry")]
    Kind {
        /// The property names, joined by dots.
        place: String,
    },
    /// The annotation is at the root, or below anything but `properties`.
    #[error("x-mcp-header at {place} is outside a chain of properties")]
    Place {
        /// The property names and keywords on the way, joined by dots.
        place: String,
    },
}

/// Reads the parameter headers that an input schema asks for.
pub struct HeaderAnnotations;

impl HeaderAnnotations {
    /// The annotated parameters, in the order of the schema. Empty for nearly all tools, at the cost of one search.
    ///
    /// # Errors
    /// The first violated rule; the tool must then be dropped.
    pub fn from_schema(input_schema: &[u8]) -> Result<Vec<HeaderParam>, AnnotationFault> {
        // An escape may hide the keyword.
        let may_ask = memmem::find(input_schema, ANNOTATION.as_bytes()).is_some()
            || memmem::find(input_schema, b"\\u").is_some();
        if !may_ask {
            return Ok(Vec::new());
        }
        let mut walk = SchemaWalk {
            bytes: input_schema,
            found: Vec::new(),
            place: Vec::new(),
            fault: None,
        };
        let mut scanner = Scanner::new(input_schema, JsonLimits::default());
        let walked = walk.schema(&mut scanner, true);
        match (walk.fault, walked) {
            (Some(fault), _) => Err(fault),
            (None, Err(_)) => Err(AnnotationFault::Schema),
            (None, Ok(())) => distinct(walk.found),
        }
    }
}

fn distinct(found: Vec<HeaderParam>) -> Result<Vec<HeaderParam>, AnnotationFault> {
    let mut seen = HashSet::new();
    for param in &found {
        if !seen.insert(param.header.as_str()) {
            let name = param
                .header
                .get(PARAM_PREFIX.len()..)
                .unwrap_or_default()
                .to_owned();
            return Err(AnnotationFault::Duplicate { name });
        }
    }
    Ok(found)
}

struct SchemaWalk<'a> {
    bytes: &'a [u8],
    found: Vec<HeaderParam>,
    place: Vec<String>,
    fault: Option<AnnotationFault>,
}

impl SchemaWalk<'_> {
    /// Walks one schema. `on_chain` says that only `properties` lead here. The recursion is bounded by the depth
    /// limit of the scanner.
    fn schema(&mut self, scanner: &mut Scanner<'_>, on_chain: bool) -> Result<(), JsonFault> {
        match scanner.next_kind()? {
            ValueKind::Object => {}
            ValueKind::Array => {
                return scanner.array(|scanner| self.schema(scanner, false)).map(drop);
            }
            _ if on_chain && self.place.is_empty() => return Err(JsonFault::Syntax(0)),
            _ => return scanner.value().map(drop),
        }
        let mut annotations = Vec::new();
        let mut types = Vec::new();
        scanner.object(|scanner, key| {
            let key = unquote(key.of(self.bytes));
            match key.as_ref() {
                ANNOTATION => annotations.push(scanner.value()?),
                "type" => types.push(scanner.value()?),
                "default" | "const" | "enum" | "examples" | "dependentRequired" => drop(scanner.value()?),
                "properties" => self.map(scanner, on_chain)?,
                "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties" => {
                    self.map(scanner, false)?;
                }
                keyword => {
                    self.place.push(keyword.to_owned());
                    self.schema(scanner, false)?;
                    self.place.pop();
                }
            }
            Ok(())
        })?;
        for annotation in &annotations {
            if let Err(fault) = self.judge(*annotation, &types, on_chain, annotations.len()) {
                self.fault.get_or_insert(fault);
            }
        }
        Ok(())
    }

    /// Walks a map from names to schemas.
    fn map(&mut self, scanner: &mut Scanner<'_>, on_chain: bool) -> Result<(), JsonFault> {
        if scanner.next_kind()? != ValueKind::Object {
            return self.schema(scanner, false);
        }
        scanner
            .object(|scanner, key| {
                self.place.push(unquote(key.of(self.bytes)).into_owned());
                self.schema(scanner, on_chain)?;
                self.place.pop();
                Ok(())
            })
            .map(drop)
    }

    fn judge(
        &mut self,
        asked: Span,
        types: &[Span],
        on_chain: bool,
        count: usize,
    ) -> Result<(), AnnotationFault> {
        let place = || self.place.join(".");
        if !on_chain || self.place.is_empty() {
            return Err(AnnotationFault::Place { place: place() });
        }
        let raw = asked.of(self.bytes);
        if count > 1 || kind_of(raw) != Some(ValueKind::String) {
            return Err(AnnotationFault::NotText { place: place() });
        }
        let name = unquote(raw).into_owned();
        if name.is_empty() || !name.bytes().all(is_token_byte) {
            return Err(AnnotationFault::NotToken { place: place(), name });
        }
        let kind = match types {
            [one] if kind_of(one.of(self.bytes)) == Some(ValueKind::String) => {
                match unquote(one.of(self.bytes)).as_ref() {
                    "string" => ParamKind::String,
                    "integer" => ParamKind::Integer,
                    "boolean" => ParamKind::Boolean,
                    _ => return Err(AnnotationFault::Kind { place: place() }),
                }
            }
            _ => return Err(AnnotationFault::Kind { place: place() }),
        };
        let header = format!("{PARAM_PREFIX}{}", name.to_ascii_lowercase());
        self.found.push(HeaderParam {
            header,
            path: self.place.clone(),
            kind,
        });
        Ok(())
    }
}

/// What RFC 9110 calls `tchar`.
const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

// ---- agreement ----

/// How headers and body of a call disagree.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("header {header}: {problem}")]
pub struct HeaderMismatch {
    /// The header in question, in lower case.
    pub header: String,
    /// What is wrong with it.
    pub problem: MismatchProblem,
}

/// What is wrong with a parameter header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MismatchProblem {
    /// The body has a value and the header is missing.
    #[error("missing, and the body has a value for it")]
    Missing,
    /// The header is given and the body has no value.
    #[error("given, and the body has no value for it")]
    Unexpected,
    /// Header and body have different values.
    #[error("differs from the body")]
    Different,
    /// A key on the way to the value is given twice: receivers may read different values.
    #[error("the body gives a key for it twice")]
    Ambiguous,
    /// Not a valid header value.
    #[error("{0}")]
    Value(#[from] ValueFault),
}

/// The value of a parameter in the arguments, `None` if it is absent or null.
fn argument(arguments: &[u8], path: &[String]) -> Result<Option<Span>, MismatchProblem> {
    let mut at = Span::new(0, arguments.len());
    for name in path {
        if kind_of(at.of(arguments)) != Some(ValueKind::Object) {
            return Ok(None);
        }
        let mut values = members(arguments, at)
            .into_iter()
            .filter(|m| unquote(m.key.of(arguments)) == name.as_str());
        let Some(first) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(MismatchProblem::Ambiguous);
        }
        at = first.value;
    }
    Ok(Some(at).filter(|span| kind_of(span.of(arguments)) != Some(ValueKind::Null)))
}

/// The parameter headers of a call, name and encoded value. Nothing for a value that is absent, null, an object or
/// an array; numbers as written.
#[must_use]
pub fn values(annotations: &[HeaderParam], arguments: &[u8]) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for param in annotations {
        let Ok(Some(span)) = argument(arguments, &param.path) else {
            continue;
        };
        let raw = span.of(arguments);
        let value = match kind_of(raw) {
            Some(ValueKind::String) => encode_value(&unquote(raw)).into_owned(),
            Some(ValueKind::Bool | ValueKind::Number) => String::from_utf8_lossy(raw).into_owned(),
            _ => continue,
        };
        out.push((param.header.clone(), value));
    }
    out
}

/// Checks that the parameter headers of a call say what its arguments say. `lookup` gives the value of a header by
/// its lower-case name. Numbers are compared by value, everything else as text.
///
/// # Errors
/// The first disagreement.
pub fn check<'a>(
    annotations: &[HeaderParam],
    arguments: &[u8],
    mut lookup: impl FnMut(&str) -> Option<&'a [u8]>,
) -> Result<(), HeaderMismatch> {
    for param in annotations {
        let given = lookup(&param.header);
        agree(given, arguments, &param.path).map_err(|problem| HeaderMismatch {
            header: param.header.clone(),
            problem,
        })?;
    }
    Ok(())
}

fn agree(given: Option<&[u8]>, arguments: &[u8], path: &[String]) -> Result<(), MismatchProblem> {
    let raw = argument(arguments, path)?.map(|span| span.of(arguments));
    let kind = raw.and_then(kind_of);
    let carried = matches!(
        kind,
        Some(ValueKind::String | ValueKind::Number | ValueKind::Bool)
    );
    let (given, raw) = match (given, raw) {
        (Some(given), Some(raw)) if carried => (given, raw),
        (Some(_), _) => return Err(MismatchProblem::Unexpected),
        (None, _) if carried => return Err(MismatchProblem::Missing),
        (None, _) => return Ok(()),
    };
    let text = decode_value(given)?;
    let same = match kind {
        Some(ValueKind::String) => text == unquote(raw),
        Some(ValueKind::Number) => same_number(&text, std::str::from_utf8(raw).unwrap_or_default()),
        _ => text.as_bytes() == raw,
    };
    if same {
        Ok(())
    } else {
        Err(MismatchProblem::Different)
    }
}

/// Whether two JSON numbers have the same value, without loss of digits.
fn same_number(a: &str, b: &str) -> bool {
    a == b || matches!((Decimal::parse(a), Decimal::parse(b)), (Some(a), Some(b)) if a == b)
}

#[cfg(test)]
mod tests;
