//! Reload by file change and SIGHUP, shutdown, health, and the ways to reach the daemon.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::http::{self, Address};
use crate::support::process::alive;
use crate::support::{Fake, Host, HostKind, Options, ServerKind, Setup, never, until};

#[test]
fn reload_by_file_change_restarts_only_what_changed() {
    let keep = Fake::echo("keep", ServerKind::StdioLegacy).tool("slow", json!([{ "gate": "go" }]));
    let edit = Fake::echo("edit", ServerKind::StdioLegacy);
    let drop = Fake::echo("drop", ServerKind::StdioLegacy);
    let add = Fake::echo("add", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&keep, &edit, &drop]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("four", |names| names.len() == 4);
    let call = host.start_call("keep__slow", "{}");
    keep.wait_event("at go");
    let dropped = drop.pids();
    daemon.reconfigure(|setup| {
        setup
            .server(&edit, json!({ "env": { "CHANGED": "yes" } }))
            .server(&add, json!({}))
    });
    host.wait_tool("add__echo");
    until("the changed server runs anew", || {
        edit.records()
            .iter()
            .any(|entry| entry.kind == "start" && entry.entry["env"]["CHANGED"] == "yes")
            .then_some(())
    });
    daemon.remove_server("drop");
    host.wait_tools("drop is gone", |names| {
        !names.iter().any(|name| name.starts_with("drop"))
    });
    for pid in dropped {
        until("the removed server's process ends", || {
            (!alive(pid)).then_some(())
        });
    }
    assert_eq!(
        keep.pids().len(),
        keep.records()
            .iter()
            .filter(|entry| entry.kind == "start")
            .count()
    );
    keep.release("go");
    host.wait_answer(&call).result();
    assert!(keep.ends().is_empty(), "a call in flight was disturbed");
    assert!(
        keep.records().iter().all(|entry| entry.kind != "stdin_end"),
        "an unchanged server was restarted"
    );
    assert!(!host.with_method("notifications/tools/list_changed").is_empty());
}

#[test]
fn reload_by_sighup() {
    let one = Fake::echo("one", ServerKind::StdioLegacy);
    let two = Fake::echo("two", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&one]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    daemon.process().signal(Signal::HUP);
    host.call("one__echo", "{}").result();
    let pids = one.pids();
    daemon.reconfigure(|setup| setup.server(&two, json!({})));
    daemon.process().signal(Signal::HUP);
    host.wait_tool("two__echo");
    assert_eq!(one.pids(), pids, "no change means no action");
}

#[test]
fn a_bad_file_keeps_the_running_configuration() {
    let one = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&one]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let good = daemon.config_text();
    daemon.write_config(&good.replace("\"servers\"", "\"serverz\""));
    until("the log names the key", || {
        daemon.process().log_has("serverz").then_some(())
    });
    host.call("one__echo", "{}").result();
    daemon.write_config("{ this is: [not");
    daemon.process().signal(Signal::HUP);
    host.call("one__echo", "{}").result();
    assert_eq!(host.tool_names(), ["one__echo"]);
    let two = Fake::echo("two", ServerKind::StdioLegacy);
    daemon.reconfigure(|setup| setup.server(&two, json!({})));
    host.wait_tool("two__echo");
}

#[test]
fn a_policy_change_applies_to_the_next_decision() {
    let one = Fake::echo("one", ServerKind::StdioLegacy).tool("x", json!([]));
    let daemon = Setup::of(&[&one]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__x");
    host.call("one__x", "{}").result();
    daemon.reconfigure(|setup| {
        setup.set(
            "policy",
            json!({ "default": "allow", "rules": [{ "id": "d", "effect": "deny", "tools": ["one/x"] }] }),
        )
    });
    host.wait_method("notifications/tools/list_changed");
    assert_eq!(host.tool_names(), ["one__echo"]);
    assert_eq!(host.call("one__x", "{}").code(), -32602);
    assert_eq!(one.calls("x").len(), 1);
    assert_eq!(one.pids().len(), one.pids().len());
}

#[test]
fn sigterm_lets_calls_finish_and_cancels_the_rest() {
    let one = Fake::echo("one", ServerKind::StdioLegacy)
        .tool("short", json!([{ "gate": "short" }]))
        .tool("long", json!([{ "gate": "long" }]));
    let stubborn = Fake::echo("stubborn", ServerKind::StdioLegacy).set("ignore_stdin_end", json!(true));
    let daemon = Setup::of(&[&one, &stubborn]).set("grace", json!("3s")).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("all", |names| names.len() == 4);
    let short = host.start_call("one__short", "{}");
    let long = host.start_call("one__long", "{}");
    one.wait_events("at short", 1);
    one.wait_events("at long", 1);
    let started = Instant::now();
    daemon.process().signal(Signal::TERM);
    one.release("short");
    host.wait_answer(&short).result();
    let ended = host.wait("the long call ends with an error or its stream closes", |seen| {
        seen.answers(&long)
    });
    ended.error();
    assert_eq!(daemon.process().wait_exit("it exits"), 0);
    assert!(started.elapsed() < Duration::from_secs(20));
    for pid in one.pids().into_iter().chain(stubborn.pids()) {
        until("the children are gone", || (!alive(pid)).then_some(()));
    }
    assert!(
        daemon
            .audit()
            .iter()
            .any(|record| record.to_string().contains("one__long") && record.to_string().contains("outcome")),
        "the audit is flushed"
    );
}

#[test]
fn a_second_sigterm_ends_at_once() {
    let one = Fake::new("one", ServerKind::StdioLegacy).tool("long", json!([{ "gate": "never" }]));
    let daemon = Setup::of(&[&one]).set("grace", json!("10m")).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__long");
    host.start_call("one__long", "{}");
    one.wait_event("at never");
    daemon.process().signal(Signal::TERM);
    never("it leaves before its calls", || {
        daemon.process().exited().is_some()
    });
    daemon.process().signal(Signal::TERM);
    daemon.process().wait_exit("the second signal");
    for pid in one.pids() {
        until("the children are gone", || (!alive(pid)).then_some(()));
    }
}

/// Killed outright, the daemon takes its children with it.
#[test]
fn sigkill_leaves_no_child() {
    let one = Fake::echo("one", ServerKind::StdioLegacy).set("ignore_stdin_end", json!(true));
    let daemon = Setup::of(&[&one]).start();
    Host::connect(&daemon, HostKind::Http).wait_tool("one__echo");
    daemon.process().signal(Signal::KILL);
    daemon.process().wait_exit("killed");
    for pid in one.pids() {
        until("the child dies with it", || (!alive(pid)).then_some(()));
    }
}

#[test]
fn health_and_readiness() {
    let one = Fake::echo("one", ServerKind::HttpLegacy);
    let daemon = Setup::of(&[&one]).start();
    Host::connect(&daemon, HostKind::Http).wait_tool("one__echo");
    assert_eq!(daemon.admin_get("/healthz").0, 200);
    assert_eq!(daemon.admin_get("/readyz").0, 200);
    assert_eq!(
        http::request(&daemon.admin(), "HEAD", "/healthz", &[], None).status,
        200
    );
    one.kill_http();
    assert_eq!(daemon.admin_get("/healthz").0, 200);
    assert_eq!(
        daemon.admin_get("/readyz").0,
        200,
        "one server down does not change it"
    );
    // Never on the host listener.
    for path in ["/healthz", "/readyz", "/status", "/metrics"] {
        assert_eq!(http::get(&daemon.address(), path, &[]).status, 404, "{path}");
    }
    let foreign = http::raw(
        &daemon.admin(),
        b"GET /status HTTP/1.1\r\nhost: evil.example\r\n\r\n",
    );
    assert_eq!(foreign.status, 403);
    let foreign = http::get(&daemon.admin(), "/status", &[("origin", "http://evil.example")]);
    assert_eq!(foreign.status, 403);
}

#[test]
fn status_tells_of_each_server() {
    let good = Fake::echo("good", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&good])
        .entry("bad", json!({ "command": "/does/not/exist" }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("good__echo");
    until("the failure is told", || {
        let bad = daemon.server_status("bad").to_string();
        bad.contains("/does/not/exist").then_some(())
    });
    assert!(
        daemon.server_status("good").to_string().contains("ready"),
        "{}",
        daemon.server_status("good")
    );
}

#[test]
fn a_unix_socket_serves_hosts() {
    let one = Fake::echo("one", ServerKind::StdioLegacy);
    let setup = Setup::of(&[&one]);
    let socket = setup.path().join("mcp.sock");
    let daemon = setup
        .set("listen", json!({ "http": format!("unix:{}", socket.display()) }))
        .start();
    assert_eq!(daemon.address(), Address::Unix(socket.clone()));
    for kind in [HostKind::Http, HostKind::HttpModern] {
        let host = Host::at(Address::Unix(socket.clone()), kind, Options::default());
        if !kind.modern() {
            host.initialize().result();
            host.notify("notifications/initialized", "");
        }
        host.wait_tool("one__echo");
        host.call("one__echo", r#"{"n":1.10}"#).result();
    }
}

#[test]
fn several_listeners() {
    let one = Fake::echo("one", ServerKind::StdioLegacy);
    let setup = Setup::of(&[&one]);
    let socket = setup.path().join("mcp.sock");
    let daemon = setup
        .set(
            "listen",
            json!({ "http": ["127.0.0.1:0", format!("unix:{}", socket.display())] }),
        )
        .start();
    Host::connect(&daemon, HostKind::Http).wait_tool("one__echo");
    let host = Host::at(Address::Unix(socket), HostKind::HttpModern, Options::default());
    host.wait_tool("one__echo");
}

fn connected(kind: HostKind) {
    let one =
        Fake::echo("one", ServerKind::StdioLegacy).tool("work", json!([{ "progress": 3 }, { "gate": "go" }]));
    let daemon = Setup::of(&[&one]).start();
    let host = Host::with(
        &daemon,
        kind,
        Options {
            connect: Some(daemon.url()),
            ..Options::default()
        },
    );
    host.wait_tool("one__work");
    let call = host.start_call_with("\"c\"", "one__work", r#"{"n":1.10}"#, r#""progressToken":"tok""#);
    one.wait_event("at go");
    host.wait_count("progress", 3, |seen| seen.method() == "notifications/progress");
    host.cancel(&call);
    one.wait_end("work");
    assert!(
        host.call("one__echo", r#"{"n":1.10}"#)
            .raw
            .contains(r#"{"n":1.10}"#)
    );
    one.assert_clean();
}

#[test]
fn stdio_connect_joins_a_running_daemon() {
    connected(HostKind::Stdio);
}

#[test]
fn stdio_connect_joins_a_running_daemon_modern() {
    connected(HostKind::StdioModern);
}

/// `manifold stdio`: the end of stdin ends it promptly, its children with it; stdout carries protocol only.
#[test]
fn stdio_ends_with_its_stdin() {
    let one = Fake::echo("one", ServerKind::StdioLegacy).tool("slow", json!([{ "gate": "never" }]));
    let daemon = Setup::of(&[&one]).prepare();
    let host = Host::connect(&daemon, HostKind::Stdio);
    host.wait_tool("one__slow");
    host.start_call("one__slow", "{}");
    one.wait_event("at never");
    host.end();
    assert_eq!(host.process().wait_exit("the end of stdin"), 0);
    for pid in one.pids() {
        until("the child is gone", || (!alive(pid)).then_some(()));
    }
    assert!(
        host.messages().iter().all(|seen| seen.value["jsonrpc"] == "2.0"),
        "something else on stdout"
    );
}

/// Three hosts, three processes, one state folder.
#[test]
fn several_processes_share_the_state() {
    let one = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&one]).prepare();
    let hosts: Vec<Host> = (0..3).map(|_| Host::connect(&daemon, HostKind::Stdio)).collect();
    for host in &hosts {
        host.wait_tool("one__echo");
        host.call("one__echo", "{}").result();
    }
}
