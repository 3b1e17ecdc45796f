//! `manifold stdio`: one host on standard input and output. Standard output carries the protocol and nothing else.

use tokio_util::sync::CancellationToken;

use super::{ConfigArgs, Failure, serve};
use crate::host::{HostSettings, serve_stdio};
use crate::runtime::signal::{Order, Signals};
use crate::runtime::{Daemon, Role, reload, tasks};

/// Runs until the host closes standard input or a signal says stop.
///
/// # Errors
/// Bad configuration, or losses at the end.
pub async fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let (config, digest, refused) = serve::load(args).map_err(Failure::Usage)?;
    crate::telemetry::start(&config.telemetry).map_err(Failure::Usage)?;
    let settings = HostSettings::from_config(&config.listen, &config.limits);
    let daemon =
        Daemon::build(config, digest, refused, Role::SingleHost).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut signals = Signals::new().map_err(|error| Failure::Work(error.to_string()))?;
    daemon.start();
    let stop = CancellationToken::new();
    let (orders, source) = (stop.clone(), args.clone());
    let reloading = daemon.clone();
    tasks::spawn("signals", async move {
        loop {
            match signals.next().await {
                Order::Reload => {
                    reload::reload(&reloading, &|| serve::load(&source));
                }
                Order::Stop => orders.cancel(),
            }
        }
    });
    let served = serve_stdio(daemon.gateway.clone(), tokio::io::stdin(), tokio::io::stdout(), settings, stop).await;
    let clean = daemon.shut_down().await;
    match served {
        Err(error) => Err(Failure::Work(format!("standard input or output failed: {error}"))),
        Ok(()) if !clean => Err(Failure::Work("the end was not clean, see the log".into())),
        Ok(()) => Ok(()),
    }
}
