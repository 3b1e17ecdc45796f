use super::*;
use crate::config::{Durability, Family, Server, Sharing, TransportKind};
use std::time::Duration;

fn sources(files: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().unwrap();
    let mut sources = Sources::default();
    sources
        .environment
        .insert("HOME".to_owned(), "/home/me".to_owned());
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        sources.files.push(path);
    }
    (folder, sources)
}

fn loaded(files: &[(&str, &str)]) -> Loaded {
    let (_folder, sources) = sources(files);
    load(&sources).unwrap_or_else(|problems| panic!("{problems}"))
}

fn names(loaded: &Loaded) -> Vec<&str> {
    loaded
        .config
        .servers
        .iter()
        .map(|server| server.name.as_str())
        .collect()
}

#[test]
fn every_key_arrives_from_every_language() {
    let yaml = "
listen: { http: [127.0.0.1:1, 'unix:~/x', 'unix:/run/x'], sse: true, max_body: 1MiB }
admin: null
grace: 90s
servers:
  z:
    url: https://z.example/mcp
    transport: sse
    sharing: session
    family: legacy
    prefix: ''
    headers: { X-Number: 1.10, X-Flag: true }
    tools: { allow: [] }
audit: { durability: off }
";
    // `unix:~/x` is no absolute path.
    let (_folder, wrong) = sources(&[("a.yaml", yaml)]);
    assert_eq!(load(&wrong).unwrap_err().len(), 1);
    let yaml = yaml
        .replace("'unix:~/x', ", "")
        .replace("durability: off", "durability: 'off'");
    let toml = "
admin = false
[listen]
http = [\"127.0.0.1:1\"]
";
    let (_folder, wrong) = sources(&[("a.toml", toml)]);
    assert!(
        load(&wrong)
            .unwrap_err()
            .to_string()
            .contains("admin: expected a map")
    );

    let config = loaded(&[("a.yaml", &yaml)]).config;
    assert_eq!(config.listen.http.len(), 2);
    assert_eq!((config.admin, config.grace), (None, Duration::from_secs(90)));
    assert_eq!(config.state_dir, PathBuf::from("/home/me/.local/state/manifold"));
    assert_eq!(config.audit.durability, Durability::Off);
    let server = &config.servers[0];
    assert_eq!(
        (
            server.transport,
            server.sharing,
            server.family,
            server.prefix.as_deref()
        ),
        (
            Some(TransportKind::Sse),
            Sharing::Session,
            Some(Family::Legacy),
            Some("")
        )
    );
    assert_eq!(
        (
            server.headers["X-Number"].expose(),
            server.headers["X-Flag"].expose()
        ),
        ("1.10", "true")
    );
    assert_eq!(server.tools.allow, Some(Vec::new()));
    assert_eq!(
        Server {
            name: String::new(),
            ..Server::default()
        }
        .max_timeout,
        server.max_timeout
    );

    let json =
        "{\"servers\": {\"b\": {\"command\": \"x\"}, \"a\": {\"command\": \"y\", \"args\": [\"-v\"]}}}";
    let toml = "[servers.b]\ncommand = \"x\"\n[servers.a]\ncommand = \"y\"\nargs = [\"-v\"]\n";
    assert_eq!(
        loaded(&[("a.json", json)]).config,
        loaded(&[("a.toml", toml)]).config
    );
    assert_eq!(names(&loaded(&[("a.toml", toml)])), ["b", "a"]);
}

#[test]
fn later_layers_win_and_order_is_kept() {
    let (_folder, mut sources) = sources(&[
        (
            "a.yaml",
            "grace: 1s\nservers:\n  z: { command: x, args: [a, b] }\n  my-server: { command: y, env: { A: 1 } }\n",
        ),
        (
            "b.toml",
            "start_wait = \"2s\"\n[servers.z]\nargs = [\"c\"]\n[servers.a]\ncommand = \"w\"\n",
        ),
    ]);
    for (name, value) in [
        ("MANIFOLD_GRACE", "3s"),
        ("MANIFOLD_LISTEN__HTTP", "[127.0.0.1:1, 127.0.0.1:2]"),
        ("MANIFOLD_LISTEN__SSE", "true"),
        ("MANIFOLD_LISTEN__ALLOWED_HOSTS", "a.example, b.example"),
        ("MANIFOLD_NAMES__MAX_LENGTH", "40"),
        ("MANIFOLD_ADMIN", "null"),
        ("MANIFOLD_SERVERS__MY_SERVER__ENV__LOG_LEVEL", "5"),
        ("MANIFOLD_SERVERS__MY_SERVER__CWD", "/srv"),
    ] {
        sources.environment.insert(name.to_owned(), value.to_owned());
    }
    sources.overrides.push(("grace".to_owned(), "4s".to_owned()));
    sources
        .overrides
        .push(("names.separator".to_owned(), "-".to_owned()));
    let loaded = load(&sources).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(names(&loaded), ["z", "my-server", "a"]);
    let config = &loaded.config;
    assert_eq!(
        (config.grace, config.start_wait),
        (Duration::from_secs(4), Duration::from_secs(2))
    );
    assert_eq!(config.listen.http.len(), 2);
    assert_eq!(config.listen.allowed_hosts, ["a.example", "b.example"]);
    assert!(config.listen.sse && config.admin.is_none());
    assert_eq!(
        (config.names.max_length, config.names.separator.as_str()),
        (40, "-")
    );
    assert_eq!(
        config.servers[0]
            .args
            .iter()
            .map(|arg| arg.expose())
            .collect::<Vec<_>>(),
        ["c"]
    );
    let server = &config.servers[1];
    assert_eq!(
        (server.env["A"].expose(), server.env["LOG_LEVEL"].expose()),
        ("1", "5")
    );
    assert_eq!(server.cwd.as_ref().unwrap().expose(), "/srv");
}

#[test]
fn empty_sections_mean_their_defaults() {
    let loaded = loaded(&[
        ("a.yaml", "listen:\nservers:\naudit:\nlimits:\n"),
        ("b.yaml", "# nothing\n"),
    ]);
    assert_eq!(loaded.config.listen, Config::default().listen);
    assert_eq!(loaded.config.servers, []);
    assert_eq!(loaded.warnings.len(), 1);
}

#[test]
fn disabled_servers_are_neither_run_nor_resolved() {
    let loaded = loaded(&[(
        "a.yaml",
        "servers:\n  off: { command: '${NOT_SET}', enabled: false }\n  on: { command: x }\n  OFF: { command: y, prefix: 'off' }\n",
    )]);
    assert_eq!(names(&loaded), ["on", "OFF"]);
    assert_eq!(
        (loaded.disabled, loaded.refused),
        (vec!["off".to_owned()], Vec::new())
    );
}

#[test]
fn the_digest_follows_what_is_effective() {
    let digest = |text: &str| loaded(&[("a.yaml", text)]).digest;
    let one = digest("servers: { a: { command: x } }\n");
    assert_eq!(one, digest("# a comment\nservers:\n  a:\n    command: x\n"));
    assert_ne!(one, digest("servers: { a: { command: y } }\n"));
    assert_eq!(one.len(), 64);
}

#[test]
fn an_admin_token_that_is_missing_stops_the_load() {
    let (_folder, mut sources) = sources(&[(
        "a.yaml",
        "admin: { token: '${env:ADMIN}' }\nservers: { a: { command: x } }\n",
    )]);
    let problems = load(&sources).unwrap_err();
    let problem = problems.iter().next().unwrap();
    assert!(problem.message.contains("ADMIN is not set"));
    let location = problems.location(problem).unwrap();
    assert_eq!((location.line, location.column), (1, 17));
    sources.environment.insert("ADMIN".to_owned(), "t0ken".to_owned());
    let loaded = load(&sources).unwrap();
    assert_eq!(
        loaded
            .config
            .admin
            .as_ref()
            .unwrap()
            .token
            .as_ref()
            .unwrap()
            .expose(),
        "t0ken"
    );
    assert!(!format!("{loaded:?}").contains("t0ken"));
}

#[test]
fn changed_secrets_make_servers_differ() {
    let (_folder, mut sources) =
        sources(&[("a.yaml", "servers: { a: { command: x, env: { T: '${T}' } } }\n")]);
    sources.environment.insert("T".to_owned(), "one".to_owned());
    let one = load(&sources).unwrap();
    assert_eq!(one, load(&sources).unwrap());
    sources.environment.insert("T".to_owned(), "two".to_owned());
    assert_ne!(one.config, load(&sources).unwrap().config);
}

/// A file is an operator's, but a slip must not take the machine down with it.
#[test]
fn hostile_files_are_refused_quickly() {
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (this, last) in ('b'..='j').zip('a'..) {
        laughs.push_str(&format!(
            "{this}: &{this} [*{last}, *{last}, *{last}, *{last}, *{last}, *{last}, *{last}]\n"
        ));
    }
    let (_folder, sources) = sources(&[
        ("a.yaml", &laughs),
        ("b.yaml", &"[".repeat(10_000)),
        ("c.json", &"[".repeat(10_000)),
    ]);
    assert!(load(&sources).unwrap_err().len() >= 3);
}

proptest::proptest! {
    /// Whatever the text, loading ends in a configuration or in problems that can be drawn.
    #[test]
    fn any_text_is_survived(text in "[a-z:{}\\[\\]\"'&*!|>#,\\- \\n\\u{e9}]{0,80}") {
        for format in [Format::Yaml, Format::Toml, Format::Json] {
            let mut reading = Reading::default();
            reading.text("x".to_owned(), text.clone(), format);
            let is_fine = reading.problems.is_empty();
            let drawn = Problems::new(&reading.sources, reading.problems).to_string();
            proptest::prop_assert_eq!(drawn.is_empty(), is_fine);
        }
    }
}
