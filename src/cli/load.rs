//! Reading the configuration for a command, with its warnings shown and logging started.

use tokio::sync::mpsc;

use super::{ConfigArgs, Failure};
use crate::config::load::{Loaded, LoadedFile, Sources, load};
use crate::config::watch::Watcher;

/// Reads the configuration again, as a reload does.
///
/// # Errors
/// All problems, rendered with their places.
pub fn read(args: &ConfigArgs) -> Result<Loaded, String> {
    load(&Sources::of_process(args.files.clone(), args.overrides()))
        .map_err(|problems| problems.render(false))
}

/// Reads the configuration, shows what is wrong or worth knowing, and starts logging.
///
/// # Errors
/// All problems, rendered with their places.
pub fn start(args: &ConfigArgs) -> Result<Loaded, Failure> {
    let colour = super::print::colour_on_stderr();
    let loaded = load(&Sources::of_process(args.files.clone(), args.overrides()))
        .map_err(|problems| Failure::Usage(problems.render(colour)))?;
    if !loaded.warnings.is_empty() {
        anstream::eprintln!("{}", loaded.warnings.render(colour));
    }
    crate::telemetry::start(&loaded.config.telemetry).map_err(Failure::Usage)?;
    for (server, why) in &loaded.refused {
        tracing::error!(server, "left out: {why}");
    }
    Ok(loaded)
}

/// Watches the files; each real change is one message. Without a watcher SIGHUP still works.
#[must_use]
pub fn watch(files: Vec<LoadedFile>, touched: mpsc::Sender<()>) -> Option<Watcher> {
    if files.is_empty() {
        return None;
    }
    match Watcher::start(files, move || {
        // One waiting order is enough: a reload reads everything.
        let _ = touched.try_send(());
    }) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!("the configuration files cannot be watched ({error}); send SIGHUP after a change");
            None
        }
    }
}
