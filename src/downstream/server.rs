//! One configured server: its supervisor task, its base connection, the dedicated connections of legacy sessions,
//! and its listings.
//!
//! The supervisor is the only writer of state and base connection. Calls reach it through the trait
//! [`Downstream`]; it never decides whether a call is allowed.

mod dedicated;
mod face;
mod hooks;
mod listings;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use dedicated::Slot;
use hooks::ServerHooks;

use super::backoff::{Backoff, BackoffSettings};
use super::connection::{Connection, Hooks};
use super::handshake::{Dialer, OpenFault, Opened};
use super::refresh::{self, Wanted};
use super::state::{Phase, StateReport};
use crate::catalog::listing::Listing;
use crate::config;
use crate::pipeline::port::{CallFault, DownstreamEvents, FaultKind};
use crate::revision::Family;
use crate::runtime::tasks;
use crate::session::CapabilitySet;

/// What all servers of one daemon share.
#[derive(Debug)]
pub struct Shared {
    /// Where reports go.
    pub events: Arc<dyn DownstreamEvents>,
    /// Limits of the configuration.
    pub limits: config::Limits,
    /// Where listings are kept between runs; `None` keeps none.
    pub records: Option<std::path::PathBuf>,
    /// How long after its start a server may keep lists waiting that were never made before.
    pub start_wait: Duration,
    /// Exactly one host uses this process (`manifold stdio`): the base connection is its own.
    pub single_host: bool,
}

/// Resource URIs and task ids that hosts listen to, as the server says them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Watched {
    uris: Vec<String>,
    tasks: Vec<String>,
}

/// See the module.
#[derive(Debug)]
pub struct Server {
    name: Arc<str>,
    config: Arc<config::Server>,
    shared: Arc<Shared>,
    dialer: Dialer,
    base: ArcSwapOption<Connection>,
    /// What the base connection declares; bits of a [`CapabilitySet`].
    base_set: AtomicU16,
    started: AtomicBool,
    /// A single legacy host: the legacy side of a server that has both is preferred.
    prefer_legacy: AtomicBool,
    /// The base connection is modern, and the server was found to have no legacy side.
    modern_only: AtomicBool,
    state: watch::Sender<StateReport>,
    slots: DashMap<Arc<str>, Arc<Slot>>,
    /// A connection made only to learn what the server offers for a set; the first session with that set takes it.
    spares: DashMap<u16, Arc<Connection>>,
    /// Held while a set is being learnt; holds when the last attempt failed.
    probing: DashMap<u16, Arc<tokio::sync::Mutex<Option<Instant>>>>,
    listings: DashMap<u16, Arc<Listing>>,
    base_listing: ArcSwapOption<Listing>,
    listed: watch::Sender<u64>,
    places: Arc<Semaphore>,
    queued: AtomicUsize,
    refresh: Notify,
    stale: Mutex<BTreeSet<Wanted>>,
    wake: Notify,
    /// What hosts want to hear of.
    watched: watch::Sender<Watched>,
    /// What the server has acknowledged to tell of.
    heard: watch::Sender<Watched>,
    /// Acknowledgements of listen requests so far.
    acknowledgements: watch::Sender<u64>,
    stop: CancellationToken,
    opened: Instant,
    /// When the supervisor was started.
    running_since: OnceLock<Instant>,
    /// Starts so far, for status.
    starts: AtomicU64,
    me: Weak<Self>,
}

impl Server {
    /// A server that has not been started.
    #[must_use]
    pub fn new(config: Arc<config::Server>, shared: Arc<Shared>, dialer: Dialer) -> Arc<Self> {
        let name: Arc<str> = config.name.as_str().into();
        let record = shared
            .records
            .as_ref()
            .and_then(|dir| refresh::load(dir, &config, None));
        let server = Arc::new_cyclic(|me| Self {
            name: name.clone(),
            shared,
            dialer,
            base: ArcSwapOption::empty(),
            base_set: AtomicU16::new(first_base_set(&config).bits()),
            started: AtomicBool::new(false),
            prefer_legacy: AtomicBool::new(false),
            modern_only: AtomicBool::new(false),
            state: watch::Sender::new(StateReport::new(Phase::Idle)),
            slots: DashMap::new(),
            spares: DashMap::new(),
            probing: DashMap::new(),
            listings: DashMap::new(),
            base_listing: ArcSwapOption::new(record.map(Arc::new)),
            listed: watch::Sender::new(0),
            places: Arc::new(Semaphore::new(config.concurrency.max(1))),
            queued: AtomicUsize::new(0),
            refresh: Notify::new(),
            stale: Mutex::new(BTreeSet::new()),
            wake: Notify::new(),
            watched: watch::Sender::new(Watched::default()),
            heard: watch::Sender::new(Watched::default()),
            acknowledgements: watch::Sender::new(0),
            stop: CancellationToken::new(),
            opened: Instant::now(),
            running_since: OnceLock::new(),
            starts: AtomicU64::new(0),
            me: me.clone(),
            config,
        });
        if let Some(dir) = &server.shared.records {
            for (set, listing) in refresh::load_sets(dir, &server.config) {
                server.listings.insert(set, Arc::new(listing));
            }
        }
        server
    }

    /// Starts from what an earlier run of the same server offered, so that a reload does not make its names come and
    /// go; the first listing of its own replaces it.
    pub fn inherit(&self, before: &Self) {
        if self.base_listing.load().is_none() {
            self.base_listing.store(before.base_listing.load_full());
        }
    }

    /// The configuration it runs with.
    #[must_use]
    pub fn config(&self) -> &Arc<config::Server> {
        &self.config
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> StateReport {
        self.state.borrow().clone()
    }

    /// The base connection, if it is up.
    #[must_use]
    pub fn base(&self) -> Option<Arc<Connection>> {
        self.base.load_full().filter(|connection| !connection.is_closed())
    }

    /// Every open connection.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let mut all: Vec<Arc<Connection>> = self.base.load_full().into_iter().collect();
        all.extend(self.spares.iter().map(|entry| entry.value().clone()));
        all.extend(
            self.slots
                .iter()
                .filter_map(|entry| entry.value().current.load_full()),
        );
        all.retain(|connection| !connection.is_closed());
        all
    }

    /// Attempts to start or connect so far.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// How many calls wait for a place.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Starts the supervisor, once. `base` is what the base connection declares beyond configured roots; `None`
    /// prefers the modern family.
    pub fn start(&self, base: Option<CapabilitySet>) {
        if self.started.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = self.running_since.set(Instant::now());
        self.prefer_legacy.store(base.is_some(), Ordering::Release);
        let base = base.unwrap_or_default();
        self.base_set.fetch_or(base.bits(), Ordering::AcqRel);
        if self.prefer_legacy.load(Ordering::Acquire) {
            let recorded = self
                .listings
                .get(&self.base_set().bits())
                .map(|listing| listing.clone());
            // What the modern side of a server said is no record for a host that will be served by its legacy side.
            let of_base = self
                .base_listing
                .load_full()
                .filter(|listing| listing.family() == Family::Legacy);
            self.base_listing.store(recorded.or(of_base));
        }
        if let Some(server) = self.me.upgrade() {
            tasks::spawn("server supervisor", async move { server.supervise().await });
        }
    }

    /// Stops the supervisor and ends every connection in good order.
    pub async fn shut_down(&self) {
        self.stop.cancel();
        let all = self.connections();
        self.set_state(Phase::Idle, None, "stopped");
        let ends = all.into_iter().map(|connection| async move {
            connection.close("manifold is stopping this server");
            if let Some(link) = connection.link() {
                link.close().await;
            }
        });
        futures_util::future::join_all(ends).await;
    }

    fn base_set(&self) -> CapabilitySet {
        CapabilitySet::from_bits(self.base_set.load(Ordering::Acquire))
    }

    fn set_state(&self, phase: Phase, stage: Option<&'static str>, detail: &str) {
        let changed = self
            .state
            .send_if_modified(|state| state.change(phase, stage, detail));
        if changed {
            match phase {
                Phase::Failed => tracing::warn!(server = %self.name, stage, "{detail}"),
                _ => tracing::info!(server = %self.name, state = phase.as_str(), "{detail}"),
            }
            self.shared
                .events
                .state_changed(&self.name, phase.as_str(), detail);
        }
    }

    fn hooks(&self) -> Arc<dyn Hooks> {
        Arc::new(ServerHooks {
            server: self.me.clone(),
            name: self.name.clone(),
            events: self.shared.events.clone(),
        })
    }

    fn known_family(&self) -> Option<Family> {
        if let Some(facts) = self
            .base
            .load()
            .as_ref()
            .and_then(|connection| connection.facts().cloned())
        {
            return Some(facts.family);
        }
        self.base_listing.load().as_ref().map(|listing| listing.family())
    }

    async fn dial(&self, set: CapabilitySet) -> Result<Opened, OpenFault> {
        let legacy =
            self.prefer_legacy.load(Ordering::Acquire) || self.known_family() == Some(Family::Legacy);
        let prefer = if legacy { Family::Legacy } else { Family::Modern };
        let hooks = self.hooks();
        self.in_time(self.dialer.open(&hooks, set, prefer)).await
    }

    /// One counted attempt to open a connection, within `start_timeout`.
    async fn in_time(
        &self,
        attempt: impl Future<Output = Result<Opened, OpenFault>>,
    ) -> Result<Opened, OpenFault> {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let limit = self.config.start_timeout;
        match tokio::time::timeout(limit, attempt).await {
            Ok(done) => done,
            Err(_) => Err(OpenFault {
                stage: "handshake",
                kind: FaultKind::TimedOut,
                message: format!(
                    "it was not ready within start_timeout ({limit:?}){}",
                    self.dialer.last_words()
                ),
                modern_error: false,
            }),
        }
    }

    /// A failed attempt in words that name the server.
    fn failure(&self, fault: &OpenFault) -> String {
        format!(
            "server \"{}\" failed at {}: {}",
            self.name, fault.stage, fault.message
        )
    }

    /// A connection for legacy hosts: to a server that may have both sides, only its legacy one will do.
    async fn dial_legacy(&self, set: CapabilitySet) -> Result<Opened, OpenFault> {
        if self.known_family() != Some(Family::Modern) {
            return self.dial(set).await;
        }
        let hooks = self.hooks();
        let opened = self.in_time(self.dialer.open_legacy(&hooks, set)).await;
        if let Err(fault) = &opened
            && matches!(fault.kind, FaultKind::Malformed | FaultKind::Lost)
        {
            tracing::debug!(server = %self.name, %fault, "it has no legacy side");
            self.modern_only.store(true, Ordering::Release);
        }
        opened
    }

    /// Whether legacy hosts have connections of their own here.
    fn serves_legacy(&self) -> bool {
        match self.known_family() {
            Some(Family::Legacy) => true,
            Some(Family::Modern) => {
                !self.modern_only.load(Ordering::Acquire) && self.dialer.pinned() != Some(Family::Modern)
            }
            None => false,
        }
    }

    /// The operator's word that the server keeps no state between callers: everyone uses the base connection.
    fn is_shared(&self) -> bool {
        self.config.sharing == config::Sharing::Shared
    }

    /// Whether the base listing is the one of this capability set.
    fn is_base_set(&self, set: CapabilitySet) -> bool {
        self.is_shared() || (set == self.base_set() && self.known_family() == Some(Family::Legacy))
    }

    async fn supervise(self: Arc<Self>) {
        let mut backoff = Backoff::new(BackoffSettings::default(), quick_seed(&self.name));
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.dialer.cleared() => {}
            }
            self.set_state(Phase::Starting, None, "starting");
            let attempt = tokio::select! {
                () = self.stop.cancelled() => return,
                attempt = self.dial(self.base_set()) => attempt,
            };
            match attempt {
                Ok(opened) => {
                    backoff.started(std::time::Instant::now());
                    self.serve(opened).await;
                }
                Err(fault) => {
                    let detail = self.failure(&fault);
                    self.set_state(Phase::Failed, Some(fault.stage), &detail);
                    self.note_listed();
                }
            }
            if self.stop.is_cancelled() {
                return;
            }
            let delay = backoff.failed(std::time::Instant::now());
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
                // A call that needs the server may force an earlier attempt, but not a storm of them.
                () = async { self.wake.notified().await; tokio::time::sleep(delay.min(Duration::from_millis(500))).await } => {}
            }
        }
    }

    /// Runs while the base connection lives.
    async fn serve(self: &Arc<Self>, opened: Opened) {
        let connection = opened.connection.clone();
        self.lock_stale().clear();
        // Notices that arrive while the first listing is read make it stale, and it is read again.
        self.base.store(Some(connection.clone()));
        let first = tokio::select! {
            first = refresh::read_all(&connection, &opened, &self.shared.limits) => first,
            () = connection.ended() => None,
            () = self.stop.cancelled() => None,
        };
        if let Some((listing, late)) = first {
            // In this order: whoever sees the listing finds the server ready.
            self.set_state(Phase::Ready, None, "ready");
            self.publish(None, listing);
            for kind in late {
                self.mark_stale(None, kind);
            }
            if connection
                .facts()
                .is_some_and(|facts| facts.family == Family::Modern)
            {
                self.listen(&connection);
            }
        }
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = connection.ended() => break,
                () = self.refresh.notified() => {}
            }
            // Bursts of notices cause one reading.
            tokio::time::sleep(self.shared.limits.list_changed_quiet).await;
            let wanted = std::mem::take(&mut *self.lock_stale());
            self.read_again(&wanted).await;
        }
        let why = connection.why().unwrap_or("the connection has ended").to_owned();
        self.base.store(None);
        super::end(connection, "the server was given up");
        if !self.stop.is_cancelled() {
            self.set_state(
                Phase::Failed,
                Some("running"),
                &format!("server \"{}\": {why}", self.name),
            );
        }
    }

    /// Waits until the base connection is up.
    async fn ready_base(&self) -> Result<Arc<Connection>, CallFault> {
        let mut state = self.state.subscribe();
        let deadline = Instant::now() + self.config.start_timeout;
        let mut woken = false;
        loop {
            if let Some(connection) = self.base() {
                // A base that is still being listed serves calls already.
                return Ok(connection);
            }
            let report = state.borrow_and_update().clone();
            if self.stop.is_cancelled() {
                return Err(CallFault::unsent(
                    FaultKind::Unavailable,
                    format!("server \"{}\" was removed", self.name),
                ));
            }
            if report.phase == Phase::Failed {
                if woken {
                    return Err(CallFault::unsent(FaultKind::Unavailable, report.detail));
                }
                woken = true;
                self.wake.notify_one();
            }
            let changed = tokio::time::timeout_at(deadline, state.changed()).await;
            if changed.is_err() {
                let text = format!(
                    "server \"{}\" is still starting ({:?} passed)",
                    self.name, self.config.start_timeout
                );
                return Err(CallFault::unsent(FaultKind::Unavailable, text));
            }
        }
    }
}

/// What a base connection declares before any host is known: roots of the configuration, and on a shared
/// connection everything, since any host's call may run on it.
fn first_base_set(config: &config::Server) -> CapabilitySet {
    match (config.sharing, config.roots.is_empty()) {
        (config::Sharing::Shared, _) => CapabilitySet::ALL,
        (_, false) => CapabilitySet::ROOTS,
        (_, true) => CapabilitySet::NONE,
    }
}

/// A seed for jitter that differs between servers.
fn quick_seed(name: &str) -> u64 {
    let bytes = crate::crypto::random::<8>();
    u64::from_le_bytes(bytes) ^ name.len() as u64
}
