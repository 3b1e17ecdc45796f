//! The one place that starts asynchronous tasks.
//!
//! Every task has a name, a span, a place in the count of live tasks (so that leak tests can see the ones left
//! behind) and one panic policy: the panic ends that task only, is logged with the task's name and counted. Everyone
//! above `wire` may call it. It never waits for a task and keeps no list of them: owners hold the handle or a tracker.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Starts `future` as a task of the current runtime.
///
/// `name` says what the task does ("supervisor", "host connection"); it is in the task's span and in the log line of a
/// panic. A panic inside ends only this task: it is logged, counted in [`panics`], and the handle yields a join error.
/// Dropping the handle detaches the task, it does not stop it.
///
/// # Panics
/// If called outside a Tokio runtime, like `tokio::spawn`.
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // Made here and not inside the task, so that a task dropped before its first poll is counted out as well.
    let counted = Counted::enter();
    let span = tracing::debug_span!("task", task = name);
    let task = async move {
        let _counted = counted;
        match AssertUnwindSafe(future).catch_unwind().await {
            Ok(output) => output,
            Err(payload) => {
                PANICS.fetch_add(1, Ordering::Relaxed);
                // The panic hook has printed message and place; the payload may quote a peer's bytes.
                tracing::error!(task = name, "a task panicked; only this task ended");
                // Back into the unwinding, so that the owner's handle tells it from a normal end.
                resume_unwind(payload)
            }
        }
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place that all other code must go through"
    )]
    tokio::spawn(task.instrument(span))
}

/// Like [`spawn`], and `tracker` waits for the task when it is closed.
///
/// # Panics
/// If called outside a Tokio runtime.
pub fn spawn_tracked<F>(tracker: &TaskTracker, name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn(name, tracker.track_future(future))
}

/// Tasks started here that have neither ended nor been dropped. For the whole process: all runtimes, all tests in it.
#[must_use]
pub fn live() -> usize {
    LIVE.load(Ordering::Acquire)
}

/// Tasks that ended by a panic since the process started.
#[must_use]
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

struct Counted;

impl Counted {
    fn enter() -> Self {
        LIVE.fetch_add(1, Ordering::AcqRel);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
