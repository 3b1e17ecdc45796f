//! All configured servers, in configuration order; what a reload adds, changes and removes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::ArcSwap;

use super::handshake::Dialer;
use super::server::{Server, Shared};
use super::transport::child::StopLadder;
use super::transport::http::{HttpLimits, HttpTarget};
use super::transport::pipe::PipeLimits;
use crate::config;
use crate::pipeline::port::{Downstream, Downstreams};
use crate::session::CapabilitySet;
use crate::wire::json::JsonLimits;

/// See the module.
#[derive(Debug)]
pub struct DownstreamSet {
    shared: Arc<Shared>,
    servers: ArcSwap<Vec<Arc<Server>>>,
    started: AtomicBool,
    /// Bits of what base connections declare, behind [`LEGACY_HOST`] if the one host is legacy.
    base: AtomicU32,
}

/// Marks that there is one host and that it is legacy.
const LEGACY_HOST: u32 = 1 << 16;

/// How deep the JSON of a server's messages may nest at least.
const DEEPEST_ANSWER: u32 = 65_536;

/// What a reload did, by server name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// New ones.
    pub added: Vec<String>,
    /// Ones with another configuration; they were restarted.
    pub changed: Vec<String>,
    /// Gone.
    pub removed: Vec<String>,
}

impl Difference {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl DownstreamSet {
    /// The servers of a configuration, none started.
    ///
    /// # Errors
    /// Problems of single servers, by name; such a server is left out.
    #[must_use]
    pub fn new(servers: &[config::Server], shared: Arc<Shared>) -> (Arc<Self>, Vec<(String, String)>) {
        let set = Self {
            shared,
            servers: ArcSwap::from_pointee(Vec::new()),
            started: AtomicBool::new(false),
            base: AtomicU32::new(0),
        };
        let (_, problems) = set.apply(servers);
        (Arc::new(set), problems)
    }

    fn make(&self, config: &config::Server) -> Result<Arc<Server>, String> {
        let limits = &self.shared.limits;
        // A listing with one absurdly deep item must not cost the server its whole list: the scan needs no stack,
        // and the catalog judges each item by itself.
        let json = JsonLimits {
            depth: limits.json_depth.max(DEEPEST_ANSWER),
        };
        let http = match &config.url {
            None => None,
            Some(url) => {
                let headers = config
                    .headers
                    .iter()
                    .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                    .collect();
                let limits = HttpLimits {
                    body: limits.response_body.as_usize(),
                    event: limits.event.as_usize(),
                    json,
                };
                Some(HttpTarget::new(url.expose(), headers, limits)?)
            }
        };
        let dialer = Dialer {
            config: Arc::new(config.clone()),
            server: config.name.as_str().into(),
            pipe: PipeLimits {
                line: limits.line.as_usize(),
                json,
                ladder: StopLadder::default(),
            },
            stderr_lines: limits.stderr_lines,
            http,
            stderr: std::sync::Mutex::default(),
            ending: Arc::default(),
        };
        Ok(Server::new(dialer.config.clone(), self.shared.clone(), dialer))
    }

    /// Makes the set equal to the configuration: unchanged servers are kept as they run, new and changed ones are
    /// made (and started, if the set runs); old ones are returned for draining.
    pub fn apply(&self, servers: &[config::Server]) -> (Applied, Vec<(String, String)>) {
        let old = self.servers.load_full();
        let (mut now, mut problems, mut done) = (Vec::new(), Vec::new(), Applied::default());
        for config in servers.iter().filter(|config| config.enabled) {
            let before = old.iter().find(|server| **server.name() == *config.name);
            if let Some(kept) = before.filter(|server| **server.config() == *config) {
                now.push(kept.clone());
                continue;
            }
            match self.make(config) {
                Ok(server) => {
                    if let Some(before) = before {
                        server.inherit(before);
                    }
                    let list = if before.is_some() {
                        &mut done.difference.changed
                    } else {
                        &mut done.difference.added
                    };
                    list.push(config.name.clone());
                    now.push(server);
                }
                Err(problem) => problems.push((config.name.clone(), problem)),
            }
        }
        for server in old.iter() {
            if !now.iter().any(|kept| Arc::ptr_eq(kept, server)) {
                if !now.iter().any(|kept| kept.name() == server.name()) {
                    done.difference.removed.push(server.name().to_string());
                }
                done.old.push(server.clone());
            }
        }
        self.servers.store(Arc::new(now));
        if self.started.load(Ordering::Acquire) {
            self.start_all();
        }
        (done, problems)
    }

    fn start_all(&self) {
        let stored = self.base.load(Ordering::Acquire);
        let bits = u16::try_from(stored & 0xffff).unwrap_or_default();
        let base = (stored & LEGACY_HOST != 0).then(|| CapabilitySet::from_bits(bits));
        for server in self.servers.load().iter() {
            server.start(base);
        }
    }

    /// Starts every server. With a capability set, base connections declare it and prefer the legacy family: there
    /// is one host and it is legacy.
    pub fn start(&self, base: Option<CapabilitySet>) {
        if !self.started.load(Ordering::Acquire) {
            self.base.store(
                base.map_or(0, |set| u32::from(set.bits()) | LEGACY_HOST),
                Ordering::Release,
            );
            self.started.store(true, Ordering::Release);
        }
        self.start_all();
    }

    /// All servers as they are, for status.
    #[must_use]
    pub fn servers(&self) -> Vec<Arc<Server>> {
        self.servers.load().to_vec()
    }

    /// Closes what nobody uses.
    pub fn close_idle(&self) {
        for server in self.servers.load().iter() {
            server.close_idle();
        }
    }

    /// Ends all servers in good order.
    pub async fn shut_down(&self) {
        let servers = self.servers();
        futures_util::future::join_all(servers.iter().map(|server| server.shut_down())).await;
    }
}

/// The outcome of [`DownstreamSet::apply`].
#[derive(Debug, Default)]
pub struct Applied {
    /// By name.
    pub difference: Difference,
    /// Servers that are not in the set any more; shut them down when their calls are done.
    pub old: Vec<Arc<Server>>,
}

impl Downstreams for DownstreamSet {
    fn get(&self, server: &str) -> Option<Arc<dyn Downstream>> {
        self.servers
            .load()
            .iter()
            .find(|known| **known.name() == *server)
            .map(|known| known.clone() as _)
    }

    fn all(&self) -> Vec<Arc<dyn Downstream>> {
        self.servers
            .load()
            .iter()
            .map(|known| known.clone() as _)
            .collect()
    }

    fn host_seen(&self, capabilities: Option<CapabilitySet>) {
        if self.shared.single_host {
            self.start(capabilities);
        }
    }
}
