use proptest::prelude::*;
use serde_json::Value;

use super::*;

const TOOL: &str = "{\"name\" : \"a\\u002eb\", \"inputSchema\":{ \"type\":\"object\",\"default\":1.10 },\n\"vendor\":[null,{}],\"annotations\":{\"readOnlyHint\":false,\"x\":null}}";

fn item(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn render_as(text: &str, changes: &Changes<'_>, server: Family) -> (String, String) {
    let item = item(text);
    let parsed = parse(ListKind::Tools, &item).unwrap();
    let (legacy, modern) = render(&item, &parsed, changes, server);
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    (text(legacy), text(modern))
}

fn named(public: &str) -> Changes<'_> {
    Changes {
        public: Some(public),
        title: None,
        description: None,
        rewrite: &|_| None,
    }
}

#[test]
fn only_the_name_is_replaced() {
    let (legacy, modern) = render_as(TOOL, &named("s__a_b"), Family::Legacy);
    assert_eq!(legacy, TOOL.replace("\"a\\u002eb\"", "\"s__a_b\""));
    assert_eq!(legacy, modern);
}

#[test]
fn an_untouched_item_is_the_received_bytes() {
    let source = item(TOOL);
    let parsed = parse(ListKind::Tools, &source).unwrap();
    assert_eq!(parsed.local, "a.b");
    let changes = Changes {
        public: None,
        ..named("")
    };
    let (legacy, modern) = render(&source, &parsed, &changes, Family::Modern);
    assert_eq!(legacy.as_ptr(), source.as_ptr());
    assert_eq!(modern.as_ptr(), source.as_ptr());
}

#[test]
fn a_title_is_added_only_where_there_is_none() {
    let changes = Changes {
        title: Some("a.b"),
        ..named("n")
    };
    let (with, _) = render_as(TOOL, &changes, Family::Legacy);
    assert!(with.starts_with("{\"title\":\"a.b\",\"name\" : \"n\""), "{with}");
    let null = TOOL.replace("\"vendor\"", "\"title\":null,\"vendor\"");
    let (kept, _) = render_as(&null, &changes, Family::Legacy);
    assert_eq!(kept.matches("\"title\"").count(), 1, "{kept}");
    let titled = TOOL.replace("\"x\":null", "\"title\":\"T\"");
    let (kept, _) = render_as(&titled, &changes, Family::Legacy);
    assert!(kept.starts_with("{\"name\""), "{kept}");
}

#[test]
fn descriptions_are_replaced_or_added() {
    let changes = Changes {
        description: Some("new \"one\""),
        ..named("n")
    };
    let (added, _) = render_as(TOOL, &changes, Family::Legacy);
    assert!(
        added.starts_with("{\"description\":\"new \\\"one\\\"\",\"name\""),
        "{added}"
    );
    let null = TOOL.replace("\"vendor\"", "\"description\":null,\"vendor\"");
    let (replaced, _) = render_as(&null, &changes, Family::Legacy);
    assert!(
        replaced.contains("\"description\":\"new \\\"one\\\"\",\"vendor\""),
        "{replaced}"
    );
    let described = TOOL.replace("\"vendor\"", "\"description\":\"old\",\"vendor\"");
    let (replaced, _) = render_as(&described, &changes, Family::Legacy);
    assert!(replaced.contains("\"description\":\"new \\\"one\\\"\",\"vendor\"") && !replaced.contains("old"));
}

#[test]
fn task_support_is_for_hosts_that_know_it() {
    let tool = |execution: &str| TOOL.replace("\"vendor\"", &format!("\"execution\":{execution},\"vendor\""));
    let text = tool("{\"taskSupport\":\"required\"}");
    let (legacy, modern) = render_as(&text, &named("n"), Family::Legacy);
    assert!(legacy.contains("taskSupport") && !modern.contains("execution"));
    let (_, modern) = render_as(
        &tool("{\"taskSupport\":\"optional\",\"v\":1}"),
        &named("n"),
        Family::Legacy,
    );
    assert!(modern.contains("\"execution\":{\"v\":1}"), "{modern}");
    let (_, modern) = render_as(&text, &named("n"), Family::Modern);
    assert!(modern.contains("taskSupport"), "a modern server's own words stay");
    let parsed = parse(ListKind::Tools, &item(&text)).unwrap();
    assert_eq!(parsed.facts.task_support, TaskSupport::Required);
    assert_eq!(
        (parsed.facts.read_only, parsed.facts.destructive),
        (Some(false), None)
    );
}

#[test]
fn output_schemas_of_other_types_are_not_for_legacy_hosts() {
    let text = TOOL.replace("\"vendor\"", "\"outputSchema\":{\"type\":\"array\"},\"vendor\"");
    let (legacy, modern) = render_as(&text, &named("n"), Family::Modern);
    assert!(!legacy.contains("outputSchema") && modern.contains("outputSchema"));
    serde_json::from_str::<Value>(&legacy).unwrap();
    assert!(parse(ListKind::Tools, &item(&text)).unwrap().facts.free_output);
    let text = TOOL.replace("\"vendor\"", "\"outputSchema\":{\"type\":\"object\"},\"vendor\"");
    let (legacy, modern) = render_as(&text, &named("n"), Family::Modern);
    assert_eq!(legacy, modern);
}

#[test]
fn interactive_resources_follow_their_rewritten_uri() {
    let text = TOOL.replace(
        "\"vendor\"",
        "\"_meta\":{\"ui\":{\"resourceUri\":\"ui://x\"},\"ui/resourceUri\":\"ui://x\"},\"vendor\"",
    );
    let changes = Changes {
        rewrite: &|uri| (uri == "ui://x").then(|| "mcp+s:ui://x".into()),
        ..named("n")
    };
    let (legacy, _) = render_as(&text, &changes, Family::Legacy);
    assert_eq!(legacy.matches("\"mcp+s:ui://x\"").count(), 2, "{legacy}");
}

#[test]
fn items_that_would_poison_the_list_are_refused() {
    let cases = [
        (ListKind::Tools, "{\"inputSchema\":{\"type\":\"object\"}}"),
        (
            ListKind::Tools,
            "{\"name\":5,\"inputSchema\":{\"type\":\"object\"}}",
        ),
        (
            ListKind::Tools,
            "{\"name\":null,\"inputSchema\":{\"type\":\"object\"}}",
        ),
        (ListKind::Tools, "{\"name\":\"a\"}"),
        (
            ListKind::Tools,
            "{\"name\":\"a\",\"inputSchema\":{\"type\":\"string\"}}",
        ),
        (
            ListKind::Tools,
            "{\"name\":\"a\",\"name\":\"b\",\"inputSchema\":{\"type\":\"object\"}}",
        ),
        (
            ListKind::Tools,
            "{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\"},\"icons\":{}}",
        ),
        (
            ListKind::Tools,
            "{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\"},\"title\":7}",
        ),
        (ListKind::Prompts, "{\"name\":\"a\",\"arguments\":{}}"),
        (ListKind::Resources, "{\"name\":\"a\"}"),
        (ListKind::Resources, "{\"uri\":\"a:b\"}"),
        (ListKind::Templates, "{\"name\":\"a\",\"uri\":\"a:b\"}"),
        (ListKind::Tools, "[]"),
    ];
    for (kind, text) in cases {
        assert!(parse(kind, &item(text)).is_err(), "{text}");
    }
    let nulls = "{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\"},\"title\":null,\"annotations\":null}";
    assert!(parse(ListKind::Tools, &item(nulls)).is_ok());
    assert!(parse(ListKind::Resources, &item("{\"name\":\"a\",\"uri\":\"a:b\"}")).is_ok());
}

proptest! {
    /// Spliced then parsed equals parsed then edited, whatever stands around the name.
    #[test]
    fn splicing_equals_editing(
        local in "\\PC{0,12}",
        public in "[A-Za-z0-9_-]{1,20}",
        describe in prop::option::of("\\PC{0,10}"),
        before in prop::collection::btree_map("[a-z]{9,12}", "\\PC{0,6}", 0..4),
        after in prop::collection::btree_map("[A-Z]{1,6}", any::<i64>(), 0..4),
        described in any::<bool>(),
    ) {
        let mut text = String::from("{");
        for (key, value) in &before {
            text.push_str(&format!("{}: {},", quote(key), quote(value)));
        }
        text.push_str(&format!("\"name\":{} ,\"inputSchema\":{{\"type\":\"object\"}}", quote(&local)));
        if described {
            text.push_str(",\"description\":\"d\"");
        }
        for (key, value) in &after {
            text.push_str(&format!(",{}:{value}", quote(key)));
        }
        text.push('}');
        let changes = Changes { description: describe.as_deref(), ..named(&public) };
        let (legacy, _) = render_as(&text, &changes, Family::Legacy);
        let mut expected: Value = serde_json::from_str(&text).unwrap();
        expected["name"] = public.clone().into();
        if let Some(words) = &describe {
            expected["description"] = words.clone().into();
        }
        prop_assert_eq!(serde_json::from_str::<Value>(&legacy).unwrap(), expected);
    }
}
