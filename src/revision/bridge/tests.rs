//! What each pair of families adds and removes, and that nothing else moves.

use bytes::Bytes;

use super::*;
use crate::wire::JsonLimits;

fn parse(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()), JsonLimits::default()).unwrap()
}

fn outbound(text: &str, host: Family, family: Family, wants_token: bool) -> String {
    let message = parse(text);
    let revision = if family == Family::Modern {
        Revision::newest_modern()
    } else {
        Revision::newest_legacy()
    };
    let meta = OutboundMeta {
        host,
        host_info: ("host", "1"),
        log_level: Some("info"),
        family,
        revision,
        token: Bytes::from_static(b"7"),
        wants_token,
    };
    let mut splice = Splice::new();
    outbound_meta(&message, &meta, &mut splice);
    String::from_utf8(splice.apply(message.bytes()).into_bytes().to_vec()).unwrap()
}

fn inbound(text: &str, host: Family, server: Family, method: &str) -> String {
    let message = parse(text);
    let mut splice = Splice::new();
    inbound_result(&message, host, server, method, &mut splice);
    String::from_utf8(splice.apply(message.bytes()).into_bytes().to_vec()).unwrap()
}

const LEGACY: Family = Family::Legacy;
const MODERN: Family = Family::Modern;

#[test]
fn within_a_family_only_the_token_is_replaced() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{ "_meta" : {"v/x":1.10,"progressToken":"abc"},"name":"t"}}"#;
    assert_eq!(outbound(text, LEGACY, LEGACY, true), text.replace("\"abc\"", "7"));
    assert_eq!(
        outbound(text, MODERN, MODERN, false),
        text.replace("\"abc\"", "7")
    );
}

#[test]
fn a_token_is_added_only_where_it_drives_our_own_limit() {
    let with_meta = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"v":1},"name":"t"}}"#;
    assert_eq!(outbound(with_meta, LEGACY, LEGACY, false), with_meta);
    assert_eq!(
        outbound(with_meta, LEGACY, LEGACY, true),
        with_meta.replace("{\"v\"", "{\"progressToken\":7,\"v\"")
    );
    let without = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    assert_eq!(
        outbound(without, LEGACY, LEGACY, true),
        without.replace("{\"name\"", "{\"_meta\":{\"progressToken\":7},\"name\"")
    );
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#;
    assert_eq!(
        outbound(bare, LEGACY, LEGACY, true),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":7}}}"#
    );
}

#[test]
fn a_legacy_server_gets_no_key_of_the_modern_hop() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","traceparent":"00-a","io.modelcontextprotocol/clientCapabilities":{},"progressToken":3,"io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/logLevel":"debug","vendor/k":[1]}}}"#;
    assert_eq!(
        outbound(text, MODERN, LEGACY, true),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":7,"traceparent":"00-a","vendor/k":[1]}}}"#
    );
}

#[test]
fn a_modern_server_gets_the_context_that_a_legacy_host_cannot_send() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p","_meta":5}}"#;
    let out = parse(&outbound(text, LEGACY, MODERN, false));
    assert_eq!(out.text(Member::MetaProtocolVersion).unwrap(), "2026-07-28");
    assert_eq!(out.raw(Member::MetaClientCapabilities).unwrap(), b"{}");
    assert_eq!(
        out.raw(Member::MetaClientInfo).unwrap(),
        br#"{"name":"host","version":"1"}"#
    );
    assert_eq!(out.text(Member::MetaLogLevel).unwrap(), "info");
    assert_eq!(out.raw(Member::MetaProgressToken), None);
}

#[test]
fn results_get_and_lose_what_one_family_has_alone() {
    let legacy = r#"{"jsonrpc":"2.0","id":1,"result":{"contents":[],"x":1e2}}"#;
    assert_eq!(
        inbound(legacy, MODERN, LEGACY, "resources/read"),
        legacy.replace(
            "{\"contents\"",
            "{\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\",\"contents\""
        )
    );
    assert_eq!(inbound(legacy, LEGACY, LEGACY, "resources/read"), legacy);
    let modern = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"resultType":"complete"}}"#;
    assert_eq!(
        inbound(modern, LEGACY, MODERN, "tools/call"),
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#
    );
    assert_eq!(inbound(modern, MODERN, MODERN, "tools/call"), modern);
}

#[test]
fn error_codes_stay_within_what_a_host_knows() {
    assert_eq!(inbound_error_code(-32002, MODERN), (-32602, false));
    assert_eq!(inbound_error_code(-32063, LEGACY), (-32063, false));
    assert_eq!(inbound_error_code(-32063, MODERN), (-32603, true));
    assert_eq!(inbound_error_code(-32021, MODERN), (-32021, false));
    assert_eq!(inbound_error_code(-32022, LEGACY), (-32603, true));
    assert_eq!(inbound_error_code(-32601, MODERN), (-32601, false));
}

#[test]
fn our_own_requests_carry_the_context() {
    let params = own_params("{}", Revision::newest_modern());
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{params}}}"#);
    assert_eq!(
        parse(&text).text(Member::MetaProtocolVersion).unwrap(),
        "2026-07-28"
    );
    let params = own_params(r#"{"cursor":"a"}"#, Revision::newest_modern());
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{params}}}"#);
    assert_eq!(parse(&text).raw(Member::Cursor).unwrap(), b"\"a\"");
}
