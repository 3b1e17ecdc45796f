//! Names, renames, descriptions, prefixes, collisions, URIs and links.

use serde_json::json;

use crate::support::host::raw_member;
use crate::support::{Fake, Host, HostKind, ServerKind, Setup};

#[test]
fn rename_describe_and_prefix() {
    let fake = Fake::echo("tickets", ServerKind::StdioLegacy)
        .tool("search_all", json!([]))
        .tool("other", json!([]));
    let extra = json!({ "prefix": "tix", "rename": { "search_all": "search" }, "describe": { "search": "Search tickets; prefer \"exact\" ids." } });
    let daemon = Setup::new().server(&fake, extra).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("three", |names| names.len() == 3);
    let tools = host.tools();
    assert_eq!(
        crate::support::host::names(&tools),
        ["tix__echo", "tix__search", "tix__other"]
    );
    assert_eq!(
        tools[1],
        r#"{"name":"tix__search","description":"Search tickets; prefer \"exact\" ids.","inputSchema":{"type":"object"}}"#
    );
    assert_eq!(
        tools[2],
        r#"{"name":"tix__other","description":"does other","inputSchema":{"type":"object"}}"#
    );
    host.call("tix__search", "{}").result();
    assert_eq!(fake.calls("search_all").len(), 1);
}

#[test]
fn an_empty_prefix_leaves_names_as_they_are() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy).tool("with_under__scores", json!([]));
    let daemon = Setup::new().server(&fake, json!({ "prefix": "" })).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("two", |names| names.len() == 2);
    assert_eq!(host.tool_names(), ["echo", "with_under__scores"]);
    host.call("with_under__scores", "{}").result();
}

/// The later comer of two equal names is left out, with a warning and a status entry.
#[test]
fn a_collision_at_run_time() {
    let one = Fake::echo("one", ServerKind::StdioLegacy).tool("only", json!([]));
    let two = Fake::echo("two", ServerKind::StdioLegacy).tool("mine", json!([]));
    let daemon = Setup::new()
        .server(&one, json!({ "prefix": "" }))
        .server(&two, json!({ "prefix": "" }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("three", |names| {
        names.len() == 3 && names.contains(&"mine".to_owned())
    });
    host.call("echo", "{}").result();
    assert_eq!(one.calls("echo").len() + two.calls("echo").len(), 1);
    crate::support::until("a warning that names both", || {
        let log = daemon.process().log.lock().unwrap();
        log.iter()
            .any(|line| line.contains("one") && line.contains("two") && line.contains("echo"))
            .then_some(())
    });
    assert!(
        daemon.status().to_string().contains("echo"),
        "{}",
        daemon.status()
    );
}

/// Two servers whose prefixes would be equal do not load.
#[test]
fn equal_prefixes_do_not_load() {
    let one = Fake::echo("a b", ServerKind::StdioLegacy);
    let two = Fake::echo("a_b", ServerKind::StdioLegacy);
    let daemon = Setup::new()
        .server(&one, json!({ "prefix": "x" }))
        .server(&two, json!({ "prefix": "x" }))
        .prepare();
    let (code, _, err) = crate::support::process::run(&mut daemon.command(&["serve"]));
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains("a b") && err.contains("a_b"),
        "an error naming both: {err}"
    );
}

/// A URI that two servers list: the earlier keeps it, the later one's is rewritten, and so are links to it.
#[test]
fn colliding_uris() {
    for flip in [false, true] {
        let link = r#"{"content":[{"type":"resource_link","uri":"demo://info","name":"x"},{"type":"resource","resource":{"uri":"demo://info","text":"t"}},{"type":"text","text":"demo://info"}]}"#;
        let one = Fake::new("one", ServerKind::StdioLegacy)
            .resource("demo://info")
            .resource("demo://one")
            .tool("link", json!([{ "result": link }]));
        let two = Fake::new("two", ServerKind::StdioLegacy)
            .resource("demo://info")
            .resource("demo://two")
            .tool("link", json!([{ "result": link }]));
        let (first, second) = if flip { (&two, &one) } else { (&one, &two) };
        let daemon = Setup::of(&[first, second]).start();
        let host = Host::connect(&daemon, HostKind::Http);
        host.wait_tools("both", |names| names.len() == 2);
        let listed: Vec<String> = host
            .list("resources/list", "resources")
            .iter()
            .map(|item| raw_member(item, "uri").unwrap().trim_matches('"').to_owned())
            .collect();
        assert_eq!(listed.len(), 4, "{listed:?}");
        assert_eq!(listed[0], "demo://info");
        assert_ne!(listed[2], "demo://info");
        let read = |uri: &str| host.request("resources/read", &format!(r#"{{"uri":{}}}"#, json!(uri)));
        assert_eq!(
            read(&listed[0]).result()["contents"][0]["text"],
            format!("{} has demo://info", first.name)
        );
        let rewritten = read(&listed[2]);
        assert_eq!(
            rewritten.result()["contents"][0]["text"],
            format!("{} has demo://info", second.name),
            "its own URI on the wire"
        );
        assert_eq!(
            rewritten.result()["contents"][0]["uri"],
            listed[2],
            "{}",
            rewritten.raw
        );
        let linked = host.call(&format!("{}__link", second.name), "{}");
        assert_eq!(linked.result()["content"][0]["uri"], listed[2], "{}", linked.raw);
        assert_eq!(
            linked.result()["content"][1]["resource"]["uri"],
            listed[2],
            "{}",
            linked.raw
        );
        assert_eq!(
            linked.result()["content"][2]["text"],
            "demo://info",
            "text is not ours to change"
        );
        assert_eq!(
            host.call(&format!("{}__link", first.name), "{}").member("result"),
            link
        );
    }
}

#[test]
fn instructions_of_all_servers() {
    let one = Fake::echo("one", ServerKind::StdioLegacy).set("instructions", json!("Use one with care."));
    let two = Fake::echo("two", ServerKind::HttpLegacy).set("instructions", json!("Two is fast."));
    let daemon = Setup::of(&[&one, &two]).start();
    Host::connect(&daemon, HostKind::Http).wait_tools("two", |names| names.len() == 2);
    let host = Host::with(
        &daemon,
        HostKind::Http,
        crate::support::Options {
            silent: true,
            ..Default::default()
        },
    );
    let seen = host.initialize();
    let text = seen.result()["instructions"].as_str().unwrap_or_default();
    assert!(
        text.contains("Use one with care.") && text.contains("Two is fast."),
        "{text:?}"
    );
    assert!(text.contains("one") && text.contains("two"));
    let modern = Host::connect(&daemon, HostKind::HttpModern);
    let text = modern.request("server/discover", "").result()["instructions"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(text.contains("Two is fast."), "{text:?}");
}
