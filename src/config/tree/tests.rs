use super::*;

fn shape(node: &Node, text: &str) -> Vec<String> {
    fn walk(node: &Node, text: &str, path: &str, out: &mut Vec<String>) {
        match &node.kind {
            Kind::Map(entries) => {
                for entry in entries {
                    let key = &text[entry.key_mark.range()];
                    let here = format!("{path}/{key}");
                    walk(&entry.value, text, &here, out);
                }
            }
            Kind::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(item, text, &format!("{path}/{index}"), out);
                }
            }
            _ => out.push(format!("{path} = {}", &text[node.mark.range()])),
        }
    }
    let mut out = Vec::new();
    walk(node, text, "", &mut out);
    out
}

#[test]
fn yaml_keeps_order_and_positions() {
    let text = "# hé\nb: {x: 1, \"y\": [true, 'two']}\na:\n  - 1.50\n  - plain text # why\nn: null\n";
    let node = parse(text, Format::Yaml, 0).unwrap();
    assert_eq!(
        shape(&node, text),
        [
            "/b/x = 1",
            "/b/\"y\"/0 = true",
            "/b/\"y\"/1 = 'two'",
            "/a/0 = 1.50",
            "/a/1 = plain text",
            "/n = null"
        ]
    );
}

#[test]
fn toml_keeps_order_and_positions() {
    let text = "b = 1\n[servers.z]\ncommand = \"x\"\nargs = [\"1\", \"2\"]\n[servers.a]\nurl = 'y'\n";
    let node = parse(text, Format::Toml, 0).unwrap();
    assert_eq!(
        shape(&node, text),
        [
            "/b = 1",
            "/servers/z/command = \"x\"",
            "/servers/z/args/0 = \"1\"",
            "/servers/z/args/1 = \"2\"",
            "/servers/a/url = 'y'"
        ]
    );
}

#[test]
fn json_keeps_order_and_positions() {
    let text = "{\"b\": {\"x\": [1, null]}, \"a\": \"\\u0041\"}";
    let node = parse(text, Format::Json, 0).unwrap();
    assert_eq!(
        shape(&node, text),
        [
            "/\"b\"/\"x\"/0 = 1",
            "/\"b\"/\"x\"/1 = null",
            "/\"a\" = \"\\u0041\""
        ]
    );
    assert_eq!(node.get("a").and_then(Node::as_text), Some("A"));
}

#[test]
fn keys_given_twice_are_all_reported() {
    for (text, format) in [
        ("a: 1\nb: {c: 1, c: 2}\na: 2\n", Format::Yaml),
        ("{\"a\":1,\"b\":{\"c\":1,\"c\":2},\"a\":2}", Format::Json),
    ] {
        let problems = parse(text, format, 0).unwrap_err();
        let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(
            messages,
            ["the key `c` is given twice", "the key `a` is given twice"]
        );
        assert!(problems.iter().all(|problem| problem.related.len() == 1));
    }
    assert!(parse("a = 1\na = 2\n", Format::Toml, 0).is_err());
}

#[test]
fn broken_texts_are_one_problem_each() {
    for (text, format) in [
        ("a: [1, 2\nb: 3\n", Format::Yaml),
        ("a:\n\tb: 3\n", Format::Yaml),
        ("a = \n", Format::Toml),
        ("{\"a\": 1,}", Format::Json),
        ("{\"a\": 1", Format::Json),
        ("{} x", Format::Json),
    ] {
        let problems = parse(text, format, 0).unwrap_err();
        assert_eq!(problems.len(), 1, "{text}");
        assert!(problems[0].mark.is_some());
    }
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    for format in [Format::Yaml, Format::Json] {
        assert_eq!(parse(&deep, format, 0).unwrap_err().len(), 1);
    }
}

#[test]
fn empty_files_are_empty_maps() {
    for format in [Format::Yaml, Format::Toml, Format::Json] {
        assert_eq!(parse("", format, 0).unwrap().entries(), []);
    }
    assert_eq!(parse("# nothing\n---\n", Format::Yaml, 0).unwrap().entries(), []);
}
