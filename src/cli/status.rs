//! `manifold status`: the running daemon's view of itself, asked over its administration listener.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;

use super::net::{Body, Target};
use super::print::{self, Rows, Tone, counted};
use super::{ConfigArgs, Failure, fleet};
use crate::config::BindAddress;

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer that is read.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// What `manifold status` is told.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The daemon's administration address; default: `admin.http` of the configuration.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Print the daemon's answer as JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs it.
///
/// # Errors
/// That nothing answers, or that the address is not known.
pub async fn run(args: &StatusArgs) -> Result<(), Failure> {
    let config = fleet::read(&args.config)?.config;
    let address = match (&args.url, config.admin.as_ref().map(|admin| &admin.http)) {
        (Some(url), _) => url.clone(),
        (None, None) => {
            return Err(Failure::Usage(
                "the configuration has no administration listener (admin: null); give its address with --url"
                    .into(),
            ));
        }
        (None, Some(BindAddress::Unix(path))) => format!("unix:{}", path.display()),
        (None, Some(BindAddress::Tcp(address))) if address.ends_with(":0") => {
            return Err(Failure::Usage(format!(
                "admin.http is {address}: the system picked the port when the daemon started. Its log names the address (\"listening for administration on ...\"); give it with --url"
            )));
        }
        (None, Some(BindAddress::Tcp(address))) => format!("http://{address}"),
    };
    let target = Target::parse(&address, "/status").map_err(Failure::Usage)?;
    let mut headers = HeaderMap::new();
    let token = config.admin.as_ref().and_then(|admin| admin.token.as_ref());
    if let Some(mut value) =
        token.and_then(|token| HeaderValue::from_str(&format!("Bearer {}", token.expose())).ok())
    {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let asked = async {
        let answer = target
            .send(Method::GET, headers, Body::new(Bytes::new(), None))
            .await
            .map_err(|error| {
                Failure::Work(format!(
                    "{error}\nIs the daemon running? Start it with `manifold serve`, or name another address with --url or --config."
                ))
            })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER)
            .collect()
            .await
            .map_err(|error| Failure::Work(format!("{}: the answer broke off: {error}", target.shown())))?;
        Ok((status, body.to_bytes()))
    };
    let (status, body) = tokio::time::timeout(PATIENCE, asked)
        .await
        .map_err(|_| Failure::Work(format!("{} does not answer in time", target.shown())))??;
    let refused = |what: &str| Failure::Work(format!("{} {what}", target.shown()));
    match status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => {
            return Err(refused(
                "wants a token: give this command the configuration with admin.token (--config)",
            ));
        }
        other => {
            return Err(refused(&format!(
                "answered {other}; is it manifold's administration address?"
            )));
        }
    }
    let value: Value = serde_json::from_slice(&body)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| refused("did not answer with a status; is it manifold's administration address?"))?;
    if args.json {
        return print::json(&value);
    }
    print::out(&text(&value))
}

fn text(status: &Value) -> String {
    let word = |value: &Value, key: &str| match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    };
    let number = |key: &str| status.get(key).and_then(Value::as_u64).unwrap_or_default();
    let count = |key: &str, noun: &str| counted(usize::try_from(number(key)).unwrap_or(usize::MAX), noun);
    let mut rows = Rows::new(&[
        "server",
        "state",
        "since",
        "revision",
        "transport",
        "tools",
        "prompts",
        "resources",
        "calls",
        "last failure",
    ]);
    for server in status
        .get("servers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let state = word(server, "state");
        let tone = match state.as_str() {
            "ready" => Tone::Good,
            "idle" | "starting" => Tone::Unsure,
            _ => Tone::Bad,
        };
        let since = word(server, "since");
        // Seconds are enough for people.
        let since = since
            .split_once('.')
            .map_or(since.clone(), |(whole, _)| format!("{whole}Z"));
        let mut failure = word(server, "last_failure");
        if failure == "-" && state == "refused" {
            failure = word(server, "detail");
        }
        rows.add([
            (word(server, "name"), Tone::Plain),
            (state, tone),
            (since, Tone::Plain),
            (word(server, "revision"), Tone::Plain),
            (word(server, "transport"), Tone::Plain),
            (word(server, "tools"), Tone::Plain),
            (word(server, "prompts"), Tone::Plain),
            (word(server, "resources"), Tone::Plain),
            (word(server, "calls_in_flight"), Tone::Plain),
            (failure, Tone::Plain),
        ]);
    }
    let mut text = format!(
        "manifold {} since {}: {}, {}, {} since then, {} in flight, {} refused\n\n{}",
        word(status, "version"),
        word(status, "started"),
        count("sessions", "session"),
        count("listeners", "listener"),
        count("calls", "call"),
        number("calls_in_flight"),
        number("rejected"),
        rows.text()
    );
    if status.get("policy_open") == Some(&Value::Bool(true)) {
        text.push_str("\nThere is no policy section: every tool, prompt and resource is allowed.\n");
    }
    if status.pointer("/audit/failing") == Some(&Value::Bool(true)) {
        text.push_str("\nThe audit log cannot be written; the daemon's log says why.\n");
    }
    if let Some(error) = status.pointer("/reloads/last_error").and_then(Value::as_str) {
        text.push_str(&format!(
            "\nThe last new configuration was refused, the old one stays in force:\n{error}\n"
        ));
    }
    for warning in status
        .get("warnings")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        text.push_str(&format!("\nwarning: {}", warning.as_str().unwrap_or_default()));
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
