//! Policy by name: default, rules, the shorthand, prompts, resources, reverse requests; lists and calls alike.

use serde_json::{Value, json};

use crate::support::host::names;
use crate::support::{Daemon, Fake, Host, HostKind, Options, ServerKind, Setup};

fn fakes() -> (Fake, Fake) {
    let one = Fake::new("one", ServerKind::StdioLegacy)
        .tool("read", json!([]))
        .tool("delete", json!([]))
        .tool("delete_all", json!([]))
        .prompt("public")
        .prompt("secret")
        .resource("file:///public/a")
        .resource("file:///secret/b")
        .template("db://{table}");
    let two = Fake::new("two", ServerKind::StdioLegacy)
        .tool("read", json!([]))
        .tool("delete", json!([]));
    (one, two)
}

fn with_policy(fakes: &(Fake, Fake), policy: Value) -> (Daemon, Host) {
    let daemon = Setup::of(&[&fakes.0, &fakes.1]).set("policy", policy).start();
    let host = Host::connect(&daemon, HostKind::Http);
    (daemon, host)
}

/// A denied name answers as an unknown one and reaches nobody.
#[track_caller]
fn refused(host: &Host, fake: &Fake, name: &str, local: &str) {
    let answer = host.call(name, "{}");
    assert_eq!(answer.code(), -32602, "{name}: {}", answer.raw);
    assert!(fake.calls(local).is_empty(), "{name} reached the server");
}

#[test]
fn deny_by_default_allow_by_rule() {
    let fakes = fakes();
    let (_daemon, host) = with_policy(
        &fakes,
        json!({ "default": "deny", "rules": [{ "id": "r", "effect": "allow", "tools": ["*/read"] }] }),
    );
    host.wait_tools("both reads", |names| names.len() == 2);
    assert_eq!(host.tool_names(), ["one__read", "two__read"]);
    host.call("one__read", "{}").result();
    refused(&host, &fakes.0, "one__delete", "delete");
    refused(&host, &fakes.1, "two__delete", "delete");
    assert!(host.list("prompts/list", "prompts").is_empty());
    assert!(host.list("resources/list", "resources").is_empty());
    host.request("resources/read", r#"{"uri":"file:///public/a"}"#)
        .error();
    host.request("prompts/get", r#"{"name":"one__public"}"#).error();
    assert!(fakes.0.received("resources/read").is_empty() && fakes.0.received("prompts/get").is_empty());
}

#[test]
fn deny_wins_whatever_the_order() {
    for flip in [false, true] {
        let fakes = fakes();
        let mut rules = vec![
            json!({ "id": "a", "effect": "allow", "tools": ["*/*"] }),
            json!({ "id": "d", "effect": "deny", "tools": ["one/delete*"] }),
        ];
        if flip {
            rules.reverse();
        }
        let (_daemon, host) = with_policy(&fakes, json!({ "default": "deny", "rules": rules }));
        host.wait_tools("three", |names| names.len() == 3);
        assert_eq!(host.tool_names(), ["one__read", "two__read", "two__delete"]);
        refused(&host, &fakes.0, "one__delete_all", "delete_all");
        host.call("two__delete", "{}").result();
    }
}

#[test]
fn the_shorthand_of_a_server() {
    let fakes = fakes();
    let daemon = Setup::new()
        .server(&fakes.0, json!({ "tools": { "deny": ["delete*"] } }))
        .server(&fakes.1, json!({ "tools": { "allow": ["read"] } }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("both reads", |names| names.len() == 2);
    assert_eq!(host.tool_names(), ["one__read", "two__read"]);
    refused(&host, &fakes.0, "one__delete", "delete");
    refused(&host, &fakes.1, "two__delete", "delete");
}

/// Rules address (server, local name) and survive a rename.
#[test]
fn a_rename_does_not_escape_a_rule() {
    let fakes = fakes();
    let policy =
        json!({ "default": "allow", "rules": [{ "id": "d", "effect": "deny", "tools": ["one/delete"] }] });
    let daemon = Setup::new()
        .server(
            &fakes.0,
            json!({ "rename": { "delete": "harmless", "read": "fetch" }, "prefix": "uno" }),
        )
        .server(&fakes.1, json!({ "rename": { "delete": "erase" } }))
        .set("policy", policy)
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("four", |names| names.len() == 4);
    assert_eq!(
        host.tool_names(),
        ["uno__fetch", "uno__delete_all", "two__read", "two__erase"]
    );
    for name in ["uno__harmless", "uno__delete", "one__delete", "one__harmless"] {
        refused(&host, &fakes.0, name, "delete");
    }
    host.call("two__erase", "{}").result();
    assert_eq!(fakes.1.calls("delete").len(), 1);
}

#[test]
fn prompts_and_resources_by_name() {
    let fakes = fakes();
    let policy = json!({ "default": "allow", "rules": [
        { "id": "p", "effect": "deny", "prompts": ["one/secret"] },
        { "id": "r", "effect": "deny", "resources": ["*/file:///secret/*"] },
        { "id": "t", "effect": "deny", "resources": ["one/db://salaries"] },
    ] });
    let (_daemon, host) = with_policy(&fakes, policy);
    host.wait_tool("one__read");
    assert_eq!(names(&host.list("prompts/list", "prompts")), ["one__public"]);
    let listed = host.list("resources/list", "resources");
    assert_eq!(listed.len(), 1, "{listed:?}");
    host.request("prompts/get", r#"{"name":"one__secret"}"#).error();
    host.request("prompts/get", r#"{"name":"one__public"}"#).result();
    host.request("resources/read", r#"{"uri":"file:///secret/b"}"#)
        .error();
    host.request("resources/read", r#"{"uri":"file:///public/a"}"#)
        .result();
    host.request("resources/read", r#"{"uri":"db://salaries"}"#)
        .error();
    host.request("resources/read", r#"{"uri":"db://users"}"#).result();
    host.request(
        "completion/complete",
        r#"{"ref":{"type":"ref/prompt","name":"one__secret"},"argument":{"name":"topic","value":""}}"#,
    )
    .error();
    host.request("resources/subscribe", r#"{"uri":"file:///secret/b"}"#)
        .error();
    assert_eq!(fakes.0.received("prompts/get").len(), 1);
    assert_eq!(fakes.0.received("resources/read").len(), 2);
    assert!(
        fakes.0.received("completion/complete").is_empty()
            && fakes.0.received("resources/subscribe").is_empty()
    );
}

/// A denied reverse request never reaches the host; the server gets an error at once.
#[test]
fn reverse_requests_by_kind() {
    let ask = |method: &str, params: &str| json!([{ "ask": [["q", method, params]] }, { "result": r#"{"content":[],"structuredContent":@@ANSWERS@@}"# }]);
    let fake = Fake::new("one", ServerKind::StdioLegacy)
        .tool(
            "elicit",
            ask(
                "elicitation/create",
                r#"{"message":"m","requestedSchema":{"type":"object"}}"#,
            ),
        )
        .tool(
            "sample",
            ask("sampling/createMessage", r#"{"messages":[],"maxTokens":1}"#),
        );
    let policy = json!({ "default": "allow", "rules": [{ "id": "no-sampling", "effect": "deny", "reverse": ["*/sampling"] }] });
    let daemon = Setup::of(&[&fake]).set("policy", policy).start();
    let host = Host::with(&daemon, HostKind::Http, Options::asking());
    host.respond(|_| Some(r#""result":{"action":"accept","content":{}}"#.into()));
    host.wait_tool("one__sample");
    let denied = host.call("one__sample", "{}");
    assert!(
        denied.result()["structuredContent"]["q"]["error"].is_object(),
        "{}",
        denied.raw
    );
    assert!(host.with_method("sampling/createMessage").is_empty());
    let allowed = host.call("one__elicit", "{}");
    assert_eq!(allowed.result()["structuredContent"]["q"]["action"], "accept");
    daemon.wait_audit("the denied reverse request", |record| {
        record.to_string().contains("no-sampling")
    });
}

/// Every way in meets the same rule.
#[test]
fn every_transport_meets_the_same_rule() {
    let policy =
        json!({ "default": "allow", "rules": [{ "id": "d", "effect": "deny", "tools": ["one/delete"] }] });
    for kind in [
        HostKind::Http,
        HostKind::HttpModern,
        HostKind::Stdio,
        HostKind::StdioModern,
    ] {
        let fakes = fakes();
        let daemon = Setup::of(&[&fakes.0])
            .set("policy", policy.clone())
            .for_host(kind);
        let host = Host::connect(&daemon, kind);
        host.wait_tool("one__read");
        for name in ["one__delete", "delete", "two__delete"] {
            refused(&host, &fakes.0, name, "delete");
        }
    }
}

/// A policy without `default` does not start.
#[test]
fn a_policy_needs_its_default() {
    let fakes = fakes();
    let daemon = Setup::of(&[&fakes.0])
        .set("policy", json!({ "rules": [] }))
        .prepare();
    let (code, _, err) = crate::support::process::run(&mut daemon.command(&["serve"]));
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("default"), "{err}");
}
