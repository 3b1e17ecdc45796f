//! A connection that gives up: on a peer that never says anything, and on one that takes nothing.
//!
//! hyper's own timeouts cover neither: it waits without limit for the first byte, and for a peer that does not read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The wrapped connection.
#[derive(Debug)]
pub(crate) struct Patience<S> {
    inner: S,
    /// Runs until the first byte has arrived.
    first: Option<Pin<Box<Sleep>>>,
    write: Duration,
    /// Runs while a write waits for the peer.
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> Patience<S> {
    /// Waits at most `first` for the first byte, and at most `write` for the peer to take something.
    pub(crate) fn new(inner: S, first: Duration, write: Duration) -> Self {
        Self {
            inner,
            first: Some(Box::pin(sleep(first))),
            write,
            writing: None,
        }
    }

    fn wrote<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.writing = None;
            return poll;
        }
        let write = self.write;
        let timer = self.writing.get_or_insert_with(|| Box::pin(sleep(write)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer takes nothing",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.inner).poll_read(context, buffer);
        match (&read, this.first.as_mut()) {
            (Poll::Ready(_), _) => this.first = None,
            (Poll::Pending, Some(first)) => {
                ready!(first.as_mut().poll(context));
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the peer says nothing",
                )));
            }
            (Poll::Pending, None) => {}
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_write(context, bytes);
        this.wrote(context, poll)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_write_vectored(context, bytes);
        this.wrote(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_flush(context);
        this.wrote(context, poll)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_shutdown(context);
        this.wrote(context, poll)
    }
}
