//! Two steps of every call: splicing a `tools/call` of 1 KiB, and the decision on a bound tool under 50 rules.
//!
//! `cargo bench --bench steps` prints times. With one argument, `-- splice|decide`, it does that one thing 100 times
//! and prints nothing, for counting instructions: `benches/instructions`.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use manifold::policy::model::Rule;
use manifold::policy::{CompiledPolicy, Effect, Kind, PolicyFile, decide};
use manifold::wire::{JsonLimits, Member, Message, Splice};

fn call() -> Bytes {
    let rows: Vec<String> = (0..14)
        .map(|n| format!(r#"{{"path":"/srv/docs/{n}.md","line":{n},"text":"some words"}}"#))
        .collect();
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{{"name":"files__write_rows","arguments":{{"rows":[{}]}},"_meta":{{"progressToken":"a-token"}}}}}}"#,
        rows.join(",")
    ))
}

fn splice(bytes: &Bytes) {
    let Ok(message) = Message::parse(bytes.clone(), JsonLimits::default()) else {
        return;
    };
    let mut splice = Splice::new();
    for (span, text) in [
        (message.id_span(), "4711"),
        (message.span(Member::Name), "\"write_rows\""),
        (message.span(Member::MetaProgressToken), "4711"),
    ] {
        if let Some(span) = span {
            splice.replace(span, text);
        }
    }
    black_box(splice.apply(message.bytes()));
}

fn policy() -> CompiledPolicy {
    let rules = (0..50)
        .map(|n| Rule {
            id: format!("rule-{n}"),
            effect: if n % 7 == 0 { Effect::Deny } else { Effect::Allow },
            tools: vec![format!("server-{n}/*_{n}"), "files/read_*".to_owned()],
            prompts: Vec::new(),
            resources: Vec::new(),
            reverse: Vec::new(),
            message: None,
        })
        .collect();
    CompiledPolicy::new(
        Some(&PolicyFile {
            default: Effect::Allow,
            rules,
        }),
        &[],
    )
    .unwrap_or_else(|_| CompiledPolicy::open())
}

fn main() {
    let only = std::env::args().nth(1).filter(|word| !word.starts_with("--"));
    let bytes = call();
    let bound = policy().bind(Kind::Tool, "files", "write_rows");
    let decision = || {
        black_box(decide(black_box(&bound)).is_ok());
    };
    let steps: [(&str, &dyn Fn()); 2] = [("splice", &|| splice(&bytes)), ("decide", &decision)];
    for (name, step) in steps {
        match &only {
            Some(wanted) if wanted == name => (0..100).for_each(|_| step()),
            Some(_) => {}
            None => {
                const TIMES: u32 = 100_000;
                let start = Instant::now();
                (0..TIMES).for_each(|_| step());
                println!(
                    "{name:8} {:>8.0} ns",
                    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
                );
            }
        }
    }
}
