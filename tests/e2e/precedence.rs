//! `protocol.md` b.2: what a modern HTTP request is answered, row by row, and which of two faults wins.

use serde_json::{Value, json};

use crate::support::http::{self, Exchange};
use crate::support::{Daemon, Fake, Host, HostKind, ServerKind, Setup};

const VERSION: &str = "2026-07-28";
const P: &str = "io.modelcontextprotocol/";

struct Ask {
    method: String,
    params: Value,
    meta: Value,
    headers: Vec<(String, String)>,
}

impl Ask {
    /// A faultless request.
    fn new(method: &str) -> Self {
        Self {
            method: method.into(),
            params: json!({}),
            meta: json!({ format!("{P}protocolVersion"): VERSION, format!("{P}clientCapabilities"): {}, format!("{P}clientInfo"): { "name": "h", "version": "1" } }),
            headers: [
                ("accept", "application/json, text/event-stream"),
                ("content-type", "application/json"),
                ("mcp-protocol-version", VERSION),
                ("mcp-method", method),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        }
    }

    fn call(name: &str) -> Self {
        Self::new("tools/call")
            .params(json!({ "name": name, "arguments": {} }))
            .header("mcp-name", name)
    }

    fn params(mut self, params: Value) -> Self {
        self.params = params;
        self
    }

    /// Sets, or with an empty value removes, a header.
    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(key, _)| key != name);
        if !value.is_empty() {
            self.headers.push((name.into(), value.into()));
        }
        self
    }

    fn meta(mut self, key: &str, value: Value) -> Self {
        let key = format!("{P}{key}");
        if value.is_null() {
            self.meta.as_object_mut().unwrap().remove(&key);
        } else {
            self.meta[key] = value;
        }
        self
    }

    fn body(&self) -> String {
        let mut params = self.params.clone();
        if !self.meta.is_null() {
            params["_meta"] = self.meta.clone();
        }
        json!({ "jsonrpc": "2.0", "id": "q1", "method": self.method, "params": params }).to_string()
    }

    fn send(&self, daemon: &Daemon) -> Exchange {
        self.send_body(daemon, &self.body())
    }

    fn send_body(&self, daemon: &Daemon, body: &str) -> Exchange {
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        http::post(&daemon.address(), &headers, body)
    }

    /// Status and code of the answer.
    #[track_caller]
    fn expect(&self, daemon: &Daemon, status: u16, code: i64) -> Value {
        let mut exchange = self.send(daemon);
        let answer = exchange.answer();
        assert_eq!(
            (exchange.status, answer["error"]["code"].as_i64()),
            (status, Some(code)),
            "{} {:?} got {answer}",
            self.body(),
            self.headers
        );
        assert_eq!(answer["id"], "q1", "the id of the request comes back: {answer}");
        answer
    }
}

fn rig() -> (Fake, Daemon) {
    let fake = Fake::echo("one", ServerKind::StdioModern).resource("file:///a");
    let daemon = Setup::of(&[&fake])
        .set("listen", json!({ "max_body": "64KiB" }))
        .start();
    Host::connect(&daemon, HostKind::HttpModern).wait_tool("one__echo");
    (fake, daemon)
}

#[test]
fn row_01_foreign_origin_or_host() {
    let (_fake, daemon) = rig();
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example:80",
    ] {
        assert_eq!(
            Ask::new("tools/list")
                .header("origin", origin)
                .send(&daemon)
                .status,
            403,
            "{origin}"
        );
    }
    for origin in ["http://localhost:6274", "http://127.0.0.1:3000", "http://[::1]:1"] {
        assert_eq!(
            Ask::new("tools/list")
                .header("origin", origin)
                .send(&daemon)
                .status,
            200,
            "{origin}"
        );
    }
    let body = Ask::new("tools/list").body();
    let head = http::head(
        "POST",
        "/mcp",
        "evil.example",
        &[http::BOTH, http::JSON],
        Some(body.len()),
    );
    assert_eq!(
        http::raw(&daemon.address(), format!("{head}{body}").as_bytes()).status,
        403
    );
    // Row 1 before everything else.
    let mut ask = Ask::new("tools/list")
        .header("origin", "http://evil.example")
        .header("content-type", "text/plain");
    ask.meta = Value::Null;
    assert_eq!(ask.send(&daemon).status, 403);
    assert_eq!(
        http::request(
            &daemon.address(),
            "PUT",
            "/mcp",
            &[("origin", "http://evil.example")],
            Some("x")
        )
        .status,
        403
    );
}

#[test]
fn row_03_other_methods() {
    let (_fake, daemon) = rig();
    for method in ["PUT", "PATCH"] {
        let exchange = http::request(&daemon.address(), method, "/mcp", &[], Some("{}"));
        assert_eq!(exchange.status, 405, "{method}");
        assert!(
            exchange
                .header("allow")
                .is_some_and(|allow| allow.contains("POST")),
            "{method}"
        );
    }
    for method in ["GET", "DELETE"] {
        let exchange = http::request(
            &daemon.address(),
            method,
            "/mcp",
            &[("accept", "text/event-stream"), ("mcp-protocol-version", VERSION)],
            None,
        );
        assert_eq!(exchange.status, 405, "{method} without a session");
        assert!(
            exchange
                .header("allow")
                .is_some_and(|allow| allow.contains("POST")),
            "{method}"
        );
    }
}

#[test]
fn row_04_size_and_media_type() {
    let (_fake, daemon) = rig();
    let big = Ask::call("one__echo")
        .params(json!({ "name": "one__echo", "arguments": { "x": "y".repeat(70_000) } }));
    assert_eq!(big.send(&daemon).status, 413);
    for media in ["text/plain", "application/xml", "application/jsonx", ""] {
        assert_eq!(
            Ask::new("tools/list")
                .header("content-type", media)
                .send(&daemon)
                .status,
            415,
            "{media:?}"
        );
    }
    for media in [
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
    ] {
        assert_eq!(
            Ask::new("tools/list")
                .header("content-type", media)
                .send(&daemon)
                .status,
            200,
            "{media:?}"
        );
    }
    // A chunked body is measured too.
    let chunk = "y".repeat(0x4000);
    let mut bytes = http::head(
        "POST",
        "/mcp",
        &daemon.address().host(),
        &[http::BOTH, http::JSON, ("transfer-encoding", "chunked")],
        None,
    )
    .into_bytes();
    for _ in 0..6 {
        bytes.extend_from_slice(format!("4000\r\n{chunk}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(http::raw(&daemon.address(), &bytes).status, 413);
}

#[test]
fn row_05_not_one_json_object() {
    let (_fake, daemon) = rig();
    for (body, code) in [
        ("", -32700),
        ("{", -32700),
        ("nonsense", -32700),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"} x",
            -32700,
        ),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#, -32600),
        ("7", -32600),
        ("\"text\"", -32600),
        ("null", -32600),
        (r#"{"id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, -32600),
    ] {
        let mut exchange = Ask::new("tools/list").send_body(&daemon, body);
        assert_eq!(exchange.status, 400, "{body}");
        let answer = exchange.json();
        assert_eq!(answer["error"]["code"], code, "{body}: {answer}");
        assert!(
            answer.get("id").is_none_or(|id| id.is_null() || *id == json!(1)),
            "{body}: {answer}"
        );
    }
}

#[test]
fn row_06_header_and_body_versions_differ() {
    let (_fake, daemon) = rig();
    Ask::new("tools/list")
        .header("mcp-protocol-version", "2027-01-01")
        .expect(&daemon, 400, -32020);
    Ask::new("tools/list")
        .meta("protocolVersion", json!("2027-01-01"))
        .expect(&daemon, 400, -32020);
    // Before a missing capability, a wrong method header and an unknown method.
    Ask::new("nothing/here")
        .header("mcp-protocol-version", "2027-01-01")
        .meta("clientCapabilities", Value::Null)
        .header("mcp-method", "x")
        .expect(&daemon, 400, -32020);
}

#[test]
fn row_07_meta_is_missing() {
    let (_fake, daemon) = rig();
    let mut bare = Ask::new("tools/list");
    bare.meta = Value::Null;
    bare.expect(&daemon, 400, -32602);
    let mut empty = Ask::new("tools/list");
    empty.meta = json!({});
    empty.expect(&daemon, 400, -32602);
    Ask::new("tools/list")
        .meta("clientCapabilities", Value::Null)
        .expect(&daemon, 400, -32602);
    Ask::new("tools/list")
        .meta("protocolVersion", Value::Null)
        .expect(&daemon, 400, -32602);
    // Before the headers of row 9 and the version of row 8.
    Ask::new("tools/list")
        .meta("clientCapabilities", Value::Null)
        .header("mcp-method", "")
        .expect(&daemon, 400, -32602);
    // The name of the host is optional.
    assert_eq!(
        Ask::new("tools/list")
            .meta("clientInfo", Value::Null)
            .send(&daemon)
            .status,
        200
    );
}

#[test]
fn row_08_version_not_implemented() {
    let (_fake, daemon) = rig();
    let unknown = Ask::new("tools/list")
        .meta("protocolVersion", json!("2027-01-01"))
        .header("mcp-protocol-version", "2027-01-01");
    let answer = unknown.expect(&daemon, 400, -32022);
    assert_eq!(answer["error"]["data"]["requested"], "2027-01-01");
    let supported = answer["error"]["data"]["supported"].as_array().unwrap().clone();
    assert!(supported.contains(&json!(VERSION)), "{answer}");
    let discover = Ask::new("server/discover").send(&daemon).answer();
    let offered = discover["result"]["supportedVersions"].as_array().unwrap();
    assert!(
        supported.iter().all(|version| offered.contains(version)),
        "{answer} against {discover}"
    );
    // Before row 9 and row 11.
    let both = Ask::new("nothing/here")
        .meta("protocolVersion", json!("2027-01-01"))
        .header("mcp-protocol-version", "2027-01-01")
        .header("mcp-method", "");
    both.expect(&daemon, 400, -32022);
}

#[test]
fn row_09_headers_that_mirror_the_body() {
    let (fake, daemon) = rig();
    Ask::new("tools/list")
        .header("mcp-protocol-version", "")
        .expect(&daemon, 400, -32020);
    Ask::new("tools/list")
        .header("mcp-method", "")
        .expect(&daemon, 400, -32020);
    Ask::new("tools/list")
        .header("mcp-method", "Tools/List")
        .expect(&daemon, 400, -32020);
    Ask::call("one__echo")
        .header("mcp-name", "")
        .expect(&daemon, 400, -32020);
    Ask::call("one__echo")
        .header("mcp-name", "one__other")
        .expect(&daemon, 400, -32020);
    Ask::call("one__echo")
        .header("mcp-name", "ONE__ECHO")
        .expect(&daemon, 400, -32020);
    Ask::new("resources/read")
        .params(json!({ "uri": "file:///a" }))
        .expect(&daemon, 400, -32020);
    Ask::new("prompts/get")
        .params(json!({ "name": "x" }))
        .header("mcp-name", "y")
        .expect(&daemon, 400, -32020);
    // Before the unknown method of row 11 and the unknown tool of row 14.
    Ask::new("nothing/here")
        .header("mcp-method", "else")
        .expect(&daemon, 400, -32020);
    Ask::call("unknown")
        .header("mcp-name", "other")
        .expect(&daemon, 400, -32020);
    // Names of headers in any case; surrounding space is not part of the value.
    let mut ask = Ask::call("one__echo").header("mcp-name", "");
    ask.headers.push(("MCP-NAME".into(), "  one__echo  ".into()));
    assert_eq!(ask.send(&daemon).status, 200);
    assert_eq!(fake.calls("echo").len(), 1);
}

#[test]
fn row_10_encoded_names() {
    let (fake, daemon) = rig();
    Ask::call("one__echo")
        .header("mcp-name", "=?base64?!!!?=")
        .expect(&daemon, 400, -32020);
    Ask::call("one__echo")
        .header("mcp-name", "=?base64?b25lX19lY2hv")
        .expect(&daemon, 400, -32020);
    assert_eq!(
        Ask::call("one__echo")
            .header("mcp-name", "=?base64?b25lX19lY2hv?=")
            .send(&daemon)
            .answer()["error"],
        Value::Null
    );
    assert_eq!(fake.calls("echo").len(), 1);
}

#[test]
fn row_11_methods_that_do_not_exist() {
    let (_fake, daemon) = rig();
    for method in [
        "nothing/here",
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tools/call2",
        "TOOLS/LIST",
        "",
    ] {
        let ask = Ask::new(method).header("mcp-method", if method.is_empty() { "\"\"" } else { method });
        if method.is_empty() {
            assert!(ask.send(&daemon).status >= 400);
        } else {
            ask.expect(&daemon, 404, -32601);
        }
    }
}

#[test]
fn row_12_log_level() {
    let (_fake, daemon) = rig();
    Ask::new("tools/list")
        .meta("logLevel", json!("loud"))
        .expect(&daemon, 400, -32602);
    Ask::new("tools/list")
        .meta("logLevel", json!(3))
        .expect(&daemon, 400, -32602);
    for level in [
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
    ] {
        assert_eq!(
            Ask::new("tools/list")
                .meta("logLevel", json!(level))
                .send(&daemon)
                .status,
            200,
            "{level}"
        );
    }
    // Row 11 first.
    Ask::new("nothing/here")
        .meta("logLevel", json!("loud"))
        .expect(&daemon, 404, -32601);
}

#[test]
fn row_14_errors_of_the_work_itself() {
    let (_fake, daemon) = rig();
    Ask::call("unknown").expect(&daemon, 200, -32602);
    Ask::new("tools/list")
        .params(json!({ "cursor": "bogus" }))
        .expect(&daemon, 200, -32602);
    Ask::new("tools/list")
        .params(json!({ "cursor": "" }))
        .expect(&daemon, 200, -32602);
    let missing = Ask::new("resources/read")
        .params(json!({ "uri": "file:///none" }))
        .header("mcp-name", "file:///none");
    missing.expect(&daemon, 200, -32602);
    Ask::new("prompts/get")
        .params(json!({ "name": "none" }))
        .header("mcp-name", "none")
        .expect(&daemon, 200, -32602);
}

#[test]
fn modern_requests_know_no_session() {
    let (_fake, daemon) = rig();
    let exchange = Ask::new("tools/list")
        .header("mcp-session-id", "made-up")
        .header("last-event-id", "1-1")
        .send(&daemon);
    assert_eq!(
        exchange.status, 200,
        "a session header is ignored on a modern request"
    );
    assert_eq!(exchange.header("mcp-session-id"), None);
}

#[test]
fn modern_results_carry_what_the_revision_asks_for() {
    let fake = Fake::echo("one", ServerKind::StdioModern)
        .resource("file:///a")
        .prompt("p")
        .template("db://{x}");
    let daemon = Setup::of(&[&fake]).start();
    Host::connect(&daemon, HostKind::HttpModern).wait_tool("one__echo");
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "server/discover",
    ] {
        let answer = Ask::new(method).send(&daemon).answer();
        let result = &answer["result"];
        assert_eq!(result["resultType"], "complete", "{method}: {answer}");
        assert!(result["ttlMs"].is_u64(), "{method}: {answer}");
        assert!(
            ["public", "private"].contains(&result["cacheScope"].as_str().unwrap_or_default()),
            "{method}: {answer}"
        );
        assert!(
            result["_meta"][format!("{P}serverInfo")].is_object(),
            "{method}: {answer}"
        );
    }
    let answer = Ask::call("one__echo").send(&daemon).answer();
    assert_eq!(answer["result"]["resultType"], "complete");
}

#[test]
fn a_notification_is_taken_with_202() {
    let (_fake, daemon) = rig();
    let ask = Ask::new("notifications/cancelled");
    let body = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1, "_meta": ask.meta } }).to_string();
    let mut exchange = ask.send_body(&daemon, &body);
    assert_eq!(exchange.status, 202);
    assert!(exchange.body().unwrap().is_empty());
}

#[test]
fn a_response_is_never_a_modern_body() {
    let (_fake, daemon) = rig();
    let exchange = Ask::new("tools/list").send_body(&daemon, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert!((400..500).contains(&exchange.status), "{}", exchange.status);
}
