//! A new configuration: load, validate, compile, compare, apply. All or nothing; a bad one keeps what runs and says
//! why.

use std::sync::Arc;

use super::daemon::Daemon;
use crate::audit::{Event, Outcome, Record};
use crate::config::load::Loaded;

/// Loads and applies once. Returns whether something changed.
pub fn reload(daemon: &Arc<Daemon>, load: &(dyn Fn() -> Result<Loaded, String> + Send + Sync)) -> bool {
    let lock = || {
        daemon
            .reloads
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    let refused = |why: String| {
        tracing::error!("the new configuration is refused, the old one stays in force:\n{why}");
        daemon.audit.record(Record {
            outcome: Some(Outcome::Error),
            detail: Some("the new configuration is refused".into()),
            ..Record::new(Event::Reload)
        });
        let mut report = lock();
        report.refused += 1;
        report.last_error = Some(why);
        false
    };
    let loaded = match load() {
        Ok(loaded) => loaded,
        Err(why) => return refused(why),
    };
    if *daemon.config() == loaded.config {
        tracing::info!("reload: nothing has changed");
        return false;
    }
    let (old, new) = (daemon.config(), &loaded.config);
    for (changed, key) in [
        (old.listen != new.listen, "listen"),
        (old.admin != new.admin, "admin"),
        (old.audit != new.audit, "audit"),
        (old.state_dir != new.state_dir, "state_dir"),
        (old.telemetry != new.telemetry, "telemetry"),
        (old.limits != new.limits, "limits"),
    ] {
        if changed {
            tracing::warn!("reload: \"{key}\" has changed; that takes effect when manifold is started again");
        }
    }
    match daemon.apply(loaded) {
        Ok(difference) => {
            tracing::info!(
                added = ?difference.added,
                changed = ?difference.changed,
                removed = ?difference.removed,
                "reload: the new configuration is in force"
            );
            let mut report = lock();
            report.applied += 1;
            report.last_error = None;
            true
        }
        Err(fault) => refused(fault.to_string()),
    }
}
