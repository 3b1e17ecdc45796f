//! NAM: names; RES: resources and prompts behind one endpoint.

use std::collections::HashSet;

use serde_json::json;

use crate::support::host::names;
use crate::support::{Fake, Host, HostKind, ServerKind, Setup, until};

fn legal(name: &str) -> bool {
    (1..=48).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Every listed name is called and must reach exactly the server and tool that it was listed from.
#[track_caller]
fn each_reaches_its_own(host: &Host, fakes: &[&Fake], locals: &[(&str, &str)]) {
    let listed = host.wait_tools("every tool", |names| names.len() == locals.len());
    assert_eq!(
        listed.iter().collect::<HashSet<_>>().len(),
        locals.len(),
        "{listed:?}"
    );
    for (public, (server, local)) in listed.iter().zip(locals) {
        assert!(legal(public), "{public}");
        let before: Vec<usize> = fakes
            .iter()
            .map(|fake| fake.received("tools/call").len())
            .collect();
        host.call(public, "{}").result();
        for (fake, before) in fakes.iter().zip(before) {
            let calls = fake.received("tools/call");
            if fake.name == *server {
                assert_eq!(calls.len(), before + 1, "{public}");
                assert_eq!(calls.last().unwrap().value["params"]["name"], *local, "{public}");
            } else {
                assert_eq!(calls.len(), before, "{public} also reached {}", fake.name);
            }
        }
    }
}

#[test]
fn nam_1_a_long_tool_name() {
    let long = "a".repeat(60);
    let fake = Fake::new("service-catalog", ServerKind::StdioLegacy)
        .tool(&long, json!([]))
        .tool("short", json!([]));
    let mut daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    each_reaches_its_own(
        &host,
        &[&fake],
        &[("service-catalog", &long), ("service-catalog", "short")],
    );
    let listed = host.tool_names();
    assert_eq!(listed[1], "service-catalog__short");
    drop(host);
    daemon.restart();
    let host = Host::connect(&daemon, HostKind::Http);
    assert_eq!(host.wait_tools("both", |names| names.len() == 2), listed);
}

#[test]
fn nam_2_illegal_characters() {
    let locals = [
        "restart",
        "restart.node",
        "restart_node",
        "a/b",
        "a.b",
        "a_b",
        "with space",
        "ünï",
        "😀",
        "-",
        "tab\t",
    ];
    let one = locals
        .iter()
        .fold(Fake::new("A", ServerKind::StdioLegacy), |fake, name| {
            fake.tool(name, json!([]))
        });
    let two = Fake::new("B", ServerKind::StdioLegacy).tool("ok", json!([]));
    let daemon = Setup::of(&[&one, &two]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    let mut all: Vec<(&str, &str)> = locals.iter().map(|local| ("A", *local)).collect();
    all.push(("B", "ok"));
    each_reaches_its_own(&host, &[&one, &two], &all);
}

#[test]
fn nam_3_names_that_could_be_split_wrongly() {
    let one = Fake::new("my", ServerKind::StdioLegacy)
        .tool("execute_sql", json!([]))
        .tool("db_execute_sql", json!([]))
        .tool("db__execute_sql", json!([]));
    let two = Fake::new("my_db", ServerKind::StdioLegacy).tool("execute_sql", json!([]));
    let daemon = Setup::of(&[&one, &two]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    let all = [
        ("my", "execute_sql"),
        ("my", "db_execute_sql"),
        ("my", "db__execute_sql"),
        ("my_db", "execute_sql"),
    ];
    each_reaches_its_own(&host, &[&one, &two], &all);
}

#[test]
fn nam_4_a_separator_that_names_contain() {
    let one = Fake::new("ctx", ServerKind::StdioLegacy)
        .tool("resolve-library-id", json!([]))
        .tool("x", json!([]));
    let two = Fake::new("ctx-y", ServerKind::StdioLegacy).tool("library-id", json!([]));
    let daemon = Setup::of(&[&one, &two])
        .set("names", json!({ "separator": "-" }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    each_reaches_its_own(
        &host,
        &[&one, &two],
        &[
            ("ctx", "resolve-library-id"),
            ("ctx", "x"),
            ("ctx-y", "library-id"),
        ],
    );
}

#[test]
fn nam_5_without_prefix() {
    let one = Fake::new("A", ServerKind::StdioLegacy)
        .tool("query", json!([]))
        .tool("only_a", json!([]));
    let two = Fake::new("B", ServerKind::StdioLegacy)
        .tool("query", json!([]))
        .tool("only_b", json!([]));
    let daemon = Setup::new()
        .server(&one, json!({ "prefix": "" }))
        .server(&two, json!({ "prefix": "" }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("three", |names| {
        names.len() == 3 && names.contains(&"only_b".to_owned()) && names.contains(&"only_a".to_owned())
    });
    host.call("query", "{}").result();
    host.call("only_a", "{}").result();
    until("a warning names the collision", || {
        daemon
            .process()
            .log
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains("query") && line.contains('A') && line.contains('B'))
            .then_some(())
    });
}

#[test]
fn nam_6_server_names_beyond_ascii() {
    let fakes: Vec<Fake> = ["数据", "naïve café", "🚀"]
        .iter()
        .map(|name| Fake::new(name, ServerKind::StdioLegacy).tool("get", json!([])))
        .collect();
    let all: Vec<&Fake> = fakes.iter().collect();
    let mut daemon = Setup::of(&all).start();
    let host = Host::connect(&daemon, HostKind::Http);
    each_reaches_its_own(
        &host,
        &all,
        &[("数据", "get"), ("naïve café", "get"), ("🚀", "get")],
    );
    let listed = host.tool_names();
    drop(host);
    daemon.restart();
    let host = Host::connect(&daemon, HostKind::Http);
    assert_eq!(
        host.wait_tools("three", |names| names.len() == 3),
        listed,
        "stable over restarts"
    );
}

#[test]
fn nam_7_a_long_server_name_with_dots() {
    let fake = Fake::new("vendor.product-documentation-mcp-server", ServerKind::StdioLegacy)
        .tool("read_documentation", json!([]))
        .tool("x", json!([]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    let server = "vendor.product-documentation-mcp-server";
    each_reaches_its_own(&host, &[&fake], &[(server, "read_documentation"), (server, "x")]);
}

#[test]
fn res_1_the_same_uri_on_two_servers() {
    for flip in [false, true] {
        let one = Fake::new("a", ServerKind::StdioLegacy)
            .resource("demo://info")
            .item("resources", json!({ "key": "demo://broken", "raw": r#"{"uri":"demo://broken","name":"b"}"#, "steps": [{ "error": r#"{"code":-32002,"message":"gone","data":{"uri":"demo://broken"}}"# }] }));
        let two = Fake::new("b", ServerKind::HttpLegacy).resource("demo://info");
        let order = if flip { [&two, &one] } else { [&one, &two] };
        let daemon = Setup::of(&order).start();
        let host = Host::connect(&daemon, HostKind::Http);
        let uris = until("three resources", || {
            let listed = host.list("resources/list", "resources");
            (listed.len() == 3).then_some(listed)
        });
        let mut read = Vec::new();
        for item in &uris {
            let uri = crate::support::host::raw_member(item, "uri").unwrap();
            let seen = host.request("resources/read", &format!(r#"{{"uri":{uri}}}"#));
            if uri.contains("broken") {
                assert_eq!(seen.code(), -32002, "{}", seen.raw);
            } else {
                read.push(seen.result()["contents"][0]["text"].as_str().unwrap().to_owned());
            }
        }
        read.sort();
        assert_eq!(read, ["a has demo://info", "b has demo://info"]);
    }
}

#[test]
fn res_2_uris_stay_while_they_are_unique() {
    let one = Fake::new("a", ServerKind::StdioLegacy)
        .resource("file:///README.md")
        .template("db://{table}/{id}");
    let two = Fake::echo("b", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&two, &one]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    until("it is listed", || {
        (host.list("resources/list", "resources").len() == 1).then_some(())
    });
    assert_eq!(
        host.list("resources/list", "resources"),
        [r#"{"uri":"file:///README.md","name":"r"}"#]
    );
    assert_eq!(
        host.list("resources/templates/list", "resourceTemplates"),
        [r#"{"uriTemplate":"db://{table}/{id}","name":"t"}"#]
    );
    for uri in ["file:///README.md", "db://users/42"] {
        host.request("resources/read", &format!(r#"{{"uri":"{uri}"}}"#))
            .result();
        assert_eq!(one.wait_received("resources/read").value["params"]["uri"], uri);
    }
}

#[test]
fn res_3_the_same_prompt_on_two_servers() {
    let one = Fake::new("a", ServerKind::StdioLegacy).prompt("summarise");
    let two = Fake::new("b", ServerKind::HttpLegacy).prompt("summarise");
    let daemon = Setup::of(&[&one, &two]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    until("both", || {
        (names(&host.list("prompts/list", "prompts")) == ["a__summarise", "b__summarise"]).then_some(())
    });
    for (name, fake) in [("a__summarise", &one), ("b__summarise", &two)] {
        host.request(
            "prompts/get",
            &format!(r#"{{"name":"{name}","arguments":{{"topic":"\u00e9"}}}}"#),
        )
        .result();
        let got = fake.received("prompts/get");
        assert_eq!(got.len(), 1);
        assert!(got[0].raw.contains(r#"{"topic":"\u00e9"}"#), "{}", got[0].raw);
        host.request("completion/complete", &format!(r#"{{"ref":{{"type":"ref/prompt","name":"{name}"}},"argument":{{"name":"topic","value":"x"}}}}"#)).result();
        assert_eq!(
            fake.received("completion/complete")[0].value["params"]["ref"]["name"],
            "summarise"
        );
    }
}
