use std::sync::Arc;

use super::*;
use crate::catalog::listing::Listing;
use crate::catalog::merge::tests::{bare, build, build_with, denying, server, tools};

fn with(text: &str, names: &[&str]) -> Arc<Listing> {
    let mut listing = Listing::clone(&tools(names));
    listing.instructions = Some(text.into());
    Arc::new(listing)
}

#[test]
fn each_text_is_labelled_with_its_namespace() {
    let servers = [
        server("files", with("Ask first.", &["a"])),
        server("数据", with("Second.\n", &["a"])),
        server("quiet", tools(&["a"])),
    ];
    let built = build(&servers);
    let prefix = servers[1].prefix.to_string();
    assert_eq!(
        &**built.catalog.instructions().unwrap(),
        format!(
            "## files (names that begin with `files`)\n\nAsk first.\n\n## 数据 (names that begin with `{prefix}`)\n\nSecond.\n"
        )
    );
}

#[test]
fn a_single_server_without_a_prefix_speaks_for_itself() {
    let built = build(&[bare("a", with("  As is.\n", &["a"]))]);
    assert_eq!(built.catalog.instructions().map(|t| &**t), Some("  As is.\n"));
    assert_eq!(build(&[bare("a", tools(&["a"]))]).catalog.instructions(), None);
}

#[test]
fn servers_of_which_nothing_is_visible_say_nothing() {
    let servers = [
        server("a", with("secret", &["x"])),
        server("b", with("open", &["x"])),
    ];
    let built = build_with(&servers, &denying(&["a/*"], &[]), None);
    let text = built.catalog.instructions().unwrap();
    assert!(!text.contains("secret") && text.contains("open"));
}

#[test]
fn the_whole_is_bounded_and_a_talker_does_not_silence_others() {
    let long = "ä".repeat(50_000);
    let mut servers = vec![server("talker", with(&long, &["a"]))];
    for n in 0..10 {
        servers.push(server(&format!("s{n}"), with("short", &["a"])));
    }
    let built = build(&servers);
    let text = built.catalog.instructions().unwrap();
    assert!(text.len() <= LIMIT && text.len() > LIMIT / 2, "{}", text.len());
    assert_eq!(text.matches("short").count(), 10);
    assert!(text.contains(CUT));
    let crowd: Vec<_> = (0..200)
        .map(|n| server(&format!("s{n}"), with(&long, &["a"])))
        .collect();
    assert!(build(&crowd).catalog.instructions().unwrap().len() <= LIMIT);
}
