//! One host on standard input and output, both eras on one connection.
//!
//! One task reads, one writes; every message is one line. Only protocol is ever written. The end of the input ends
//! everything: what is in flight is cancelled, and the call returns.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::identity::Identity;
use crate::pipeline::HostService;
use crate::runtime::tasks;
use crate::session::{HostTransport, Lane};
use crate::wire::lines::{LineDecoder, LineFault, frame};

use super::HostSettings;
use super::conversation::{Conversation, Party};
use super::fault::{self, Fault};
use super::outbox::{Item, Outbox, OutboxReader};

/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// Past this the input is not read until the host has taken some of the output.
const UNREAD_MESSAGES: usize = 4_096;
const UNREAD_BYTES: usize = 64 * 1024 * 1024;
/// After the end of the input, answers that are about to come still go out.
const AFTER_END: Duration = Duration::from_millis(200);
/// How long the last output may take.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// How long after a notification the answer may follow at the earliest: some hosts lose a progress message that
/// arrives in the same read as the answer.
const APART: Duration = Duration::from_millis(1);

/// Serves the host at the other end of `reader` and `writer` until its input ends, its output is closed, or
/// `shutdown` is cancelled.
///
/// # Errors
/// If reading or writing fails for another reason than the host's going away.
pub async fn serve_stdio<R, W>(
    service: Arc<dyn HostService>,
    reader: R,
    writer: W,
    settings: HostSettings,
    shutdown: CancellationToken,
) -> std::io::Result<()>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let outbox = Outbox::new(settings.outbox);
    let ended = shutdown.child_token();
    let max_line = settings.max_line;
    let party = Party {
        identity: Identity::local_stdio(),
        transport: HostTransport::Stdio,
        id: Arc::from(""),
        label: Arc::from("stdio"),
    };
    let conversation = Conversation::new(service, settings, outbox.clone(), party, ended);
    let writing = tasks::spawn("stdio writer", write(writer, outbox.attach()));
    tokio::pin!(writing);
    let read = tokio::select! {
        read = read(&conversation, &outbox, reader, max_line) => read,
        () = shutdown.cancelled() => Ok(()),
        // The host has closed its end, so nothing that it still asks can be answered.
        written = &mut writing => {
            conversation.end().await;
            return written.unwrap_or(Ok(()));
        }
    };
    if !shutdown.is_cancelled() {
        conversation.idle(AFTER_END).await;
    }
    conversation.end().await;
    outbox.finish();
    if timeout(LAST_OUTPUT, &mut writing).await.is_err() {
        writing.abort();
    }
    read
}

async fn read<R: AsyncRead + Unpin>(
    conversation: &Arc<Conversation>,
    outbox: &Outbox,
    mut reader: R,
    max_line: usize,
) -> std::io::Result<()> {
    let mut lines = LineDecoder::new(max_line);
    let mut chunk = BytesMut::new();
    loop {
        outbox.short(UNREAD_MESSAGES, UNREAD_BYTES).await;
        if chunk.capacity() < CHUNK / 8 {
            chunk.reserve(CHUNK);
        }
        let length = reader.read_buf(&mut chunk).await?;
        if length > 0 {
            lines.push(chunk.split().freeze());
        }
        while let Some(line) = if length == 0 {
            lines.finish()
        } else {
            lines.next_line()
        } {
            match line {
                Ok(line) => conversation.receive(line),
                Err(fault @ LineFault::TooLong { .. }) => {
                    let fault = Fault::new(413, fault::INVALID_REQUEST, "line_too_long", fault.to_string());
                    conversation.refuse(&fault, None);
                }
            }
        }
        if length == 0 {
            return Ok(());
        }
        // A host that writes without end must not keep the others of this runtime waiting.
        tokio::task::yield_now().await;
    }
}

/// Writes what the outbox yields: everything that waits at once, one flush for it.
async fn write<W: AsyncWrite + Unpin>(mut writer: W, mut outbox: OutboxReader) -> std::io::Result<()> {
    let mut notified: Option<Instant> = None;
    while let Some(item) = outbox.next().await {
        let written = write_batch(&mut writer, &mut outbox, item, &mut notified).await;
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    writer.flush().await
}

async fn write_batch<W: AsyncWrite + Unpin>(
    writer: &mut W,
    outbox: &mut OutboxReader,
    first: Item,
    notified: &mut Option<Instant>,
) -> std::io::Result<()> {
    let mut next = Some(first);
    let mut buffer = BytesMut::new();
    while let Some(item) = next.take() {
        if item.lane == Lane::Answer {
            if let Some(at) = notified.take() {
                flush(writer, &mut buffer).await?;
                sleep_until(at + APART).await;
            }
        } else if matches!(item.lane, Lane::Progress(_)) {
            *notified = Some(Instant::now());
        }
        for piece in frame(item.message.into_pieces()) {
            put(writer, &mut buffer, piece).await?;
        }
        next = outbox.try_next();
    }
    flush(writer, &mut buffer).await
}

/// Small pieces are joined, large ones written as they are.
async fn put<W: AsyncWrite + Unpin>(
    writer: &mut W,
    buffer: &mut BytesMut,
    piece: Bytes,
) -> std::io::Result<()> {
    if piece.len() < CHUNK {
        buffer.extend_from_slice(&piece);
        if buffer.len() < CHUNK {
            return Ok(());
        }
        return writer.write_all(&buffer.split()).await;
    }
    writer.write_all(&buffer.split()).await?;
    writer.write_all(&piece).await
}

async fn flush<W: AsyncWrite + Unpin>(writer: &mut W, buffer: &mut BytesMut) -> std::io::Result<()> {
    writer.write_all(&buffer.split()).await?;
    writer.flush().await
}

#[cfg(test)]
mod tests;
