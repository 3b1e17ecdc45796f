//! What a server says while a call runs, on its way to the host whose call it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use super::gateway::Gateway;
use super::port::{CallSink, Responder, ReverseReply};
use crate::session::reverse::withdrawal;
use crate::session::{Caller, CapabilitySet, HostStream, Lane, LogLevel, ReverseAnswer, Sent, Session};
use crate::wire::json::{quote, unquote};
use crate::wire::{HostId, Member, Message, Outgoing, Splice};

/// Reverse requests that one call may make.
const QUESTIONS: usize = 256;

/// The way back of one call.
#[derive(Debug)]
pub struct CallRelay {
    pub(super) gateway: Weak<Gateway>,
    pub(super) server: Arc<str>,
    pub(super) call: u64,
    pub(super) caller: Arc<Caller>,
    pub(super) stream: Arc<dyn HostStream>,
    /// The host's progress token as it wrote it.
    pub(super) token: Option<Bytes>,
    /// What stands before the logger name; `None` leaves it alone.
    pub(super) label: Option<Arc<str>>,
    /// Open reverse requests: the server's id, ours towards the host.
    pub(super) open: Mutex<HashMap<HostId, u64>>,
    pub(super) waiting: Arc<AtomicUsize>,
    /// Reverse requests of this call so far.
    pub(super) asked: AtomicUsize,
    pub(super) me: Weak<Self>,
}

impl CallRelay {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<HostId, u64>> {
        self.open
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl CallSink for CallRelay {
    fn progress(&self, message: Message) {
        // A token that the host did not give never reaches it.
        let (Some(token), Some(span)) = (&self.token, message.span(Member::ProgressToken)) else {
            return;
        };
        let mut splice = Splice::new();
        splice.replace(span, token.clone());
        self.stream
            .send(Lane::Progress(self.call), splice.apply(message.bytes()));
    }

    fn notice(&self, message: Message) {
        if let Some(outgoing) = log_message(&message, &self.caller, self.label.as_deref()) {
            self.stream.send(Lane::Notice, outgoing);
        }
    }

    fn reverse(&self, message: Message, responder: Responder) {
        let Some(gateway) = self.gateway.upgrade() else {
            return;
        };
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        if before >= QUESTIONS {
            // Recorded once: a flood of questions must not become a flood of records.
            if before == QUESTIONS {
                gateway.note_reverse(&self.server, Some(self.call), &self.caller, &message, "too_many");
            }
            let message = format!("one call may ask its host {QUESTIONS} times at most");
            responder.reply(ReverseReply::Error {
                code: -32603,
                message,
            });
            return;
        }
        let Some(session) = self.caller.session.clone() else {
            responder.reply(ReverseReply::Error {
                code: -32602,
                message:
                    "the host speaks a revision that cannot be asked in mid-call; bridging is not offered yet"
                        .into(),
            });
            gateway.note_reverse(
                &self.server,
                Some(self.call),
                &self.caller,
                &message,
                "not_offered",
            );
            return;
        };
        let Some(server_id) = message.id() else { return };
        let (relay, key) = (self.me.clone(), server_id.clone());
        let asked = gateway.ask_host(
            &self.server,
            Some(self.call),
            &self.caller,
            &session,
            self.stream.as_ref(),
            &message,
            responder,
            move || {
                if let Some(relay) = relay.upgrade() {
                    relay.lock().remove(&key);
                    relay.waiting.fetch_sub(1, Ordering::Relaxed);
                }
            },
        );
        if let Some(id) = asked {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            self.lock().insert(server_id, id);
        }
    }

    fn withdrawn(&self, id: &HostId, message: &Message) {
        let open = self.lock().remove(id);
        if let (Some(id), Some(session)) = (open, &self.caller.session)
            && session.reverse.forget(id)
        {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.stream.send(
                Lane::Request,
                withdrawal(id, message.text(Member::Reason).as_deref()),
            );
        }
    }

    fn waiting_for_host(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for CallRelay {
    fn drop(&mut self) {
        // The call is over: what it asked the host need not be answered any more.
        let open: Vec<u64> = self.lock().drain().map(|(_, id)| id).collect();
        let Some(session) = &self.caller.session else {
            return;
        };
        for id in open {
            if session.reverse.forget(id) {
                let target = if self.stream.attached() {
                    &self.stream
                } else {
                    &session.general
                };
                target.send(Lane::Request, withdrawal(id, Some("the call has ended")));
            }
        }
    }
}

/// A log message as this caller may see it; `None` if it is below the wanted level.
pub(super) fn log_message(message: &Message, caller: &Caller, label: Option<&str>) -> Option<Outgoing> {
    if message.method().as_deref() != Some("notifications/message") {
        return Some(Outgoing::from(message.bytes().clone()));
    }
    let level = message
        .text(Member::Level)
        .and_then(|name| LogLevel::parse(&name));
    match (caller.wanted_log_level(), level) {
        (Some(wanted), Some(level)) if level < wanted => return None,
        // A modern request that names no level gets no log messages; a legacy session that set none gets all.
        (None, _) if caller.session.is_none() => return None,
        _ => {}
    }
    let Some(label) = label else {
        return Some(Outgoing::from(message.bytes().clone()));
    };
    let mut splice = Splice::new();
    match (message.span(Member::Logger), message.payload()) {
        (Some(span), _) => {
            let logger = unquote(span.of(message.bytes()));
            splice.replace(span, quote(&format!("{label}/{logger}")));
        }
        (None, Some(params)) if message.payload_is_object() => {
            splice.insert_members(message.bytes(), params, format!("\"logger\":{}", quote(label)));
        }
        _ => {}
    }
    Some(splice.apply(message.bytes()))
}

/// Which capability a reverse request needs, and the word policy knows it by.
pub(super) fn need(message: &Message) -> Option<(CapabilitySet, &'static str)> {
    match message.method().as_deref() {
        Some("roots/list") => Some((CapabilitySet::ROOTS, "roots")),
        Some("sampling/createMessage") => Some((CapabilitySet::SAMPLING, "sampling")),
        Some("elicitation/create") if message.text(Member::Mode).as_deref() == Some("url") => {
            Some((CapabilitySet::ELICITATION_URL, "elicitation"))
        }
        Some("elicitation/create") => Some((CapabilitySet::ELICITATION_FORM, "elicitation")),
        _ => None,
    }
}

impl Gateway {
    /// Forwards a reverse request to a host. Returns our id if the host was asked; otherwise the server was refused.
    /// `done` runs when the host's answer has arrived or the session has ended.
    #[expect(
        clippy::too_many_arguments,
        reason = "one step of the pipeline; each argument is a different party"
    )]
    pub(super) fn ask_host(
        &self,
        server: &Arc<str>,
        call: Option<u64>,
        caller: &Arc<Caller>,
        session: &Arc<Session>,
        stream: &dyn HostStream,
        message: &Message,
        responder: Responder,
        done: impl FnOnce() + Send + 'static,
    ) -> Option<u64> {
        let refuse = |responder: Responder, code: i32, text: String, word: &'static str| {
            self.note_reverse(server, call, caller, message, word);
            responder.reply(ReverseReply::Error { code, message: text });
        };
        let (needed, word) = need(message)?;
        if !self.reverse_allowed(server, word, call, caller, message) {
            responder.reply(ReverseReply::Error {
                code: -32603,
                message: format!("policy does not allow {word} requests of this server"),
            });
            return None;
        }
        if !caller.capabilities.has(needed) {
            let both = CapabilitySet::ELICITATION_FORM.with(CapabilitySet::ELICITATION_URL);
            // An elicitation mode that was not declared is a bad parameter; a method that was not, is no method.
            let code = if word == "elicitation" && !caller.capabilities.and(both).is_none() {
                -32602
            } else {
                -32601
            };
            refuse(
                responder,
                code,
                format!("the host does not support {word}"),
                "unsupported",
            );
            return None;
        }
        let server_token = message.shared(Member::MetaProgressToken);
        let responder = Arc::new(Mutex::new(Some(responder)));
        let take = |slot: &Mutex<Option<Responder>>| {
            slot.lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take()
        };
        let answer_to = responder.clone();
        let progress = server_token.map(|token| self.reverse_progress(server, caller, token));
        let id = session.reverse.ask(
            move |answer| {
                if let Some(responder) = take(&answer_to) {
                    match answer {
                        ReverseAnswer::Answered(message) => responder.reply(ReverseReply::Response(message)),
                        ReverseAnswer::Gone => drop(responder),
                    }
                }
                done();
            },
            progress,
        );
        let Some(id) = id else {
            if let Some(responder) = take(&responder) {
                refuse(responder, -32603, "the host's session has ended".into(), "gone");
            }
            return None;
        };
        let mut splice = Splice::new();
        if let Some(span) = message.id_span() {
            splice.replace(span, id.to_string());
        }
        if let Some(span) = message.span(Member::MetaProgressToken) {
            splice.replace(span, id.to_string());
        }
        self.publish_related_task(server, caller, message, &mut splice);
        if stream.send(Lane::Request, splice.apply(message.bytes())) == Sent::Refused {
            session.reverse.forget(id);
            if let Some(responder) = take(&responder) {
                refuse(
                    responder,
                    -32603,
                    "the host does not read its requests".into(),
                    "stalled",
                );
            }
            return None;
        }
        self.note_reverse(server, call, caller, message, "asked");
        Some(id)
    }
}
