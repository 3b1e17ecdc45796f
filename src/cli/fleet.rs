//! The servers of the configuration, started for one command and ended with it.
//!
//! `check --connect`, `tools` and `call` use it. It listens to nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{ConfigArgs, Failure, print};
use crate::config::load::{Loaded, Sources, load};
use crate::downstream::state::Phase;
use crate::pipeline::port::{Downstream, Downstreams};
use crate::runtime::{Daemon, Role};

/// How often states are looked at.
const LOOK: Duration = Duration::from_millis(15);
/// Beyond a server's own start limit.
const SPARE: Duration = Duration::from_secs(5);

/// A daemon without listeners.
#[derive(Debug)]
pub struct Fleet {
    /// All its parts.
    pub daemon: Arc<Daemon>,
    started: Instant,
}

/// Reads the configuration for a command that shows results: its log is quiet unless the configuration says more.
///
/// # Errors
/// All problems, rendered with their places.
pub fn read(args: &ConfigArgs) -> Result<Loaded, Failure> {
    let colour = print::colour_on_stderr();
    let mut loaded = load(&Sources::of_process(args.files.clone(), args.overrides()))
        .map_err(|problems| Failure::Usage(problems.render(colour)))?;
    if loaded.config.telemetry.log == "info" {
        // The results say what went wrong; a log of the same would only stand between them.
        loaded.config.telemetry.log = "off".into();
    }
    crate::telemetry::start(&loaded.config.telemetry).map_err(Failure::Usage)?;
    Ok(loaded)
}

impl Fleet {
    /// Starts the servers, on their modern side where they have both. As a single host the base connections are the command's own, so no server starts twice.
    ///
    /// # Errors
    /// If policy or audit cannot be set up.
    pub fn start(loaded: Loaded) -> Result<Self, Failure> {
        let daemon =
            Daemon::build(loaded, Role::SingleHost).map_err(|error| Failure::Usage(error.to_string()))?;
        daemon.start();
        daemon.downstreams.host_seen(None);
        Ok(Self {
            daemon,
            started: Instant::now(),
        })
    }

    /// Whether every server is ready or has failed, or has had its time.
    #[must_use]
    pub fn settled(&self) -> bool {
        let config = self.daemon.config();
        self.daemon.downstreams.servers().iter().all(|server| {
            let limit = config
                .server(server.name())
                .map_or(SPARE, |server| server.start_timeout + SPARE);
            matches!(server.state().phase, Phase::Ready | Phase::Failed) || self.started.elapsed() > limit
        })
    }

    /// Waits until [`Self::settled`] or `enough` says so. Returns the reasons of servers that failed, by name.
    pub async fn wait(&self, enough: impl Fn() -> bool) -> HashMap<String, String> {
        while !enough() && !self.settled() {
            sleep(LOOK).await;
        }
        self.failed()
    }

    /// The servers that are not ready, with the reason.
    #[must_use]
    pub fn failed(&self) -> HashMap<String, String> {
        let status = self.daemon.status();
        status
            .servers
            .into_iter()
            .filter(|server| server.state != Phase::Ready.as_str())
            .map(|server| {
                let why = if server.detail.is_empty() {
                    format!("still {}", server.state)
                } else {
                    server.detail
                };
                (server.name, why)
            })
            .collect()
    }

    /// Ends the servers and the audit.
    ///
    /// # Errors
    /// If records were lost.
    pub async fn end(self) -> Result<(), Failure> {
        if self.daemon.shut_down().await {
            Ok(())
        } else {
            Err(Failure::Work(
                "the audit log could not be written to its end; check its directory, or set audit.durability to \"off\""
                    .into(),
            ))
        }
    }
}
