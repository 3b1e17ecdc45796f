//! The two id spaces: the host's, kept as written, and ours on the downstream wire. They never convert into
//! each other.

use bytes::Bytes;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::json::unquote;

/// A JSON-RPC id (or progress token) exactly as a peer wrote it: a quoted string or an integer.
///
/// Two ids are equal if they have the same JSON type and value: `1` and `"1"` differ, `"a"` and `"\u0061"` do not.
#[derive(Clone)]
pub struct HostId(Bytes);

impl HostId {
    /// The id from its JSON text. The caller has checked that it is a string or a number.
    #[must_use]
    pub fn from_raw(raw: Bytes) -> Self {
        Self(raw)
    }

    /// The JSON text as the peer wrote it.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.0
    }

    fn is_string(&self) -> bool {
        self.0.first() == Some(&b'"')
    }
}

impl PartialEq for HostId {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || (self.is_string() && other.is_string() && unquote(&self.0) == unquote(&other.0))
    }
}

impl Eq for HostId {}

impl Hash for HostId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.is_string() {
            1u8.hash(state);
            unquote(&self.0).hash(state);
        } else {
            0u8.hash(state);
            self.0.hash(state);
        }
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Our id of a request on one downstream connection, also its progress token. Never repeats within a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WireId(pub u64);

impl WireId {
    /// Reads the id from the JSON text of a response id or token; `None` if it is not one of our spelling.
    #[must_use]
    pub fn from_raw(raw: &[u8]) -> Option<Self> {
        if raw.first() == Some(&b'0') && raw.len() > 1 {
            return None;
        }
        std::str::from_utf8(raw)
            .ok()
            .filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?
            .parse()
            .ok()
            .map(Self)
    }

    /// The JSON text.
    #[must_use]
    pub fn to_raw(self) -> Bytes {
        Bytes::from(self.0.to_string())
    }
}

impl fmt::Display for WireId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
