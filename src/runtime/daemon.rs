//! Builds and owns all parts; the only wiring place. Start order and shutdown order are read here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::tasks;
use crate::audit::{AuditLog, AuditOptions, Event, Record};
use crate::catalog::NameRules;
use crate::clock::SystemClock;
use crate::config::load::Loaded;
use crate::config::{Config, Durability, Shorthand as ConfigShorthand};
use crate::crypto::Sealer;
use crate::downstream::server::Shared;
use crate::downstream::set::DownstreamSet;
use crate::pipeline::{Gateway, Settings};
use crate::policy::{CompiledPolicy, Kind, Shorthand};

/// How often idle connections are looked for.
const JANITOR: Duration = Duration::from_secs(60);
/// How long the audit may take to write what waits at the end.
const LAST_RECORDS: Duration = Duration::from_secs(10);

/// What this process is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A daemon for many hosts: servers are started at once.
    Daemon,
    /// One host on standard input: servers are started when it has said what it can do.
    SingleHost,
    /// A command of the command line: servers are started at once, nothing is listened to.
    Command,
}

/// Why a daemon could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Policy patterns that cannot be compiled.
    #[error("the policy has problems:\n{0}")]
    Policy(String),
    /// The audit directory cannot be used.
    #[error(
        "the audit directory {dir} cannot be used: {source}; set audit.dir to a directory that this user may write, or audit.durability to \"off\""
    )]
    Audit {
        /// The directory.
        dir: String,
        /// Why.
        source: std::io::Error,
    },
}

/// All parts of one process.
#[derive(Debug)]
pub struct Daemon {
    /// The pipeline.
    pub gateway: Arc<Gateway>,
    /// The servers.
    pub downstreams: Arc<DownstreamSet>,
    /// The audit log.
    pub audit: AuditLog,
    pub(super) config: ArcSwap<Config>,
    pub(super) digest: ArcSwap<String>,
    pub(super) refused: ArcSwap<Vec<(String, String)>>,
    pub(super) started: Timestamp,
    pub(super) reloads: std::sync::Mutex<super::status::ReloadReport>,
    role: Role,
    pub(super) draining: AtomicBool,
    stop: CancellationToken,
}

/// Compiles policy section and shorthands.
///
/// # Errors
/// All problems, one per line.
pub fn compile_policy(config: &Config) -> Result<CompiledPolicy, BuildError> {
    let mut shorthands = Vec::new();
    for server in &config.servers {
        let all = [
            (Kind::Tool, &server.tools),
            (Kind::Prompt, &server.prompts),
            (Kind::Resource, &server.resources),
        ];
        for (kind, given) in all {
            let ConfigShorthand { allow, deny } = given;
            if allow.is_none() && deny.is_empty() {
                continue;
            }
            let kinds: &[Kind] = if kind == Kind::Resource {
                &[Kind::Resource, Kind::ResourceTemplate]
            } else {
                std::slice::from_ref(&kind)
            };
            for kind in kinds {
                shorthands.push(Shorthand {
                    server: server.name.clone(),
                    kind: *kind,
                    allow: allow.clone(),
                    deny: deny.clone(),
                });
            }
        }
    }
    CompiledPolicy::new(config.policy.as_ref(), &shorthands).map_err(|problems| {
        let lines: Vec<String> = problems
            .iter()
            .map(|problem| format!("  {}: {}", problem.path, problem.message))
            .collect();
        BuildError::Policy(lines.join("\n"))
    })
}

fn settings(config: &Arc<Config>, policy: CompiledPolicy) -> Settings {
    Settings {
        config: config.clone(),
        policy: Arc::new(policy),
        names: NameRules {
            separator: config.names.separator.as_str().into(),
            max_length: config.names.max_length,
        },
    }
}

fn open_audit(config: &Config) -> Result<AuditLog, BuildError> {
    if config.audit.durability == Durability::Off {
        return Ok(AuditLog::off());
    }
    let dir = config.audit_dir();
    let options = AuditOptions {
        rotate_size: config.audit.rotate.size.bytes(),
        rotate_age: Some(config.audit.rotate.age),
        keep: Some(config.audit.rotate.keep),
        ..AuditOptions::new(dir.clone())
    };
    AuditLog::open(options, SystemClock::shared()).map_err(|source| BuildError::Audit {
        dir: dir.display().to_string(),
        source,
    })
}

impl Daemon {
    /// Builds everything; nothing is started or listened to yet. Servers that the configuration could not resolve
    /// are shown in status and left out.
    ///
    /// # Errors
    /// If policy or audit cannot be set up.
    pub fn build(loaded: Loaded, role: Role) -> Result<Arc<Self>, BuildError> {
        let Loaded {
            config,
            digest,
            mut refused,
            ..
        } = loaded;
        let policy = compile_policy(&config)?;
        if policy.is_open() && role != Role::Command {
            tracing::warn!("there is no policy section: every tool, prompt and resource is allowed");
        }
        let audit = open_audit(&config)?;
        if !audit.is_on() && role != Role::Command {
            tracing::warn!("audit.durability is \"off\": nothing is recorded");
        }
        let config = Arc::new(config);
        let policy_digest = policy.digest().clone();
        let gateway = Gateway::new(
            settings(&config, policy),
            Sealer::random(),
            audit.clone(),
            SystemClock::shared(),
        );
        let shared = Arc::new(Shared {
            events: gateway.clone(),
            limits: config.limits.clone(),
            start_wait: config.start_wait,
            records: Some(config.state_dir.clone()),
            single_host: role == Role::SingleHost,
        });
        let (downstreams, problems) = DownstreamSet::new(&config.servers, shared);
        for (server, problem) in problems {
            tracing::error!(server, "left out: {problem}");
            refused.push((server, problem));
        }
        gateway.attach(downstreams.clone());
        audit.record(Record {
            detail: Some(concat!("manifold ", env!("CARGO_PKG_VERSION")).into()),
            policy: Some(policy_digest),
            ..Record::new(Event::Start)
        });
        Ok(Arc::new(Self {
            gateway,
            downstreams,
            audit,
            config: ArcSwap::new(config),
            digest: ArcSwap::from_pointee(digest),
            refused: ArcSwap::from_pointee(refused),
            started: Timestamp::now(),
            reloads: std::sync::Mutex::default(),
            role,
            draining: AtomicBool::new(false),
            stop: CancellationToken::new(),
        }))
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Starts the background tasks and, unless they wait for their one host, the servers.
    pub fn start(self: &Arc<Self>) {
        tasks::spawn("catalog builder", self.gateway.clone().keep_catalogs());
        let daemon = self.clone();
        tasks::spawn("janitor", async move {
            loop {
                tokio::select! {
                    () = daemon.stop.cancelled() => return,
                    () = tokio::time::sleep(JANITOR) => daemon.downstreams.close_idle(),
                }
            }
        });
        if self.role != Role::SingleHost {
            self.downstreams.start(None);
        }
    }

    /// Replaces configuration, policy and servers as one.
    ///
    /// # Errors
    /// If the new policy cannot be compiled; then nothing changes.
    pub fn apply(&self, loaded: Loaded) -> Result<crate::downstream::set::Difference, BuildError> {
        let Loaded {
            config,
            digest,
            mut refused,
            ..
        } = loaded;
        let policy = compile_policy(&config)?;
        let policy_digest = policy.digest().clone();
        let config = Arc::new(config);
        self.gateway.apply(settings(&config, policy));
        self.config.store(config.clone());
        self.digest.store(Arc::new(digest));
        let (applied, problems) = self.downstreams.apply(&config.servers);
        refused.extend(problems);
        self.refused.store(Arc::new(refused));
        self.gateway.apply_again();
        self.audit.record(Record {
            policy: Some(policy_digest),
            ..Record::new(Event::Reload)
        });
        let grace = config.grace;
        for old in applied.old {
            tasks::spawn("drain a server", async move {
                // Calls in flight finish on the old connection.
                let busy = |server: &crate::downstream::server::Server| {
                    server
                        .connections()
                        .iter()
                        .any(|connection| connection.calls_in_flight() > 0)
                };
                let end = tokio::time::Instant::now() + grace;
                while busy(&old) && tokio::time::Instant::now() < end {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                old.shut_down().await;
            });
        }
        Ok(applied.difference)
    }

    /// A shutdown has begun: readiness says no from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// The last phases of a shutdown: servers, then the audit. Hosts have been drained before.
    /// Returns `false` if something was lost.
    pub async fn shut_down(&self) -> bool {
        self.gateway.close_listeners();
        self.stop.cancel();
        self.downstreams.shut_down().await;
        self.audit.record(Record::new(Event::Stop));
        let audit = self.audit.clone();
        let closed = tokio::task::spawn_blocking(move || audit.close(LAST_RECORDS)).await;
        match closed {
            Ok(Ok(())) => true,
            Ok(Err(fault)) => {
                tracing::error!("audit: {fault}");
                false
            }
            Err(_) => false,
        }
    }
}
