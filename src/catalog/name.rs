//! Public names: a pure function of the configuration and (server, local name).
//!
//! It owns the escaping of server keys and local names, the length limit and the stable hashes that keep changed
//! names apart. Configuration checks, `check` and the merge may call it. It never looks at what other servers offer,
//! so one that joins or leaves renames nothing, and it never splits a name: the way back is the catalog's table.

use std::fmt;
use std::sync::Arc;

use crate::crypto::sha256_parts;

/// How public names are made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameRules {
    /// Between prefix and local name: the first eight of its characters that are in `[A-Za-z0-9_-]`; if there
    /// is none, `__`.
    pub separator: Arc<str>,
    /// The longest public name, in bytes. It is never less than [`NameRules::SHORTEST_LIMIT`] characters more than
    /// the separator has.
    pub max_length: usize,
}

impl Default for NameRules {
    fn default() -> Self {
        Self {
            separator: "__".into(),
            max_length: 48,
        }
    }
}

/// Characters of the hash that tells changed names apart: 40 bits.
const NAME_HASH: usize = 8;
/// Characters of the hash that tells changed prefixes apart: 20 bits. `check` refuses equal prefixes at load.
const PREFIX_HASH: usize = 4;
/// What is kept of a prefix, if it is that long, when a name is shortened.
const PREFIX_KEPT: usize = 16;
/// The longest server key that is taken into a prefix whole.
const PREFIX_LIMIT: usize = 64;

impl NameRules {
    /// Room for the hash and a little of prefix and name.
    pub const SHORTEST_LIMIT: usize = 14;

    fn separator(&self) -> String {
        let legal: String = self.separator.chars().filter(|c| is_legal(*c)).take(8).collect();
        if legal.is_empty() { "__".to_owned() } else { legal }
    }

    fn limit(&self) -> usize {
        self.max_length.max(self.separator().len() + Self::SHORTEST_LIMIT)
    }

    /// The prefix of a server: `configured` if given (empty = none), else its key, either made safe.
    ///
    /// A safe prefix has legal characters only and the separator cannot be found in it, not even across its end. So
    /// `ctx` and `ctx-resolve` with the separator `-`, or `a_` and `a` with `__`, never yield equal names. Whatever
    /// had to be changed is told apart by a hash of the original.
    #[must_use]
    pub fn prefix(&self, server: &str, configured: Option<&str>) -> Prefix {
        let wanted = configured.unwrap_or(server);
        if wanted.is_empty() && configured.is_some() {
            return Prefix::none();
        }
        let separator = self.separator();
        let joined = format!("{wanted}{separator}");
        let clean = !wanted.is_empty()
            && wanted.len() <= PREFIX_LIMIT
            && wanted.chars().all(is_legal)
            && joined.find(&separator) == Some(wanted.len());
        if clean {
            return Prefix(wanted.into());
        }
        let filler = if separator == "_" { '-' } else { '_' };
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let mut safe = replace_runs(wanted, legal, filler);
        if safe.contains(&separator) {
            safe = replace_runs(wanted, |c| c.is_ascii_alphanumeric(), filler);
        }
        let stem: String = safe.chars().take(PREFIX_LIMIT).collect();
        let stem = stem.trim_matches(|c| c == '_' || c == '-');
        let stem = if stem.is_empty() { "s" } else { stem };
        let hash = stable_hash(&[wanted.as_bytes()], PREFIX_HASH);
        let whole = format!("{stem}{filler}{hash}");
        // It ends in a letter or digit, so a separator of `_` and `-` cannot begin inside it.
        if format!("{whole}{separator}").find(&separator) == Some(whole.len()) {
            return Prefix(whole.into());
        }
        // One of letters can; not without its first character, though.
        let first = separator.chars().next();
        let bare: String = whole.chars().filter(|c| Some(*c) != first).collect();
        Prefix(bare.into())
    }

    /// The public name of what a server calls `local`.
    ///
    /// With a prefix: legal, at most `max_length` bytes, and as it is if it was legal and short; otherwise illegal
    /// characters are replaced, the length is cut after that, and a hash of prefix and local name is put behind.
    /// Without a prefix: `local` itself, whatever it is.
    #[must_use]
    pub fn public_name(&self, prefix: &Prefix, local: &str) -> PublicName {
        let Some(prefix) = prefix.text() else {
            return PublicName {
                text: local.into(),
                altered: false,
            };
        };
        let separator = self.separator();
        let limit = self.limit();
        let legal = !local.is_empty() && local.chars().all(is_legal);
        if legal && prefix.len() + separator.len() + local.len() <= limit {
            return PublicName {
                text: format!("{prefix}{separator}{local}").into(),
                altered: false,
            };
        }
        let escaped = if legal {
            local.to_owned()
        } else {
            replace_runs(local, is_legal, '_')
        };
        let hash = stable_hash(&[prefix.as_bytes(), &[0], local.as_bytes()], NAME_HASH);
        let room = limit.saturating_sub(separator.len() + NAME_HASH + 1);
        let prefix_kept = room
            .saturating_sub(escaped.len())
            .max(PREFIX_KEPT.min(room / 2))
            .min(prefix.len());
        let local_kept = room.saturating_sub(prefix_kept).min(escaped.len());
        let prefix = prefix.get(..prefix_kept).unwrap_or(prefix);
        let stem = escaped.get(..local_kept).unwrap_or(&escaped);
        PublicName {
            text: format!("{prefix}{separator}{stem}_{hash}").into(),
            altered: true,
        }
    }
}

/// What stands before the separator in all names of one server.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Prefix(Arc<str>);

impl Prefix {
    /// No prefix: names and URIs stay exactly as the server says them.
    #[must_use]
    pub fn none() -> Self {
        Self("".into())
    }

    /// Whether names stay as they are.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, if there is a prefix.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(&*self.0)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name as hosts see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicName {
    /// The name.
    pub text: Arc<str>,
    /// Whether more than the prefix was changed: characters replaced or the end cut off.
    pub altered: bool,
}

/// The scheme label of a server's rewritten URIs (`mcp+LABEL:...`): lower case, legal in a scheme, distinct.
#[must_use]
pub fn scheme_label(server: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !server.is_empty() && server.len() <= PREFIX_LIMIT && server.chars().all(fits) {
        return server.to_owned();
    }
    let safe = replace_runs(&server.to_ascii_lowercase(), fits, '-');
    let safe: String = safe.chars().take(PREFIX_LIMIT).collect();
    let stem = safe.trim_matches('-');
    let stem = if stem.is_empty() { "s" } else { stem };
    format!("{stem}-{}", stable_hash(&[server.as_bytes()], PREFIX_HASH))
}

fn is_legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Each run of characters that `keep` refuses becomes one filler.
fn replace_runs(text: &str, keep: impl Fn(char) -> bool, filler: char) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_run = false;
    for c in text.chars() {
        let kept = keep(c);
        if kept {
            out.push(c);
        } else if !in_run {
            out.push(filler);
        }
        in_run = !kept;
    }
    out
}

/// The first characters of a digest in a 32-letter alphabet of lower-case letters and digits.
fn stable_hash(parts: &[&[u8]], length: usize) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bits = sha256_parts(parts)
        .iter()
        .take(8)
        .fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    let mut out = String::with_capacity(length);
    for _ in 0..length {
        let letter = ALPHABET.get((bits >> 59) as usize).copied().unwrap_or(b'a');
        out.push(char::from(letter));
        bits <<= 5;
    }
    out
}

#[cfg(test)]
mod tests;
