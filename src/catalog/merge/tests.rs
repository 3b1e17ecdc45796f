use serde_json::{Value, json};

use super::*;
use crate::catalog::listing::ListReader;
use crate::catalog::{ItemLimits, page::ListRequest};
use crate::crypto::Sealer;
use crate::policy::{Effect, PolicyFile, Rule};
use crate::revision::Revision;

/// A listing with these items, as if read from a server.
pub(in crate::catalog) fn listing(
    revision: Revision,
    capabilities: &Value,
    lists: &[(ListKind, Value)],
) -> Arc<Listing> {
    let handshake =
        json!({"capabilities": capabilities, "serverInfo": {"name": "x", "version": "1"}}).to_string();
    let mut listing = Listing::from_handshake(revision, &Bytes::from(handshake));
    for (kind, items) in lists {
        let mut reader = ListReader::new(*kind, ItemLimits::default(), 0);
        let page = json!({ (kind.result_key()): items });
        reader.add(&Bytes::from(page.to_string())).unwrap();
        assert_eq!(reader.finish(&mut listing), Vec::<String>::new());
    }
    Arc::new(listing)
}

pub(in crate::catalog) fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

pub(in crate::catalog) fn resource(uri: &str) -> Value {
    json!({"name": "r", "uri": uri})
}

pub(in crate::catalog) fn tools(names: &[&str]) -> Arc<Listing> {
    let items: Vec<Value> = names.iter().map(|name| tool(name)).collect();
    listing(
        Revision::V2025_11_25,
        &json!({"tools": {}}),
        &[(ListKind::Tools, items.into())],
    )
}

pub(in crate::catalog) fn resources(uris: &[&str], templates: &[&str]) -> Arc<Listing> {
    let uris: Vec<Value> = uris.iter().map(|uri| resource(uri)).collect();
    let templates: Vec<Value> = templates
        .iter()
        .map(|t| json!({"name": "t", "uriTemplate": t}))
        .collect();
    let lists = [
        (ListKind::Resources, uris.into()),
        (ListKind::Templates, templates.into()),
    ];
    listing(Revision::V2025_11_25, &json!({"resources": {}}), &lists)
}

pub(in crate::catalog) fn server(name: &str, listing: Arc<Listing>) -> ServerEntry {
    let prefix = NameRules::default().prefix(name, None);
    ServerEntry {
        listing: Some(listing),
        ..ServerEntry::new(name, prefix)
    }
}

pub(in crate::catalog) fn bare(name: &str, listing: Arc<Listing>) -> ServerEntry {
    ServerEntry {
        listing: Some(listing),
        ..ServerEntry::new(name, Prefix::none())
    }
}

pub(in crate::catalog) fn build(servers: &[ServerEntry]) -> Built {
    build_with(servers, &Arc::new(CompiledPolicy::open()), None)
}

pub(in crate::catalog) fn build_with(
    servers: &[ServerEntry],
    policy: &Arc<CompiledPolicy>,
    previous: Option<&Catalog>,
) -> Built {
    Catalog::build(7, servers, &NameRules::default(), policy, previous)
}

/// Everything allowed but these.
pub(in crate::catalog) fn denying(tools: &[&str], resources: &[&str]) -> Arc<CompiledPolicy> {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let rule = Rule {
        id: "no".into(),
        effect: Effect::Deny,
        tools: texts(tools),
        prompts: Vec::new(),
        resources: texts(resources),
        reverse: Vec::new(),
        message: None,
    };
    let file = PolicyFile {
        default: Effect::Allow,
        rules: vec![rule],
    };
    Arc::new(CompiledPolicy::new(Some(&file), &[]).unwrap())
}

pub(in crate::catalog) fn names(catalog: &Catalog, kind: ListKind) -> Vec<String> {
    catalog
        .listed(kind)
        .map(|entry| entry.public.to_string())
        .collect()
}

fn whole_list(catalog: &Catalog, kind: ListKind, family: Family) -> String {
    let request = ListRequest {
        kind,
        family,
        cursor: None,
        page_size: 0,
        now_ms: 0,
    };
    let bytes = catalog.list(request, &Sealer::random()).unwrap().into_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn names_lead_back_to_server_and_local_name() {
    let built = build(&[
        server("my", tools(&["execute_sql", "db_execute_sql", "a.b", "a_b"])),
        server("my_db", tools(&["execute_sql"])),
    ]);
    assert_eq!(built.warnings, []);
    let mut seen = Vec::new();
    for entry in built.catalog.listed(ListKind::Tools) {
        let found = built.catalog.tool(&entry.public).unwrap();
        seen.push((found.server, found.local.to_string()));
    }
    let expected = [
        (0, "execute_sql"),
        (0, "db_execute_sql"),
        (0, "a.b"),
        (0, "a_b"),
        (1, "execute_sql"),
    ];
    assert_eq!(seen, expected.map(|(at, name)| (at, name.to_owned())));
    for wrong in [
        "MY__execute_sql",
        "my__execute_sql ",
        "my%5F_execute_sql",
        "execute_sql",
        "my__execute_sq\u{04CF}",
    ] {
        assert!(built.catalog.tool(wrong).is_none(), "{wrong}");
    }
    let shortened = built.catalog.entries(ListKind::Tools)[2].json(Family::Legacy);
    assert!(String::from_utf8_lossy(shortened).contains("\"title\":\"a.b\""));
}

#[test]
fn another_server_renames_nothing() {
    let one = server("b", tools(&["x", "y.z", &"l".repeat(70)]));
    let alone = build(std::slice::from_ref(&one));
    let before = names(&alone.catalog, ListKind::Tools);
    let both = build(&[
        server("a", tools(&["x", "y.z"])),
        one,
        server("b_", tools(&["x"])),
    ]);
    let after = names(&both.catalog, ListKind::Tools);
    assert!(
        before.iter().all(|name| after.contains(name)),
        "{before:?} {after:?}"
    );
    assert_eq!(after.len(), 6);
}

#[test]
fn equal_names_leave_the_later_out_and_say_so() {
    let built = build(&[
        bare("a", tools(&["query", "only_a", "query"])),
        bare("b", tools(&["query", "only_b"])),
    ]);
    assert_eq!(
        names(&built.catalog, ListKind::Tools),
        ["query", "only_a", "only_b"]
    );
    assert_eq!(built.catalog.tool("query").unwrap().server, 0);
    let texts: Vec<String> = built.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("server a") && texts[0].contains("twice"));
    assert!(
        texts[1].contains("server b") && texts[1].contains("query") && texts[1].contains("server a has"),
        "{texts:?}"
    );
}

#[test]
fn a_name_that_is_held_cannot_be_taken_over() {
    let holder = bare("t", tools(&["pay"]));
    let first = build(&[bare("u", tools(&["x"])), holder.clone()]);
    let next = build_with(
        &[bare("u", tools(&["x", "pay"])), holder.clone()],
        &Arc::new(CompiledPolicy::open()),
        Some(&first.catalog),
    );
    assert_eq!(&*next.catalog.tool("pay").unwrap().server_name, "t");
    assert!(next.warnings[0].text.contains("pay") && &*next.warnings[0].server == "u");
    // A server that is only now heard of for the first time has its place by the configuration.
    let unheard = ServerEntry {
        listing: None,
        ..bare("u", tools(&[]))
    };
    let first = build(&[unheard, holder.clone()]);
    let next = build_with(
        &[bare("u", tools(&["pay"])), holder],
        &Arc::new(CompiledPolicy::open()),
        Some(&first.catalog),
    );
    assert_eq!(&*next.catalog.tool("pay").unwrap().server_name, "u");
}

#[test]
fn renames_and_descriptions() {
    let mut entry = server("tix", tools(&["search_all", "other"]));
    entry.rename.insert("search_all".into(), "search".into());
    entry.rename.insert("gone".into(), "x".into());
    entry.describe.insert("search".into(), "Search tickets".into());
    let built = build(std::slice::from_ref(&entry));
    let found = built.catalog.tool("tix__search").unwrap();
    assert_eq!(&*found.local, "search_all");
    assert!(
        String::from_utf8_lossy(found.json(Family::Modern)).contains("\"description\":\"Search tickets\"")
    );
    assert!(built.catalog.tool("tix__search_all").is_none());
    assert!(
        built.warnings.len() == 1 && built.warnings[0].text.contains("\"gone\""),
        "{:?}",
        built.warnings
    );
    // A rename onto a name that is there already.
    entry.rename.insert("search_all".into(), "other".into());
    let built = build(&[entry]);
    assert_eq!(names(&built.catalog, ListKind::Tools), ["tix__other"]);
    assert!(
        built
            .warnings
            .iter()
            .any(|w| w.text.contains("left out") && w.text.contains("search_all"))
    );
}

#[test]
fn denied_items_are_found_but_not_listed() {
    let policy = denying(&["a/secret"], &[]);
    let built = build_with(&[server("a", tools(&["open", "secret"]))], &policy, None);
    assert_eq!(names(&built.catalog, ListKind::Tools), ["a__open"]);
    let hidden = built.catalog.tool("a__secret").unwrap();
    assert!(!hidden.bound.listed());
    assert!(!whole_list(&built.catalog, ListKind::Tools, Family::Legacy).contains("secret"));
    assert!(built.catalog.unprefixed_tool("secret").is_none());
    assert!(built.catalog.unprefixed_tool("open").is_some());
}

#[test]
fn policy_names_local_names_also_after_a_rename() {
    let mut entry = server("a", tools(&["secret"]));
    entry.rename.insert("secret".into(), "open".into());
    let built = build_with(&[entry], &denying(&["a/secret"], &[]), None);
    assert!(!built.catalog.tool("a__open").unwrap().bound.listed());
}

#[test]
fn local_names_that_one_server_has_resolve_alone() {
    let built = build(&[server("a", tools(&["x", "both"])), server("b", tools(&["both"]))]);
    assert_eq!(&*built.catalog.unprefixed_tool("x").unwrap().public, "a__x");
    assert!(built.catalog.unprefixed_tool("both").is_none());
}

#[test]
fn bad_items_are_left_out_one_by_one() {
    let items = json!([tool("ok"), {"name": "bad"}, {"inputSchema": {"type": "object"}}, tool("fine")]);
    let built = build(&[
        server(
            "a",
            listing(
                Revision::V2025_06_18,
                &json!({"tools": {}}),
                &[(ListKind::Tools, items)],
            ),
        ),
        server("b", tools(&["ok"])),
    ]);
    assert_eq!(
        names(&built.catalog, ListKind::Tools),
        ["a__ok", "a__fine", "b__ok"]
    );
    assert_eq!(built.warnings.len(), 2);
    assert!(built.warnings[0].text.contains("\"bad\"") && built.warnings[0].text.contains("inputSchema"));
}

#[test]
fn the_list_is_stable_and_says_what_changed() {
    let servers = [
        server("a", tools(&["x"])),
        server("b", resources(&["m://1"], &["m://{x}"])),
    ];
    let (one, two) = (build(&servers).catalog, build(&servers).catalog);
    for family in [Family::Legacy, Family::Modern] {
        for kind in ListKind::ALL {
            assert_eq!(whole_list(&one, kind, family), whole_list(&two, kind, family));
        }
        assert!(one.changed_since(&two, family).is_empty());
    }
    let three = build_with(&servers, &denying(&[], &["b/m://*"]), None).catalog;
    let changed = three.changed_since(&one, Family::Legacy);
    assert_eq!(
        changed,
        Changed {
            tools: false,
            prompts: false,
            resources: true
        }
    );
}

#[test]
fn a_server_never_listed_hurts_nobody() {
    let mut unheard = server("a", tools(&[]));
    unheard.listing = None;
    let built = build(&[unheard, server("b", tools(&["x"]))]);
    assert_eq!(names(&built.catalog, ListKind::Tools), ["b__x"]);
    assert!(built.catalog.offered(Family::Legacy).prompts);
    assert_eq!(built.catalog.family(0), None);
    assert_eq!(built.catalog.family(1), Some(Family::Legacy));
}

#[test]
fn a_thousand_tools_from_twenty_servers_merge_in_one_pass() {
    let servers: Vec<ServerEntry> = (0..20)
        .map(|s| {
            let names: Vec<String> = (0..500).map(|t| format!("tool_number_{t}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            server(&format!("server-{s}"), tools(&names))
        })
        .collect();
    let built = build(&servers);
    assert_eq!(built.catalog.listed(ListKind::Tools).count(), 10_000);
    let list: Value =
        serde_json::from_str(&whole_list(&built.catalog, ListKind::Tools, Family::Legacy)).unwrap();
    assert_eq!(list["tools"].as_array().unwrap().len(), 10_000);
}

#[test]
fn modern_tools_with_broken_parameter_headers_are_left_out() {
    let annotated = |name: &str, header: &str| {
        let region = json!({"type": "string", "x-mcp-header": header});
        json!({"name": name, "inputSchema": {"type": "object", "properties": {"region": region}}})
    };
    let items = json!([
        annotated("good", "Region"),
        annotated("bad", "not a token"),
        tool("plain")
    ]);
    let entry = |revision: Revision| {
        server(
            "a",
            listing(
                revision,
                &json!({"tools": {}}),
                &[(ListKind::Tools, items.clone())],
            ),
        )
    };
    let built = build(&[entry(Revision::V2026_07_28)]);
    assert_eq!(names(&built.catalog, ListKind::Tools), ["a__good", "a__plain"]);
    assert!(built.warnings[0].text.contains("\"bad\""), "{:?}", built.warnings);
    let params = &built.catalog.tool("a__good").unwrap().facts.header_params;
    assert_eq!(params[0].header, "mcp-param-region");
    let built = build(&[entry(Revision::V2025_11_25)]);
    assert_eq!(
        built.catalog.listed(ListKind::Tools).count(),
        3,
        "for a legacy server the keyword means nothing"
    );
}

/// What a real server answered, see `tests/fixtures/listings/README.md`.
fn recorded(name: &str) -> Arc<Listing> {
    let path = format!(
        "{}/tests/fixtures/listings/{name}.ndjson",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read(&path).unwrap();
    let mut lines = text.split(|byte| *byte == b'\n');
    let mut result = || {
        let line = Bytes::copy_from_slice(lines.next().unwrap());
        let message = crate::wire::Message::parse(line, crate::wire::JsonLimits::default()).ok()?;
        message.payload().map(|span| message.slice(span))
    };
    let mut listing = Listing::from_handshake(Revision::V2025_11_25, &result().unwrap());
    for kind in ListKind::ALL {
        let Some(page) = result() else { continue };
        let mut reader = ListReader::new(kind, ItemLimits::default(), 0);
        assert_eq!(reader.add(&page), Ok(None), "{path}");
        assert_eq!(reader.finish(&mut listing), Vec::<String>::new());
    }
    Arc::new(listing)
}

#[test]
fn real_listings_go_through_byte_for_byte_except_the_name() {
    let real = ["everything", "filesystem", "memory", "git", "time"];
    let servers: Vec<ServerEntry> = real.iter().map(|name| server(name, recorded(name))).collect();
    let built = build(&servers);
    assert_eq!(built.warnings, []);
    let counts = ListKind::ALL.map(|kind| built.catalog.listed(kind).count());
    assert!(
        counts[0] > 40 && counts.iter().all(|count| *count > 0),
        "{counts:?}"
    );
    for kind in ListKind::ALL {
        let mut entries = built.catalog.listed(kind);
        for (at, server) in servers.iter().enumerate() {
            for item in server.listing.as_ref().unwrap().items(kind) {
                let entry = entries.next().unwrap();
                assert_eq!((entry.server, entry.kind), (at, kind));
                let quoted = |text: &str| format!("\"{}\":{}", kind.id_key(), json!(text));
                let expected =
                    String::from_utf8_lossy(item).replacen(&quoted(&entry.local), &quoted(&entry.public), 1);
                assert_eq!(String::from_utf8_lossy(entry.json(Family::Legacy)), expected);
                if kind == ListKind::Resources || kind == ListKind::Templates {
                    assert_eq!(entry.public, entry.local, "unique URIs stay");
                } else {
                    assert_eq!(*entry.public, format!("{}__{}", real[at], entry.local));
                }
            }
        }
        assert!(entries.next().is_none());
    }
    // The same servers again under other names: their URIs collide with the first ones', every name stays apart.
    let twice: Vec<ServerEntry> = servers
        .iter()
        .cloned()
        .chain(
            real.iter()
                .map(|name| server(&format!("other-{name}"), recorded(name))),
        )
        .collect();
    let built = build(&twice);
    assert_eq!(built.warnings, []);
    assert_eq!(
        ListKind::ALL.map(|kind| built.catalog.listed(kind).count()),
        counts.map(|count| count * 2)
    );
    for kind in [ListKind::Resources, ListKind::Templates] {
        for entry in built
            .catalog
            .listed(kind)
            .filter(|entry| entry.server >= real.len())
        {
            assert!(entry.public.starts_with("mcp+other-"), "{}", entry.public);
            let route = built.catalog.completion_resource(&entry.public).unwrap();
            assert_eq!((route.server, &route.local), (entry.server, &entry.local));
        }
    }
}
