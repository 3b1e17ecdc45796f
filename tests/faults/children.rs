//! PRO: child processes and the stdio pipe.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::process::{alive, signal_pid};
use crate::support::{Fake, Host, HostKind, ServerKind, Setup, never, until};

fn gone(pid: u32, what: &str) {
    until(what, || (!alive(pid)).then_some(()));
}

fn grandchildren(fake: &Fake) -> Vec<u32> {
    std::fs::read_dir(fake.control())
        .unwrap()
        .flatten()
        .filter(|entry| {
            entry.file_name().to_string_lossy().starts_with("grandchild-")
                && !entry.file_name().to_string_lossy().ends_with(".tmp")
        })
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok()?.trim().parse().ok())
        .collect()
}

#[test]
fn pro_1_the_whole_group_ends() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).set("grandchild", json!(true));
    let command = fake.command();
    // A shell script in between that ignores SIGTERM, as its child does.
    let line = format!("trap '' TERM; '{}' '{}'; exit 0", command[0], command[1]);
    let daemon = Setup::of(&[])
        .entry("one", json!({ "command": "sh", "args": ["-c", line] }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let pids: Vec<u32> = until("the grandchild runs", || {
        (!grandchildren(&fake).is_empty()).then(|| grandchildren(&fake))
    })
    .into_iter()
    .chain(fake.pids())
    .collect();
    let other = Fake::echo("two", ServerKind::StdioLegacy);
    daemon.reconfigure(|setup| setup.server(&other, json!({})));
    host.wait_tool("two__echo");
    daemon.remove_server("one");
    for pid in pids {
        gone(pid, "the group of a removed server is gone");
    }
}

#[test]
fn pro_1_the_whole_group_ends_with_the_daemon() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .set("grandchild", json!(true))
        .set("ignore_stdin_end", json!(true));
    let daemon = Setup::of(&[&fake]).start();
    Host::connect(&daemon, HostKind::Http).wait_tool("one__echo");
    let left = until("the grandchild runs", || {
        (!grandchildren(&fake).is_empty()).then(|| grandchildren(&fake))
    });
    daemon.process().signal(Signal::TERM);
    assert_eq!(daemon.process().wait_exit("SIGTERM"), 0);
    for pid in left.into_iter().chain(fake.pids()) {
        gone(pid, "the group is gone");
    }
}

#[test]
fn pro_2_many_first_calls_start_one_process() {
    let fake = Fake::echo("one", ServerKind::StdioModern).set("start", json!([{ "gate": "ready" }]));
    let daemon = Setup::of(&[&fake]).start();
    let hosts: Vec<Host> = (0..20)
        .map(|_| Host::connect(&daemon, HostKind::HttpModern))
        .collect();
    let lists: Vec<_> = hosts.iter().map(|host| host.send("tools/list", "")).collect();
    fake.wait_event("at ready");
    fake.release("ready");
    for (host, list) in hosts.iter().zip(&lists) {
        host.wait_answer(list).result();
        host.call("one__echo", "{}").result();
    }
    assert_eq!(fake.pids().len(), 1);
}

#[test]
fn pro_4_a_server_that_keeps_leaving() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).on(
        "notifications/initialized",
        json!([{ "sleep_ms": 100 }, { "exit": 0 }]),
    );
    let good = Fake::echo("good", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake, &good]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("good__echo");
    until("it was restarted", || (fake.pids().len() >= 2).then_some(()));
    host.call("good__echo", "{}").result();
    let processes = good.pids().len();
    for _ in 0..20 {
        host.call("good__echo", "{}").result();
    }
    never("it is restarted without pause", || fake.pids().len() > 8);
    assert_eq!(good.pids().len(), processes);
    // Repaired, it comes back by itself.
    fake.change("on", json!({}));
    fake.command();
    until("it works again", || {
        host.call("one__echo", "{}")
            .value
            .get("result")
            .is_some()
            .then_some(())
    });
}

#[test]
fn pro_5_a_server_returns() {
    let http = Fake::echo("http", ServerKind::HttpLegacy);
    let modern = Fake::echo("modern", ServerKind::HttpModern);
    let daemon = Setup::of(&[&http, &modern]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("both", |names| names.len() == 2);
    for fake in [&http, &modern] {
        fake.kill_http();
        let name = format!("{}__echo", fake.name);
        let error = host.call(&name, "{}");
        assert_eq!(
            error.error()["data"]["manifold"]["server"],
            fake.name.as_str(),
            "{}",
            error.raw
        );
        assert_eq!(
            error.error()["data"]["manifold"]["retryable"],
            true,
            "{}",
            error.raw
        );
        fake.start_http();
        until("it is back", || {
            host.call(&name, "{}").value.get("result").is_some().then_some(())
        });
    }
}

#[test]
fn pro_6_a_chatterbox_on_stderr() {
    let fake = Fake::new("one", ServerKind::StdioLegacy).tool(
        "talk",
        json!([{ "stderr_flood": 1_000_000 }, { "stderr": "the end" }]),
    );
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__talk");
    for _ in 0..5 {
        host.call("one__talk", "{}").result();
    }
    let bytes: usize = daemon.process().log.lock().unwrap().iter().map(String::len).sum();
    assert!(bytes < 3_000_000, "5 MB of noise became {bytes} bytes of our log");
}

#[test]
fn pro_7_noise_on_stdout() {
    let noise = json!([
        { "stdout": "Welcome to the server!\n" }, { "stdout": "42\n" }, { "stdout": "[1,2]\n" }, { "stdout": "\n" }, { "stdout": "\u{1b}[31mred\u{1b}[0m\n" },
        { "stdout": "null\n" }, { "stdout": "{\"level\":\"info\"}\n" }, { "bytes": [255, 254, 34, 10] }, { "stdout": "{\"jsonrpc\":\"2.0\"}\n" },
        { "stdout": "{\"jsonrpc\":\"2.0\",\"id\":424242,\"result\":{}}\n" }, { "stdout": "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}\n" }
    ]);
    let mut with_result = noise.as_array().unwrap().clone();
    with_result.push(json!({ "result": r#"{"content":[]}"# }));
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .set("start", noise)
        .tool("noisy", json!(with_result));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__noisy");
    for _ in 0..3 {
        host.call("one__noisy", "{}").result();
        host.call("one__echo", "{}").result();
    }
    assert!(fake.pids().len() <= 2, "noise ended the connection");
    fake.assert_clean();
}

#[test]
fn pro_8_environment_and_working_directory() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let folder = tempfile::tempdir().unwrap();
    let command = fake.command();
    std::os::unix::fs::symlink(&command[0], folder.path().join("my-server")).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let daemon = Setup::of(&[])
        .entry("one", json!({ "command": "my-server", "args": [command[1]], "cwd": folder.path(), "env": { "PATH": path, "OWN": "value" } }))
        .env("SECRET_OF_OURS", "leak")
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let start = fake
        .records()
        .into_iter()
        .find(|entry| entry.kind == "start")
        .unwrap();
    assert_eq!(start.entry["env"]["OWN"], "value");
    assert_eq!(
        start.entry["env"]["SECRET_OF_OURS"],
        Value::Null,
        "children get nothing else of ours"
    );
    let cwd = std::path::Path::new(start.entry["cwd"].as_str().unwrap())
        .canonicalize()
        .unwrap();
    assert_eq!(cwd, folder.path().canonicalize().unwrap());
    let allowed = ["PATH", "HOME", "LANG", "TMPDIR", "OWN"];
    for key in start.entry["env"].as_object().unwrap().keys() {
        assert!(
            allowed.contains(&key.as_str()) || key.starts_with("MANIFOLD"),
            "{key} reached the child"
        );
    }
}

#[test]
fn pro_9_a_file_that_cannot_run() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.sh");
    std::fs::write(&plain, "#!/bin/sh\nexit 0\n").unwrap();
    let crlf = folder.path().join("crlf.sh");
    std::fs::write(&crlf, "#!/bin/sh\r\nexit 0\r\n").unwrap();
    std::fs::set_permissions(&crlf, std::fs::Permissions::from_mode(0o755)).unwrap();
    let good = Fake::echo("good", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&good])
        .entry("plain", json!({ "command": plain }))
        .entry("crlf", json!({ "command": crlf }))
        .set("start_wait", json!("1s"))
        .start();
    Host::connect(&daemon, HostKind::Http).wait_tool("good__echo");
    until("the status says what is wrong", || {
        let (plain, crlf) = (
            daemon.server_status("plain").to_string(),
            daemon.server_status("crlf").to_string(),
        );
        (plain.contains("execut") && crlf.contains("crlf.sh")).then_some(())
    });
}

/// A child that another hand ends is made anew for the next call.
#[test]
fn pro_3_one_instance_after_a_crash() {
    let fake = Fake::echo("one", ServerKind::StdioModern);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::HttpModern);
    host.wait_tool("one__echo");
    signal_pid(fake.pids()[0], Signal::KILL);
    gone(fake.pids()[0], "it is gone");
    let calls: Vec<_> = (0..10).map(|_| host.start_call("one__echo", "{}")).collect();
    for call in &calls {
        // The calls that met the dying pipe may fail, clearly; none is left without an answer.
        let _ = host.wait_answer(call);
    }
    host.call("one__echo", "{}").result();
    let alive = fake.pids().into_iter().filter(|pid| alive(*pid)).count();
    assert_eq!(alive, 1);
}

/// A server that never reads its stdin hurts nobody else.
#[test]
fn pro_a_server_that_never_reads() {
    let deaf = Fake::echo("deaf", ServerKind::StdioLegacy);
    let good = Fake::echo("good", ServerKind::StdioLegacy);
    let daemon = Setup::new()
        .server(&deaf, json!({ "idle_timeout": "2s", "start_timeout": "2s" }))
        .server(&good, json!({}))
        .set("start_wait", json!("1s"))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("both", |names| names.len() == 2);
    host.call("deaf__echo", "{}").result();
    // Stopped: its pipe fills.
    for pid in deaf.pids() {
        signal_pid(pid, Signal::STOP);
    }
    let big = format!(r#"{{"x":"{}"}}"#, "y".repeat(300_000));
    let calls: Vec<_> = (0..5).map(|_| host.start_call("deaf__echo", &big)).collect();
    for _ in 0..20 {
        host.call("good__echo", "{}").result();
    }
    for call in &calls {
        host.wait_answer(call).error();
    }
    for pid in deaf.pids() {
        signal_pid(pid, Signal::CONT);
    }
}

/// The handshake survives what servers do to an unknown first request.
#[test]
fn pro_probing_depends_on_no_single_code() {
    for before in [
        "error", "silence", "exit", "garbage", "empty", "-32600", "-32000", "-1",
    ] {
        let fake = Fake::echo("one", ServerKind::StdioLegacy).set("before_handshake", json!(before));
        let daemon = Setup::of(&[&fake]).set("start_wait", json!("15s")).start();
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tool("one__echo");
        host.call("one__echo", "{}").result();
    }
}

#[test]
fn pro_probing_over_http_depends_on_no_single_code() {
    for before in ["error", "garbage", "empty", "-32601"] {
        let fake = Fake::echo("one", ServerKind::HttpLegacy)
            .set("before_handshake", json!(before))
            .set("strict", json!(true));
        let daemon = Setup::of(&[&fake]).set("start_wait", json!("15s")).start();
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tool("one__echo");
        host.call("one__echo", "{}").result();
        fake.assert_clean();
    }
}

/// Dual servers are spoken to in the modern way.
#[test]
fn pro_dual_servers_are_modern() {
    for server in [ServerKind::StdioDual, ServerKind::HttpDual] {
        let fake = Fake::echo("one", server);
        let daemon = Setup::of(&[&fake]).start();
        let host = Host::connect(&daemon, HostKind::HttpModern);
        host.wait_tool("one__echo");
        host.call("one__echo", "{}").result();
        assert!(fake.received("initialize").is_empty(), "{server:?}");
        assert!(!fake.received("server/discover").is_empty());
        fake.assert_clean();
    }
}
