//! The scanner against `serde_json`'s raw values, on a structured message and on one long string.
//!
//! `cargo bench --bench scan` prints times. With two arguments, `-- ours|serde structured|string`, it reads one
//! message 100 times and prints nothing, for counting instructions: `valgrind --tool=callgrind`.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use bytes::Bytes;
use manifold::wire::{JsonLimits, Message};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::hint::black_box;
use std::time::Instant;

/// What a reader of raw values has to do for the same facts in one walk.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: &'a RawValue,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

type Reader = fn(&Bytes);

fn structured() -> Bytes {
    let rows: Vec<String> = (0..700)
        .map(|n| {
            format!(
                r#"{{"id":{n},"path":"/srv/data/file-{n}.txt","size":{},"tags":["alpha","be\"ta",null],"ratio":0.{n},"open":{}}}"#,
                n * 977,
                n % 2 == 0
            )
        })
        .collect();
    call(&format!("{{\"rows\":[{}]}}", rows.join(",")))
}

fn long_string() -> Bytes {
    call(&format!(
        "{{\"text\":\"{}\"}}",
        "The quick brown fox jumps over the lazy dog.\\n".repeat(2400)
    ))
}

fn plain_string() -> Bytes {
    call(&format!(
        "{{\"data\":\"{}\"}}",
        "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo".repeat(3000)
    ))
}

fn call(arguments: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"files__write","arguments":{arguments}}}}}"#
    ))
}

fn ours(message: &Bytes) {
    black_box(Message::parse(message.clone(), JsonLimits::default()).is_ok());
}

fn serde(message: &Bytes) {
    let envelope: Option<Envelope<'_>> = serde_json::from_slice(message).ok();
    black_box(envelope.map(|e| (e.jsonrpc, e.id, e.method, e.params.map(|p| (p.name, p.arguments)))));
}

fn main() {
    let messages = [
        ("structured", structured()),
        ("string", long_string()),
        ("base64", plain_string()),
    ];
    let readers: [(&str, Reader); 2] = [("ours", ours), ("serde", serde)];
    // Cargo adds an argument of its own.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    for (reader, read) in readers {
        for (name, message) in &messages {
            if let [wanted_reader, wanted_name] = wanted.as_slice() {
                if wanted_reader == reader && wanted_name == name {
                    (0..100).for_each(|_| read(message));
                }
                continue;
            }
            let rounds = 500;
            let start = Instant::now();
            (0..rounds).for_each(|_| read(message));
            let each = start.elapsed() / rounds;
            println!("{reader:>6} {name:>11} {:>7} bytes {each:>12.2?}", message.len());
        }
    }
}
