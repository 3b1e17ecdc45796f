//! BIG: sizes, encodings and handles.

use std::io::Write;

use serde_json::json;

use crate::support::http::{self, Socket};
use crate::support::{Fake, Host, HostKind, ServerKind, Setup, until};

#[test]
fn big_1_lines_in_pieces() {
    let sizes = [60_000, 70_000, 1_000_000, 5_000_000];
    let fake = sizes.iter().fold(Fake::new("one", ServerKind::StdioLegacy), |fake, size| fake.tool(&format!("b{size}"), json!([{ "result": format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "z".repeat(*size)) }])));
    let fake = fake.set("split", json!(50_000)).set("split_pause_ms", json!(1));
    let daemon = Setup::of(&[&fake]).start();
    for kind in [HostKind::Http, HostKind::Stdio] {
        let host = Host::connect(&daemon, kind);
        host.wait_tool("one__b60000");
        for size in sizes {
            assert_eq!(host.call(&format!("one__b{size}"), "{}").text().len(), size);
        }
    }
}

#[test]
fn big_2_every_transport_passes_the_same_size() {
    for server in [
        ServerKind::StdioLegacy,
        ServerKind::HttpLegacy,
        ServerKind::Sse,
        ServerKind::HttpModern,
    ] {
        for sse in [false, true] {
            if sse && server.transport() != "http" {
                continue;
            }
            let fake = Fake::new("one", server)
                .tool("big", json!([{ "big": 3_500_000 }]))
                .set("sse_answers", json!(sse));
            let daemon = Setup::of(&[&fake]).start();
            for kind in [HostKind::Http, HostKind::Stdio] {
                let host = Host::connect(&daemon, kind);
                host.wait_tool("one__big");
                assert_eq!(
                    host.call("one__big", "{}").text().len(),
                    3_500_000,
                    "{server:?} {kind:?} sse={sse}"
                );
            }
        }
    }
}

#[test]
fn big_3_an_answer_without_end() {
    for server in [ServerKind::StdioLegacy, ServerKind::HttpLegacy] {
        let fake = Fake::echo("one", server).tool("huge", json!([{ "big": 300_000_000 }]));
        let good = Fake::echo("good", ServerKind::StdioLegacy);
        let daemon = Setup::of(&[&fake, &good]).start();
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tool("one__huge");
        host.wait_tool("good__echo");
        let call = host.start_call("one__huge", "{}");
        for _ in 0..10 {
            host.call("good__echo", "{}").result();
        }
        let answer = host.wait_answer(&call);
        assert_eq!(
            answer.error()["data"]["manifold"]["server"],
            "one",
            "{}",
            answer.raw
        );
        until("the server works again", || {
            host.call("one__echo", "{}")
                .value
                .get("result")
                .is_some()
                .then_some(())
        });
        let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.process().pid)).unwrap();
        let peak: u64 = text
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(peak < 250_000, "{server:?}: 300 MB took {peak} kB");
    }
}

#[test]
fn big_4_encodings() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy)
        .tool("bom", json!([{ "raw_answer": "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":@@ID@@,\"result\":{\"content\":[]}}" }]))
        .tool("separator", json!([{ "result": "{\"content\":[{\"type\":\"text\",\"text\":\"a\u{2028}b\"}]}" }]))
        .tool("pair", json!([{ "result": r#"{"content":[{"type":"text","text":"\ud83d\ude00"}]}"# }]))
        .tool("lone", json!([{ "result": r#"{"content":[{"type":"text","text":"\ud83d"}]}"# }]));
    let daemon = Setup::new()
        .server(&fake, json!({ "idle_timeout": "3s" }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__lone");
    host.call("one__bom", "{}").result();
    assert!(host.call("one__separator", "{}").raw.contains('\u{2028}'));
    assert!(host.call("one__pair", "{}").raw.contains(r"\ud83d\ude00"));
    // Not legal Unicode: relayed as it is or an error of ours, never silence.
    let _ = host.call("one__lone", "{}");
    host.call("one__echo", "{}").result();
}

#[test]
fn big_4_bytes_that_are_not_utf8() {
    let mut line =
        br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":""#.to_vec();
    line.extend_from_slice(&[0xb0, 0xa1, 0xb3, 0xaa]);
    line.extend_from_slice(b"\"}}\n");
    let fake = Fake::echo("one", ServerKind::StdioLegacy).tool("korean", json!([{ "bytes": line }]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__korean");
    host.call("one__korean", "{}").result();
    host.call("one__echo", "{}").result();
    assert!(fake.pids().len() <= 2);
}

#[test]
fn big_5_connections_that_go_nowhere() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let files = || {
        std::fs::read_dir(format!("/proc/{}/fd", daemon.process().pid))
            .unwrap()
            .count()
    };
    let before = files();
    for number in 0..400 {
        let mut socket = Socket::connect(&daemon.address()).unwrap();
        match number % 4 {
            0 => {}
            1 => socket
                .write_all(
                    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{\"jsonrpc\"",
                )
                .unwrap(),
            2 => socket.write_all(b"GET /mcp HTTP/1.1\r\nhost: 127").unwrap(),
            _ => socket
                .write_all(
                    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{",
                )
                .unwrap(),
        }
        socket.close();
    }
    until("the handle count returns", || {
        (files() <= before + 4).then_some(())
    });
    host.call("one__echo", "{}").result();
}

#[test]
fn big_6_callers_that_leave_at_once() {
    let fake = Fake::echo("one", ServerKind::HttpModern).tool("slow", json!(["until_cancelled"]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::HttpModern);
    host.wait_tool("one__slow");
    for number in 0..60 {
        let call = host.start_call_with(&format!("\"leave-{number}\""), "one__slow", "{}", "");
        host.close_stream(&call.id);
    }
    assert_eq!(daemon.admin_get("/healthz").0, 200);
    host.call("one__echo", "{}").result();
    until("every call that reached the server was ended", || {
        (fake.ends().len() == fake.calls("slow").len()).then_some(())
    });
}

/// A body over the limit is refused, whether its length was announced or not.
#[test]
fn big_2_a_request_over_the_limit() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake])
        .set("listen", json!({ "max_body": "1MiB" }))
        .start();
    let host = Host::connect(&daemon, HostKind::HttpModern);
    host.wait_tool("one__echo");
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#,
        "y".repeat(3_000_000)
    );
    assert_eq!(
        http::post(&daemon.address(), &[http::BOTH, http::JSON], &body).status,
        413
    );
    assert!(
        host.call("one__echo", &format!(r#"{{"x":"{}"}}"#, "y".repeat(900_000)))
            .raw
            .len()
            > 900_000
    );
}
