//! `host-habits.md`: what real hosts were seen doing, each with a scripted host that behaves so.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http;
use crate::support::{Daemon, Fake, Host, HostKind, Options, ServerKind, Setup, never, until};

/// Only the file: the host starts its own process.
fn prepared() -> (Fake, Daemon) {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).tool("slow", json!([{ "gate": "go" }]));
    let daemon = Setup::of(&[&fake]).prepare();
    (fake, daemon)
}

fn rig() -> (Fake, Daemon) {
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .tool("slow", json!([{ "gate": "go" }]))
        .tool("work", json!([{ "progress": 8 }]))
        .prompt("p")
        .resource("file:///r");
    let daemon = Setup::of(&[&fake]).start();
    (fake, daemon)
}

/// Claude Code: discover on the same pipe, then a listen whose id is a string beside numbers, then lists and calls.
#[test]
fn habit_claude_code_discovers_and_listens_on_one_pipe() {
    let fake = Fake::echo("one", ServerKind::StdioModern);
    let daemon = Setup::of(&[&fake]).prepare();
    let host = Host::connect(&daemon, HostKind::StdioModern);
    let first = host.send_with("0", "server/discover", "", "");
    let found = host.wait_answer(&first);
    assert!(
        found.result()["supportedVersions"]
            .as_array()
            .unwrap()
            .contains(&json!("2026-07-28")),
        "{}",
        found.raw
    );
    let listen = host.send_with(
        "\"listen:0\"",
        "subscriptions/listen",
        r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}"#,
        "",
    );
    let ack = host.wait_method("notifications/subscriptions/acknowledged");
    assert_eq!(
        ack.value["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "listen:0",
        "{}",
        ack.raw
    );
    host.request("server/discover", "").result();
    host.wait_tool("one__echo");
    let call = host.start_call_with(
        "902",
        "one__echo",
        r#"{"x":1}"#,
        r#""progressToken":2,"claudecode/toolUseId":"toolu_1""#,
    );
    host.wait_answer(&call).result();
    assert_eq!(
        fake.calls("echo")[0].value["params"]["_meta"]["claudecode/toolUseId"],
        "toolu_1"
    );
    fake.perform(json!([{ "disable": "echo" }, { "list_changed": ["tools", 1] }]));
    let note = host.wait_method("notifications/tools/list_changed");
    assert_eq!(
        note.value["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "listen:0",
        "{}",
        note.raw
    );
    assert!(host.answered(&listen).is_none());
    fake.assert_clean();
}

/// Claude Code over HTTP: a modern listen stream with the acknowledgement first.
#[test]
fn habit_claude_code_listens_over_http() {
    let fake = Fake::echo("one", ServerKind::HttpModern);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::HttpModern);
    host.wait_tool("one__echo");
    host.send_with(
        "\"listen:0\"",
        "subscriptions/listen",
        r#"{"notifications":{"toolsListChanged":true}}"#,
        "",
    );
    host.wait_method("notifications/subscriptions/acknowledged");
    fake.perform(json!([{ "disable": "echo" }, { "list_changed": ["tools", 3] }]));
    let note = host.wait_method("notifications/tools/list_changed");
    assert_eq!(note.stream, "post:\"listen:0\"");
    assert_eq!(
        note.value["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "listen:0"
    );
    never("a burst is more than one notice", || {
        host.with_method("notifications/tools/list_changed").len() > 1
    });
    let first = host.matching(|seen| seen.stream == "post:\"listen:0\"").remove(0);
    assert_eq!(first.method(), "notifications/subscriptions/acknowledged");
}

/// Claude Code falls back on the same process: an error to its probe, then `initialize`.
#[test]
fn habit_claude_code_may_fall_back_on_the_same_process() {
    let (_fake, daemon) = rig();
    let host = Host::with(
        &daemon,
        HostKind::Stdio,
        Options {
            silent: true,
            ..Options::default()
        },
    );
    let probe = host.send_with("\"probe\"", "server/discover", "{}", "");
    assert_eq!(host.wait_answer(&probe).code(), -32602, "discover without _meta");
    host.initialize().result();
    host.notify("notifications/initialized", "");
    host.wait_tool("one__echo");
    // And the other family at the same time.
    let text = r#"{"jsonrpc":"2.0","id":900,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    host.send_text(text, "900");
    let seen = host.wait("the modern list", |seen| seen.value["id"] == json!(900));
    assert_eq!(seen.result()["resultType"], "complete");
}

/// Claude Code ends a server with SIGINT.
#[test]
fn habit_claude_code_ends_with_sigint() {
    let (fake, daemon) = prepared();
    let host = Host::connect(&daemon, HostKind::Stdio);
    host.wait_tool("one__echo");
    host.process().signal(rustix::process::Signal::INT);
    host.process().wait_exit("SIGINT ends it");
    for pid in fake.pids() {
        until("the child is gone", || {
            (!crate::support::process::alive(pid)).then_some(())
        });
    }
}

/// Codex: a bare GET, then the well-known paths, all before anything else.
#[test]
fn habit_codex_probes_first() {
    let (_fake, daemon) = rig();
    let bare = http::get(
        &daemon.address(),
        "/mcp",
        &[("accept", "*/*"), ("mcp-protocol-version", "2024-11-05")],
    );
    assert!(
        (400..500).contains(&bare.status),
        "a bare GET gets an error, not a stream: {}",
        bare.status
    );
    assert!(!bare.is_stream());
    for path in [
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration/mcp",
        "/.well-known/openid-configuration",
        "/mcp/.well-known/openid-configuration",
        "/mcp/.well-known/oauth-authorization-server",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        let got = http::get(
            &daemon.address(),
            path,
            &[("accept", "*/*"), ("mcp-protocol-version", "2024-11-05")],
        );
        assert_eq!(got.status, 404, "{path}");
    }
    let host = Host::with(
        &daemon,
        HostKind::Http,
        Options {
            capabilities: r#"{"elicitation":{"form":{},"url":{}}}"#.into(),
            ..Options::version("2025-06-18")
        },
    );
    let list = host.send_with("1000", "tools/list", "", r#""progressToken":1"#);
    host.wait_answer(&list).result();
    host.wait_tool("one__echo");
    let meta = format!(
        r#""progressToken":2,"x-codex-turn-metadata":"{}""#,
        "m".repeat(600)
    );
    let call = host.start_call_with("1001", "one__echo", "{}", &meta);
    host.wait_answer(&call).result();
    assert!([200, 202, 204].contains(&host.end().unwrap()));
}

/// Codex does not wait: a cold list is answered within a second from the records of the last run.
#[test]
fn habit_codex_leaves_after_a_second() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).prepare();
    {
        let host = Host::connect(&daemon, HostKind::Stdio);
        host.wait_tool("one__echo");
        host.end();
        host.process().wait_exit("the end of stdin ends it");
    }
    // The next start of the server never gets ready.
    fake.change("start", json!([{ "gate": "ready" }]));
    fake.command();
    let host = Host::with(
        &daemon,
        HostKind::Stdio,
        Options {
            silent: true,
            ..Options::default()
        },
    );
    let started = Instant::now();
    host.initialize().result();
    host.notify("notifications/initialized", "");
    let names = host.tool_names();
    assert_eq!(names, ["one__echo"], "from the records");
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "a recorded list waits for nobody: {:?}",
        started.elapsed()
    );
    // A call waits for the start.
    let call = host.start_call("one__echo", "{}");
    fake.release("ready");
    host.wait_answer(&call).result();
}

/// Codex is gone in 30 ms: SIGTERM and a closed stdin at once.
#[test]
fn habit_codex_goes_quickly() {
    let (fake, daemon) = prepared();
    let host = Host::connect(&daemon, HostKind::Stdio);
    host.wait_tool("one__slow");
    host.start_call("one__slow", "{}");
    fake.wait_event("at go");
    host.end();
    host.process().signal(rustix::process::Signal::TERM);
    host.process().wait_exit("it ends");
    for pid in fake.pids() {
        until("the child is gone", || {
            (!crate::support::process::alive(pid)).then_some(())
        });
    }
}

/// opencode cancels every call after its answer; the id may be used for anything later.
#[test]
fn habit_opencode_cancels_after_the_answer() {
    let (fake, daemon) = rig();
    for kind in [HostKind::Http, HostKind::Stdio] {
        let before = fake.received("notifications/cancelled").len();
        let host = Host::with(&daemon, kind, Options::capabilities(r#"{"roots":{}}"#));
        host.wait_tool("one__echo");
        for round in 0..5 {
            let call = host.start_call_with(
                "7",
                "one__echo",
                &format!(r#"{{"round":{round}}}"#),
                r#""progressToken":7"#,
            );
            until("the answer", || {
                (host
                    .matching(|seen| seen.value.get("result").is_some() && seen.member("id") == "7")
                    .len()
                    > round)
                    .then_some(())
            });
            host.notify(
                "notifications/cancelled",
                &format!(
                    r#"{{"requestId":{},"reason":"AbortError: The operation was aborted."}}"#,
                    call.id
                ),
            );
        }
        host.notify("notifications/cancelled", r#"{"requestId":"never used"}"#);
        host.notify("notifications/cancelled", "{}");
        host.call("one__echo", "{}").result();
        assert_eq!(
            fake.received("notifications/cancelled").len(),
            before,
            "{kind:?}: a cancel for a finished call reached the server"
        );
    }
    fake.assert_clean();
}

/// opencode signals the children itself: the child is restarted for the next call.
#[test]
fn habit_opencode_signals_the_children() {
    let (fake, daemon) = rig();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    host.call("one__echo", "{}").result();
    for pid in fake.pids() {
        crate::support::process::signal_pid(pid, rustix::process::Signal::TERM);
        until("the child is gone", || {
            (!crate::support::process::alive(pid)).then_some(())
        });
    }
    // A call that met the dying pipe may fail, clearly; the next one works.
    let met = host.call("one__echo", "{}");
    assert!(
        met.value.get("result").is_some() || met.error()["data"]["manifold"]["server"] == "one",
        "{}",
        met.raw
    );
    host.call("one__echo", "{}").result();
    assert_eq!(host.tool_names(), ["one__echo", "one__slow", "one__work"]);
}

/// Gemini reopens streams that ended: only that stream, nothing after its answer.
#[test]
fn habit_gemini_resumes_streams_that_ended() {
    let (_fake, daemon) = rig();
    let host = Host::with(
        &daemon,
        HostKind::Http,
        Options {
            capabilities: r#"{"roots":{}}"#.into(),
            ..Options::version("2025-06-18")
        },
    );
    host.wait_tool("one__work");
    let mut last = Vec::new();
    for round in 0..3 {
        let id = format!("{}", 40 + round);
        let call = host.start_call_with(
            &id,
            "one__work",
            "{}",
            &format!(r#""progressToken":"0b54-{round}""#),
        );
        let answer = host.wait_answer(&call);
        last.push(answer.event_id.clone());
    }
    let session = host.session().unwrap();
    for id in last.into_iter().flatten() {
        let mut again = http::get(
            &daemon.address(),
            "/mcp",
            &[
                ("accept", "text/event-stream"),
                ("mcp-session-id", &session),
                ("last-event-id", &id),
                ("mcp-protocol-version", "2025-06-18"),
            ],
        );
        if again.status == 200 {
            // It ends by itself and brings nothing old.
            let text = again.text();
            assert!(!text.contains("\"jsonrpc\""), "replayed after the answer: {text}");
        }
    }
    host.call("one__echo", "{}").result();
}

/// Gemini answers a repeated reverse request again: taken in silence.
#[test]
fn habit_gemini_answers_twice() {
    let fake = super::traps::asking("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::with(&daemon, HostKind::Http, Options::asking());
    host.wait_tool("one__ask");
    let call = host.start_call("one__ask", r#"{"text":"x"}"#);
    let question = host.wait_method("elicitation/create");
    for _ in 0..3 {
        host.answer(&question, r#""result":{"action":"accept","content":{}}"#);
    }
    host.wait_answer(&call).result();
    host.answer(&question, r#""result":{"action":"accept","content":{}}"#);
    host.call("one__echo", "{}").result();
    assert!(
        host.messages()
            .iter()
            .all(|seen| seen.value.get("error").is_none()),
        "the repeated answer was refused aloud"
    );
    fake.assert_clean();
}

/// The Inspector: `logging/setLevel debug` before anything else, and extensions in a legacy handshake.
#[test]
fn habit_inspector_sets_the_level_first() {
    let (fake, daemon) = rig();
    let capabilities = r#"{"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/skills":{}}}"#;
    let host = Host::with(&daemon, HostKind::Stdio, Options::capabilities(capabilities));
    host.request("logging/setLevel", r#"{"level":"debug"}"#).result();
    host.wait_tool("one__echo");
    host.tools();
    host.call("one__echo", "{}").result();
    fake.assert_clean();
}

/// Early requests are answered whatever the order, and a host that never says `initialized` is served.
#[test]
fn habit_hosts_are_careless_about_initialized() {
    let (fake, daemon) = rig();
    for kind in [HostKind::Http, HostKind::Stdio] {
        let host = Host::with(
            &daemon,
            kind,
            Options {
                silent: true,
                ..Options::default()
            },
        );
        host.initialize().result();
        host.request("logging/setLevel", r#"{"level":"info"}"#).result();
        host.request("ping", "").result();
        host.wait_tool("one__echo");
        host.call("one__echo", "{}").result();
    }
    fake.assert_clean();
}

/// TypeScript: the last progress and the answer are separate writes, or progress is lost inside the client.
#[test]
fn habit_typescript_loses_progress_that_shares_a_read_with_the_answer() {
    let (_fake, daemon) = rig();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__work");
    let call = host.start_call_with("60", "one__work", "{}", r#""progressToken":60"#);
    host.wait_answer(&call).result();
    assert_eq!(host.progress("60").len(), 8);
}

/// Python 2.3: an event over 1 MiB is refused, so a large result is a plain JSON body.
#[test]
fn habit_python_refuses_large_events() {
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool("big", json!([{ "big": 3_000_000 }]));
    let daemon = Setup::of(&[&fake]).start();
    for kind in [HostKind::Http, HostKind::HttpModern] {
        let host = Host::connect(&daemon, kind);
        host.wait_tool("one__big");
        let call = host.start_call("one__big", "{}");
        let answer = host.wait_answer(&call);
        assert_eq!(answer.text().len(), 3_000_000);
        assert_eq!(answer.event_id, None, "{kind:?}: a plain body, not an event");
    }
}

/// rmcp asks for 2026-07-28 in a legacy handshake.
#[test]
fn habit_rmcp_asks_for_the_modern_revision_in_initialize() {
    let (_fake, daemon) = rig();
    for kind in [HostKind::Http, HostKind::Stdio] {
        let host = Host::with(
            &daemon,
            kind,
            Options {
                silent: true,
                ..Options::version("2026-07-28")
            },
        );
        assert_eq!(
            host.initialize().result()["protocolVersion"],
            "2025-11-25",
            "{kind:?}"
        );
    }
}

/// String and number ids side by side, also the same text.
#[test]
fn habit_ids_of_both_types_side_by_side() {
    let (fake, daemon) = rig();
    for kind in [HostKind::Stdio, HostKind::Http] {
        let host = Host::connect(&daemon, kind);
        host.wait_tool("one__slow");
        let calls: Vec<_> = [
            "501",
            "\"501\"",
            "\"\"",
            "\"a b\\u00e9\"",
            "-3",
            "9007199254740993",
        ]
        .iter()
        .map(|id| host.start_call_with(id, "one__echo", &format!(r#"{{"id":{id}}}"#), ""))
        .collect();
        for call in &calls {
            let answer = host.wait_answer(call);
            assert_eq!(answer.member("id"), call.id, "the id comes back as written");
            assert!(
                answer.raw.contains(&format!(r#"{{"id":{}}}"#, call.id)),
                "{}",
                answer.raw
            );
        }
    }
    fake.assert_clean();
}

/// Servers that offer tools by the capabilities of their client: a legacy host sees what one like it is offered.
#[test]
fn habit_servers_offer_tools_by_capability() {
    let with_roots = json!({ "key": "roots", "raw": r#"{"name":"roots","inputSchema":{"type":"object"}}"#, "needs": "roots" });
    let with_sampling = json!({ "key": "sample", "raw": r#"{"name":"sample","inputSchema":{"type":"object"}}"#, "needs": "sampling" });
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .item("tools", with_roots)
        .item("tools", with_sampling);
    let daemon = Setup::of(&[&fake]).start();
    let plain = Host::connect(&daemon, HostKind::Http);
    plain.wait_tool("one__echo");
    let roots = Host::with(&daemon, HostKind::Http, Options::capabilities(r#"{"roots":{}}"#));
    roots.wait_tool("one__roots");
    assert_eq!(roots.tool_names(), ["one__echo", "one__roots"]);
    assert_eq!(plain.tool_names(), ["one__echo"]);
    let both = Host::with(
        &daemon,
        HostKind::Http,
        Options::capabilities(r#"{"roots":{},"sampling":{}}"#),
    );
    both.wait_tool("one__sample");
    let call = roots.call("one__roots", "{}");
    call.result();
    let caller = fake.calls("roots").pop().unwrap();
    let opened = fake
        .records()
        .into_iter()
        .find(|entry| entry.session == caller.session && entry.method() == "initialize")
        .unwrap();
    assert!(
        opened.value["params"]["capabilities"]["roots"].is_object(),
        "the call goes to a connection that declared roots"
    );
}

/// A server that registers tools after `initialized`: what comes late is listed after its notice.
#[test]
fn habit_everything_registers_late() {
    let late =
        json!({ "key": "late", "raw": r#"{"name":"late","inputSchema":{"type":"object"}}"#, "hidden": true });
    let fake = Fake::echo("one", ServerKind::StdioLegacy).item("tools", late).on(
        "notifications/initialized",
        json!([{ "sleep_ms": 200 }, { "enable": "late" }, { "list_changed": ["tools", 1] }]),
    );
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__late");
    host.call("one__late", "{}").result();
}

/// The list a host sees first is complete although the server needs a second to start.
#[test]
fn habit_servers_take_a_second_to_start() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).set("start", json!([{ "sleep_ms": 1000 }]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    assert_eq!(
        host.tool_names(),
        ["one__echo"],
        "a server never listed before is waited for"
    );
}

/// A host that polls: `ping` is answered here, at once, and never forwarded.
#[test]
fn habit_pings_stay_here() {
    let (fake, daemon) = rig();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let before = fake.received("ping").len();
    for _ in 0..20 {
        assert_eq!(*host.request("ping", "").result(), json!({}));
    }
    assert_eq!(fake.received("ping").len(), before);
    let empty: Value = json!({});
    assert_eq!(*host.request("ping", "{}").result(), empty);
}
