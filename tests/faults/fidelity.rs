//! FID: what passes through must not change, and what a broken server answers becomes one clear error.

use serde_json::json;

use crate::support::host::raw_member;
use crate::support::{Fake, Host, HostKind, ServerKind, Setup};

#[test]
fn fid_1_explicit_defaults_survive() {
    let raw = r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false,"idempotentHint":false,"vendor":{"x":null}},"_meta":{"a":{"b":null},"c":[],"d":"","e":{}}}"#;
    let fake = Fake::new("one", ServerKind::HttpLegacy).raw_tool("t", raw, json!([]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__t");
    assert_eq!(host.tools(), [raw.replace("\"t\"", "\"one__t\"")]);
}

#[test]
fn fid_3_results_are_complete() {
    let result = r#"{"content":[{"type":"text","text":"x","annotations":{"audience":["user"]},"zz":0}],"structuredContent":{"a":1},"isError":false,"_meta":{"m":null},"unknown":[1]}"#;
    for server in [ServerKind::StdioLegacy, ServerKind::HttpLegacy, ServerKind::Sse] {
        let fake = Fake::new("one", server).tool("t", json!([{ "result": result }]));
        let daemon = Setup::of(&[&fake]).start();
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tool("one__t");
        assert_eq!(host.call("one__t", "{}").member("result"), result, "{server:?}");
    }
}

#[test]
fn fid_4_schemas_are_relayed_as_they_are() {
    let schemas = [
        r##"{"type":"object","properties":{"x":{"$ref":"#/definitions/X"}},"definitions":{"X":{"type":"string"}}}"##,
        r##"{"type":"object","properties":{"x":{"$ref":"#/$defs/X","description":"sibling"}},"$defs":{"X":{"$anchor":"a"}}}"##,
        r##"{"type":"object","definitions":{"X":{}},"$defs":{"X":{}},"properties":{"a":{"$ref":"#/definitions/X"},"b":{"$ref":"#/$defs/X"}}}"##,
        r##"{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false,"x-vendor":[1.0]}"##,
    ];
    let mut fake = Fake::new("one", ServerKind::StdioLegacy);
    for (number, schema) in schemas.iter().enumerate() {
        fake = fake.raw_tool(
            &format!("t{number}"),
            &format!(r#"{{"name":"t{number}","inputSchema":{schema}}}"#),
            json!([]),
        );
    }
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("four", |names| names.len() == 4);
    for (item, schema) in host.tools().iter().zip(schemas) {
        assert_eq!(raw_member(item, "inputSchema").unwrap(), schema);
    }
}

#[test]
fn fid_5_numbers_in_both_directions() {
    let numbers = r#"{"a":9223372036854775807,"b":18446744073709551615,"c":123456789012345678901234567890,"d":1e400,"e":-0.0,"f":0.1000}"#;
    let fake = Fake::echo("one", ServerKind::HttpLegacy);
    let daemon = Setup::of(&[&fake]).start();
    for kind in [HostKind::Http, HostKind::HttpModern] {
        let host = Host::connect(&daemon, kind);
        host.wait_tool("one__echo");
        assert!(host.call("one__echo", numbers).raw.contains(numbers));
        assert!(fake.calls("echo").pop().unwrap().raw.contains(numbers));
    }
}

#[test]
fn fid_6_deep_schemas() {
    let deep = format!("{}{{}}{}", r#"{"items":"#.repeat(5000), "}".repeat(5000));
    let fake = Fake::echo("one", ServerKind::StdioLegacy).raw_tool(
        "deep",
        &format!(r#"{{"name":"deep","inputSchema":{deep}}}"#),
        json!([]),
    );
    let other = Fake::echo("two", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake, &other]).set("start_wait", json!("2s")).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("two__echo");
    host.call("two__echo", "{}").result();
    host.wait_tool("one__echo");
    host.call("one__echo", "{}").result();
}

#[test]
fn fid_7_errors_of_servers_are_theirs() {
    let fake = Fake::new("one", ServerKind::HttpLegacy)
        .tool(
            "own",
            json!([{ "error": r#"{"code":4711,"message":"mine","data":{"retry":5}}"# }]),
        )
        .tool(
            "reserved",
            json!([{ "error": r#"{"code":-32063,"message":"reserved","data":{"retry":5}}"# }]),
        )
        .tool(
            "failed",
            json!([{ "result": r#"{"content":[],"isError":true}"# }]),
        );
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__own");
    let own = host.call("one__own", "{}");
    assert_eq!(
        own.member("error"),
        r#"{"code":4711,"message":"mine","data":{"retry":5}}"#
    );
    // -32020..-32099 belong to the specification: an unknown one of them may be remapped, the original kept in data.
    let reserved = host.call("one__reserved", "{}");
    assert!(
        reserved.raw.contains("-32063") && reserved.raw.contains(r#"{"retry":5}"#),
        "{}",
        reserved.raw
    );
    assert_eq!(
        host.call("one__failed", "{}").member("result"),
        r#"{"content":[],"isError":true}"#
    );
}

#[test]
fn fid_8_http_failures() {
    let fake = Fake::echo("one", ServerKind::HttpLegacy)
        .tool(
            "text500",
            json!([{ "status": [500, "text/plain", "Internal Server Error"] }]),
        )
        .tool(
            "html502",
            json!([{ "status": [502, "text/html", "<html><body>Bad Gateway</body></html>"] }]),
        )
        .tool("drops", json!(["drop"]))
        .tool("half", json!([{ "progress": 1 }, "drop"]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__half");
    for name in ["text500", "html502", "drops", "half"] {
        let call = host.start_call_with(
            &format!("\"{name}\""),
            &format!("one__{name}"),
            "{}",
            r#""progressToken":1"#,
        );
        let answer = host.wait_answer(&call);
        assert_eq!(answer.status, 200, "{name}");
        let manifold = &answer.error()["data"]["manifold"];
        assert_eq!(manifold["side"], "downstream", "{}", answer.raw);
        assert_eq!(manifold["server"], "one", "{}", answer.raw);
        host.call("one__echo", "{}").result();
        assert_eq!(
            fake.calls(name).len(),
            1,
            "a call whose bytes were sent is never repeated"
        );
    }
}

#[test]
fn fid_9_answers_that_are_none() {
    let fake = Fake::echo("one", ServerKind::HttpLegacy)
        .tool(
            "object",
            json!([{ "status": [200, "application/json", "{\"Output\":1}"] }]),
        )
        .tool("empty", json!([{ "status": [200, "application/json", ""] }]))
        .tool(
            "html",
            json!([{ "status": [200, "text/html", "<html>secret page</html>"] }]),
        )
        .tool(
            "foreign",
            json!([{ "raw_answer": r#"{"jsonrpc":"2.0","id":987654,"result":{"content":[]}}"# }]),
        )
        .tool("accepted", json!([{ "status": [202, "", ""] }]));
    let daemon = Setup::new()
        .server(&fake, json!({ "idle_timeout": "3s" }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__foreign");
    for name in ["object", "empty", "html", "foreign", "accepted"] {
        let answer = host.call(&format!("one__{name}"), "{}");
        assert_eq!(
            answer.error()["data"]["manifold"]["server"],
            "one",
            "{name}: {}",
            answer.raw
        );
        assert!(answer.raw.len() < 4000, "a bounded excerpt");
        host.call("one__echo", "{}").result();
    }
}
