//! Notifications and responses on their way out over HTTP: in order, best effort, and nobody waits for them.
//!
//! Used by the HTTP transports only. It never repeats a message and holds no task while there is nothing to send.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use memchr::memmem;
use tokio_util::sync::CancellationToken;

use crate::runtime::tasks;
use crate::wire::Outgoing;

/// A message waits this long for the one before it; then it overtakes a server that holds its answer back.
const TURN: Duration = Duration::from_secs(2);
/// How long one of them may take in all.
const LIMIT: Duration = Duration::from_secs(30);
/// How long requests wait for the server to take `initialized`.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// Messages that may wait; a server that takes none loses the newest.
const QUEUE: usize = 4096;

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Outgoing>,
    running: bool,
}

/// The queue of one connection.
#[derive(Debug, Default)]
pub(in crate::downstream::transport) struct Outbox {
    queue: Mutex<Queue>,
    introducing: AtomicBool,
    introduced: CancellationToken,
}

impl Outbox {
    /// Queues a message; `post` sends one.
    pub(in crate::downstream::transport) fn push<P>(self: &Arc<Self>, message: Outgoing, post: P)
    where
        P: Fn(Outgoing) -> BoxFuture<'static, ()> + Send + 'static,
    {
        if is_initialized(&message) {
            self.introducing.store(true, Ordering::Release);
        }
        {
            let mut queue = self.lock();
            if queue.waiting.len() >= QUEUE {
                tracing::debug!("dropped a notification: the server takes none");
                return;
            }
            queue.waiting.push_back(message);
            if std::mem::replace(&mut queue.running, true) {
                return;
            }
        }
        let outbox = self.clone();
        drop(tasks::spawn("http notifications", async move {
            while let Some(message) = outbox.pop() {
                let introduction = is_initialized(&message).then(|| outbox.introduced.clone().drop_guard());
                let posted = post(message);
                let one = tasks::spawn("http notification", async move {
                    let _ = tokio::time::timeout(LIMIT, posted).await;
                    drop(introduction);
                });
                let _ = tokio::time::timeout(TURN, one).await;
            }
        }));
    }

    fn pop(&self) -> Option<Outgoing> {
        let mut queue = self.lock();
        let message = queue.waiting.pop_front();
        queue.running = message.is_some();
        message
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Resolves when the server has taken `initialized`, if that is under way: many servers refuse requests that
    /// overtake it.
    pub(in crate::downstream::transport) async fn introduced(&self) {
        if self.introducing.load(Ordering::Acquire) && !self.introduced.is_cancelled() {
            let _ = tokio::time::timeout(INTRODUCTION, self.introduced.cancelled()).await;
        }
    }
}

fn is_initialized(message: &Outgoing) -> bool {
    /// Ours is short; a long message is something else.
    const SHORT: usize = 256;
    message.len() < SHORT
        && message
            .pieces()
            .iter()
            .any(|piece| memmem::find(piece, b"\"notifications/initialized\"").is_some())
}
