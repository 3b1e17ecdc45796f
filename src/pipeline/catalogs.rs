//! The catalogs in force: one per set of host capabilities that some host has asked with, built from the listings
//! of the moment and bound to the policy of the moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;

use super::port::{Downstream, Downstreams};
use crate::catalog::{Catalog, NameRules, ServerEntry};
use crate::config::Config;
use crate::policy::CompiledPolicy;
use crate::session::CapabilitySet;

/// What a reload replaces as one.
#[derive(Debug)]
pub struct Settings {
    /// The configuration.
    pub config: Arc<Config>,
    /// The compiled policy.
    pub policy: Arc<CompiledPolicy>,
    /// How public names are made.
    pub names: NameRules,
}

/// Which catalog: that of hosts with this capability set, or (`None`) the one of the base connections.
pub type CatalogKey = Option<CapabilitySet>;

/// See the module.
#[derive(Debug, Default)]
pub struct Catalogs {
    /// The newest catalog of each key, with the generation of listings and settings that it was built from.
    built: DashMap<CatalogKey, (u64, Arc<Catalog>)>,
    /// The catalog of each key that hosts were last told of.
    announced: DashMap<CatalogKey, Arc<Catalog>>,
    generation: AtomicU64,
    version: AtomicU64,
    warned: std::sync::Mutex<Vec<String>>,
}

impl Catalogs {
    /// Listings or settings have changed: what is built is out of date from this moment on.
    pub fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The catalog for these hosts; never one from before the last [`Catalogs::invalidate`].
    #[must_use]
    pub fn get(&self, key: CatalogKey, settings: &Settings, downstreams: &dyn Downstreams) -> Arc<Catalog> {
        let generation = self.generation.load(Ordering::Acquire);
        let known = self.built.get(&key).map(|entry| entry.value().clone());
        if let Some((built, catalog)) = &known
            && *built == generation
        {
            return catalog.clone();
        }
        let previous = known.as_ref().map(|(_, catalog)| catalog.as_ref());
        let catalog = self.build(key, settings, downstreams, previous);
        self.built.insert(key, (generation, catalog.clone()));
        self.announced.entry(key).or_insert_with(|| catalog.clone());
        catalog
    }

    /// Brings all catalogs up to date. Returns, for each, the one that hosts were last told of and the new one.
    #[must_use]
    pub fn rebuild(
        &self,
        settings: &Settings,
        downstreams: &dyn Downstreams,
    ) -> Vec<(CatalogKey, Arc<Catalog>, Arc<Catalog>)> {
        let keys: Vec<CatalogKey> = self.built.iter().map(|entry| *entry.key()).collect();
        let mut changes = Vec::new();
        for key in keys {
            let new = self.get(key, settings, downstreams);
            if let Some(old) = self.announced.insert(key, new.clone()) {
                changes.push((key, old, new));
            }
        }
        changes
    }

    /// Warnings of the last builds (collisions, names left out), for status.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warned
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    fn build(
        &self,
        key: CatalogKey,
        settings: &Settings,
        downstreams: &dyn Downstreams,
        previous: Option<&Catalog>,
    ) -> Arc<Catalog> {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let servers: Vec<ServerEntry> = downstreams
            .all()
            .iter()
            .filter_map(|server| entry(settings, server.as_ref(), key))
            .collect();
        let built = Catalog::build(version, &servers, &settings.names, &settings.policy, previous);
        let texts: Vec<String> = built.warnings.iter().map(ToString::to_string).collect();
        let mut warned = self
            .warned
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for text in &texts {
            if !warned.contains(text) {
                tracing::warn!("catalog: {text}");
            }
        }
        *warned = texts;
        Arc::new(built.catalog)
    }
}

fn entry(settings: &Settings, server: &dyn Downstream, key: CatalogKey) -> Option<ServerEntry> {
    let config = settings.config.server(server.name())?;
    let mut entry = ServerEntry::new(
        server.name(),
        settings.names.prefix(server.name(), config.prefix.as_deref()),
    );
    entry.rename.clone_from(&config.rename);
    entry.describe.clone_from(&config.describe);
    entry.listing = server.listing(key);
    Some(entry)
}
