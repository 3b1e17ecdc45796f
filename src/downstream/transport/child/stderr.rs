//! What a server writes to stderr: always read, so that it never blocks on it, mostly thrown away, the end of it kept.
//!
//! Bounded everywhere: bytes per line, lines kept, lines logged per second. The text is made safe for a terminal and a
//! log file, and the secrets that this server was given are masked. Writing to stderr is never taken for a failure.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use super::keeper;

/// Bytes of one line that are kept; the rest is counted.
const LINE_BYTES: usize = 4096;
/// Lines that one child may log at once, and how many more it may log each second.
const LOG_BURST: u32 = 50;
const LOG_PER_SECOND: u32 = 10;
/// Shorter secrets would mask ordinary words and are guessed in no time anyway.
const MASKED_LENGTH: usize = 6;
/// How long the pipe is still read after the group has gone, for what is left in it.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The last lines of a child's stderr. A cheap clone; stays readable after the child's end.
#[derive(Clone, Debug)]
pub struct StderrTail(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    secrets: Vec<SecretString>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    open: OpenLine,
}

/// A line whose end was not seen yet.
#[derive(Debug, Default)]
struct OpenLine {
    bytes: Vec<u8>,
    dropped: u64,
}

impl StderrTail {
    pub(super) fn new(limit: usize, secrets: Vec<SecretString>) -> Self {
        let secrets = secrets
            .into_iter()
            .filter(|secret| secret.expose_secret().len() >= MASKED_LENGTH)
            .collect();
        Self(Arc::new(Shared {
            limit,
            secrets,
            kept: Mutex::default(),
        }))
    }

    /// The kept lines, oldest first, a line without end as the last one. Printable: control characters are escaped,
    /// invalid UTF-8 is replaced, long lines are cut and say so.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let open = (!kept.open.bytes.is_empty()).then(|| self.printable(&kept.open));
        let mut lines: VecDeque<String> = kept.lines.iter().cloned().chain(open).collect();
        while lines.len() > self.0.limit {
            lines.pop_front();
        }
        lines.into()
    }

    /// Takes the next bytes and calls `each` for every line that they complete.
    pub(super) fn push(&self, mut bytes: &[u8], mut each: impl FnMut(&str)) {
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let end = memchr::memchr(b'\n', bytes);
            kept.open
                .extend(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default());
            let Some(end) = end else { return };
            bytes = bytes.get(end + 1..).unwrap_or_default();
            let whole = std::mem::take(&mut kept.open);
            let line = self.printable(&whole);
            each(&line);
            kept.lines.push_back(line);
            while kept.lines.len() > self.0.limit {
                kept.lines.pop_front();
            }
        }
    }

    fn printable(&self, line: &OpenLine) -> String {
        let bytes = line.bytes.strip_suffix(b"\r").unwrap_or(&line.bytes);
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        for secret in &self.0.secrets {
            text = text.replace(secret.expose_secret(), "***");
        }
        let mut safe = String::with_capacity(text.len());
        for letter in text.chars() {
            if letter.is_control() && letter != '\t' {
                // Writing into a String cannot fail.
                let _ = write!(safe, "\\x{:02x}", u32::from(letter));
            } else {
                safe.push(letter);
            }
        }
        if line.dropped > 0 {
            let _ = write!(safe, " [{} bytes more]", line.dropped);
        }
        safe
    }
}

impl OpenLine {
    fn extend(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes
            .extend_from_slice(bytes.get(..room).unwrap_or_default());
        self.dropped += (bytes.len() - room) as u64;
    }
}

/// Reads the pipe until it ends, or until the group has gone (a grandchild that left the group may hold the pipe).
pub(super) async fn drain(
    mut pipe: impl AsyncRead + Unpin,
    tail: StderrTail,
    label: Arc<str>,
    mut process: watch::Receiver<keeper::State>,
) {
    let mut log = LogRate::new(Instant::now());
    // On the heap, since the future of a task should be small.
    let mut buffer = vec![0; 8192];
    let over = async {
        // An error means that the keeper has gone, and the group with it.
        let _ = process.wait_for(|state| state.report.is_some()).await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::pin!(over);
    loop {
        let read = tokio::select! {
            read = pipe.read(&mut buffer) => read,
            () = &mut over => return,
        };
        let bytes = match read {
            Ok(0) | Err(_) => return,
            Ok(count) => buffer.get(..count).unwrap_or_default(),
        };
        tail.push(bytes, |line| {
            if let Some(suppressed) = log.admit(Instant::now()) {
                if suppressed > 0 {
                    tracing::debug!(target: "server stderr", server = %label, suppressed, "lines not logged");
                }
                tracing::debug!(target: "server stderr", server = %label, "{line}");
            }
        });
    }
}

/// A token bucket in whole lines.
pub(super) struct LogRate {
    tokens: u32,
    filled: Instant,
    suppressed: u64,
}

impl LogRate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            tokens: LOG_BURST,
            filled: now,
            suppressed: 0,
        }
    }

    /// Whether a line may be logged now, and how many before it were not.
    pub(super) fn admit(&mut self, now: Instant) -> Option<u64> {
        let seconds = now.saturating_duration_since(self.filled).as_secs();
        if seconds > 0 {
            let more = u32::try_from(seconds)
                .unwrap_or(u32::MAX)
                .saturating_mul(LOG_PER_SECOND);
            self.tokens = self.tokens.saturating_add(more).min(LOG_BURST);
            self.filled += Duration::from_secs(seconds);
        }
        if self.tokens == 0 {
            self.suppressed += 1;
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}
