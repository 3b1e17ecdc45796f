//! The revisions of the protocol, and a plain table of what each one has.
//!
//! It owns the version strings, their order, the negotiation of a legacy handshake and the facts that a face
//! needs to know before it writes something a peer may not understand. Everyone may read it. It never touches a
//! message: the rewrites between revisions live with their bridge.

pub mod bridge;

use std::fmt;
use std::str::FromStr;

use crate::wire::method::Method;

/// A revision of the protocol that manifold speaks. The order is that of publication.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Revision {
    /// 2024-11-05: stdio and HTTP+SSE.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP, batches, audio.
    V2025_03_26,
    /// 2025-06-18: structured content, form elicitation, no batches.
    V2025_06_18,
    /// 2025-11-25: URL elicitation, icons, core tasks, SSE polling.
    V2025_11_25,
    /// 2026-07-28: no handshake, every request self-contained.
    V2026_07_28,
}

/// How a conversation starts: the one difference that no rewrite of single fields can hide.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    /// 2025-11-25 and earlier: an `initialize` handshake, then state on both sides.
    Legacy,
    /// 2026-07-28 and later: no handshake, each request carries what the other side must know.
    Modern,
}

impl Family {
    /// The word for logs and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }

    /// Whether any revision of the family has the method.
    #[must_use]
    pub fn has(self, method: &Method) -> bool {
        Revision::ALL
            .into_iter()
            .any(|revision| revision.family() == self && revision.has(method))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A version string that names no revision we speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a protocol version that manifold speaks")]
pub struct UnknownRevision;

impl Revision {
    /// All revisions, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// The revision with exactly this version string.
    #[must_use]
    pub fn parse(version: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == version)
    }

    /// The version string.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether the conversation starts with a handshake.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::V2026_07_28 => Family::Modern,
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => Family::Legacy,
        }
    }

    /// Shorthand for the legacy family.
    #[must_use]
    pub const fn is_legacy(self) -> bool {
        matches!(self.family(), Family::Legacy)
    }

    /// Shorthand for the modern family.
    #[must_use]
    pub const fn is_modern(self) -> bool {
        matches!(self.family(), Family::Modern)
    }

    /// The legacy revision offered when the requested one cannot be had.
    #[must_use]
    pub const fn newest_legacy() -> Self {
        Self::V2025_11_25
    }

    /// The modern revision preferred towards downstreams.
    #[must_use]
    pub const fn newest_modern() -> Self {
        Self::V2026_07_28
    }

    /// What a legacy request over HTTP speaks if neither header nor session says so.
    #[must_use]
    pub const fn assumed_without_header() -> Self {
        Self::V2025_03_26
    }

    /// The answer to an `initialize` that asks for this version: the same one if it is a legacy revision we speak,
    /// else our newest legacy one. A handshake never ends in a modern revision.
    #[must_use]
    pub fn negotiate_legacy(requested: &str) -> Self {
        Self::parse(requested)
            .filter(|revision| revision.is_legacy())
            .unwrap_or(Self::newest_legacy())
    }

    /// The modern revisions, oldest first: what `server/discover` reports.
    #[must_use]
    pub const fn supported_modern() -> &'static [Self] {
        &[Self::V2026_07_28]
    }

    /// The legacy revisions, oldest first.
    #[must_use]
    pub const fn supported_legacy() -> &'static [Self] {
        &[
            Self::V2024_11_05,
            Self::V2025_03_26,
            Self::V2025_06_18,
            Self::V2025_11_25,
        ]
    }

    /// The newest modern revision that both sides speak, from the versions that a peer lists; `None` if there is
    /// none, and then the peer is treated as legacy. The order and the legacy entries of the list do not matter.
    pub fn newest_common_modern<'a>(offered: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        offered
            .into_iter()
            .filter_map(Self::parse)
            .filter(|revision| revision.is_modern())
            .max()
    }

    /// Whether this revision has the method.
    #[must_use]
    pub fn has(self, method: &Method) -> bool {
        method.is_in(self.as_str())
    }

    /// What this revision has.
    #[must_use]
    pub const fn features(self) -> Features {
        Features::of(self)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Revision {
    type Err = UnknownRevision;

    fn from_str(version: &str) -> Result<Self, Self::Err> {
        Self::parse(version).ok_or(UnknownRevision)
    }
}

/// Whether a host of this family may send the method: if not, it is answered as an unknown one.
#[must_use]
pub fn known_to_host_side(method: &str, family: Family) -> bool {
    Method::find(method).is_some_and(|method| method.from_host() && family.has(method))
}

/// Whether an MCP server of this family may send the method.
#[must_use]
pub fn known_to_downstream_side(method: &str, family: Family) -> bool {
    Method::find(method).is_some_and(|method| method.from_server() && family.has(method))
}

/// Whether a version string that we do not speak looks modern: sorts after the last legacy one. Version strings
/// sort lexicographically, so a later revision than ours is recognised as one.
#[must_use]
pub fn looks_modern(version: &str) -> bool {
    match Revision::parse(version) {
        Some(revision) => revision.is_modern(),
        None => version > Revision::newest_legacy().as_str(),
    }
}

/// What a revision has. A `true` means that a peer of that revision knows the thing and that it may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "a table of independent facts")]
pub struct Features {
    /// `initialize`, sessions and everything that hangs on them.
    pub handshake: bool,
    /// A JSON array of messages is a message; receivers must accept it.
    pub batches: bool,
    /// Streamable HTTP; without it, remote means the HTTP+SSE pair.
    pub streamable_http: bool,
    /// `GET` streams, resumption with event ids, `DELETE`.
    pub http_sessions: bool,
    /// The `completions` capability must be declared (before, completion was simply there).
    pub completions_capability: bool,
    /// `message` in progress notifications.
    pub progress_message: bool,
    /// Tool annotations (`readOnlyHint` and the like).
    pub tool_annotations: bool,
    /// Audio content blocks.
    pub audio: bool,
    /// `MCP-Protocol-Version` on requests after the handshake, or on all of them in the modern family.
    pub protocol_version_header: bool,
    /// `structuredContent` and `outputSchema`.
    pub structured_content: bool,
    /// `structuredContent` may be any JSON value and `outputSchema` any schema, not objects only.
    pub structured_content_any: bool,
    /// `resource_link` content blocks.
    pub resource_link: bool,
    /// Form elicitation.
    pub elicitation_form: bool,
    /// `mode` in elicitation requests: before it there was only the form and no word for it.
    pub elicitation_mode: bool,
    /// URL elicitation.
    pub elicitation_url: bool,
    /// `elicitationId`, `notifications/elicitation/complete` and error -32042.
    pub elicitation_complete: bool,
    /// `title` beside `name`.
    pub titles: bool,
    /// `context` in completion requests.
    pub completion_context: bool,
    /// `icons`.
    pub icons: bool,
    /// `tools` and `toolChoice` in sampling requests.
    pub sampling_tools: bool,
    /// An event with an id and empty data may open a stream; older parsers choke on it.
    pub priming_event: bool,
    /// The server may close a `POST` stream and let the client come back for the rest.
    pub stream_polling: bool,
    /// The experimental core tasks (`task` parameter, `tasks/result`, `tasks/list`).
    pub tasks_core: bool,
    /// Tasks as an extension.
    pub tasks_extension: bool,
    /// `resultType` in every result, `input_required` results with a retry instead of reverse requests.
    pub result_type: bool,
    /// Requests from the server to the client.
    pub reverse_requests: bool,
    /// `Mcp-Method`, `Mcp-Name`, `Mcp-Param-*`.
    pub routing_headers: bool,
    /// `ttlMs` and `cacheScope` on lists, `server/discover` and `resources/read`.
    pub caching_hints: bool,
    /// `subscriptions/listen`; without it, `resources/subscribe` and unasked list-changed notifications.
    pub subscriptions_listen: bool,
    /// `logging/setLevel`; without it, a log level on each request.
    pub logging_set_level: bool,
    /// `ping`.
    pub ping: bool,
    /// Code of "no such resource": -32002 or -32602.
    pub resource_not_found_code: i32,
}

impl Features {
    /// The row of one revision.
    #[must_use]
    pub const fn of(revision: Revision) -> Self {
        let since_2025_03 = !matches!(revision, Revision::V2024_11_05);
        let since_2025_06 = !matches!(revision, Revision::V2024_11_05 | Revision::V2025_03_26);
        let since_2025_11 = matches!(revision, Revision::V2025_11_25 | Revision::V2026_07_28);
        let only_2025_11 = matches!(revision, Revision::V2025_11_25);
        let modern = revision.is_modern();
        Self {
            handshake: !modern,
            batches: matches!(revision, Revision::V2025_03_26),
            streamable_http: since_2025_03,
            http_sessions: since_2025_03 && !modern,
            completions_capability: since_2025_03,
            progress_message: since_2025_03,
            tool_annotations: since_2025_03,
            audio: since_2025_03,
            protocol_version_header: since_2025_06,
            structured_content: since_2025_06,
            structured_content_any: modern,
            resource_link: since_2025_06,
            elicitation_form: since_2025_06,
            elicitation_mode: since_2025_11,
            elicitation_url: since_2025_11,
            elicitation_complete: only_2025_11,
            titles: since_2025_06,
            completion_context: since_2025_06,
            icons: since_2025_11,
            sampling_tools: since_2025_11,
            priming_event: only_2025_11,
            stream_polling: only_2025_11,
            tasks_core: only_2025_11,
            tasks_extension: modern,
            result_type: modern,
            reverse_requests: !modern,
            routing_headers: modern,
            caching_hints: modern,
            subscriptions_listen: modern,
            logging_set_level: !modern,
            ping: !modern,
            resource_not_found_code: if modern { -32602 } else { -32002 },
        }
    }
}

#[cfg(test)]
mod tests;
