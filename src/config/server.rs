//! What the configuration says about one downstream server.
//!
//! Plain data; the supervisor and the transports read it. A server whose parts changed is not equal to its earlier
//! self, which is how a reload knows what to restart.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret::{Resolvable, SecretText};
use super::units;

/// One downstream server. Exactly one of `command` and `url` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// The server name: the key in the file.
    #[serde(skip)]
    pub name: String,
    /// The program to start, found on `PATH`; `${self}` is the running manifold binary.
    pub command: Option<Resolvable>,
    /// Its arguments.
    pub args: Vec<Resolvable>,
    /// Its environment beyond `PATH`, `HOME`, `LANG` and `TMPDIR`; nothing else of ours is passed on.
    pub env: BTreeMap<String, SecretText>,
    /// Its working directory; ours if not given.
    pub cwd: Option<Resolvable>,
    /// The address of a server that is reached over HTTP (`http` or `https`).
    pub url: Option<Resolvable>,
    /// Forces the transport of `url`; found by probing if not given.
    pub transport: Option<TransportKind>,
    /// Headers sent with every request to `url`. Headers that belong to the protocol are refused.
    pub headers: BTreeMap<String, SecretText>,
    /// What stands in front of public names. Not given: the key made safe. Empty: names exactly as they are.
    pub prefix: Option<String>,
    /// Who shares one connection.
    pub sharing: Sharing,
    /// Pins the family of protocol revisions; found by the handshake if not given.
    pub family: Option<Family>,
    /// How long a start may take, handshake included.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub start_timeout: Duration,
    /// How long a call may be silent; progress resets it.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub idle_timeout: Duration,
    /// How long a call may take in all; nothing resets it.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub max_timeout: Duration,
    /// Calls in flight at once.
    #[schemars(range(min = 1, max = 65536))]
    pub concurrency: usize,
    /// Calls that may wait behind those in flight; one more is refused with a retryable error.
    #[schemars(range(max = 1_048_576))]
    pub queue: usize,
    /// Which tools pass, by glob over local names.
    pub tools: Shorthand,
    /// Which prompts pass, by glob over local names.
    pub prompts: Shorthand,
    /// Which resources pass, by glob over URIs.
    pub resources: Shorthand,
    /// Local tool name -> the local name that public names are made from.
    pub rename: BTreeMap<String, String>,
    /// Local tool name (after `rename`) -> the description that hosts see.
    pub describe: BTreeMap<String, String>,
    /// Root URIs that a legacy server is told when no host call is in flight.
    pub roots: Vec<String>,
    /// Whether its annotations may relax a decision.
    pub trusted: bool,
    /// `false` = as if it were not in the file.
    pub enabled: bool,
    /// Whether the daemon is ready only once this server has started.
    pub required: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            name: String::new(),
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            url: None,
            transport: None,
            headers: BTreeMap::new(),
            prefix: None,
            sharing: Sharing::default(),
            family: None,
            start_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            max_timeout: Duration::from_secs(15 * 60),
            concurrency: 32,
            queue: 256,
            tools: Shorthand::default(),
            prompts: Shorthand::default(),
            resources: Shorthand::default(),
            rename: BTreeMap::new(),
            describe: BTreeMap::new(),
            roots: Vec::new(),
            trusted: false,
            enabled: true,
            required: false,
        }
    }
}

impl Server {
    /// The prefix of its public names: `prefix`, or else the server name, made safe and distinct the way the catalog
    /// does it. Empty only if the file says so.
    #[must_use]
    pub fn effective_prefix(&self) -> String {
        // The separator matters only for prefixes that contain it; those of two servers differ with any.
        let rules = crate::catalog::NameRules::default();
        rules.prefix(&self.name, self.prefix.as_deref()).to_string()
    }
}

/// Forces how a `url` is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransportKind {
    /// Streamable HTTP, either family.
    StreamableHttp,
    /// The 2024-11-05 pair of an event stream and a POST address.
    Sse,
}

/// Who shares one connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// Shared for modern servers; a connection per host session or identity for legacy ones.
    #[default]
    Auto,
    /// One connection for all: the operator's word that the server keeps no state between callers.
    Shared,
    /// One connection per identity.
    Identity,
    /// One connection per host session.
    Session,
}

/// A family of protocol revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Revisions up to 2025-11-25.
    Legacy,
    /// Revisions from 2026-07-28 on.
    Modern,
}

/// Names that pass and names that do not; compiled into policy rules. `deny` wins.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shorthand {
    /// If given, only names that match one of these globs pass; an empty list lets nothing pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Names that match one of these globs never pass.
    pub deny: Vec<String>,
}

impl Shorthand {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }
}

/// Servers are a map in the file and an ordered list in memory.
pub(super) mod by_name {
    use super::Server;
    use serde::de::{MapAccess, Visitor};
    use serde::{Deserializer, Serializer};
    use std::fmt;

    pub(crate) fn serialize<S: Serializer>(servers: &[Server], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(servers.iter().map(|server| (&server.name, server)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Server>, D::Error> {
        struct Servers;
        impl<'de> Visitor<'de> for Servers {
            type Value = Vec<Server>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of servers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut servers = Vec::new();
                while let Some((name, server)) = map.next_entry::<String, Server>()? {
                    servers.push(Server { name, ..server });
                }
                Ok(servers)
            }
        }
        deserializer.deserialize_map(Servers)
    }
}
