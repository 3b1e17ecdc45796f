//! Tasks, passed through within one family. Their ids are sealed tokens that name server, tool and owner, so no
//! table is needed and nobody can use or guess another's.

use std::sync::Arc;

use futures_util::future::join_all;

use super::call::Target;
use super::fault::{Fault, result};
use super::gateway::{Gateway, reply_fault};
use super::service::{HostRequest, Reply};
use crate::policy::Kind as PolicyKind;
use crate::revision::Family;
use crate::session::Caller;
use crate::wire::json::{Span, ValueKind, items, kind_of, member, quote, unquote};
use crate::wire::{Kind, Member, Message, Splice};

const PURPOSE: &str = "task id";

/// A task that a public id names.
pub(super) struct OpenedTask {
    pub(super) server: Arc<str>,
    pub(super) tool: String,
    pub(super) local: String,
}

impl Gateway {
    fn public_task(&self, server: &str, caller: &Caller, tool: &str, local: &str) -> String {
        // Deterministic: the same task has the same id each time it is mentioned.
        let plain = format!("{server}\n{}\n{tool}\n{local}", caller.identity.key());
        self.sealer.seal_stable(PURPOSE, plain.as_bytes())
    }

    /// The task that this caller means; `None` if it is no task of theirs.
    pub(super) fn open_task(&self, caller: &Caller, public: &str) -> Option<OpenedTask> {
        let plain = self.sealer.open(PURPOSE, public).ok()?;
        let text = String::from_utf8(plain).ok()?;
        let mut parts = text.splitn(4, '\n');
        let (server, owner, tool, local) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        (owner == &**caller.identity.key()).then(|| OpenedTask {
            server: server.into(),
            tool: tool.to_owned(),
            local: local.to_owned(),
        })
    }

    /// `tasks/get`, `tasks/result`, `tasks/cancel`, `tasks/update`.
    pub(super) async fn task(self: &Arc<Self>, request: HostRequest, method: &str) -> Reply {
        let message = &request.message;
        let (Some(public), Some(span)) = (message.text(Member::TaskId), message.span(Member::TaskId)) else {
            return self.refuse(
                &request,
                method,
                &Fault::params("\"params.taskId\" must be a string"),
            );
        };
        let public = public.into_owned();
        let unknown = Fault::host(-32602, "unknown_task", format!("Unknown task: {public}"));
        let Some(task) = self.open_task(&request.caller, &public) else {
            return self.unknown_task(request, method, unknown).await;
        };
        let bound = self
            .settings
            .load()
            .policy
            .bind(PolicyKind::Tool, &task.server, &task.tool);
        let mut splice = Splice::new();
        splice.replace(span, quote(&task.local));
        let target = Target {
            server: task.server,
            bound,
            public: public.as_str().into(),
            splice,
            name: Some(task.local),
            params: Vec::new(),
            unknown,
            free_output: false,
        };
        self.forward(request, method, target).await
    }

    /// An id that is none of ours. A modern host that did not declare the extension must be told so first, and only
    /// a server that has tasks can say that properly; without one the method does not exist.
    async fn unknown_task(self: &Arc<Self>, request: HostRequest, method: &str, unknown: Fault) -> Reply {
        let family = request.caller.revision.family();
        let offered = match family {
            Family::Modern => self
                .catalog(None)
                .offered(family)
                .extensions
                .iter()
                .any(|(name, _)| &**name == crate::catalog::offers::TASKS_EXTENSION),
            Family::Legacy => self
                .catalog(Self::key(&request.caller))
                .offered(family)
                .tasks
                .is_some(),
        };
        if !offered {
            return self.refuse(&request, method, &Fault::method(method));
        }
        if family == Family::Modern && !declares_tasks(&request.message) {
            let mut fault = Fault {
                status: 400,
                ..Fault::host(
                    -32021,
                    "missing_capability",
                    "the request does not declare the tasks extension",
                )
            };
            fault.extra =
                "\"requiredCapabilities\":{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}".to_owned();
            return self.refuse(&request, method, &fault);
        }
        self.refuse(&request, method, &unknown)
    }

    /// `tasks/list` of a legacy host: what its own connections know, one page per server.
    pub(super) async fn list_tasks(self: &Arc<Self>, request: &HostRequest) -> Reply {
        let caller = &request.caller;
        let key = Self::key(caller);
        let asks = self.servers().into_iter().filter_map(|server| {
            let listing = server.listing(key)?;
            let lists = listing.offers.tasks.is_some_and(|tasks| tasks.list);
            let connection = server
                .opened(caller)
                .filter(|connection| lists && connection.family() == Family::Legacy)?;
            let name = server.name().clone();
            Some(async move { (name, connection.ask("tasks/list", "{}".into()).await) })
        });
        let mut all: Vec<String> = Vec::new();
        for (server, answer) in join_all(asks).await {
            let Ok(answer) = answer else { continue };
            let Some(list) = answer
                .span(Member::Tasks)
                .filter(|_| answer.kind() == Kind::Result)
            else {
                continue;
            };
            for item in items(answer.bytes(), list) {
                let mut splice = Splice::new();
                self.publish_task_in(&server, caller, "", &answer, item, &mut splice);
                let text = splice.apply_within(answer.bytes(), item).into_bytes();
                all.push(String::from_utf8_lossy(&text).into_owned());
            }
        }
        if self
            .catalog(key)
            .offered(Family::Legacy)
            .tasks
            .is_none_or(|tasks| !tasks.list)
        {
            return reply_fault(&request.message, &Fault::method("tasks/list"));
        }
        Reply::ok(result(
            &request.message,
            format!("{{\"tasks\":[{}]}}", all.join(",")),
        ))
    }

    /// Makes the task id in the object at `object` public.
    fn publish_task_in(
        &self,
        server: &str,
        caller: &Caller,
        tool: &str,
        message: &Message,
        object: Span,
        splice: &mut Splice,
    ) {
        let bytes = message.bytes();
        if let Some(span) =
            member(bytes, object, "taskId").filter(|span| kind_of(span.of(bytes)) == Some(ValueKind::String))
        {
            let local = unquote(span.of(bytes));
            splice.replace(span, quote(&self.public_task(server, caller, tool, &local)));
        }
    }

    /// Makes every task id in a result or notification public: `taskId`, `task.taskId` and the related-task meta.
    pub(super) fn publish_task_ids(
        &self,
        server: &str,
        caller: &Caller,
        tool: &str,
        message: &Message,
        splice: &mut Splice,
    ) {
        if let Some(span) = message.span(Member::TaskId) {
            let local = unquote(span.of(message.bytes()));
            splice.replace(span, quote(&self.public_task(server, caller, tool, &local)));
        }
        if let Some(task) = message.span(Member::Task) {
            self.publish_task_in(server, caller, tool, message, task, splice);
        }
        if let Some(related) = message.span(Member::MetaRelatedTask) {
            self.publish_task_in(server, caller, tool, message, related, splice);
        }
    }

    /// The same for a reverse request that a task caused.
    pub(super) fn publish_related_task(
        &self,
        server: &str,
        caller: &Caller,
        message: &Message,
        splice: &mut Splice,
    ) {
        if let Some(related) = message.span(Member::MetaRelatedTask) {
            self.publish_task_in(server, caller, "", message, related, splice);
        }
    }
}

/// Whether a modern request declares the tasks extension.
fn declares_tasks(message: &Message) -> bool {
    let bytes = message.bytes();
    message
        .span(Member::MetaClientCapabilities)
        .and_then(|capabilities| member(bytes, capabilities, "extensions"))
        .is_some_and(|extensions| {
            member(bytes, extensions, crate::catalog::offers::TASKS_EXTENSION).is_some()
        })
}
