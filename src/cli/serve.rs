//! `manifold serve`: the daemon.

use std::sync::Arc;
use std::time::Duration;

use super::{ConfigArgs, Failure};
use crate::host::{HostServer, HostSettings};
use crate::runtime::signal::{Order, Signals};
use crate::runtime::{Daemon, Role, reload};

/// Interim.
pub fn load(args: &ConfigArgs) -> Result<reload::Loaded, String> {
    let Some(file) = args.files.first() else { return Err("no --config".into()) };
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let config: crate::config::Config = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    Ok((config, crate::crypto::sha256_hex(text.as_bytes()), Vec::new()))
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Bad configuration, addresses that cannot be bound, or losses at the end.
pub async fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let (config, digest, refused) = load(args).map_err(Failure::Usage)?;
    crate::telemetry::start(&config.telemetry).map_err(Failure::Usage)?;
    let listen = config.listen.clone();
    let settings = HostSettings::from_config(&config.listen, &config.limits);
    let daemon = Daemon::build(config, digest, refused, Role::Daemon).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut signals = Signals::new().map_err(|error| Failure::Work(error.to_string()))?;
    let server = HostServer::start(&listen.http, settings, daemon.gateway.clone())
        .await
        .map_err(|error| Failure::Work(error.to_string()))?;
    daemon.start();
    let args = args.clone();
    let source = move || load(&args);
    loop {
        match signals.next().await {
            Order::Reload => {
                reload::reload(&daemon, &source);
            }
            Order::Stop => break,
        }
    }
    tracing::info!("stopping: no new connections, calls may finish within {:?}", daemon.config().grace);
    let end = finish(&server, &daemon);
    tokio::select! {
        clean = end => if clean { Ok(()) } else { Err(Failure::Work("the end was not clean, see the log".into())) },
        () = second_stop(&mut signals) => Err(Failure::Work("stopped at once by a second signal".into())),
    }
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await != Order::Stop {}
}

async fn finish(server: &HostServer, daemon: &Arc<Daemon>) -> bool {
    let grace = daemon.config().grace;
    server.stop_accepting();
    daemon.gateway.close_listeners();
    let forced = server.drain(grace).await;
    if forced.connections + forced.requests > 0 {
        tracing::warn!(
            connections = forced.connections,
            requests = forced.requests,
            "the grace period was over: some had to be ended"
        );
    }
    let clean = tokio::time::timeout(Duration::from_secs(20), daemon.shut_down()).await.unwrap_or(false);
    tracing::info!("stopped");
    clean
}
