//! A scriptable MCP server for tests: a real child on stdin/stdout, or a real HTTP server on loopback.
//!
//! `fake_server SCRIPT.json` reads one script (`fake_server/script.rs` documents every key) and then behaves exactly as
//! it says: raw list items, per-tool steps, faults. Everything that reaches it is appended, as received, to
//! `CONTROL/record.jsonl`; a test releases a gate by creating `CONTROL/gate-NAME` and makes a running server do
//! something by creating `CONTROL/cmd-NNN.json`. It shares no code with the daemon, so that the two cannot be wrong alike.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test program: a broken script must end it loudly"
)]
#![allow(unreachable_pub, missing_docs, reason = "a program of private modules")]

#[path = "fake_server/http.rs"]
mod http;
#[path = "fake_server/reply.rs"]
mod reply;
#[path = "fake_server/script.rs"]
mod script;
#[path = "fake_server/server.rs"]
mod server;
#[path = "fake_server/steps.rs"]
mod steps;

use std::io::{BufRead, BufReader};
use std::sync::Arc;

use reply::{Context, LineOut, Reply};
use server::Server;

fn main() {
    let path = std::env::args().nth(1).expect("usage: fake_server SCRIPT.json");
    let text = std::fs::read_to_string(&path).expect("the script is readable");
    let script: script::Script =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("script {path}: {error}"));
    let server = Server::new(script);
    server.record.add("start", &serde_json::json!({ "args": std::env::args().collect::<Vec<_>>(), "cwd": std::env::current_dir().ok(),
        "env": std::env::vars().collect::<std::collections::BTreeMap<_, _>>() }));
    if server.script.grandchild {
        let pid_file = server
            .script
            .control
            .join(format!("grandchild-{}", std::process::id()));
        let line = format!(
            "trap '' TERM INT HUP; echo $$ > {0}.tmp; mv {0}.tmp {0}; exec sleep 600",
            pid_file.display()
        );
        #[expect(clippy::zombie_processes, reason = "the point is that it outlives us")]
        let _child = std::process::Command::new("sh")
            .arg("-c")
            .arg(line)
            .spawn()
            .expect("sh starts");
    }
    match server.script.transport.as_str() {
        "stdio" => stdio(&server),
        "http" | "sse" => http::serve(&server),
        other => panic!("unknown transport {other}"),
    }
}

fn stdio(server: &Arc<Server>) {
    let out = Arc::new(LineOut::new(server.script.split, server.script.split_pause_ms));
    let session = server.open_session("stdio");
    session.attach(out.clone());
    server.watch_commands();
    let start = Context::outside(server, &session, out.clone() as Arc<dyn Reply>);
    steps::run(&start, &server.script.start);
    if server.script.never_read {
        loop {
            std::thread::park();
        }
    }
    let mut input = BufReader::new(std::io::stdin());
    loop {
        let mut line = Vec::new();
        match input.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let whole = line.last() == Some(&b'\n');
        let text = String::from_utf8_lossy(&line)
            .trim_end_matches(['\n', '\r'])
            .to_owned();
        if !whole {
            server.record.add(
                "violation",
                &serde_json::json!({ "what": "a line without its newline at the end of stdin", "raw": text }),
            );
        }
        server.record.message(&session, &text, &[]);
        let server = server.clone();
        let session = session.clone();
        let reply: Arc<dyn Reply> = out.clone();
        // Notes and answers are handled in order; every request gets a thread of its own.
        server.receive(&session, &text, reply, true);
    }
    server.record.add("stdin_end", &serde_json::json!({}));
    if server.script.ignore_stdin_end {
        loop {
            std::thread::park();
        }
    }
    std::process::exit(0);
}
