//! Holds the rules of the source tree that the compiler does not: which module may import which, how a file opens,
//! how long it may be, and words that must not appear.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test program")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Who may import what, from the bottom up. `runtime::tasks` is open to everyone above `wire`.
const ARROWS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("clock", &[]),
    ("crypto", &[]),
    (
        "config",
        &[
            "wire", "clock", "crypto", "policy", "catalog", "revision", "identity",
        ],
    ),
    (
        "policy",
        &[
            "wire", "clock", "crypto", "config", "catalog", "revision", "identity",
        ],
    ),
    (
        "catalog",
        &[
            "wire", "clock", "crypto", "config", "policy", "revision", "identity",
        ],
    ),
    (
        "revision",
        &[
            "wire", "clock", "crypto", "config", "policy", "catalog", "identity",
        ],
    ),
    (
        "identity",
        &[
            "wire", "clock", "crypto", "config", "policy", "catalog", "revision",
        ],
    ),
    (
        "session",
        &[
            "wire", "clock", "crypto", "config", "policy", "catalog", "revision", "identity", "audit",
        ],
    ),
    (
        "audit",
        &[
            "wire", "clock", "crypto", "config", "policy", "catalog", "revision", "identity", "session",
        ],
    ),
    (
        "pipeline",
        &[
            "wire", "clock", "crypto", "config", "policy", "catalog", "revision", "identity", "session",
            "audit",
        ],
    ),
    (
        "host",
        &[
            "wire", "clock", "crypto", "config", "policy", "catalog", "revision", "identity", "session",
            "audit", "pipeline",
        ],
    ),
    (
        "downstream",
        &[
            "wire", "clock", "crypto", "config", "policy", "catalog", "revision", "identity", "session",
            "audit", "pipeline",
        ],
    ),
];

/// Modules without arrows of their own: they wire or watch everything.
///
/// `cli` is the top of the arrows: it puts the parts before a person, and nothing may import it.
const FREE: &[&str] = &["cli", "runtime", "admin", "telemetry", "main", "lib", "sample"];

const MAX_LINES: usize = 600;

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn short(path: &Path) -> String {
    path.strip_prefix(env!("CARGO_MANIFEST_DIR"))
        .unwrap()
        .display()
        .to_string()
}

/// The top module that a file belongs to: `src/wire/id.rs` and `src/wire.rs` are `wire`.
fn module_of(path: &Path) -> String {
    let inside = path
        .strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
        .unwrap();
    let first = inside
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_string_lossy()
        .into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// Every `crate::X` (and `crate::{X, ..}`) outside comments and outside test modules.
fn imports(text: &str) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        let mut rest = code;
        while let Some(at) = rest.find("crate::") {
            let before = rest[..at].chars().last();
            rest = &rest[at + "crate::".len()..];
            if before
                .is_some_and(|character| character.is_alphanumeric() || character == '_' || character == '$')
            {
                continue;
            }
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(inner) => inner
                    .split('}')
                    .next()
                    .unwrap_or_default()
                    .split(',')
                    .map(str::trim)
                    .collect(),
                None => vec![rest],
            };
            for name in names {
                let path: String = name
                    .chars()
                    .take_while(|character| {
                        character.is_alphanumeric() || *character == '_' || *character == ':'
                    })
                    .collect();
                let top = path.split(':').next().unwrap_or_default().to_owned();
                if !top.is_empty() {
                    found.push((number + 1, top, path));
                }
            }
        }
    }
    found
}

#[test]
fn imports_follow_the_arrows() {
    let mut wrong = String::new();
    for path in sources() {
        let module = module_of(&path);
        if FREE.contains(&module.as_str()) {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == module) else {
            let _ = writeln!(
                wrong,
                "{}: the module {module} has no arrows in tests/layering.rs",
                short(&path)
            );
            continue;
        };
        // Unit tests may look anywhere.
        if path.file_name().is_some_and(|name| name == "tests.rs")
            || path.components().any(|part| part.as_os_str() == "tests")
        {
            continue;
        }
        for (line, top, full) in imports(&std::fs::read_to_string(&path).unwrap()) {
            let tasks = module != "wire" && (full.starts_with("runtime::tasks") || full == "runtime");
            if top != module && !allowed.contains(&top.as_str()) && !tasks {
                let _ = writeln!(wrong, "{}:{line}: {module} may not import {full}", short(&path));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn no_forbidden_words() {
    // Spelt so that this file does not contain them.
    let words = [
        concat!("up", "stream"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("#[", "ignore"),
    ];
    let mut wrong = String::new();
    for path in sources() {
        for (number, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            for word in words
                .iter()
                .filter(|word| line.to_ascii_lowercase().contains(**word))
            {
                let _ = writeln!(wrong, "{}:{}: {word}", short(&path), number + 1);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_file_opens_with_its_purpose() {
    let mut wrong = String::new();
    for path in sources() {
        let tests = path.file_name().is_some_and(|name| name == "tests.rs");
        if !tests && !std::fs::read_to_string(&path).unwrap().starts_with("//!") {
            let _ = writeln!(wrong, "{} does not open with //!", short(&path));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn files_stay_short() {
    let mut wrong = String::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        // A longer file says why in its opening paragraph, with the word "long".
        let reason = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .any(|line| line.contains("long"));
        if lines > MAX_LINES && !reason {
            let _ = writeln!(wrong, "{}: {lines} lines and no reason at its top", short(&path));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
