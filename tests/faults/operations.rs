//! OPS: configuration, reload, health, shutdown.

use rustix::process::Signal;
use serde_json::json;

use crate::support::process::run;
use crate::support::{Fake, Host, HostKind, ServerKind, Setup, never, until};

#[test]
fn ops_1_every_way_a_file_changes() {
    let fakes: Vec<Fake> = (0..4)
        .map(|number| Fake::echo(&format!("s{number}"), ServerKind::StdioLegacy))
        .collect();
    let daemon = Setup::of(&[&fakes[0]]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("s0__echo");
    // Renamed over.
    daemon.reconfigure(|setup| setup.server(&fakes[1], json!({})));
    host.wait_tool("s1__echo");
    // Written in place.
    daemon.reconfigure(|setup| setup.server(&fakes[2], json!({})));
    std::fs::write(daemon.path().join("manifold.yaml"), daemon.config_text()).unwrap();
    host.wait_tool("s2__echo");
    // Two edits at once: the last counts.
    daemon.reconfigure(|setup| setup.server(&fakes[3], json!({ "prefix": "first" })));
    daemon.reconfigure(|setup| setup.server(&fakes[3], json!({ "prefix": "last" })));
    host.wait_tool("last__echo");
    host.wait_tools("no trace of the first", |names| {
        !names.iter().any(|name| name.starts_with("first"))
    });
    host.call("s0__echo", "{}").result();
    let starts: Vec<usize> = fakes[..3].iter().map(|fake| fake.pids().len()).collect();
    daemon.process().signal(Signal::HUP);
    daemon.process().signal(Signal::HUP);
    host.call("s0__echo", "{}").result();
    never("a reload without a change restarts something", || {
        fakes[..3]
            .iter()
            .map(|fake| fake.pids().len())
            .collect::<Vec<_>>()
            != starts
    });
}

/// A file that the container's ConfigMap swaps: a link to a folder that is exchanged.
#[test]
fn ops_1_a_config_map_swap() {
    let one = Fake::echo("one", ServerKind::StdioLegacy);
    let two = Fake::echo("two", ServerKind::StdioLegacy);
    let setup = Setup::of(&[&one]);
    let root = setup.path().to_owned();
    let daemon = setup.prepare();
    for (folder, text) in [("data1", daemon.config_text()), ("data2", String::new())] {
        std::fs::create_dir(root.join(folder)).unwrap();
        std::fs::write(root.join(folder).join("manifold.yaml"), text).unwrap();
    }
    std::fs::remove_file(root.join("manifold.yaml")).unwrap();
    std::os::unix::fs::symlink("data1", root.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/manifold.yaml", root.join("manifold.yaml")).unwrap();
    let (process, _) = crate::support::process::Process::start("serve", &mut daemon.command(&["serve"]));
    until("the first server is listed", || {
        (!one.received("tools/list").is_empty()).then_some(())
    });
    // The swap: a new folder, and the link exchanged in one step.
    let second = {
        daemon.reconfigure(|setup| setup.server(&two, json!({})));
        daemon.config_text()
    };
    // `reconfigure` wrote over the link: put the link back with the new text behind it.
    std::fs::write(root.join("data2/manifold.yaml"), second).unwrap();
    let _ = std::fs::remove_file(root.join("manifold.yaml"));
    std::os::unix::fs::symlink("..data/manifold.yaml", root.join("manifold.yaml")).unwrap();
    std::os::unix::fs::symlink("data2", root.join("..data_tmp")).unwrap();
    std::fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    until("the second server is started", || {
        (!two.received("tools/list").is_empty()).then_some(())
    });
    drop(process);
}

#[test]
fn ops_3_misspelt_keys_at_each_level() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    for (key, value, wrong, nearest) in [
        ("lissten", json!({}), "lissten", "listen"),
        ("listen", json!({ "htp": "127.0.0.1:0" }), "htp", "http"),
        ("audit", json!({ "durabilty": "off" }), "durabilty", "durability"),
        ("names", json!({ "seperator": "_" }), "seperator", "separator"),
        (
            "policy",
            json!({ "default": "allow", "rules": [{ "id": "x", "efect": "deny" }] }),
            "efect",
            "effect",
        ),
    ] {
        let daemon = Setup::of(&[&fake]).set(key, value).prepare();
        let (code, _, err) = run(&mut daemon.command(&["check"]));
        assert_eq!(code, 2, "{err}");
        assert!(
            err.contains(wrong) && err.contains(nearest) && err.contains("manifold.yaml"),
            "{wrong}: {err}"
        );
        let (code, _, _) = run(&mut daemon.command(&["serve"]));
        assert_eq!(code, 2);
    }
    let daemon = Setup::new()
        .server(&fake, json!({ "comand": "x" }))
        .set("grace", json!(true))
        .set("start_wait", json!("soon"))
        .prepare();
    let (code, _, err) = run(&mut daemon.command(&["check"]));
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains("comand") && err.contains("grace") && err.contains("start_wait"),
        "all problems at once: {err}"
    );
}

#[test]
fn ops_4_health_whatever_the_servers_do() {
    let one = Fake::echo("one", ServerKind::HttpLegacy);
    let daemon = Setup::of(&[&one])
        .entry("down", json!({ "command": "/does/not/exist" }))
        .start();
    Host::connect(&daemon, HostKind::Http).wait_tool("one__echo");
    one.kill_http();
    for path in ["/healthz", "/readyz"] {
        until("it answers 200", || {
            (daemon.admin_get(path).0 == 200).then_some(())
        });
        assert_eq!(
            crate::support::http::request(&daemon.admin(), "HEAD", path, &[], None).status,
            200
        );
    }
}

#[test]
fn ops_5_sigterm_with_open_streams_and_stubborn_children() {
    let fakes: Vec<Fake> = (0..4)
        .map(|number| {
            let fake = Fake::echo(&format!("s{number}"), ServerKind::StdioLegacy)
                .tool("slow", json!([{ "gate": "never" }]));
            if number == 0 {
                fake.set("grandchild", json!(true))
                    .set("ignore_stdin_end", json!(true))
            } else {
                fake
            }
        })
        .collect();
    let daemon = Setup::of(&fakes.iter().collect::<Vec<_>>())
        .set("grace", json!("1s"))
        .start();
    let hosts: Vec<Host> = (0..3).map(|_| Host::connect(&daemon, HostKind::Http)).collect();
    hosts[0].wait_tools("all", |names| names.len() == 8);
    let call = hosts[0].start_call("s1__slow", "{}");
    fakes[1].wait_event("at never");
    let started = std::time::Instant::now();
    daemon.process().signal(Signal::TERM);
    hosts[0].wait_answer(&call).error();
    assert_eq!(daemon.process().wait_exit("it ends"), 0);
    assert!(
        started.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    assert!(
        daemon.process().log_tail(50).contains("s1"),
        "what had to be forced is named"
    );
}
