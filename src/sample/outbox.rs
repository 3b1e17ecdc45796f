//! The way out: one message per line, whole lines only, and nothing for a request after its cancellation.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The output stream, shared by the reading thread and the running calls.
pub(super) struct Outbox(Mutex<Inner>);

struct Inner {
    stream: Box<dyn Write + Send>,
    failed: Option<io::ErrorKind>,
}

impl Outbox {
    pub(super) fn new(stream: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(Inner {
            stream: Box::new(stream),
            failed: None,
        }))
    }

    /// Writes a message. A failure is kept for [`Self::state`]; there is nobody to tell at once.
    pub(super) fn send(&self, message: &Value) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(message);
    }

    /// Writes a message that belongs to a request, unless the request was cancelled.
    pub(super) fn send_for(&self, cancel: &Cancel, message: &Value) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !cancel.is_set() {
            inner.write(message);
        }
    }

    /// Cancels: when this returns nothing more is written for the request, not even by a thread that is just about to.
    pub(super) fn cancel(&self, cancel: &Cancel) {
        let _inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cancel.set();
    }

    /// The first failure of the stream.
    pub(super) fn state(&self) -> io::Result<()> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.failed.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Inner {
    fn write(&mut self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        let written = self
            .stream
            .write_all(line.as_bytes())
            .and_then(|()| self.stream.flush());
        if let Err(error) = written {
            self.failed.get_or_insert(error.kind());
        }
    }
}

/// Whether a request was cancelled, and a sleep that this ends.
#[derive(Default)]
pub(super) struct Cancel {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Cancel {
    fn set(&self) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until `time`; `true` if cancelled before.
    pub(super) fn sleep_until(&self, time: Instant) -> bool {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let rest: Duration = time.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(set, rest, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
