//! The catalog: merging 1,000 tools of ten servers, the warm list, a lookup, and routing a URI through 100 templates.
//!
//! `cargo bench --bench catalog` prints times. With one argument, `-- build|list|page|lookup|route`, it does that one
//! thing 100 times and prints nothing, for counting instructions: `valgrind --tool=callgrind`.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use manifold::catalog::listing::ListReader;
use manifold::catalog::page::ListRequest;
use manifold::catalog::{Catalog, ItemLimits, ListKind, Listing, NameRules, ServerEntry};
use manifold::crypto::Sealer;
use manifold::policy::CompiledPolicy;
use manifold::revision::{Family, Revision};

fn listing(tools: usize, templates: usize) -> Arc<Listing> {
    let handshake = Bytes::from_static(b"{\"capabilities\":{\"tools\":{},\"resources\":{}}}");
    let mut listing = Listing::from_handshake(Revision::V2025_11_25, &handshake);
    let tools: Vec<String> = (0..tools)
        .map(|n| {
            format!(
                r#"{{"name":"tool_number_{n}","description":"Does the {n}th thing to a path, with care.","inputSchema":{{"type":"object",
                "properties":{{"path":{{"type":"string","description":"Where"}},"depth":{{"type":"integer","default":{n}}}}},
                "required":["path"]}},"annotations":{{"readOnlyHint":true,"title":"Tool {n}"}}}}"#
            )
        })
        .collect();
    let templates: Vec<String> = (0..templates)
        .map(|n| format!(r#"{{"name":"t","uriTemplate":"db://{{host}}/table-{n}/{{id}}{{?q}}"}}"#))
        .collect();
    for (kind, items) in [(ListKind::Tools, tools), (ListKind::Templates, templates)] {
        let mut reader = ListReader::new(kind, ItemLimits::default(), 0);
        let page = format!("{{\"{}\":[{}]}}", kind.result_key(), items.join(","));
        let read = reader.add(&Bytes::from(page));
        assert!(
            read.is_ok() && reader.finish(&mut listing).is_empty(),
            "the generated page is fine"
        );
    }
    Arc::new(listing)
}

struct Setting {
    servers: Vec<ServerEntry>,
    rules: NameRules,
    policy: Arc<CompiledPolicy>,
    sealer: Sealer,
    catalog: Catalog,
}

impl Setting {
    fn new(tools: usize) -> Self {
        let rules = NameRules::default();
        let servers: Vec<ServerEntry> = (0..10)
            .map(|n| {
                let name = format!("server-{n}");
                let mut entry = ServerEntry::new(&name, rules.prefix(&name, None));
                entry.listing = Some(listing(tools / 10, 10));
                entry
            })
            .collect();
        let policy = Arc::new(CompiledPolicy::open());
        let catalog = Catalog::build(1, &servers, &rules, &policy, None).catalog;
        Self {
            servers,
            rules,
            policy,
            sealer: Sealer::random(),
            catalog,
        }
    }

    fn list(&self, page_size: usize) {
        let request = ListRequest {
            kind: ListKind::Tools,
            family: Family::Modern,
            cursor: None,
            page_size,
            now_ms: 0,
        };
        black_box(self.catalog.list(request, &self.sealer).is_ok());
    }

    fn run(&self, work: &str) {
        match work {
            "build" => {
                black_box(
                    Catalog::build(2, &self.servers, &self.rules, &self.policy, None)
                        .warnings
                        .len(),
                );
            }
            "list" => self.list(0),
            "page" => self.list(100),
            "lookup" => {
                black_box(self.catalog.tool("server-7__tool_number_42").is_some());
            }
            _ => {
                black_box(self.catalog.resource("db://primary/table-9/17?q=x").is_some());
            }
        }
    }
}

fn main() {
    const WORKS: [&str; 5] = ["build", "list", "page", "lookup", "route"];
    // Cargo adds an argument of its own.
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with("--"));
    let setting = Setting::new(1_000);
    if let Some(work) = wanted {
        (0..100).for_each(|_| setting.run(&work));
        return;
    }
    let larger = Setting::new(10_000);
    for work in WORKS {
        for (tools, setting) in [(1_000, &setting), (10_000, &larger)] {
            let rounds: u32 = if work == "build" { 10 } else { 1_000 };
            setting.run(work);
            let start = Instant::now();
            (0..rounds).for_each(|_| setting.run(work));
            println!("{work:>6} with {tools:>6} tools: {:?}", start.elapsed() / rounds);
        }
    }
}
