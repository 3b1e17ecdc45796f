//! COR: correlation and concurrency; CAN: cancellation; S2C: requests of servers.

use serde_json::json;

use crate::support::{Fake, Host, HostKind, Options, ServerKind, Setup, never, until};

#[test]
fn can_2_the_ways_a_call_ends() {
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool("slow", json!([{ "gate": "never" }]));
    // The limit: the caller is told who and which limit, the server is told to stop.
    let daemon = Setup::new()
        .server(&fake, json!({ "max_timeout": "1s", "idle_timeout": "1s" }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__slow");
    let answer = host.call("one__slow", "{}");
    assert!(
        answer.raw.contains("one") && answer.raw.contains("1s"),
        "names server and limit: {}",
        answer.raw
    );
    fake.wait_end("slow");
    drop(host);
    drop(daemon);
    // DELETE of the session.
    let fake = Fake::new("two", ServerKind::StdioLegacy).tool("slow", json!([{ "gate": "never" }]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("two__slow");
    host.start_call("two__slow", "{}");
    fake.wait_event("at never");
    host.end();
    let told = until("DELETE cancels", || {
        fake.received("notifications/cancelled")
            .pop()
            .or_else(|| fake.records().into_iter().find(|entry| entry.kind == "stdin_end"))
    });
    if told.kind == "message" {
        assert_eq!(
            told.value["params"]["requestId"],
            fake.calls("slow")[0].value["id"]
        );
    }
}

#[test]
fn can_3_a_server_cancels_its_own_question() {
    let steps = json!([{ "ask_only": [["q", "elicitation/create", r#"{"message":"m","requestedSchema":{"type":"object"}}"#]] }, { "gate": "go" }, "cancel_asks", { "gate": "end" }]);
    let fake = Fake::echo("one", ServerKind::HttpLegacy).tool("ask", steps);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::with(&daemon, HostKind::Http, Options::asking());
    host.wait_tool("one__ask");
    let call = host.start_call("one__ask", "{}");
    let question = host.wait_method("elicitation/create");
    fake.release("go");
    assert_eq!(
        host.wait_method("notifications/cancelled").value["params"]["requestId"],
        question.value["id"]
    );
    host.call("one__echo", "{}").result();
    fake.release("end");
    host.wait_answer(&call).result();
}

#[test]
fn can_6_meta_of_the_host_arrives() {
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool(
        "meta",
        json!([{ "result": r#"{"content":[],"structuredContent":@@META@@}"# }]),
    );
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__meta");
    let call = host.start_call_with("70", "one__meta", "{}", r#""progressToken":"p","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","vendor/x":{"y":[null]}"#);
    let seen = host.wait_answer(&call);
    let meta = &seen.result()["structuredContent"];
    assert_eq!(meta["vendor/x"], json!({ "y": [null] }));
    assert!(
        meta["traceparent"]
            .as_str()
            .unwrap()
            .contains("0af7651916cd43dd8448eb211c80319c")
    );
    assert_ne!(meta["progressToken"], "p", "tokens are ours on the wire");
}

#[test]
fn can_7_a_lost_stream_gives_exactly_one_answer() {
    for server in [ServerKind::HttpLegacy, ServerKind::Sse] {
        let fake = Fake::echo("one", server).tool("lost", json!([{ "progress": 1 }, "drop"]));
        let daemon = Setup::new()
            .server(&fake, json!({ "idle_timeout": "3s" }))
            .start();
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tool("one__lost");
        let call = host.start_call_with("70", "one__lost", "{}", r#""progressToken":1"#);
        host.wait_answer(&call).error();
        assert_eq!(fake.calls("lost").len(), 1, "{server:?}: not repeated");
        until("the server works again", || {
            host.call("one__echo", "{}")
                .value
                .get("result")
                .is_some()
                .then_some(())
        });
        assert_eq!(host.matching(|seen| seen.value["id"] == json!(70)).len(), 1);
    }
}

/// A stream that the server cuts on purpose is resumed by its event id.
#[test]
fn can_7_a_cut_stream_is_resumed() {
    let fake = Fake::new("one", ServerKind::HttpLegacy)
        .set("event_ids", json!(true))
        .tool(
            "cut",
            json!([{ "progress": 1 }, "cut", { "gate": "go" }, { "progress": 1 }]),
        );
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__cut");
    let call = host.start_call_with("70", "one__cut", "{}", r#""progressToken":1"#);
    fake.wait_event("at go");
    fake.release("go");
    host.wait_answer(&call).result();
    assert_eq!(host.progress("1").len(), 2);
    assert_eq!(fake.calls("cut").len(), 1);
}

#[test]
fn cor_2_fifty_clients_with_the_same_ids() {
    let steps = json!([{ "result": r#"{"content":[],"structuredContent":{"text":"@@TEXT@@"}}"# }]);
    let fake = Fake::new("one", ServerKind::HttpLegacy).tool("secret", steps);
    let daemon = Setup::of(&[&fake]).start();
    Host::connect(&daemon, HostKind::HttpModern).wait_tool("one__secret");
    let threads: Vec<_> = (0..50)
        .map(|number| {
            let host = Host::at(daemon.address(), HostKind::HttpModern, Options::default());
            std::thread::spawn(move || {
                let calls: Vec<_> = (1..=3)
                    .map(|id| {
                        host.start_call_with(
                            &id.to_string(),
                            "one__secret",
                            &format!(r#"{{"text":"{number}-{id}"}}"#),
                            "",
                        )
                    })
                    .collect();
                for (id, call) in (1..=3).zip(calls) {
                    assert_eq!(
                        host.wait_answer(&call).result()["structuredContent"]["text"],
                        format!("{number}-{id}")
                    );
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut ids: Vec<String> = fake
        .calls("secret")
        .iter()
        .map(|call| call.value["id"].to_string())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 150, "ids on the wire are our own");
}

fn nothing_waits(kind: HostKind) {
    let one = Fake::echo("one", ServerKind::StdioLegacy).tool("slow", json!([{ "gate": "never" }]));
    let two = Fake::echo("two", ServerKind::HttpLegacy);
    let daemon = Setup::of(&[&one, &two]).for_host(kind);
    let host = Host::connect(&daemon, kind);
    host.wait_tool("one__slow");
    host.wait_tool("two__echo");
    let slow = host.start_call("one__slow", "{}");
    one.wait_event("at never");
    host.request("ping", "").result();
    host.tools();
    host.call("one__echo", "{}").result();
    host.call("two__echo", "{}").result();
    assert!(host.answered(&slow).is_none());
    host.cancel(&slow);
    one.wait_end("slow");
}

#[test]
fn cor_3_nothing_waits_for_a_slow_call_over_http() {
    nothing_waits(HostKind::Http);
}

#[test]
fn cor_3_nothing_waits_for_a_slow_call_over_stdio() {
    nothing_waits(HostKind::Stdio);
}

#[test]
fn cor_4_many_calls_to_one_child_in_random_order() {
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool("sized", json!([{ "sleep_ms": 1 }, { "result": r#"{"content":[],"structuredContent":{"text":"@@TEXT@@"}}"# }])).set("split", json!(5000));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Stdio);
    host.wait_tool("one__sized");
    let texts: Vec<String> = (0..200)
        .map(|number: usize| format!("{number}-{}", "x".repeat(1000 + (number * 7919) % 200_000)))
        .collect();
    let calls: Vec<_> = texts
        .iter()
        .map(|text| host.start_call("one__sized", &format!(r#"{{"text":"{text}"}}"#)))
        .collect();
    for (call, text) in calls.iter().zip(&texts) {
        assert_eq!(
            host.wait_answer(call).result()["structuredContent"]["text"],
            text.as_str()
        );
    }
    fake.assert_clean();
}

#[test]
fn cor_5_reconnecting_clients_and_garbage() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    Host::connect(&daemon, HostKind::Http).wait_tool("one__echo");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let host = Host::connect(&daemon, HostKind::Http);
                    host.call("one__echo", "{}").result();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                use std::io::Write;
                if let Ok(mut socket) = crate::support::http::Socket::connect(&daemon.address()) {
                    let _ = socket.write_all(b"\x16\x03\x01 garbage POST /mcp\r\n\r\n\0\0\0");
                    socket.close();
                }
            }
        });
    });
    Host::connect(&daemon, HostKind::Http)
        .call("one__echo", "{}")
        .result();
}

#[test]
fn s2c_2_who_announces_sampling_is_asked() {
    let steps = json!([{ "ask": [["q", "sampling/createMessage", r#"{"messages":[],"maxTokens":1}"#]] }, { "result": r#"{"content":[],"structuredContent":@@ANSWERS@@}"# }]);
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool("sample", steps);
    let daemon = Setup::of(&[&fake]).start();
    let able = Host::with(
        &daemon,
        HostKind::Http,
        Options::capabilities(r#"{"sampling":{}}"#),
    );
    able.respond(|_| {
        Some(r#""result":{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}"#.into())
    });
    let unable = Host::connect(&daemon, HostKind::Http);
    able.wait_tool("one__sample");
    let (first, second) = (
        able.start_call("one__sample", "{}"),
        unable.start_call("one__sample", "{}"),
    );
    assert_eq!(
        able.wait_answer(&first).result()["structuredContent"]["q"]["content"]["text"],
        "hi"
    );
    let refused = unable.wait_answer(&second);
    assert!(
        refused.result()["structuredContent"]["q"]["error"].is_object(),
        "{}",
        refused.raw
    );
    assert!(unable.with_method("sampling/createMessage").is_empty());
    for entry in fake.received("initialize") {
        let asked_here = fake
            .calls("sample")
            .iter()
            .any(|call| call.session == entry.session);
        if !asked_here {
            assert!(entry.value["params"]["capabilities"].get("elicitation").is_none());
        }
    }
}

#[test]
fn s2c_3_two_questions_in_sequence_block_nothing() {
    let ask = |key: &str| json!({ "ask": [[key, "elicitation/create", r#"{"message":"m","requestedSchema":{"type":"object"}}"#]] });
    let fake = Fake::echo("one", ServerKind::StdioLegacy).tool("twice", json!([ask("a"), ask("b")]));
    let daemon = Setup::of(&[&fake]).prepare();
    let host = Host::with(&daemon, HostKind::Stdio, Options::asking());
    host.wait_tool("one__twice");
    let call = host.start_call("one__twice", "{}");
    for count in 1..=2 {
        let questions = host.wait_count("a question", count, |seen| seen.method() == "elicitation/create");
        host.request("ping", "").result();
        host.call("one__echo", "{}").result();
        host.answer(questions.last().unwrap(), r#""result":{"action":"decline"}"#);
    }
    host.wait_answer(&call).result();
    never("a third question", || {
        host.with_method("elicitation/create").len() > 2
    });
}
