//! Arbitrary bytes as a message: accepted exactly when another reader accepts them, spans that hold, splices that
//! parse again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use manifold::wire::json::{Scanner, check_utf8, items, kind_of, members, quote, unquote};
use manifold::wire::{JsonFault, JsonLimits, Kind, Member, Message, Splice};
use serde_json::value::RawValue;

const LIMITS: JsonLimits = JsonLimits { depth: 64 };

fuzz_target!(|data: &[u8]| {
    let scanned = check_utf8(data).and_then(|()| {
        let mut scanner = Scanner::new(data, LIMITS);
        let span = scanner.value()?;
        scanner.end().map(|()| span)
    });
    let theirs = serde_json::from_slice::<&RawValue>(data);
    match scanned {
        Ok(span) => {
            assert_eq!(theirs.expect("we accept what they refuse").get(), span.text(data));
            assert!(kind_of(data).is_some());
            for member in members(data, span) {
                let _ = unquote(member.key.of(data));
            }
            let _ = items(data, span);
        }
        Err(JsonFault::TooDeep(_)) => {}
        Err(_) => assert!(theirs.is_err(), "we refuse what they accept"),
    }
    let bytes = Bytes::copy_from_slice(data);
    let _ = Message::split_batch(&bytes, LIMITS);
    let Ok(message) = Message::parse(bytes, LIMITS) else {
        return;
    };
    assert!(scanned.is_ok());
    edit(&message);
});

fn edit(message: &Message) {
    let mut splice = Splice::new();
    if let Some(id) = message.id_span() {
        splice.replace(id, "77");
    }
    if let Some(name) = message.span(Member::Name) {
        splice.replace(name, quote("new\"name"));
    }
    let payload = message.payload().filter(|_| message.payload_is_object());
    if let Some(payload) = payload {
        splice.insert_members(message.bytes(), payload, "\"x-fuzz\":[]");
    }
    let spliced = splice.apply(message.bytes()).into_bytes();
    let again = Message::parse(spliced, LIMITS).expect("a splice keeps a message a message");
    assert_eq!(again.kind(), message.kind());
    assert_eq!(again.method(), message.method());
    assert_eq!(again.raw(Member::Arguments), message.raw(Member::Arguments));
    if message.span(Member::Name).is_some() {
        assert_eq!(again.text(Member::Name).as_deref(), Some("new\"name"));
    }
    if message.kind() == Kind::Request {
        assert_eq!(again.wire_id().map(|id| id.0), Some(77));
    }
    if let Some(meta) = message.noted(Member::Meta) {
        let mut splice = Splice::new();
        splice.remove_member(message.bytes(), meta);
        let without = splice.apply(message.bytes()).into_bytes();
        let without = Message::parse(without, LIMITS).expect("removing a member keeps a message a message");
        assert!(without.noted(Member::Meta).is_none());
        assert_eq!(without.raw(Member::Arguments), message.raw(Member::Arguments));
    }
}
