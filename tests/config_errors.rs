//! What people read when their configuration is wrong: one snapshot per kind of mistake.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test may fail it"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use manifold::config::{Loaded, Problems, Sources, load};

struct Case {
    folder: tempfile::TempDir,
    sources: Sources,
}

impl Case {
    fn new() -> Self {
        let environment = BTreeMap::from([("HOME".to_owned(), "/home/me".to_owned())]);
        Self {
            folder: tempfile::tempdir().unwrap(),
            sources: Sources {
                environment,
                ..Sources::default()
            },
        }
    }

    fn file(mut self, name: &str, text: &str) -> Self {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        self.sources.files.push(path);
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    fn flag(mut self, key: &str, value: &str) -> Self {
        self.sources.overrides.push((key.to_owned(), value.to_owned()));
        self
    }

    fn load(&self) -> Result<Loaded, Problems> {
        load(&self.sources)
    }

    fn text(&self, problems: &Problems) -> String {
        let folder = format!("{}/", self.folder.path().display());
        problems.to_string().replace(&folder, "")
    }

    fn errors(&self) -> String {
        match self.load() {
            Ok(_) => "no problem at all".to_owned(),
            Err(problems) => self.text(&problems),
        }
    }

    fn warnings(&self) -> String {
        match self.load() {
            Ok(loaded) => self.text(&loaded.warnings),
            Err(problems) => panic!("{problems}"),
        }
    }
}

fn errors(yaml: &str) -> String {
    Case::new().file("manifold.yaml", yaml).errors()
}

#[test]
fn unknown_keys_at_every_level() {
    insta::assert_snapshot!(errors(
        "lisen: {}
listen:
  htpp: 127.0.0.1:1
separator: x
servers:
  files:
    comand: npx
    maxTimeout: 5s
    tools: { alow: [a] }
policy:
  default: deny
  rules:
    - id: a
      efect: allow
      tools: ['*/*']
limits:
  sesions: 5
  quux: 1
"
    ));
}

#[test]
fn wrong_types_and_spellings() {
    insta::assert_snapshot!(errors(
        "listen:
  http: [127.0.0.1, 'http://x:1']
  sse: yes
  max_body: 16 Mib
grace: 30
names: { max_length: 200 }
servers:
  files:
    command: [npx]
    args: -y
    sharing: sesion
    idle_timeout: 1.5s
    concurrency: 0
  other: npx
audit:
  rotate: 5
"
    ));
}

#[test]
fn what_this_version_does_not_offer() {
    insta::assert_snapshot!(errors(
        "servers: { a: { command: x } }
policy:
  default: ask
  lock: enforce
  layers: [org.yaml]
  tests: []
  rules:
    - id: a
      effect: ask
      tools: ['*/*']
      who: { groups: [x] }
      when: [{ arg: /p, under: /srv }]
      annotations: { readOnlyHint: true }
      ask: { message: Sure? }
      reveal: refuse
      mode: observe
audit:
  durability: strict
  arguments: redacted
  redact: [/password]
  sign: { key: x }
telemetry: { otlp: 'http://127.0.0.1:4318' }
"
    ));
}

#[test]
fn rules_across_keys() {
    insta::assert_snapshot!(errors(
        "listen:
  http: 127.0.0.1:8421
  path: mcp
  max_body: 5GiB
  allowed_origins: ['*', 'https://app.example/', app.example]
  allowed_hosts: ['https://x']
names: { separator: '::' }
telemetry: { log: 'info,=x=y' }
servers:
  nothing: {}
  both: { command: x, url: 'https://x' }
  remote:
    url: ftp://example
    args: [x]
    headers: { Accept: x, Mcp-Session-Id: y, X-Trace: z, x-trace: z, 'bad name': q }
  local:
    command: ''
    headers: { X: y }
    idle_timeout: 0s
    roots: [/srv]
    rename: { a: x, b: x }
    tools: { deny: ['[a'] }
  mine: { command: x, prefix: my-server }
  my-server: { command: x }
"
    ));
}

#[test]
fn a_policy_without_a_default() {
    insta::assert_snapshot!(errors("servers: { a: { command: x } }\npolicy:\n  rules: []\n"));
    insta::assert_snapshot!(errors("servers: { a: { command: x } }\npolicy:\n"));
}

#[test]
fn rules_of_a_policy() {
    insta::assert_snapshot!(errors(
        "servers: { a: { command: x } }
policy:
  default: deny
  rules:
    - id: one
      effect: allow
      tools: [noslash]
    - id: one
      effect: allow
      tools: ['a/[x']
    - effect: allow
      tools: ['a/x']
"
    ));
    insta::assert_snapshot!(errors(
        "servers: { a: { command: x } }
policy:
  default: deny
  rules:
    - id: one
      effect: allow
      tools: [noslash]
    - id: one
      effect: allow
"
    ));
}

#[test]
fn texts_that_cannot_be_read() {
    insta::assert_snapshot!(errors("servers:\n  a: {command: x\n  b: 1\n"));
    insta::assert_snapshot!(errors(
        "servers:\n  a: {command: x}\n  b: {command: x}\n  a: {command: y}\n"
    ));
    insta::assert_snapshot!(errors("- a\n- b\n"));
    insta::assert_snapshot!(
        Case::new()
            .file("manifold.toml", "[listen]\nhttp = 127.0.0.1:80\n")
            .errors()
    );
    insta::assert_snapshot!(
        Case::new()
            .file("manifold.json", "{\n  // mine\n  \"servers\": {}\n}\n")
            .errors()
    );
    insta::assert_snapshot!(Case::new().file("manifold.json", "{\"servers\": {},}").errors());
    let mut missing = Case::new();
    missing
        .sources
        .files
        .push(missing.folder.path().join("manifold.yaml"));
    insta::assert_snapshot!(missing.errors());
}

#[test]
fn every_language_gives_positions() {
    insta::assert_snapshot!(
        Case::new()
            .file(
                "a.toml",
                "grace = \"5\"\n[servers.x]\ncommand = \"x\"\nargz = []\n"
            )
            .file(
                "b.json",
                "{\n  \"servers\": {\n    \"y\": { \"comand\": \"x\" }\n  }\n}\n"
            )
            .file("c.yaml", "servers:\n  x:\n    url: https://example\n")
            .errors()
    );
}

#[test]
fn variables_and_flags() {
    insta::assert_snapshot!(
        Case::new()
            .file("manifold.yaml", "servers: { a: { command: x } }\n")
            .variable("MANIFOLD_GRACE", "soon")
            .variable("MANIFOLD_LISTEN__HTPP", "127.0.0.1:1")
            .variable("MANIFOLD_NAMES__MAX_LENGTH", "many")
            .variable("MANIFOLD_PORT", "tcp://10.0.0.1:80")
            .variable("MANIFOLD_SERVICE_HOST", "10.0.0.1")
            .variable("MANIFOLD_CONFIG", "x.yaml")
            .flag("listen.http", "nowhere")
            .errors()
    );
}

#[test]
fn a_hosts_file_warns_and_works() {
    let case = Case::new().file(
        "claude.json",
        "{
  \"projects\": {}, \"telemetry\": {\"enabled\": true},
  \"mcpServers\": {
    \"z\": { \"type\": \"stdio\", \"command\": \"npx\", \"args\": [\"-y\"], \"env\": {\"A\": \"${HOME}\"}, \"autoApprove\": [] },
    \"a\": { \"type\": \"http\", \"url\": \"https://example/mcp\", \"headers\": {\"X\": \"y\"} },
    \"off\": { \"command\": \"x\", \"disabled\": true },
    \"gemini\": { \"httpUrl\": \"https://example/g\", \"excludeTools\": [\"rm\"], \"timeout\": 5000 }
  }
}
",
    );
    insta::assert_snapshot!(case.warnings());
    let config = case.load().unwrap().config;
    let names: Vec<_> = config.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["z", "a", "gemini"]);
    assert_eq!(config.servers[0].env["A"].expose(), "/home/me");
    assert_eq!(config.servers[2].tools.deny, ["rm"]);
}

#[test]
fn a_server_whose_secret_is_missing_is_refused_alone() {
    let case = Case::new()
        .file(
            "manifold.yaml",
            "servers:
  ok: { command: x, env: { T: '${SECRET}' } }
  no: { url: 'https://x', headers: { Authorization: 'Bearer ${env:NOT_SET}' } }
  broken: { url: 'https://x', headers: { X: 'a ${SPLIT}' } }
  address: { url: '${SECRET}' }
  vscode: { command: x, args: ['${input:key}'] }
",
        )
        .variable("SECRET", "s3cret")
        .variable("SPLIT", "s3cret\r\nEvil: 1");
    let loaded = case.load().unwrap();
    let folder = format!("{}/", case.folder.path().display());
    let refused: Vec<_> = loaded
        .refused
        .iter()
        .map(|(name, why)| format!("{name}: {}", why.replace(&folder, "")))
        .collect();
    insta::assert_snapshot!(refused.join("\n"));
    assert_eq!(loaded.config.servers.len(), 1);
    assert!(!format!("{loaded:?}").contains("s3cret"));
    assert!(!serde_json::to_string(&loaded.config).unwrap().contains("s3cret"));
    assert!(loaded.config.servers[0].env["T"].expose() == "s3cret");
}

#[test]
fn what_is_worth_a_warning() {
    let case = Case::new().file(
        "manifold.yaml",
        "listen: { http: ['0.0.0.0:8420', 'localhost:0'] }
admin: { http: '0.0.0.0:8421' }
servers: { a: { command: x, idle_timeout: 20m } }
",
    );
    insta::assert_snapshot!(case.warnings());
}

#[test]
fn the_built_in_file_is_named() {
    let problems = Case::new()
        .variable("MANIFOLD_SERVERS__NOTES__URL", "https://x")
        .errors();
    insta::assert_snapshot!(problems);
    let none: Vec<PathBuf> = Vec::new();
    assert_eq!(
        Case::new()
            .load()
            .unwrap()
            .files
            .iter()
            .map(|file| file.path.clone())
            .collect::<Vec<_>>(),
        none
    );
}
