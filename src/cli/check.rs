//! `manifold check`: everything that is wrong with configuration and policy and, with `--connect`, with the servers.

use clap::Args;
use serde::Serialize;

use super::fleet::{Fleet, read};
use super::print::{self, Rows, Tone, counted};
use super::{ConfigArgs, Failure};
use crate::catalog::{Catalog, ListKind, NameRules};
use crate::config::Config;
use crate::config::load::{Sources, load};
use crate::config::problem::Problems;
use crate::policy::Kind;
use crate::runtime::daemon::compile_policy;
use crate::runtime::status::ServerStatus;

/// What `manifold check` is told.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Start each server and report its state, revision, counts, collisions and shortened names.
    #[arg(long)]
    connect: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Report {
    /// Nothing is wrong.
    ok: bool,
    /// What makes the configuration unfit.
    problems: Vec<Note>,
    /// Worth knowing.
    warnings: Vec<Note>,
    /// Servers that cannot run as configured.
    refused: Vec<Refused>,
    /// Servers with `enabled: false`.
    disabled: Vec<String>,
    /// Server names.
    servers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<PolicyReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connected: Option<Connected>,
}

#[derive(Serialize)]
struct Note {
    path: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
}

#[derive(Serialize)]
struct Refused {
    server: String,
    reason: String,
}

#[derive(Serialize)]
struct PolicyReport {
    /// There is no policy: everything is allowed.
    open: bool,
    rules: usize,
    digest: String,
}

#[derive(Serialize)]
struct Connected {
    servers: Vec<ServerStatus>,
    /// Names that were changed beyond the prefix.
    altered_names: Vec<Altered>,
    /// Collisions and items that were left out.
    catalog_warnings: Vec<String>,
    /// Rules of the policy that match nothing that any server offers.
    rules_about_nothing: Vec<String>,
}

#[derive(Serialize)]
struct Altered {
    server: String,
    local: String,
    public: String,
}

fn notes(problems: &Problems) -> Vec<Note> {
    problems
        .iter()
        .map(|problem| {
            let place = problems.location(problem);
            let at = place.as_ref().filter(|place| place.line > 0);
            Note {
                path: problem.path.clone(),
                message: problem.message.clone(),
                help: problem.help.clone(),
                file: place.as_ref().map(|place| place.file.clone()),
                line: at.map(|place| place.line),
                column: at.map(|place| place.column),
            }
        })
        .collect()
}

/// Runs it.
///
/// # Errors
/// Problems of the configuration are bad usage; servers that do not work are failed work.
pub async fn run(args: &CheckArgs) -> Result<(), Failure> {
    let colour = print::colour_on_stderr();
    let sources = Sources::of_process(args.config.files.clone(), args.config.overrides());
    let loaded = match load(&sources) {
        Ok(loaded) => loaded,
        Err(problems) => {
            let many = counted(problems.len(), "problem");
            if args.json {
                print::json(&Report {
                    problems: notes(&problems),
                    ..Report::default()
                })?;
                return Err(Failure::Usage(String::new()));
            }
            return Err(Failure::Usage(format!(
                "{}\n{many} in the configuration",
                problems.render(colour)
            )));
        }
    };
    let policy = compile_policy(&loaded.config).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut report = Report {
        ok: loaded.refused.is_empty(),
        warnings: notes(&loaded.warnings),
        refused: loaded
            .refused
            .iter()
            .map(|(server, reason)| Refused {
                server: server.clone(),
                reason: reason.clone(),
            })
            .collect(),
        disabled: loaded.disabled.clone(),
        servers: loaded
            .config
            .servers
            .iter()
            .map(|server| server.name.clone())
            .collect(),
        policy: Some(PolicyReport {
            open: policy.is_open(),
            rules: loaded
                .config
                .policy
                .as_ref()
                .map_or(0, |policy| policy.rules.len()),
            digest: policy.digest().to_string(),
        }),
        ..Report::default()
    };
    if !args.json {
        if !loaded.warnings.is_empty() {
            print::note(&loaded.warnings.render(colour));
        }
        show_configuration(&report)?;
    }
    if args.connect {
        let connected = connect(args).await?;
        report.ok &= connected
            .servers
            .iter()
            .all(|server| server.state == "ready" && !server.incomplete);
        if !args.json {
            show_connected(&connected)?;
        }
        report.connected = Some(connected);
    }
    if args.json {
        print::json(&report)?;
    }
    match (report.ok, report.refused.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure::Work(if args.json {
            String::new()
        } else {
            "some servers are not fit, see above".into()
        })),
        (false, false) => Err(Failure::Usage(if args.json {
            String::new()
        } else {
            "some servers cannot run as they are configured, see above".into()
        })),
    }
}

fn show_configuration(report: &Report) -> Result<(), Failure> {
    let mut text = format!(
        "configuration: fine, {} ({})\n",
        counted(report.servers.len(), "server"),
        report.servers.join(", ")
    );
    if !report.disabled.is_empty() {
        text.push_str(&format!("disabled:      {}\n", report.disabled.join(", ")));
    }
    for one in &report.refused {
        text.push_str(&format!(
            "refused:       server \"{}\": {}\n",
            one.server, one.reason
        ));
    }
    match &report.policy {
        Some(policy) if policy.open => {
            text.push_str(
                "policy:        there is no policy section: every tool, prompt and resource is allowed\n",
            );
        }
        Some(policy) => text.push_str(&format!(
            "policy:        {}, digest {}\n",
            counted(policy.rules, "rule"),
            policy.digest.chars().take(12).collect::<String>()
        )),
        None => {}
    }
    print::out(&text)
}

async fn connect(args: &CheckArgs) -> Result<Connected, Failure> {
    // Read again, for a quiet log; nothing can have been left of the first reading.
    let loaded = read(&args.config)?;
    let fleet = Fleet::start(loaded)?;
    fleet.wait(|| false).await;
    let catalog = fleet.daemon.gateway.catalog(None);
    let config = fleet.daemon.config();
    let connected = Connected {
        servers: fleet.daemon.status().servers,
        altered_names: altered(&catalog, &config),
        catalog_warnings: fleet.daemon.gateway.warnings(),
        rules_about_nothing: idle_rules(&catalog, &config),
    };
    fleet.end().await?;
    Ok(connected)
}

fn altered(catalog: &Catalog, config: &Config) -> Vec<Altered> {
    let rules = NameRules {
        separator: config.names.separator.as_str().into(),
        max_length: config.names.max_length,
    };
    let mut altered = Vec::new();
    for entry in [ListKind::Tools, ListKind::Prompts]
        .into_iter()
        .flat_map(|kind| catalog.entries(kind))
    {
        let Some(server) = config.server(&entry.server_name) else {
            continue;
        };
        let renamed = server
            .rename
            .get(&*entry.local)
            .map_or(&*entry.local, String::as_str);
        let prefix = rules.prefix(&server.name, server.prefix.as_deref());
        if rules.public_name(&prefix, renamed).altered {
            altered.push(Altered {
                server: server.name.clone(),
                local: entry.local.to_string(),
                public: entry.public.to_string(),
            });
        }
    }
    altered
}

fn idle_rules(catalog: &Catalog, config: &Config) -> Vec<String> {
    let items = ListKind::ALL.into_iter().flat_map(|kind| {
        catalog
            .entries(kind)
            .iter()
            .map(move |entry| (kind.policy_kind(), &*entry.server_name, &*entry.local))
    });
    let reverse = config.servers.iter().flat_map(|server| {
        ["sampling", "elicitation", "roots"].map(|word| (Kind::Reverse, server.name.as_str(), word))
    });
    catalog
        .policy()
        .rules_about_nothing(items.chain(reverse))
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn show_connected(connected: &Connected) -> Result<(), Failure> {
    let mut rows = Rows::new(&[
        "server",
        "state",
        "revision",
        "family",
        "transport",
        "tools",
        "prompts",
        "resources",
    ]);
    for server in &connected.servers {
        let tone = if server.state == "ready" {
            Tone::Good
        } else {
            Tone::Bad
        };
        let given = |text: &Option<String>| (text.clone().unwrap_or_else(|| "-".into()), Tone::Plain);
        let number = |count: usize| (count.to_string(), Tone::Plain);
        rows.add([
            (server.name.clone(), Tone::Plain),
            (server.state.clone(), tone),
            given(&server.revision),
            given(&server.family),
            given(&server.transport),
            number(server.tools),
            number(server.prompts),
            number(server.resources),
        ]);
    }
    let mut text = format!("\n{}", rows.text());
    let mut add = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for server in connected.servers.iter().filter(|server| server.state != "ready") {
        let whole = if server.detail.starts_with("server ") {
            server.detail.clone()
        } else {
            format!(
                "server \"{}\" is {}: {}",
                server.name, server.state, server.detail
            )
        };
        add(format!("\n{whole}"));
        for line in &server.stderr {
            add(format!("  | {line}"));
        }
    }
    for server in connected.servers.iter().filter(|server| server.incomplete) {
        add(format!(
            "\nserver \"{}\": a list could not be read to its end; what was read is listed",
            server.name
        ));
    }
    if !connected.altered_names.is_empty() {
        add("\nnames changed beyond the prefix (illegal characters or too long):".into());
        for one in &connected.altered_names {
            add(format!("  {}/{} is {}", one.server, one.local, one.public));
        }
    }
    if !connected.catalog_warnings.is_empty() {
        add("\nwarnings of the catalog:".into());
        for warning in &connected.catalog_warnings {
            add(format!("  {warning}"));
        }
    }
    if !connected.rules_about_nothing.is_empty() {
        add("\nrules about nothing that any server offers:".into());
        for rule in &connected.rules_about_nothing {
            add(format!("  {rule}"));
        }
    }
    print::out(&text)
}
