//! `traps.md`: where comparable gateways fail, each as a test on the built binary.
//! The file is long since the table of traps is read as one.

use serde_json::{Value, json};

use crate::support::host::names;
use crate::support::http;
use crate::support::{Daemon, Fake, Host, HostKind, LIMIT, Options, ServerKind, Setup, never, tool, until};

fn paged(host: HostKind, server: ServerKind) {
    let mut fake = Fake::new("one", server).set("page_size", json!(30));
    for number in 0..90 {
        fake = fake.tool(&format!("t{number:02}"), json!([]));
    }
    let daemon = Setup::of(&[&fake]).for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tools("all 90 of three pages", |names| names.len() == 90);
    let expected: Vec<String> = (0..90).map(|number| format!("one__t{number:02}")).collect();
    assert_eq!(host.tool_names(), expected, "in the order of the server");
    fake.assert_clean();
}

crate::pairs!(trap_01_every_page_is_read, super::paged, [
    stdio: Stdio -> StdioLegacy,
    http: Http -> HttpLegacy,
    sse: Http -> Sse,
    modern: HttpModern -> HttpModern,
]);

#[test]
fn trap_02_numbers_arrive_as_the_host_wrote_them() {
    let arguments = r#"{"a":9007199254740993,"b":18446744073709551617,"c":123456789012345678901234567890,"d":1e400,"e":1.10,"f":-0.0,"g":1E+2}"#;
    for server in [ServerKind::StdioLegacy, ServerKind::HttpLegacy, ServerKind::Sse] {
        let fake = Fake::echo("one", server);
        let daemon = Setup::of(&[&fake]).start();
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tool("one__echo");
        let seen = host.call("one__echo", arguments);
        assert!(
            fake.calls("echo")[0].raw.contains(arguments),
            "{server:?}: {}",
            fake.calls("echo")[0].raw
        );
        assert!(seen.raw.contains(arguments), "{server:?}: {}", seen.raw);
    }
}

const ODD_TOOL: &str = r#"{"name":"odd","title":"\u00c9t\u00e9 \/ x","execution":{"taskSupport":"optional"},"icons":[{"src":"https:\/\/x/i.png","sizes":["1x1"]}],"annotations":{"readOnlyHint":false,"vendorHint":null,"idempotentHint":false},"_meta":{"vendor":{"n":null,"a":[],"s":"","big":18446744073709551617}},"inputSchema":{"$schema":"x","type":"object","properties":{"z":{"maximum":1e400},"a":{"const":1.10}}},"zzz":1}"#;

#[test]
fn trap_03_unknown_members_stay_in_order_and_spelling() {
    let result = r#"{"unknown":{"b":1,"a":[1.0,1e2]},"content":[{"type":"text","text":"\u0041\/"}],"structuredContent":{"n":18446744073709551617},"isError":false,"_meta":{"v":null}}"#;
    let fake =
        Fake::new("one", ServerKind::StdioLegacy).raw_tool("odd", ODD_TOOL, json!([{ "result": result }]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__odd");
    assert_eq!(
        host.tools()[0],
        ODD_TOOL.replace(r#""name":"odd""#, r#""name":"one__odd""#)
    );
    assert_eq!(host.call("one__odd", "{}").member("result"), result);
}

#[test]
fn trap_04_a_cancellation_overtakes_a_full_queue() {
    let one = Fake::new("one", ServerKind::StdioLegacy).tool("slow", json!([{ "gate": "go" }]));
    let two = Fake::new("two", ServerKind::StdioLegacy).tool("slow", json!([{ "gate": "go" }]));
    let daemon = Setup::new()
        .server(&one, json!({ "concurrency": 4 }))
        .server(&two, json!({}))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__slow");
    host.wait_tool("two__slow");
    let calls: Vec<_> = (0..12)
        .map(|number| host.start_call("one__slow", &format!(r#"{{"n":{number}}}"#)))
        .collect();
    let other = host.start_call("two__slow", "{}");
    one.wait_events("at go", 4);
    two.wait_event("at go");
    // Which of the twelve run is not ours to say: cancel one that does.
    let running = one.calls("slow")[0].value["params"]["arguments"]["n"]
        .as_u64()
        .unwrap();
    let wire = one.calls("slow")[0].value["id"].clone();
    host.cancel(&calls[usize::try_from(running).unwrap()]);
    one.wait_end("slow");
    let told = one.received("notifications/cancelled");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].value["params"]["requestId"], wire);
    assert!(two.received("notifications/cancelled").is_empty());
    one.release("go");
    two.release("go");
    host.wait_answer(&other).result();
    for (number, call) in calls.iter().enumerate() {
        if number as u64 != running {
            host.wait_answer(call).result();
        }
    }
    one.assert_clean();
}

pub(crate) fn asking(name: &str, kind: ServerKind) -> Fake {
    let ask = json!([[
        "q",
        "elicitation/create",
        r#"{"message":"for @@TEXT@@","requestedSchema":{"type":"object","properties":{}}}"#
    ]]);
    Fake::echo(name, kind).tool("ask", json!([{ "ask": ask }, { "result": r#"{"content":[],"structuredContent":{"text":"@@TEXT@@","answers":@@ANSWERS@@}}"# }]))
}

fn each_its_own(host: HostKind, server: ServerKind) {
    let fake = asking("one", server);
    let daemon = Setup::of(&[&fake]).start();
    let hosts: Vec<Host> = (0..2)
        .map(|number| {
            let host = Host::with(&daemon, host, Options::asking());
            host.respond(move |seen| {
                let message = seen.value["params"]["message"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                Some(format!(
                    r#""result":{{"action":"accept","content":{{"who":{number},"asked":{}}}}}"#,
                    json!(message)
                ))
            });
            host.wait_tool("one__ask");
            host
        })
        .collect();
    let work = |number: usize| {
        let host = hosts[number].clone();
        std::thread::spawn(move || {
            host.call_answering("one__ask", &format!(r#"{{"text":"host{number}"}}"#), |_, ask| {
                json!({ "action": "accept", "content": { "who": number, "asked": ask["params"]["message"] } })
            })
        })
    };
    let running: Vec<_> = (0..2).map(work).collect();
    for (number, thread) in running.into_iter().enumerate() {
        let seen = thread.join().unwrap();
        let answer = &seen.result()["structuredContent"];
        assert_eq!(answer["text"], format!("host{number}"));
        assert_eq!(
            answer["answers"]["q"]["content"]["who"], number,
            "another host answered: {}",
            seen.raw
        );
        assert!(
            answer["answers"]["q"]["content"]["asked"]
                .as_str()
                .unwrap()
                .contains(&format!("host{number}")),
            "{}",
            seen.raw
        );
    }
    fake.assert_clean();
}

crate::pairs!(trap_05_each_host_answers_its_own_question, super::each_its_own, [
    legacy_to_stdio: Http -> StdioLegacy,
    legacy_to_http: Http -> HttpLegacy,
    legacy_to_sse: Http -> Sse,
    modern_to_stdio: HttpModern -> StdioModern,
    modern_to_http: HttpModern -> HttpModern,
]);

#[test]
fn trap_06_progress_of_a_stdio_tool_arrives_without_a_get_stream() {
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool(
        "work",
        json!([{ "progress": 2 }, { "gate": "go" }, { "progress": 2 }]),
    );
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::with(
        &daemon,
        HostKind::Http,
        Options {
            get_stream: false,
            ..Options::default()
        },
    );
    host.wait_tool("one__work");
    let call = host.start_call_with("9", "one__work", "{}", r#""progressToken":"p""#);
    host.wait_count("progress while the call runs", 2, |seen| {
        seen.stream == "post:9" && seen.method() == "notifications/progress"
    });
    fake.release("go");
    host.wait_answer(&call).result();
    assert_eq!(host.progress("\"p\"").len(), 4);
}

#[test]
fn trap_07_a_stalled_get_stream_holds_up_nothing() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::with(
        &daemon,
        HostKind::Http,
        Options {
            get_stream: false,
            ..Options::default()
        },
    );
    host.wait_tool("one__echo");
    let session = host.session().unwrap();
    // Opened and never read.
    let stalled = http::get(
        &daemon.address(),
        "/mcp",
        &[("accept", "text/event-stream"), ("mcp-session-id", &session)],
    );
    assert_eq!(stalled.status, 200);
    let before = memory(&daemon);
    let log = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"error","data":"{}"}}}}"#,
        "x".repeat(8000)
    );
    for _ in 0..25 {
        fake.perform(json!(vec![json!({ "outside": log }); 200]));
        host.call("one__echo", "{}").result();
    }
    let grown = memory(&daemon).saturating_sub(before);
    assert!(
        grown < 30_000,
        "40 MB of notices made the daemon grow by {grown} kB"
    );
    drop(stalled);
}

/// Resident memory in kB.
pub(crate) fn memory(daemon: &Daemon) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.process().pid)).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .unwrap()
}

fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.process().pid))
        .unwrap()
        .count()
}

#[test]
fn trap_08_a_tools_only_server_beside_a_prompts_server() {
    let tools = Fake::echo("tools", ServerKind::StdioLegacy).set("capabilities", json!(r#"{"tools":{}}"#));
    let prompts = Fake::new("prompts", ServerKind::StdioLegacy)
        .prompt("hello")
        .set("capabilities", json!(r#"{"prompts":{}}"#));
    let daemon = Setup::of(&[&tools, &prompts]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("tools__echo");
    let listed = until("the prompt is listed", || {
        let listed = names(&host.list("prompts/list", "prompts"));
        (!listed.is_empty()).then_some(listed)
    });
    assert_eq!(listed, ["prompts__hello"]);
    assert!(host.list("resources/list", "resources").is_empty());
    assert!(
        tools.received("prompts/list").is_empty(),
        "a server that offers no prompts was asked for them"
    );
    assert!(
        prompts.received("tools/list").is_empty(),
        "a server that offers no tools was asked for them"
    );
}

#[test]
fn trap_09_a_crash_in_mid_call() {
    let one = Fake::echo("one", ServerKind::StdioLegacy).tool("crash", json!([{ "gate": "go" }, "abort"]));
    let two = Fake::new("two", ServerKind::StdioLegacy).tool("slow", json!([{ "gate": "go" }]));
    let daemon = Setup::of(&[&one, &two]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__crash");
    host.wait_tool("two__slow");
    let call = host.start_call("one__crash", "{}");
    let other = host.start_call("two__slow", "{}");
    one.wait_event("at go");
    two.wait_event("at go");
    let started = std::time::Instant::now();
    let processes = two.pids().len();
    one.release("go");
    let error = host.wait_answer(&call);
    assert!(started.elapsed() < LIMIT / 3, "told at once, not by a deadline");
    let data = &error.error()["data"]["manifold"];
    assert_eq!(data["server"], "one", "{}", error.raw);
    assert_eq!(data["side"], "downstream", "{}", error.raw);
    host.call("one__echo", r#"{"after":1}"#).result();
    two.release("go");
    host.wait_answer(&other).result();
    assert_eq!(two.pids().len(), processes, "nobody else notices");
    assert!(two.ends().is_empty());
    assert_eq!(host.tool_names(), ["one__echo", "one__crash", "two__slow"]);
}

#[test]
fn trap_10_a_second_server_changes_no_name() {
    let one = Fake::echo("one", ServerKind::StdioLegacy).tool(
        "long_name_that_says_a_lot_about_what_the_tool_really_does",
        json!([]),
    );
    let two = Fake::echo("two", ServerKind::StdioLegacy).tool(
        "long_name_that_says_a_lot_about_what_the_tool_really_does",
        json!([]),
    );
    let daemon = Setup::of(&[&one]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    let before = host.wait_tools("both tools", |names| names.len() == 2);
    daemon.reconfigure(|setup| setup.server(&two, json!({})));
    let after = host.wait_tools("all four", |names| names.len() == 4);
    assert_eq!(after[..2], before[..], "existing names changed");
    for name in &before {
        host.call(name, "{}").result();
    }
    assert_eq!(one.received("tools/call").len(), 2);
}

#[test]
fn trap_12_denied_outright_is_hidden_and_not_callable() {
    let one = Fake::echo("one", ServerKind::StdioLegacy).tool("delete", json!([]));
    let two = Fake::echo("two", ServerKind::StdioLegacy).tool("delete", json!([]));
    let policy = json!({ "default": "allow", "rules": [{ "id": "no-delete", "effect": "deny", "tools": ["one/delete"] }] });
    let daemon = Setup::of(&[&one, &two]).set("policy", policy).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("two__delete");
    host.wait_tool("one__echo");
    assert_eq!(host.tool_names(), ["one__echo", "two__echo", "two__delete"]);
    let denied = host.call("one__delete", "{}");
    let unknown = host.call("one__nothing", "{}");
    assert_eq!(denied.error()["code"], unknown.error()["code"]);
    assert_eq!(
        denied.error()["message"]
            .as_str()
            .unwrap()
            .replace("one__delete", "X"),
        unknown.error()["message"]
            .as_str()
            .unwrap()
            .replace("one__nothing", "X"),
        "a denial tells that the tool exists"
    );
    host.call("two__delete", "{}").result();
    assert!(one.calls("delete").is_empty());
    daemon.wait_audit("the denial", |record| record.to_string().contains("no-delete"));
}

#[test]
fn trap_13_structured_content_with_empty_content() {
    let result = r#"{"content":[],"structuredContent":{"a":[],"b":{}}}"#;
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool("s", json!([{ "result": result }]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__s");
    assert_eq!(host.call("one__s", "{}").member("result"), result);
}

#[test]
fn trap_14_abandoned_sessions_leave_nothing() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let probe = Host::connect(&daemon, HostKind::Http);
    probe.wait_tool("one__echo");
    let round = |count: usize| {
        for _ in 0..count {
            let host = Host::with(
                &daemon,
                HostKind::Http,
                Options {
                    silent: true,
                    ..Options::default()
                },
            );
            // Past the cap for one caller, a clear refusal.
            if host.initialize().value.get("result").is_some() {
                host.notify("notifications/initialized", "");
                host.open_get(None);
                host.tools();
            }
            // Dropped: sockets closed, no DELETE.
        }
    };
    round(50);
    let (children, files, kilobytes) = (daemon.children().len(), descriptors(&daemon), memory(&daemon));
    round(300);
    until("descriptors return to the baseline", || {
        (descriptors(&daemon) <= files + 10).then_some(())
    });
    assert!(
        daemon.children().len() <= children,
        "children: {children} before, {} after",
        daemon.children().len()
    );
    let grown = memory(&daemon).saturating_sub(kilobytes);
    assert!(grown < 16 * 1024, "300 abandoned sessions hold {grown} kB");
    probe.call("one__echo", "{}").result();
    assert!(fake.pids().len() <= 2, "a session that only lists starts nothing");
}

#[test]
fn trap_16_an_answer_from_another_session_is_rejected() {
    let fake = asking("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let victim = Host::with(&daemon, HostKind::Http, Options::asking());
    let thief = Host::with(&daemon, HostKind::Http, Options::asking());
    victim.wait_tool("one__ask");
    let call = victim.start_call("one__ask", r#"{"text":"mine"}"#);
    let question = victim.wait_method("elicitation/create");
    let id = question.member("id");
    for forged in [id.as_str(), "1", "\"1\"", "999999", "\"made up\"", "0", "-1"] {
        thief.answer_id(
            forged,
            r#""result":{"action":"accept","content":{"who":"thief"}}"#,
        );
    }
    victim.answer_id(
        "424242",
        r#""result":{"action":"accept","content":{"who":"invented"}}"#,
    );
    never("a forged answer ends the call", || {
        victim.answered(&call).is_some()
    });
    assert!(fake.records().iter().all(|entry| entry.kind != "ask_answer"));
    victim.answer(
        &question,
        r#""result":{"action":"accept","content":{"who":"victim"}}"#,
    );
    let answer = victim.wait_answer(&call);
    assert_eq!(
        answer.result()["structuredContent"]["answers"]["q"]["content"]["who"],
        "victim"
    );
    // A second answer to the same question is taken in silence and goes nowhere.
    victim.answer(&question, r#""result":{"action":"decline"}"#);
    victim.call("one__echo", "{}").result();
    fake.assert_clean();
}

#[test]
fn trap_18_a_list_with_a_cursor_ends() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .prompt("p")
        .resource("file:///r")
        .template("db://{x}");
    let daemon = Setup::of(&[&fake]).start();
    for kind in [HostKind::Http, HostKind::HttpModern] {
        let host = Host::connect(&daemon, kind);
        host.wait_tool("one__echo");
        for (method, key) in [
            ("tools/list", "tools"),
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ] {
            for cursor in ["", "bogus", "page-1", "0", "AAAA"] {
                let answer = host.request(method, &format!(r#"{{"cursor":{}}}"#, json!(cursor)));
                assert_eq!(
                    answer.code(),
                    -32602,
                    "{kind:?} {method} {cursor:?}: {}",
                    answer.raw
                );
            }
            assert_eq!(host.list(method, key).len(), 1, "{kind:?} {method}");
        }
    }
    fake.assert_clean();
}

#[test]
fn trap_19_a_name_that_is_too_long() {
    let longs: Vec<String> = ["a", "b"]
        .iter()
        .map(|end| format!("{}_{end}", "very_long_tool_name".repeat(4)))
        .collect();
    let fake = longs
        .iter()
        .fold(Fake::echo("service", ServerKind::StdioLegacy), |fake, name| {
            fake.tool(name, json!([]))
        });
    let mut daemon = Setup::of(&[&fake]).start();
    let listed = Host::connect(&daemon, HostKind::Http).wait_tools("three", |names| names.len() == 3);
    for name in &listed {
        assert!(
            name.len() <= 48
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)),
            "{name}"
        );
    }
    assert_eq!(listed[0], "service__echo", "short ones stay untouched");
    assert_ne!(listed[1], listed[2]);
    daemon.restart();
    let host = Host::connect(&daemon, HostKind::Http);
    assert_eq!(
        host.wait_tools("three", |names| names.len() == 3),
        listed,
        "stable over restarts"
    );
    for (public, local) in listed[1..].iter().zip(&longs) {
        host.call(public, "{}").result();
        assert_eq!(fake.calls(local).len(), 1, "{public} reaches {local}");
    }
}

#[test]
fn trap_20_a_host_without_the_session_header() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let modern = Host::connect(&daemon, HostKind::HttpModern);
    modern.wait_tool("one__echo");
    modern.call("one__echo", "{}").result();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    for headers in [
        vec![http::BOTH, http::JSON],
        vec![http::BOTH, http::JSON, ("mcp-protocol-version", "2025-06-18")],
    ] {
        let mut exchange = http::post(&daemon.address(), &headers, body);
        assert_eq!(exchange.status, 400);
        let answer = exchange.json();
        assert!(
            answer["error"]["message"]
                .as_str()
                .is_some_and(|text| text.len() > 10),
            "{answer}"
        );
    }
}

#[test]
fn trap_21_a_closed_modern_stream_cancels_on_a_stdio_child() {
    for server in [ServerKind::StdioLegacy, ServerKind::StdioModern] {
        let fake = Fake::echo("one", server).tool("slow", json!([{ "progress": 1 }, { "gate": "go" }]));
        let daemon = Setup::of(&[&fake]).start();
        let host = Host::connect(&daemon, HostKind::HttpModern);
        host.wait_tool("one__slow");
        // Once before any byte of the answer was sent, once in mid-stream.
        let quiet = host.start_call_with("1000", "one__slow", r#"{"which":"quiet"}"#, "");
        let speaking = host.start_call_with(
            "1001",
            "one__slow",
            r#"{"which":"speaking"}"#,
            r#""progressToken":1"#,
        );
        fake.wait_events("at go", 2);
        host.wait_method("notifications/progress");
        host.close_stream(&quiet.id);
        host.close_stream(&speaking.id);
        let told = until("both are cancelled", || {
            let told = fake.received("notifications/cancelled");
            (told.len() >= 2).then_some(told)
        });
        let mut cancelled: Vec<Value> = told
            .iter()
            .map(|told| told.value["params"]["requestId"].clone())
            .collect();
        let mut called: Vec<Value> = fake
            .calls("slow")
            .iter()
            .map(|call| call.value["id"].clone())
            .collect();
        cancelled.sort_by_key(Value::to_string);
        called.sort_by_key(Value::to_string);
        assert_eq!(cancelled, called, "{server:?}");
        host.call("one__echo", "{}").result();
        fake.assert_clean();
    }
}

#[test]
fn trap_22_the_same_id_and_token_by_many_hosts() {
    let steps = json!([{ "progress": 2 }, { "result": r#"{"content":[],"structuredContent":{"secret":"@@TEXT@@"}}"# }]);
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool("work", steps);
    let daemon = Setup::of(&[&fake]).start();
    let hosts: Vec<Host> = (0..16)
        .map(|number| {
            Host::connect(
                &daemon,
                if number % 2 == 0 {
                    HostKind::Http
                } else {
                    HostKind::HttpModern
                },
            )
        })
        .collect();
    hosts[0].wait_tool("one__work");
    let calls: Vec<_> = hosts
        .iter()
        .enumerate()
        .map(|(number, host)| {
            host.start_call_with(
                "77",
                "one__work",
                &format!(r#"{{"text":"secret-{number}"}}"#),
                r#""progressToken":"same""#,
            )
        })
        .collect();
    for (number, (host, call)) in hosts.iter().zip(&calls).enumerate() {
        let answer = host.wait_answer(call);
        assert_eq!(
            answer.result()["structuredContent"]["secret"],
            format!("secret-{number}")
        );
    }
    for (number, host) in hosts.iter().enumerate() {
        assert_eq!(host.progress("\"same\"").len(), 2, "host {number}");
        assert!(host.messages().iter().all(|seen| !seen.raw.contains("secret-") || seen.raw.contains(&format!("secret-{number}\""))));
    }
    fake.assert_clean();
}

#[test]
fn trap_24_names_that_only_look_alike() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).item("tools", tool("delete", json!([])));
    let policy =
        json!({ "default": "allow", "rules": [{ "id": "no", "effect": "deny", "tools": ["one/delete"] }] });
    let daemon = Setup::of(&[&fake]).set("policy", policy).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let rest = r#""arguments":{}"#;
    for name in [
        "one__Delete",
        "ONE__DELETE",
        "one__delete ",
        " one__delete",
        "one__delete%20",
        "one%5F%5Fdelete",
        "one__d\u{435}lete",
        "one__delete\u{0}",
        "one__delete\n",
        "one_\u{200b}_delete",
    ] {
        let call = host.send("tools/call", &format!(r#"{{"name":{},{rest}}}"#, json!(name)));
        assert_eq!(host.wait_answer(&call).code(), -32602, "{name:?}");
    }
    // An escape in the name is the same name: still the real one, still denied.
    let call = host.send("tools/call", &format!(r#"{{"name":"one__\u0064elete",{rest}}}"#));
    assert_eq!(host.wait_answer(&call).code(), -32602);
    let call = host.send("tools/call", &format!(r#"{{"n\u0061me":"one__delete",{rest}}}"#));
    host.wait_answer(&call).error();
    assert!(fake.received("tools/call").is_empty());
    let call = host.send("tools/call", &format!(r#"{{"name":"one__\u0065cho",{rest}}}"#));
    host.wait_answer(&call).result();
    assert_eq!(fake.calls("echo").len(), 1);
}
