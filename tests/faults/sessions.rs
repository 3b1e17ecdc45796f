//! SES: sessions on both sides.

use serde_json::json;

use crate::support::http;
use crate::support::{Fake, Host, HostKind, ServerKind, Setup, until};

#[test]
fn ses_1_a_server_forgets_its_sessions() {
    let one = Fake::echo("one", ServerKind::HttpLegacy);
    let two = Fake::echo("two", ServerKind::HttpLegacy);
    let daemon = Setup::of(&[&one, &two]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("both", |names| names.len() == 2);
    host.call("one__echo", r#"{"n":1}"#).result();
    host.call("two__echo", "{}").result();
    let handshakes = (one.received("initialize").len(), two.received("initialize").len());
    one.perform(json!(["forget_sessions"]));
    // The call that met the lost session was refused before it ran. manifold repeats nothing: the host may.
    let met = host.call("one__echo", r#"{"n":2}"#);
    assert_eq!(met.error()["data"]["manifold"]["retryable"], true, "{}", met.raw);
    host.call("one__echo", r#"{"n":3}"#).result();
    host.call("two__echo", "{}").result();
    assert!(one.received("initialize").len() > handshakes.0);
    assert_eq!(
        two.received("initialize").len(),
        handshakes.1,
        "another server was touched"
    );
}

#[test]
fn ses_2_a_lost_session_in_other_forms() {
    for form in ["404", "400", "-32001"] {
        let fake = Fake::echo("one", ServerKind::HttpLegacy).set("lost_as", json!(form));
        let daemon = Setup::of(&[&fake]).start();
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tool("one__echo");
        host.call("one__echo", "{}").result();
        fake.perform(json!(["forget_sessions"]));
        let first = host.call("one__echo", "{}");
        if form == "404" {
            assert_eq!(
                first.error()["data"]["manifold"]["retryable"],
                true,
                "{}",
                first.raw
            );
        }
        until("the server does not stay dead", || {
            host.call("one__echo", "{}")
                .value
                .get("result")
                .is_some()
                .then_some(())
        });
    }
}

#[test]
fn ses_4_the_daemon_is_restarted() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let mut daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let session = host.session().unwrap();
    drop(host);
    daemon.restart();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let mut old = http::post(
        &daemon.address(),
        &[
            http::BOTH,
            http::JSON,
            ("mcp-session-id", &session),
            ("mcp-protocol-version", "2025-11-25"),
        ],
        body,
    );
    assert_eq!(old.status, 404);
    assert!(old.json()["error"].is_object());
    let mut none = http::post(
        &daemon.address(),
        &[http::BOTH, http::JSON, ("mcp-protocol-version", "2025-11-25")],
        body,
    );
    assert_eq!(none.status, 400);
    assert!(
        none.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_lowercase()
            .contains("initiali")
    );
}

#[test]
fn ses_5_many_abandoned_sessions() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let active = Host::connect(&daemon, HostKind::Http);
    active.wait_tool("one__echo");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#;
    let mut refused = 0;
    for number in 0..1500 {
        let mut exchange = http::post(&daemon.address(), &[http::BOTH, http::JSON], body);
        if exchange.status != 200 {
            refused += 1;
            assert!((400..=599).contains(&exchange.status));
            assert!(!exchange.body().unwrap().is_empty(), "a clear refusal");
        }
        exchange.socket.close();
        if number % 300 == 0 {
            active.call("one__echo", "{}").result();
        }
    }
    active.call("one__echo", "{}").result();
    println!("{refused} of 1500 refused");
    assert!(fake.pids().len() <= 2, "abandoned sessions started servers");
}

#[test]
fn ses_6_a_counter_per_session() {
    let count = json!(["count", { "result": r#"{"content":[],"structuredContent":{"n":@@COUNT@@}}"# }]);
    for server in [ServerKind::StdioLegacy, ServerKind::HttpLegacy, ServerKind::Sse] {
        let fake = Fake::new("one", server).tool("inc", count.clone());
        let daemon = Setup::of(&[&fake]).start();
        let hosts = [
            Host::connect(&daemon, HostKind::Http),
            Host::connect(&daemon, HostKind::Http),
        ];
        hosts[0].wait_tool("one__inc");
        for expected in 1..=3 {
            for host in &hosts {
                assert_eq!(
                    host.call("one__inc", "{}").result()["structuredContent"]["n"],
                    expected,
                    "{server:?}"
                );
            }
        }
    }
}

/// The operator's word that a server keeps no state: one connection for all.
#[test]
fn ses_6_declared_sharing() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::new().server(&fake, json!({ "sharing": "shared" })).start();
    for _ in 0..4 {
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tool("one__echo");
        host.call("one__echo", "{}").result();
    }
    assert_eq!(fake.pids().len(), 1);
}

/// A call to a session that its server lost is not repeated when it may have run.
#[test]
fn ses_1_a_dropped_connection_is_not_a_lost_session() {
    let fake = Fake::echo("one", ServerKind::HttpLegacy).tool("drops", json!(["drop"]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__drops");
    host.call("one__drops", "{}").error();
    assert_eq!(fake.calls("drops").len(), 1);
}
