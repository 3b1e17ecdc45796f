use super::*;
use std::collections::HashSet;

#[test]
fn names_are_distinct_and_found() {
    let names: HashSet<_> = METHODS.iter().map(|m| m.name).collect();
    assert_eq!(names.len(), METHODS.len());
    for method in METHODS {
        assert_eq!(Method::find(method.name).unwrap().name, method.name);
        assert_eq!(
            method.name.starts_with("notifications/"),
            method.kind == MethodKind::Notification,
            "{}",
            method.name
        );
        assert!(method.until.is_none_or(|until| method.since <= until));
        assert!(method.from_host() || method.from_server());
    }
    assert!(Method::find("TOOLS/LIST").is_none());
    assert!(Method::find("tools/list ").is_none());
}

#[test]
fn removed_and_new_methods() {
    for removed in [
        INITIALIZE,
        PING,
        SET_LEVEL,
        RESOURCES_SUBSCRIBE,
        RESOURCES_UNSUBSCRIBE,
        ROOTS_LIST_CHANGED,
        TASKS_RESULT,
        TASKS_LIST,
    ] {
        let method = Method::find(removed).unwrap();
        assert!(
            method.is_in("2025-11-25") && !method.is_in("2026-07-28"),
            "{removed}"
        );
    }
    for new in [DISCOVER, SUBSCRIPTIONS_LISTEN, TASKS_UPDATE] {
        let method = Method::find(new).unwrap();
        assert!(!method.is_in("2025-11-25") && method.is_in("2026-07-28"), "{new}");
    }
    assert!(!Method::find(ELICIT).unwrap().is_in("2025-03-26"));
}

#[test]
fn the_name_header_repeats_what_the_specification_says() {
    let named: Vec<_> = METHODS
        .iter()
        .filter_map(|m| m.named_by.map(|by| (m.name, by.key())))
        .collect();
    assert_eq!(
        named,
        [
            ("tools/call", "name"),
            ("prompts/get", "name"),
            ("resources/read", "uri"),
            ("tasks/get", "taskId"),
            ("tasks/cancel", "taskId"),
            ("tasks/update", "taskId"),
        ]
    );
}
