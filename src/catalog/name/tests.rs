use proptest::prelude::*;
use std::collections::HashMap;

use super::*;

fn rules(separator: &str, max_length: usize) -> NameRules {
    NameRules {
        separator: separator.into(),
        max_length,
    }
}

fn public(server: &str, local: &str) -> String {
    let rules = NameRules::default();
    rules
        .public_name(&rules.prefix(server, None), local)
        .text
        .to_string()
}

fn is_legal_name(name: &str, limit: usize) -> bool {
    !name.is_empty() && name.len() <= limit && name.chars().all(is_legal)
}

#[test]
fn short_legal_names_are_untouched() {
    assert_eq!(public("files", "read_file"), "files__read_file");
    assert_eq!(public("my-db", "a-b_C9"), "my-db__a-b_C9");
}

#[test]
fn illegal_characters_are_replaced_and_names_stay_distinct() {
    let names: Vec<String> = ["a.b", "a_b", "a/b", "a b", "a..b", "", "ä", "数据"]
        .iter()
        .map(|local| public("s", local))
        .collect();
    for (at, name) in names.iter().enumerate() {
        assert!(is_legal_name(name, 48), "{name}");
        assert!(!names[..at].contains(name), "{name} twice");
    }
    assert_eq!(names[1], "s__a_b");
    assert!(names[0].starts_with("s__a_b_"));
}

#[test]
fn over_long_names_are_shortened_after_escaping() {
    let long = "x".repeat(60);
    let name = public("service-catalog", &long);
    assert_eq!(name.len(), 48);
    assert!(name.starts_with("service-catalog__xxx"), "{name}");
    assert_ne!(name, public("service-catalog", &"x".repeat(61)));
    // 48 fits exactly, 49 does not.
    assert_eq!(public("s", &"x".repeat(45)), format!("s__{}", "x".repeat(45)));
    assert!(public("s", &"x".repeat(46)).len() == 48);
}

#[test]
fn a_long_prefix_leaves_room_for_the_name() {
    let name = public("vendor.product-documentation-mcp-server", "read_documentation");
    assert!(is_legal_name(&name, 48), "{name}");
    assert!(
        name.starts_with("vendor_product-") && name.contains("__read_documentation_"),
        "{name}"
    );
}

#[test]
fn server_keys_of_any_script_become_safe_distinct_prefixes() {
    let rules = NameRules::default();
    let keys = [
        "数据",
        "naïve café",
        "🦀",
        "🦊",
        "a__b",
        "a_",
        "_",
        "",
        "a b",
        "a.b",
        "a_b",
    ];
    let mut seen = HashMap::new();
    for key in keys {
        let prefix = rules.prefix(key, None);
        assert!(prefix.text().is_some_and(|t| t.chars().all(is_legal)), "{prefix}");
        assert_eq!(prefix, rules.prefix(key, None));
        if let Some(other) = seen.insert(prefix.clone(), key) {
            panic!("{key} and {other} share the prefix {prefix}");
        }
    }
    assert_eq!(rules.prefix("a_b", None).to_string(), "a_b");
    assert_eq!(rules.prefix("数据", Some("data")).to_string(), "data");
}

#[test]
fn an_empty_prefix_leaves_names_exactly_as_they_are() {
    let rules = NameRules::default();
    let none = rules.prefix("files", Some(""));
    assert!(none.is_none());
    let long = format!("a.b/c {}", "x".repeat(100));
    let name = rules.public_name(&none, &long);
    assert_eq!((&*name.text, name.altered), (&*long, false));
}

#[test]
fn a_separator_inside_a_server_key_never_yields_equal_names() {
    let dash = rules("-", 48);
    let first = dash.public_name(&dash.prefix("ctx", None), "resolve-library-id");
    let second = dash.public_name(&dash.prefix("ctx-resolve", None), "library-id");
    assert_eq!(&*first.text, "ctx-resolve-library-id");
    assert_ne!(first.text, second.text);
    assert_ne!(public("a", "b__c"), public("a__b", "c"));
    assert_ne!(public("a_", "b"), public("a", "_b"));
    assert_ne!(public("my", "db_execute_sql"), public("my_db", "execute_sql"));
}

#[test]
fn scheme_labels_are_legal_and_distinct() {
    assert_eq!(scheme_label("files"), "files");
    let labels = ["my_db", "my-db", "My-db", "数据", "🦀"].map(scheme_label);
    for (at, label) in labels.iter().enumerate() {
        assert!(
            label
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        );
        assert!(!labels[..at].contains(label), "{label}");
    }
}

proptest! {
    #[test]
    fn names_are_legal_short_stable_and_distinct(
        separator in prop::sample::select(vec!["__", "-", "_", "--", "_-", ".", "x", "ab", "_______--"]),
        limit in 16usize..80,
        pairs in prop::collection::hash_set(("[ab_.\\-]{1,6}|\\PC{0,70}", "[ab_.\\-/]{0,8}|\\PC{0,90}"), 2..30),
    ) {
        let rules = rules(separator, limit);
        let mut seen: HashMap<Arc<str>, (String, String)> = HashMap::new();
        for (server, local) in pairs {
            let name = rules.public_name(&rules.prefix(&server, None), &local);
            prop_assert!(is_legal_name(&name.text, rules.limit()), "{}", name.text);
            prop_assert_eq!(&name, &rules.public_name(&rules.prefix(&server, None), &local));
            let pair = (server, local);
            if let Some(other) = seen.insert(name.text.clone(), pair.clone()) {
                return Err(TestCaseError::fail(format!("{other:?} and {pair:?} are both {}", name.text)));
            }
        }
    }
}
