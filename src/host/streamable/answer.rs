//! How an answer starts: plain JSON if the answer is the first thing there is, a stream of events otherwise.

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use crate::pipeline::Reply;
use crate::session::{HostStream, Lane};
use crate::wire::Outgoing;

use crate::host::edge::Accepts;
use crate::host::outbox::OutboxReader;

/// Some hosts refuse a single event over 1 MiB but take a JSON body of any size.
pub(super) const LARGE: usize = 512 * 1024;

/// How an answer starts.
pub(super) enum Start {
    /// The answer itself, and the HTTP status for it.
    Json(u16, Outgoing),
    /// With a stream; the call goes on.
    Events,
    /// There is no answer and nothing was streamed: the host cancelled.
    Nothing,
}

/// Waits for the first thing of a modern request. If the call is done, it is taken out of `call`.
pub(super) async fn first_of_call(
    call: &mut Option<BoxFuture<'static, Reply>>,
    reader: &mut OutboxReader,
    accepts: Accepts,
    patience: std::time::Duration,
) -> Start {
    let deadline = Instant::now() + patience;
    let Some(running) = call.as_mut() else {
        return Start::Nothing;
    };
    let reply = tokio::select! {
        biased;
        reply = running => reply,
        true = reader.ready(), if accepts.events => return Start::Events,
        () = sleep_until(deadline), if accepts.events => return Start::Events,
    };
    *call = None;
    let Some(message) = reply.message else {
        return Start::Nothing;
    };
    let must_stream = !accepts.json || (accepts.events && reader.peek().is_some() && message.len() < LARGE);
    if must_stream {
        reader.outbox().send(Lane::Answer, message);
        reader.outbox().finish();
        return Start::Events;
    }
    Start::Json(reply.status, message)
}

/// Waits for the first thing of a legacy request, whose answer comes through the same outbox.
pub(super) async fn first_of_outbox(
    reader: &mut OutboxReader,
    accepts: Accepts,
    patience: std::time::Duration,
) -> Start {
    let deadline = Instant::now() + patience;
    let ready = tokio::select! {
        biased;
        ready = reader.ready() => ready,
        () = sleep_until(deadline), if accepts.events => return Start::Events,
    };
    if !ready {
        return Start::Nothing;
    }
    if !accepts.json || reader.peek() != Some(Lane::Answer) {
        return Start::Events;
    }
    reader
        .try_next()
        .map_or(Start::Nothing, |item| Start::Json(200, item.message))
}
