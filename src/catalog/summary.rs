//! The merged instructions.
//!
//! It owns the labels and the bound on their size. The merge calls it once per catalog. It never edits a server's
//! text, besides cutting it off.

use super::item::Entry;
use super::merge::ServerEntry;
use super::{ListKind, PerKind};

/// Bytes of all instructions together: every model pays for them with every conversation.
const LIMIT: usize = 16 * 1024;
/// Bytes reserved for the label of one server.
const LABEL: usize = 256;
const CUT: &str = "\n[cut off here]";

/// The instructions of all servers of which hosts see something, each under a heading that says whose they are.
/// Those of a single server without a prefix stay as they are, up to the limit.
pub(super) fn instructions(servers: &[ServerEntry], entries: &PerKind<Vec<Entry>>) -> Option<String> {
    let mut visible = vec![false; servers.len()];
    for kind in ListKind::ALL {
        for entry in entries.get(kind).iter().filter(|entry| entry.listed()) {
            if let Some(seen) = visible.get_mut(entry.server) {
                *seen = true;
            }
        }
    }
    let texts: Vec<(&ServerEntry, &str)> = servers
        .iter()
        .zip(visible)
        .filter(|(_, visible)| *visible)
        .filter_map(|(server, _)| Some((server, server.listing.as_ref()?.instructions.as_deref()?)))
        .collect();
    match (servers, texts.as_slice()) {
        (_, []) => None,
        ([only], [(_, text)]) if only.prefix.is_none() => Some(cut(text, LIMIT)),
        _ => {
            let shares = shares(
                texts.iter().map(|(_, text)| text.len()).collect(),
                LIMIT.saturating_sub(texts.len() * LABEL),
            );
            let mut out = String::new();
            for ((server, text), share) in texts.iter().zip(shares) {
                if !out.is_empty() {
                    out.push_str("\n\n");
                }
                out.push_str(&cut(&heading(server), LABEL - 2));
                out.push_str(&cut(text, share));
            }
            Some(cut(&out, LIMIT))
        }
    }
}

fn heading(server: &ServerEntry) -> String {
    let label = cut(&server.label.replace(['\n', '\r'], " "), LABEL / 2);
    match server.prefix.text() {
        Some(prefix) => {
            let prefix: String = prefix.chars().take(LABEL / 4).collect();
            format!("## {label} (names that begin with `{prefix}`)\n\n")
        }
        None => format!("## {label}\n\n"),
    }
}

/// Divides `total` bytes: whoever needs less than an equal share leaves the rest to the others.
fn shares(needs: Vec<usize>, total: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|at| needs.get(*at).copied().unwrap_or(0));
    let mut out = vec![0; needs.len()];
    let (mut left, mut waiting) = (total, needs.len());
    for at in order {
        let need = needs.get(at).copied().unwrap_or(0);
        let share = need.min(left / waiting.max(1));
        if let Some(slot) = out.get_mut(at) {
            *slot = share;
        }
        left -= share;
        waiting -= 1;
    }
    out
}

/// The text, cut at a character so that it fits.
fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit.saturating_sub(CUT.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests;
