//! HTT: the HTTP edge; POL: policy on odd wire forms; AUD: what is recorded.

use serde_json::{Value, json};

use crate::support::http::{self, Exchange};
use crate::support::{Daemon, Fake, Host, HostKind, ServerKind, Setup, until};

fn rig() -> (Fake, Daemon, Host) {
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .tool("delete", json!([]))
        .tool("slow", json!([{ "progress": 1 }, { "gate": "go" }]));
    let policy = json!({ "default": "allow", "rules": [{ "id": "no-delete", "effect": "deny", "tools": ["one/delete"] }] });
    let daemon = Setup::of(&[&fake]).set("policy", policy).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    (fake, daemon, host)
}

fn raw_post(daemon: &Daemon, headers: &[(&str, &str)], body: &[u8]) -> Exchange {
    let mut bytes = http::head(
        "POST",
        "/mcp",
        &daemon.address().host(),
        headers,
        Some(body.len()),
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    http::raw(&daemon.address(), &bytes)
}

#[test]
fn htt_1_get_in_every_situation() {
    let (_fake, daemon, host) = rig();
    let session = host.session().unwrap();
    let stream = [("accept", "text/event-stream")];
    let none = http::get(&daemon.address(), "/mcp", &stream);
    assert!([400, 405].contains(&none.status), "{}", none.status);
    assert!(
        [404, 405].contains(
            &http::get(
                &daemon.address(),
                "/mcp",
                &[stream[0], ("mcp-session-id", "made-up")]
            )
            .status
        )
    );
    let live = http::get(
        &daemon.address(),
        "/mcp",
        &[stream[0], ("mcp-session-id", &session)],
    );
    assert!([200, 409].contains(&live.status), "{}", live.status);
    for method in ["PUT", "PATCH"] {
        let other = http::request(&daemon.address(), method, "/mcp", &[], None);
        assert_eq!(other.status, 405, "{method}");
        assert!(other.header("allow").is_some());
        assert!(other.header("www-authenticate").is_none());
    }
}

#[test]
fn htt_2_the_trailing_slash() {
    let (_fake, daemon, host) = rig();
    let session = host.session().unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let headers = [
        http::BOTH,
        http::JSON,
        ("mcp-session-id", session.as_str()),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    for path in ["/mcp", "/mcp/"] {
        assert_eq!(
            http::post_to(&daemon.address(), path, &headers, body).status,
            200,
            "{path}"
        );
        assert_eq!(
            http::request(
                &daemon.address(),
                "DELETE",
                path,
                &[("mcp-session-id", "x")],
                None
            )
            .status,
            404,
            "{path}"
        );
    }
}

#[test]
fn htt_4_a_strict_server() {
    for server in [ServerKind::HttpLegacy, ServerKind::HttpModern, ServerKind::Sse] {
        let fake = Fake::echo("one", server).set("strict", json!(true));
        let extra = json!({ "headers": { "X-Custom": "yes", "Accept": "text/html", "Content-Type": "text/plain", "Mcp-Session-Id": "forged" } });
        // Either the file is refused for it, or the protocol's headers win.
        let daemon = Setup::new().server(&fake, extra).prepare();
        let (process, _) = crate::support::process::Process::start("serve", &mut daemon.command(&["serve"]));
        let ended = until("it refuses or serves", || {
            process
                .exited()
                .map(|code| code != 0)
                .or_else(|| (!fake.received("tools/list").is_empty()).then_some(false))
        });
        if !ended {
            fake.assert_clean();
            let custom = fake.received("tools/list")[0].header("x-custom");
            assert_eq!(custom.as_deref(), Some("yes"));
        }
        drop(process);
        let clean = Fake::echo("one", server).set("strict", json!(true));
        let daemon = Setup::new()
            .server(&clean, json!({ "headers": { "X-Custom": "yes" } }))
            .start();
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tool("one__echo");
        host.call("one__echo", "{}").result();
        assert_eq!(clean.calls("echo")[0].header("x-custom").as_deref(), Some("yes"));
        clean.assert_clean();
    }
}

#[test]
fn htt_7_streams_are_marked_as_such() {
    let (fake, daemon, host) = rig();
    let session = host.session().unwrap();
    let body = r#"{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"one__slow","arguments":{},"_meta":{"progressToken":1}}}"#;
    let mut exchange = http::post(
        &daemon.address(),
        &[
            http::BOTH,
            http::JSON,
            ("mcp-session-id", &session),
            ("mcp-protocol-version", "2025-11-25"),
            ("accept-encoding", "gzip, br"),
        ],
        body,
    );
    assert!(exchange.is_stream());
    assert_eq!(exchange.header("x-accel-buffering").as_deref(), Some("no"));
    assert!(
        exchange
            .header("cache-control")
            .is_some_and(|value| value.contains("no-cache") || value.contains("no-store"))
    );
    assert!(exchange.header("content-encoding").is_none());
    // The progress is here before the call is over.
    let event = loop {
        let event = exchange.event().unwrap().unwrap();
        if !event.data.is_empty() {
            break event;
        }
    };
    assert!(event.data.contains("notifications/progress"));
    fake.release("go");
    let answer = exchange.event().unwrap().unwrap();
    assert!(answer.data.contains("\"id\":900"));
    assert_eq!(exchange.event().unwrap(), None, "the stream ends with the answer");
}

#[test]
fn htt_8_browsers() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake])
        .set("listen", json!({ "allowed_origins": ["https://app.example"] }))
        .start();
    Host::connect(&daemon, HostKind::Http).wait_tool("one__echo");
    let preflight = |origin: &str| {
        http::request(
            &daemon.address(),
            "OPTIONS",
            "/mcp",
            &[
                ("origin", origin),
                ("access-control-request-method", "POST"),
                (
                    "access-control-request-headers",
                    "content-type,mcp-protocol-version,mcp-session-id,mcp-method,mcp-name,last-event-id",
                ),
            ],
            None,
        )
    };
    let good = preflight("https://app.example");
    assert!((200..300).contains(&good.status), "{}", good.status);
    assert_eq!(
        good.header("access-control-allow-origin").as_deref(),
        Some("https://app.example")
    );
    let headers = good
        .header("access-control-allow-headers")
        .unwrap_or_default()
        .to_lowercase();
    for name in [
        "content-type",
        "mcp-protocol-version",
        "mcp-session-id",
        "mcp-method",
        "mcp-name",
        "last-event-id",
    ] {
        assert!(headers.contains(name), "{name} is missing in {headers}");
    }
    let bad = preflight("https://evil.example");
    assert!(bad.status >= 400 || bad.header("access-control-allow-origin").is_none());
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#,
        "nonsense",
    ] {
        let answer = http::post(
            &daemon.address(),
            &[http::BOTH, http::JSON, ("origin", "https://app.example")],
            body,
        );
        assert_eq!(
            answer.header("access-control-allow-origin").as_deref(),
            Some("https://app.example"),
            "{body}"
        );
        assert!(
            answer
                .header("access-control-expose-headers")
                .unwrap_or_default()
                .to_lowercase()
                .contains("mcp-session-id"),
            "{body}"
        );
    }
    assert_eq!(
        http::post(
            &daemon.address(),
            &[http::BOTH, http::JSON, ("origin", "https://evil.example")],
            "{}"
        )
        .status,
        403
    );
}

#[test]
fn htt_9_hosts_and_origins_of_a_loopback_listener() {
    let (_fake, daemon, _host) = rig();
    let port = daemon
        .address()
        .to_string()
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#;
    let with_host = |host: &str| {
        let head = http::head("POST", "/mcp", host, &[http::BOTH, http::JSON], Some(body.len()));
        http::raw(&daemon.address(), format!("{head}{body}").as_bytes()).status
    };
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
    ] {
        assert_eq!(with_host(host), 403, "{host}");
    }
    for host in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        "localhost".to_owned(),
        "LOCALHOST".to_owned(),
    ] {
        assert_eq!(with_host(&host), 200, "{host}");
    }
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        "file://",
    ] {
        assert_eq!(
            http::post(
                &daemon.address(),
                &[http::BOTH, http::JSON, ("origin", origin)],
                body
            )
            .status,
            403,
            "{origin}"
        );
    }
}

fn denied() -> String {
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one__delete","arguments":{}}}"#
        .to_owned()
}

#[test]
fn pol_5_a_denied_call_in_odd_clothes() {
    let (fake, daemon, host) = rig();
    let session = host.session().unwrap();
    let base = [
        http::BOTH,
        ("mcp-session-id", session.as_str()),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let body = denied();
    let check = |mut exchange: Exchange, what: &str| {
        if exchange.status == 200 {
            let answer = exchange.answer();
            assert!(
                answer["error"].is_object() || answer.is_array(),
                "{what}: {answer}"
            );
        }
    };
    for media in [
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=utf-16",
        "text/plain",
        "application/x-www-form-urlencoded",
    ] {
        let mut headers = base.to_vec();
        headers.push(("content-type", media));
        check(raw_post(&daemon, &headers, body.as_bytes()), media);
    }
    check(raw_post(&daemon, &base, body.as_bytes()), "no content type");
    let mut headers = base.to_vec();
    headers.push(http::JSON);
    let mut gzip = headers.clone();
    gzip.push(("content-encoding", "gzip"));
    check(raw_post(&daemon, &gzip, body.as_bytes()), "called gzip");
    let mut bom = vec![0xef, 0xbb, 0xbf];
    bom.extend_from_slice(body.as_bytes());
    check(raw_post(&daemon, &headers, &bom), "BOM");
    check(
        raw_post(&daemon, &headers, format!("[{body}]").as_bytes()),
        "batch",
    );
    let mut chunked = headers.clone();
    chunked.push(("transfer-encoding", "chunked"));
    let mut bytes = http::head("POST", "/mcp", &daemon.address().host(), &chunked, None).into_bytes();
    for byte in body.as_bytes() {
        bytes.extend_from_slice(format!("1\r\n{}\r\n", char::from(*byte)).as_bytes());
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    check(http::raw(&daemon.address(), &bytes), "chunked");
    assert!(fake.calls("delete").is_empty(), "a denied call passed");
}

#[test]
fn pol_6_headers_that_name_another_tool() {
    let (fake, daemon, _host) = rig();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one__delete","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let headers = [
        http::BOTH,
        http::JSON,
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "one__echo"),
    ];
    let mut exchange = http::post(&daemon.address(), &headers, body);
    assert_eq!(exchange.status, 400);
    assert_eq!(exchange.json()["error"]["code"], -32020);
    assert!(fake.received("tools/call").is_empty());
}

#[test]
fn pol_4_nested_duplicates_reach_the_server_as_they_were_decided_on() {
    let (fake, _daemon, host) = rig();
    let arguments = r#"{"a":1,"a":2,"b":{"c":1,"c":2}}"#;
    let seen = host.call("one__echo", arguments);
    // No rule looks at arguments here: they pass as they are, or are refused; never silently changed.
    if seen.value.get("result").is_some() {
        assert!(fake.calls("echo")[0].raw.contains(arguments));
    } else {
        assert!(fake.calls("echo").is_empty());
    }
}

#[test]
fn aud_1_every_refusal_is_recorded_once() {
    let (_fake, daemon, host) = rig();
    host.call("one__delete", "{}").error();
    host.call("one__unknown", "{}").error();
    let find = |text: &str| {
        let records: Vec<Value> = daemon
            .audit()
            .into_iter()
            .filter(|record| record.to_string().contains(text))
            .collect();
        (!records.is_empty()).then_some(records)
    };
    let denial = until("the denial", || find("no-delete"));
    assert_eq!(denial.len(), 1, "{denial:?}");
    for word in ["one", "delete", "denied"] {
        assert!(
            denial[0].to_string().contains(word),
            "{word} is missing: {}",
            denial[0]
        );
    }
    let unknown = until("the unknown tool", || find("one__unknown"));
    assert_eq!(unknown.len(), 1, "{unknown:?}");
}

/// One line per record, whatever the input.
#[test]
fn aud_3_names_with_line_breaks() {
    let (_fake, daemon, host) = rig();
    let name = "one__x\n{\"forged\":true}\u{1b}[31m";
    host.call(name, "{}").error();
    host.call("one__echo", "{}").result();
    daemon.wait_audit("the call after it", |record| {
        record.to_string().contains("one__echo")
    });
    assert!(daemon.audit().iter().all(|record| record.get("forged").is_none()));
}

#[test]
fn pol_1_a_denied_tool_by_every_name() {
    let (fake, daemon, host) = rig();
    for name in [
        "one__delete",
        "delete",
        "two__delete",
        "one/delete",
        "one.delete",
        "mcp__manifold__one__delete",
    ] {
        assert_eq!(host.call(name, "{}").code(), -32602, "{name}");
    }
    // In a batch of the revision that has them.
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#;
    let session = http::post(&daemon.address(), &[http::BOTH, http::JSON], initialize)
        .header("mcp-session-id")
        .unwrap();
    let headers = [http::BOTH, http::JSON, ("mcp-session-id", session.as_str())];
    let batch = format!(r#"[{},{{"jsonrpc":"2.0","id":2,"method":"ping"}}]"#, denied());
    let mut exchange = http::post(&daemon.address(), &headers, &batch);
    assert_eq!(exchange.status, 200);
    let text = exchange.text();
    assert!(text.contains("Unknown tool"), "{text}");
    assert!(fake.calls("delete").is_empty());
}

#[test]
fn pol_3_the_same_tool_of_another_server() {
    let one = Fake::echo("a", ServerKind::StdioLegacy).tool("delete", json!([]));
    let two = Fake::echo("b", ServerKind::StdioLegacy).tool("delete", json!([]));
    let policy =
        json!({ "default": "allow", "rules": [{ "id": "d", "effect": "deny", "tools": ["a/delete"] }] });
    let daemon = Setup::of(&[&one, &two]).set("policy", policy).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("b__delete");
    host.call("b__delete", "{}").result();
    assert_eq!(host.call("a__delete", "{}").code(), -32602);
    daemon.reconfigure(|setup| setup.server(&one, json!({ "rename": { "delete": "tidy" } })));
    host.call("b__delete", "{}").result();
    for name in ["a__tidy", "a__delete"] {
        assert_eq!(host.call(name, "{}").code(), -32602, "{name}");
    }
    host.wait_tools("a without its delete", |names| {
        names == ["a__echo", "b__echo", "b__delete"]
    });
    assert!(one.calls("delete").is_empty());
}
