//! `protocol.md` b.3: legacy sessions over HTTP.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::http::{self, Exchange};
use crate::support::{Daemon, Fake, Host, HostKind, Options, ServerKind, Setup, until};

fn rig() -> (Fake, Daemon) {
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .tool(
            "slow",
            json!([{ "progress": 1 }, { "gate": "go" }, { "progress": 1 }]),
        )
        .tool("quick", json!([{ "progress": 2 }]));
    let daemon = Setup::of(&[&fake]).start();
    (fake, daemon)
}

fn initialize(daemon: &Daemon, version: &str) -> Exchange {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"h","version":"1"}}}}}}"#
    );
    http::post(&daemon.address(), &[http::BOTH, http::JSON], &body)
}

fn session(daemon: &Daemon, version: &str) -> String {
    let exchange = initialize(daemon, version);
    let session = exchange.header("mcp-session-id").unwrap();
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(send(daemon, &session, version, note).status, 202);
    session
}

fn send(daemon: &Daemon, session: &str, version: &str, body: &str) -> Exchange {
    http::post(
        &daemon.address(),
        &[
            http::BOTH,
            http::JSON,
            ("mcp-session-id", session),
            ("mcp-protocol-version", version),
        ],
        body,
    )
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;

#[test]
fn versions_are_negotiated() {
    let (_fake, daemon) = rig();
    for (asked, given) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("nonsense", "2025-11-25"),
    ] {
        let mut exchange = initialize(&daemon, asked);
        let answer = exchange.answer();
        assert_eq!(answer["result"]["protocolVersion"], given, "asked for {asked}");
        let session = exchange.header("mcp-session-id").unwrap();
        assert!(
            session.len() >= 16 && session.bytes().all(|byte| (0x21..=0x7e).contains(&byte)),
            "{session}"
        );
    }
}

#[test]
fn the_session_header_is_checked() {
    let (_fake, daemon) = rig();
    let known = session(&daemon, "2025-11-25");
    let mut missing = http::post(
        &daemon.address(),
        &[http::BOTH, http::JSON, ("mcp-protocol-version", "2025-11-25")],
        LIST,
    );
    assert_eq!(missing.status, 400);
    let error = missing.json();
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .to_lowercase()
            .contains("initiali"),
        "says what to do: {error}"
    );
    let mut unknown = send(&daemon, "made-up", "2025-11-25", LIST);
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["error"].is_object());
    assert_eq!(send(&daemon, &known, "2025-11-25", PING).status, 200);
    // An id that differs in one character is not a session.
    let mut changed = known.clone().into_bytes();
    let last = changed.len() - 1;
    changed[last] = if changed[last] == b'A' { b'B' } else { b'A' };
    assert_eq!(
        send(&daemon, &String::from_utf8(changed).unwrap(), "2025-11-25", PING).status,
        404
    );
}

#[test]
fn delete_ends_the_session() {
    let (_fake, daemon) = rig();
    let known = session(&daemon, "2025-11-25");
    let other = session(&daemon, "2025-11-25");
    let headers = [
        ("mcp-session-id", known.as_str()),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    assert!(
        [200, 202, 204].contains(&http::request(&daemon.address(), "DELETE", "/mcp", &headers, None).status)
    );
    assert_eq!(
        http::request(&daemon.address(), "DELETE", "/mcp", &headers, None).status,
        404
    );
    assert_eq!(send(&daemon, &known, "2025-11-25", LIST).status, 404);
    assert_eq!(
        http::get(
            &daemon.address(),
            "/mcp",
            &[headers[0], ("accept", "text/event-stream")]
        )
        .status,
        404
    );
    assert_eq!(
        send(&daemon, &other, "2025-11-25", LIST).status,
        200,
        "another session is not touched"
    );
}

#[test]
fn the_version_header_is_checked() {
    let (_fake, daemon) = rig();
    let known = session(&daemon, "2025-06-18");
    assert_eq!(send(&daemon, &known, "1999-01-01", PING).status, 400);
    assert_eq!(send(&daemon, &known, "nonsense", PING).status, 400);
    let without = http::post(
        &daemon.address(),
        &[http::BOTH, http::JSON, ("mcp-session-id", known.as_str())],
        PING,
    );
    assert_eq!(
        without.status, 200,
        "without the header the session's version counts"
    );
}

#[test]
fn notes_and_answers_get_202_and_nothing() {
    let (_fake, daemon) = rig();
    let known = session(&daemon, "2025-11-25");
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/of/our/own","params":{"x":1}}"#,
    ] {
        let mut exchange = send(&daemon, &known, "2025-11-25", body);
        assert_eq!(exchange.status, 202, "{body}");
        assert!(exchange.body().unwrap().is_empty());
    }
}

#[test]
fn batches_only_where_the_revision_has_them() {
    let (fake, daemon) = rig();
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/of/our/own"},{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"one__echo","arguments":{"n":1.10}}}]"#;
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let old = session(&daemon, "2025-03-26");
    let mut exchange = send(&daemon, &old, "2025-03-26", batch);
    assert_eq!(exchange.status, 200);
    let mut answers: Vec<Value> = Vec::new();
    if exchange.is_stream() {
        while let Some(event) = exchange.event().unwrap() {
            match serde_json::from_str(&event.data).unwrap() {
                Value::Array(list) => answers.extend(list),
                one => answers.push(one),
            }
        }
    } else {
        answers = serde_json::from_value(exchange.json()).unwrap();
    }
    let ids: HashSet<String> = answers.iter().map(|answer| answer["id"].to_string()).collect();
    assert_eq!(
        ids,
        HashSet::from(["1".to_owned(), "\"two\"".to_owned()]),
        "{answers:?}"
    );
    assert_eq!(fake.calls("echo").len(), 1);
    for version in ["2025-06-18", "2025-11-25"] {
        let known = session(&daemon, version);
        let mut exchange = send(&daemon, &known, version, batch);
        assert_eq!(exchange.status, 400, "{version}");
        assert_eq!(exchange.json()["error"]["code"], -32600, "{version}");
    }
    let inside = r#"[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}]"#;
    assert_eq!(
        http::post(&daemon.address(), &[http::BOTH, http::JSON], inside).status,
        400
    );
}

#[test]
fn initialize_twice_is_refused_and_the_session_lives() {
    let (_fake, daemon) = rig();
    let known = session(&daemon, "2025-11-25");
    let body = r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#;
    let answer = send(&daemon, &known, "2025-11-25", body).answer();
    assert!(answer["error"].is_object(), "{answer}");
    assert_eq!(send(&daemon, &known, "2025-11-25", PING).status, 200);
}

#[test]
fn events_have_unique_ids_and_a_priming_event_only_where_it_is_known() {
    let (_fake, daemon) = rig();
    let seen = |version: &str| {
        let host = Host::with(&daemon, HostKind::Http, Options::version(version));
        host.wait_tool("one__quick");
        for round in 0..3 {
            let call = host.start_call_with(
                &format!("{}", 100 + round),
                "one__quick",
                "{}",
                &format!(r#""progressToken":{round}"#),
            );
            host.wait_answer(&call).result();
        }
        host.messages()
            .into_iter()
            .filter(|seen| seen.event_id.is_some() || seen.raw.is_empty())
            .collect::<Vec<_>>()
    };
    let new = seen("2025-11-25");
    let ids: Vec<String> = new.iter().filter_map(|seen| seen.event_id.clone()).collect();
    assert!(ids.len() >= 9, "progress and answers carry ids: {ids:?}");
    assert_eq!(
        ids.iter().collect::<HashSet<_>>().len(),
        ids.len(),
        "an event id was used twice: {ids:?}"
    );
    assert!(
        new.iter().any(|seen| seen.raw.is_empty()),
        "2025-11-25 starts with a priming event"
    );
    assert!(
        seen("2025-06-18").iter().all(|seen| !seen.raw.is_empty()),
        "older parsers choke on empty data"
    );
}

#[test]
fn a_stream_is_resumed_and_only_that_stream() {
    let (fake, daemon) = rig();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__slow");
    let other = host.start_call_with("50", "one__quick", "{}", r#""progressToken":"other""#);
    host.wait_answer(&other).result();
    let call = host.start_call_with("51", "one__slow", "{}", r#""progressToken":"mine""#);
    fake.wait_event("at go");
    let first = host.wait("the first progress", |seen| seen.raw.contains("\"mine\""));
    host.close_stream(&call.id);
    fake.release("go");
    until("the call is over at the server", || {
        (fake.calls("slow").len() == 1).then_some(())
    });
    host.open_get(Some(&first.event_id.clone().expect("a progress event has an id")));
    let answer = host.wait("the answer on the resumed stream", |seen| {
        seen.stream == "resume" && seen.value["id"] == json!(51)
    });
    answer.result();
    let resumed = host.matching(|seen| seen.stream == "resume" && !seen.raw.is_empty());
    assert_eq!(
        resumed.len(),
        2,
        "the second progress and the answer, nothing else: {resumed:?}"
    );
    assert!(fake.ends().is_empty(), "a disconnect cancelled the call");
}

#[test]
fn a_made_up_event_id_replays_nothing() {
    let (_fake, daemon) = rig();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__quick");
    host.call("one__quick", "{}").result();
    for last in ["nonsense", "999-1", "1-999999", "-1", "0", "é"] {
        let session = host.session().unwrap();
        let exchange = http::get(
            &daemon.address(),
            "/mcp",
            &[
                ("accept", "text/event-stream"),
                ("mcp-session-id", &session),
                ("last-event-id", last),
            ],
        );
        assert!(exchange.status < 500, "{last}: {}", exchange.status);
    }
    host.call("one__quick", "{}").result();
}

#[test]
fn two_get_streams_never_carry_the_same_message() {
    let (fake, daemon) = rig();
    let fake = fake;
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let session = host.session().unwrap();
    let mut second = http::get(
        &daemon.address(),
        "/mcp",
        &[("accept", "text/event-stream"), ("mcp-session-id", &session)],
    );
    // A second stream is either refused or shares the messages with the first.
    fake.perform(json!([{ "disable": "quick" }, { "list_changed": ["tools", 1] }]));
    if second.status == 200 {
        second.socket.close();
    }
    let _ = second.body();
    host.wait_tools("no quick", |names| !names.iter().any(|name| name == "one__quick"));
    assert!(host.with_method("notifications/tools/list_changed").len() <= 1);
}

#[test]
fn both_forms_of_answers_are_acceptable() {
    let (_fake, daemon) = rig();
    for (accept, works) in [
        ("application/json", true),
        ("text/event-stream", true),
        ("*/*", true),
        ("", true),
        ("Application/JSON ; q=0.9", true),
        ("application/json, text/event-stream", true),
        ("text/html", false),
    ] {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#;
        let mut headers = vec![http::JSON];
        if !accept.is_empty() {
            headers.push(("accept", accept));
        }
        let mut exchange = http::post(&daemon.address(), &headers, body);
        if works {
            assert_eq!(exchange.status, 200, "{accept:?}");
            if accept == "text/event-stream" {
                assert!(exchange.is_stream(), "a form that the host accepts");
            } else if accept == "application/json" {
                assert!(!exchange.is_stream(), "a form that the host accepts");
            }
            assert_eq!(
                exchange.answer()["result"]["protocolVersion"],
                "2025-11-25",
                "{accept:?}"
            );
        } else {
            assert_eq!(exchange.status, 406, "{accept:?}");
        }
    }
}

#[test]
fn the_pair_of_2024_works_when_it_is_switched_on() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).set("listen", json!({ "sse": true })).start();
    let mut stream = http::get(&daemon.address(), "/sse", &[("accept", "text/event-stream")]);
    assert_eq!(stream.status, 200);
    let endpoint = stream.event().unwrap().unwrap();
    assert_eq!(endpoint.name.as_deref(), Some("endpoint"));
    // Relative to `/sse`, with or without the slash.
    let endpoint = format!("/{}", endpoint.data.trim_start_matches('/'));
    assert!(endpoint.starts_with("/messages"), "{endpoint}");
    let ask = |body: &str| {
        assert_eq!(
            http::post_to(&daemon.address(), &endpoint, &[http::JSON], body).status,
            202,
            "{body}"
        );
    };
    ask(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#,
    );
    let answer: Value = serde_json::from_str(&stream.event().unwrap().unwrap().data).unwrap();
    assert_eq!(answer["result"]["protocolVersion"], "2024-11-05");
    ask(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    let answer: Value = serde_json::from_str(&stream.event().unwrap().unwrap().data).unwrap();
    assert_eq!(answer["result"]["tools"][0]["name"], "one__echo", "{answer}");
    ask(
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"one__echo","arguments":{"n":1.10}}}"#,
    );
    let data = stream.event().unwrap().unwrap().data;
    assert!(data.contains(r#"{"n":1.10}"#), "{data}");
    stream.socket.close();
}

#[test]
fn the_pair_of_2024_is_off_by_default() {
    let (_fake, daemon) = rig();
    assert!(
        [404, 405].contains(&http::get(&daemon.address(), "/sse", &[("accept", "text/event-stream")]).status)
    );
}
