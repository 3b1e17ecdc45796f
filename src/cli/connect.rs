//! `manifold stdio --connect`: a relay between one host on standard input and output and a running daemon.
//!
//! The host speaks lines, the daemon Streamable HTTP, and the relay turns one into the other: the legacy session and
//! its streams, the headers of modern requests, closing a stream where a modern host cancels. Messages go through
//! byte for byte. It keeps no catalog and decides nothing: policy and audit are the daemon's.

mod daemon;
mod learned;
mod relay;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::daemon::Daemon;
use self::relay::Relay;
use super::net::Target;
use super::{Failure, print};
use crate::runtime::signal::{Order, Signals};
use crate::runtime::tasks;
use crate::wire::lines::{LineDecoder, frame};

/// Where Streamable HTTP is unless the address says otherwise.
const DEFAULT_PATH: &str = "/mcp";
/// Longest line of the host. The daemon has its own, smaller limit and says so.
const MAX_LINE: usize = 256 * 1024 * 1024;
/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// Messages that wait for the host to read them; past that, the daemon's streams are not read either.
const WAITING: usize = 256;
/// After the end of the input, answers that are about to come still go out.
const AFTER_END: Duration = Duration::from_millis(200);
/// How long the last output and the end of the session may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs until the host closes standard input or a signal says stop.
///
/// # Errors
/// An address that is none, or standard input or output that fails. A daemon that is down is told to the host.
pub async fn run(address: &str) -> Result<(), Failure> {
    let target = Target::parse(address, DEFAULT_PATH).map_err(Failure::Usage)?;
    let mut signals = Signals::new().map_err(|error| Failure::Work(error.to_string()))?;
    let (out, lines) = mpsc::channel(WAITING);
    let mut writing = tasks::spawn("stdio writer", write(lines));
    let relay = Arc::new(Relay::new(Daemon::new(target), out));
    let stop = async move { while signals.next().await != Order::Stop {} };
    let mut host_gone = false;
    let read = tokio::select! {
        read = read(&relay) => {
            let _ = timeout(AFTER_END, relay.idle()).await;
            read.map_err(|error| Failure::Work(format!("standard input cannot be read: {error}")))
        }
        () = stop => Ok(()),
        // The host has closed its end: nothing that it still asks can be answered.
        _ = &mut writing => {
            host_gone = true;
            Ok(())
        }
    };
    let _ = timeout(LAST_WORDS, relay.end()).await;
    drop(relay);
    if !host_gone {
        let _ = timeout(LAST_WORDS, &mut writing).await;
    }
    read
}

async fn read(relay: &Arc<Relay>) -> std::io::Result<()> {
    let mut stdin = tokio::io::stdin();
    let mut lines = LineDecoder::new(MAX_LINE);
    let mut chunk = BytesMut::new();
    loop {
        if chunk.capacity() < CHUNK / 8 {
            chunk.reserve(CHUNK);
        }
        let length = stdin.read_buf(&mut chunk).await?;
        if length > 0 {
            lines.push(chunk.split().freeze());
        }
        while let Some(line) = if length == 0 {
            lines.finish()
        } else {
            lines.next_line()
        } {
            match line {
                Ok(line) => relay.from_host(line).await,
                Err(fault) => print::note(&format!("manifold: a message of the host was dropped: {fault}")),
            }
        }
        if length == 0 {
            return Ok(());
        }
    }
}

/// The only writer of standard output.
async fn write(mut lines: mpsc::Receiver<Bytes>) -> std::io::Result<()> {
    let mut stdout = tokio::io::stdout();
    while let Some(line) = lines.recv().await {
        for piece in frame([line]) {
            stdout.write_all(&piece).await?;
        }
        stdout.flush().await?;
    }
    Ok(())
}
