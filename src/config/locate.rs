//! Key paths, and where in the files a key path stands.
//!
//! figment knows which file a key came from but not the line; these functions look a path up in the marked trees
//! that each file was read into. Nothing is parsed here.

use std::fmt;

use super::problem::Mark;
use super::tree::{Kind, Node};

/// One step of a key path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A key of a map.
    Key(String),
    /// An index of a list.
    Index(usize),
}

/// The way from the top of the configuration to a value: `servers.tickets.args[0]`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct KeyPath(pub(crate) Vec<Step>);

impl KeyPath {
    /// Splits `servers.tickets.args[0]`. Keys with dots in them cannot be written this way; build those with `key`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        for part in text.split('.') {
            let mut rest = part.split('[');
            if let Some(key) = rest.next().filter(|key| !key.is_empty()) {
                steps.push(Step::Key(key.to_owned()));
            }
            for index in rest.filter_map(|index| index.trim_end_matches(']').parse().ok()) {
                steps.push(Step::Index(index));
            }
        }
        Self(steps)
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.to_owned()));
        Self(steps)
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Index(index));
        Self(steps)
    }

    /// The path with every server name and list index replaced by `*`, to compare with fixed patterns.
    pub(crate) fn pattern(&self) -> String {
        let mut out: Vec<&str> = Vec::new();
        for (depth, step) in self.0.iter().enumerate() {
            out.push(match step {
                Step::Key(_) if depth == 1 && out.first() == Some(&"servers") => "*",
                Step::Key(key) => key,
                Step::Index(_) => "*",
            });
        }
        out.join(".")
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if position == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Which part of an entry is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
}

/// Where a path stands in the layers, the last layer that has it first; else where its longest beginning stands.
pub(crate) fn locate(layers: &[Node], path: &KeyPath, part: Part) -> Option<Mark> {
    let mut best: Option<(usize, Mark)> = None;
    for layer in layers.iter().rev() {
        let Some((depth, mark)) = descend(layer, path, part) else {
            continue;
        };
        if best.is_none_or(|(known, _)| depth > known) {
            best = Some((depth, mark));
        }
    }
    best.map(|(_, mark)| mark)
}

/// How many steps of the path the tree has, and the mark of the last of them.
fn descend(tree: &Node, path: &KeyPath, part: Part) -> Option<(usize, Mark)> {
    let mut node = tree;
    let mut found = None;
    for (depth, step) in path.0.iter().enumerate() {
        let is_last = depth + 1 == path.0.len();
        match (step, &node.kind) {
            (Step::Key(key), Kind::Map(entries)) => {
                let Some(entry) = entries.iter().rev().find(|entry| entry.key == *key) else {
                    break;
                };
                let whole = if is_last && part == Part::Value && !entry.value.is_container() {
                    entry.value.mark
                } else {
                    entry.key_mark
                };
                found = Some((depth + 1, whole));
                node = &entry.value;
            }
            (Step::Index(index), Kind::List(items)) => {
                let Some(item) = items.get(*index) else { break };
                found = Some((depth + 1, item.mark));
                node = item;
            }
            _ => break,
        }
    }
    found
}

/// Line and column (in characters), both from 1, of a byte offset.
pub(crate) fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = text.get(..end).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests;
