//! Two small MCP servers inside the binary, so that a first run needs nothing else on the machine: `notes` and `clock`.
//!
//! They are honest servers of both families on stdio: legacy (2024-11-05 to 2025-11-25) after `initialize`, modern
//! (2026-07-28) by the `_meta` of each request, also mixed in one process. They keep everything in memory and end with
//! their stdin. Called by `manifold sample-server` and by tests; the daemon knows them only as children like any other
//! and nothing here uses the rest of the crate. Not on the hot path: plain `serde_json` values and threads.

use std::io::{self, BufRead, BufReader, Write};

mod clock;
mod feature;
mod notes;
mod outbox;
mod rpc;
mod server;

/// Longest line that is read, in bytes. A longer one is answered with an error and skipped.
const LINE_LIMIT: usize = 4 << 20;

/// Which sample server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SampleKind {
    /// Notes: tools, resources with subscription, a prompt, completion.
    Notes,
    /// A clock: tools, progress, cancellation, log messages.
    Clock,
}

/// Serves on stdin and stdout until stdin ends. Nothing but protocol goes to stdout.
///
/// # Errors
/// If stdin cannot be read or stdout cannot be written; a host that has gone is no error.
pub fn run(kind: SampleKind) -> io::Result<()> {
    match serve(kind, BufReader::new(io::stdin()), io::stdout()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Serves on any pair of streams until `input` ends. Running calls are cancelled then.
///
/// # Errors
/// The first failure of either stream.
pub fn serve(
    kind: SampleKind,
    mut input: impl BufRead,
    output: impl Write + Send + 'static,
) -> io::Result<()> {
    let server = match kind {
        SampleKind::Notes => server::Server::start(Box::new(notes::Notes::default()), output),
        SampleKind::Clock => server::Server::start(Box::new(clock::Clock), output),
    };
    let mut line = Vec::new();
    loop {
        match read_line(&mut input, &mut line)? {
            Read::End => break,
            Read::Line => server.receive(&line),
            Read::TooLong => server.refuse_line(LINE_LIMIT),
        }
        server.outbox_state()?;
    }
    server.end();
    Ok(())
}

enum Read {
    Line,
    TooLong,
    End,
}

/// Reads one line into `line`, without its end. A last line without newline counts.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Read> {
    line.clear();
    let limit = LINE_LIMIT as u64 + 1;
    if io::Read::take(&mut *input, limit).read_until(b'\n', line)? == 0 {
        return Ok(Read::End);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Read::Line);
    }
    if line.len() <= LINE_LIMIT {
        return Ok(Read::Line);
    }
    loop {
        let more = input.fill_buf()?;
        let end = memchr::memchr(b'\n', more);
        let used = end.map_or(more.len(), |at| at + 1);
        let over = more.is_empty() || end.is_some();
        input.consume(used);
        if over {
            return Ok(Read::TooLong);
        }
    }
}

#[cfg(test)]
mod tests;
