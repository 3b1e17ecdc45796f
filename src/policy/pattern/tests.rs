use super::*;
use proptest::prelude::*;

fn name(pattern: &str, server: &str, local: &str) -> bool {
    NamePattern::parse(pattern).unwrap().matches(server, local)
}

#[test]
fn the_first_slash_splits_and_stars_stay_on_their_side() {
    assert!(name("files/write_*", "files", "write_file"));
    assert!(!name("files/write_*", "files", "read_file"));
    assert!(!name("files/*", "other", "write_file"));
    assert!(name("*/delete_*", "db", "delete_row"));
    assert!(name("files/*", "files", "a/b/c"));
    assert!(name("files/a/*", "files", "a/b"));
    // The star of the server part does not reach into the name.
    assert!(!name("*/b", "files", "a/b"));
    assert!(name("{a,b}/x?", "b", "x1"));
}

#[test]
fn look_alikes_match_nothing() {
    for other in [
        "Delete",
        "delete ",
        " delete",
        "delet%65",
        "dеlete",
        "delete\u{200b}",
        "delete\n",
    ] {
        assert!(!name("s/delete", "s", other), "{other:?}");
    }
    assert!(!name("s/delete", "S", "delete"));
}

#[test]
fn faulty_patterns_say_what_is_wrong() {
    for (pattern, part) in [
        ("delete", "*/delete"),
        ("/x", "both sides"),
        ("x/", "both sides"),
        ("a/[", "not a glob"),
        ("a/{b", "not a glob"),
    ] {
        let error = NamePattern::parse(pattern).unwrap_err();
        assert!(error.contains(part), "{pattern}: {error}");
    }
    assert!(
        UriPattern::parse("file:///srv/*")
            .unwrap_err()
            .contains("*/file:///srv/*")
    );
    assert!(NamePattern::parse(&format!("a/{}", "x".repeat(2000))).is_err());
}

fn touches(pattern: &str, uri: &str) -> bool {
    UriPattern::parse(pattern).unwrap().touches(&Uri::new(uri))
}

fn holds(pattern: &str, uri: &str) -> bool {
    UriPattern::parse(pattern).unwrap().holds(&Uri::new(uri))
}

#[test]
fn no_spelling_of_a_uri_walks_around_a_rule() {
    let secret = [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file:/etc/passwd",
        "file://localhost/etc/passwd",
        "file:///srv/../etc/passwd",
        "file:///srv/docs/%2e%2e/%2e%2e/etc/passwd",
        "file:///srv/docs/%252e%252e/../etc/passwd/../../etc/passwd",
        "file:////etc//passwd",
        "file:///%65tc/passwd",
        "file:///srv/..\\etc\\passwd",
        "file:///e\ttc/passwd",
        " file:///etc/passwd",
    ];
    for uri in secret {
        assert!(touches("s/file:///etc/*", uri), "{uri}: {}", normal_form(uri));
        assert!(!holds("s/file:///srv/*", uri), "{uri}: {}", normal_form(uri));
    }
    assert!(touches(
        "s/https://internal.example/*",
        "https://me@INTERNAL.example:443/x"
    ));
    assert!(touches("s/note://Team/*", "note://TEAM/x"));
    assert!(!touches("s/file:///etc/*", "file:///srv/etc/passwd"));
}

#[test]
fn an_allow_holds_for_the_plain_spelling() {
    for (pattern, uri) in [
        ("s/file:///srv/docs/*", "file:///srv/docs/a/b.md"),
        ("s/file:///My%20Docs/*", "file:///My%20Docs/a.md"),
        ("s/note:///a//b", "note:///a//b"),
        ("s/note:///a//*", "note:///a//b"),
        ("s/https://Example.com/*", "https://Example.com/a?b=c"),
        ("s/greeting", "greeting"),
        ("s/*", "anything at all"),
        ("s/memo:Today", "memo:Today"),
        ("s/MEMO:*", "MEMO:Today"),
        ("s/https://example.com", "https://example.com"),
    ] {
        assert!(holds(pattern, uri), "{pattern} {uri}: {}", normal_form(uri));
    }
}

#[test]
fn templates_are_hidden_only_if_nothing_could_pass() {
    let pattern = |text| UriPattern::parse(text).unwrap();
    assert!(pattern("s/*").covers_template("file:///{path}"));
    assert!(pattern("s/file:///secret/*").covers_template("file:///secret/{name}"));
    assert!(pattern("s/file:///secret/*.txt").covers_template("file:///secret/{name}.txt"));
    assert!(!pattern("s/file:///secret/*").covers_template("file:///{path}"));
    assert!(!pattern("s/file:///secret/?").covers_template("file:///secret/{name}"));
    assert!(pattern("s/file:///srv/*").may_match_template("file:///{path}"));
    assert!(pattern("s/*.md").may_match_template("file:///{path}"));
    assert!(!pattern("s/*.md").may_match_template("file:///{path}.txt"));
    assert!(!pattern("s/file:///srv/*").may_match_template("note:///{path}"));
}

proptest! {
    #[test]
    fn any_pattern_is_compiled_or_explained(pattern in "[*?{},!ab/\\[\\]\\\\%2a-]{0,40}", uri in "[ab/%2A{}]{0,12}") {
        if let Ok(pattern) = NamePattern::parse(&pattern) {
            pattern.matches("a", &uri);
        }
        if let Ok(pattern) = UriPattern::parse(&pattern) {
            pattern.touches(&Uri::new(&uri));
            pattern.covers_template(&uri);
            pattern.may_match_template(&uri);
        }
    }

    #[test]
    fn what_an_allow_holds_a_deny_of_the_same_pattern_touches(uri in "[a-c:/.%2eE\\\\]{0,16}", pattern in "[a-c:/*.]{1,8}") {
        if let Ok(pattern) = UriPattern::of_server("s", &pattern) {
            let uri = Uri::new(&uri);
            prop_assert!(!pattern.holds(&uri) || pattern.touches(&uri));
        }
    }

    #[test]
    fn normal_forms_end_and_are_stable_enough(uri in "\\PC{0,40}") {
        let normal = normal_form(&uri);
        prop_assert!(!normal.contains("/../"));
    }
}
