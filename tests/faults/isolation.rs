//! ISO: one bad server must not hurt the others; LST: lists, pages and notices.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Fake, Host, HostKind, ServerKind, Setup, never, until};

#[test]
fn iso_1_refused_and_silent_servers() {
    let good = Fake::echo("good", ServerKind::StdioLegacy);
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let daemon = Setup::of(&[&good])
        .entry("refused", json!({ "url": format!("http://{refused}/mcp") }))
        .entry(
            "silent",
            json!({ "url": format!("http://{}/mcp", silent.local_addr().unwrap()) }),
        )
        .set("start_wait", json!("1s"))
        .start();
    let started = Instant::now();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("good__echo");
    assert!(started.elapsed() < Duration::from_secs(10));
    host.call("good__echo", "{}").result();
    until("the refused one is reported", || {
        (!daemon.server_status("refused").to_string().contains("ready")).then_some(())
    });
    assert!(
        !daemon.server_status("silent").to_string().contains("\"ready\""),
        "{}",
        daemon.server_status("silent")
    );
}

#[test]
fn iso_2_a_command_that_does_not_exist_or_exits() {
    let good = Fake::echo("good", ServerKind::StdioLegacy);
    for kind in [HostKind::Http, HostKind::Stdio] {
        let daemon = Setup::of(&[&good])
            .entry("missing", json!({ "command": "no-such-command-anywhere" }))
            .entry(
                "exits",
                json!({ "command": "sh", "args": ["-c", "echo why I leave >&2; exit 7"] }),
            )
            .set("start_wait", json!("1s"))
            .for_host(kind);
        let host = Host::connect(&daemon, kind);
        host.wait_tool("good__echo");
        host.call("good__echo", "{}").result();
        let log = || {
            if kind == HostKind::Http {
                daemon.process().log_tail(500)
            } else {
                host.process().log_tail(500)
            }
        };
        until("the log names command, status and the last words", || {
            let log = log();
            (log.contains("no-such-command-anywhere") && log.contains("why I leave") && log.contains('7'))
                .then_some(())
        });
    }
}

#[test]
fn iso_3_a_server_without_get_stream() {
    let plain = Fake::echo("plain", ServerKind::HttpLegacy).set("get", json!("405"));
    let other = Fake::echo("other", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&plain, &other]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("both", |names| names.len() == 2);
    for _ in 0..5 {
        host.call("plain__echo", "{}").result();
    }
    never("a notice without a change", || {
        !host.with_method("notifications/tools/list_changed").is_empty()
    });
    let sessions: std::collections::HashSet<String> = plain
        .received("initialize")
        .into_iter()
        .map(|entry| entry.session)
        .collect();
    let gets = plain
        .records()
        .iter()
        .filter(|entry| entry.kind == "http" && entry.entry["method"] == "GET")
        .count();
    assert!(
        gets <= sessions.len(),
        "{gets} GETs on {} connections",
        sessions.len()
    );
}

#[test]
fn iso_4_slow_starters_start_together() {
    let fakes: Vec<Fake> = (0..6)
        .map(|number| {
            Fake::echo(&format!("s{number}"), ServerKind::StdioLegacy)
                .set("start", json!([{ "gate": "handshake" }]))
        })
        .collect();
    let daemon = Setup::of(&fakes.iter().collect::<Vec<_>>()).start();
    // All of them are up and waiting although none has answered.
    for fake in &fakes {
        fake.wait_event("at handshake");
    }
    let status = daemon.status().to_string();
    assert!(
        status.contains("start") || status.contains("connecting"),
        "{status}"
    );
    for fake in &fakes {
        fake.release("handshake");
    }
    Host::connect(&daemon, HostKind::Http).wait_tools("all six", |names| names.len() == 6);
}

#[test]
fn iso_5_the_start_limit_of_a_server() {
    let slow = Fake::echo("slow", ServerKind::StdioLegacy).set(
        "start",
        json!([{ "stderr": "still compiling" }, { "gate": "never" }]),
    );
    let good = Fake::echo("good", ServerKind::StdioLegacy);
    let daemon = Setup::new()
        .server(&slow, json!({ "start_timeout": "1s" }))
        .server(&good, json!({}))
        .set("start_wait", json!("500ms"))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("good__echo");
    until("the failure names server, limit and the last words", || {
        let text = daemon.server_status("slow").to_string();
        (text.contains("still compiling") && text.contains("1s")).then_some(())
    });
    until("a retry never runs two copies at once", || {
        let alive = slow
            .pids()
            .into_iter()
            .filter(|pid| crate::support::process::alive(*pid))
            .count();
        assert!(alive <= 1, "{alive} copies");
        (slow.pids().len() >= 2).then_some(())
    });
}

#[test]
fn iso_6_a_capability_that_is_not_real() {
    let liar = Fake::echo("liar", ServerKind::StdioLegacy)
        .set(
            "capabilities",
            json!(r#"{"tools":{},"resources":{},"prompts":{}}"#),
        )
        .on(
            "resources/list",
            json!([{ "error": r#"{"code":-32601,"message":"Method not found"}"# }]),
        )
        .on(
            "resources/templates/list",
            json!([{ "error": r#"{"code":-32603,"message":"broken"}"# }]),
        )
        .on("prompts/list", json!(["stop"]));
    let good = Fake::echo("good", ServerKind::StdioLegacy)
        .prompt("p")
        .resource("file:///r");
    let daemon = Setup::of(&[&liar, &good]).set("start_wait", json!("1s")).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("good__echo");
    for _ in 0..5 {
        assert_eq!(host.list("resources/list", "resources").len(), 1);
        assert_eq!(host.list("prompts/list", "prompts").len(), 1);
        assert!(
            host.list("resources/templates/list", "resourceTemplates")
                .is_empty()
        );
    }
    host.wait_tool("liar__echo");
    host.call("liar__echo", "{}").result();
    let asked = liar.received("resources/list").len();
    for _ in 0..5 {
        host.list("resources/list", "resources");
    }
    assert_eq!(
        liar.received("resources/list").len(),
        asked,
        "remembered as empty"
    );
}

/// A modern host is answered -32601 for what `server/discover` does not offer; a legacy one gets an empty list.
#[test]
fn iso_7_kinds_that_nobody_offers() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).set("capabilities", json!(r#"{"tools":{}}"#));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    assert!(host.list("prompts/list", "prompts").is_empty());
    assert!(host.list("resources/list", "resources").is_empty());
    assert!(
        host.list("resources/templates/list", "resourceTemplates")
            .is_empty()
    );
}

#[test]
fn lst_1_a_later_page_fails() {
    let mut paged = Fake::new("paged", ServerKind::StdioLegacy).set("page_size", json!(30));
    for number in 0..90 {
        paged = paged.tool(&format!("t{number}"), json!([]));
    }
    let broken = Fake::new("broken", ServerKind::StdioLegacy).tool("x", json!([])).on(
        "tools/list",
        json!([{ "raw_answer": r#"{"jsonrpc":"2.0","id":@@ID@@,"result":{"tools":[{"name":"x","inputSchema":{"type":"object"}}],"nextCursor":"not-mine"}}"# }]),
    );
    let daemon = Setup::of(&[&paged, &broken])
        .set("start_wait", json!("1s"))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("ninety", |names| {
        names.iter().filter(|name| name.starts_with("paged")).count() == 90
    });
    // A server whose pages never end is bounded and told about, never silently short.
    until("the log speaks of the broken one", || {
        daemon
            .process()
            .log
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains("broken") && line.contains("WARN"))
            .then_some(())
    });
    host.call("paged__t89", "{}").result();
}

#[test]
fn lst_3_add_makes_a_tool() {
    let hidden =
        json!({ "key": "made", "raw": r#"{"name":"made","inputSchema":{"type":"object"}}"#, "hidden": true });
    let fake = Fake::new("one", ServerKind::StdioLegacy)
        .tool(
            "add",
            json!([{ "enable": "made" }, { "list_changed": ["tools", 100] }]),
        )
        .item("tools", hidden);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__add");
    let before = fake.received("tools/list").len();
    host.call("one__add", "{}").result();
    host.wait_method("notifications/tools/list_changed");
    host.wait_tool("one__made");
    host.call("one__made", "{}").result();
    assert!(
        fake.received("tools/list").len() - before <= 10,
        "a burst of 100 notices causes few re-reads"
    );
}

#[test]
fn lst_4_notices_of_every_kind() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .tool("t", json!([]))
        .prompt("p")
        .prompt("q")
        .resource("file:///r")
        .resource("file:///s");
    let daemon = Setup::of(&[&fake]).start();
    let hosts = [
        Host::connect(&daemon, HostKind::Http),
        Host::connect(&daemon, HostKind::Http),
    ];
    for host in &hosts {
        host.wait_tool("one__t");
        until("everything is listed", || {
            (host.list("resources/list", "resources").len() == 2).then_some(())
        });
    }
    fake.perform(json!([
        { "disable": "t" }, { "disable": "q" }, { "disable": "file:///s" },
        { "list_changed": ["tools", 1] }, { "list_changed": ["prompts", 1] }, { "list_changed": ["resources", 1] }
    ]));
    for host in &hosts {
        for kind in ["tools", "prompts", "resources"] {
            host.wait_method(&format!("notifications/{kind}/list_changed"));
        }
    }
    never("a notice twice", || {
        hosts.iter().any(|host| {
            ["tools", "prompts", "resources"].iter().any(|kind| {
                host.with_method(&format!("notifications/{kind}/list_changed"))
                    .len()
                    > 1
            })
        })
    });
}
