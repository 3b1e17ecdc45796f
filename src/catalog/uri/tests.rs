use serde_json::{Value, json};

use super::*;
use crate::catalog::merge::ServerEntry;
use crate::catalog::merge::tests::{build, build_with, denying, listing, names, resources, server, tools};
use crate::revision::{Family, Revision};

fn to(catalog: &Catalog, uri: &str) -> Option<(usize, String)> {
    catalog
        .resource(uri)
        .map(|route| (route.server, route.local.to_string()))
}

fn two(first: &str, second: &str) -> Vec<ServerEntry> {
    vec![
        server(
            first,
            resources(&["demo://info", "demo://x"], &["db://{table}/{id}"]),
        ),
        server(
            second,
            resources(
                &["demo://info", "demo://y"],
                &["db://{table}/{id}", "db://users/{id}"],
            ),
        ),
    ]
}

#[test]
fn unique_uris_stay_and_the_later_of_two_is_rewritten() {
    for (first, second) in [("a", "my_b"), ("my_b", "a")] {
        let built = build(&two(first, second));
        assert_eq!(built.warnings, []);
        let label = scheme_label(second);
        let rewritten = format!("mcp+{label}:demo://info");
        assert_eq!(
            names(&built.catalog, ListKind::Resources),
            ["demo://info", "demo://x", &rewritten, "demo://y"]
        );
        assert_eq!(
            names(&built.catalog, ListKind::Templates),
            [
                "db://{table}/{id}",
                &format!("mcp+{label}:db://{{table}}/{{id}}"),
                "db://users/{id}"
            ]
        );
        let catalog = &built.catalog;
        assert_eq!(to(catalog, "demo://info"), Some((0, "demo://info".into())));
        assert_eq!(to(catalog, &rewritten), Some((1, "demo://info".into())));
        assert_eq!(
            to(
                catalog,
                &rewritten.to_uppercase().replace("DEMO://INFO", "demo://info")
            ),
            Some((1, "demo://info".into()))
        );
        assert_eq!(to(catalog, "db://t/1"), Some((0, "db://t/1".into())));
        assert_eq!(
            to(catalog, "db://users/1"),
            Some((1, "db://users/1".into())),
            "the most specific template"
        );
        assert_eq!(
            to(catalog, &format!("mcp+{label}:db://t/1")),
            Some((1, "db://t/1".into()))
        );
        assert_eq!(to(catalog, "demo://unknown"), None);
    }
}

#[test]
fn the_only_server_with_resources_answers_for_all_uris() {
    let built = build(&[
        server("a", resources(&["demo://x"], &[])),
        server("b", tools(&["t"])),
    ]);
    assert_eq!(to(&built.catalog, "made:up"), Some((0, "made:up".into())));
    assert_eq!(to(&build(&[server("b", tools(&["t"]))]).catalog, "made:up"), None);
}

#[test]
fn what_is_denied_claims_no_uri_and_lends_no_permission() {
    let servers = [
        server("u", resources(&["file:///policy", "u://x"], &["f://{a}"])),
        server("t", resources(&["file:///policy"], &["f://{a}"])),
    ];
    let built = build_with(&servers, &denying(&[], &["u/*"]), None);
    let route = built.catalog.resource("file:///policy").unwrap();
    assert_eq!((&*route.server_name, route.bound.listed()), ("t", true));
    let route = built.catalog.resource("f://1").unwrap();
    assert_eq!((&*route.server_name, route.bound.listed()), ("t", true));
    let route = built.catalog.resource("u://x").unwrap();
    assert_eq!(
        (&*route.server_name, route.bound.listed()),
        ("u", false),
        "found, to be recorded"
    );
    let route = built.catalog.resource("mcp+u:file:///policy").unwrap();
    assert!(!route.bound.listed(), "the manifold form grants nothing");
    assert_eq!(names(&built.catalog, ListKind::Resources), ["file:///policy"]);
    // The other way round: denied for t, u's stays u's.
    let built = build_with(&servers, &denying(&[], &["t/*"]), None);
    assert_eq!(
        &*built.catalog.resource("file:///policy").unwrap().server_name,
        "u"
    );
    assert!(
        !built
            .catalog
            .resource("mcp+t:file:///policy")
            .unwrap()
            .bound
            .listed()
    );
}

#[test]
fn a_concrete_uri_is_decided_not_its_template() {
    let built = build_with(
        &[server("a", resources(&[], &["db://{t}"]))],
        &denying(&[], &["a/db://secret"]),
        None,
    );
    assert!(built.catalog.resource("db://open").unwrap().bound.listed());
    assert!(!built.catalog.resource("db://secret").unwrap().bound.listed());
}

#[test]
fn completions_name_a_template_by_its_public_text() {
    let built = build(&two("a", "b"));
    let about = |uri: &str| {
        built
            .catalog
            .completion_resource(uri)
            .map(|r| (r.server, r.local.to_string()))
    };
    assert_eq!(about("db://{table}/{id}"), Some((0, "db://{table}/{id}".into())));
    assert_eq!(
        about("mcp+b:db://{table}/{id}"),
        Some((1, "db://{table}/{id}".into()))
    );
    assert_eq!(about("demo://y"), Some((1, "demo://y".into())));
}

fn rewrite(catalog: &Catalog, server: usize, payload: &Value) -> Value {
    let text = Bytes::from(format!("{{\"result\": {payload} }}"));
    let span = member(&text, Span::new(0, text.len()), "result").unwrap();
    let mut splice = crate::wire::Splice::new();
    for (place, with) in catalog.rewrite_links(server, &text, span) {
        splice.replace(place, with);
    }
    let whole: Value = serde_json::from_slice(&splice.apply(&text).into_bytes()).unwrap();
    whole["result"].clone()
}

#[test]
fn links_in_results_follow() {
    let built = build(&two("a", "b"));
    let catalog = &built.catalog;
    let payload = |info: &str, row: &str| {
        json!({
            "contents": [{"uri": info, "text": "demo://info"}, {"uri": "demo://y"}],
            "content": [
                {"type": "resource_link", "uri": info, "name": "demo://info"},
                {"type": "resource", "resource": {"uri": row}, "_meta": {"ui/resourceUri": info}},
                {"type": "text", "text": "demo://info", "uri": "demo://info"}
            ],
            "messages": [{"role": "user", "content": {"type": "resource", "resource": {"uri": info}}}],
            "structuredContent": {"uri": "demo://info"},
            "_meta": {"ui": {"resourceUri": info}},
            "uri": info
        })
    };
    let plain = payload("demo://info", "db://t/1");
    assert_eq!(
        rewrite(catalog, 1, &plain),
        payload("mcp+b:demo://info", "mcp+b:db://t/1")
    );
    assert!(!catalog.rewrites_uris(0));
    assert_eq!(rewrite(catalog, 0, &plain), plain);
    assert_eq!(
        catalog.public_uri(1, "db://users/1"),
        None,
        "leads to b by itself"
    );
    assert_eq!(catalog.public_uri(1, "elsewhere://x"), None);
}

#[test]
fn a_tool_names_its_rewritten_interface() {
    let tool =
        json!({"name": "t", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://app"}}});
    let both = listing(
        Revision::V2025_11_25,
        &json!({"tools": {}, "resources": {}}),
        &[
            (ListKind::Tools, json!([tool])),
            (ListKind::Resources, json!([{"name": "r", "uri": "ui://app"}])),
        ],
    );
    let built = build(&[server("a", both.clone()), server("b", both)]);
    let uri = |name: &str| {
        let tool: Value =
            serde_json::from_slice(built.catalog.tool(name).unwrap().json(Family::Legacy)).unwrap();
        tool["_meta"]["ui"]["resourceUri"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (uri("a__t"), uri("b__t")),
        ("ui://app".into(), "mcp+b:ui://app".into())
    );
}
