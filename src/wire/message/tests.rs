use super::*;

fn parse(text: &str) -> Result<Message, ParseError> {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()), JsonLimits::default())
}

#[test]
fn a_call_yields_its_spans() {
    let m = parse(r#" {"jsonrpc":"2.0","id":"a\u0062","method":"tools\/call","params":{"_meta":{"progressToken":7,"x":[1]},"na\u006de":"t","arguments":{"name":"inner"}}} "#).unwrap();
    assert_eq!(m.kind(), Kind::Request);
    assert_eq!(m.id().unwrap(), HostId::from_raw(Bytes::from_static(b"\"ab\"")));
    assert_eq!(m.method().unwrap(), "tools/call");
    assert_eq!(m.text(Member::Name).unwrap(), "t");
    assert_eq!(m.raw(Member::MetaProgressToken).unwrap(), b"7");
    assert_eq!(m.raw(Member::Arguments).unwrap(), br#"{"name":"inner"}"#);
}

#[test]
fn known_keys_twice_are_refused_with_the_id() {
    let e = parse(r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"a","n\u0061me":"b"}}"#)
        .unwrap_err();
    assert_eq!(e.fault, ParseFault::Json(JsonFault::DuplicateKey("name")));
    assert_eq!(e.id.unwrap().raw().as_ref(), b"4");
    for text in [
        r#"{"jsonrpc":"2.0","id":4,"method":"a","method":"b"}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"a","params":{},"params":{"name":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":4,"id":5,"method":"a"}"#,
    ] {
        assert_eq!(parse(text).unwrap_err().fault.code(), -32600, "{text}");
    }
}

#[test]
fn shapes() {
    assert_eq!(
        parse(r#"{"jsonrpc":"2.0","method":"x"}"#).unwrap().kind(),
        Kind::Notification
    );
    assert_eq!(
        parse(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#).unwrap().kind(),
        Kind::Result
    );
    let e = parse(r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}"#).unwrap();
    assert_eq!((e.kind(), e.error_code()), (Kind::Error, Some(-32700)));
    for (text, fault) in [
        ("[]", ParseFault::Batch),
        ("3", ParseFault::NotAnObject),
        (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, ParseFault::Version),
        (r#"{"id":1,"method":"x"}"#, ParseFault::Version),
        (r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, ParseFault::Id),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, ParseFault::Id),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, ParseFault::Method),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}"#,
            ParseFault::Params,
        ),
        (r#"{"jsonrpc":"2.0","id":1}"#, ParseFault::Shape),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            ParseFault::Shape,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","result":{}}"#,
            ParseFault::Shape,
        ),
    ] {
        assert_eq!(parse(text).unwrap_err().fault, fault, "{text}");
    }
    assert_eq!(parse("{\"jsonrpc\"").unwrap_err().fault.code(), -32700);
}

#[test]
fn deep_nesting_is_a_fault_and_not_a_crash() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{}{}}}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(matches!(
        parse(&deep).unwrap_err().fault,
        ParseFault::Json(JsonFault::TooDeep(512))
    ));
    let fine = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{}1{}}}}}"#,
        "[{\"k\":".repeat(200),
        "}]".repeat(200)
    );
    assert!(parse(&fine).is_ok());
}

#[test]
fn ids_compare_by_type_and_value() {
    let id = |t: &'static str| HostId::from_raw(Bytes::from_static(t.as_bytes()));
    assert_ne!(id("1"), id("\"1\""));
    assert_eq!(id("\"a\""), id("\"\\u0061\""));
    assert_eq!(WireId::from_raw(b"12"), Some(WireId(12)));
    for bad in ["\"12\"", "012", "1.0", "-1", "", "1e3"] {
        assert_eq!(WireId::from_raw(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn batches_split() {
    let parts =
        Message::split_batch(&Bytes::from_static(b" [ {\"a\":1} , 2]"), JsonLimits::default()).unwrap();
    assert_eq!(
        parts,
        [Bytes::from_static(b"{\"a\":1}"), Bytes::from_static(b"2")]
    );
}
