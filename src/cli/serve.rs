//! `manifold serve`: the daemon.

use std::sync::Arc;
use std::time::Duration;

use super::load::{read, start, watch};
use super::{ConfigArgs, Failure};
use crate::admin::{AdminServer, AdminSettings};
use crate::host::{HostServer, HostSettings};
use crate::runtime::signal::{Order, Signals};
use crate::runtime::{Daemon, Role, reload};

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Bad configuration, addresses that cannot be bound, or losses at the end.
pub async fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let loaded = start(args)?;
    let files = loaded.files.clone();
    let config = &loaded.config;
    let (listen, admin) = (config.listen.clone(), config.admin.clone());
    let settings = HostSettings::from_config(&config.listen, &config.limits);
    let daemon = Daemon::build(loaded, Role::Daemon).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut signals = Signals::new().map_err(|error| Failure::Work(error.to_string()))?;
    let server = HostServer::start(&listen.http, settings, daemon.gateway.clone())
        .await
        .map_err(|error| Failure::Work(error.to_string()))?;
    let admin = match admin {
        None => None,
        Some(admin) => {
            let settings = AdminSettings {
                allowed_hosts: listen.allowed_hosts.clone(),
                token: admin.token.as_ref().map(|token| token.expose().to_owned()),
            };
            let started = AdminServer::start(&admin.http, settings, daemon.clone()).await;
            Some(started.map_err(|error| Failure::Work(error.to_string()))?)
        }
    };
    daemon.start();
    let (touched, mut changes) = tokio::sync::mpsc::channel(1);
    let _watcher = watch(files, touched);
    let args = args.clone();
    let source = move || read(&args);
    loop {
        let order = tokio::select! {
            order = signals.next() => order,
            Some(()) = changes.recv() => Order::Reload,
        };
        match order {
            Order::Reload => {
                reload::reload(&daemon, &source);
            }
            Order::Stop => break,
        }
    }
    daemon.drain();
    tracing::info!(
        "stopping: no new connections, calls may finish within {:?}",
        daemon.config().grace
    );
    let end = finish(&server, admin.as_ref(), &daemon);
    tokio::select! {
        clean = end => if clean { Ok(()) } else { Err(Failure::Work("the end was not clean, see the log".into())) },
        () = second_stop(&mut signals) => Err(Failure::Work("stopped at once by a second signal".into())),
    }
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await != Order::Stop {}
}

async fn finish(server: &HostServer, admin: Option<&AdminServer>, daemon: &Arc<Daemon>) -> bool {
    let grace = daemon.config().grace;
    server.stop_accepting();
    daemon.gateway.close_listeners();
    // The hosts of calls that outlive the grace are told so, and the drain has a moment for that.
    let told = std::time::Duration::from_millis(500);
    let abort = async {
        tokio::time::sleep(grace).await;
        daemon.gateway.abort_calls();
    };
    let drain = server.drain(grace + told);
    tokio::pin!(drain);
    let forced = tokio::select! {
        forced = &mut drain => forced,
        () = abort => drain.await,
    };
    if forced.connections + forced.requests > 0 {
        tracing::warn!(
            connections = forced.connections,
            requests = forced.requests,
            "the grace period was over: some had to be ended"
        );
    }
    let clean = tokio::time::timeout(Duration::from_secs(20), daemon.shut_down())
        .await
        .unwrap_or(false);
    if let Some(admin) = admin {
        admin.stop().await;
    }
    tracing::info!("stopped");
    clean
}
