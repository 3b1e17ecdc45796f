//! The test support checked against itself: a scripted host directly on the fake server, no daemon in between.

use std::process::Command;

use serde_json::json;

use crate::support::http::Address;
use crate::support::{Fake, Host, HostKind, Options, ServerKind};

fn direct(fake: &Fake, kind: HostKind, options: Options) -> Host {
    if kind.own_process() {
        let words = fake.command();
        Host::spawn(Command::new(&words[0]).arg(&words[1]), kind, options)
    } else {
        let url = fake.url();
        let address = url
            .strip_prefix("http://")
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        Host::at(Address::Tcp(address), kind, options)
    }
}

fn walk(host: HostKind, server: ServerKind) {
    let asks = json!([[
        "q",
        "elicitation/create",
        r#"{"message":"who? @@TEXT@@","requestedSchema":{"type":"object"}}"#
    ]]);
    let fake = Fake::echo("one", server)
        .tool("works", json!([{ "progress": 2 }, { "gate": "go" }, { "progress": 1 }, { "result": r#"{"content":[],"structuredContent":{"a":@@ARGS@@}}"# }]))
        .tool("asks", json!([{ "ask": asks }, { "result": r#"{"content":[],"structuredContent":@@ANSWERS@@}"# }]))
        .set("page_size", json!(2));
    let host = direct(&fake, host, Options::asking());
    if !host.kind().modern() {
        host.initialize().result();
        host.notify("notifications/initialized", "");
    }
    assert_eq!(host.tool_names(), ["echo", "works", "asks"]);
    let seen = host.call("echo", r#"{"n":1.10, "b":18446744073709551617}"#);
    assert!(
        seen.raw.contains(r#"{"n":1.10, "b":18446744073709551617}"#),
        "{}",
        seen.raw
    );
    let call = host.start_call_with("\"x\"", "works", r#"{"k":1}"#, r#""progressToken":"t1""#);
    fake.wait_event("at go");
    fake.release("go");
    host.wait_answer(&call).result();
    assert_eq!(host.progress("\"t1\"").len(), 3);
    host.respond(|_| Some(r#""result":{"action":"accept","content":{"name":"me"}}"#.into()));
    let seen = host.call_answering(
        "asks",
        r#"{"text":"two"}"#,
        |_, _| json!({ "action": "accept", "content": { "name": "me" } }),
    );
    assert_eq!(seen.result()["structuredContent"]["q"]["content"]["name"], "me");
    let call = host.send("tools/call", r#"{"name":"works","arguments":{}}"#);
    host.wait_answer(&call);
    fake.assert_clean();
}

crate::pairs!(host_on_server, super::walk, [
    stdio: Stdio -> StdioLegacy,
    stdio_modern: StdioModern -> StdioModern,
    http: Http -> HttpLegacy,
    http_modern: HttpModern -> HttpModern,
]);
