//! Makes a [`Config`] from layers: defaults, then files in order, then `MANIFOLD_*` variables, then flags.
//!
//! The command line and the reload call [`load`]. It reports every problem at once, each with its position. It reads
//! the process environment only in [`Sources::of_process`]; everything else is injected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::value::{Dict, Map, Value as FigmentValue};
use figment::{Figment, Metadata, Profile, Provider};

use super::check::{Checker, Manner};
use super::locate::{KeyPath, Part, locate};
use super::problem::{Mark, Problem, Problems, Source};
use super::resolve::{Resolver, home_path};
use super::tree::{Entry, Format, Kind, Node, parse};
use super::{BindAddress, Config, host_file, schema, validate};
use crate::crypto;

/// What runs when no file is given.
const DEFAULT_FILE: &str = include_str!("../../config/default.yaml");
/// What that file is called in messages.
const DEFAULT_NAME: &str = "the built-in config/default.yaml";
/// The longest configuration file in bytes.
const MAX_FILE: usize = 8 * 1024 * 1024;
/// Every variable with this beginning is a key of the configuration, except those below.
const PREFIX: &str = "MANIFOLD_";
/// Read by the command line.
const OTHER_VARIABLES: &[&str] = &["MANIFOLD_CONFIG"];
/// Kubernetes puts these into every container when a service is called `manifold`.
const CLUSTER_VARIABLES: &[&str] = &["MANIFOLD_SERVICE_", "MANIFOLD_PORT"];

/// Where the configuration comes from.
#[derive(Clone, Default)]
pub struct Sources {
    /// Files, later ones over earlier ones. None = the built-in default.
    pub files: Vec<PathBuf>,
    /// The environment: `MANIFOLD_*` keys, references to variables, `HOME`.
    pub environment: BTreeMap<String, String>,
    /// Flags: a key path such as `listen.http`, and its value as text. Lists and maps in JSON or YAML flow style.
    pub overrides: Vec<(String, String)>,
    /// The running binary, which `${self}` stands for.
    pub program: Option<PathBuf>,
}

impl Sources {
    /// These files and flags with the environment of this process: the one place that reads it. Variables that are
    /// not UTF-8 are left out.
    #[must_use]
    pub fn of_process(files: Vec<PathBuf>, overrides: Vec<(String, String)>) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            files,
            environment,
            overrides,
            program: std::env::current_exe().ok(),
        }
    }
}

/// A file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedFile {
    /// Its path.
    pub path: PathBuf,
    /// SHA-256 of its content, in hexadecimal.
    pub digest: String,
}

/// A configuration that is fit to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration, with secrets resolved, without servers that are refused or not enabled.
    pub config: Config,
    /// Worth knowing, not wrong.
    pub warnings: Problems,
    /// Servers that cannot run, with the reason (never a secret's value): the others run without them.
    pub refused: Vec<(String, String)>,
    /// Names of servers with `enabled: false`.
    pub disabled: Vec<String>,
    /// SHA-256 of the effective configuration as written, in hexadecimal. Equal digests with equal secrets mean that
    /// nothing changed.
    pub digest: String,
    /// The files that were read, for [`Watcher`](super::watch::Watcher).
    pub files: Vec<LoadedFile>,
}

/// What reading the layers has collected so far.
#[derive(Default)]
struct Reading {
    sources: Vec<Source>,
    layers: Vec<Node>,
    files: Vec<LoadedFile>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

/// Reads, checks and resolves the configuration.
///
/// # Errors
/// All problems that make it unfit to run. A secret that cannot be resolved only refuses its server.
pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    let mut reading = Reading::default();
    if sources.files.is_empty() {
        reading.text(DEFAULT_NAME.to_owned(), DEFAULT_FILE.to_owned(), Format::Yaml);
    }
    for path in &sources.files {
        reading.file(path);
    }
    reading.variables(&sources.environment);
    reading.flags(&sources.overrides);
    reading.require_policy_default();
    let Reading {
        sources: texts,
        layers,
        files,
        mut problems,
        mut warnings,
    } = reading;

    let merged = merge(&layers, &problems);
    let mut config: Config = match merged.extract() {
        Ok(config) => config,
        Err(errors) => {
            // The checker has taken out what does not fit the schema; this is for rules that no schema can say.
            for error in errors {
                let path = KeyPath::parse(&error.path.join("."));
                let mark = locate(&layers, &path, Part::Value);
                problems.push(Problem::new(path, error.kind.to_string()).at(mark));
            }
            return Err(Problems::new(&texts, in_order(problems)));
        }
    };
    let effective: serde_json::Value = merged.extract().unwrap_or_default();
    let digest = crypto::sha256_hex(effective.to_string().as_bytes());

    restore_order(&mut config, &layers);
    expand_home(&mut config, &sources.environment, &layers, &mut problems);
    let structural = problems.len();
    validate::validate(&config, &layers, &mut problems, &mut warnings);
    drop_consequences(&mut problems, structural);

    let resolver = Resolver {
        environment: &sources.environment,
        program: sources.program.as_deref(),
    };
    let position = |path: &KeyPath| {
        let mark = locate(&layers, path, Part::Value)?;
        let source = texts.get(mark.source)?;
        let (line, column) = super::locate::line_column(source.text.as_deref()?, mark.start);
        Some(format!("{}:{line}:{column}", source.name))
    };
    let Split {
        running,
        disabled,
        refused,
    } = resolve_servers(std::mem::take(&mut config.servers), &resolver, &position);
    config.servers = running;
    if let Some(token) = config.admin.as_mut().and_then(|admin| admin.token.as_mut()) {
        let path = KeyPath::parse("admin.token");
        let resolved = token.resolve(&resolver).and_then(|()| match token.expose() {
            "" => Err("the token is empty".to_owned()),
            _ => Ok(()),
        });
        if let Err(why) = resolved {
            problems.push(Problem::new(&path, why).at(locate(&layers, &path, Part::Value)));
        }
    }
    if !problems.is_empty() {
        return Err(Problems::new(&texts, in_order(problems)));
    }
    let warnings = Problems::warnings(&texts, in_order(warnings));
    Ok(Loaded {
        config,
        warnings,
        refused,
        disabled,
        digest,
        files,
    })
}

impl Reading {
    fn file(&mut self, path: &Path) {
        let name = path.display().to_string();
        let bytes = match std::fs::read(path) {
            Ok(bytes) if bytes.len() > MAX_FILE => {
                let message = format!("{name} is longer than {} MiB", MAX_FILE / (1024 * 1024));
                return self.problems.push(Problem::new("", message));
            }
            Ok(bytes) => bytes,
            Err(error) => {
                return self
                    .problems
                    .push(Problem::new("", format!("cannot read {name}: {error}")));
            }
        };
        self.files.push(LoadedFile {
            path: path.to_owned(),
            digest: crypto::sha256_hex(&bytes),
        });
        match String::from_utf8(bytes) {
            Ok(text) => {
                let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
                let format = Format::of(path, &text);
                self.text(name, text, format);
            }
            Err(_) => self
                .problems
                .push(Problem::new("", format!("{name} is not UTF-8"))),
        }
    }

    fn text(&mut self, name: String, text: String, format: Format) {
        let source = self.sources.len();
        let parsed = parse(&text, format, source);
        self.sources.push(Source {
            name,
            text: Some(text.clone()),
        });
        match parsed {
            Ok(tree) => {
                let (tree, manner) = if host_file::is_host_file(&tree, format) {
                    (host_file::adopt(tree, &mut self.warnings), Manner::HostFile)
                } else {
                    (tree, Manner::Strict)
                };
                self.check(tree, &text, manner);
            }
            Err(problems) => self.problems.extend(problems),
        }
    }

    fn check(&mut self, mut tree: Node, text: &str, manner: Manner) {
        let mut checker = Checker::new(schema::value(), text, manner);
        checker.run(&mut tree);
        self.problems.append(&mut checker.problems);
        self.warnings.append(&mut checker.warnings);
        self.layers.push(tree);
    }

    fn variables(&mut self, environment: &BTreeMap<String, String>) {
        let servers = self.server_names();
        for (name, value) in environment {
            let Some(key) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let of_others = OTHER_VARIABLES.contains(&name.as_str())
                || CLUSTER_VARIABLES
                    .iter()
                    .any(|beginning| name.starts_with(beginning));
            if of_others {
                continue;
            }
            let path = variable_path(key, &servers);
            self.single(format!("the environment variable {name}"), &path, value);
        }
    }

    fn flags(&mut self, overrides: &[(String, String)]) {
        for (key, value) in overrides {
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            self.single(format!("the flag for {key}"), &path, value);
        }
    }

    /// A layer with one value.
    fn single(&mut self, name: String, path: &[String], value: &str) {
        let mark = Mark {
            source: self.sources.len(),
            start: 0,
            end: 0,
        };
        self.sources.push(Source { name, text: None });
        let leaf = Node {
            kind: Kind::Text(value.to_owned()),
            mark,
        };
        let tree = path.iter().rev().fold(leaf, |value, key| Node {
            kind: Kind::Map(vec![Entry {
                key: key.clone(),
                key_mark: mark,
                value,
            }]),
            mark,
        });
        self.check(tree, "", Manner::TextValues);
    }

    fn server_names(&self) -> Vec<String> {
        let servers = self.layers.iter().filter_map(|layer| layer.get("servers"));
        servers
            .flat_map(|servers| servers.entries().iter().map(|entry| entry.key.clone()))
            .collect()
    }

    /// The one required key of a section that several files may fill.
    fn require_policy_default(&mut self) {
        let path = KeyPath::parse("policy");
        let has = |key: &str| {
            let policy = self.layers.iter().filter_map(|layer| layer.get("policy"));
            policy
                .filter(|policy| policy.kind != Kind::Null)
                .any(|policy| key.is_empty() || policy.get(key).is_some())
        };
        let is_known = self
            .problems
            .iter()
            .any(|problem| problem.path.starts_with("policy"));
        let empty = self
            .layers
            .iter()
            .filter_map(|layer| layer.get("policy"))
            .any(|policy| policy.kind == Kind::Null);
        if ((has("") && !has("default")) || (empty && !has(""))) && !is_known {
            self.problems.push(
                Problem::new(
                    &path,
                    "a policy says what holds for everything that no rule matches",
                )
                .at(locate(&self.layers, &path, Part::Key))
                .help("write `default: deny` (or `default: allow`) into the section, or remove the section"),
            );
        }
    }
}

/// `SERVERS__MY_SERVER__URL` -> `servers`, `my-server`, `url`, if `my-server` is a server in the files.
fn variable_path(key: &str, servers: &[String]) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    for part in key.split("__") {
        let lower = part.to_lowercase();
        let is_server = path.len() == 1 && path.first().is_some_and(|first| first == "servers");
        // Below `env` the key is itself the name of a variable.
        let is_variable = path.len() == 3 && path.last().is_some_and(|last| last == "env");
        let known = || {
            servers
                .iter()
                .find(|name| name.to_lowercase().replace('-', "_") == lower)
                .cloned()
        };
        path.push(match () {
            () if is_server => known().unwrap_or(lower),
            () if is_variable => part.to_owned(),
            () => lower,
        });
    }
    path
}

struct Layer<'a>(&'a Node);

impl Provider for Layer<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named("configuration layer")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let dict = match FigmentValue::serialize(self.0)? {
            FigmentValue::Dict(_, dict) => dict,
            _ => Dict::new(),
        };
        Ok(Map::from([(Profile::Default, dict)]))
    }
}

/// The layers over the defaults. A policy with a problem is left out as a whole, so that no half of it is judged.
fn merge(layers: &[Node], problems: &[Problem]) -> Figment {
    let without_policy = problems.iter().any(|problem| problem.path.starts_with("policy"));
    let mut figment = Figment::from(figment::providers::Serialized::defaults(Config::default()));
    for layer in layers {
        let mut layer = layer.clone();
        if let Kind::Map(entries) = &mut layer.kind {
            entries.retain(|entry| !(without_policy && entry.key == "policy"));
        }
        figment = figment.merge(Layer(&layer));
    }
    figment
}

/// figment sorts keys; the order of the files is the order of precedence among servers.
fn restore_order(config: &mut Config, layers: &[Node]) {
    let mut order: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in layers
        .iter()
        .filter_map(|layer| layer.get("servers"))
        .flat_map(Node::entries)
    {
        let next = order.len();
        order.entry(&entry.key).or_insert(next);
    }
    config
        .servers
        .sort_by_key(|server| order.get(server.name.as_str()).copied().unwrap_or(usize::MAX));
}

fn expand_home(
    config: &mut Config,
    environment: &BTreeMap<String, String>,
    layers: &[Node],
    problems: &mut Vec<Problem>,
) {
    let mut expand = |path: &mut PathBuf, key: &str| {
        let Some(written) = path.to_str() else { return };
        match home_path(written, environment) {
            Ok(expanded) => *path = expanded,
            Err(why) => {
                let key = KeyPath::parse(key);
                problems.push(
                    Problem::new(&key, why)
                        .at(locate(layers, &key, Part::Value))
                        .help("set it to an absolute path"),
                );
            }
        }
    };
    expand(&mut config.state_dir, "state_dir");
    if let Some(dir) = &mut config.audit.dir {
        expand(dir, "audit.dir");
    }
    for address in &mut config.listen.http {
        if let BindAddress::Unix(path) = address {
            expand(path, "listen.http");
        }
    }
}

/// Removes problems that only follow from one found before: a misspelt `command` is not also a missing one.
fn drop_consequences(problems: &mut Vec<Problem>, structural: usize) {
    let section = |path: &str| path.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    let faulty: Vec<Vec<String>> = problems
        .iter()
        .take(structural)
        .map(|problem| section(&problem.path))
        .collect();
    let mut index = 0;
    problems.retain(|problem| {
        index += 1;
        index <= structural || !faulty.contains(&section(&problem.path))
    });
}

struct Split {
    running: Vec<super::Server>,
    disabled: Vec<String>,
    refused: Vec<(String, String)>,
}

fn resolve_servers(
    servers: Vec<super::Server>,
    resolver: &Resolver<'_>,
    position: &dyn Fn(&KeyPath) -> Option<String>,
) -> Split {
    let mut split = Split {
        running: Vec::new(),
        disabled: Vec::new(),
        refused: Vec::new(),
    };
    for mut server in servers {
        if !server.enabled {
            split.disabled.push(server.name);
            continue;
        }
        let top = KeyPath::default().key("servers").key(&server.name);
        match resolve_server(&mut server, resolver, &top) {
            Ok(()) => split.running.push(server),
            Err((path, why)) => {
                let place = position(&path)
                    .map(|place| format!(" ({place})"))
                    .unwrap_or_default();
                split.refused.push((server.name, format!("{path}{place}: {why}")));
            }
        }
    }
    split
}

/// Resolves every text of a server; the first that fails refuses it.
fn resolve_server(
    server: &mut super::Server,
    resolver: &Resolver<'_>,
    top: &KeyPath,
) -> Result<(), (KeyPath, String)> {
    for (key, text) in [
        ("command", &mut server.command),
        ("cwd", &mut server.cwd),
        ("url", &mut server.url),
    ] {
        let Some(text) = text else { continue };
        let path = || top.key(key);
        text.resolve(resolver).map_err(|why| (path(), why))?;
        validate::plain(text.expose()).map_err(|why| (path(), why))?;
        if key == "url" {
            validate::url(text.expose()).map_err(|why| (path(), why))?;
        } else if text.expose().is_empty() {
            return Err((path(), "this is empty".to_owned()));
        }
    }
    for (index, text) in server.args.iter_mut().enumerate() {
        let path = || top.key("args").index(index);
        text.resolve(resolver).map_err(|why| (path(), why))?;
        validate::without_nul(text.expose()).map_err(|why| (path(), why))?;
    }
    for (name, text) in &mut server.env {
        let path = || top.key("env").key(name);
        text.resolve(resolver).map_err(|why| (path(), why))?;
        validate::without_nul(text.expose()).map_err(|why| (path(), why))?;
    }
    for (name, text) in &mut server.headers {
        let path = || top.key("headers").key(name);
        text.resolve(resolver).map_err(|why| (path(), why))?;
        validate::header_value(text.expose()).map_err(|why| (path(), why))?;
    }
    Ok(())
}

/// By file, then by position; what has no position comes first.
fn in_order(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| problem.mark.map(|mark| (mark.source, mark.start)));
    problems
}

#[cfg(test)]
mod tests;
