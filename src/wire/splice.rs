//! Replacing spans: the result is slices of the received bytes with small owned pieces between them.

use bytes::{Bytes, BytesMut};

use super::json::{ObjectMember, Span};

/// Below this many bytes one copy is cheaper than a list of slices and a vectored write.
const FLATTEN_BELOW: usize = 16 * 1024;

/// A message ready to be sent: pieces in order. Large pieces are slices of what was received.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Outgoing {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Total length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The pieces in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The pieces in order, owned.
    #[must_use]
    pub fn into_pieces(self) -> Vec<Bytes> {
        self.pieces
    }

    /// Appends a piece.
    pub fn push(&mut self, piece: impl Into<Bytes>) {
        let piece = piece.into();
        if !piece.is_empty() {
            self.length += piece.len();
            self.pieces.push(piece);
        }
    }

    /// Appends all pieces of another.
    pub fn append(&mut self, other: Self) {
        self.length += other.length;
        self.pieces.extend(other.pieces);
    }

    /// One contiguous text; copies only if there is more than one piece.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        let mut pieces = self.pieces;
        if pieces.len() <= 1 {
            return pieces.pop().unwrap_or_default();
        }
        let mut out = BytesMut::with_capacity(self.length);
        for piece in &pieces {
            out.extend_from_slice(piece);
        }
        out.freeze()
    }

    /// The same, joined into one piece if it is small.
    #[must_use]
    pub fn compact(self) -> Self {
        if self.pieces.len() > 1 && self.length < FLATTEN_BELOW {
            Self::from(self.into_bytes())
        } else {
            self
        }
    }
}

impl From<Bytes> for Outgoing {
    fn from(bytes: Bytes) -> Self {
        let mut out = Self::new();
        out.push(bytes);
        out
    }
}

impl From<String> for Outgoing {
    fn from(text: String) -> Self {
        Self::from(Bytes::from(text))
    }
}

impl From<&'static str> for Outgoing {
    fn from(text: &'static str) -> Self {
        Self::from(Bytes::from_static(text.as_bytes()))
    }
}

/// A set of edits to one message. Edits may be noted in any order; they must not overlap except removals.
#[derive(Clone, Debug, Default)]
pub struct Splice {
    edits: Vec<(Span, Bytes)>,
}

impl Splice {
    /// No edits.
    #[must_use]
    pub fn new() -> Self {
        Self {
            edits: Vec::with_capacity(4),
        }
    }

    /// Whether nothing would change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Replaces what stands at `span`.
    pub fn replace(&mut self, span: Span, with: impl Into<Bytes>) -> &mut Self {
        self.edits.push((span, with.into()));
        self
    }

    /// Inserts before the byte at `at`. Several insertions at one place keep their order.
    pub fn insert(&mut self, at: u32, text: impl Into<Bytes>) -> &mut Self {
        self.replace(Span { start: at, end: at }, text)
    }

    /// Inserts `members` (one or more `"key":value`, joined by commas) at the start of the object at `object`.
    /// At most once per object.
    pub fn insert_members(&mut self, bytes: &[u8], object: Span, members: impl Into<String>) -> &mut Self {
        let inner = Span {
            start: object.start + 1,
            end: object.end,
        };
        let empty = inner.of(bytes).iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'}');
        let mut text = members.into();
        if !empty {
            text.push(',');
        }
        self.insert(object.start + 1, text)
    }

    /// Removes one member of an object with its comma. At most one member per object: neighbouring removals
    /// would claim the same comma; rebuild such an object instead (see [`rebuild`]).
    pub fn remove_member(&mut self, bytes: &[u8], member: ObjectMember) -> &mut Self {
        let after = bytes.get(member.value.end as usize..).unwrap_or_default();
        let gap = after.iter().take_while(|b| b.is_ascii_whitespace()).count();
        if after.get(gap) == Some(&b',') {
            let end = member.value.end as usize + gap + 1;
            return self.replace(Span::new(member.key.start as usize, end), Bytes::new());
        }
        let before = bytes.get(..member.key.start as usize).unwrap_or_default();
        let gap = before
            .iter()
            .rev()
            .take_while(|b| b.is_ascii_whitespace())
            .count();
        let comma = before.len().saturating_sub(gap + 1);
        let start = if before.get(comma) == Some(&b',') {
            comma
        } else {
            member.key.start as usize
        };
        self.replace(Span::new(start, member.value.end as usize), Bytes::new())
    }

    /// The whole message with the edits made.
    #[must_use]
    pub fn apply(self, source: &Bytes) -> Outgoing {
        let whole = Span::new(0, source.len());
        self.apply_within(source, whole)
    }

    /// Only what stands at `within`, with the edits that lie inside it made.
    #[must_use]
    pub fn apply_within(mut self, source: &Bytes, within: Span) -> Outgoing {
        self.edits.sort_by_key(|(span, _)| span.start);
        let mut out = Outgoing {
            pieces: Vec::with_capacity(self.edits.len() * 2 + 1),
            length: 0,
        };
        let mut position = within.start;
        let slice = |from: u32, to: u32| {
            if from < to && (to as usize) <= source.len() {
                source.slice(from as usize..to as usize)
            } else {
                Bytes::new()
            }
        };
        for (span, text) in self.edits {
            if span.end < within.start || span.start > within.end {
                continue;
            }
            if span.start > position {
                out.push(slice(position, span.start));
            }
            out.push(text);
            position = position.max(span.end);
        }
        out.push(slice(position, within.end));
        out.compact()
    }
}

/// The object at `object` rebuilt: members for which `keep` says no are left out, `extra` (one or more
/// `"key":value`, joined by commas, or empty) is put in front. Keys are passed decoded. For small objects such as
/// `_meta`; a message body is spliced instead.
#[must_use]
pub fn rebuild(bytes: &[u8], object: Span, keep: impl Fn(&str) -> bool, extra: &str) -> String {
    let mut out = String::with_capacity(object.len() + extra.len() + 2);
    out.push('{');
    out.push_str(extra);
    for member in super::json::members(bytes, object) {
        if !keep(&super::json::unquote(member.key.of(bytes))) {
            continue;
        }
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(member.key.text(bytes));
        out.push(':');
        out.push_str(member.value.text(bytes));
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests;
