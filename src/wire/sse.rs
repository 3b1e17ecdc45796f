//! Server-sent events: an encoder and an incremental decoder with limits.
//!
//! It owns the event-stream format (the WHATWG HTML text, section "Server-sent events"). The HTTP faces of both
//! sides call it. It never reads or writes anything itself and never looks into the data of an event.

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memchr2};
use std::collections::VecDeque;
use std::time::Duration;

use super::lines::{HEAD_LENGTH, fold_line_breaks};

/// The name of events that have none.
pub const DEFAULT_NAME: &str = "message";

// ---- writing ----

/// One event as pieces to write: fields, data, the blank line. Line breaks in `data`, legal in JSON between tokens,
/// become spaces, so there is always one `data` line. Characters that an id or a name cannot hold are left out.
#[must_use]
pub fn event(id: Option<&str>, name: Option<&str>, data: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
    let mut fields = String::new();
    push_field(&mut fields, "id: ", id);
    push_field(&mut fields, "event: ", name);
    fields.push_str("data: ");
    let mut out = vec![Bytes::from(fields)];
    out.extend(data.into_iter().map(fold_line_breaks));
    out.push(Bytes::from_static(b"\n\n"));
    out
}

/// An event with an id and empty data: it gives the peer an id to come back with. Only for peers whose revision
/// has the feature `priming_event`.
#[must_use]
pub fn priming(id: &str, retry: Option<Duration>) -> Bytes {
    let mut out = String::new();
    push_field(&mut out, "id: ", Some(id));
    if let Some(retry) = retry {
        push_field(&mut out, "retry: ", Some(&retry.as_millis().to_string()));
    }
    out.push_str("data: \n\n");
    Bytes::from(out)
}

/// The time after which the peer should come back, should the stream end.
#[must_use]
pub fn retry(after: Duration) -> Bytes {
    Bytes::from(format!("retry: {}\n\n", after.as_millis()))
}

/// A comment: what keeps a silent stream alive. Line breaks in the text become spaces.
#[must_use]
pub fn comment(text: &str) -> Bytes {
    let mut out = String::with_capacity(text.len() + 4);
    out.push_str(": ");
    out.extend(
        text.chars()
            .map(|c| if matches!(c, '\r' | '\n') { ' ' } else { c }),
    );
    out.push_str("\n\n");
    Bytes::from(out)
}

fn push_field(out: &mut String, field: &str, value: Option<&str>) {
    let Some(value) = value else { return };
    out.push_str(field);
    // A name may hold a NUL, an id may not.
    let without_nul = field == "id: ";
    out.extend(
        value
            .chars()
            .filter(|c| !(matches!(c, '\r' | '\n') || (without_nul && *c == '\0'))),
    );
    out.push('\n');
}

// ---- reading ----

/// Bounds of one stream.
#[derive(Clone, Copy, Debug)]
pub struct SseLimits {
    /// Longest line in bytes, field name included, line end not. Below 16 it counts as 16, so that the field name of
    /// a line that is given up is always known.
    pub line: usize,
    /// Most data of one event in bytes.
    pub event: usize,
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The id given with this event; for resuming use [`SseDecoder::last_event_id`].
    pub id: Option<Box<str>>,
    /// The name, `None` if it has none or is called [`DEFAULT_NAME`].
    pub name: Option<Box<str>>,
    /// The data, its lines joined by line feeds. Empty for a priming event. Not checked for UTF-8.
    pub data: Bytes,
}

/// Why an event could not be delivered. It is skipped to its end, and the stream goes on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SseFault {
    /// A line or the data of an event is over its limit. Reported once per event, as soon as the limit is passed.
    #[error("an event is larger than the limit of {limit} bytes ({length_so_far} bytes read so far)")]
    TooLarge {
        /// Bytes that had arrived of the line or of the data.
        length_so_far: usize,
        /// The limit that was passed.
        limit: usize,
        /// The first bytes of the data, at most [`HEAD_LENGTH`]: enough to find the id of a response.
        head: Bytes,
    },
}

/// What has been read of the event whose blank line has not arrived.
#[derive(Debug, Default)]
struct Pending {
    id: Option<Box<str>>,
    name: Option<Box<str>>,
    first: Option<Bytes>,
    joined: BytesMut,
    over_limit: bool,
}

impl Pending {
    fn length(&self) -> usize {
        self.first.as_ref().map_or(0, Bytes::len).max(self.joined.len())
    }

    fn head(&self, more: &[u8]) -> Bytes {
        let have = self.first.as_deref().unwrap_or(&self.joined);
        let separator: &[u8] = if self.first.is_some() || !self.joined.is_empty() {
            b"\n"
        } else {
            b""
        };
        have.iter()
            .chain(separator)
            .chain(more)
            .take(HEAD_LENGTH)
            .copied()
            .collect()
    }
}

/// Cuts a byte stream into events, whatever the chunks it arrives in.
///
/// The data of an event with one `data` line that lies within one chunk is a slice of that chunk.
#[derive(Debug)]
pub struct SseDecoder {
    limits: SseLimits,
    chunks: VecDeque<Bytes>,
    /// The start of a line whose end has not arrived, at most `limits.line` bytes.
    partial: BytesMut,
    /// Inside a line that was already given up.
    skipping_line: bool,
    /// The last line ended with a carriage return at the end of what was read: a line feed belongs to it.
    skip_line_feed: bool,
    first_line: bool,
    pending: Pending,
    last_event_id: Option<Box<str>>,
    retry: Option<Duration>,
}

impl SseDecoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new(limits: SseLimits) -> Self {
        let limits = SseLimits {
            line: limits.line.max(16),
            event: limits.event,
        };
        Self {
            limits,
            chunks: VecDeque::new(),
            partial: BytesMut::new(),
            skipping_line: false,
            skip_line_feed: false,
            first_line: true,
            pending: Pending::default(),
            last_event_id: None,
            retry: None,
        }
    }

    /// Takes what was read. Call [`Self::next_event`] until it returns `None` before reading on.
    pub fn push(&mut self, chunk: impl Into<Bytes>) {
        let chunk = chunk.into();
        if !chunk.is_empty() {
            self.chunks.push_back(chunk);
        }
    }

    /// The next complete event, or `None` if more bytes are needed.
    pub fn next_event(&mut self) -> Option<Result<Event, SseFault>> {
        while let Some(mut chunk) = self.chunks.pop_front() {
            if std::mem::take(&mut self.skip_line_feed) && chunk.first() == Some(&b'\n') {
                let _ = chunk.split_to(1);
            }
            let end = memchr2(b'\r', b'\n', &chunk);
            let part = match end {
                Some(at) => {
                    let part = chunk.split_to(at);
                    self.skip_line_feed = chunk.split_to(1).as_ref() == b"\r";
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

    /// The event that stands at the end of a stream without its blank line. By the format it is to be discarded; a
    /// caller that would otherwise report a lost answer may take it, since a truncated message does not parse.
    pub fn finish(&mut self) -> Option<Result<Event, SseFault>> {
        if let Some(out) = self.next_event() {
            return Some(out);
        }
        if !self.partial.is_empty()
            && let Some(out) = self.take_part(Bytes::new(), true)
        {
            return Some(out);
        }
        self.dispatch().map(Ok)
    }

    /// The id to resume after: the last one given, also by events without data. `None` if there was none or the
    /// last one was empty, which means the same.
    #[must_use]
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// How long the peer wants us to wait before coming back, if it said so.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Bytes held back until their event is complete.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.partial.len() + self.pending.length() + self.chunks.iter().map(Bytes::len).sum::<usize>()
    }

    fn take_part(&mut self, part: Bytes, line_ends: bool) -> Option<Result<Event, SseFault>> {
        if self.skipping_line {
            self.skipping_line = !line_ends;
            return None;
        }
        let length = self.partial.len() + part.len();
        if length > self.limits.line {
            self.skipping_line = !line_ends;
            let mut line = std::mem::take(&mut self.partial);
            let wanted = (HEAD_LENGTH + "data: ".len())
                .saturating_sub(line.len())
                .min(part.len());
            line.extend_from_slice(part.get(..wanted).unwrap_or_default());
            let line = self.without_mark(line.freeze());
            let (field, value) = field_of(&line);
            // A comment or an unknown field is nobody's loss, however long.
            if field.as_ref() != b"data" {
                return None;
            }
            return self.over_limit(length, self.limits.line, &value);
        }
        if !line_ends {
            self.partial.extend_from_slice(&part);
            return None;
        }
        if self.partial.is_empty() {
            return self.take_line(part);
        }
        let mut line = std::mem::take(&mut self.partial);
        line.extend_from_slice(&part);
        self.take_line(line.freeze())
    }

    fn over_limit(
        &mut self,
        length_so_far: usize,
        limit: usize,
        value: &[u8],
    ) -> Option<Result<Event, SseFault>> {
        if self.pending.over_limit {
            return None;
        }
        let head = self.pending.head(value);
        self.pending.over_limit = true;
        self.pending.first = None;
        self.pending.joined = BytesMut::new();
        Some(Err(SseFault::TooLarge {
            length_so_far,
            limit,
            head,
        }))
    }

    fn without_mark(&mut self, mut line: Bytes) -> Bytes {
        if std::mem::take(&mut self.first_line) && line.starts_with(b"\xef\xbb\xbf") {
            let _ = line.split_to(3);
        }
        line
    }

    fn take_line(&mut self, line: Bytes) -> Option<Result<Event, SseFault>> {
        let line = self.without_mark(line);
        if line.is_empty() {
            return self.dispatch().map(Ok);
        }
        let (field, value) = field_of(&line);
        match field.as_ref() {
            b"data" => return self.take_data(value),
            b"event" => {
                let name = String::from_utf8_lossy(&value);
                let is_default = name.is_empty() || name == DEFAULT_NAME;
                self.pending.name = (!is_default).then(|| name.into());
            }
            b"id" if memchr(0, &value).is_none() => {
                self.pending.id = Some(String::from_utf8_lossy(&value).into());
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let millis = std::str::from_utf8(&value)
                    .ok()
                    .and_then(|digits| digits.parse().ok());
                self.retry = Some(Duration::from_millis(millis.unwrap_or(u64::MAX)));
            }
            // A comment has an empty field name; unknown fields are ignored.
            _ => {}
        }
        None
    }

    fn take_data(&mut self, value: Bytes) -> Option<Result<Event, SseFault>> {
        if self.pending.over_limit {
            return None;
        }
        let is_first = self.pending.first.is_none() && self.pending.joined.is_empty();
        let length = self.pending.length() + usize::from(!is_first) + value.len();
        if length > self.limits.event {
            return self.over_limit(length, self.limits.event, &value);
        }
        match self.pending.first.take() {
            None if is_first => self.pending.first = Some(value),
            first => {
                if let Some(first) = first {
                    self.pending.joined.extend_from_slice(&first);
                }
                self.pending.joined.extend_from_slice(b"\n");
                self.pending.joined.extend_from_slice(&value);
            }
        }
        None
    }

    /// Ends the pending event. Without a `data` line there is nothing to deliver, but its id counts.
    fn dispatch(&mut self) -> Option<Event> {
        let Pending {
            id,
            name,
            first,
            joined,
            over_limit,
        } = std::mem::take(&mut self.pending);
        if let Some(id) = &id {
            self.last_event_id = Some(id.clone()).filter(|id| !id.is_empty());
        }
        if over_limit || (first.is_none() && joined.is_empty()) {
            return None;
        }
        Some(Event {
            id,
            name,
            data: first.unwrap_or_else(|| joined.freeze()),
        })
    }
}

/// Splits `field: value`, dropping one space after the colon. A line without colon is all field.
fn field_of(line: &Bytes) -> (Bytes, Bytes) {
    let Some(colon) = memchr(b':', line) else {
        return (line.clone(), Bytes::new());
    };
    let field = line.slice(..colon);
    let mut value = line.slice(colon..);
    let skip = if value.get(1) == Some(&b' ') { 2 } else { 1 };
    let _ = value.split_to(skip);
    (field, value)
}

#[cfg(test)]
mod tests;
