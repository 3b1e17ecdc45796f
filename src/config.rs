//! The typed configuration: what a file may say, with the default of every key.
//!
//! Everyone above `wire` may read these types; only `load::load` makes them from files. Nothing here reads
//! the process environment (one edge function does, `load::Sources::of_process`), starts a server or decides a
//! call. Field names are the keys of the file; every struct refuses unknown keys.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::model::PolicyFile;

mod check;
mod host_file;
pub mod limits;
pub mod load;
mod locate;
pub mod problem;
mod resolve;
pub mod schema;
pub mod secret;
pub mod server;
mod suggest;
mod tree;
pub mod units;
mod validate;
pub mod watch;

pub use limits::Limits;
pub use load::{Loaded, LoadedFile, Sources, load};
pub use problem::{Location, Problem, Problems};
pub use secret::{Resolvable, SecretText};
pub use server::{Family, Server, Sharing, Shorthand, TransportKind};
pub use units::{BindAddress, ByteSize};
pub use watch::Watcher;

/// The word that was probably meant, if any is near enough; for messages.
#[must_use]
pub fn nearest_word<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    suggest::nearest(word, candidates)
}

/// The whole configuration of one daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where hosts reach us.
    pub listen: Listen,
    /// The operators' listener: health, status. `null` = none. Never on the host listener.
    pub admin: Option<Admin>,
    /// Last known listings and tokens; safe to share between processes. `~` is the home directory.
    pub state_dir: PathBuf,
    /// How long a list waits for a starting server that was never listed before.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub start_wait: Duration,
    /// How long a drain lets calls finish.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub grace: Duration,
    /// How public names are made.
    pub names: Names,
    /// The downstream servers, in file order. Earlier ones win a collision of resource URIs.
    #[serde(with = "server::by_name")]
    #[schemars(with = "std::collections::BTreeMap<String, Server>")]
    pub servers: Vec<Server>,
    /// The rules. Without this section every call is allowed, and `manifold check` says so.
    pub policy: Option<PolicyFile>,
    /// The record of every decision.
    pub audit: Audit,
    /// What the daemon says about itself.
    pub telemetry: Telemetry,
    /// Bounds on everything that a peer can grow.
    pub limits: Limits,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Listen::default(),
            admin: Some(Admin::default()),
            state_dir: PathBuf::from("~/.local/state/manifold"),
            start_wait: Duration::from_secs(5),
            grace: Duration::from_secs(30),
            names: Names::default(),
            servers: Vec::new(),
            policy: None,
            audit: Audit::default(),
            telemetry: Telemetry::default(),
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// The server with this name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// Where audit files go: `audit.dir`, or `audit` inside the state directory.
    #[must_use]
    pub fn audit_dir(&self) -> PathBuf {
        self.audit
            .dir
            .clone()
            .unwrap_or_else(|| self.state_dir.join("audit"))
    }
}

/// Where hosts reach us over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Listen {
    /// Addresses: `127.0.0.1:8420`, `[::1]:8420`, `unix:/run/manifold/mcp.sock`. One or a list; port 0 picks a free one.
    #[serde(with = "units::one_or_many")]
    #[schemars(with = "units::OneOrMany<BindAddress>")]
    pub http: Vec<BindAddress>,
    /// The path of Streamable HTTP, every revision on the same one.
    pub path: String,
    /// Whether the 2024-11-05 pair is served too, at `/sse` and `/messages`.
    pub sse: bool,
    /// Browser origins beyond loopback.
    pub allowed_origins: Vec<String>,
    /// `Host` headers beyond loopback and the bound addresses.
    pub allowed_hosts: Vec<String>,
    /// The longest request body.
    pub max_body: ByteSize,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            http: vec![BindAddress::Tcp("127.0.0.1:8420".to_owned())],
            path: "/mcp".to_owned(),
            sse: false,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            max_body: ByteSize::mebibytes(16),
        }
    }
}

/// The operators' listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Its address.
    pub http: BindAddress,
    /// If set, requests for details must carry it as a bearer token.
    pub token: Option<SecretText>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            http: BindAddress::Tcp("127.0.0.1:8421".to_owned()),
            token: None,
        }
    }
}

/// How public names are made from server and local names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Names {
    /// What stands between prefix and local name; letters, digits, `_` and `-` only.
    pub separator: String,
    /// The longest public name in characters. Hosts put about 16 more in front and model APIs stop at 64.
    #[schemars(range(min = 16, max = 128))]
    pub max_length: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            separator: "__".to_owned(),
            max_length: 48,
        }
    }
}

/// The record of every decision.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// Where the files go; `audit` inside the state directory if not given. Several processes may share it.
    pub dir: Option<PathBuf>,
    /// How surely a record is kept.
    pub durability: Durability,
    /// What is recorded of a call's arguments.
    pub arguments: ArgumentRecord,
    /// When a file is closed and the next begun, and how long closed ones are kept.
    pub rotate: Rotate,
}

/// How surely an audit record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// On disk before the call leaves. Not offered by this version: a file that says so is refused.
    #[schemars(skip)]
    Strict,
    /// Written soon after; a crash of the machine may lose the last moments.
    #[default]
    Buffered,
    /// No audit at all.
    Off,
}

/// What is recorded of a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArgumentRecord {
    /// A salted digest: equal arguments can be recognised, nothing can be read.
    #[default]
    Digest,
}

/// When audit files change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rotate {
    /// A file is closed once it is this long.
    pub size: ByteSize,
    /// A file is closed once it is this old.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub age: Duration,
    /// Closed files are removed once they are this old.
    #[serde(with = "units::duration")]
    #[schemars(with = "units::DurationText")]
    pub keep: Duration,
}

impl Default for Rotate {
    fn default() -> Self {
        Self {
            size: ByteSize::mebibytes(64),
            age: Duration::from_secs(24 * 3600),
            keep: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

/// What the daemon says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// A level (`error`, `warn`, `info`, `debug`, `trace`, `off`) or filter directives such as `info,manifold::host=debug`.
    pub log: String,
    /// How log lines look.
    pub log_format: LogFormat,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            log_format: LogFormat::default(),
        }
    }
}

/// How log lines look. They go to stderr, never to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}
