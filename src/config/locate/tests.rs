use super::*;
use crate::config::tree::{Format, parse};

#[test]
fn the_last_layer_that_has_a_path_is_named() {
    let first = "servers:\n  a:\n    args: [x, y]\n    cwd: /srv\n";
    let second = "servers:\n  a: {cwd: /tmp}\n";
    let layers = [
        parse(first, Format::Yaml, 0).unwrap(),
        parse(second, Format::Yaml, 1).unwrap(),
    ];
    let find = |path: &str, part| {
        let mark = locate(&layers, &KeyPath::parse(path), part).unwrap();
        let text = if mark.source == 0 { first } else { second };
        (mark.source, text[mark.range()].to_owned())
    };
    assert_eq!(find("servers.a.cwd", Part::Value), (1, "/tmp".to_owned()));
    assert_eq!(find("servers.a.cwd", Part::Key), (1, "cwd".to_owned()));
    assert_eq!(find("servers.a.args[1]", Part::Value), (0, "y".to_owned()));
    assert_eq!(find("servers.a.url", Part::Value), (1, "a".to_owned()));
    assert!(locate(&layers, &KeyPath::parse("listen.http"), Part::Value).is_none());
}

#[test]
fn paths_print_as_they_are_written() {
    let path = KeyPath::default().key("servers").key("a.b").key("args").index(2);
    assert_eq!(path.to_string(), "servers.a.b.args[2]");
    assert_eq!(path.pattern(), "servers.*.args.*");
    assert_eq!(
        KeyPath::parse("policy.rules[2].tools[0]").to_string(),
        "policy.rules[2].tools[0]"
    );
}

#[test]
fn columns_count_characters() {
    assert_eq!(line_column("é: x\nñandú: y", 13), (2, 6));
    assert_eq!(line_column("", 5), (1, 1));
}
