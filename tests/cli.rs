//! Each command of the built binary: what it prints where, and its exit code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test program: helpers are not marked as tests"
)]

mod support;

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use support::process::{MANIFOLD, run};
use support::{Fake, Host, HostKind, Options, ServerKind, Setup, until};

/// A folder with a configuration, and commands that see nothing of the machine.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(config: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("manifold-cli-")
            .tempdir()
            .unwrap();
        std::fs::write(folder.path().join("manifold.yaml"), config).unwrap();
        Self { folder }
    }

    fn samples(more: &str) -> Self {
        Self::new(&format!(
            "servers:\n  notes: {{ command: \"${{self}}\", args: [sample-server, notes] }}\n  clock: {{ command: \"${{self}}\", args: [sample-server, clock] }}\n{more}"
        ))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(MANIFOLD);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("MANIFOLD_CONFIG", self.path("manifold.yaml"));
        let (code, out, err) = run(&mut command);
        let folder = self.folder.path().display().to_string();
        (code, out.replace(&folder, "DIR"), err.replace(&folder, "DIR"))
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
}

#[test]
fn help_names_the_commands_of_this_version() {
    let place = Place::samples("");
    let (code, out, err) = place.run(&["--help"]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(out);
    let (code, _, err) = place.run(&["no-such-command"]);
    assert_eq!(code, 2, "{err}");
}

#[test]
fn commands_of_later_versions_say_so() {
    let place = Place::samples("");
    for command in ["policy", "lock", "audit", "import", "install", "uninstall"] {
        let (code, out, err) = place.run(&[command, "--whatever", "x"]);
        assert_eq!((code, out.as_str()), (2, ""), "{command}");
        assert!(
            err.contains("is not offered by this version yet"),
            "{command}: {err}"
        );
    }
}

#[test]
fn schema_and_completions_go_to_standard_output() {
    let place = Place::samples("");
    let (code, out, _) = place.run(&["schema"]);
    assert_eq!(code, 0);
    assert_eq!(json_of(&out)["title"], "manifold configuration");
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = place.run(&["completions", shell]);
        assert_eq!(code, 0);
        assert!(out.contains("sample-server"), "{shell}");
    }
    assert_eq!(place.run(&["completions", "cobol"]).0, 2);
}

#[test]
fn check_says_that_all_is_well() {
    let (code, out, err) = Place::samples("").run(&["check"]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(out);
}

#[test]
fn check_reports_every_problem_at_its_place() {
    let place = Place::new("servers:\n  a: { command: x, cocurrency: 3 }\n  b: {}\npolicy: { rules: [] }\n");
    let (code, out, err) = place.run(&["check"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("3 problems") && err.contains("concurrency"), "{err}");
    let (code, out, err) = place.run(&["check", "--json"]);
    assert_eq!((code, err.as_str()), (2, ""));
    let report = json_of(&out);
    assert_eq!(report["ok"], false);
    assert_eq!(report["problems"].as_array().unwrap().len(), 3, "{out}");
    assert_eq!(report["problems"][0]["line"], 2, "{out}");
}

#[test]
fn check_refuses_a_server_whose_secret_is_missing() {
    let place = Place::new("servers:\n  a: { command: x, env: { KEY: \"${env:NOT_THERE}\" } }\n");
    let (code, out, err) = place.run(&["check"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("refused") && out.contains("NOT_THERE"), "{out}");
}

#[test]
fn check_connect_reports_on_each_server() {
    let place = Place::samples(
        "  gone: { command: /no/such/program }\nnames: { max_length: 16 }\npolicy:\n  default: allow\n  rules:\n    - { id: idle, effect: deny, tools: [\"nobody/*\"] }\n    - { id: used, effect: deny, tools: [\"notes/delete_*\"] }\n",
    );
    let (code, out, err) = place.run(&["check", "--connect"]);
    assert_eq!(code, 1, "{out}{err}");
    insta::assert_snapshot!(out);
    let (code, out, _) = place.run(&["check", "--connect", "--json"]);
    assert_eq!(code, 1);
    let connected = &json_of(&out)["connected"];
    assert_eq!(connected["rules_about_nothing"], json!(["idle"]));
    assert_eq!(connected["servers"][0]["family"], "modern");
    assert_eq!(connected["servers"][2]["state"], "failed");
    assert!(
        !connected["altered_names"].as_array().unwrap().is_empty(),
        "{out}"
    );
}

#[test]
fn tools_lists_with_verdicts() {
    let place = Place::samples(
        "policy:\n  default: deny\n  rules:\n    - { id: reads, effect: allow, tools: [\"*/search_*\", \"clock/*\"] }\n",
    );
    let (code, out, err) = place.run(&["tools"]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(out);
    let (code, out, err) = place.run(&["tools", "--json", "--as", "someone"]);
    assert_eq!(code, 0);
    assert!(err.contains("not offered by this version"), "{err}");
    let report = json_of(&out);
    let verdicts: Vec<&str> = report["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["deny", "allow", "deny", "allow", "allow"]);
}

#[test]
fn tools_fails_when_nothing_can_be_listed() {
    let place = Place::new("servers:\n  gone: { command: /no/such/program }\n");
    let (code, _, err) = place.run(&["tools"]);
    assert_eq!(code, 1);
    assert!(err.contains("\"gone\" is not ready"), "{err}");
}

#[test]
fn call_prints_the_text_of_the_result() {
    let place = Place::samples("");
    let (code, out, err) = place.run(&["call", "notes__add_note", r#"{"title":"hello","text":"world"}"#]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (0, "Added the note \"hello\".\n", "")
    );
    let (code, out, _) = place.run(&["call", "clock__now", "--json"]);
    assert_eq!(code, 0);
    assert_eq!(json_of(&out)["content"][0]["type"], "text");
    // The call and its end are in the audit log, under the command's name.
    let mut log = String::new();
    for entry in std::fs::read_dir(place.path(".local/state/manifold/audit")).unwrap() {
        log.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    assert!(log.contains("manifold call") && log.contains("add_note"), "{log}");
}

#[test]
fn call_tells_failures_apart() {
    let place = Place::samples(
        "policy:\n  default: allow\n  rules:\n    - { id: r, effect: deny, tools: [\"notes/delete_*\"] }\n",
    );
    let (code, _, err) = place.run(&["call", "clock__now", "[1]"]);
    assert_eq!(code, 2, "{err}");
    let (code, _, err) = place.run(&["call", "clock__now", "{no"]);
    assert_eq!(code, 2, "{err}");
    let (code, out, err) = place.run(&["call", "clock__nwo"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("did you mean \"clock__now\"?"), "{err}");
    // What policy hides does not exist for the command either.
    let (code, _, err) = place.run(&["call", "notes__delete_note", r#"{"title":"x"}"#]);
    assert_eq!(code, 1);
    assert!(err.contains("there is no tool \"notes__delete_note\""), "{err}");
    let (code, out, err) = place.run(&["call", "clock__now", r#"{"zone":"Nowhere/Else"}"#]);
    assert_eq!(code, 1, "{out}{err}");
}

#[test]
fn call_works_on_legacy_servers_and_refuses_their_questions() {
    let asks = json!([[
        "q",
        "elicitation/create",
        r#"{"message":"who?","requestedSchema":{"type":"object"}}"#
    ]]);
    for kind in [
        ServerKind::StdioLegacy,
        ServerKind::HttpLegacy,
        ServerKind::StdioModern,
    ] {
        let fake = Fake::echo("one", kind).tool(
            "asks",
            json!([{ "ask": asks }, { "result": r#"{"content":[],"structuredContent":@@ANSWERS@@}"# }]),
        );
        let daemon = Setup::of(&[&fake]).prepare();
        let (code, out, err) = run(&mut daemon.command(&["call", "one__echo", r#"{"n":1.10}"#, "--json"]));
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains(r#"{"n":1.10}"#), "{out}");
        let (code, out, err) = run(&mut daemon.command(&["call", "one__asks"]));
        // A modern server waits for input that cannot come; a legacy one is refused and may end as it likes.
        assert!(
            code == 1 || kind == ServerKind::StdioLegacy || kind == ServerKind::HttpLegacy,
            "{out}{err}"
        );
        fake.assert_clean();
    }
}

#[test]
fn status_shows_the_running_daemon() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    assert_eq!(host.tool_names(), ["one__echo"]);
    let url = format!("http://{}", daemon.admin());
    let (code, out, err) = run(&mut daemon.command(&["status", "--url", &url]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("one     ready"), "{out}");
    assert!(out.contains("1 session,"), "{out}");
    let (code, out, _) = run(&mut daemon.command(&["status", "--url", &url, "--json"]));
    assert_eq!(code, 0);
    assert_eq!(json_of(&out)["servers"][0]["name"], "one");
    // The configuration says port 0: which one it became is not known to another process.
    let (code, _, err) = run(&mut daemon.command(&["status"]));
    assert_eq!(code, 2);
    assert!(err.contains("--url"), "{err}");
}

#[test]
fn status_helps_when_nothing_answers() {
    let place = Place::samples("");
    let (code, out, err) = place.run(&["status", "--url", "unix:/no/such/socket"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("Is the daemon running?"), "{err}");
    let (code, _, err) = place.run(&["status", "--url", "nonsense"]);
    assert_eq!(code, 2);
    assert!(err.contains("is no address"), "{err}");
}

/// What a host on a relay sees is what one on the daemon sees.
fn relayed(kind: HostKind, server: ServerKind) {
    let fake = Fake::echo("one", server).tool(
        "works",
        json!([{ "progress": 2 }, { "gate": "go" }, { "result": r#"{"content":[],"structuredContent":{"a":@@ARGS@@}}"# }]),
    );
    let socket = tempfile::tempdir().unwrap();
    let unix = format!("unix:{}/mcp.sock", socket.path().display());
    let daemon = Setup::of(&[&fake])
        .set("listen", json!({ "http": ["127.0.0.1:0", unix] }))
        .start();
    for address in [daemon.url(), unix] {
        let options = Options {
            connect: Some(address),
            ..Options::default()
        };
        let host = Host::with(&daemon, kind, options);
        assert_eq!(host.tool_names(), ["one__echo", "one__works"]);
        let odd = r#"{"n":1.10, "b":18446744073709551617}"#;
        let seen = host.call("one__echo", odd);
        assert!(seen.raw.contains(odd), "{}", seen.raw);
        let call = host.start_call_with("\"x\"", "one__works", "{}", r#""progressToken":"t1""#);
        fake.wait_event("at go");
        fake.release("go");
        host.wait_answer(&call).result();
        assert_eq!(host.progress("\"t1\"").len(), 2);
    }
    fake.assert_clean();
}

#[test]
fn a_relay_serves_a_legacy_host() {
    relayed(HostKind::Stdio, ServerKind::StdioLegacy);
    relayed(HostKind::Stdio, ServerKind::HttpLegacy);
}

#[test]
fn a_relay_serves_a_modern_host() {
    relayed(HostKind::StdioModern, ServerKind::StdioModern);
    relayed(HostKind::StdioModern, ServerKind::HttpModern);
}

#[test]
fn a_relay_passes_cancellations_on() {
    for (kind, server) in [
        (HostKind::Stdio, ServerKind::StdioLegacy),
        (HostKind::StdioModern, ServerKind::StdioModern),
    ] {
        let fake = Fake::new("one", server).tool(
            "waits",
            json!([{ "gate": "never" }, { "result": r#"{"content":[]}"# }]),
        );
        let daemon = Setup::of(&[&fake]).start();
        let options = Options {
            connect: Some(daemon.url()),
            ..Options::default()
        };
        let host = Host::with(&daemon, kind, options);
        assert_eq!(host.tool_names(), ["one__waits"]);
        host.start_call_with("77", "one__waits", "{}", "");
        fake.wait_event("at never");
        host.notify("notifications/cancelled", r#"{"requestId":77}"#);
        fake.wait_received("notifications/cancelled");
        host.never("an answer to a cancelled call", |seen| {
            seen.raw.contains("\"id\":77")
        });
    }
}

#[test]
fn a_relay_ends_its_session_and_tells_when_the_daemon_is_gone() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let mut daemon = Setup::of(&[&fake]).start();
    let options = || Options {
        connect: Some(daemon.url()),
        ..Options::default()
    };
    let host = Host::with(&daemon, HostKind::Stdio, options());
    host.call("one__echo", "{}");
    until("the session is there", || {
        (daemon.status()["sessions"] == 1).then_some(())
    });
    host.process().stdin.lock().unwrap().take();
    assert_eq!(host.process().wait_exit("the relay ends with its host"), 0);
    until("the session is gone", || {
        (daemon.status()["sessions"] == 0).then_some(())
    });

    let host = Host::with(&daemon, HostKind::Stdio, options());
    host.call("one__echo", "{}");
    daemon.restart();
    let call = host.send("tools/list", "{}");
    let seen = host.wait_answer(&call);
    assert!(
        seen.raw.contains("\"manifold\"") && seen.raw.contains("\"error\""),
        "{}",
        seen.raw
    );
}

#[test]
fn a_relay_learns_the_parameter_headers_that_a_host_did_not_ask_for() {
    let tool = r#"{"name":"located","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
    let steps = json!([{ "result": r#"{"content":[],"structuredContent":{"a":@@ARGS@@}}"# }]);
    let fake = Fake::new("one", ServerKind::HttpModern).raw_tool("located", tool, steps);
    let daemon = Setup::of(&[&fake]).start();
    let options = Options {
        connect: Some(daemon.url()),
        ..Options::default()
    };
    let host = Host::with(&daemon, HostKind::StdioModern, options);
    // The host kept the list of an earlier run: no list has passed this relay.
    let seen = host.call("one__located", r#"{"region":"eu"}"#);
    assert_eq!(
        seen.result()["structuredContent"]["a"]["region"],
        "eu",
        "{}",
        seen.raw
    );
    let sent = fake.calls("located").pop().expect("the server was called");
    assert_eq!(sent.header("mcp-param-region").as_deref(), Some("eu"));
}

#[test]
fn a_configuration_that_starts_itself_is_refused() {
    let setup = Setup::new();
    let config = setup.config_path();
    let entry = json!({ "command": MANIFOLD, "args": ["serve", "--config", config] });
    let daemon = setup.entry("me", entry).start();
    until("the child has refused to run", || {
        let status = daemon.server_status("me").to_string();
        status.contains("starts the configuration itself").then_some(())
    });
}
