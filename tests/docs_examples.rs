//! What the documents show is true: configurations load, commands run, links lead somewhere.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test program: helpers are not marked as tests"
)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use manifold::config::{Sources, load};
use serde_json::{Value, json};

use support::process::{MANIFOLD, run};
use support::{Fake, ServerKind, Setup};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "deploy"] {
        let Ok(entries) = std::fs::read_dir(root().join(folder)) else {
            continue;
        };
        found.extend(
            entries
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some_and(|ending| ending == "md")),
        );
    }
    found.sort();
    assert!(found.len() >= 11, "{found:?}");
    found
}

struct Block {
    place: String,
    language: String,
    text: String,
}

/// The fenced blocks of a document.
fn blocks(path: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    place: format!("{}:{}", path.file_name().unwrap().display(), number + 1),
                    language: language.trim().to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", path.display());
    found
}

fn loads(place: &str, text: &str, ending: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("example.{ending}"));
    std::fs::write(&path, text).unwrap();
    let sources = Sources {
        files: vec![path],
        environment: BTreeMap::from(
            [("HOME", "/home/me"), ("TICKETS_TOKEN", "x")]
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        ),
        program: Some(PathBuf::from(MANIFOLD)),
        ..Sources::default()
    };
    match load(&sources) {
        Ok(loaded) => assert!(loaded.refused.is_empty(), "{place}: {:?}", loaded.refused),
        Err(problems) => panic!("{place}:\n{problems}"),
    }
}

#[test]
fn every_configuration_in_the_documents_loads() {
    let mut count = 0;
    for block in documents().iter().flat_map(|path| blocks(path)) {
        match block.language.as_str() {
            "yaml" | "toml" => loads(&block.place, &block.text, &block.language),
            "json" => {
                let value: Value = serde_json::from_str(&block.text)
                    .unwrap_or_else(|error| panic!("{}: {error}", block.place));
                if value.get("mcpServers").is_some() || value.get("servers").is_some() {
                    loads(&block.place, &block.text, "json");
                }
            }
            _ => continue,
        }
        count += 1;
    }
    assert!(count >= 8, "only {count} examples found");
}

#[test]
fn every_file_in_config_loads() {
    for entry in std::fs::read_dir(root().join("config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            loads(&path.display().to_string(), &text, "yaml");
        }
    }
}

/// The commands of README.md, on a machine where the servers of its file are scripted.
#[test]
fn the_commands_of_the_readme_run() {
    let fake = Fake::new("files", ServerKind::StdioLegacy).tool("list_directory", json!([]));
    let daemon = Setup::of(&[&fake]).prepare();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("manifold.yaml"), daemon.config_text()).unwrap();
    let mut ran = 0;
    for block in blocks(&root().join("README.md")) {
        if block.language != "sh" {
            continue;
        }
        for line in block.text.lines() {
            // The tests cannot run themselves.
            if line.trim().is_empty() || line == "tests/run" {
                continue;
            }
            let line = line.replace("cargo run --release --", "manifold");
            let (code, out, err) = run(Command::new("sh")
                .args(["-c", &line])
                .current_dir(home.path())
                .env_clear()
                .env("HOME", home.path())
                .env("PATH", path_with_manifold()));
            assert_eq!(code, 0, "{}: {line}\n{out}\n{err}", block.place);
            if line.contains("notes__add_note") {
                assert_eq!(out, "Added the note \"hello\".\n");
            }
            ran += 1;
        }
    }
    assert_eq!(ran, 4);
}

fn path_with_manifold() -> std::ffi::OsString {
    let mut folders = vec![Path::new(MANIFOLD).parent().unwrap().to_owned()];
    folders.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    std::env::join_paths(folders).unwrap()
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let there = path.parent().unwrap().join(file);
            assert!(there.exists(), "{}: {target} does not exist", path.display());
        }
    }
}

/// The files that a page names by path are there.
#[test]
fn the_life_of_a_call_names_files_that_exist() {
    let text = std::fs::read_to_string(root().join("docs/life-of-a-call.md")).unwrap();
    let named: Vec<&str> = text.split('`').filter(|word| word.ends_with(".rs")).collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        let places = [
            root().join("src").join(name),
            root().join("src/downstream").join(name),
        ];
        assert!(places.iter().any(|place| place.exists()), "{name} does not exist");
    }
}
