//! The way back to a host: where the pipeline puts messages, whatever carries them.

use std::fmt::Debug;

use crate::wire::Outgoing;

/// Which queue a message to a host belongs to; lanes differ in what happens when the reader is slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Progress of the call with this key; past the limit only the latest per key is kept.
    Progress(u64),
    /// Any other notification; past the limit the oldest is dropped and counted.
    Notice,
    /// A reverse request or its cancellation; never dropped, refused when the queue is full.
    Request,
    /// The final answer; always accepted.
    Answer,
}

/// What became of a message handed to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Queued.
    Queued,
    /// Refused: the stream is full or gone for good.
    Refused,
}

/// One stream to a host. Implementations never block and never wait.
pub trait HostStream: Send + Sync + Debug {
    /// Queues one complete JSON-RPC message.
    fn send(&self, lane: Lane, message: Outgoing) -> Sent;

    /// Whether a reader is there now (an open GET stream, a live standard output, a running POST).
    fn attached(&self) -> bool;
}
