//! What needs the bridge between the families, until it is there: a clear error that names what is missing, never silence.

use serde_json::json;

use crate::support::{Fake, Host, HostKind, Options, ServerKind, Setup, until};

fn asking(kind: ServerKind) -> Fake {
    super::traps::asking("one", kind)
}

/// A legacy server that asks in mid-call of a modern host: the server gets an error at once, the host an answer.
#[test]
fn a_legacy_server_asks_a_modern_host() {
    for server in [ServerKind::StdioLegacy, ServerKind::HttpLegacy] {
        let fake = asking(server);
        let daemon = Setup::of(&[&fake]).start();
        let host = Host::with(&daemon, HostKind::HttpModern, Options::asking());
        host.wait_tool("one__ask");
        let answer = host.call("one__ask", r#"{"text":"x"}"#);
        assert!(
            answer.raw.contains("error"),
            "the refusal is visible: {}",
            answer.raw
        );
        assert!(
            host.matching(|seen| seen.is_request()).is_empty(),
            "a modern host never gets a request"
        );
        host.call("one__echo", "{}").result();
    }
}

/// A modern server that answers `input_required` to a call of a legacy host.
#[test]
fn a_modern_server_needs_input_of_a_legacy_host() {
    for server in [ServerKind::StdioModern, ServerKind::HttpModern] {
        let fake = asking(server);
        let daemon = Setup::of(&[&fake]).start();
        let host = Host::with(&daemon, HostKind::Http, Options::asking());
        host.respond(|_| Some(r#""result":{"action":"accept","content":{}}"#.into()));
        host.wait_tool("one__ask");
        let answer = host.call("one__ask", r#"{"text":"x"}"#);
        if answer.value.get("result").is_some() {
            // The bridge is there: then the call completes as if both were of one family.
            assert_eq!(
                answer.result()["structuredContent"]["text"],
                "x",
                "{}",
                answer.raw
            );
            assert!(!answer.raw.contains("input_required"), "{}", answer.raw);
        } else {
            assert_eq!(
                answer.error()["data"]["manifold"]["server"],
                "one",
                "{}",
                answer.raw
            );
            assert!(
                answer.error()["message"].as_str().unwrap().len() > 20,
                "says what is missing: {}",
                answer.raw
            );
        }
        host.call("one__echo", "{}").result();
    }
}

/// A subscription across the families is answered, one way or the other.
#[test]
fn a_subscription_across_the_families() {
    let fake = Fake::new("one", ServerKind::StdioModern).resource("file:///r");
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    until("the resource is listed", || {
        (host.list("resources/list", "resources").len() == 1).then_some(())
    });
    let answer = host.request("resources/subscribe", r#"{"uri":"file:///r"}"#);
    if answer.value.get("error").is_some() {
        assert_eq!(
            answer.error()["data"]["manifold"]["server"],
            "one",
            "{}",
            answer.raw
        );
    }
    host.request("resources/read", r#"{"uri":"file:///r"}"#).result();
}

/// Results and errors carry what the host's revision owns, and not what only the server's knows.
#[test]
fn results_wear_the_hosts_revision() {
    let legacy = Fake::new("legacy", ServerKind::StdioLegacy)
        .resource("file:///l")
        .tool(
            "t",
            json!([{ "result": r#"{"content":[],"structuredContent":{"n":1.10}}"# }]),
        );
    let modern = Fake::new("modern", ServerKind::HttpModern)
        .resource("file:///m")
        .tool(
            "t",
            json!([{ "result": r#"{"resultType":"complete","content":[],"structuredContent":{"n":1.10}}"# }]),
        );
    let daemon = Setup::of(&[&legacy, &modern]).start();
    let old = Host::connect(&daemon, HostKind::Http);
    let new = Host::connect(&daemon, HostKind::HttpModern);
    old.wait_tools("both", |names| names.len() == 2);
    for name in ["legacy__t", "modern__t"] {
        let to_old = old.call(name, "{}");
        assert!(to_old.result().get("resultType").is_none(), "{}", to_old.raw);
        assert!(
            to_old.raw.contains(r#""structuredContent":{"n":1.10}"#),
            "{}",
            to_old.raw
        );
        let to_new = new.call(name, "{}");
        assert_eq!(to_new.result()["resultType"], "complete", "{}", to_new.raw);
        assert!(
            to_new.raw.contains(r#""structuredContent":{"n":1.10}"#),
            "{}",
            to_new.raw
        );
    }
    // A resource that is not there: the code that the host's revision knows.
    assert_eq!(
        old.request("resources/read", r#"{"uri":"file:///none"}"#).code(),
        -32002
    );
    assert_eq!(
        new.request("resources/read", r#"{"uri":"file:///none"}"#).code(),
        -32602
    );
    for uri in ["file:///l", "file:///m"] {
        let read = new.request("resources/read", &format!(r#"{{"uri":"{uri}"}}"#));
        assert!(
            read.result()["ttlMs"].is_u64() && read.result()["cacheScope"].is_string(),
            "{}",
            read.raw
        );
        old.request("resources/read", &format!(r#"{{"uri":"{uri}"}}"#))
            .result();
    }
    // Towards a legacy server none of the keys of the modern hop.
    let sent = legacy.calls("t").pop().unwrap();
    assert!(
        !sent.raw.contains("io.modelcontextprotocol/protocolVersion"),
        "{}",
        sent.raw
    );
}
