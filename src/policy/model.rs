//! The policy section as people write it. Types only: what the words mean is compiled in `compile`.
//!
//! `config` reads and documents them; nobody else builds them except tests. Unknown keys are errors; the keys that a
//! later version offers (`who`, `when`, `ask` and so on) are recognised by `config`, which can say so with a position.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a rule, or the default, says about the items it matches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Listed and callable.
    Allow,
    /// Neither listed nor callable: as if it did not exist.
    Deny,
}

impl Effect {
    /// The word in the policy file and in audit records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// The `policy` section. Without the section everything is allowed, and `check` says so.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// What holds for an item that no rule matches. Required: a policy that forgets it is not guessed at.
    pub default: Effect,
    /// The rules. Their order never matters: deny wins over allow, allow over the default.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// One rule: an effect and the items it is about. A rule must name at least one item pattern.
///
/// Patterns are `server/name`, split at the first `/`; a name may contain further ones. Both parts are
/// globs: `*` any number of characters (never across the `/` that splits), `?` one, `[ab]`, `{one,two}`. They match the
/// names as the server says them, case-sensitively, never the public names that hosts see.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Unique; it appears in audit records, in the log and in `check`.
    pub id: String,
    /// What happens to the items that the rule matches.
    pub effect: Effect,
    /// Tools, as `server/name` globs: `files/write_*`, `*/delete_*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Prompts, as `server/name` globs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
    /// Resources, as `server/URI` globs: `files/file:///srv/docs/*`, `*/secret://*`. In the URI part `*` matches
    /// slashes too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// What servers may ask of hosts, as `server/sampling`, `server/elicitation`, `server/roots` or `server/*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reverse: Vec<String>,
    /// Why, for the people who read the log and the audit records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What sort of item a decision is about. Rules select tools, prompts, resources and reverse requests; templates are
/// decided by the resource patterns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A tool, by local name.
    Tool,
    /// A prompt, by local name.
    Prompt,
    /// A resource, by the URI as its server says it.
    Resource,
    /// A resource template, by its `uriTemplate` text.
    ResourceTemplate,
    /// A reverse request; the local name is `sampling`, `elicitation` or `roots`.
    Reverse,
}

impl Kind {
    /// The word used in logs and audit records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::ResourceTemplate => "resource_template",
            Self::Reverse => "reverse",
        }
    }
}
