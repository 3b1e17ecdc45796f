//! Reverse requests within one family: elicitation, sampling and roots reach the host whose call caused them.

use serde_json::{Value, json};

use crate::support::{Fake, Host, HostKind, Options, ServerKind, Setup, never};

fn asking(server: ServerKind) -> Fake {
    let asks = json!([
        [
            "e",
            "elicitation/create",
            r#"{"message":"name?","requestedSchema":{"type":"object","properties":{"n":{"type":"number","maximum":1.10}}}}"#
        ],
        [
            "s",
            "sampling/createMessage",
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"@@TEXT@@"}}],"maxTokens":5}"#
        ],
        ["r", "roots/list", "{}"],
    ]);
    let result = r#"{"content":[],"structuredContent":@@ANSWERS@@}"#;
    let twice = json!([
        { "ask": [["a", "elicitation/create", r#"{"message":"first","requestedSchema":{"type":"object"}}"#]] },
        { "ask": [["b", "elicitation/create", r#"{"message":"second","requestedSchema":{"type":"object"}}"#]] },
        { "result": result }
    ]);
    Fake::echo("one", server)
        .tool("all", json!([{ "ask": asks }, { "result": result }]))
        .tool("twice", twice)
}

fn reply(method: &str) -> Value {
    match method {
        "elicitation/create" => json!({ "action": "accept", "content": { "n": 1 } }),
        "sampling/createMessage" => {
            json!({ "role": "assistant", "content": { "type": "text", "text": "hi" }, "model": "m" })
        }
        _ => json!({ "roots": [{ "uri": "file:///home" }] }),
    }
}

fn all_three(kind: HostKind, server: ServerKind) {
    let fake = asking(server);
    let daemon = Setup::of(&[&fake]).for_host(kind);
    let host = Host::with(&daemon, kind, Options::asking());
    host.respond(|seen| Some(format!("\"result\":{}", reply(seen.method()))));
    host.wait_tool("one__all");
    for _ in 0..2 {
        let seen = host.call_answering("one__all", r#"{"text":"ask me"}"#, |_, ask| {
            reply(ask["method"].as_str().unwrap())
        });
        let answers = &seen.result()["structuredContent"];
        assert_eq!(answers["e"]["content"]["n"], 1, "{}", seen.raw);
        assert_eq!(answers["s"]["content"]["text"], "hi", "{}", seen.raw);
        assert_eq!(answers["r"]["roots"][0]["uri"], "file:///home", "{}", seen.raw);
    }
    let seen = host.call_answering("one__twice", "{}", |_, ask| {
        reply(ask["method"].as_str().unwrap())
    });
    assert!(
        seen.result()["structuredContent"]["b"]["content"].is_object(),
        "{}",
        seen.raw
    );
    if kind == HostKind::Http {
        let asked = host.with_method("elicitation/create");
        assert!(
            asked.iter().all(|seen| seen.stream.starts_with("post:")),
            "a question goes on the stream of its call"
        );
    }
    fake.assert_clean();
}

crate::same_family!(every_kind_of_question, super::all_three);

/// The params of a question reach the host as the server wrote them.
#[test]
fn a_question_passes_unchanged() {
    let params = r#"{"message":"a\u0042","requestedSchema":{"type":"object","properties":{"n":{"maximum":1.10,"const":18446744073709551617}}},"_meta":{"v":null},"zz":[ ]}"#;
    let fake = Fake::new("one", ServerKind::StdioLegacy)
        .tool("ask", json!([{ "ask": [["q", "elicitation/create", params]] }]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::with(&daemon, HostKind::Http, Options::asking());
    host.wait_tool("one__ask");
    let call = host.start_call("one__ask", "{}");
    let question = host.wait_method("elicitation/create");
    assert_eq!(question.member("params"), params);
    let answer = r#"{"action":"accept","content":{"n":1.10,"b":18446744073709551617}, "x":null}"#;
    host.answer(&question, &format!("\"result\":{answer}"));
    host.wait_answer(&call).result();
    let given = fake
        .records()
        .into_iter()
        .find(|entry| entry.kind == "ask_answer")
        .unwrap();
    assert!(given.raw.contains(answer), "{}", given.raw);
}

/// Two servers number their questions alike; an error answer goes back as an error.
#[test]
fn ids_of_servers_never_reach_a_host() {
    let one = Fake::new("one", ServerKind::StdioLegacy).tool("ask", json!([{ "ask": [["q", "elicitation/create", r#"{"message":"one","requestedSchema":{"type":"object"}}"#]] }, { "result": "{\"content\":[],\"structuredContent\":@@ANSWERS@@}" }]));
    let two = Fake::new("two", ServerKind::HttpLegacy).tool("ask", json!([{ "ask": [["q", "elicitation/create", r#"{"message":"two","requestedSchema":{"type":"object"}}"#]] }, { "result": "{\"content\":[],\"structuredContent\":@@ANSWERS@@}" }]));
    let daemon = Setup::of(&[&one, &two]).start();
    let host = Host::with(&daemon, HostKind::Http, Options::asking());
    host.wait_tools("both", |names| names.len() == 2);
    let calls = [
        host.start_call("one__ask", "{}"),
        host.start_call("two__ask", "{}"),
    ];
    let questions = host.wait_count("both questions", 2, |seen| seen.method() == "elicitation/create");
    assert_ne!(questions[0].value["id"], questions[1].value["id"]);
    for question in &questions {
        let which = if question.value["params"]["message"]
            .as_str()
            .unwrap()
            .contains("one")
        {
            1
        } else {
            2
        };
        host.answer(
            question,
            &format!(r#""error":{{"code":-{which},"message":"no"}}"#),
        );
    }
    for (which, call) in [(1, &calls[0]), (2, &calls[1])] {
        assert_eq!(
            host.wait_answer(call).result()["structuredContent"]["q"]["error"]["code"],
            -which
        );
    }
}

/// A host without the capability is never asked, and the server is told at once.
fn undeclared(kind: HostKind, server: ServerKind) {
    let fake = asking(server);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, kind);
    host.wait_tool("one__twice");
    let seen = host.call("one__twice", "{}");
    assert!(seen.value.get("result").is_some() || seen.value.get("error").is_some());
    assert!(host.with_method("elicitation/create").is_empty());
    let opened: Vec<_> = fake.received("initialize");
    assert!(
        opened
            .iter()
            .all(|entry| entry.value["params"]["capabilities"].get("elicitation").is_none()),
        "only what can be honoured is announced"
    );
}

crate::pairs!(a_host_that_cannot_be_asked, super::undeclared, [
    http_to_stdio: Http -> StdioLegacy,
    http_to_http: Http -> HttpLegacy,
]);

/// A question that the server withdraws is withdrawn at the host, under the host's id.
#[test]
fn a_withdrawn_question() {
    let steps = json!([{ "ask_only": [["q", "elicitation/create", r#"{"message":"m","requestedSchema":{"type":"object"}}"#]] }, { "gate": "go" }, "cancel_asks"]);
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool("ask", steps);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::with(&daemon, HostKind::Http, Options::asking());
    host.wait_tool("one__ask");
    let call = host.start_call("one__ask", "{}");
    let question = host.wait_method("elicitation/create");
    fake.release("go");
    let told = host.wait_method("notifications/cancelled");
    assert_eq!(told.value["params"]["requestId"], question.value["id"]);
    host.wait_answer(&call).result();
    // A late answer goes nowhere.
    host.answer(&question, r#""result":{"action":"accept"}"#);
    assert_eq!(host.call("one__ask2", "{}").code(), -32602);
    assert!(fake.records().iter().all(|entry| entry.kind != "ask_answer"));
}

/// A question on the GET stream of the server still finds the host of the call.
#[test]
fn a_question_on_the_servers_get_stream() {
    let fake = asking(ServerKind::HttpLegacy).set("asks_on_get", json!(true));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::with(&daemon, HostKind::Http, Options::asking());
    host.respond(|seen| Some(format!("\"result\":{}", reply(seen.method()))));
    host.wait_tool("one__twice");
    let seen = host.call("one__twice", "{}");
    assert!(
        seen.result()["structuredContent"]["a"].is_object(),
        "{}",
        seen.raw
    );
}

/// `roots/list` right after the handshake, with no call in flight.
#[test]
fn roots_outside_a_call() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).on(
        "notifications/initialized",
        json!([{ "ask": [["r", "roots/list", "{}"]] }, { "event": "has roots" }]),
    );
    let daemon = Setup::new()
        .server(&fake, json!({ "roots": ["file:///srv/docs"] }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let answer = crate::support::until("an answer about roots", || {
        fake.records()
            .into_iter()
            .find(|entry| entry.kind == "ask_answer")
    });
    assert!(
        answer.raw.contains("file:///srv/docs") || answer.raw.contains("error"),
        "{}",
        answer.raw
    );
}

/// A question of a shared server while no call runs can be attributed to nobody: refused.
#[test]
fn a_question_out_of_the_blue() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::new().server(&fake, json!({ "sharing": "shared" })).start();
    let hosts = [
        Host::with(&daemon, HostKind::Http, Options::asking()),
        Host::with(&daemon, HostKind::Http, Options::asking()),
    ];
    for host in &hosts {
        host.wait_tool("one__echo");
        host.call("one__echo", "{}").result();
    }
    fake.perform(json!([{ "ask": [["q", "elicitation/create", r#"{"message":"m","requestedSchema":{"type":"object"}}"#]] }, { "event": "refused" }]));
    fake.wait_event("refused");
    let refused = fake
        .records()
        .into_iter()
        .find(|entry| entry.kind == "ask_answer")
        .unwrap();
    assert!(refused.raw.contains("error"), "{}", refused.raw);
    never("a host is asked", || {
        hosts
            .iter()
            .any(|host| !host.with_method("elicitation/create").is_empty())
    });
}

/// Modern: a state that was changed, or belongs to another call, is refused.
#[test]
fn request_state_is_bound_to_its_call() {
    let fake = asking(ServerKind::HttpModern);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::with(&daemon, HostKind::HttpModern, Options::asking());
    host.wait_tool("one__twice");
    let first = host.request("tools/call", r#"{"name":"one__twice","arguments":{"text":"a"}}"#);
    assert_eq!(first.result()["resultType"], "input_required", "{}", first.raw);
    let state = first.result()["requestState"].as_str().unwrap().to_owned();
    let answers = r#""inputResponses":{"a":{"action":"accept","content":{}}}"#;
    let before = fake.calls("twice").len();
    let mut changed = state.clone();
    let middle = changed.len() / 2;
    let letter = if changed.as_bytes()[middle] == b'A' {
        "B"
    } else {
        "A"
    };
    changed.replace_range(middle..=middle, letter);
    for (arguments, name, state) in [
        (r#"{"text":"a"}"#, "one__twice", changed.as_str()),
        (r#"{"text":"b"}"#, "one__twice", state.as_str()),
        (r#"{"text":"a"}"#, "one__echo", state.as_str()),
        (r#"{"text":"a"}"#, "one__twice", "made up"),
    ] {
        let seen = host.request(
            "tools/call",
            &format!(
                r#"{{"name":"{name}","arguments":{arguments},{answers},"requestState":{}}}"#,
                json!(state)
            ),
        );
        assert_eq!(seen.code(), -32602, "{name} {arguments}: {}", seen.raw);
    }
    assert_eq!(
        fake.calls("twice").len(),
        before,
        "a forged state reached the server"
    );
    let seen = host.request(
        "tools/call",
        &format!(
            r#"{{"name":"one__twice","arguments":{{"text":"a"}},{answers},"requestState":{}}}"#,
            json!(state)
        ),
    );
    assert_eq!(seen.result()["resultType"], "input_required", "{}", seen.raw);
}
