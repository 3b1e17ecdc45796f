//! Batches of messages, which only sessions of 2025-03-26 may send. Pure.

use bytes::Bytes;

use crate::wire::{Kind, Message, Outgoing};

use super::HostSettings;
use super::fault::{self, Fault};

/// A batch taken apart.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Messages in order.
    pub(crate) messages: Vec<Message>,
    /// Answers to elements that are no messages.
    pub(crate) refusals: Vec<Outgoing>,
    /// How many answers the batch gets: its requests and the refusals.
    pub(crate) answers: usize,
}

/// Takes a batch apart.
///
/// # Errors
/// If none `may` be sent here, it is empty, too long or not JSON.
pub(crate) fn parts(bytes: &Bytes, settings: &HostSettings, may: bool) -> Result<Parts, Fault> {
    let invalid = |what, message: &'static str| Fault::new(400, fault::INVALID_REQUEST, what, message);
    let elements = Message::split_batch(bytes, settings.json)
        .map_err(|fault| Fault::new(400, fault::PARSE, "unparsable", fault.to_string()))?;
    if !may {
        return Err(invalid("batch", "a batch is not allowed here: send one message"));
    }
    if elements.is_empty() {
        return Err(invalid("batch", "the batch is empty"));
    }
    if elements.len() > settings.batch {
        return Err(invalid("batch", "the batch has too many messages"));
    }
    let mut out = Parts::default();
    for element in elements {
        match Message::parse(element, settings.json) {
            Ok(message) => {
                out.answers += usize::from(message.kind() == Kind::Request);
                out.messages.push(message);
            }
            Err(error) => {
                let fault = Fault::new(400, error.fault.code(), "unparsable", error.fault.to_string());
                out.refusals.push(fault.to_message(error.id.as_ref()));
                out.answers += 1;
            }
        }
    }
    Ok(out)
}
