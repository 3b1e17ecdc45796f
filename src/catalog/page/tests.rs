use serde_json::Value;
use std::sync::Arc;

use super::*;
use crate::catalog::listing::Listing;
use crate::catalog::merge::ServerEntry;
use crate::catalog::merge::tests::{build, listing, server, tool, tools};
use crate::policy::CompiledPolicy;
use crate::revision::Revision;

fn many(count: usize) -> Vec<ServerEntry> {
    let names: Vec<String> = (0..count).map(|n| format!("t{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    vec![server("s", tools(&names))]
}

fn request(family: Family, cursor: Option<&[u8]>, page_size: usize) -> ListRequest<'_> {
    ListRequest {
        kind: ListKind::Tools,
        family,
        cursor,
        page_size,
        now_ms: 0,
    }
}

fn parse(out: Outgoing) -> Value {
    serde_json::from_slice(&out.into_bytes()).unwrap()
}

#[test]
fn a_legacy_list_is_the_items_and_nothing_else() {
    let catalog = build(&[server("s", tools(&["a", "b"]))]).catalog;
    let out = catalog
        .list(request(Family::Legacy, None, 0), &Sealer::random())
        .unwrap();
    let text = String::from_utf8(out.into_bytes().to_vec()).unwrap();
    let item = |name: &str| tool(name).to_string();
    assert_eq!(text, format!("{{\"tools\":[{},{}]}}", item("s__a"), item("s__b")));
    let empty = catalog
        .list(
            ListRequest {
                kind: ListKind::Templates,
                ..request(Family::Legacy, None, 0)
            },
            &Sealer::random(),
        )
        .unwrap();
    assert_eq!(&empty.into_bytes()[..], b"{\"resourceTemplates\":[]}");
}

#[test]
fn a_modern_list_carries_what_its_revision_asks_for() {
    let catalog = build(&many(3)).catalog;
    let list = parse(
        catalog
            .list(request(Family::Modern, None, 0), &Sealer::random())
            .unwrap(),
    );
    assert_eq!(list["resultType"], "complete");
    assert_eq!(list["ttlMs"], 0);
    assert_eq!(list["cacheScope"], "private");
    assert_eq!(
        list["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "manifold"
    );
    assert_eq!(list["tools"].as_array().unwrap().len(), 3);
}

#[test]
fn a_list_that_is_equal_for_both_families_is_kept_once() {
    let catalog = build(&many(3)).catalog;
    let legacy = catalog
        .list(request(Family::Legacy, None, 0), &Sealer::random())
        .unwrap();
    let modern = catalog
        .list(request(Family::Modern, None, 0), &Sealer::random())
        .unwrap();
    assert_eq!(legacy.pieces()[0].as_ptr(), modern.pieces()[0].as_ptr());
}

#[test]
fn pages_walk_to_the_end_once() {
    let catalog = build(&many(25)).catalog;
    let sealer = Sealer::random();
    for family in [Family::Legacy, Family::Modern] {
        let (mut seen, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let raw = cursor.as_ref().map(|c| quote(c));
            let raw = raw.as_ref().map(|r| r.as_bytes());
            let page = parse(catalog.list(request(family, raw, 10), &sealer).unwrap());
            seen.extend(
                page["tools"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|t| t["name"].clone()),
            );
            pages += 1;
            match page["nextCursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        assert_eq!((pages, seen.len()), (3, 25));
        assert_eq!(seen[24], "s__t24");
    }
    let exact = parse(catalog.list(request(Family::Legacy, None, 25), &sealer).unwrap());
    assert!(exact.get("nextCursor").is_none(), "no empty last page");
}

#[test]
fn foreign_cursors_are_refused() {
    let catalog = build(&many(25)).catalog;
    let sealer = Sealer::random();
    let first = parse(catalog.list(request(Family::Legacy, None, 10), &sealer).unwrap());
    let good = quote(first["nextCursor"].as_str().unwrap());
    assert!(
        catalog
            .list(request(Family::Legacy, Some(good.as_bytes()), 0), &sealer)
            .is_ok()
    );
    let mut changed = good.clone();
    changed.replace_range(20..21, if &good[20..21] == "A" { "B" } else { "A" });
    for bad in [
        "\"\"",
        "\"x\"",
        "5",
        "{}",
        &changed,
        "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"",
    ] {
        for size in [0, 10] {
            let answer = catalog.list(request(Family::Legacy, Some(bad.as_bytes()), size), &sealer);
            assert_eq!(answer.map(|_| ()), Err(CursorFault), "{bad}");
        }
    }
    assert!(
        catalog
            .list(request(Family::Legacy, Some(b"null"), 0), &sealer)
            .is_ok()
    );
    let other_list = ListRequest {
        kind: ListKind::Prompts,
        ..request(Family::Legacy, Some(good.as_bytes()), 10)
    };
    assert!(catalog.list(other_list, &sealer).is_err());
    assert!(
        catalog
            .list(
                request(Family::Legacy, Some(good.as_bytes()), 10),
                &Sealer::random()
            )
            .is_err()
    );
    let policy = Arc::new(CompiledPolicy::open());
    let newer = Catalog::build(8, &many(25), &crate::catalog::NameRules::default(), &policy, None).catalog;
    assert!(
        newer
            .list(request(Family::Legacy, Some(good.as_bytes()), 10), &sealer)
            .is_err(),
        "another version"
    );
}

fn modern(ttl: u64, public: bool) -> Arc<Listing> {
    let mut listing = Listing::clone(&listing(
        Revision::V2026_07_28,
        &serde_json::json!({"tools": {}}),
        &[(ListKind::Tools, serde_json::json!([tool("a")]))],
    ));
    let list = listing.lists.get_mut(ListKind::Tools);
    (list.ttl_ms, list.public) = (ttl, public);
    Arc::new(listing)
}

#[test]
fn freshness_is_what_is_left_of_the_shortest() {
    let at = |name: &str, listing: Arc<Listing>, read: Option<u64>| ServerEntry {
        read_at_ms: read,
        ..server(name, listing)
    };
    let fresh = |servers: &[ServerEntry], now: u64| build(servers).catalog.freshness(ListKind::Tools, now);
    let a = at("a", modern(5_000, true), Some(1_000));
    let b = at("b", modern(60_000, true), Some(0));
    assert_eq!(fresh(&[a.clone(), b.clone()], 2_000), (4_000, "public"));
    assert_eq!(fresh(&[a.clone(), b.clone()], 9_000), (0, "public"));
    assert_eq!(
        fresh(&[a.clone(), at("c", modern(9, false), Some(2_000))], 2_000),
        (9, "private")
    );
    assert_eq!(
        fresh(&[a.clone(), server("l", tools(&["x"]))], 2_000),
        (0, "private"),
        "a legacy server promises nothing"
    );
    assert_eq!(
        fresh(&[at("a", modern(5_000, true), None)], 2_000),
        (0, "public"),
        "from disk"
    );
    assert_eq!(fresh(&[], 0), (0, "private"));
}
