//! The unit file starts the binary in a way that the binary understands.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test program")]

use std::process::Command;

#[test]
fn the_unit_starts_what_the_binary_offers() {
    let unit = include_str!("../deploy/systemd/manifold.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/manifold "))
        .expect("ExecStart");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manifold.yaml");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/config/minimal.yaml"), &file).unwrap();
    let mut words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words.first(), Some(&"serve"));
    // `check` takes the same arguments as `serve` and ends by itself.
    let path = file.display().to_string();
    words = words
        .into_iter()
        .map(|word| match word {
            "serve" => "check",
            "/etc/manifold/manifold.yaml" => path.as_str(),
            other => other,
        })
        .collect();
    let environment = unit
        .lines()
        .find_map(|line| line.strip_prefix("Environment="))
        .expect("Environment");
    let mut command = Command::new(env!("CARGO_BIN_EXE_manifold"));
    command.args(words);
    for pair in environment.split_whitespace() {
        let (key, value) = pair.split_once('=').unwrap();
        command.env(key, value);
    }
    command.env("TICKETS_TOKEN", "a token for the minimal configuration");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}
