//! Audit records: an intent and an outcome per call, one for each denial, one file series per process.

use serde_json::{Value, json};

use crate::support::{Fake, Host, HostKind, ServerKind, Setup, until};

/// The records that name a call of this tool, by their kind.
fn about<'a>(records: &'a [Value], text: &str) -> Vec<&'a Value> {
    records
        .iter()
        .filter(|record| record.to_string().contains(text))
        .collect()
}

fn kind(record: &Value) -> &str {
    ["event"]
        .iter()
        .find_map(|key| record[*key].as_str())
        .unwrap_or_default()
}

#[test]
fn a_call_has_an_intent_and_an_outcome() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .tool("fails", json!([{ "result": r#"{"content":[],"isError":true}"# }]))
        .tool("breaks", json!([{ "error": r#"{"code":-1,"message":"x"}"# }]))
        .tool("slow", json!([{ "gate": "go" }]));
    let daemon = Setup::new()
        .server(&fake, json!({ "idle_timeout": "20s" }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    host.call("one__echo", r#"{"password":"hunter2-secret"}"#)
        .result();
    host.call("one__fails", "{}").result();
    host.call("one__breaks", "{}").error();
    let slow = host.start_call("one__slow", "{}");
    fake.wait_event("at go");
    host.cancel(&slow);
    for (tool, outcome) in [
        ("echo", "ok"),
        ("fails", "tool_error"),
        ("breaks", "error"),
        ("slow", "cancelled"),
    ] {
        let (intent, done) = until(&format!("intent and outcome of {tool}"), || {
            let records = daemon.audit();
            let named = format!("one__{tool}");
            let intent = about(&records, &named)
                .into_iter()
                .find(|record| kind(record) == "intent")?
                .clone();
            let done = records
                .iter()
                .find(|record| {
                    kind(record) == "outcome"
                        && record.to_string().contains(&intent["call"].to_string())
                        && record.to_string().contains(&named)
                })?
                .clone();
            Some((intent, done))
        });
        assert!(
            done.to_string().contains(&format!("\"{outcome}\"")),
            "{tool}: {done}"
        );
        for field in ["server", "local", "public", "session", "transport"] {
            assert!(intent.to_string().contains(field), "{field} is missing: {intent}");
        }
        let sequence = |record: &Value| ["seq", "sequence"].iter().find_map(|key| record[*key].as_u64());
        assert!(sequence(&intent) < sequence(&done), "{intent} {done}");
    }
    let all: String = daemon.audit().iter().map(Value::to_string).collect();
    assert!(!all.contains("hunter2"), "arguments are digested by default");
}

#[test]
fn a_denial_has_one_record() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).tool("delete", json!([]));
    let policy = json!({ "default": "allow", "rules": [{ "id": "no-delete", "effect": "deny", "tools": ["one/delete"] }] });
    let daemon = Setup::of(&[&fake]).set("policy", policy).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    host.call("one__delete", "{}").error();
    let record = daemon.wait_audit("the denial", |record| record.to_string().contains("no-delete"));
    assert!(
        record.to_string().contains("delete") && record.to_string().contains("denied")
            || kind(&record).contains("den"),
        "{record}"
    );
    host.call("one__echo", "{}").result();
    daemon.wait_audit("the later call", |record| kind(record) == "outcome");
    assert_eq!(
        daemon
            .audit()
            .iter()
            .filter(|record| record.to_string().contains("no-delete"))
            .count(),
        1
    );
}

#[test]
fn several_processes_share_the_folder() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let hosts = [
        Host::connect(&daemon, HostKind::Http),
        Host::connect(&daemon, HostKind::Stdio),
        Host::connect(&daemon, HostKind::Stdio),
    ];
    for host in &hosts {
        host.wait_tool("one__echo");
    }
    let threads: Vec<_> = hosts
        .iter()
        .map(|host| {
            let host = host.clone();
            std::thread::spawn(move || {
                (0..20).for_each(|_| drop(host.call("one__echo", "{}").result().clone()))
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    until("sixty outcomes", || {
        (daemon
            .audit()
            .iter()
            .filter(|record| kind(record) == "outcome")
            .count()
            >= 60)
            .then_some(())
    });
    let files = std::fs::read_dir(daemon.path().join("audit"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_file())
        .count();
    assert!(files >= 3, "one file series per process, found {files}");
}

#[test]
fn rotation_by_size_loses_nothing() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake])
        .set("audit", json!({ "rotate": { "size": "64KiB" } }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    for _ in 0..200 {
        host.call("one__echo", "{}").result();
    }
    until("every outcome is written", || {
        (daemon
            .audit()
            .iter()
            .filter(|record| kind(record) == "outcome")
            .count()
            == 200)
            .then_some(())
    });
    let files = std::fs::read_dir(daemon.path().join("audit"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_file())
        .count();
    assert!(files >= 2, "it rotated");
}

#[test]
fn a_write_failure_is_visible_and_calls_go_on() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let setup = Setup::of(&[&fake]);
    // A folder that cannot be made: its parent is a file.
    std::fs::write(setup.path().join("blocked"), b"").unwrap();
    let dir = setup.path().join("blocked/audit");
    let daemon = setup.set("audit", json!({ "dir": dir })).prepare();
    let (process, _) = crate::support::process::Process::start("serve", &mut daemon.command(&["serve"]));
    let code = until("it refuses to start or says what is wrong", || {
        process
            .exited()
            .map(Some)
            .or_else(|| process.log_has("audit").then_some(None))
    });
    let err = process.log_tail(50);
    assert!(err.contains("audit"), "{code:?} {err}");
}
