use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn parse(text: &str) -> Result<StrictValue, StrictFault> {
    StrictValue::parse(text.as_bytes(), StrictLimits::default())
}

#[test]
fn values_are_read() {
    let value = parse(r#" {"a":[1,-2.50e3,true,null,"x\n\ud83d\ude00"],"b":{"c":"d"},"":{}} "#).unwrap();
    let items = value.get("a").and_then(StrictValue::as_array).unwrap();
    assert!(matches!(&items[1], StrictValue::Number(text) if text.as_ref() == "-2.50e3"));
    assert_eq!(items[1].as_decimal(), Decimal::parse("-2500"));
    assert_eq!(items[2].as_bool(), Some(true));
    assert!(items[3].is_null());
    assert_eq!(items[4].as_str(), Some("x\n😀"));
    assert_eq!(value.at(["b", "c"]).and_then(StrictValue::as_str), Some("d"));
    assert!(value.at(["b", "x", "y"]).is_none());
    assert_eq!(value.at([]).map(StrictValue::type_name), Some("object"));
    assert_eq!(
        value.get("").and_then(StrictValue::as_object).map(<[_]>::len),
        Some(0)
    );
}

#[test]
fn equality_is_by_value() {
    assert_eq!(parse(r#"{"a":1,"b":[1e2]}"#), parse(r#"{"b":[100.0],"a":1.0}"#));
    assert_ne!(parse("9007199254740993"), parse("9007199254740992"));
    assert_ne!(parse(r#"{"a":1}"#), parse(r#"{"a":1,"b":1}"#));
    assert_ne!(parse("[1]"), parse("[\"1\"]"));
    assert_eq!(parse("1e99999999999999999999"), parse("1e99999999999999999999"));
}

#[test]
fn keys_given_twice_are_refused_in_any_spelling() {
    let twice = |key: &str, at| {
        Err(StrictFault::DuplicateKey {
            key: key.to_owned(),
            at,
        })
    };
    assert_eq!(parse(r#"{"a":1,"a":1}"#), twice("a", 7));
    assert_eq!(parse(r#"{"path":1,"p\u0061th":2}"#), twice("path", 10));
    assert_eq!(parse(r#"[{"b":{"a":1,"a":2}}]"#), twice("a", 13));
    assert!(parse(r#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
    let many: Vec<String> = (0..1000).map(|n| format!("\"k{n}\":{n}")).collect();
    assert!(parse(&format!("{{{}}}", many.join(","))).is_ok());
    for again in [0, 15, 16, 17, 999] {
        let text = format!("{{{},\"k{again}\":0}}", many.join(","));
        assert!(
            matches!(parse(&text), Err(StrictFault::DuplicateKey { key, .. }) if key == format!("k{again}"))
        );
    }
}

#[test]
fn lone_surrogates_are_refused() {
    for text in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\ud800""#,
        r#""\udc00\ud800""#,
        r#""\ud800x""#,
        r#""\uD83Dx\uDE00""#,
        r#""\\\ud800""#,
    ] {
        assert_eq!(parse(text), Err(StrictFault::LoneSurrogate { at: 0 }), "{text}");
    }
    assert!(matches!(
        parse(r#"{"a\ud800":1}"#),
        Err(StrictFault::LoneSurrogate { at: 1 })
    ));
    for text in [
        r#""\ud83d\ude00""#,
        r#""\\ud800""#,
        r#""\ud7ff\ue000""#,
        r#""\\\\ud800""#,
    ] {
        assert!(parse(text).is_ok(), "{text}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nest = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nest(64)).is_ok());
    assert_eq!(parse(&nest(65)), Err(StrictFault::Json(JsonFault::TooDeep(64))));
    assert_eq!(
        parse(&"[".repeat(1_000_000)),
        Err(StrictFault::Json(JsonFault::TooDeep(64)))
    );
}

#[test]
fn ill_formed_text_is_refused() {
    for text in [
        "",
        " ",
        "{",
        "[1,]",
        "{\"a\"}",
        "{} {}",
        "nul",
        "\"a",
        "01",
        "\"\u{1}\"",
    ] {
        assert!(matches!(parse(text), Err(StrictFault::Json(_))), "{text}");
    }
    assert!(matches!(
        StrictValue::parse(b"\"\xff\"", StrictLimits::default()),
        Err(StrictFault::Json(JsonFault::NotUtf8(1)))
    ));
}

/// Whether both readers saw the same.
fn same(ours: &StrictValue, theirs: &Value) -> bool {
    match (ours, theirs) {
        (StrictValue::Null, Value::Null) => true,
        (StrictValue::Bool(a), Value::Bool(b)) => a == b,
        (StrictValue::Number(a), Value::Number(b)) => a.parse::<f64>().ok() == b.as_f64(),
        (StrictValue::String(a), Value::String(b)) => a == b,
        (StrictValue::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (StrictValue::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn what_we_accept_another_reader_understands_alike(
        tokens in proptest::collection::vec(prop_oneof![
            Just("{"), Just("}"), Just("["), Just("]"), Just(","), Just(":"), Just("\"a\""), Just("\"b\""), Just("\"\\u0061\""),
            Just("\"\\ud83d\\ude00\""), Just("\"\\ud83d\""), Just("1"), Just("-0.5e1"), Just("true"), Just("null"), Just(" "),
        ], 0..14),
    ) {
        let text = tokens.concat();
        let theirs = serde_json::from_str::<Value>(&text);
        match parse(&text) {
            Ok(ours) => prop_assert!(same(&ours, &theirs.unwrap()), "{}", text),
            Err(StrictFault::DuplicateKey { .. }) => {}
            Err(_) => prop_assert!(theirs.is_err(), "{}", text),
        }
    }
}
