//! The methods of the protocol: names, who may send them, in which revisions.
//!
//! It owns the table that separates a method we know from one we do not. Both faces ask it. It never says what to
//! do with a method; asking by revision rather than by version string is the part of the revision table.

use super::message::Member;

macro_rules! methods {
    ($($(#[doc = $doc:literal])* $constant:ident = $name:literal, $sender:ident $kind:ident, $since:literal $(.. $until:literal)? $(, by $member:ident)?;)+) => {
        $(#[doc = concat!("`", $name, "`")] $(#[doc = $doc])* pub const $constant: &str = $name;)+

        /// All methods of all revisions.
        pub static METHODS: &[Method] = &[$(Method {
            name: $name,
            sender: Sender::$sender,
            kind: MethodKind::$kind,
            since: $since,
            until: methods!(@last $($until)?),
            named_by: methods!(@member $($member)?),
        }),+];
    };
    (@last) => { None };
    (@last $until:literal) => { Some($until) };
    (@member) => { None };
    (@member $member:ident) => { Some(Member::$member) };
}

/// Who may send a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// The host, or we towards a downstream.
    Host,
    /// The MCP server, or we towards a host.
    Server,
    /// Both.
    Either,
}

/// Whether a method is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MethodKind {
    /// Has an id and is answered.
    Request,
    /// Has none and is not.
    Notification,
}

/// The facts of one method.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The name on the wire.
    pub name: &'static str,
    /// Who may send it.
    pub sender: Sender,
    /// Whether it is answered.
    pub kind: MethodKind,
    /// The first revision that has it, as version string; those sort as published.
    pub since: &'static str,
    /// The last revision that has it; `None` if the newest one does.
    pub until: Option<&'static str>,
    /// The parameter that the header `Mcp-Name` repeats in the modern family.
    pub named_by: Option<Member>,
}

// 2025-11-25 is the last legacy revision; what ends there was removed with the handshake.
methods! {
    INITIALIZE = "initialize", Host Request, "2024-11-05".."2025-11-25";
    INITIALIZED = "notifications/initialized", Host Notification, "2024-11-05".."2025-11-25";
    PING = "ping", Either Request, "2024-11-05".."2025-11-25";
    DISCOVER = "server/discover", Host Request, "2026-07-28";
    TOOLS_LIST = "tools/list", Host Request, "2024-11-05";
    TOOLS_CALL = "tools/call", Host Request, "2024-11-05", by Name;
    TOOLS_LIST_CHANGED = "notifications/tools/list_changed", Server Notification, "2024-11-05";
    PROMPTS_LIST = "prompts/list", Host Request, "2024-11-05";
    PROMPTS_GET = "prompts/get", Host Request, "2024-11-05", by Name;
    PROMPTS_LIST_CHANGED = "notifications/prompts/list_changed", Server Notification, "2024-11-05";
    RESOURCES_LIST = "resources/list", Host Request, "2024-11-05";
    RESOURCES_TEMPLATES_LIST = "resources/templates/list", Host Request, "2024-11-05";
    RESOURCES_READ = "resources/read", Host Request, "2024-11-05", by Uri;
    RESOURCES_SUBSCRIBE = "resources/subscribe", Host Request, "2024-11-05".."2025-11-25";
    RESOURCES_UNSUBSCRIBE = "resources/unsubscribe", Host Request, "2024-11-05".."2025-11-25";
    RESOURCES_LIST_CHANGED = "notifications/resources/list_changed", Server Notification, "2024-11-05";
    RESOURCES_UPDATED = "notifications/resources/updated", Server Notification, "2024-11-05";
    SUBSCRIPTIONS_LISTEN = "subscriptions/listen", Host Request, "2026-07-28";
    SUBSCRIPTIONS_ACKNOWLEDGED = "notifications/subscriptions/acknowledged", Server Notification, "2026-07-28";
    COMPLETE = "completion/complete", Host Request, "2024-11-05";
    SET_LEVEL = "logging/setLevel", Host Request, "2024-11-05".."2025-11-25";
    LOG_MESSAGE = "notifications/message", Server Notification, "2024-11-05";
    PROGRESS = "notifications/progress", Either Notification, "2024-11-05";
    CANCELLED = "notifications/cancelled", Either Notification, "2024-11-05";
    #[doc = " In the modern family it is not sent but stands inside an `input_required` result."]
    SAMPLING = "sampling/createMessage", Server Request, "2024-11-05".."2025-11-25";
    #[doc = " In the modern family it is not sent but stands inside an `input_required` result."]
    ROOTS_LIST = "roots/list", Server Request, "2024-11-05".."2025-11-25";
    ROOTS_LIST_CHANGED = "notifications/roots/list_changed", Host Notification, "2024-11-05".."2025-11-25";
    #[doc = " In the modern family it is not sent but stands inside an `input_required` result."]
    ELICIT = "elicitation/create", Server Request, "2025-06-18".."2025-11-25";
    ELICITATION_COMPLETE = "notifications/elicitation/complete", Server Notification, "2025-11-25".."2025-11-25";
    TASKS_GET = "tasks/get", Host Request, "2025-11-25", by TaskId;
    TASKS_RESULT = "tasks/result", Host Request, "2025-11-25".."2025-11-25";
    TASKS_LIST = "tasks/list", Host Request, "2025-11-25".."2025-11-25";
    TASKS_CANCEL = "tasks/cancel", Host Request, "2025-11-25", by TaskId;
    TASKS_UPDATE = "tasks/update", Host Request, "2026-07-28", by TaskId;
    TASKS_STATUS = "notifications/tasks/status", Server Notification, "2025-11-25".."2025-11-25";
    TASKS_CHANGED = "notifications/tasks", Server Notification, "2026-07-28";
}

impl Method {
    /// The facts of a method, `None` if no revision has it. Names are case-sensitive.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        METHODS.iter().find(|method| method.name == name)
    }

    /// Whether the revision with this version string has the method.
    #[must_use]
    pub fn is_in(&self, version: &str) -> bool {
        self.since <= version && self.until.is_none_or(|until| version <= until)
    }

    /// Whether a host may send it.
    #[must_use]
    pub fn from_host(&self) -> bool {
        matches!(self.sender, Sender::Host | Sender::Either)
    }

    /// Whether an MCP server may send it.
    #[must_use]
    pub fn from_server(&self) -> bool {
        matches!(self.sender, Sender::Server | Sender::Either)
    }
}

#[cfg(test)]
mod tests;
