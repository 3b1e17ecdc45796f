//! A one-pass JSON scanner that yields spans of the scanned bytes.
//!
//! It owns the grammar check (RFC 8259), the depth limit and the positions. It allocates nothing and recurses
//! never, so hostile nesting costs neither stack nor memory. `serde_json`'s raw values give the spans of leaves
//! but not of the object that holds them, have no depth limit and accept lone surrogates; one walk of ours gives all.
//! The file is long since the states of the one walk are best read beside each other.

use std::ops::Range;

mod run;
mod text;

use run::plain_run;
pub use text::{quote, unquote};

/// A half-open byte range of one message. Offsets fit `u32` because every message has a size limit below 4 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// A span from byte offsets. Offsets past 4 GiB saturate; the size limit keeps messages far below.
    #[must_use]
    pub fn new(start: usize, end: usize) -> Self {
        let clip = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Self {
            start: clip(start),
            end: clip(end),
        }
    }

    /// The range to index the scanned bytes with.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(self) -> usize {
        (self.end.saturating_sub(self.start)) as usize
    }

    /// Whether the span holds nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The bytes of the span, empty if it does not lie within `bytes`.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.range()).unwrap_or_default()
    }

    /// The text of the span; empty if it is not UTF-8 (scanned messages always are).
    #[must_use]
    pub fn text(self, bytes: &[u8]) -> &str {
        std::str::from_utf8(self.of(bytes)).unwrap_or_default()
    }
}

/// Bounds of one scan.
#[derive(Clone, Copy, Debug)]
pub struct JsonLimits {
    /// How deep arrays and objects may nest.
    pub depth: u32,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self { depth: 512 }
    }
}

/// Why a text is not acceptable JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JsonFault {
    /// The grammar is violated at this byte offset.
    #[error("invalid JSON at byte {0}")]
    Syntax(usize),
    /// The text ended inside a value.
    #[error("the JSON text ends inside a value")]
    Truncated,
    /// Something follows the value.
    #[error("unexpected text after the JSON value at byte {0}")]
    Trailing(usize),
    /// Nesting is deeper than the limit.
    #[error("JSON nested deeper than {0} levels")]
    TooDeep(u32),
    /// Not UTF-8.
    #[error("the text is not valid UTF-8 (byte {0})")]
    NotUtf8(usize),
    /// A key that must be unique was given twice.
    #[error("the key \"{0}\" is given twice")]
    DuplicateKey(&'static str),
}

/// What kind of value starts with a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    String,
    /// A digit or a minus sign.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

/// The kind of the value in this JSON text, judged by its first byte (leading whitespace is skipped).
#[must_use]
pub fn kind_of(value: &[u8]) -> Option<ValueKind> {
    match value.iter().find(|b| !is_space(**b))? {
        b'{' => Some(ValueKind::Object),
        b'[' => Some(ValueKind::Array),
        b'"' => Some(ValueKind::String),
        b't' | b'f' => Some(ValueKind::Bool),
        b'n' => Some(ValueKind::Null),
        b'-' | b'0'..=b'9' => Some(ValueKind::Number),
        _ => None,
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Walks one JSON text. Every method leaves the position after what it read.
#[derive(Debug)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    position: usize,
    depth: u32,
    limits: JsonLimits,
}

impl<'a> Scanner<'a> {
    /// A scanner at the start of `bytes`. The caller has checked that they are UTF-8 (see [`check_utf8`]).
    #[must_use]
    pub fn new(bytes: &'a [u8], limits: JsonLimits) -> Self {
        Self {
            bytes,
            position: 0,
            depth: 0,
            limits,
        }
    }

    /// A scanner at the start of a span that an earlier scan returned.
    #[must_use]
    pub fn at(bytes: &'a [u8], span: Span, limits: JsonLimits) -> Self {
        Self {
            bytes: bytes.get(..span.end as usize).unwrap_or_default(),
            position: span.start as usize,
            depth: 0,
            limits,
        }
    }

    /// The current byte offset.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn fault(&self) -> JsonFault {
        if self.position >= self.bytes.len() {
            JsonFault::Truncated
        } else {
            JsonFault::Syntax(self.position)
        }
    }

    /// Skips whitespace.
    pub fn space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.position += 1;
        }
    }

    /// The kind of the value that comes next, after whitespace.
    ///
    /// # Errors
    /// If no value can start here.
    pub fn next_kind(&mut self) -> Result<ValueKind, JsonFault> {
        self.space();
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        kind_of(rest.get(..1).unwrap_or_default()).ok_or_else(|| self.fault())
    }

    /// Reads one whole value of any kind and returns where it stands.
    ///
    /// # Errors
    /// The first violation of the grammar or of the depth limit.
    pub fn value(&mut self) -> Result<Span, JsonFault> {
        self.space();
        let start = self.position;
        match self.peek() {
            Some(b'{' | b'[') => self.container()?,
            _ => {
                let went_well = self.skip_scalar();
                self.or_fault(went_well)?;
            }
        }
        Ok(Span::new(start, self.position))
    }

    /// Whether this went well. All faults but the depth limit are told by where the position stops, so the inner
    /// loops pass on a truth value only.
    #[inline]
    fn skip_scalar(&mut self) -> bool {
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(b't') => self.skip_literal(b"true"),
            Some(b'f') => self.skip_literal(b"false"),
            Some(b'n') => self.skip_literal(b"null"),
            Some(b'-' | b'0'..=b'9') => self.skip_number(),
            _ => false,
        }
    }

    #[inline]
    fn or_fault(&self, went_well: bool) -> Result<(), JsonFault> {
        if went_well { Ok(()) } else { Err(self.fault()) }
    }

    /// Skips an object or array without recursion; a bit per level tells which bracket closes it.
    fn container(&mut self) -> Result<(), JsonFault> {
        // One bit per open level, 64 levels per word; only absurd nesting allocates.
        let mut first_word: u64 = 0;
        let mut more_words: Vec<u64> = Vec::new();
        let mut level: u32 = 0;
        loop {
            // Here a value must start.
            self.space();
            let opened = match self.peek() {
                Some(b'{') => Some(true),
                Some(b'[') => Some(false),
                _ => {
                    if !self.skip_scalar() {
                        return Err(self.fault());
                    }
                    None
                }
            };
            if let Some(is_object) = opened {
                if self.depth + level >= self.limits.depth {
                    return Err(JsonFault::TooDeep(self.limits.depth));
                }
                let bit = 1u64 << (level % 64);
                let word = match level / 64 {
                    0 => &mut first_word,
                    n => {
                        if more_words.len() < n as usize {
                            more_words.push(0);
                        }
                        more_words.last_mut().ok_or(JsonFault::Truncated)?
                    }
                };
                if is_object {
                    *word |= bit
                } else {
                    *word &= !bit
                }
                level += 1;
                self.position += 1;
                self.space();
                match (is_object, self.peek()) {
                    (true, Some(b'}')) | (false, Some(b']')) => {}
                    (true, _) => {
                        if !self.skip_key() {
                            return Err(self.fault());
                        }
                        continue;
                    }
                    (false, _) => continue,
                }
            }
            // A value has ended or an empty container is open: close as many levels as there are brackets.
            loop {
                if level == 0 {
                    return Ok(());
                }
                let top = level - 1;
                let word = match top / 64 {
                    0 => first_word,
                    n => more_words.get(n as usize - 1).copied().unwrap_or_default(),
                };
                let is_object = word >> (top % 64) & 1 == 1;
                self.space();
                match (self.peek(), is_object) {
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.position += 1;
                        level = top;
                        if top > 0 && top.is_multiple_of(64) {
                            more_words.pop();
                        }
                        if level == 0 {
                            return Ok(());
                        }
                    }
                    (Some(b','), _) => {
                        self.position += 1;
                        if is_object {
                            self.space();
                            if !self.skip_key() {
                                return Err(self.fault());
                            }
                        }
                        break;
                    }
                    _ => return Err(self.fault()),
                }
            }
        }
    }

    /// Reads `"key" :` and returns the span of the quoted key.
    fn key(&mut self) -> Result<Span, JsonFault> {
        let span = self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.fault());
        }
        self.position += 1;
        Ok(span)
    }

    #[inline]
    fn skip_key(&mut self) -> bool {
        if self.peek() != Some(b'"') || !self.skip_string() {
            return false;
        }
        self.space();
        let colon = self.peek() == Some(b':');
        self.position += usize::from(colon);
        colon
    }

    /// Reads a string and returns its span, quotes included.
    ///
    /// # Errors
    /// If no well-formed string stands here.
    pub fn string(&mut self) -> Result<Span, JsonFault> {
        let start = self.position;
        let went_well = self.peek() == Some(b'"') && self.skip_string();
        self.or_fault(went_well)?;
        Ok(Span::new(start, self.position))
    }

    /// Skips the string whose opening quote stands here.
    fn skip_string(&mut self) -> bool {
        self.position += 1;
        loop {
            let rest = self.bytes.get(self.position..).unwrap_or_default();
            let run = plain_run(rest);
            self.position += run;
            match rest.get(run) {
                Some(b'"') => {
                    self.position += 1;
                    return true;
                }
                Some(b'\\') if self.skip_escape() => {}
                _ => return false,
            }
        }
    }

    fn skip_escape(&mut self) -> bool {
        self.position += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.position += 1,
            Some(b'u') => {
                self.position += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                        return false;
                    }
                    self.position += 1;
                }
            }
            _ => return false,
        }
        true
    }

    fn skip_literal(&mut self, text: &[u8]) -> bool {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        if rest.starts_with(text) {
            self.position += text.len();
            return true;
        }
        self.position += rest.iter().zip(text).take_while(|(a, b)| a == b).count();
        false
    }

    #[inline]
    fn skip_digits(&mut self) -> bool {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let digits = rest
            .iter()
            .position(|b| !b.is_ascii_digit())
            .unwrap_or(rest.len());
        self.position += digits;
        digits > 0
    }

    fn skip_number(&mut self) -> bool {
        if self.peek() == Some(b'-') {
            self.position += 1;
        }
        if self.peek() == Some(b'0') {
            self.position += 1;
        } else if !self.skip_digits() {
            return false;
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            if !self.skip_digits() {
                return false;
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            return self.skip_digits();
        }
        true
    }

    /// Walks the members of an object. `member` gets the quoted key's span and must read exactly one value.
    /// Returns the span of the object.
    ///
    /// # Errors
    /// The first violation of the grammar, or what `member` returned.
    pub fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Span) -> Result<(), JsonFault>,
    ) -> Result<Span, JsonFault> {
        self.space();
        let start = self.position;
        if self.peek() != Some(b'{') {
            return Err(self.fault());
        }
        self.enter()?;
        self.space();
        if self.peek() == Some(b'}') {
            self.leave();
            return Ok(Span::new(start, self.position));
        }
        loop {
            self.space();
            let key = self.key()?;
            member(self, key)?;
            self.space();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b'}') => {
                    self.leave();
                    return Ok(Span::new(start, self.position));
                }
                _ => return Err(self.fault()),
            }
        }
    }

    /// Walks the items of an array. `item` must read exactly one value. Returns the span of the array.
    ///
    /// # Errors
    /// The first violation of the grammar, or what `item` returned.
    pub fn array(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), JsonFault>,
    ) -> Result<Span, JsonFault> {
        self.space();
        let start = self.position;
        if self.peek() != Some(b'[') {
            return Err(self.fault());
        }
        self.enter()?;
        self.space();
        if self.peek() == Some(b']') {
            self.leave();
            return Ok(Span::new(start, self.position));
        }
        loop {
            item(self)?;
            self.space();
            match self.peek() {
                Some(b',') => self.position += 1,
                Some(b']') => {
                    self.leave();
                    return Ok(Span::new(start, self.position));
                }
                _ => return Err(self.fault()),
            }
        }
    }

    fn enter(&mut self) -> Result<(), JsonFault> {
        if self.depth >= self.limits.depth {
            return Err(JsonFault::TooDeep(self.limits.depth));
        }
        self.depth += 1;
        self.position += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.position += 1;
    }

    /// Checks that nothing but whitespace follows.
    ///
    /// # Errors
    /// [`JsonFault::Trailing`] otherwise.
    pub fn end(&mut self) -> Result<(), JsonFault> {
        self.space();
        if self.position < self.bytes.len() {
            Err(JsonFault::Trailing(self.position))
        } else {
            Ok(())
        }
    }
}

/// Checks the encoding once, before a scan.
///
/// # Errors
/// [`JsonFault::NotUtf8`] with the offset of the first bad byte.
pub fn check_utf8(bytes: &[u8]) -> Result<(), JsonFault> {
    std::str::from_utf8(bytes)
        .map(|_| ())
        .map_err(|e| JsonFault::NotUtf8(e.valid_up_to()))
}

/// One member of an object: where its quoted key and its value stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectMember {
    /// The quoted key.
    pub key: Span,
    /// The value.
    pub value: Span,
}

/// The members of the object at `span`, in order; empty if there is no object. For objects off the hot path:
/// it walks the object again.
#[must_use]
pub fn members(bytes: &[u8], span: Span) -> Vec<ObjectMember> {
    let mut out = Vec::new();
    let mut scanner = Scanner::at(bytes, span, JsonLimits::default());
    let walked = scanner.object(|s, key| {
        let value = s.value()?;
        out.push(ObjectMember { key, value });
        Ok(())
    });
    if walked.is_err() {
        out.clear();
    }
    out
}

/// The value of `key` in the object at `span` (the last one, should it be given twice).
#[must_use]
pub fn member(bytes: &[u8], span: Span, key: &str) -> Option<Span> {
    members(bytes, span)
        .into_iter()
        .rev()
        .find(|m| unquote(m.key.of(bytes)) == key)
        .map(|m| m.value)
}

/// The items of the array at `span`; empty if there is no array.
#[must_use]
pub fn items(bytes: &[u8], span: Span) -> Vec<Span> {
    let mut out = Vec::new();
    let mut scanner = Scanner::at(bytes, span, JsonLimits::default());
    let walked = scanner.array(|s| {
        out.push(s.value()?);
        Ok(())
    });
    if walked.is_err() {
        out.clear();
    }
    out
}

#[cfg(test)]
mod tests;
