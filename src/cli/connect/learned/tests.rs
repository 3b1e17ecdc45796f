use super::Learned;
use crate::wire::Message;
use crate::wire::json::JsonLimits;

fn message(text: &str) -> Message {
    Message::parse(text.to_owned().into(), JsonLimits::default()).unwrap()
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"grüße","arguments":{"region":"eu","n":7}}}"#;

#[test]
fn headers_say_what_the_request_says() {
    let learned = Learned::default();
    let head = learned.headers(&message(CALL), "2026-07-28");
    assert_eq!(head.get("mcp-protocol-version").unwrap(), "2026-07-28");
    assert_eq!(head.get("mcp-method").unwrap(), "tools/call");
    assert!(
        head.get("mcp-name")
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("=?base64?")
    );
    assert!(head.get("mcp-param-region").is_none());
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let head = learned.headers(&message(list), "2026-07-28");
    assert!(head.get("mcp-name").is_none());
}

#[test]
fn parameter_headers_are_learned_and_forgotten_with_the_list() {
    let learned = Learned::default();
    let with = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"grüße","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}"#;
    learned.see(&message(with));
    let head = learned.headers(&message(CALL), "2026-07-28");
    assert_eq!(head.get("mcp-param-region").unwrap(), "eu");
    let without =
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"grüße","inputSchema":{"type":"object"}}]}}"#;
    learned.see(&message(without));
    let head = learned.headers(&message(CALL), "2026-07-28");
    assert!(head.get("mcp-param-region").is_none());
}
