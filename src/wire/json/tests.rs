use super::*;
use crate::wire::{Kind, Member, Message, ParseError, Splice};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

const DEEP: JsonLimits = JsonLimits { depth: 512 };

/// The span of the one value in a text.
fn scan(text: &[u8], limits: JsonLimits) -> Result<Span, JsonFault> {
    check_utf8(text)?;
    let mut scanner = Scanner::new(text, limits);
    let span = scanner.value()?;
    scanner.end()?;
    Ok(span)
}

#[test]
fn faults_name_the_place() {
    for (text, fault) in [
        ("", JsonFault::Truncated),
        ("  ", JsonFault::Truncated),
        ("{\"a\":", JsonFault::Truncated),
        ("\"abc", JsonFault::Truncated),
        ("\"a\\", JsonFault::Truncated),
        ("\"\\u12", JsonFault::Truncated),
        ("-", JsonFault::Truncated),
        ("1e", JsonFault::Truncated),
        ("[1,2", JsonFault::Truncated),
        ("tru", JsonFault::Truncated),
        ("\"a\nb\"", JsonFault::Syntax(2)),
        ("\"\\x\"", JsonFault::Syntax(2)),
        ("\"\\u12g4\"", JsonFault::Syntax(5)),
        ("trux", JsonFault::Syntax(3)),
        ("{\"a\" 1}", JsonFault::Syntax(5)),
        ("{a:1}", JsonFault::Syntax(1)),
        ("{\"a\":1,}", JsonFault::Syntax(7)),
        ("[1,]", JsonFault::Syntax(3)),
        ("[1 2]", JsonFault::Syntax(3)),
        ("[}", JsonFault::Syntax(1)),
        ("{]", JsonFault::Syntax(1)),
        ("[{\"a\":[1}]", JsonFault::Syntax(8)),
        ("01", JsonFault::Trailing(1)),
        ("{} x", JsonFault::Trailing(3)),
        (".5", JsonFault::Syntax(0)),
        ("+1", JsonFault::Syntax(0)),
        ("1.e5", JsonFault::Syntax(2)),
        ("\u{feff}1", JsonFault::Syntax(0)),
    ] {
        assert_eq!(scan(text.as_bytes(), DEEP), Err(fault), "{text:?}");
    }
    assert_eq!(scan(b"\"\xff\"", DEEP), Err(JsonFault::NotUtf8(1)));
}

#[test]
fn depth_is_bounded_exactly_and_costs_no_stack() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let per = open.matches(['[', '{']).count();
        for depth in [1, 63, 64, 65, 127, 128, 129, 200] {
            let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let limit = u32::try_from(depth * per).unwrap();
            assert_eq!(
                scan(text.as_bytes(), JsonLimits { depth: limit }),
                Ok(Span::new(0, text.len()))
            );
            assert_eq!(
                scan(text.as_bytes(), JsonLimits { depth: limit - 1 }),
                Err(JsonFault::TooDeep(limit - 1))
            );
        }
        let endless = open.repeat(1_000_000);
        assert_eq!(
            scan(endless.as_bytes(), JsonLimits { depth: u32::MAX }),
            Err(JsonFault::Truncated)
        );
    }
}

#[test]
fn text_decodes_and_encodes() {
    for (quoted, text) in [
        (r#""plain é""#, "plain é"),
        (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
        (r#""\u0041\u00e9\ud83d\ude00""#, "Aé😀"),
        (r#""\ud800""#, "\u{fffd}"),
        (r#""\ud800\u0041""#, "\u{fffd}A"),
        (r#""\ud800\n""#, "\u{fffd}\n"),
        (r#""\udc00\ud800x""#, "\u{fffd}\u{fffd}x"),
        (r#""\\u0041""#, "\\u0041"),
    ] {
        assert_eq!(unquote(quoted.as_bytes()), text, "{quoted}");
    }
    assert_eq!(quote("a\"\\\n\u{1}é"), r#""a\"\\\n\u0001é""#);
}

#[test]
fn numbers_and_members_are_found_as_written() {
    let text = br#" { "a" : [ 1e400 , -0.0 ] , "b":{"a":30}, "\u0061":2 } "#;
    let span = scan(text, DEEP).unwrap();
    assert_eq!(members(text, span).len(), 3);
    assert_eq!(
        member(text, span, "a").unwrap().text(text),
        "2",
        "the last one counts"
    );
    let first = members(text, span)[0].value;
    assert_eq!(
        items(text, first)
            .iter()
            .map(|s| s.text(text))
            .collect::<Vec<_>>(),
        ["1e400", "-0.0"]
    );
    assert_eq!(members(b"[1]", Span::new(0, 3)), []);
}

/// JSON in odd but legal spellings.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?",
        string(),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let item = (space(), inner, space())
            .prop_map(|(a, v, b)| format!("{a}{v}{b}"))
            .boxed();
        let entry =
            (space(), string(), space(), item.clone()).prop_map(|(a, k, b, v)| format!("{a}{k}{b}:{v}"));
        prop_oneof![
            (space(), proptest::collection::vec(item, 0..6)).prop_map(|(s, items)| if items.is_empty() {
                format!("[{s}]")
            } else {
                format!("[{}]", items.join(","))
            }),
            (space(), proptest::collection::vec(entry, 0..6)).prop_map(|(s, all)| if all.is_empty() {
                format!("{{{s}}}")
            } else {
                format!("{{{}}}", all.join(","))
            }),
        ]
    })
}

fn space() -> impl Strategy<Value = String> {
    "[ \t\r\n]{0,2}"
}

fn string() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-z_]{0,12}",
        Just("\\u0061".to_owned()),
        Just("\\n".to_owned()),
        Just("\\\"".to_owned()),
        Just("\\\\".to_owned()),
        Just("\\/".to_owned()),
        Just("\\ud83d\\uDE00".to_owned()),
        Just("\u{2028}é漢😀".to_owned()),
        Just("{}[],: ".to_owned()),
    ];
    proptest::collection::vec(part, 0..5).prop_map(|parts| format!("\"{}\"", parts.concat()))
}

/// One byte changed, added or taken away; the rest of a valid text.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        proptest::sample::select(b"{}[]\",:\\0123456789-+.eEtfnu \n\x00\x1f\x7f\xc3\xa9\xff".to_vec()),
        any::<u8>()
    ];
    (json(), any::<prop::sample::Index>(), byte, 0..3u8).prop_map(|(text, at, byte, how)| {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
        bytes
    })
}

fn agrees_with_another_reader(bytes: &[u8]) -> Result<(), TestCaseError> {
    let theirs = serde_json::from_slice::<&RawValue>(bytes);
    let ours = scan(bytes, DEEP);
    prop_assert_eq!(
        ours.is_ok(),
        theirs.is_ok(),
        "{:?} {:?}",
        ours,
        String::from_utf8_lossy(bytes)
    );
    if let (Ok(span), Ok(raw)) = (ours, theirs) {
        prop_assert_eq!(span.text(bytes), raw.get());
    }
    Ok(())
}

/// Whether the spans of a value lead to what another reader sees in it.
fn spans_are_right(bytes: &[u8], span: Span) -> Result<(), TestCaseError> {
    let value = serde_json::from_slice::<&RawValue>(span.of(bytes));
    prop_assert_eq!(value.map(RawValue::get).ok(), Some(span.text(bytes)));
    match kind_of(span.of(bytes)) {
        Some(ValueKind::Object) => {
            for entry in members(bytes, span) {
                let key: String = serde_json::from_slice(entry.key.of(bytes)).unwrap();
                prop_assert_eq!(unquote(entry.key.of(bytes)), key.as_str());
                spans_are_right(bytes, entry.value)?;
            }
        }
        Some(ValueKind::Array) => {
            let theirs: Vec<&RawValue> = serde_json::from_slice(span.of(bytes)).unwrap();
            let ours = items(bytes, span);
            prop_assert_eq!(ours.len(), theirs.len());
            for item in ours {
                spans_are_right(bytes, item)?;
            }
        }
        Some(ValueKind::String) => {
            let theirs: String = serde_json::from_slice(span.of(bytes)).unwrap();
            prop_assert_eq!(unquote(span.of(bytes)), theirs.as_str());
        }
        _ => {}
    }
    Ok(())
}

/// A call whose parts are spelt oddly, and where the parts are.
fn call() -> impl Strategy<Value = (String, String, String)> {
    (json(), string(), space(), space(), json(), any::<bool>(), string()).prop_map(
        |(arguments, name, a, b, vendor, first, id)| {
            let rest = format!("{a}\"arguments\"{b}:{a}{arguments}{b}");
            let named = format!("{b}\"na\\u006de\"{a}:{b}{name}{a}");
            let params = if first { format!("{named},{rest}") } else { format!("{rest},{named}") };
            let text = format!(
                "{a}{{\"vendor\":{vendor},{b}\"method\"{a}:\"tools/call\",\"params\":{{{params}}},\"id\":{b}{id}{a},\"jsonrpc\":\"2.0\"}}{b}"
            );
            (text, name, arguments)
        },
    )
}

fn parse(text: &str) -> Result<Message, ParseError> {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()), DEEP)
}

/// A tree that keeps the spelling of all leaves and the order of all keys.
fn outline(bytes: &[u8], span: Span) -> String {
    match kind_of(span.of(bytes)) {
        Some(ValueKind::Object) => {
            let all: Vec<String> = members(bytes, span)
                .iter()
                .map(|m| format!("{:?}:{}", unquote(m.key.of(bytes)), outline(bytes, m.value)))
                .collect();
            format!("{{{}}}", all.join(","))
        }
        Some(ValueKind::Array) => {
            format!(
                "[{}]",
                items(bytes, span)
                    .iter()
                    .map(|s| outline(bytes, *s))
                    .collect::<Vec<_>>()
                    .join(",")
            )
        }
        _ => span.text(bytes).to_owned(),
    }
}

proptest! {
    #[test]
    fn valid_json_is_accepted_and_its_spans_are_right(text in json()) {
        agrees_with_another_reader(text.as_bytes())?;
        spans_are_right(text.as_bytes(), scan(text.as_bytes(), DEEP).unwrap())?;
    }

    #[test]
    fn damaged_json_is_judged_as_by_another_reader(bytes in mutated()) {
        agrees_with_another_reader(&bytes)?;
    }

    #[test]
    fn any_bytes_are_judged_as_by_another_reader(
        bytes in proptest::collection::vec(proptest::sample::select(b"{}[]\",:\\012-+.eEtrufalsn \n\xc3\xa9".to_vec()), 0..12),
    ) {
        agrees_with_another_reader(&bytes)?;
    }

    #[test]
    fn text_survives(text in any::<String>()) {
        let quoted = quote(&text);
        prop_assert_eq!(unquote(quoted.as_bytes()), text.as_str());
        prop_assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
    }

    #[test]
    fn splicing_then_parsing_is_parsing_then_editing((text, name, arguments) in call(), new_name in any::<String>(), id in any::<u64>()) {
        let message = parse(&text).unwrap();
        prop_assert_eq!(message.kind(), Kind::Request);
        prop_assert_eq!(message.text(Member::Name).unwrap(), unquote(name.as_bytes()));
        prop_assert_eq!(message.raw(Member::Arguments).unwrap(), arguments.as_bytes());

        let mut splice = Splice::new();
        splice.replace(message.span(Member::Name).unwrap(), quote(&new_name));
        splice.replace(message.id_span().unwrap(), id.to_string());
        splice.insert_members(message.bytes(), message.payload().unwrap(), "\"_meta\":{\"progressToken\":1}");
        let spliced = splice.apply(message.bytes());
        let length = spliced.len();
        let spliced = spliced.into_bytes();
        prop_assert_eq!(spliced.len(), length);

        // The edit, made on another reader's tree.
        let mut edited: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if !edited.is_null() {
            edited["params"]["name"] = Value::from(new_name.clone());
            edited["params"]["_meta"] = serde_json::json!({"progressToken": 1});
            edited["id"] = Value::from(id);
            prop_assert_eq!(serde_json::from_slice::<Value>(&spliced).unwrap(), edited);
        }
        // What was not edited is the same to the byte.
        let again = Message::parse(spliced, DEEP).unwrap();
        prop_assert_eq!(again.wire_id().unwrap().0, id);
        prop_assert_eq!(again.text(Member::Name).unwrap(), new_name.as_str());
        prop_assert_eq!(again.raw(Member::Arguments), message.raw(Member::Arguments));
        prop_assert_eq!(again.raw(Member::MetaProgressToken), Some(&b"1"[..]));
        let outer = members(again.bytes(), again.extent());
        prop_assert_eq!(outer[0].value.of(again.bytes()), members(message.bytes(), message.extent())[0].value.of(message.bytes()));
    }

    #[test]
    fn removing_a_member_removes_that_member_only(
        entries in proptest::collection::vec((string(), json()), 1..6),
        which in any::<prop::sample::Index>(),
        a in space(),
        b in space(),
    ) {
        let text: Vec<String> = entries.iter().map(|(k, v)| format!("{a}{k}{b}:{b}{v}{a}")).collect();
        let bytes = Bytes::from(format!("{b}{{{}}}{a}", text.join(",")));
        let span = scan(&bytes, DEEP).unwrap();
        let mut all = members(&bytes, span);
        let chosen = all.remove(which.index(all.len()));
        let mut splice = Splice::new();
        splice.remove_member(&bytes, chosen);
        let left = splice.apply(&bytes).into_bytes();
        let span = scan(&left, DEEP).unwrap();
        let expected: Vec<String> = all.iter().map(|m| format!("{:?}:{}", unquote(m.key.of(&bytes)), outline(&bytes, m.value))).collect();
        prop_assert_eq!(outline(&left, span), format!("{{{}}}", expected.join(",")));
    }
}
