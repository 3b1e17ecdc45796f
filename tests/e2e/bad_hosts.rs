//! Bad hosts: a clear error each, and nothing leaks into another session.

use serde_json::json;

use crate::support::http;
use crate::support::{Fake, Host, HostKind, Options, ServerKind, Setup};

const NONSENSE: &[&str] = &[
    "nonsense",
    "{",
    "[]",
    "[1,2]",
    "7",
    "\"text\"",
    "null",
    "{}",
    r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"x"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"nothing/here"}"#,
    r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
];

#[test]
fn nonsense_over_http() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let session = host.session().unwrap();
    for text in NONSENSE {
        let mut exchange = http::post(
            &daemon.address(),
            &[
                http::BOTH,
                http::JSON,
                ("mcp-session-id", &session),
                ("mcp-protocol-version", "2025-11-25"),
            ],
            text,
        );
        assert!(exchange.status < 500, "{text}: {}", exchange.status);
        if exchange.status == 200 {
            let answer = exchange.answer();
            assert!(answer["error"].is_object(), "{text} was taken as good: {answer}");
        }
        host.call("one__echo", "{}").result();
    }
    // Bytes that are not UTF-8.
    let mut bytes = http::head(
        "POST",
        "/mcp",
        &daemon.address().host(),
        &[http::BOTH, http::JSON, ("mcp-session-id", &session)],
        Some(4),
    )
    .into_bytes();
    bytes.extend_from_slice(b"{\"\xff}");
    assert_eq!(http::raw(&daemon.address(), &bytes).status, 400);
    fake.assert_clean();
}

#[test]
fn nonsense_over_stdio() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).prepare();
    let host = Host::connect(&daemon, HostKind::Stdio);
    host.wait_tool("one__echo");
    for text in NONSENSE {
        host.send_text(text, "x");
        host.call("one__echo", "{}").result();
    }
    host.send_text("", "x");
    host.send_text("   ", "x");
    host.call("one__echo", "{}").result();
    assert!(
        host.matching(|seen| seen.value["error"]["code"] == json!(-32700))
            .len()
            >= 2
    );
    fake.assert_clean();
}

/// Keys given twice in the protocol part are refused; unknown-case keys are not taken for the real ones.
#[test]
fn duplicate_protocol_keys() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).tool("delete", json!([]));
    let policy =
        json!({ "default": "allow", "rules": [{ "id": "d", "effect": "deny", "tools": ["one/delete"] }] });
    let daemon = Setup::of(&[&fake]).set("policy", policy).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    for params in [
        r#"{"name":"one__echo","name":"one__delete","arguments":{}}"#,
        r#"{"name":"one__delete","name":"one__echo","arguments":{}}"#,
        r#"{"name":"one__echo","n\u0061me":"one__delete","arguments":{}}"#,
        r#"{"name":"one__echo","arguments":{},"arguments":{"x":1}}"#,
        r#"{"name":"one__echo","_meta":{},"_meta":{},"arguments":{}}"#,
        r#"{"Name":"one__echo","arguments":{}}"#,
    ] {
        let call = host.send("tools/call", params);
        host.wait_answer(&call).error();
    }
    assert!(fake.received("tools/call").is_empty());
    let call = host.send(
        "tools/call",
        r#"{"name":"one__echo","Name":"one__delete","arguments":{}}"#,
    );
    host.wait_answer(&call).result();
    assert_eq!(fake.received("tools/call").len(), 1);
    assert_eq!(fake.calls("echo").len(), 1);
}

/// Two requests under one id: each POST gets its own answer, or the second is refused.
#[test]
fn the_same_id_twice_in_one_session() {
    let steps = json!([{ "result": r#"{"content":[],"structuredContent":{"text":"@@TEXT@@"}}"# }]);
    let fake = Fake::new("one", ServerKind::StdioLegacy)
        .tool("slow", json!([{ "gate": "go" }, steps[0]]))
        .tool("fast", steps);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__slow");
    let session = host.session().unwrap();
    let send = |name: &str, text: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{{"text":"{text}"}}}}}}"#
        );
        let headers = [
            http::BOTH,
            http::JSON,
            ("mcp-session-id", session.as_str()),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        let head = http::head(
            "POST",
            "/mcp",
            &daemon.address().host(),
            &headers,
            Some(body.len()),
        );
        http::Exchange::send(&daemon.address(), &head, body.as_bytes()).unwrap()
    };
    let mut slow = send("one__slow", "a");
    fake.wait_event("at go");
    let mut fast = send("one__fast", "b");
    fast.read_head().unwrap();
    let answer = fast.answer();
    assert!(
        answer["error"]["code"] == json!(-32600) || answer["result"]["structuredContent"]["text"] == "b",
        "{answer}"
    );
    fake.release("go");
    slow.read_head().unwrap();
    let answer = slow.answer();
    assert_eq!(answer["result"]["structuredContent"]["text"], "a", "{answer}");
}

/// Over the session limit of the request body, the header block and the nesting.
#[test]
fn sizes_and_depth() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let call = host.send(
        "tools/call",
        &format!(r#"{{"name":"one__echo","arguments":{{"x":{deep}}}}}"#),
    );
    host.wait_answer(&call).error();
    let long = "h".repeat(200_000);
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nx-long: {long}\r\ncontent-length: 2\r\n\r\n{{}}",
        daemon.address()
    );
    let mut exchange = http::Exchange::send(&daemon.address(), "", head.as_bytes());
    if let Ok(exchange) = &mut exchange
        && exchange.read_head().is_ok()
    {
        assert!((400..500).contains(&exchange.status), "{}", exchange.status);
    }
    host.call("one__echo", "{}").result();
}

/// A trailing slash, a prefix, an unknown path.
#[test]
fn paths() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#;
    for (path, status) in [
        ("/mcp", 200),
        ("/mcp/", 200),
        ("/", 404),
        ("/mcp/x", 404),
        ("/MCP", 404),
        ("/other", 404),
    ] {
        assert_eq!(
            http::post_to(&daemon.address(), path, &[http::BOTH, http::JSON], body).status,
            status,
            "{path}"
        );
    }
    let _ = Options::default();
}
