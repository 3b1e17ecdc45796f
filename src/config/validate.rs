//! The rules that no schema can say: one key against another, and texts with a grammar of their own.
//!
//! Only the loader calls it, on a configuration whose keys and types are right. It looks at texts as written; what
//! holds secrets is checked again by the small functions at the end once it is resolved.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::locate::{KeyPath, Part, locate};
use super::problem::{Mark, Problem};
use super::tree::Node;
use super::{BindAddress, Config, Resolvable, Server, Shorthand};
use crate::policy::{CompiledPolicy, Kind, compile};

/// Headers that the protocol or the connection owns.
const PROTOCOL_HEADERS: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Checks everything and adds what is wrong.
pub(crate) fn validate(
    config: &Config,
    layers: &[Node],
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) {
    let mut validator = Validator {
        layers,
        problems,
        warnings,
    };
    validator.listen(config);
    validator.rest(config);
    for server in &config.servers {
        validator.server(server);
    }
    if config.servers.is_empty() {
        validator.warn(
            &KeyPath::parse("servers"),
            "no server is configured, so there is nothing to offer",
        );
    }
    validator.prefixes(&config.servers);
    validator.policy(config);
}

struct Validator<'a> {
    layers: &'a [Node],
    problems: &'a mut Vec<Problem>,
    warnings: &'a mut Vec<Problem>,
}

impl Validator<'_> {
    fn mark(&self, path: &KeyPath, part: Part) -> Option<Mark> {
        locate(self.layers, path, part)
    }

    fn wrong(&mut self, path: &KeyPath, message: impl Into<String>) {
        let mark = self.mark(path, Part::Value);
        self.problems.push(Problem::new(path, message).at(mark));
    }

    fn warn(&mut self, path: &KeyPath, message: impl Into<String>) {
        let mark = self.mark(path, Part::Value);
        self.warnings.push(Problem::new(path, message).at(mark));
    }

    fn listen(&mut self, config: &Config) {
        let top = KeyPath::parse("listen");
        let listen = &config.listen;
        let paths_of_ours = ["/sse", "/messages"];
        let path = &listen.path;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '~');
        if !path.starts_with('/') || !path.chars().all(is_plain) {
            self.wrong(
                &top.key("path"),
                "the path starts with `/` and has only letters, digits and / - _ . ~ in it",
            );
        } else if listen.sse && paths_of_ours.contains(&path.as_str()) {
            self.wrong(
                &top.key("path"),
                format!("with `sse: true`, {path} is taken by the 2024-11-05 transport"),
            );
        }
        if listen.max_body.bytes() == 0 {
            self.wrong(&top.key("max_body"), "a body needs at least 1 byte");
        } else if listen.max_body.bytes() > u64::from(u32::MAX) {
            self.wrong(&top.key("max_body"), "this is less than 4GiB");
        }
        for (index, origin) in listen.allowed_origins.iter().enumerate() {
            if let Err(why) = allowed_origin(origin) {
                self.wrong(&top.key("allowed_origins").index(index), why);
            }
        }
        for (index, host) in listen.allowed_hosts.iter().enumerate() {
            if host.is_empty() || host.contains(['/', '*', ' ', '@']) {
                let why =
                    "a host is a name or address, with a port if it has one: mcp.example or mcp.example:8443";
                self.wrong(&top.key("allowed_hosts").index(index), why);
            }
        }
        let http = top.key("http");
        for (index, address) in listen.http.iter().enumerate() {
            if listen
                .http
                .iter()
                .take(index)
                .any(|earlier| earlier == address && !picks_port(address))
            {
                self.wrong(&http.index(index), format!("{address} is listed twice"));
            }
            if is_beyond_loopback(address) {
                let message = format!(
                    "{address} is reachable from other machines, and this version does not authenticate hosts"
                );
                self.warn(&http, message);
            }
        }
        if let Some(admin) = &config.admin {
            let path = KeyPath::parse("admin.http");
            if listen.http.contains(&admin.http) && !picks_port(&admin.http) {
                // The admin address may be the default, which stands in no file.
                let mark = self
                    .mark(&path, Part::Value)
                    .or_else(|| self.mark(&http, Part::Value));
                let message = format!(
                    "{} is the host listener's address; the admin listener needs its own",
                    admin.http
                );
                self.problems.push(Problem::new(&path, message).at(mark));
            }
            if is_beyond_loopback(&admin.http) && admin.token.is_none() {
                self.warn(
                    &path,
                    format!(
                        "{} is reachable from other machines without `admin.token`",
                        admin.http
                    ),
                );
            }
        }
    }

    fn rest(&mut self, config: &Config) {
        let separator = &config.names.separator;
        let path = KeyPath::parse("names.separator");
        if !separator.chars().all(is_name_character) {
            self.wrong(
                &path,
                "only letters, digits, `_` and `-` may stand in public names",
            );
        } else if separator.is_empty() || separator.len() > 8 {
            self.wrong(&path, "the separator has 1 to 8 characters");
        }
        for (key, duration) in [
            ("audit.rotate.age", config.audit.rotate.age),
            ("audit.rotate.keep", config.audit.rotate.keep),
            ("limits.session_idle", config.limits.session_idle),
            ("limits.connection_idle", config.limits.connection_idle),
            ("limits.reverse_timeout", config.limits.reverse_timeout),
            ("limits.keep_alive", config.limits.keep_alive),
        ] {
            if duration.is_zero() {
                self.wrong(&KeyPath::parse(key), "this cannot be zero");
            }
        }
        for (key, size) in [
            ("audit.rotate.size", config.audit.rotate.size),
            ("limits.line", config.limits.line),
            ("limits.event", config.limits.event),
            ("limits.response_body", config.limits.response_body),
            ("limits.listing_bytes", config.limits.listing_bytes),
            ("limits.schema_bytes", config.limits.schema_bytes),
        ] {
            if size.bytes() < 1024 {
                self.wrong(&KeyPath::parse(key), "this is at least 1KiB");
            } else if size.bytes() > u64::from(u32::MAX) {
                self.wrong(&KeyPath::parse(key), "this is less than 4GiB");
            }
        }
        if let Err(error) = tracing_subscriber::EnvFilter::builder().parse(&config.telemetry.log) {
            let message = format!("this is no log filter: {error}");
            self.wrong(&KeyPath::parse("telemetry.log"), message);
        }
    }

    fn server(&mut self, server: &Server) {
        let top = KeyPath::default().key("servers").key(&server.name);
        if server.name.trim().is_empty()
            || server.name.chars().any(char::is_control)
            || server.name.contains('/')
        {
            self.wrong(
                &top,
                "a server name is not empty and has no `/` and no control characters in it",
            );
        }
        self.address(server, &top);
        if let Some(prefix) = &server.prefix
            && !prefix.chars().all(is_name_character)
        {
            self.wrong(
                &top.key("prefix"),
                "only letters, digits, `_` and `-` may stand in public names",
            );
        }
        for (key, duration) in [
            ("start_timeout", server.start_timeout),
            ("idle_timeout", server.idle_timeout),
            ("max_timeout", server.max_timeout),
        ] {
            if duration.is_zero() {
                self.wrong(&top.key(key), "this cannot be zero");
            }
        }
        if server.idle_timeout > server.max_timeout && server.max_timeout > Duration::ZERO {
            let mark = self.mark(&top.key("idle_timeout"), Part::Value);
            let message = "`idle_timeout` is longer than `max_timeout` and never reached";
            self.warnings
                .push(Problem::new(top.key("idle_timeout"), message).at(mark));
        }
        self.headers(server, &top);
        for name in server.env.keys() {
            if name.is_empty() || name.contains(['=', '\0']) {
                self.wrong(
                    &top.key("env").key(name),
                    "this is no name of an environment variable",
                );
            }
        }
        self.renames(server, &top);
        for (index, root) in server.roots.iter().enumerate() {
            if !root.starts_with("file://") {
                self.wrong(
                    &top.key("roots").index(index),
                    "a root is a file:// URI, such as file:///srv/docs",
                );
            }
        }
    }

    fn address(&mut self, server: &Server, top: &KeyPath) {
        let set: Vec<&str> = [
            ("args", !server.args.is_empty()),
            ("env", !server.env.is_empty()),
            ("cwd", server.cwd.is_some()),
        ]
        .iter()
        .filter_map(|(key, is_set)| is_set.then_some(*key))
        .collect();
        match (&server.command, &server.url) {
            (None, None) => {
                let mark = self.mark(top, Part::Key);
                self.problems.push(
                    Problem::new(
                        top,
                        "a server needs `command` (a program to start) or `url` (a server to reach)",
                    )
                    .at(mark),
                );
            }
            (Some(_), Some(_)) => {
                let (first, second) = (
                    self.mark(&top.key("command"), Part::Key),
                    self.mark(&top.key("url"), Part::Key),
                );
                self.problems.push(
                    Problem::new(top, "a server has either `command` or `url`, not both")
                        .at(second)
                        .related(first, "and here"),
                );
            }
            (Some(command), None) => {
                if command.written().trim().is_empty() {
                    self.wrong(&top.key("command"), "the command is empty");
                }
                for (key, is_set) in [
                    ("transport", server.transport.is_some()),
                    ("headers", !server.headers.is_empty()),
                ] {
                    if is_set {
                        let mark = self.mark(&top.key(key), Part::Key);
                        self.problems.push(
                            Problem::new(
                                top.key(key),
                                format!("`{key}` goes with `url`; this server has `command`"),
                            )
                            .at(mark),
                        );
                    }
                }
            }
            (None, Some(address)) => {
                self.url_as_written(address, &top.key("url"));
                for key in set {
                    let mark = self.mark(&top.key(key), Part::Key);
                    self.problems.push(
                        Problem::new(
                            top.key(key),
                            format!("`{key}` goes with `command`; this server has `url`"),
                        )
                        .at(mark),
                    );
                }
            }
        }
    }

    fn url_as_written(&mut self, address: &Resolvable, path: &KeyPath) {
        let written = address.written();
        if written.contains("${") {
            return; // checked once it is resolved
        }
        if let Err(why) = url(written) {
            self.wrong(path, why);
        }
    }

    fn headers(&mut self, server: &Server, top: &KeyPath) {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for (name, value) in &server.headers {
            let path = top.key("headers").key(name);
            let mark = self.mark(&path, Part::Key);
            let lower = name.to_ascii_lowercase();
            let why = if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
                Some("this is no name of a header".to_owned())
            } else if PROTOCOL_HEADERS.contains(&lower.as_str())
                || lower.starts_with("mcp-")
                || lower.starts_with("proxy-")
            {
                Some(format!(
                    "the header `{name}` belongs to the protocol and cannot be configured; remove it"
                ))
            } else {
                seen.get(&lower)
                    .map(|other| format!("the header `{name}` is given twice; the other is `{other}`"))
            };
            if let Some(why) = why {
                self.problems.push(Problem::new(&path, why).at(mark));
            }
            seen.insert(lower, name);
            if !value.shown().contains("${")
                && let Err(why) = header_value(value.expose())
            {
                self.wrong(&path, why);
            }
        }
    }

    fn renames(&mut self, server: &Server, top: &KeyPath) {
        let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
        for (from, to) in &server.rename {
            let path = top.key("rename").key(from);
            if to.is_empty() {
                self.wrong(&path, "the new name is empty");
            } else if let Some(other) = taken.insert(to, from) {
                let mark = self.mark(&path, Part::Value);
                let first = self.mark(&top.key("rename").key(other), Part::Value);
                self.problems.push(
                    Problem::new(
                        &path,
                        format!("`{other}` and `{from}` are both renamed to `{to}`"),
                    )
                    .at(mark)
                    .related(first, "also here"),
                );
            }
        }
    }

    /// Two servers with the same prefix would offer the same public names.
    fn prefixes(&mut self, servers: &[Server]) {
        let mut seen: BTreeMap<String, &Server> = BTreeMap::new();
        for server in servers.iter().filter(|server| server.enabled) {
            let prefix = server.effective_prefix();
            if prefix.is_empty() {
                continue;
            }
            let Some(other) = seen.get(&prefix) else {
                seen.insert(prefix, server);
                continue;
            };
            let place = |server: &Server| {
                let top = KeyPath::default().key("servers").key(&server.name);
                if server.prefix.is_some() {
                    self.mark(&top.key("prefix"), Part::Value)
                } else {
                    self.mark(&top, Part::Key)
                }
            };
            let (here, there) = (place(server), place(other));
            let top = KeyPath::default().key("servers").key(&server.name);
            self.problems.push(
                Problem::new(
                    top,
                    format!(
                        "the servers `{}` and `{}` have the same prefix `{prefix}`",
                        other.name, server.name
                    ),
                )
                .at(here)
                .related(there, "the same prefix")
                .help("give one of them another `prefix`"),
            );
        }
    }

    fn policy(&mut self, config: &Config) {
        let mut shorthands = Vec::new();
        for server in &config.servers {
            for (kind, shorthand) in [
                (Kind::Tool, &server.tools),
                (Kind::Prompt, &server.prompts),
                (Kind::Resource, &server.resources),
            ] {
                shorthands.extend(compiled(shorthand, &server.name, kind));
            }
        }
        if let Err(problems) = CompiledPolicy::new(config.policy.as_ref(), &shorthands) {
            for problem in problems {
                self.wrong(&KeyPath::parse(&problem.path), problem.message);
            }
        }
    }
}

fn compiled(shorthand: &Shorthand, server: &str, kind: Kind) -> Option<compile::Shorthand> {
    (!shorthand.is_empty()).then(|| compile::Shorthand {
        server: server.to_owned(),
        kind,
        allow: shorthand.allow.clone(),
        deny: shorthand.deny.clone(),
    })
}

const fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn picks_port(address: &BindAddress) -> bool {
    matches!(address, BindAddress::Tcp(text) if text.ends_with(":0"))
}

fn is_beyond_loopback(address: &BindAddress) -> bool {
    let BindAddress::Tcp(text) = address else {
        return false;
    };
    match text.parse::<SocketAddr>().map(|address| address.ip()) {
        Ok(IpAddr::V4(ip)) => !ip.is_loopback(),
        Ok(IpAddr::V6(ip)) => !ip.is_loopback(),
        Err(_) => !text.starts_with("localhost:"),
    }
}

fn allowed_origin(origin: &str) -> Result<(), String> {
    if origin.contains('*') {
        return Err("origins have no wildcards; list each one".to_owned());
    }
    let parsed = url::Url::parse(origin).ok().filter(|url| url.has_host());
    match parsed.map(|url| url.origin().ascii_serialization()) {
        Some(plain) if plain == origin => Ok(()),
        Some(plain) if plain != "null" => Err(format!("an origin has no path and no default port: {plain}")),
        _ => Err("an origin is a scheme and a host, such as https://app.example".to_owned()),
    }
}

/// Checks the address of a server; the message never repeats it.
pub(crate) fn url(text: &str) -> Result<(), String> {
    plain(text)?;
    let parsed = url::Url::parse(text).map_err(|error| format!("this is no URL: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err("the URL of a server starts with http:// or https://".to_owned());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("a URL with a user or password in it ends up in logs; use `headers`".to_owned());
    }
    if parsed.fragment().is_some() {
        return Err("a URL with a `#` part cannot be requested; remove it".to_owned());
    }
    Ok(())
}

/// Checks that a text is one line.
pub(crate) fn plain(text: &str) -> Result<(), String> {
    if text.contains(['\r', '\n', '\0']) {
        Err("a line break or NUL is in it".to_owned())
    } else {
        Ok(())
    }
}

/// Checks that a text can be handed to a program.
pub(crate) fn without_nul(text: &str) -> Result<(), String> {
    if text.contains('\0') {
        Err("a NUL is in it".to_owned())
    } else {
        Ok(())
    }
}

/// Checks the value of a header; the message never repeats it.
pub(crate) fn header_value(text: &str) -> Result<(), String> {
    plain(text).map_err(|_| "a line break is in it, which would start another header".to_owned())?;
    match http::HeaderValue::from_str(text) {
        Ok(_) => Ok(()),
        Err(_) => Err("a control character is in it".to_owned()),
    }
}
