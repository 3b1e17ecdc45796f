//! `manifold call`: one tool call through the whole pipeline, with the command line as its host.
//!
//! Policy, audit and limits are those of the daemon. The command speaks the family of the tool's server, declares no
//! capabilities, and so cannot be asked anything by the server.

mod stream;

use std::sync::Arc;

use clap::Args;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::stream::Terminal;
use super::fleet::{Fleet, read};
use super::{ConfigArgs, Failure, print};
use crate::catalog::{Catalog, ListKind};
use crate::config::nearest_word;
use crate::identity::Identity;
use crate::pipeline::{HostRequest, HostService};
use crate::revision::{Family, Revision};
use crate::runtime::signal::{Order, Signals};
use crate::session::{Caller, CapabilitySet, HostTransport, LogLevel, Session};
use crate::wire::Message;
use crate::wire::json::{JsonLimits, quote};

/// The name under which the command appears in the audit log and at servers.
const HOST_NAME: &str = "manifold call";
/// How long a name may take to appear once all servers are settled.
const LATE: Duration = Duration::from_millis(500);
/// Longest argument text read from standard input.
const MAX_ARGUMENTS: u64 = 64 * 1024 * 1024;

/// What `manifold call` is told.
#[derive(Debug, Args)]
pub struct CallArgs {
    /// The public name of the tool, as `manifold tools` lists it: `notes__add_note`.
    name: String,
    /// Its arguments, a JSON object; `-` reads them from standard input.
    #[arg(value_name = "JSON", default_value = "{}", hide_default_value = true)]
    arguments: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the whole result as JSON, byte for byte as the host would get it.
    #[arg(long)]
    json: bool,
}

/// Runs it.
///
/// # Errors
/// Bad arguments or configuration; a tool that fails, is unknown, or asks for input.
pub async fn run(args: &CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments).await?;
    let loaded = read(&args.config)?;
    let mut signals = Signals::new().map_err(|error| Failure::Work(error.to_string()))?;
    let fleet = Fleet::start(loaded)?;
    let cancel = CancellationToken::new();
    let outcome = {
        let call = call(&fleet, &args.name, &arguments, args.json, &cancel);
        tokio::pin!(call);
        loop {
            tokio::select! {
                outcome = &mut call => break outcome,
                order = signals.next() => if order == Order::Stop { cancel.cancel() },
            }
        }
    };
    // The reason of a failed call is worth more than that of an unclean end.
    let ended = fleet.end().await;
    outcome.and(ended)
}

async fn arguments(given: &str) -> Result<String, Failure> {
    let text = if given == "-" {
        let mut text = String::new();
        tokio::io::stdin()
            .take(MAX_ARGUMENTS)
            .read_to_string(&mut text)
            .await
            .map_err(|error| Failure::Usage(format!("standard input cannot be read as text: {error}")))?;
        text
    } else {
        given.to_owned()
    };
    let text = if text.trim().is_empty() {
        "{}".to_owned()
    } else {
        text
    };
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(_)) => Ok(text),
        Ok(_) => Err(Failure::Usage(
            "the arguments must be a JSON object, such as '{\"title\":\"hello\"}'".into(),
        )),
        Err(error) => Err(Failure::Usage(format!(
            "the arguments are not JSON: {error}; give an object, such as '{{\"title\":\"hello\"}}'"
        ))),
    }
}

async fn call(
    fleet: &Fleet,
    name: &str,
    arguments: &str,
    json: bool,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let gateway = &fleet.daemon.gateway;
    let here = || gateway.catalog(None).tool(name).is_some();
    let stopped = || Failure::Work("stopped before the call was made".into());
    tokio::select! {
        _ = fleet.wait(here) => {}
        () = cancel.cancelled() => return Err(stopped()),
    }
    let settled = Instant::now();
    while !here() && settled.elapsed() < LATE {
        // The last listing may not be in the catalog yet.
        gateway.apply_again();
        sleep(Duration::from_millis(15)).await;
    }
    let catalog = gateway.catalog(None);
    let Some(family) = catalog
        .tool(name)
        .filter(|entry| entry.listed())
        .map(|entry| entry.family)
    else {
        // The pipeline would say the same of an unknown and of a hidden name, so hidden ones are asked all the same:
        // the denial belongs into the audit log.
        if catalog.tool(name).is_some() {
            let reply = ask(fleet, Family::Legacy, name, arguments, cancel).await;
            drop(reply);
        }
        return Err(Failure::Work(unknown(fleet, &catalog, name)));
    };
    let (terminal, reply) = ask(fleet, family, name, arguments, cancel).await?;
    terminal.end();
    let Some(reply) = reply else {
        return Err(Failure::Work(format!("the call of \"{name}\" was cancelled")));
    };
    if json {
        let text = String::from_utf8_lossy(&reply).into_owned();
        print::out(&result_text(&text))?;
    }
    let value: Value = serde_json::from_slice(&reply)
        .map_err(|error| Failure::Work(format!("the answer cannot be read: {error}")))?;
    show(&value, name, json)
}

/// Makes the request; `None` in place of the answer if it was cancelled.
async fn ask(
    fleet: &Fleet,
    family: Family,
    name: &str,
    arguments: &str,
    cancel: &CancellationToken,
) -> Result<(Arc<Terminal>, Option<bytes::Bytes>), Failure> {
    let terminal = Arc::new(Terminal::new(name));
    let caller = caller(family, &terminal);
    let context = match family {
        Family::Legacy => String::new(),
        Family::Modern => format!(
            ",\"io.modelcontextprotocol/protocolVersion\":{},\"io.modelcontextprotocol/clientInfo\":{{\"name\":{},\"version\":{}}},\"io.modelcontextprotocol/clientCapabilities\":{{}},\"io.modelcontextprotocol/logLevel\":\"info\"",
            quote(caller.revision.as_str()),
            quote(HOST_NAME),
            quote(env!("CARGO_PKG_VERSION")),
        ),
    };
    let text = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":{},\"arguments\":{arguments},\"_meta\":{{\"progressToken\":1{context}}}}}}}",
        quote(name)
    );
    let message = Message::parse(text.into(), JsonLimits::default())
        .map_err(|error| Failure::Usage(format!("the arguments are not acceptable: {error}")))?;
    let request = HostRequest {
        caller,
        message,
        stream: terminal.clone(),
        cancel: cancel.clone(),
        headers: None,
    };
    let reply = fleet.daemon.gateway.clone().request(request).await;
    Ok((terminal, reply.message.map(crate::wire::Outgoing::into_bytes)))
}

fn caller(family: Family, terminal: &Arc<Terminal>) -> Arc<Caller> {
    let identity = Identity::local_stdio();
    let legacy = family == Family::Legacy;
    let session = legacy.then(|| {
        let session = Session::new("".into(), "call".into(), identity.clone(), terminal.clone());
        session.set_initialized();
        Arc::new(session)
    });
    Arc::new(Caller {
        identity,
        host_name: HOST_NAME.into(),
        host_version: env!("CARGO_PKG_VERSION").into(),
        transport: HostTransport::Stdio,
        revision: if legacy {
            Revision::newest_legacy()
        } else {
            Revision::newest_modern()
        },
        capabilities: CapabilitySet::NONE,
        session,
        in_flight: None,
        log_level: Some(LogLevel::Info),
    })
}

/// The `result` or `error` of the answer as its bytes stand, with a newline.
fn result_text(text: &str) -> String {
    let payload = Message::parse(text.to_owned().into(), JsonLimits::default())
        .ok()
        .and_then(|message| message.payload().map(|span| message.slice(span)));
    match payload {
        Some(payload) => format!("{}\n", String::from_utf8_lossy(&payload)),
        None => format!("{text}\n"),
    }
}

fn unknown(fleet: &Fleet, catalog: &Catalog, name: &str) -> String {
    let listed: Vec<&str> = catalog
        .entries(ListKind::Tools)
        .iter()
        .filter(|entry| entry.listed())
        .map(|entry| &*entry.public)
        .collect();
    let mut text = format!("there is no tool \"{name}\"");
    if let Some(near) = nearest_word(name, listed.iter().copied()) {
        text.push_str(&format!("; did you mean \"{near}\"?"));
    }
    text.push_str("; `manifold tools` lists them all");
    let mut failed: Vec<(String, String)> = fleet.failed().into_iter().collect();
    failed.sort();
    for (server, reason) in failed {
        text.push_str(&format!("\n  server \"{server}\" is not ready: {reason}"));
    }
    text
}

fn show(answer: &Value, name: &str, json: bool) -> Result<(), Failure> {
    let text_of = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    if let Some(error) = answer.get("error") {
        let message = text_of(error, "message").unwrap_or_else(|| error.to_string());
        let side = error
            .pointer("/data/manifold/side")
            .and_then(Value::as_str)
            .unwrap_or("downstream");
        return Err(Failure::Work(format!("{message} (said by: {side})")));
    }
    let result = answer.get("result").unwrap_or(&Value::Null);
    match result.get("resultType").and_then(Value::as_str) {
        Some("input_required") => {
            return Err(Failure::Work(format!(
                "the tool \"{name}\" asks for input (sampling, elicitation or roots), which `manifold call` cannot give; call it from a host"
            )));
        }
        Some("task") if !json => {
            print::out(&format!("{result}\n"))?;
            return Ok(());
        }
        _ => {}
    }
    if !json {
        let mut shown = false;
        for item in result
            .get("content")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            shown = true;
            content(item)?;
        }
        if let Some(structured) = result.get("structuredContent").filter(|_| !shown) {
            print::json(structured)?;
        }
    }
    if result.get("isError") == Some(&Value::Bool(true)) {
        return Err(Failure::Work(format!("the tool \"{name}\" says that it failed")));
    }
    Ok(())
}

/// One item of the result: texts and links as they are, everything else by a line on standard error.
fn content(item: &Value) -> Result<(), Failure> {
    let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str);
    match text("/type") {
        Some("text") => line(text("/text").unwrap_or_default()),
        Some("resource_link") => line(text("/uri").unwrap_or_default()),
        Some("resource") if text("/resource/text").is_some() => {
            line(text("/resource/text").unwrap_or_default())
        }
        other => {
            let kind = text("/mimeType")
                .or_else(|| text("/resource/mimeType"))
                .unwrap_or("of unknown type");
            print::note(&format!(
                "[{} {kind}: --json prints it]",
                other.unwrap_or("content")
            ));
            Ok(())
        }
    }
}

fn line(text: &str) -> Result<(), Failure> {
    if text.ends_with('\n') {
        print::out(text)
    } else {
        print::out(&format!("{text}\n"))
    }
}
