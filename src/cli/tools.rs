//! `manifold tools`: the merged catalog with the verdict for each tool.

use clap::Args;
use serde::Serialize;

use super::fleet::{Fleet, read};
use super::print::{self, Rows, Tone};
use super::{ConfigArgs, Failure};
use crate::catalog::{Entry, ListKind};
use crate::revision::Family;
use crate::wire::Span;
use crate::wire::json::{ValueKind, kind_of, member, unquote};

/// Longest description that a table shows, in characters.
const DESCRIPTION: usize = 72;

/// What `manifold tools` is told.
#[derive(Debug, Args)]
pub struct ToolsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Decide as for this identity. Rules about identities are not offered yet: the verdict is the same for all.
    #[arg(long = "as", value_name = "IDENTITY")]
    identity: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    policy_open: bool,
    tools: Vec<Tool>,
    servers_not_ready: Vec<NotReady>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Tool {
    name: String,
    server: String,
    local: String,
    /// `allow` or `deny`.
    verdict: &'static str,
    /// Which part of the policy decided.
    layer: &'static str,
    rules: Vec<String>,
    description: String,
}

#[derive(Serialize)]
struct NotReady {
    server: String,
    reason: String,
}

/// Runs it.
///
/// # Errors
/// Bad configuration, or that nothing could be listed.
pub async fn run(args: &ToolsArgs) -> Result<(), Failure> {
    let loaded = read(&args.config)?;
    let fleet = Fleet::start(loaded)?;
    let mut failed: Vec<NotReady> = fleet
        .wait(|| false)
        .await
        .into_iter()
        .map(|(server, reason)| NotReady { server, reason })
        .collect();
    failed.sort_by(|a, b| a.server.cmp(&b.server));
    let catalog = fleet.daemon.gateway.catalog(None);
    let report = Report {
        identity: args.identity.clone(),
        policy_open: catalog.policy().is_open(),
        tools: catalog.entries(ListKind::Tools).iter().map(tool).collect(),
        servers_not_ready: failed,
        warnings: fleet.daemon.gateway.warnings(),
    };
    let servers = fleet.daemon.config().servers.len();
    fleet.end().await?;
    if let Some(identity) = &args.identity {
        print::note(&format!(
            "--as {identity}: rules about identities are not offered by this version, so the verdict is the same for everyone"
        ));
    }
    if args.json {
        print::json(&report)?;
    } else {
        show(&report)?;
    }
    if servers > 0 && report.servers_not_ready.len() >= servers && report.tools.is_empty() {
        return Err(Failure::Work(
            "no server could be listed; `manifold check --connect` says more".into(),
        ));
    }
    Ok(())
}

fn show(report: &Report) -> Result<(), Failure> {
    let mut rows = Rows::new(&["tool", "verdict", "by", "description"]);
    for tool in &report.tools {
        let by = if tool.rules.is_empty() {
            tool.layer.to_owned()
        } else {
            tool.rules.join(", ")
        };
        let tone = if tool.verdict == "allow" {
            Tone::Good
        } else {
            Tone::Bad
        };
        rows.add([
            (tool.name.clone(), Tone::Plain),
            (tool.verdict.to_owned(), tone),
            (by, Tone::Plain),
            (shortened(&tool.description), Tone::Plain),
        ]);
    }
    print::out(&rows.text())?;
    for one in &report.servers_not_ready {
        print::note(&format!(
            "warning: server \"{}\" is not ready, its tools are those last known: {}",
            one.server, one.reason
        ));
    }
    for warning in &report.warnings {
        print::note(&format!("warning: {warning}"));
    }
    if report.policy_open {
        print::note("There is no policy section: every tool, prompt and resource is allowed.");
    }
    Ok(())
}

fn tool(entry: &Entry) -> Tool {
    Tool {
        name: entry.public.to_string(),
        server: entry.server_name.to_string(),
        local: entry.local.to_string(),
        verdict: if entry.listed() { "allow" } else { "deny" },
        layer: entry.bound.layer().as_str(),
        rules: entry.bound.rules().iter().map(ToString::to_string).collect(),
        description: description(entry),
    }
}

fn description(entry: &Entry) -> String {
    let item = entry.json(Family::Modern);
    member(item, Span::new(0, item.len()), "description")
        .map(|span| span.of(item))
        .filter(|raw| kind_of(raw) == Some(ValueKind::String))
        .map(|raw| unquote(raw).into_owned())
        .unwrap_or_default()
}

fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    if line.chars().count() <= DESCRIPTION {
        return line.to_owned();
    }
    let mut short: String = line.chars().take(DESCRIPTION - 1).collect();
    short.push('…');
    short
}
