//! Calls, cancellation, progress and deadlines on every combination of transports.

use serde_json::json;

use crate::support::{Fake, Host, HostKind, Options, QUIET, ServerKind, Setup, never};

/// Arguments that no parser may touch.
pub(crate) const ODD: &str = r#"{ "b":1.10,"a" : [18446744073709551617,1e400,-0.0,123456789012345678901234567890],"\u0065":"\u00e9\/","z":null}"#;

fn plain(host: HostKind, server: ServerKind) {
    let fake = Fake::echo("one", server);
    let daemon = Setup::of(&[&fake]).for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tool("one__echo");
    let seen = host.call("one__echo", ODD);
    assert!(seen.raw.contains(ODD), "came back: {}", seen.raw);
    let sent = fake.calls("echo").pop().unwrap();
    assert!(sent.raw.contains(ODD), "arrived: {}", sent.raw);
    fake.assert_clean();
}

crate::every_pair!(call, call_crossing, super::plain);

/// Only the server of the cancelled call hears of it, with its own id; the host gets no answer.
fn cancel(host: HostKind, server: ServerKind) {
    let one = Fake::new("one", server).tool("slow", json!([{ "gate": "go" }]));
    let two = Fake::new("two", server).tool("slow", json!([{ "gate": "go" }]));
    let daemon = Setup::of(&[&one, &two]).for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tool("one__slow");
    host.wait_tool("two__slow");
    let first = host.start_call("one__slow", "{}");
    let second = host.start_call("two__slow", "{}");
    one.wait_event("at go");
    two.wait_event("at go");
    host.cancel(&first);
    let end = one.wait_end("slow");
    if server == ServerKind::HttpModern {
        assert_eq!(
            end.entry["how"], "closed",
            "over modern HTTP a cancellation is a closed stream"
        );
        assert!(one.received("notifications/cancelled").is_empty());
    } else {
        let told = one.wait_received("notifications/cancelled");
        assert_eq!(
            told.value["params"]["requestId"],
            one.calls("slow")[0].value["id"]
        );
        assert_eq!(told.session, one.calls("slow")[0].session);
    }
    never("the other server hears of it", || {
        !two.ends().is_empty() || !two.received("notifications/cancelled").is_empty()
    });
    two.release("go");
    host.wait_answer(&second).result();
    assert!(host.answered(&first).is_none(), "a cancelled call got an answer");
    one.assert_clean();
    two.assert_clean();
}

crate::same_family!(cancellation, super::cancel);
crate::pairs!(cancellation_crossing, super::cancel, [
    http_to_modern_stdio: Http -> StdioModern,
    http_to_modern_http: Http -> HttpModern,
    modern_http_to_stdio: HttpModern -> StdioLegacy,
    modern_http_to_http: HttpModern -> HttpLegacy,
]);

/// Own token in its own type, own stream, in order, before the answer, and none for who gave no token.
fn progress(host: HostKind, server: ServerKind) {
    let fake = Fake::new("one", server).tool(
        "work",
        json!([{ "progress": 3 }, { "gate": "go" }, { "progress": 4 }]),
    );
    let daemon = Setup::of(&[&fake]).for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tool("one__work");
    let number = host.start_call_with("11", "one__work", r#"{"c":1}"#, r#""progressToken":7"#);
    let string = host.start_call_with("\"12\"", "one__work", r#"{"c":2}"#, r#""progressToken":"7""#);
    let silent = host.start_call_with("13", "one__work", r#"{"c":3}"#, "");
    for token in ["7", "\"7\""] {
        host.wait_count("progress before the gate", 3, |seen| {
            seen.method() == "notifications/progress"
                && seen.raw.contains(&format!("\"progressToken\":{token}"))
        });
    }
    fake.wait_events("at go", 3);
    fake.release("go");
    for call in [&number, &string, &silent] {
        host.wait_answer(call).result();
    }
    for (token, call) in [("7", &number), ("\"7\"", &string)] {
        let seen = host.progress(token);
        let values: Vec<u64> = seen
            .iter()
            .map(|seen| seen.value["params"]["progress"].as_u64().unwrap())
            .collect();
        assert_eq!(values, [1, 2, 3, 4, 5, 6, 7], "for token {token}");
        if !host.kind().own_process() {
            assert!(
                seen.iter().all(|seen| seen.stream == format!("post:{}", call.id)),
                "progress on a foreign stream"
            );
        }
        let all = host.messages();
        let answer = all
            .iter()
            .position(|seen| seen.value.get("result").is_some() && seen.member("id") == call.id)
            .unwrap();
        let last = all
            .iter()
            .rposition(|seen| seen.raw.contains(&format!("\"progressToken\":{token},")))
            .unwrap();
        assert!(last < answer, "progress after the answer");
    }
    assert_eq!(
        host.with_method("notifications/progress").len(),
        14,
        "progress that nobody asked for"
    );
    fake.assert_clean();
}

crate::same_family!(progress_of_calls, super::progress);
crate::pairs!(progress_crossing, super::progress, [
    http_to_modern_stdio: Http -> StdioModern,
    http_to_modern_http: Http -> HttpModern,
    modern_http_to_stdio: HttpModern -> StdioLegacy,
    modern_http_to_http: HttpModern -> HttpLegacy,
]);

/// A silent call ends at the idle limit; the caller learns who and why, the server is told.
fn idle(host: HostKind, server: ServerKind) {
    let fake = Fake::echo("one", server)
        .tool("stuck", json!([{ "gate": "never" }]))
        .tool(
            "busy",
            json!(
                (0..10)
                    .flat_map(|_| [json!({ "sleep_ms": 300 }), json!({ "progress": 1 })])
                    .collect::<Vec<_>>()
            ),
        );
    let daemon = Setup::new()
        .server(&fake, json!({ "idle_timeout": "1500ms", "max_timeout": "60s" }))
        .for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tool("one__stuck");
    let busy = host.start_call_with("70", "one__busy", "{}", r#""progressToken":"t""#);
    let stuck = host.start_call("one__stuck", "{}");
    let answer = host.wait_answer(&stuck);
    assert_eq!(
        answer.error()["data"]["manifold"]["server"],
        "one",
        "{}",
        answer.raw
    );
    fake.wait_end("stuck");
    // Three seconds of work under an idle limit of one and a half: progress resets it.
    host.wait_answer(&busy).result();
    host.call("one__echo", "{}").result();
}

crate::pairs!(idle_deadline, super::idle, [
    http_to_stdio: Http -> StdioLegacy,
    http_to_http: Http -> HttpLegacy,
    http_to_sse: Http -> Sse,
    stdio_to_stdio: Stdio -> StdioLegacy,
    modern_http_to_stdio: HttpModern -> StdioModern,
    modern_http_to_http: HttpModern -> HttpModern,
]);

/// Progress does not move the overall limit.
fn overall(host: HostKind, server: ServerKind) {
    let endless: Vec<_> = (0..200)
        .flat_map(|_| [json!({ "sleep_ms": 100 }), json!({ "progress": 1 })])
        .collect();
    let fake = Fake::echo("one", server).tool("endless", json!(endless));
    let daemon = Setup::new()
        .server(&fake, json!({ "idle_timeout": "1s", "max_timeout": "2s" }))
        .for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tool("one__endless");
    let started = std::time::Instant::now();
    let call = host.start_call_with("70", "one__endless", "{}", r#""progressToken":"t""#);
    let answer = host.wait_answer(&call);
    assert_eq!(
        answer.error()["data"]["manifold"]["server"],
        "one",
        "{}",
        answer.raw
    );
    assert!(
        started.elapsed().as_secs() < 15,
        "stopped far too late: {:?}",
        started.elapsed()
    );
    host.call("one__echo", "{}").result();
}

crate::pairs!(overall_deadline, super::overall, [
    http_to_stdio: Http -> StdioLegacy,
    modern_http_to_http: HttpModern -> HttpModern,
]);

/// An answer after the error is dropped: exactly one reaches the host.
#[test]
fn a_late_answer_is_dropped() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).tool("late", json!([{ "gate_deaf": "go" }]));
    let daemon = Setup::new()
        .server(&fake, json!({ "idle_timeout": "500ms" }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__late");
    let call = host.start_call("one__late", "{}");
    host.wait_answer(&call).error();
    fake.release("go");
    host.call("one__echo", "{}").result();
    let answers = host.matching(|seen| seen.answers(&call));
    assert_eq!(answers.len(), 1);
}

/// A cancellation of a call that waits in the queue means that it is never sent.
#[test]
fn cancelled_before_it_was_sent_is_never_sent() {
    let fake = Fake::new("one", ServerKind::StdioLegacy)
        .tool("slow", json!([{ "gate": "go" }]))
        .tool("next", json!([]));
    let daemon = Setup::new().server(&fake, json!({ "concurrency": 1 })).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__slow");
    let running = host.start_call("one__slow", "{}");
    fake.wait_event("at go");
    let waiting = host.start_call("one__next", r#"{"who":"cancelled"}"#);
    let last = host.start_call("one__next", r#"{"who":"last"}"#);
    never("a call over the limit is sent", || !fake.calls("next").is_empty());
    host.cancel(&waiting);
    std::thread::sleep(QUIET / 4);
    fake.release("go");
    host.wait_answer(&running).result();
    host.wait_answer(&last).result();
    assert_eq!(fake.calls("next").len(), 1, "the cancelled one was sent");
    assert!(fake.calls("next")[0].raw.contains("last"));
    assert!(host.answered(&waiting).is_none());
}

/// A tool failure stays a result; an error object keeps code, message and data.
#[test]
fn errors_pass_as_they_are() {
    let fake = Fake::new("one", ServerKind::StdioLegacy)
        .tool("fails", json!([{ "result": r#"{"content":[{"type":"text","text":"no"}],"isError":true,"x":1.10}"# }]))
        .tool("breaks", json!([{ "error": r#"{"code":-1234,"message":"b\u00e4d","data":{"retry":5.0,"n":18446744073709551617}}"# }]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__fails");
    assert_eq!(
        host.call("one__fails", "{}").member("result"),
        r#"{"content":[{"type":"text","text":"no"}],"isError":true,"x":1.10}"#
    );
    let error = host.call("one__breaks", "{}");
    assert_eq!(error.code(), -1234);
    assert!(
        error
            .raw
            .contains(r#""data":{"retry":5.0,"n":18446744073709551617}"#),
        "{}",
        error.raw
    );
}

/// An unknown name is the same answer as a denied one, and reaches nobody.
#[test]
fn an_unknown_name_reaches_nobody() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    for name in ["nothing", "one__nothing", "echo", "one_echo", "one__echo__", ""] {
        assert_eq!(host.call(name, "{}").code(), -32602, "{name:?}");
    }
    assert!(fake.received("tools/call").is_empty());
}

/// Prompts, resources, templates and completion reach their server under the original names.
fn other_kinds(host: HostKind, server: ServerKind) {
    let one = Fake::echo("one", server)
        .prompt("sum")
        .resource("file:///one.md")
        .template("db://{table}/{id}");
    let two = Fake::echo("two", server).prompt("sum").resource("file:///two.md");
    let daemon = Setup::of(&[&one, &two]).for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tool("two__echo");
    let prompts = crate::support::host::names(&host.list("prompts/list", "prompts"));
    assert_eq!(prompts, ["one__sum", "two__sum"]);
    let got = host.request("prompts/get", r#"{"name":"two__sum","arguments":{"topic":"x"}}"#);
    assert!(got.member("result").contains(r#"{"topic":"x"}"#), "{}", got.raw);
    assert_eq!(two.wait_received("prompts/get").value["params"]["name"], "sum");
    let read = host.request("resources/read", r#"{"uri":"file:///two.md"}"#);
    assert_eq!(read.result()["contents"][0]["text"], "two has file:///two.md");
    let read = host.request("resources/read", r#"{"uri":"db://users/7"}"#);
    assert_eq!(read.result()["contents"][0]["text"], "one has db://users/7");
    assert_eq!(
        host.list("resources/templates/list", "resourceTemplates").len(),
        1
    );
    let done = host.request(
        "completion/complete",
        r#"{"ref":{"type":"ref/prompt","name":"two__sum"},"argument":{"name":"topic","value":"t"}}"#,
    );
    assert_eq!(done.result()["completion"]["values"][0], "two");
    assert_eq!(
        two.wait_received("completion/complete").value["params"]["ref"]["name"],
        "sum"
    );
    let done = host.request(
        "completion/complete",
        r#"{"ref":{"type":"ref/resource","uri":"db://{table}/{id}"},"argument":{"name":"table","value":"t"}}"#,
    );
    assert_eq!(done.result()["completion"]["values"][0], "one");
    one.assert_clean();
    two.assert_clean();
}

crate::pairs!(prompts_and_resources, super::other_kinds, [
    http_to_stdio: Http -> StdioLegacy,
    http_to_http: Http -> HttpLegacy,
    http_to_sse: Http -> Sse,
    stdio_to_http: Stdio -> HttpLegacy,
    modern_http_to_stdio: HttpModern -> StdioModern,
    modern_http_to_http: HttpModern -> HttpModern,
    http_to_modern_http: Http -> HttpModern,
    modern_http_to_legacy_stdio: HttpModern -> StdioLegacy,
]);

/// A disconnect of a legacy HTTP host cancels nothing.
#[test]
fn a_lost_connection_of_a_legacy_host_cancels_nothing() {
    let fake =
        Fake::new("one", ServerKind::StdioLegacy).tool("slow", json!([{ "progress": 1 }, { "gate": "go" }]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::with(&daemon, HostKind::Http, Options::default());
    host.wait_tool("one__slow");
    let call = host.start_call_with("5", "one__slow", "{}", r#""progressToken":1"#);
    fake.wait_event("at go");
    host.wait_method("notifications/progress");
    host.close_stream(&call.id);
    never("the call is cancelled", || {
        !fake.ends().is_empty() || !fake.received("notifications/cancelled").is_empty()
    });
    fake.release("go");
}
