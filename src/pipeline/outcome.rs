//! What happened to a call: one value that feeds the audit log, whatever way the call ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fault::Fault;
use super::gateway::Gateway;
use super::port::{CallFault, DownstreamConnection, FaultKind};
use crate::audit::{self, AuditLog, Callee, ErrorFacts, Event, Outcome, Record};
use crate::policy::{Bound, Effect, Refusal};
use crate::session::Caller;
use crate::wire::{Kind, Member, Message};

/// The records of one call that was allowed. Dropped without an outcome, it records a cancellation: that is what a
/// dropped call future means.
pub(super) struct CallRecord {
    audit: AuditLog,
    number: u64,
    caller: Arc<audit::Caller>,
    callee: Option<Arc<Callee>>,
    server: Arc<str>,
    method: String,
    bound: Bound,
    public: Arc<str>,
    arguments: Option<audit::ArgumentDigest>,
    bytes_in: u64,
    arrived: Instant,
    queued: Duration,
    noted: bool,
    done: bool,
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The caller as audit records name it.
pub(super) fn audit_caller(caller: &Caller) -> Arc<audit::Caller> {
    let given = |text: &Arc<str>| (!text.is_empty()).then(|| text.clone());
    Arc::new(audit::Caller {
        identity: caller.identity.clone(),
        host: given(&caller.host_name),
        host_version: given(&caller.host_version),
        session: caller.session.as_ref().map(|session| session.label.clone()),
        transport: caller.transport.as_str(),
        revision: Some(caller.revision.as_str().into()),
    })
}

/// A server as audit records name it where no connection is concerned.
pub(super) fn callee(server: &Arc<str>) -> Arc<Callee> {
    Arc::new(Callee {
        server: server.clone(),
        transport: None,
        revision: None,
    })
}

impl CallRecord {
    pub(super) fn new(
        gateway: &Gateway,
        number: u64,
        caller: &Caller,
        message: &Message,
        method: &str,
        bound: &Bound,
        public: &Arc<str>,
    ) -> Self {
        let audit = gateway.audit.clone();
        let arguments = message.raw(Member::Arguments).and_then(|raw| audit.digest(raw));
        Self {
            number,
            caller: audit_caller(caller),
            callee: None,
            server: bound.server().clone(),
            method: method.to_owned(),
            bound: bound.clone(),
            public: public.clone(),
            arguments,
            bytes_in: length(message.bytes().len()),
            arrived: Instant::now(),
            queued: Duration::ZERO,
            noted: false,
            done: false,
            audit,
        }
    }

    fn record(&self, event: Event) -> Record {
        Record {
            call: Some(self.number),
            caller: Some(self.caller.clone()),
            callee: self.callee.clone(),
            method: Some(self.method.clone().into()),
            kind: Some(self.bound.kind()),
            local: Some(self.bound.local().clone()),
            public: Some(self.public.clone()),
            ..Record::new(event)
        }
    }

    /// Before the bytes leave. `connection` is `None` if the server could not be opened at all.
    pub(super) fn intent(&mut self, connection: Option<&dyn DownstreamConnection>, queued: Duration) {
        self.queued = queued;
        self.callee = Some(Arc::new(Callee {
            server: self.server.clone(),
            transport: connection.map(DownstreamConnection::transport),
            revision: connection.map(|connection| connection.revision().as_str().into()),
        }));
        self.noted = true;
        self.audit.record(Record {
            decision: Some(self.bound.effect()),
            layer: Some(self.bound.layer()),
            rules: Some(self.bound.rules().clone()),
            arguments: self.arguments,
            bytes_in: Some(self.bytes_in),
            queued: Some(queued),
            ..self.record(Event::Intent)
        });
    }

    fn finish(&mut self, outcome: Outcome, error: Option<ErrorFacts>, bytes_out: usize) {
        self.done = true;
        self.audit.record(Record {
            outcome: Some(outcome),
            error,
            bytes_out: Some(length(bytes_out)),
            duration: Some(self.arrived.elapsed()),
            queued: Some(self.queued),
            ..self.record(Event::Outcome)
        });
    }

    pub(super) fn answered(&mut self, answer: &Message, bytes_out: usize) {
        let (outcome, error) = match answer.kind() {
            Kind::Error => {
                let facts = ErrorFacts {
                    side: "downstream",
                    code: None,
                    rpc: answer.error_code(),
                };
                (Outcome::Error, Some(facts))
            }
            _ if answer.raw(Member::IsError) == Some(b"true") => (Outcome::ToolError, None),
            _ => (Outcome::Ok, None),
        };
        self.finish(outcome, error, bytes_out);
    }

    pub(super) fn failed(&mut self, fault: &CallFault) {
        let outcome = match fault.kind {
            FaultKind::TimedOut => Outcome::TimedOut,
            FaultKind::Cancelled => Outcome::Cancelled,
            FaultKind::Lost if fault.sent => Outcome::Lost,
            _ => Outcome::Error,
        };
        let facts = ErrorFacts {
            side: "downstream",
            code: Some(fault.kind.as_str().into()),
            rpc: Some(-32603),
        };
        self.finish(outcome, Some(facts), 0);
    }

    pub(super) fn refused(&mut self, fault: &Fault) {
        let facts = ErrorFacts {
            side: fault.side.as_str(),
            code: Some(fault.code.into()),
            rpc: Some(i64::from(fault.rpc)),
        };
        self.finish(Outcome::Error, Some(facts), 0);
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if !self.done {
            if !self.noted {
                self.intent(None, self.arrived.elapsed());
            }
            self.finish(Outcome::Cancelled, None, 0);
        }
    }
}

/// Policy said no.
pub(super) fn denied(
    gateway: &Gateway,
    caller: &Caller,
    message: &Message,
    method: &str,
    public: &Arc<str>,
    refusal: &Refusal,
) {
    gateway.audit.record(Record {
        caller: Some(audit_caller(caller)),
        callee: Some(callee(refusal.server())),
        method: Some(method.to_owned().into()),
        kind: Some(refusal.kind()),
        local: Some(refusal.local().clone()),
        public: Some(public.clone()),
        decision: Some(Effect::Deny),
        layer: Some(refusal.layer()),
        rules: Some(refusal.rules().clone()),
        arguments: message
            .raw(Member::Arguments)
            .and_then(|raw| gateway.audit.digest(raw)),
        bytes_in: Some(length(message.bytes().len())),
        outcome: Some(Outcome::Denied),
        ..Record::new(Event::Denied)
    });
}

/// The request did not get as far as policy.
pub(super) fn rejected(gateway: &Gateway, caller: &Caller, message: &Message, method: &str, fault: &Fault) {
    let asked = message.text(Member::Name).or_else(|| message.text(Member::Uri));
    gateway.audit.record(Record {
        caller: Some(audit_caller(caller)),
        method: Some(method.to_owned().into()),
        public: asked.map(|name| name.as_ref().into()),
        outcome: Some(Outcome::Error),
        error: Some(ErrorFacts {
            side: fault.side.as_str(),
            code: Some(fault.code.into()),
            rpc: Some(i64::from(fault.rpc)),
        }),
        bytes_in: Some(length(message.bytes().len())),
        ..Record::new(Event::Rejected)
    });
}
