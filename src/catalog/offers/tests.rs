use super::*;

fn offers(text: &str) -> Offers {
    Offers::parse(&Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn flags_are_read_as_they_stand() {
    let all = offers(
        r#"{"tools":{"listChanged":true},"prompts":{"listChanged":false},"resources":{"subscribe":true},"completions":{},
            "logging":{},"tasks":{"list":{},"requests":{"tools":{"call":{}}}},"extensions":{"a/b":{"x":1.0}},
            "experimental":{"e":{}}}"#,
    );
    assert!(all.tools && all.prompts && all.resources && all.completions && all.logging);
    assert!(all.tools_changed && !all.prompts_changed && !all.resources_changed && all.subscribe);
    assert_eq!(
        all.tasks,
        Some(CoreTasks {
            list: true,
            cancel: false,
            tool_calls: true
        })
    );
    assert_eq!(
        all.extension("a/b").map(|raw| &raw[..]),
        Some(&b"{\"x\":1.0}"[..])
    );
    assert!(all.announces(ListKind::Tools) && !all.announces(ListKind::Templates));
    let none = offers(r#"{"tools":true,"prompts":null,"resources":[]}"#);
    assert!(!none.tools && !none.prompts && !none.resources);
}

#[test]
fn a_single_server_is_offered_as_it_is() {
    let one = offers(r#"{"tools":{"listChanged":true},"completions":{}}"#);
    let merged = Offered::merge(Family::Legacy, &[Some((Family::Legacy, &one))]);
    assert_eq!(
        merged.to_json(),
        r#"{"tools":{"listChanged":true},"completions":{}}"#
    );
    assert!(!merged.serves(ListKind::Prompts));
}

#[test]
fn unknown_servers_may_offer_any_list() {
    let json =
        r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;
    assert_eq!(Offered::merge(Family::Modern, &[]).to_json(), json);
    let one = offers(r#"{"tools":{}}"#);
    let merged = Offered::merge(Family::Legacy, &[Some((Family::Legacy, &one)), None]);
    assert_eq!(merged.to_json(), json);
}

#[test]
fn tasks_and_extensions_stay_in_their_family() {
    let legacy = offers(
        r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"logging":{}}"#,
    );
    let modern = offers(
        r#"{"resources":{"subscribe":true},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"m":[1]},
            "v/x":{}}}"#,
    );
    let servers = [Some((Family::Legacy, &legacy)), Some((Family::Modern, &modern))];
    assert_eq!(
        Offered::merge(Family::Legacy, &servers).to_json(),
        "{\"tasks\":{\"list\":{},\"cancel\":{},\"requests\":{\"tools\":{\"call\":{}}}},\"tools\":{\"listChanged\":true},\
         \"resources\":{\"listChanged\":true,\"subscribe\":true},\"logging\":{},\
         \"extensions\":{\"io.modelcontextprotocol/ui\":{\"m\":[1]}}}"
    );
    assert_eq!(
        Offered::merge(Family::Modern, &servers).to_json(),
        "{\"tools\":{\"listChanged\":true},\"resources\":{\"listChanged\":true,\"subscribe\":true},\"logging\":{},\
         \"extensions\":{\"io.modelcontextprotocol/tasks\":{},\"io.modelcontextprotocol/ui\":{\"m\":[1]},\"v/x\":{}}}"
    );
}

#[test]
fn an_experimental_capability_of_two_servers_is_nobodys() {
    let one = offers(r#"{"tools":{},"experimental":{"a":{},"b":{"k":1}}}"#);
    let two = offers(r#"{"tools":{},"experimental":{"a":{}}}"#);
    let servers = [Some((Family::Legacy, &one)), Some((Family::Legacy, &two))];
    assert!(
        Offered::merge(Family::Legacy, &servers)
            .to_json()
            .contains(r#""experimental":{"b":{"k":1}}}"#)
    );
}
