//! Newline-delimited JSON over a pair of byte streams: a child's pipes, or an in-memory pair in tests.
//!
//! One writer task owns the way out, one reader task the way in. Urgent messages (cancellations, answers to
//! reverse requests) overtake queued requests. A request whose call was cancelled while it was queued is never
//! written. The reader never waits for anything but the next bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::child::{Child, ProcessHandle, StderrTail, StopLadder};
use crate::downstream::connection::{Connection, Origin};
use crate::pipeline::port::{CallFault, FaultKind};
use crate::runtime::tasks;
use crate::wire::json::JsonLimits;
use crate::wire::lines::{LineDecoder, LineFault, frame};
use crate::wire::{Kind, Message, Outgoing, WireId};

/// Requests that may wait for the writer; more wait at the sender, within their own limits.
const QUEUE: usize = 64;
/// Urgent messages that may wait. A server that causes more without reading any is given up.
const URGENT: usize = 4096;
/// How much is read at once.
const READ: usize = 64 * 1024;
/// Noise on standard output is reported this many times per connection, then only counted.
const NOISE_REPORTS: u32 = 5;

/// Bounds of one pipe.
#[derive(Clone, Copy, Debug)]
pub struct PipeLimits {
    /// Longest line, in bytes.
    pub line: usize,
    /// JSON nesting.
    pub json: JsonLimits,
    /// How a child is stopped.
    pub ladder: StopLadder,
}

/// The way to a server over pipes.
#[derive(Debug)]
pub struct PipeLink {
    requests: mpsc::Sender<(WireId, Outgoing)>,
    urgent: mpsc::UnboundedSender<Outgoing>,
    urgent_waiting: Arc<AtomicUsize>,
    stop_writing: CancellationToken,
    process: Option<ProcessHandle>,
    stderr: Option<StderrTail>,
    ladder: StopLadder,
    /// Cancelled when the reader has read everything there is.
    drained: CancellationToken,
}

impl PipeLink {
    /// Starts reader and writer on a child's pipes.
    #[must_use]
    pub fn start_child(connection: &Arc<Connection>, child: Child, limits: PipeLimits) -> Self {
        let (stdin, stdout, stderr, process) = child.into_parts();
        let mut link = Self::start(connection, stdout, stdin, limits);
        let mut watched = process.clone();
        let (weak, tail) = (Arc::downgrade(connection), stderr.clone());
        // The reader usually sees the end first; a grandchild that holds the pipe open must not hide the exit.
        let drained = link.drained.clone();
        tasks::spawn("child watcher", async move {
            let status = watched.exited().await;
            // What the child wrote before its end is still in the pipe: read it first.
            let _ = tokio::time::timeout(std::time::Duration::from_millis(500), drained.cancelled()).await;
            if let Some(connection) = weak.upgrade() {
                connection.close(&format!("the process ended ({status}){}", last_words(&tail)));
            }
        });
        link.process = Some(process);
        link.stderr = Some(stderr);
        link
    }

    /// Starts reader and writer on any pair of streams.
    #[must_use]
    pub fn start(
        connection: &Arc<Connection>,
        reader: impl AsyncRead + Unpin + Send + 'static,
        writer: impl AsyncWrite + Unpin + Send + 'static,
        limits: PipeLimits,
    ) -> Self {
        let (requests, queued) = mpsc::channel(QUEUE);
        let (urgent, overtaking) = mpsc::unbounded_channel();
        let urgent_waiting = Arc::new(AtomicUsize::new(0));
        let stop_writing = CancellationToken::new();
        let weak = Arc::downgrade(connection);
        tasks::spawn(
            "pipe writer",
            write(
                weak.clone(),
                writer,
                queued,
                overtaking,
                urgent_waiting.clone(),
                stop_writing.clone(),
            ),
        );
        let ended = connection.end_token();
        let drained = CancellationToken::new();
        tasks::spawn("pipe reader", read(weak, reader, limits, ended, drained.clone()));
        Self {
            requests,
            urgent,
            urgent_waiting,
            stop_writing,
            process: None,
            stderr: None,
            ladder: limits.ladder,
            drained,
        }
    }

    /// Queues a request; waits while the queue is full.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn send(&self, id: WireId, body: Outgoing) -> Result<(), CallFault> {
        self.requests
            .send((id, body))
            .await
            .map_err(|_| CallFault::unsent(FaultKind::Lost, "the server's standard input is closed"))
    }

    /// Queues a message ahead of all requests. Never waits; a server that lets too many pile up is given up.
    pub fn send_urgent(&self, connection: &Arc<Connection>, message: Outgoing) {
        if self.urgent_waiting.fetch_add(1, Ordering::Relaxed) >= URGENT {
            connection.close("it does not read its standard input");
            return;
        }
        let _ = self.urgent.send(message);
    }

    /// Closes standard input, then climbs the stop ladder.
    pub async fn close(&self) {
        self.stop_writing.cancel();
        if let Some(process) = &self.process {
            let report = process.clone().stop(self.ladder).await;
            if report.forced {
                tracing::warn!(pid = process.pid(), "a server had to be killed");
            }
        }
    }

    /// The last lines of standard error.
    #[must_use]
    pub fn stderr_tail(&self) -> Vec<String> {
        self.stderr.as_ref().map(StderrTail::lines).unwrap_or_default()
    }

    /// The child's process id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(ProcessHandle::pid)
    }
}

/// The end of standard error as the end of a sentence.
pub fn last_words(tail: &StderrTail) -> String {
    let lines = tail.lines();
    let skip = lines.len().saturating_sub(5);
    let last: Vec<&str> = lines.iter().skip(skip).map(String::as_str).collect();
    if last.is_empty() {
        String::new()
    } else {
        format!("; it last wrote: {}", last.join(" | "))
    }
}

async fn write(
    connection: Weak<Connection>,
    mut writer: impl AsyncWrite + Unpin,
    mut requests: mpsc::Receiver<(WireId, Outgoing)>,
    mut urgent: mpsc::UnboundedReceiver<Outgoing>,
    waiting: Arc<AtomicUsize>,
    stop: CancellationToken,
) {
    /// Small messages are joined up to this size before they are written.
    const JOIN: usize = 32 * 1024;
    let mut buffer = BytesMut::new();
    loop {
        let first = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(message) = urgent.recv() => {
                waiting.fetch_sub(1, Ordering::Relaxed);
                Some(message)
            }
            request = requests.recv() => match request {
                Some((id, body)) => admit(&connection, id, body),
                None => break,
            },
        };
        let mut next = first;
        let mut written = Ok(());
        loop {
            if let Some(message) = next.take() {
                written = put(&mut writer, &mut buffer, message).await;
            }
            if written.is_err() || buffer.len() > JOIN {
                break;
            }
            // Urgent ones first, again for each message.
            next = match urgent.try_recv() {
                Ok(message) => {
                    waiting.fetch_sub(1, Ordering::Relaxed);
                    Some(message)
                }
                Err(_) => match requests.try_recv() {
                    Ok((id, body)) => match admit(&connection, id, body) {
                        Some(body) => Some(body),
                        None => continue,
                    },
                    Err(_) => break,
                },
            };
        }
        if written.is_ok() && !buffer.is_empty() {
            written = writer.write_all(&buffer).await;
            buffer.clear();
        }
        if written.is_ok() {
            written = writer.flush().await;
        }
        if let Err(error) = written {
            if let Some(connection) = connection.upgrade()
                && !stop.is_cancelled()
            {
                tracing::debug!(server = %connection.server(), %error, "writing to the server failed");
            }
            // The reader or the child watcher knows better why; without either the connection ends here.
            requests.close();
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            if let Some(connection) = connection.upgrade() {
                connection.close(&format!("writing to the server failed: {error}"));
            }
            break;
        }
    }
    let _ = writer.shutdown().await;
}

/// The body, unless its call was cancelled while it was queued.
fn admit(connection: &Weak<Connection>, id: WireId, body: Outgoing) -> Option<Outgoing> {
    connection
        .upgrade()
        .filter(|connection| connection.begin_sending(id))
        .map(|_| body)
}

async fn put(
    writer: &mut (impl AsyncWrite + Unpin),
    buffer: &mut BytesMut,
    message: Outgoing,
) -> std::io::Result<()> {
    /// From here on a piece is written from where it lies.
    const LARGE: usize = 16 * 1024;
    for piece in frame(message.into_pieces()) {
        if piece.len() < LARGE {
            buffer.extend_from_slice(&piece);
        } else {
            writer.write_all(buffer).await?;
            buffer.clear();
            writer.write_all(&piece).await?;
        }
    }
    Ok(())
}

async fn read(
    connection: Weak<Connection>,
    mut reader: impl AsyncRead + Unpin,
    limits: PipeLimits,
    ended: CancellationToken,
    drained: CancellationToken,
) {
    let mut decoder = LineDecoder::new(limits.line);
    let mut buffer = BytesMut::with_capacity(READ);
    let mut noise = 0u32;
    let why = loop {
        buffer.reserve(READ);
        let got = tokio::select! {
            got = reader.read_buf(&mut buffer) => got,
            () = ended.cancelled() => return,
        };
        match got {
            Ok(0) => break "its standard output was closed".to_owned(),
            Ok(_) => {}
            Err(error) => break format!("reading from it failed: {error}"),
        }
        decoder.push(buffer.split().freeze());
        let Some(connection) = connection.upgrade() else {
            return;
        };
        while let Some(line) = decoder.next_line() {
            match line {
                Ok(line) => take_line(&connection, line, limits.json, &mut noise),
                Err(fault) => over_long(&connection, &fault),
            }
        }
    };
    drained.cancel();
    // A child's exit says more than its closed pipe: leave the watcher a moment to report it.
    let grace = std::time::Duration::from_secs(1);
    let _ = tokio::time::timeout(grace, ended.cancelled()).await;
    if let Some(connection) = connection.upgrade() {
        connection.close(&why);
    }
}

fn take_line(connection: &Arc<Connection>, line: Bytes, limits: JsonLimits, noise: &mut u32) {
    match Message::parse(line.clone(), limits) {
        Ok(message) => connection.dispatch(Origin::Connection, message),
        Err(error) => {
            // The answer of a call, only badly encoded: that call must not wait for its deadline.
            let readable = String::from_utf8_lossy(&line).into_owned();
            if let Ok(message) = Message::parse(Bytes::from(readable), limits)
                && matches!(message.kind(), Kind::Result | Kind::Error)
                && let Some(id) = message.wire_id()
            {
                let text = format!(
                    "server \"{}\" sent an answer that is not valid: {error}",
                    connection.server()
                );
                connection.fail(id, FaultKind::Malformed, text);
                return;
            }
            *noise += 1;
            if *noise <= NOISE_REPORTS {
                let shown: String =
                    String::from_utf8_lossy(line.get(..line.len().min(120)).unwrap_or_default())
                        .escape_debug()
                        .collect();
                tracing::warn!(server = %connection.server(), "skipped a line that is no message ({error}): {shown}");
            }
        }
    }
}

fn over_long(connection: &Arc<Connection>, fault: &LineFault) {
    let text = format!("server \"{}\": {fault}", connection.server());
    let LineFault::TooLong { head, .. } = fault;
    let id = answer_id(head).or_else(|| connection.only_call());
    match id {
        Some(id) => connection.fail(id, FaultKind::TooLarge, text),
        None => tracing::warn!(server = %connection.server(), "dropped a message over the limit ({fault})"),
    }
}

/// The id of an answer, dug out of the start of a line that is too long to be read.
fn answer_id(head: &[u8]) -> Option<WireId> {
    let text = std::str::from_utf8(head.get(..head.len().min(200)).unwrap_or_default()).ok()?;
    let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let rest = compact.strip_prefix('{')?;
    let rest = rest.strip_prefix("\"jsonrpc\":\"2.0\",").unwrap_or(rest);
    let digits: String = rest
        .strip_prefix("\"id\":")?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    WireId::from_raw(digits.as_bytes())
}
