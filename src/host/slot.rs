//! The place of one answer: alone on its stream, or within a batch.
//!
//! Whoever handles a request holds its slot. The slot is filled once; dropped unfilled, because the task ended by a
//! panic, it answers with an internal error, so no host waits for ever.

use std::sync::{Arc, Mutex, PoisonError};

use crate::session::{HostStream, Lane};
use crate::wire::{HostId, Outgoing};

use super::fault::Fault;
use super::outbox::Outbox;

type Then = Box<dyn FnOnce() + Send>;

/// Answers of one batch, gathered into one array.
pub(crate) struct Batch {
    outbox: Arc<Outbox>,
    state: Mutex<Gathered>,
}

struct Gathered {
    left: usize,
    answers: Vec<Outgoing>,
    then: Option<Then>,
}

impl Batch {
    /// A batch that waits for `expected` answers and then calls `then`.
    pub(crate) fn new(outbox: Arc<Outbox>, expected: usize, then: Option<Then>) -> Arc<Self> {
        let state = Mutex::new(Gathered {
            left: expected,
            answers: Vec::with_capacity(expected),
            then,
        });
        Arc::new(Self { outbox, state })
    }

    /// Adds one of the expected answers; `None` for one that is not given.
    pub(crate) fn add(&self, answer: Option<Outgoing>) {
        let (answers, then) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.answers.extend(answer);
            state.left = state.left.saturating_sub(1);
            if state.left > 0 {
                return;
            }
            (std::mem::take(&mut state.answers), state.then.take())
        };
        if !answers.is_empty() {
            let mut array = Outgoing::new();
            for (n, answer) in answers.into_iter().enumerate() {
                array.push(if n == 0 { "[" } else { "," });
                array.append(answer);
            }
            array.push("]");
            self.outbox.send(Lane::Answer, array);
        }
        if let Some(then) = then {
            then();
        }
    }
}

enum Target {
    Outbox(Arc<Outbox>, Option<Then>),
    Batch(Arc<Batch>),
}

/// The place of one answer.
pub(crate) struct Slot {
    target: Target,
    /// The request's id as long as it is unanswered.
    open: Option<HostId>,
}

impl Slot {
    /// A slot alone; `then` is called after the answer.
    pub(crate) fn alone(outbox: Arc<Outbox>, id: HostId, then: Option<Then>) -> Self {
        Self {
            target: Target::Outbox(outbox, then),
            open: Some(id),
        }
    }

    /// A slot of a batch.
    pub(crate) fn of(batch: Arc<Batch>, id: HostId) -> Self {
        Self {
            target: Target::Batch(batch),
            open: Some(id),
        }
    }

    /// Fills the slot; `None` if the host cancelled and gets nothing.
    pub(crate) fn fill(mut self, answer: Option<Outgoing>) {
        self.put(answer);
    }

    /// Fills the slot with an error of ours.
    pub(crate) fn refuse(mut self, fault: &Fault) {
        let answer = fault.to_message(self.open.as_ref());
        self.put(Some(answer));
    }

    fn put(&mut self, answer: Option<Outgoing>) {
        self.open = None;
        match &mut self.target {
            Target::Batch(batch) => batch.add(answer),
            Target::Outbox(outbox, then) => {
                if let Some(answer) = answer {
                    outbox.send(Lane::Answer, answer);
                }
                if let Some(then) = then.take() {
                    then();
                }
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(id) = self.open.take() {
            let fault = Fault::new(
                500,
                super::fault::INTERNAL,
                "internal",
                "the request failed inside manifold",
            );
            self.put(Some(fault.to_message(Some(&id))));
        }
    }
}
