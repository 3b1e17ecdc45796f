//! One configured server: its supervisor task, its base connection, the dedicated connections of legacy sessions,
//! and its listings.
//!
//! The supervisor is the only writer of state and base connection. Calls reach it through the trait
//! [`Downstream`]; it never decides whether a call is allowed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::{Backoff, BackoffSettings};
use super::connection::{Connection, Hooks};
use super::handshake::{Dialer, OpenFault, Opened};
use super::refresh::{self, Wanted};
use super::state::{Phase, StateReport};
use crate::catalog::listing::Listing;
use crate::config;
use crate::pipeline::port::{
    CallFault, Downstream, DownstreamConnection, DownstreamEvents, FaultKind, Responder,
};
use crate::revision::Family;
use crate::runtime::tasks;
use crate::session::{Caller, CapabilitySet, Session};
use crate::wire::json::quote;
use crate::wire::{HostId, Message};

/// What all servers of one daemon share.
#[derive(Debug)]
pub struct Shared {
    /// Where reports go.
    pub events: Arc<dyn DownstreamEvents>,
    /// Limits of the configuration.
    pub limits: config::Limits,
    /// Where listings are kept between runs; `None` keeps none.
    pub records: Option<std::path::PathBuf>,
    /// Exactly one host uses this process (`manifold stdio`): the base connection is its own.
    pub single_host: bool,
}

/// A dedicated connection of one legacy session; opened by the first call that needs it.
#[derive(Debug, Default)]
struct Slot {
    /// Held while opening, so that many first calls open one connection.
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// The same, for those who only want to know.
    current: ArcSwapOption<Connection>,
    /// What a new connection must be told again.
    subscriptions: Mutex<BTreeSet<String>>,
    last_used: AtomicU64,
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
    watched: watch::Sender<(Vec<String>, Vec<String>)>,
    stop: CancellationToken,
    opened: Instant,
    /// Starts so far, for status.
    starts: AtomicU64,
    me: Weak<Server>,
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
            base_set: AtomicU16::new(if config.roots.is_empty() {
                0
            } else {
                CapabilitySet::ROOTS.bits()
            }),
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
            watched: watch::Sender::new((Vec::new(), Vec::new())),
            stop: CancellationToken::new(),
            opened: Instant::now(),
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
        self.prefer_legacy.store(base.is_some(), Ordering::Release);
        let base = base.unwrap_or_default();
        self.base_set.fetch_or(base.bits(), Ordering::AcqRel);
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
        self.starts.fetch_add(1, Ordering::Relaxed);
        let limit = self.config.start_timeout;
        let legacy =
            self.prefer_legacy.load(Ordering::Acquire) || self.known_family() == Some(Family::Legacy);
        let prefer = if legacy { Family::Legacy } else { Family::Modern };
        match tokio::time::timeout(limit, self.dialer.open(&self.hooks(), set, prefer)).await {
            Ok(done) => done,
            Err(_) => Err(self.too_slow()),
        }
    }

    fn too_slow(&self) -> OpenFault {
        OpenFault {
            stage: "handshake",
            kind: FaultKind::TimedOut,
            message: format!(
                "it was not ready within start_timeout ({:?})",
                self.config.start_timeout
            ),
            modern_error: false,
        }
    }

    /// A connection for legacy hosts: to a server that may have both sides, only its legacy one will do.
    async fn dial_legacy(&self, set: CapabilitySet) -> Result<Opened, OpenFault> {
        if self.known_family() != Some(Family::Modern) {
            return self.dial(set).await;
        }
        self.starts.fetch_add(1, Ordering::Relaxed);
        let limit = self.config.start_timeout;
        let opened = match tokio::time::timeout(limit, self.dialer.open_legacy(&self.hooks(), set)).await {
            Ok(opened) => opened,
            Err(_) => Err(self.too_slow()),
        };
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

    /// Whether the base listing is the one of this capability set.
    fn is_base_set(&self, set: CapabilitySet) -> bool {
        set == self.base_set() && self.known_family() == Some(Family::Legacy)
    }

    async fn supervise(self: Arc<Self>) {
        let mut backoff = Backoff::new(BackoffSettings::default(), quick_seed(&self.name));
        loop {
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
                    let detail = format!(
                        "server \"{}\" failed at {}: {}",
                        self.name, fault.stage, fault.message
                    );
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
            first = refresh::read_all(&connection, &opened, &self.shared.limits) => Some(first),
            () = connection.ended() => None,
            () = self.stop.cancelled() => None,
        };
        if let Some((listing, late)) = first {
            self.publish(None, listing);
            for kind in late {
                self.mark_stale(None, kind);
            }
            self.set_state(Phase::Ready, None, "ready");
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

    async fn read_again(self: &Arc<Self>, wanted: &BTreeSet<Wanted>) {
        let mut sets: BTreeSet<Option<u16>> = wanted.iter().map(|wanted| wanted.set).collect();
        let base_changed = sets.contains(&None);
        if base_changed {
            // What the base connection was told may hold for the other sets too.
            sets.extend(self.listings.iter().map(|entry| Some(*entry.key())));
        }
        for bits in sets {
            let set = bits.map(CapabilitySet::from_bits);
            let (connection, old) = match set {
                None => (self.base(), self.base_listing.load_full()),
                Some(set) => (self.connection_with(set), self.exact_listing(set)),
            };
            let (Some(connection), Some(old)) = (connection, old) else {
                continue;
            };
            let kinds: Vec<&'static str> = wanted
                .iter()
                .filter(|wanted| wanted.set == bits || (base_changed && wanted.set.is_none()))
                .map(|wanted| wanted.kind)
                .collect();
            let listing = refresh::read_kinds(&connection, &old, &kinds, &self.shared.limits).await;
            self.publish(set, listing);
        }
    }

    fn connection_with(&self, set: CapabilitySet) -> Option<Arc<Connection>> {
        let fits = |connection: &Arc<Connection>| {
            connection
                .facts()
                .is_some_and(|facts| facts.capabilities == set && facts.family == Family::Legacy)
        };
        self.connections().into_iter().find(fits)
    }

    fn exact_listing(&self, set: CapabilitySet) -> Option<Arc<Listing>> {
        if self.is_base_set(set) {
            return self.base_listing.load_full();
        }
        self.listings.get(&set.bits()).map(|listing| listing.clone())
    }

    /// Keeps a listing of one capability set, or (`None`) of the base connection.
    fn publish(&self, set: Option<CapabilitySet>, listing: Listing) {
        let old = match set {
            None => self.base_listing.load_full(),
            Some(set) => self.listings.get(&set.bits()).map(|listing| listing.clone()),
        };
        let changed = old.is_none_or(|old| !old.same_items(&listing));
        if let Some(dir) = self.shared.records.as_ref().filter(|_| changed) {
            refresh::save(dir, &self.config, set, &listing);
        }
        let listing = Arc::new(listing);
        match set {
            None => self.base_listing.store(Some(listing)),
            Some(set) => {
                self.listings.insert(set.bits(), listing);
            }
        }
        if changed {
            self.shared.events.listings_changed();
        }
        self.note_listed();
    }

    fn note_listed(&self) {
        self.listed.send_modify(|count| *count += 1);
    }

    fn lock_stale(&self) -> std::sync::MutexGuard<'_, BTreeSet<Wanted>> {
        self.stale
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn mark_stale(&self, set: Option<CapabilitySet>, kind: &'static str) {
        self.lock_stale().insert(Wanted {
            set: set.map(CapabilitySet::bits),
            kind,
        });
        self.refresh.notify_one();
    }

    /// Keeps one `subscriptions/listen` open on a modern base connection, with the wanted URIs.
    fn listen(self: &Arc<Self>, connection: &Arc<Connection>) {
        let (server, connection) = (self.clone(), connection.clone());
        tasks::spawn("listen", async move {
            let mut watched = server.watched.subscribe();
            let mut delay = Duration::from_millis(200);
            while !connection.is_closed() {
                let uris = watched.borrow_and_update().clone();
                let Some(filter) =
                    refresh::listen_filter(server.base_listing.load().as_deref(), &uris.0, &uris.1)
                else {
                    tokio::select! {
                        () = connection.ended() => return,
                        done = watched.changed() => if done.is_err() { return } else { continue },
                    }
                };
                let began = Instant::now();
                let mut ask =
                    std::pin::pin!(connection.own_request("subscriptions/listen", &filter, None, None));
                let ended = tokio::select! {
                    ended = &mut ask => Some(ended),
                    done = watched.changed() => { if done.is_err() { return } None }
                };
                match ended {
                    // Widened: the new stream opens at once, the dropped future closes the old one.
                    None => continue,
                    Some(Ok(message)) if message.kind() == crate::wire::Kind::Error => {
                        tracing::debug!(server = %server.name, "the server refuses subscriptions/listen");
                        return;
                    }
                    Some(_) => {}
                }
                if connection.is_closed() {
                    return;
                }
                // Whatever changed meanwhile was not told.
                for kind in refresh::KINDS {
                    server.mark_stale(None, kind);
                }
                if began.elapsed() > Duration::from_secs(30) {
                    delay = Duration::from_millis(200);
                }
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(Duration::from_secs(30));
            }
        });
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

    fn slot_key(&self, caller: &Caller) -> Option<Arc<str>> {
        let session = caller.session.as_ref()?;
        match self.config.sharing {
            config::Sharing::Shared => None,
            config::Sharing::Identity => {
                Some(format!("{}#{}", caller.identity.key(), caller.capabilities.bits()).into())
            }
            config::Sharing::Auto | config::Sharing::Session => Some(session.label.clone()),
        }
    }

    async fn open_dedicated(&self, caller: &Caller, key: Arc<str>) -> Result<Arc<Connection>, CallFault> {
        let slot = self.slots.entry(key).or_default().clone();
        slot.last_used.store(self.seconds(), Ordering::Relaxed);
        if let Some(connection) = slot
            .current
            .load_full()
            .filter(|connection| !connection.is_closed())
        {
            return Ok(connection);
        }
        let mut held = slot.connection.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let again = held.is_some();
        let set = caller.capabilities;
        let connection = match self
            .spares
            .remove(&set.bits())
            .filter(|(_, spare)| !spare.is_closed())
        {
            Some((_, spare)) => spare,
            None => {
                self.make_room()?;
                let opened = self.dial_legacy(set).await.map_err(|fault| {
                    let text = format!(
                        "server \"{}\" failed at {}: {}",
                        self.name, fault.stage, fault.message
                    );
                    CallFault::unsent(fault.kind, text)
                })?;
                self.learn(set, &opened);
                opened.connection
            }
        };
        if !matches!(self.config.sharing, config::Sharing::Identity) {
            connection.set_owner(caller.session.clone());
        }
        if caller
            .session
            .as_ref()
            .is_some_and(|session| session.ended.is_cancelled())
        {
            super::end(connection, "the session has ended");
            return Err(CallFault::unsent(FaultKind::Cancelled, "the session has ended"));
        }
        self.restore(&connection, caller, &slot, again);
        *held = Some(connection.clone());
        slot.current.store(Some(connection.clone()));
        Ok(connection)
    }

    /// Tells a new connection what the session has said before.
    fn restore(&self, connection: &Arc<Connection>, caller: &Caller, slot: &Slot, again: bool) {
        let offers_logging = self
            .base_listing
            .load()
            .as_ref()
            .is_some_and(|listing| listing.offers.logging);
        if let Some(level) = caller.wanted_log_level().filter(|_| offers_logging) {
            let params = format!("{{\"level\":\"{}\"}}", level.as_str());
            let connection = connection.clone();
            tasks::spawn("restore log level", async move {
                let _ = connection.ask("logging/setLevel", params).await;
            });
        }
        if !again {
            return;
        }
        let uris: Vec<String> = slot
            .subscriptions
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .iter()
            .cloned()
            .collect();
        for uri in uris {
            let connection = connection.clone();
            tasks::spawn("restore subscription", async move {
                let _ = connection
                    .ask("resources/subscribe", format!("{{\"uri\":{}}}", quote(&uri)))
                    .await;
            });
        }
    }

    fn make_room(&self) -> Result<(), CallFault> {
        let limit = self.shared.limits.connections_per_server;
        if self.connections().len() < limit {
            return Ok(());
        }
        let text = format!(
            "server \"{}\" has reached limits.connections_per_server ({limit})",
            self.name
        );
        Err(CallFault::unsent(FaultKind::Busy, text))
    }

    /// A connection with this set has been opened: its listing is read if there is none, or an old one.
    fn learn(&self, set: CapabilitySet, opened: &Opened) {
        let Some(server) = self.me.upgrade().filter(|_| !self.is_base_set(set)) else {
            return;
        };
        if self.listings.contains_key(&set.bits()) {
            return;
        }
        let opened = opened.clone();
        tasks::spawn("first listing", async move {
            let (listing, late) = refresh::read_all(&opened.connection, &opened, &server.shared.limits).await;
            server.publish(Some(set), listing);
            for kind in late {
                server.mark_stale(Some(set), kind);
            }
        });
    }

    /// Opens a connection only to learn what the server offers hosts with this set; once per set.
    async fn probe_set(&self, set: CapabilitySet) {
        let gate = self.probing.entry(set.bits()).or_default().clone();
        let mut failed = gate.lock().await;
        let lately = failed.is_some_and(|at| at.elapsed() < Duration::from_secs(30));
        if lately || self.listings.contains_key(&set.bits()) || self.make_room().is_err() {
            return;
        }
        match self.dial_legacy(set).await {
            Ok(opened) => {
                let (listing, _) = refresh::read_all(&opened.connection, &opened, &self.shared.limits).await;
                self.publish(Some(set), listing);
                if let Some(old) = self.spares.insert(set.bits(), opened.connection) {
                    super::end(old, "replaced");
                }
            }
            Err(fault) => {
                *failed = Some(Instant::now());
                tracing::debug!(server = %self.name, %fault, "could not list for another capability set");
            }
        }
    }

    fn seconds(&self) -> u64 {
        self.opened.elapsed().as_secs()
    }

    /// Closes connections that nobody has used for long. Called by the janitor.
    pub fn close_idle(&self) {
        let idle = self.shared.limits.connection_idle.as_secs();
        let now = self.seconds();
        let old: Vec<Arc<Slot>> = self
            .slots
            .iter()
            .filter(|entry| now.saturating_sub(entry.value().last_used.load(Ordering::Relaxed)) >= idle)
            .map(|entry| entry.value().clone())
            .collect();
        for slot in old {
            if let Some(connection) = slot
                .current
                .load_full()
                .filter(|connection| connection.calls_in_flight() == 0)
            {
                slot.current.store(None);
                super::end(connection, "idle");
            }
        }
        let spares: Vec<u16> = self.spares.iter().map(|entry| *entry.key()).collect();
        for bits in spares {
            if let Some((_, spare)) = self.spares.remove(&bits) {
                super::end(spare, "idle");
            }
        }
    }
}

/// A seed for jitter that differs between servers.
fn quick_seed(name: &str) -> u64 {
    let bytes = crate::crypto::random::<8>();
    u64::from_le_bytes(bytes) ^ name.len() as u64
}

/// Passes reports of connections on, without keeping the server alive.
#[derive(Debug)]
struct ServerHooks {
    server: Weak<Server>,
    name: Arc<str>,
    events: Arc<dyn DownstreamEvents>,
}

impl Hooks for ServerHooks {
    fn list_changed(&self, connection: &Arc<Connection>, method: &str) {
        let Some(server) = self.server.upgrade() else {
            return;
        };
        let is_base = server
            .base
            .load()
            .as_ref()
            .is_some_and(|base| Arc::ptr_eq(base, connection));
        let set = connection
            .facts()
            .map_or(CapabilitySet::NONE, |facts| facts.capabilities);
        for kind in refresh::kinds_of(method) {
            server.mark_stale((!is_base).then_some(set), kind);
        }
    }

    fn acknowledged(&self, _: &Arc<Connection>, _: &Message) {}

    fn notice(&self, connection: &Arc<Connection>, message: Message) {
        let owner = connection.owner();
        match message.method().as_deref() {
            Some("notifications/resources/updated") => {
                self.events.resource_updated(&self.name, owner.as_ref(), &message);
            }
            _ => self.events.notice(&self.name, owner.as_ref(), message),
        }
    }

    fn reverse(&self, connection: &Arc<Connection>, message: Message, responder: Responder) {
        self.events
            .reverse(&self.name, connection.owner().as_ref(), message, responder);
    }

    fn withdrawn(&self, connection: &Arc<Connection>, id: &HostId, message: &Message) {
        self.events
            .withdrawn(&self.name, connection.owner().as_ref(), id, message);
    }

    fn closed(&self, connection: &Arc<Connection>, why: &str) {
        tracing::debug!(server = %self.name, late = connection.late_answers(), "connection ended: {why}");
    }
}

impl Downstream for Server {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn family(&self) -> Option<Family> {
        self.known_family()
    }

    fn listing(&self, set: Option<CapabilitySet>) -> Option<Arc<Listing>> {
        set.and_then(|set| self.exact_listing(set))
            .or_else(|| self.base_listing.load_full())
    }

    fn listed(&self, set: Option<CapabilitySet>) -> BoxFuture<'_, ()> {
        let new_set = |set: CapabilitySet| {
            self.serves_legacy()
                && !self.is_base_set(set)
                && !self.listings.contains_key(&set.bits())
                && !(self.shared.single_host && self.known_family() == Some(Family::Legacy))
        };
        if self.base_listing.load().is_some() && !set.is_some_and(new_set) {
            return Box::pin(std::future::ready(()));
        }
        Box::pin(async move {
            let mut listed = self.listed.subscribe();
            while self.base_listing.load().is_none() && !self.stop.is_cancelled() {
                let failed = self.state.borrow().phase == Phase::Failed;
                if failed || listed.changed().await.is_err() {
                    return;
                }
            }
            // A task of its own: a list that waits no longer must not end the attempt.
            if let (Some(set), Some(server)) = (set.filter(|set| new_set(*set)), self.me.upgrade()) {
                let _ = tasks::spawn(
                    "list for a capability set",
                    async move { server.probe_set(set).await },
                )
                .await;
            }
        })
    }

    fn open<'a>(
        &'a self,
        caller: &'a Arc<Caller>,
    ) -> BoxFuture<'a, Result<Arc<dyn DownstreamConnection>, CallFault>> {
        Box::pin(async move {
            let base = self.ready_base().await?;
            let modern = base.facts().is_some_and(|facts| facts.family == Family::Modern);
            let Some(key) = self.slot_key(caller).filter(|_| self.serves_legacy()) else {
                return Ok(base as _);
            };
            if self.shared.single_host && !modern {
                if base.owner().is_none() {
                    base.set_owner(caller.session.clone());
                    let slot = self.slots.entry(key).or_default().clone();
                    let again = slot.last_used.swap(self.seconds().max(1), Ordering::Relaxed) > 0;
                    self.restore(&base, caller, &slot, again);
                }
                return Ok(base as _);
            }
            match self.open_dedicated(caller, key).await {
                Ok(connection) => Ok(connection as _),
                // A modern server without a legacy side still serves what needs no bridging.
                Err(_) if modern && !self.serves_legacy() => Ok(base as _),
                Err(fault) => Err(fault),
            }
        })
    }

    fn opened(&self, caller: &Arc<Caller>) -> Option<Arc<dyn DownstreamConnection>> {
        let key = self.slot_key(caller)?;
        if self.shared.single_host && self.known_family() == Some(Family::Legacy) {
            return self.base().map(|connection| connection as _);
        }
        let slot = self.slots.get(&key).map(|slot| slot.clone())?;
        slot.current
            .load_full()
            .filter(|connection| !connection.is_closed())
            .map(|connection| connection as _)
    }

    fn admit(&self) -> BoxFuture<'_, Result<OwnedSemaphorePermit, CallFault>> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Box::pin(std::future::ready(Ok(place)));
        }
        Box::pin(async move {
            struct Queued<'a>(&'a AtomicUsize);
            impl Drop for Queued<'_> {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, Ordering::Relaxed);
                }
            }
            let busy =
                |what: &str| CallFault::unsent(FaultKind::Busy, format!("server \"{}\": {what}", self.name));
            if self.queued.fetch_add(1, Ordering::Relaxed) >= self.config.queue {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                return Err(busy("its queue is full; try again later"));
            }
            let _queued = Queued(&self.queued);
            match tokio::time::timeout(self.config.idle_timeout, self.places.clone().acquire_owned()).await {
                Ok(Ok(place)) => Ok(place),
                _ => Err(busy("no call has ended within idle_timeout; try again later")),
            }
        })
    }

    fn roots(&self) -> Option<String> {
        if self.config.roots.is_empty() {
            return None;
        }
        let roots: Vec<String> = self
            .config
            .roots
            .iter()
            .map(|uri| format!("{{\"uri\":{}}}", quote(uri)))
            .collect();
        Some(format!("{{\"roots\":[{}]}}", roots.join(",")))
    }

    fn watch(&self, uris: Vec<String>, tasks: Vec<String>) {
        self.watched.send_if_modified(|now| {
            let wanted = (uris, tasks);
            let changed = *now != wanted;
            if changed {
                *now = wanted;
            }
            changed
        });
    }

    fn note_subscription(&self, caller: &Arc<Caller>, uri: &str, on: bool) {
        let Some(slot) = self
            .slot_key(caller)
            .and_then(|key| self.slots.get(&key).map(|slot| slot.clone()))
        else {
            return;
        };
        let mut uris = slot
            .subscriptions
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if on {
            uris.insert(uri.to_owned());
        } else {
            uris.remove(uri);
        }
    }

    fn session_ended(&self, session: &Arc<Session>) {
        if self.shared.single_host || matches!(self.config.sharing, config::Sharing::Identity) {
            return;
        }
        if let Some((_, slot)) = self.slots.remove(&session.label)
            && let Some(connection) = slot.current.swap(None)
        {
            connection.set_owner(None);
            super::end(connection, "the session has ended");
        }
    }
}
