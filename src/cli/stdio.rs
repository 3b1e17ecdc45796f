//! `manifold stdio`: one host on standard input and output. Standard output carries the protocol and nothing else.

use tokio_util::sync::CancellationToken;

use super::load::{read, start, watch};
use super::{ConfigArgs, Failure};
use crate::host::{HostSettings, serve_stdio};
use crate::runtime::signal::{Order, Signals};
use crate::runtime::{Daemon, Role, reload, tasks};

/// Runs until the host closes standard input or a signal says stop.
///
/// # Errors
/// Bad configuration, or losses at the end.
pub async fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let loaded = start(args)?;
    let files = loaded.files.clone();
    let settings = HostSettings::from_config(&loaded.config.listen, &loaded.config.limits);
    let daemon =
        Daemon::build(loaded, Role::SingleHost).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut signals = Signals::new().map_err(|error| Failure::Work(error.to_string()))?;
    daemon.start();
    let stop = CancellationToken::new();
    let (orders, source) = (stop.clone(), args.clone());
    let reloading = daemon.clone();
    let (touched, mut changes) = tokio::sync::mpsc::channel(1);
    let _watcher = watch(files, touched);
    tasks::spawn("signals", async move {
        loop {
            let order = tokio::select! {
                order = signals.next() => order,
                Some(()) = changes.recv() => Order::Reload,
            };
            match order {
                Order::Reload => {
                    reload::reload(&reloading, &|| read(&source));
                }
                Order::Stop => orders.cancel(),
            }
        }
    });
    let served = serve_stdio(
        daemon.gateway.clone(),
        tokio::io::stdin(),
        tokio::io::stdout(),
        settings,
        stop,
    )
    .await;
    let clean = daemon.shut_down().await;
    match served {
        Err(error) => Err(Failure::Work(format!("standard input or output failed: {error}"))),
        Ok(()) if !clean => Err(Failure::Work("the end was not clean, see the log".into())),
        Ok(()) => Ok(()),
    }
}
