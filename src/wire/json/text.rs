//! JSON strings to text and back.
//!
//! It owns the escapes. Re-exported by its parent, whose callers it has. It never fails: it is given what the scanner
//! has accepted.

use std::borrow::Cow;

/// The decoded text of a quoted JSON string as scanned. Lone surrogate escapes, which no Rust string can hold,
/// become U+FFFD; so such a text never equals a configured name.
#[must_use]
pub fn unquote(quoted: &[u8]) -> Cow<'_, str> {
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    let text = std::str::from_utf8(inner).unwrap_or_default();
    if !inner.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(decode_escapes(text))
}

fn decode_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escaped) = rest.split_at(at);
        out.push_str(before);
        let mut chars = escaped.chars();
        chars.next();
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let unit = |s: &str| s.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let tail = chars.as_str();
                let high = unit(tail).unwrap_or(0xFFFD);
                let tail = tail.get(4..).unwrap_or_default();
                let low = tail
                    .strip_prefix("\\u")
                    .and_then(unit)
                    .filter(|low| (0xDC00..0xE000).contains(low));
                if let (0xD800..0xDC00, Some(low)) = (high, low) {
                    let joined = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                    out.push(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
                    rest = tail.get(6..).unwrap_or_default();
                } else {
                    out.push(char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER));
                    rest = tail;
                }
                continue;
            }
            Some(other) => out.push(other),
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}

/// The JSON spelling of a text, quotes included.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
