use super::*;
use proptest::prelude::*;

#[test]
fn plain_values_go_verbatim_and_others_as_base64() {
    for plain in [
        "us-west1",
        "us west 1",
        "",
        "42",
        "=?base64?SGVsbG8=",
        "SGVsbG8=",
        "file:///a/b?c=d",
    ] {
        assert_eq!(encode_value(plain), plain);
        assert_eq!(decode_value(plain.as_bytes()).unwrap(), plain);
    }
    for (text, encoded) in [
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("\tindented", "=?base64?CWluZGVudGVk?="),
        ("é", "=?base64?w6k=?="),
        ("=?base64?SGVsbG8=?=", "=?base64?PT9iYXNlNjQ/U0dWc2JHOD0/PQ==?="),
    ] {
        assert_eq!(encode_value(text), encoded);
        assert_eq!(decode_value(encoded.as_bytes()).unwrap(), text);
    }
    assert_ne!(encode_value("=?BASE64?x?="), "=?BASE64?x?=");
    assert_ne!(encode_value("=?base64?="), "=?base64?=");
}

#[test]
fn whitespace_around_is_ignored_and_bad_values_are_refused() {
    assert_eq!(decode_value(b"  a b\t").unwrap(), "a b");
    assert_eq!(decode_value(b"=?base64?SGVsbG8?="), Err(ValueFault::Base64));
    assert_eq!(decode_value(b"=?base64?SGVs!!!bG8=?="), Err(ValueFault::Base64));
    assert_eq!(decode_value(b"=?base64?/w==?="), Err(ValueFault::NotUtf8));
    assert_eq!(decode_value("é".as_bytes()), Err(ValueFault::Characters));
    assert_eq!(decode_value(b"a\x01b"), Err(ValueFault::Characters));
    assert_eq!(
        decode_value(b"=?BASE64?SGVsbG8=?=").unwrap(),
        "=?BASE64?SGVsbG8=?="
    );
    assert_eq!(value_is(b"=?base64?SGVsbG8=?=", "Hello"), Ok(true));
    assert_eq!(value_is(b"hello", "Hello"), Ok(false));
}

fn annotations(properties: &str) -> Result<Vec<HeaderParam>, AnnotationFault> {
    HeaderAnnotations::from_schema(format!("{{\"type\":\"object\",\"properties\":{properties}}}").as_bytes())
}

#[test]
fn annotations_are_read_along_properties() {
    let found = annotations(
        r#"{"region":{"type":"string","x-mcp-header":"Region"},
            "x-mcp-header":{"type":"string","description":"\u00e9"},
            "deep":{"type":"object","properties":{"n":{"x-mcp-\u0068eader":"Deep-N","type":"integer"}}},
            "flag":{"type":"boolean","x-mcp-header":"Flag","default":{"x-mcp-header":1},"enum":[{"x-mcp-header":1}]}}"#,
    )
    .unwrap();
    let simple: Vec<_> = found
        .iter()
        .map(|p| (p.header.as_str(), p.path.join("/"), p.kind))
        .collect();
    assert_eq!(
        simple,
        [
            ("mcp-param-region", "region".to_owned(), ParamKind::String),
            ("mcp-param-deep-n", "deep/n".to_owned(), ParamKind::Integer),
            ("mcp-param-flag", "flag".to_owned(), ParamKind::Boolean),
        ]
    );
    assert_eq!(annotations(r#"{"a":{"type":"string"}}"#), Ok(vec![]));
    assert_eq!(
        annotations(r#"{"a":true,"b":{"description":"\u00e9"}}"#),
        Ok(vec![])
    );
    assert_eq!(HeaderAnnotations::from_schema(b"{}"), Ok(vec![]));
}

#[test]
fn each_invalid_annotation_is_refused() {
    let place = |p: &str| AnnotationFault::Place { place: p.to_owned() };
    let kind = |p: &str| AnnotationFault::Kind { place: p.to_owned() };
    for name in [
        "",
        "My Region",
        "Region:Primary",
        "Région",
        "Region\\t1",
        "Region\\u0000",
        "a,b",
        "a\\\"b",
    ] {
        let found = annotations(&format!(r#"{{"v":{{"type":"string","x-mcp-header":"{name}"}}}}"#));
        assert!(
            matches!(found, Err(AnnotationFault::NotToken { .. })),
            "{name}: {found:?}"
        );
    }
    for name in ["1", "null", "true", "[\"Region\"]", "{}"] {
        let found = annotations(&format!(r#"{{"v":{{"type":"string","x-mcp-header":{name}}}}}"#));
        assert_eq!(
            found,
            Err(AnnotationFault::NotText {
                place: "v".to_owned()
            }),
            "{name}"
        );
    }
    for wrong in [
        r#""number""#,
        r#""object""#,
        r#""array""#,
        r#""null""#,
        r#"["string","null"]"#,
        "1",
    ] {
        let found = annotations(&format!(r#"{{"v":{{"type":{wrong},"x-mcp-header":"V"}}}}"#));
        assert_eq!(found, Err(kind("v")), "{wrong}");
    }
    assert_eq!(
        annotations(r##"{"v":{"$ref":"#/x","x-mcp-header":"V"}}"##),
        Err(kind("v"))
    );
    for (first, second) in [("Region", "Region"), ("MyField", "myfield")] {
        let found = annotations(&format!(
            r#"{{"a":{{"type":"string","x-mcp-header":"{first}"}},"b":{{"type":"string","x-mcp-header":"{second}"}}}}"#
        ));
        assert!(matches!(found, Err(AnnotationFault::Duplicate { .. })));
    }
    let twice = annotations(r#"{"a":{"type":"string","x-mcp-header":"A","x-mcp-header":"B"}}"#);
    assert!(matches!(twice, Err(AnnotationFault::NotText { .. })));
    let v = r#"{"type":"string","x-mcp-header":"V"}"#;
    for (around, at) in [
        (format!(r#"{{"l":{{"type":"array","items":{v}}}}}"#), "l.items"),
        (format!(r#"{{"l":{{"prefixItems":[{v}]}}}}"#), "l.prefixItems"),
        (
            format!(r#"{{"l":{{"anyOf":[{{"properties":{{"q":{v}}}}}]}}}}"#),
            "l.anyOf.q",
        ),
        (format!(r#"{{"l":{{"not":{v}}}}}"#), "l.not"),
        (format!(r#"{{"l":{{"$defs":{{"d":{v}}}}}}}"#), "l.d"),
        (format!(r#"{{"l":{{"patternProperties":{{"^a":{v}}}}}}}"#), "l.^a"),
        (
            format!(r#"{{"l":{{"additionalProperties":{v}}}}}"#),
            "l.additionalProperties",
        ),
        (format!(r#"{{"l":{{"made-up":{v}}}}}"#), "l.made-up"),
    ] {
        assert_eq!(annotations(&around), Err(place(at)), "{around}");
    }
    assert_eq!(HeaderAnnotations::from_schema(v.as_bytes()), Err(place("")));
    assert_eq!(
        HeaderAnnotations::from_schema(b"\"x-mcp-header\""),
        Err(AnnotationFault::Schema)
    );
}

#[test]
fn a_schema_as_deep_as_the_limit_allows_is_walked() {
    let deep = format!(
        "{}{}{}",
        r#"{"items":"#.repeat(511),
        r#"{"x-mcp-header":"A"}"#,
        "}".repeat(511)
    );
    let found = HeaderAnnotations::from_schema(deep.as_bytes());
    assert!(matches!(found, Err(AnnotationFault::Place { .. })));
    let deeper = format!(
        "{}{}{}",
        r#"{"items":"#.repeat(50_000),
        r#"{"x-mcp-header":"A"}"#,
        "}".repeat(50_000)
    );
    assert_eq!(
        HeaderAnnotations::from_schema(deeper.as_bytes()),
        Err(AnnotationFault::Schema)
    );
}

fn params() -> Vec<HeaderParam> {
    annotations(
        r#"{"s":{"type":"string","x-mcp-header":"S"},"n":{"type":"integer","x-mcp-header":"N"},
            "b":{"type":"boolean","x-mcp-header":"B"},
            "o":{"type":"object","properties":{"s":{"type":"string","x-mcp-header":"OS"}}}}"#,
    )
    .unwrap()
}

#[test]
fn values_of_a_call() {
    let of = |arguments: &str| {
        values(&params(), arguments.as_bytes())
            .into_iter()
            .map(|(h, v)| format!("{h}: {v}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(r#"{"s":"H\u00e9","n":123456789012345678901234567890,"b":false,"o":{"s":""}}"#),
        [
            "mcp-param-s: =?base64?SMOp?=",
            "mcp-param-n: 123456789012345678901234567890",
            "mcp-param-b: false",
            "mcp-param-os: ",
        ]
    );
    assert_eq!(of(r#"{"s":null,"n":[1],"b":{},"o":null}"#), Vec::<String>::new());
    assert_eq!(of(r#"{"o":7}"#), Vec::<String>::new());
    assert_eq!(of("null"), Vec::<String>::new());
    assert_eq!(of(""), Vec::<String>::new());
}

fn problem(arguments: &str, headers: &[(&str, &str)]) -> Option<MismatchProblem> {
    let lookup = |name: &str| {
        headers
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v.as_bytes())
    };
    check(&params(), arguments.as_bytes(), lookup)
        .err()
        .map(|m| m.problem)
}

#[test]
fn headers_and_body_must_agree() {
    let s = |value| [("mcp-param-s", value)];
    let n = |value| [("mcp-param-n", value)];
    assert_eq!(problem(r#"{"s":"Hello"}"#, &s("=?base64?SGVsbG8=?=")), None);
    assert_eq!(problem(r#"{"s":"Hello"}"#, &s(" Hello ")), None);
    assert_eq!(problem(r#"{"s":"SGVsbG8="}"#, &s("SGVsbG8=")), None);
    assert_eq!(
        problem(r#"{"s":"=?base64?SGVsbG8="}"#, &s("=?base64?SGVsbG8=")),
        None
    );
    assert_eq!(
        problem(r#"{"s":"Hello"}"#, &s("=?base64?SGVsbG8?=")),
        Some(MismatchProblem::Value(ValueFault::Base64))
    );
    assert_eq!(
        problem(r#"{"s":"Hello"}"#, &s("hello")),
        Some(MismatchProblem::Different)
    );
    assert_eq!(problem(r#"{"s":"Hello"}"#, &[]), Some(MismatchProblem::Missing));
    assert_eq!(problem(r#"{"s":""}"#, &[]), Some(MismatchProblem::Missing));
    assert_eq!(problem(r#"{"s":""}"#, &s("")), None);
    assert_eq!(problem(r#"{"s":null}"#, &[]), None);
    assert_eq!(
        problem(r#"{"s":null}"#, &s("x")),
        Some(MismatchProblem::Unexpected)
    );
    assert_eq!(problem("{}", &s("")), Some(MismatchProblem::Unexpected));
    assert_eq!(
        problem(r#"{"s":"a","\u0073":"b"}"#, &s("a")),
        Some(MismatchProblem::Ambiguous)
    );
    for same in ["42", "42.0", "4.2e1", "420E-1"] {
        assert_eq!(problem(r#"{"n":42}"#, &n(same)), None, "{same}");
    }
    for other in ["43", "-42", "0x2a", "042", "+42", "", "forty-two", "42 "] {
        let expected = if other == "42 " {
            None
        } else {
            Some(MismatchProblem::Different)
        };
        assert_eq!(problem(r#"{"n":42}"#, &n(other)), expected, "{other}");
    }
    let big = r#"{"n":123456789012345678901234567890}"#;
    assert_eq!(problem(big, &n("123456789012345678901234567890")), None);
    assert_eq!(
        problem(big, &n("123456789012345678901234567891")),
        Some(MismatchProblem::Different)
    );
    assert_eq!(problem(r#"{"n":-0}"#, &n("0")), None);
    assert_eq!(
        problem(r#"{"n":1e99999999999999999999}"#, &n("1")),
        Some(MismatchProblem::Different)
    );
    assert_eq!(problem(r#"{"b":true}"#, &[("mcp-param-b", "true")]), None);
    assert_eq!(
        problem(r#"{"b":true}"#, &[("mcp-param-b", "True")]),
        Some(MismatchProblem::Different)
    );
}

proptest! {
    #[test]
    fn any_text_survives(text in any::<String>()) {
        let encoded = encode_value(&text).into_owned();
        prop_assert!(encoded.bytes().all(|b| (b' '..=b'~').contains(&b)));
        let decoded = decode_value(encoded.as_bytes());
        prop_assert_eq!(decoded.as_deref(), Ok(text.as_str()));
    }

    #[test]
    fn our_own_headers_agree_with_our_body(s in any::<String>(), n in any::<i64>(), b in any::<bool>()) {
        let arguments = serde_json::json!({"s": s, "n": n, "b": b, "o": {"s": s}}).to_string();
        let sent = values(&params(), arguments.as_bytes());
        prop_assert_eq!(sent.len(), 4);
        let lookup = |name: &str| sent.iter().find(|(h, _)| h == name).map(|(_, v)| v.as_bytes());
        prop_assert_eq!(check(&params(), arguments.as_bytes(), lookup), Ok(()));
    }
}
