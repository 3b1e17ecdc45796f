//! Reads a host's own file (Claude, Cursor, Gemini, Windsurf, VS Code) as a configuration of ours.
//!
//! Only its servers are taken. It rewrites the tree before the check, keeps every position, and warns about what it
//! leaves out; keys inside a server that nobody knows are warned about by the check.

use super::problem::{Mark, Problem};
use super::tree::{Entry, Format, Kind, Node};

/// Whether a tree is a host's file: it has `mcpServers`, or it is JSON with `servers` in the manner of VS Code.
pub(crate) fn is_host_file(tree: &Node, format: Format) -> bool {
    if tree.get("mcpServers").is_some() {
        return true;
    }
    if format != Format::Json {
        return false;
    }
    let Some(servers) = tree.get("servers") else {
        return false;
    };
    let only_theirs = tree
        .entries()
        .iter()
        .all(|entry| matches!(entry.key.as_str(), "servers" | "inputs" | "sandbox"));
    let has_type = servers
        .entries()
        .iter()
        .any(|entry| entry.value.get("type").is_some());
    only_theirs && (has_type || tree.get("inputs").is_some())
}

/// Turns a host's file into a tree of ours that has only `servers`.
pub(crate) fn adopt(tree: Node, warnings: &mut Vec<Problem>) -> Node {
    let mark = tree.mark;
    let Kind::Map(entries) = tree.kind else {
        return tree;
    };
    let key = if entries.iter().any(|entry| entry.key == "mcpServers") {
        "mcpServers"
    } else {
        "servers"
    };
    let mut ours = Vec::new();
    let mut ignored: Vec<(String, Mark)> = Vec::new();
    for mut entry in entries {
        if entry.key == key {
            "servers".clone_into(&mut entry.key);
            if let Kind::Map(servers) = &mut entry.value.kind {
                for server in servers {
                    adopt_server(server, warnings);
                }
            }
            ours.push(entry);
        } else {
            ignored.push((entry.key, entry.key_mark));
        }
    }
    if let Some((_, first)) = ignored.first() {
        let names: Vec<String> = ignored.iter().map(|(name, _)| format!("`{name}`")).collect();
        let names = names.join(", ");
        warnings.push(
            Problem::new(
                "",
                format!("this is a host's file: only `{key}` is read; ignored: {names}"),
            )
            .at(Some(*first))
            .help("settings of manifold belong in a file of its own"),
        );
    }
    Node {
        kind: Kind::Map(ours),
        mark,
    }
}

fn adopt_server(server: &mut Entry, warnings: &mut Vec<Problem>) {
    let Kind::Map(entries) = &mut server.value.kind else {
        return;
    };
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    let mut tools: Vec<Entry> = Vec::new();
    for mut entry in std::mem::take(entries) {
        let renamed = match (entry.key.as_str(), &entry.value.kind) {
            ("type", Kind::Text(_)) => adopt_type(&mut entry, &server.key, warnings),
            ("serverUrl", _) => Some("url"),
            ("httpUrl", _) => {
                kept.push(text_entry("transport", "streamable-http", &entry));
                Some("url")
            }
            ("disabled", Kind::Bool(disabled)) => {
                entry.value.kind = Kind::Bool(!disabled);
                Some("enabled")
            }
            ("includeTools", _) => {
                "allow".clone_into(&mut entry.key);
                tools.push(entry);
                continue;
            }
            ("excludeTools" | "disabledTools", _) => {
                "deny".clone_into(&mut entry.key);
                tools.push(entry);
                continue;
            }
            ("tools", Kind::List(_)) => {
                "allow".clone_into(&mut entry.key);
                tools.push(entry);
                continue;
            }
            _ => {
                kept.push(entry);
                continue;
            }
        };
        if let Some(renamed) = renamed {
            renamed.clone_into(&mut entry.key);
            kept.push(entry);
        }
    }
    if let Some(first) = tools.first() {
        let key_mark = first.key_mark;
        let value = Node {
            mark: first.value.mark,
            kind: Kind::Map(tools),
        };
        kept.push(Entry {
            key: "tools".to_owned(),
            key_mark,
            value,
        });
    }
    *entries = kept;
}

/// `type` names the transport; `None` if the transport follows from the other keys.
fn adopt_type(entry: &mut Entry, server: &str, warnings: &mut Vec<Problem>) -> Option<&'static str> {
    let word = match entry.value.as_text().unwrap_or_default() {
        "stdio" | "local" | "remote" => return None,
        "http" | "streamable-http" | "streamableHttp" | "streamable_http" => "streamable-http",
        "sse" => "sse",
        other => {
            warnings.push(
                Problem::new(
                    format!("servers.{server}.type"),
                    format!("the type `{other}` is not known and ignored"),
                )
                .at(Some(entry.value.mark)),
            );
            return None;
        }
    };
    entry.value.kind = Kind::Text(word.to_owned());
    Some("transport")
}

fn text_entry(key: &str, text: &str, like: &Entry) -> Entry {
    Entry {
        key: key.to_owned(),
        key_mark: like.key_mark,
        value: Node {
            kind: Kind::Text(text.to_owned()),
            mark: like.key_mark,
        },
    }
}
