use super::super::json::{member, members};
use super::*;

fn edited(text: &'static str, edit: impl FnOnce(&mut Splice, &[u8], Span)) -> String {
    let bytes = Bytes::from_static(text.as_bytes());
    let mut splice = Splice::new();
    edit(&mut splice, &bytes, Span::new(0, bytes.len()));
    String::from_utf8(splice.apply(&bytes).into_bytes().to_vec()).unwrap()
}

#[test]
fn replacing_keeps_all_other_bytes() {
    let out = edited(r#"{ "a" : 1.10 , "b":[ ] }"#, |s, b, o| {
        s.replace(member(b, o, "b").unwrap(), "7");
    });
    assert_eq!(out, r#"{ "a" : 1.10 , "b":7 }"#);
}

#[test]
fn members_go_in_and_out() {
    assert_eq!(
        edited("{ }", |s, b, o| {
            s.insert_members(b, o, "\"x\":1");
        }),
        "{\"x\":1 }"
    );
    assert_eq!(
        edited("{\"a\":1}", |s, b, o| {
            s.insert_members(b, o, "\"x\":1");
        }),
        "{\"x\":1,\"a\":1}"
    );
    for (text, key, want) in [
        (r#"{"a":1 , "b":2}"#, 0, r#"{ "b":2}"#),
        (r#"{"a":1 , "b":2}"#, 1, r#"{"a":1 }"#),
        (r#"{"a":1}"#, 0, "{}"),
    ] {
        assert_eq!(
            edited(text, |s, b, o| {
                s.remove_member(b, members(b, o)[key]);
            }),
            want
        );
    }
}

#[test]
fn rebuilding_filters_and_prepends() {
    let text = br#"{"a":1,"n\u0061me":2,"c":3}"#;
    let span = Span::new(0, text.len());
    assert_eq!(
        rebuild(text, span, |k| k != "name", "\"x\":0"),
        r#"{"x":0,"a":1,"c":3}"#
    );
    assert_eq!(rebuild(text, span, |_| false, ""), "{}");
}
