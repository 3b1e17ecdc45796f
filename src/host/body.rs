//! Response bodies: pieces of known length, or a stream of events. Pieces are handed to hyper as they are.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};

use crate::wire::Outgoing;

/// A response body.
pub enum HostBody {
    /// Known pieces.
    Pieces {
        /// What is left, in order.
        pieces: VecDeque<Bytes>,
        /// Bytes left.
        left: u64,
    },
    /// Pieces as they come. Dropping it is how a closed connection is noticed.
    Events(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl fmt::Debug for HostBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pieces { left, .. } => write!(f, "HostBody({left} bytes)"),
            Self::Events(_) => f.write_str("HostBody(events)"),
        }
    }
}

impl HostBody {
    /// Nothing.
    #[must_use]
    pub fn empty() -> Self {
        Self::Pieces {
            pieces: VecDeque::new(),
            left: 0,
        }
    }

    /// One text.
    #[must_use]
    pub fn text(text: impl Into<Bytes>) -> Self {
        Self::message(Outgoing::from(text.into()))
    }

    /// One message, not copied.
    #[must_use]
    pub fn message(message: Outgoing) -> Self {
        let left = message.len() as u64;
        Self::Pieces {
            pieces: message.into_pieces().into(),
            left,
        }
    }
}

impl Body for HostBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Pieces { pieces, left } => Poll::Ready(pieces.pop_front().map(|piece| {
                *left = left.saturating_sub(piece.len() as u64);
                Ok(Frame::data(piece))
            })),
            Self::Events(stream) => stream
                .as_mut()
                .poll_next(context)
                .map(|piece| piece.map(|p| Ok(Frame::data(p)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Pieces { pieces, .. } if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pieces { left, .. } => SizeHint::with_exact(*left),
            Self::Events(_) => SizeHint::default(),
        }
    }
}
