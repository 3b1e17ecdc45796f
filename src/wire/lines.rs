//! Newline framing for stdio: chunks in, lines out; pieces of a message in, one line out.
//!
//! It owns the line limit and the folding of line breaks. The transports of both sides call it. It never reads or
//! writes anything itself, never looks into a line and never holds more than one line up to the limit.

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memchr2};
use std::collections::VecDeque;

/// How much of an over-long line is kept, in bytes: enough to find the id of a response in it.
pub const HEAD_LENGTH: usize = 4096;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a line could not be delivered. The stream goes on after it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineFault {
    /// The line is longer than the limit. Reported once, as soon as the limit is passed; the rest of the line is
    /// skipped whenever it comes.
    #[error("a line is longer than the limit of {limit} bytes ({length_so_far} bytes read so far)")]
    TooLong {
        /// Bytes of the line that had arrived when it was given up.
        length_so_far: usize,
        /// The limit in bytes.
        limit: usize,
        /// The first bytes of the line, at most [`HEAD_LENGTH`], without a byte order mark.
        head: Bytes,
    },
}

/// Cuts a byte stream into lines, whatever the chunks it arrives in.
///
/// A byte order mark at the start of a line and a carriage return at its end are removed, blank lines are left out.
/// A line that lies within one chunk is a slice of that chunk; any other is copied once.
#[derive(Debug)]
pub struct LineDecoder {
    limit: usize,
    chunks: VecDeque<Bytes>,
    /// The start of a line whose end has not arrived. Holds no newline and at most `limit` bytes.
    partial: BytesMut,
    /// Inside an over-long line that was already reported.
    skipping: bool,
}

impl LineDecoder {
    /// A decoder that delivers lines of up to `limit` bytes, the line feed not counted.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            chunks: VecDeque::new(),
            partial: BytesMut::new(),
            skipping: false,
        }
    }

    /// Takes what was read. Call [`Self::next_line`] until it returns `None` before reading on.
    pub fn push(&mut self, chunk: impl Into<Bytes>) {
        let chunk = chunk.into();
        if !chunk.is_empty() {
            self.chunks.push_back(chunk);
        }
    }

    /// The next complete line, or `None` if more bytes are needed.
    pub fn next_line(&mut self) -> Option<Result<Bytes, LineFault>> {
        while let Some(mut chunk) = self.chunks.pop_front() {
            let end = memchr(b'\n', &chunk);
            let part = match end {
                Some(at) => {
                    let part = chunk.split_to(at);
                    let _ = chunk.split_to(1);
                    if !chunk.is_empty() {
                        self.chunks.push_front(chunk);
                    }
                    part
                }
                None => chunk,
            };
            if let Some(out) = self.take_part(part, end.is_some()) {
                return Some(out);
            }
        }
        None
    }

    /// What stands after the last newline, for a peer that ended its stream without one.
    pub fn finish(&mut self) -> Option<Result<Bytes, LineFault>> {
        if let Some(out) = self.next_line() {
            return Some(out);
        }
        if std::mem::take(&mut self.skipping) {
            return None;
        }
        clean(std::mem::take(&mut self.partial).freeze()).map(Ok)
    }

    /// Bytes held back until the end of their line arrives.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.partial.len() + self.chunks.iter().map(Bytes::len).sum::<usize>()
    }

    fn take_part(&mut self, part: Bytes, line_ends: bool) -> Option<Result<Bytes, LineFault>> {
        if self.skipping {
            self.skipping = !line_ends;
            return None;
        }
        let length = self.partial.len() + part.len();
        if length > self.limit {
            self.skipping = !line_ends;
            let mut head = std::mem::take(&mut self.partial);
            head.truncate(HEAD_LENGTH);
            let wanted = HEAD_LENGTH.saturating_sub(head.len()).min(part.len());
            head.extend_from_slice(part.get(..wanted).unwrap_or_default());
            let head = without_mark(head.freeze());
            return Some(Err(LineFault::TooLong {
                length_so_far: length,
                limit: self.limit,
                head,
            }));
        }
        if !line_ends {
            self.partial.extend_from_slice(&part);
            return None;
        }
        if self.partial.is_empty() {
            return clean(part).map(Ok);
        }
        let mut line = std::mem::take(&mut self.partial);
        line.extend_from_slice(&part);
        clean(line.freeze()).map(Ok)
    }
}

fn without_mark(mut line: Bytes) -> Bytes {
    if line.starts_with(BYTE_ORDER_MARK) {
        let _ = line.split_to(BYTE_ORDER_MARK.len());
    }
    line
}

/// The line as delivered; `None` if it is blank.
fn clean(line: Bytes) -> Option<Bytes> {
    let mut line = without_mark(line);
    if line.last() == Some(&b'\r') {
        line.truncate(line.len() - 1);
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        None
    } else {
        Some(line)
    }
}

/// Replaces each raw carriage return and line feed by a space; without any, the piece is returned as it came.
///
/// In valid JSON they stand between tokens only, where a space means the same: inside strings they are escaped.
#[must_use]
pub fn fold_line_breaks(piece: Bytes) -> Bytes {
    let Some(first) = memchr2(b'\r', b'\n', &piece) else {
        return piece;
    };
    let mut owned = piece
        .try_into_mut()
        .unwrap_or_else(|shared| BytesMut::from(shared.as_ref()));
    for byte in owned.iter_mut().skip(first) {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    owned.freeze()
}

/// One stdio line from the pieces of a JSON message: line breaks folded, a newline at the end.
#[must_use]
pub fn frame(pieces: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
    let mut out: Vec<Bytes> = pieces.into_iter().map(fold_line_breaks).collect();
    out.push(Bytes::from_static(b"\n"));
    out
}

#[cfg(test)]
mod tests;
