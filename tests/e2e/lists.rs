//! Lists, change notices, records on disk, subscriptions and log messages.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Fake, Host, HostKind, Options, ServerKind, Setup, never, until};

/// Same order, same bytes, every time.
#[test]
fn lists_are_stable() {
    let fakes: Vec<Fake> = ["zeta", "alpha", "mid"]
        .iter()
        .map(|name| {
            Fake::echo(name, ServerKind::StdioLegacy)
                .tool("b", json!([]))
                .tool("a", json!([]))
        })
        .collect();
    let daemon = Setup::of(&fakes.iter().collect::<Vec<_>>()).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("nine", |names| names.len() == 9);
    let expected: Vec<String> = ["zeta", "alpha", "mid"]
        .iter()
        .flat_map(|server| ["echo", "b", "a"].map(|tool| format!("{server}__{tool}")))
        .collect();
    assert_eq!(
        host.tool_names(),
        expected,
        "servers as configured, tools as listed"
    );
    let first = host.request("tools/list", "").member("result");
    for _ in 0..5 {
        assert_eq!(host.request("tools/list", "").member("result"), first);
    }
    assert_eq!(
        Host::connect(&daemon, HostKind::Http)
            .request("tools/list", "")
            .member("result"),
        first
    );
}

fn changes(host: HostKind, server: ServerKind) {
    let hidden =
        json!({ "key": "new", "raw": r#"{"name":"new","inputSchema":{"type":"object"}}"#, "hidden": true });
    let fake = Fake::new("one", server)
        .tool(
            "add",
            json!([{ "enable": "new" }, { "list_changed": ["tools", 1] }]),
        )
        .item("tools", hidden);
    let daemon = Setup::of(&[&fake]).for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tool("one__add");
    if host.kind().modern() {
        host.send(
            "subscriptions/listen",
            r#"{"notifications":{"toolsListChanged":true}}"#,
        );
        host.wait_method("notifications/subscriptions/acknowledged");
    }
    if host.kind().modern() || server.modern() {
        fake.wait_event("listening");
    }
    host.call("one__add", "{}").result();
    host.wait_method("notifications/tools/list_changed");
    host.wait_tool("one__new");
    host.call("one__new", "{}").result();
    // Nothing really changed: no notice, whatever the server says.
    let before = host.with_method("notifications/tools/list_changed").len();
    fake.perform(json!([{ "list_changed": ["tools", 50] }]));
    never("a notice without a change", || {
        host.with_method("notifications/tools/list_changed").len() > before
    });
    assert!(
        fake.received("tools/list").len() < 30,
        "a burst of 50 notices causes few re-reads"
    );
}

crate::pairs!(change_notices, super::changes, [
    stdio_to_stdio: Stdio -> StdioLegacy,
    http_to_stdio: Http -> StdioLegacy,
    http_to_http: Http -> HttpLegacy,
    http_to_sse: Http -> Sse,
    modern_http_to_stdio: HttpModern -> StdioModern,
    modern_http_to_http: HttpModern -> HttpModern,
]);

/// Each host hears of a change once, on its own stream; others than the changed kind say nothing.
#[test]
fn every_host_hears_once() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .tool("gone", json!([]))
        .prompt("p")
        .resource("file:///r");
    let daemon = Setup::of(&[&fake]).start();
    let hosts = [
        Host::connect(&daemon, HostKind::Http),
        Host::connect(&daemon, HostKind::Http),
    ];
    for host in &hosts {
        host.wait_tool("one__gone");
    }
    fake.perform(
        json!([{ "disable": "gone" }, { "list_changed": ["tools", 5] }, { "list_changed": ["prompts", 5] }]),
    );
    for host in &hosts {
        assert_eq!(host.wait_method("notifications/tools/list_changed").stream, "get");
    }
    never("a second or foreign notice", || {
        hosts.iter().any(|host| {
            host.with_method("notifications/tools/list_changed").len() > 1
                || !host.with_method("notifications/prompts/list_changed").is_empty()
        })
    });
}

/// A server that is slow, down or broken never delays a list once it was recorded.
#[test]
fn recorded_entries_stay_listed() {
    let quick = Fake::echo("quick", ServerKind::StdioLegacy);
    let slow = Fake::echo("slow", ServerKind::HttpLegacy);
    let mut daemon = Setup::of(&[&quick, &slow]).start();
    Host::connect(&daemon, HostKind::Http).wait_tools("both", |names| names.len() == 2);
    slow.kill_http();
    let host = Host::connect(&daemon, HostKind::Http);
    assert_eq!(host.tool_names(), ["quick__echo", "slow__echo"]);
    daemon.restart();
    let started = Instant::now();
    let host = Host::connect(&daemon, HostKind::Http);
    assert_eq!(
        host.tool_names(),
        ["quick__echo", "slow__echo"],
        "kept on disk across restarts"
    );
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    host.call("quick__echo", "{}").result();
    slow.start_http();
    until("the server is back without anybody's help", || {
        host.call("slow__echo", "{}")
            .value
            .get("result")
            .is_some()
            .then_some(())
    });
}

/// A server never listed before is waited for, up to `start_wait`.
#[test]
fn a_first_list_waits_only_so_long() {
    let quick = Fake::echo("quick", ServerKind::StdioLegacy);
    let stuck = Fake::echo("stuck", ServerKind::StdioLegacy).set("start", json!([{ "gate": "ready" }]));
    let daemon = Setup::of(&[&quick, &stuck])
        .set("start_wait", json!("2s"))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    let started = Instant::now();
    assert_eq!(host.tool_names(), ["quick__echo"]);
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
    stuck.release("ready");
    host.wait_tool("stuck__echo");
    assert!(
        !host.with_method("notifications/tools/list_changed").is_empty(),
        "the host is told"
    );
}

fn subscriptions(host: HostKind, server: ServerKind) {
    let fake = Fake::new("one", server)
        .resource("file:///watched")
        .resource("file:///other");
    let daemon = Setup::of(&[&fake]).for_host(host);
    let host = Host::connect(&daemon, host);
    until("the resources are listed", || {
        (host.list("resources/list", "resources").len() == 2).then_some(())
    });
    if host.kind().modern() {
        host.send(
            "subscriptions/listen",
            r#"{"notifications":{"resourceSubscriptions":["file:///watched"]}}"#,
        );
        let ack = host.wait_method("notifications/subscriptions/acknowledged");
        assert!(ack.raw.contains("file:///watched"), "{}", ack.raw);
        until("the server hears of the subscription", || {
            fake.received("subscriptions/listen")
                .iter()
                .any(|entry| entry.raw.contains("file:///watched"))
                .then_some(())
        });
    } else {
        host.request("resources/subscribe", r#"{"uri":"file:///watched"}"#)
            .result();
        assert_eq!(
            fake.wait_received("resources/subscribe").value["params"]["uri"],
            "file:///watched"
        );
    }
    // The listener may be registered a moment after the message was recorded.
    until("the update reaches the host", || {
        fake.perform(
            json!([{ "resource_updated": "file:///other" }, { "resource_updated": "file:///watched" }]),
        );
        (!host.with_method("notifications/resources/updated").is_empty()).then_some(())
    });
    assert!(
        host.with_method("notifications/resources/updated")
            .iter()
            .all(|seen| seen.value["params"]["uri"] == "file:///watched")
    );
    if !host.kind().modern() {
        host.request("resources/unsubscribe", r#"{"uri":"file:///watched"}"#)
            .result();
        fake.wait_received("resources/unsubscribe");
    }
    fake.assert_clean();
}

crate::pairs!(resource_subscriptions, super::subscriptions, [
    stdio_to_stdio: Stdio -> StdioLegacy,
    http_to_stdio: Http -> StdioLegacy,
    http_to_http: Http -> HttpLegacy,
    modern_http_to_stdio: HttpModern -> StdioModern,
    modern_http_to_http: HttpModern -> HttpModern,
]);

/// What changes once the host has its acknowledgement reaches it: it is not given before the server listens.
fn heard_from_the_acknowledgement_on(host: HostKind, server: ServerKind) {
    const URI: &str = "file:///watched";
    let fake = Fake::new("one", server)
        .resource(URI)
        .tool("touch", json!([{ "resource_updated": URI }]))
        .set("on", json!({ "subscriptions/listen": [{ "gate": "listen" }] }));
    let daemon = Setup::of(&[&fake]).for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tool("one__touch");
    host.send(
        "subscriptions/listen",
        &format!(r#"{{"notifications":{{"resourceSubscriptions":["{URI}"]}}}}"#),
    );
    until("the server is asked to listen", || {
        fake.received("subscriptions/listen")
            .iter()
            .any(|entry| entry.raw.contains(URI))
            .then_some(())
    });
    let acknowledged = || {
        !host
            .with_method("notifications/subscriptions/acknowledged")
            .is_empty()
    };
    let touch = || {
        host.call("one__touch", r#"{"text":"x"}"#).result();
    };
    // Whoever is acknowledged may change something at once, here while the server does not listen yet.
    let end = std::time::Instant::now() + std::time::Duration::from_millis(100);
    while !acknowledged() && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    let early = acknowledged();
    if early {
        touch();
    }
    fake.release("listen");
    host.wait_method("notifications/subscriptions/acknowledged");
    if !early {
        touch();
    }
    host.wait_method("notifications/resources/updated");
    fake.assert_clean();
}

crate::pairs!(heard_from_the_acknowledgement, super::heard_from_the_acknowledgement_on, [
    modern_http_to_stdio: HttpModern -> StdioModern,
    modern_http_to_http: HttpModern -> HttpModern,
]);

/// Log messages at or above the session's level, those of a call to its caller only.
#[test]
fn log_messages() {
    let speak = json!([{ "log": ["debug", "l", "\"d\""] }, { "log": ["info", "l", "\"i @@TEXT@@\""] }, { "log": ["error", "l", "{\"n\":1.10}"] }]);
    let fake = Fake::new("one", ServerKind::HttpLegacy).tool("talk", speak);
    let daemon = Setup::of(&[&fake]).start();
    let hosts = [
        Host::connect(&daemon, HostKind::Http),
        Host::connect(&daemon, HostKind::Http),
    ];
    for host in &hosts {
        host.wait_tool("one__talk");
        host.request("logging/setLevel", r#"{"level":"info"}"#).result();
    }
    hosts[0].call("one__talk", r#"{"text":"mine"}"#).result();
    let seen = hosts[0].wait_count("two messages", 2, |seen| seen.method() == "notifications/message");
    assert!(seen.iter().all(|seen| seen.value["params"]["level"] != "debug"));
    assert!(seen[1].raw.contains(r#"{"n":1.10}"#), "{}", seen[1].raw);
    assert!(
        seen[0].value["params"]["logger"]
            .as_str()
            .unwrap()
            .contains("one"),
        "the logger names the server: {}",
        seen[0].raw
    );
    never("another session hears of it", || {
        !hosts[1].with_method("notifications/message").is_empty()
    });
    assert_eq!(
        hosts[0].request("logging/setLevel", r#"{"level":"loud"}"#).code(),
        -32602
    );
}

/// Modern: no log messages unless the request asks for a level, and none below it.
#[test]
fn modern_log_messages_by_request() {
    let speak = json!([{ "log": ["info", "l", "\"i\""] }, { "log": ["error", "l", "\"e\""] }]);
    let fake = Fake::new("one", ServerKind::HttpModern).tool("talk", speak);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::HttpModern);
    host.wait_tool("one__talk");
    host.call("one__talk", "{}").result();
    assert!(
        host.with_method("notifications/message").is_empty(),
        "nobody asked"
    );
    let call = host.start_call_with(
        "70",
        "one__talk",
        "{}",
        r#""io.modelcontextprotocol/logLevel":"error""#,
    );
    host.wait_answer(&call).result();
    let seen = host.with_method("notifications/message");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].value["params"]["level"], "error");
    assert_eq!(seen[0].stream, "post:70");
}

/// A cursor belongs to a catalog version: a list in pages neither misses nor repeats.
#[test]
fn six_hundred_tools_in_one_or_more_pages() {
    let mut fakes = Vec::new();
    for server in 0..6 {
        let mut fake = Fake::new(&format!("s{server}"), ServerKind::StdioLegacy);
        for tool in 0..100 {
            fake = fake.tool(&format!("t{tool}"), json!([]));
        }
        fakes.push(fake);
    }
    let daemon = Setup::of(&fakes.iter().collect::<Vec<_>>()).start();
    let host = Host::with(&daemon, HostKind::Http, Options::default());
    let names = host.wait_tools("600", |names| names.len() == 600);
    let first = host.request("tools/list", "");
    assert!(
        first.result().get("nextCursor").is_none(),
        "hosts that do not page get one page by default"
    );
    let mut unique = names.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), 600);
}
