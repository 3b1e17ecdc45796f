use super::*;
use serde_json::{Value, json};
use std::io::{PipeReader, PipeWriter, pipe};
use std::thread::JoinHandle;

mod clock_tests;
mod sdk;

/// A host at the other end of two pipes.
struct Host {
    to: Option<PipeWriter>,
    from: BufReader<PipeReader>,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl Host {
    fn new(kind: SampleKind) -> Self {
        let ((input, to), (from, output)) = (pipe().unwrap(), pipe().unwrap());
        let server = std::thread::spawn(move || serve(kind, BufReader::new(input), output));
        Self {
            to: Some(to),
            from: BufReader::new(from),
            server: Some(server),
        }
    }

    fn legacy(kind: SampleKind, revision: &str) -> Self {
        let mut host = Self::new(kind);
        let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = host.ask(json!("init"), "initialize", params);
        assert_eq!(answer["result"]["protocolVersion"], revision);
        host.notify("notifications/initialized", json!({}));
        host
    }

    fn raw(&mut self, line: &str) {
        self.to
            .as_mut()
            .unwrap()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    fn send(&mut self, id: Value, method: &str, params: Value) {
        self.raw(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.raw(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.send(id.clone(), method, params);
        let answer = self.next();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    fn error(&mut self, method: &str, params: Value) -> i64 {
        self.ask(json!("e"), method, params)["error"]["code"]
            .as_i64()
            .unwrap()
    }

    /// A modern request: the parameters with the `_meta` that each needs.
    fn modern(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.ask(id, method, modern(params))
    }

    /// Closes stdin and returns what was still written.
    fn end(mut self) -> String {
        self.to.take();
        self.server.take().unwrap().join().unwrap().unwrap();
        io::read_to_string(&mut self.from).unwrap()
    }
}

fn modern(mut params: Value) -> Value {
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params
}

fn add(title: &str, text: &str) -> Value {
    json!({"name": "add_note", "arguments": {"title": title, "text": text}})
}

#[test]
fn every_legacy_revision_is_negotiated_and_unknown_ones_get_the_newest() {
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        assert_eq!(Host::legacy(SampleKind::Notes, revision).end(), "");
    }
    for asked in ["1999-01-01", "2026-07-28"] {
        let mut host = Host::new(SampleKind::Clock);
        let answer = host.ask(
            json!(1),
            "initialize",
            json!({"protocolVersion": asked, "capabilities": {}}),
        );
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        assert_eq!(answer["result"]["serverInfo"]["name"], "clock");
        assert_eq!(
            answer["result"]["capabilities"],
            json!({"tools": {}, "resources": {}, "logging": {}})
        );
        assert_eq!(
            host.error("initialize", json!({"protocolVersion": asked})),
            -32600
        );
    }
    let mut host = Host::new(SampleKind::Clock);
    assert_eq!(host.error("initialize", json!({})), -32602);
}

#[test]
fn a_request_without_family_is_refused_before_initialize() {
    let mut host = Host::new(SampleKind::Notes);
    assert_eq!(host.error("server/discover", json!({})), -32602);
    assert_eq!(host.error("tools/list", json!({})), -32601);
    assert_eq!(host.ask(json!(1), "ping", json!({}))["result"], json!({}));
}

#[test]
fn discover_tells_the_modern_facts() {
    let mut host = Host::new(SampleKind::Notes);
    let answer = host.modern(json!(1), "server/discover", json!({}));
    let result = &answer["result"];
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(result["resultType"], "complete");
    assert!(result["ttlMs"].is_u64() && result["cacheScope"] == "public");
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "notes"
    );
    assert_eq!(
        result["capabilities"]["resources"],
        json!({"subscribe": true, "listChanged": true})
    );
}

#[test]
fn modern_requests_are_checked_in_order() {
    let mut host = Host::new(SampleKind::Notes);
    let with = |meta: Value| json!({"_meta": meta});
    let (version, capabilities) = (
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientCapabilities",
    );
    assert_eq!(
        host.error("tools/list", with(json!({version: "2026-07-28"}))),
        -32602
    );
    assert_eq!(host.error("tools/list", with(json!({capabilities: {}}))), -32602);
    assert_eq!(
        host.error("tools/list", with(json!({version: 1, capabilities: {}}))),
        -32602
    );
    let answer = host.ask(
        json!(1),
        "tools/list",
        with(json!({version: "2025-11-25", capabilities: {}})),
    );
    assert_eq!(answer["error"]["code"], -32022);
    assert_eq!(
        answer["error"]["data"],
        json!({"supported": ["2026-07-28"], "requested": "2025-11-25"})
    );
    let removed = [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/get",
    ];
    for method in removed {
        assert_eq!(
            host.error(method, modern(json!({"uri": "note:///a"}))),
            -32601,
            "{method}"
        );
    }
    let level = modern(json!({"_meta": {"io.modelcontextprotocol/logLevel": "loud"}}));
    assert_eq!(host.error("tools/list", level), -32602);
}

#[test]
fn lists_are_one_page_and_carry_caching_facts_for_modern_hosts_only() {
    let methods = [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ];
    let mut host = Host::legacy(SampleKind::Notes, "2025-11-25");
    for method in methods {
        let legacy = host.ask(json!(1), method, json!({}));
        assert!(legacy["result"]["resultType"].is_null() && legacy["result"]["ttlMs"].is_null());
        let modern_answer = host.modern(json!("m"), method, json!({}));
        assert!(
            modern_answer["result"]["resultType"] == "complete" && modern_answer["result"]["ttlMs"].is_u64()
        );
        assert!(modern_answer["result"]["cacheScope"].is_string());
        for cursor in ["", "abc"] {
            assert_eq!(host.error(method, json!({"cursor": cursor})), -32602);
            assert_eq!(host.error(method, modern(json!({"cursor": cursor}))), -32602);
        }
    }
}

#[test]
fn what_is_not_advertised_does_not_exist() {
    let mut notes = Host::legacy(SampleKind::Notes, "2025-11-25");
    assert_eq!(notes.error("logging/setLevel", json!({"level": "info"})), -32601);
    let mut clock = Host::legacy(SampleKind::Clock, "2025-11-25");
    for method in [
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "resources/subscribe",
        "server/discover",
    ] {
        assert_eq!(
            clock.error(method, json!({"uri": "clock:///timezones", "name": "x"})),
            -32601,
            "{method}"
        );
    }
}

#[test]
fn notes_are_added_found_read_and_deleted() {
    let mut host = Host::new(SampleKind::Notes);
    let added = host.modern(json!(1), "tools/call", add("Müll & Co", "out on Monday"));
    assert!(added["result"]["isError"].is_null());
    let found = host.modern(
        json!(2),
        "tools/call",
        json!({"name": "search_notes", "arguments": {"query": "MONDAY"}}),
    );
    let uri = "note:///M%C3%BCll%20%26%20Co";
    let expected =
        json!({"total": 1, "matches": [{"title": "Müll & Co", "uri": uri, "start": "out on Monday"}]});
    assert_eq!(found["result"]["structuredContent"], expected);
    let text = found["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);

    let listed = host.modern(json!(3), "resources/list", json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], uri);
    for spelling in [uri, "note:///M%c3%bcll & Co"] {
        let read = host.modern(json!(4), "resources/read", json!({"uri": spelling}));
        let contents = json!([{"uri": spelling, "mimeType": "text/plain", "text": "out on Monday"}]);
        assert_eq!(read["result"]["contents"], contents);
        assert_eq!(
            (&read["result"]["ttlMs"], &read["result"]["cacheScope"]),
            (&json!(0), &json!("private"))
        );
    }
    let gone = json!({"name": "delete_note", "arguments": {"title": "Müll & Co"}});
    assert!(host.modern(json!(5), "tools/call", gone.clone())["result"]["isError"].is_null());
    assert_eq!(
        host.modern(json!(6), "tools/call", gone)["result"]["isError"],
        true
    );
}

#[test]
fn a_missing_resource_is_an_error_of_the_family() {
    let mut host = Host::legacy(SampleKind::Notes, "2025-11-25");
    for uri in [
        "note:///none",
        "note:///",
        "note:///%zz",
        "note:///%ff",
        "file:///etc/passwd",
    ] {
        let legacy = host.ask(json!(1), "resources/read", json!({"uri": uri}));
        assert_eq!(
            (&legacy["error"]["code"], &legacy["error"]["data"]["uri"]),
            (&json!(-32002), &json!(uri))
        );
        let answer = host.modern(json!(1), "resources/read", json!({"uri": uri}));
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["data"]["uri"]),
            (&json!(-32602), &json!(uri))
        );
    }
}

#[test]
fn unknown_tools_are_protocol_errors_and_bad_arguments_are_results() {
    let mut host = Host::legacy(SampleKind::Notes, "2025-11-25");
    assert_eq!(
        host.error("tools/call", json!({"name": "Add_note", "arguments": {}})),
        -32602
    );
    assert_eq!(host.error("tools/call", json!({"arguments": {}})), -32602);
    assert_eq!(
        host.error("tools/call", json!({"name": "add_note", "arguments": []})),
        -32602
    );
    let bad = [
        json!({}),
        json!({"title": "a"}),
        json!({"title": 1, "text": ""}),
        json!({"title": " ", "text": ""}),
        json!({"title": "a\nb", "text": ""}),
        json!({"title": "a", "text": "b", "more": 1}),
        json!({"title": "a", "text": "x".repeat(65537)}),
    ];
    for arguments in bad {
        let answer = host.ask(
            json!(1),
            "tools/call",
            json!({"name": "add_note", "arguments": arguments}),
        );
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
}

#[test]
fn a_prompt_and_completion_know_the_titles() {
    let mut host = Host::legacy(SampleKind::Notes, "2024-11-05");
    for number in 0..120 {
        host.send(
            json!(number),
            "tools/call",
            add(&format!("Note {number:03}"), "text"),
        );
        while host.next()["id"] != json!(number) {}
    }
    let reference = json!({"type": "ref/resource", "uri": "note:///{title}"});
    host.send(
        json!("c"),
        "completion/complete",
        json!({"ref": reference, "argument": {"name": "title", "value": "note"}}),
    );
    let mut answer = host.next();
    while answer["id"] != "c" {
        answer = host.next();
    }
    let completion = &answer["result"]["completion"];
    assert_eq!(completion["values"].as_array().unwrap().len(), 100);
    assert_eq!(
        (&completion["total"], &completion["hasMore"]),
        (&json!(120), &json!(true))
    );
    let reference = json!({"type": "ref/prompt", "name": "summarise_notes"});
    let params = json!({"ref": reference, "argument": {"name": "title", "value": "NOTE 01"}});
    let answer = host.ask(json!(1), "completion/complete", params);
    assert_eq!(answer["result"]["completion"]["total"], 10);
    let unknown = json!({"ref": reference, "argument": {"name": "other", "value": ""}});
    assert_eq!(host.error("completion/complete", unknown), -32602);

    let one = json!({"name": "summarise_notes", "arguments": {"title": "Note 007"}});
    let answer = host.ask(json!(2), "prompts/get", one);
    let text = answer["result"]["messages"][0]["content"]["text"]
        .as_str()
        .unwrap();
    assert!(text.contains("# Note 007\ntext") && !text.contains("Note 008"));
    assert!(host.ask(json!(3), "prompts/get", json!({"name": "summarise_notes"}))["result"].is_object());
    assert_eq!(host.error("prompts/get", json!({"name": "other"})), -32602);
    assert_eq!(
        host.error(
            "prompts/get",
            json!({"name": "summarise_notes", "arguments": {"title": 1}})
        ),
        -32602
    );
}

#[test]
fn a_legacy_host_hears_of_changes_it_subscribed_to() {
    let mut host = Host::legacy(SampleKind::Notes, "2025-06-18");
    host.ask(json!(1), "resources/subscribe", json!({"uri": "note:///a"}));
    assert_eq!(
        host.error("resources/subscribe", json!({"uri": "other:///a"})),
        -32002
    );
    host.ask(json!(2), "tools/call", add("a", "1"));
    assert_eq!(
        host.next(),
        json!({"jsonrpc": "2.0", "method": "notifications/resources/list_changed", "params": {}})
    );
    assert_eq!(host.next()["params"], json!({"uri": "note:///a"}));
    host.ask(json!(3), "tools/call", add("a", "2"));
    assert_eq!(host.next()["method"], "notifications/resources/updated");
    host.ask(json!(4), "resources/unsubscribe", json!({"uri": "note:///a"}));
    host.ask(json!(5), "tools/call", add("a", "3"));
    assert_eq!(host.end(), "");
}

#[test]
fn subscriptions_are_acknowledged_filtered_told_apart_and_ended() {
    let mut host = Host::new(SampleKind::Notes);
    let id = |message: &Value| message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    let all = json!({
        "toolsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["note:///a%62", "other:///x"],
    });
    host.send(
        json!(7),
        "subscriptions/listen",
        modern(json!({"notifications": all})),
    );
    let acknowledged = host.next();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(id(&acknowledged), json!(7));
    let honoured = json!({"resourcesListChanged": true, "resourceSubscriptions": ["note:///a%62"]});
    assert_eq!(acknowledged["params"]["notifications"], honoured);
    let list = json!({"notifications": {"resourcesListChanged": true}});
    host.send(json!("7"), "subscriptions/listen", modern(list.clone()));
    assert_eq!(id(&host.next()), json!("7"));
    // The id is taken while it is open.
    assert_eq!(
        host.modern(json!(7), "tools/list", json!({}))["error"]["code"],
        -32600
    );

    host.modern(json!(8), "tools/call", add("ab", "1"));
    let told = [host.next(), host.next(), host.next()];
    assert!(
        told[..2]
            .iter()
            .all(|message| message["method"] == "notifications/resources/list_changed")
    );
    assert_eq!((id(&told[0]), id(&told[1])), (json!(7), json!("7")));
    assert_eq!(
        (&told[2]["params"]["uri"], id(&told[2])),
        (&json!("note:///a%62"), json!(7))
    );

    host.notify("notifications/cancelled", json!({"requestId": 7}));
    host.modern(json!(9), "tools/call", add("b", "1"));
    assert_eq!(id(&host.next()), json!("7"));
    assert_eq!(host.error("subscriptions/listen", modern(json!({}))), -32602);
    assert_eq!(host.end(), "");
}

#[test]
fn broken_messages_get_their_errors_and_do_no_harm() {
    let mut host = Host::legacy(SampleKind::Notes, "2025-11-25");
    for (line, code, id) in [
        ("{", -32700, Value::Null),
        ("nonsense", -32700, Value::Null),
        ("1", -32600, Value::Null),
        ("[]", -32600, Value::Null),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            -32600,
            Value::Null,
        ),
        (r#"{"id":1,"method":"ping"}"#, -32600, json!(1)),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            -32600,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            -32600,
            Value::Null,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600, json!(1)),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600, json!(1)),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
            -32602,
            json!(1),
        ),
    ] {
        host.raw(line);
        let answer = host.next();
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &id),
            "{line}"
        );
        assert_eq!(
            answer.get("id").is_some(),
            !id.is_null(),
            "an unreadable id is left out: {line}"
        );
    }
    for ignored in [
        "",
        "  \r",
        r#"{"jsonrpc":"2.0","id":9,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"what"}"#,
    ] {
        host.raw(ignored);
    }
    host.raw(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#,
        "y".repeat(LINE_LIMIT)
    ));
    assert_eq!(host.next()["error"]["code"], -32600);
    assert!(host.ask(json!(3), "ping", json!({}))["result"].is_object());
}

#[test]
fn a_batch_is_answered_as_one_where_the_revision_has_batches() {
    let mut host = Host::legacy(SampleKind::Clock, "2025-03-26");
    let item = |id: i64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let batch = json!([
        item(1, "ping", json!({})),
        item(2, "tools/call", json!({"name": "countdown", "arguments": {"seconds": 0, "steps": 1}})),
        {"jsonrpc": "2.0", "method": "notifications/whatever"},
        item(3, "initialize", json!({"protocolVersion": "2025-03-26"})),
        item(4, "none", json!({})),
        7,
    ]);
    host.ask(json!("l"), "logging/setLevel", json!({"level": "error"}));
    host.raw(&batch.to_string());
    let answers = host.next();
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 5);
    let code = |id: i64| answers.iter().find(|answer| answer["id"] == id).unwrap()["error"]["code"].clone();
    assert_eq!(
        (code(1), code(2), code(3), code(4)),
        (Value::Null, Value::Null, json!(-32600), json!(-32601))
    );
    host.raw(&json!([{"jsonrpc": "2.0", "method": "notifications/whatever"}]).to_string());
    assert_eq!(host.end(), "");
}
