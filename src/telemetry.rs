//! Logging to standard error, never to standard output: in `manifold stdio` that is the protocol.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogFormat, Telemetry};

/// Starts logging, once per process.
///
/// # Errors
/// If `telemetry.log` is no level and no filter.
pub fn start(telemetry: &Telemetry) -> Result<(), String> {
    let filter = EnvFilter::try_new(&telemetry.log)
        .map_err(|error| format!("telemetry.log: {error}; use a level such as \"info\" or filters such as \"info,manifold::host=debug\""))?;
    let colour =
        std::io::IsTerminal::is_terminal(&std::io::stderr()) && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour);
    let done = match telemetry.log_format {
        LogFormat::Text => builder.finish().try_init(),
        LogFormat::Json => builder.json().finish().try_init(),
    };
    // A second start in one process (tests) keeps the first.
    let _ = done;
    Ok(())
}
