use proptest::prelude::*;

use super::*;

fn matches(template: &str, uri: &str) -> bool {
    Template::parse(template).is_some_and(|t| t.matches(uri))
}

#[test]
fn simple_values_stay_within_a_segment() {
    assert!(matches("db://{table}/{id}", "db://users/17"));
    assert!(matches(
        "demo://resource/dynamic/text/{resourceId}",
        "demo://resource/dynamic/text/1"
    ));
    for no in [
        "db://users",
        "db://users/",
        "db:///17",
        "db://users/17/x",
        "db://users/17?x",
        "xdb://users/17",
    ] {
        assert!(!matches("db://{table}/{id}", no), "{no}");
    }
    assert!(matches("file:///{a}.txt", "file:///a.b.txt"));
    assert!(!matches("File:///{a}", "file:///a"), "case counts");
}

#[test]
fn operators_of_the_standard() {
    assert!(matches("file:///{+path}", "file:///a/b/c"));
    assert!(!matches("file:///{+path}", "file:///"));
    assert!(matches("s://x{/a,b}", "s://x/1/2") && matches("s://x{/a,b}", "s://x"));
    assert!(!matches("s://x{/a,b}", "s://x/1/2/3"));
    assert!(matches("s://x{/a*}", "s://x/1/2/3"));
    assert!(matches("s://x{?q,n}", "s://x?q=1&n=2") && matches("s://x{?q,n}", "s://x"));
    assert!(!matches("s://x{?q}", "s://xy"));
    assert!(matches("s://x?a=1{&b}", "s://x?a=1&b=2"));
    assert!(matches("s://x{#f}", "s://x#a/b") && matches("s://x{.e}", "s://x.json"));
    assert!(matches("s://x{;p}", "s://x;p=1"));
}

#[test]
fn odd_templates_are_refused_or_literal() {
    for bad in [
        "{", "}", "a{}b", "a{b", "a}b", "{a}}", "{!x}", "{a b}", "{{a}}", "{+}",
    ] {
        assert_eq!(Template::parse(bad), None, "{bad}");
    }
    assert!(matches("plain://x", "plain://x"));
    assert_eq!(Template::parse(&"x".repeat(LONGEST_TEMPLATE + 1)), None);
    assert!(!matches("{+a}", &"x".repeat(LONGEST_URI + 1)));
    assert_eq!(Template::parse("db://{a}/x").map(|t| t.literal_length()), Some(7));
}

#[test]
fn hostile_templates_cost_no_more_than_length_times_length() {
    let template = Template::parse(&"{+a}".repeat(128)).unwrap();
    assert!(template.matches(&"a".repeat(LONGEST_URI)));
    let template = Template::parse(&format!("{}b", "{+a}".repeat(100))).unwrap();
    assert!(!template.matches(&"a".repeat(LONGEST_URI)));
}

proptest! {
    #[test]
    fn what_a_template_expands_to_it_matches(parts in prop::collection::vec(("[a-z:/.]{0,6}", "[a-zA-Z0-9%_~.-]{1,8}"), 0..6)) {
        let template: String = parts.iter().map(|(literal, _)| format!("{literal}{{v}}")).collect();
        let uri: String = parts.iter().map(|(literal, value)| format!("{literal}{value}")).collect();
        prop_assert!(matches(&template, &uri), "{template} {uri}");
    }

    #[test]
    fn never_panics(template in "\\PC{0,40}", uri in "\\PC{0,40}") {
        let _ = matches(&template, &uri);
    }
}
