//! Who calls, and how we know.
//!
//! An [`Identity`] is made once per connection or request by the host faces and travels with the call: tables are
//! keyed by it, audit records name it. It never holds a credential. Nothing here checks tokens; callers that prove
//! nothing but their transport are named by that transport.

use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::Serialize;

/// What the claim to be this subject rests on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum Proof {
    /// Our own standard input: whoever started this process.
    LocalStdio,
    /// The operating system says which user is at the other end of the Unix socket.
    UnixPeer {
        /// The peer's user id.
        uid: u32,
    },
    /// A TCP connection from this machine: some local process, of any user.
    Loopback,
    /// Nothing: a TCP connection from elsewhere, without credentials.
    None,
}

impl Proof {
    /// The word used in logs and audit records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LocalStdio => "local_stdio",
            Self::UnixPeer { .. } => "unix_peer",
            Self::Loopback => "loopback",
            Self::None => "none",
        }
    }
}

/// One caller. Cheap to clone; equal identities are the same caller as far as we can tell.
#[derive(Clone)]
pub struct Identity(Arc<Inner>);

struct Inner {
    subject: Arc<str>,
    proven_by: Proof,
    key: Arc<str>,
}

impl Identity {
    fn new(subject: &str, proven_by: Proof) -> Self {
        // The proof is part of the key: two ways of proving must never meet in one table entry by choosing a name.
        let key = format!("{}:{subject}", proven_by.as_str());
        Self(Arc::new(Inner {
            subject: subject.into(),
            proven_by,
            key: key.into(),
        }))
    }

    /// The one host on our standard input and output.
    #[must_use]
    pub fn local_stdio() -> Self {
        static ONE: LazyLock<Identity> = LazyLock::new(|| Identity::new("local", Proof::LocalStdio));
        ONE.clone()
    }

    /// A caller over TCP from this machine that presented nothing.
    #[must_use]
    pub fn http_loopback() -> Self {
        static ONE: LazyLock<Identity> = LazyLock::new(|| Identity::new("anonymous", Proof::Loopback));
        ONE.clone()
    }

    /// A caller over TCP from elsewhere that presented nothing.
    #[must_use]
    pub fn http_anonymous() -> Self {
        static ONE: LazyLock<Identity> = LazyLock::new(|| Identity::new("anonymous", Proof::None));
        ONE.clone()
    }

    /// A caller over a Unix socket, named by the user id that the kernel reports.
    #[must_use]
    pub fn unix_peer(uid: u32) -> Self {
        Self::new(&format!("uid:{uid}"), Proof::UnixPeer { uid })
    }

    /// The caller's name within the way it was proven.
    #[must_use]
    pub fn subject(&self) -> &Arc<str> {
        &self.0.subject
    }

    /// What the name rests on.
    #[must_use]
    pub fn proven_by(&self) -> Proof {
        self.0.proven_by
    }

    /// A key for tables: the same for the same caller over the life of the process and between processes, different
    /// for different callers and for different proofs.
    #[must_use]
    pub fn key(&self) -> &Arc<str> {
        &self.0.key
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.key == other.0.key
    }
}

impl Eq for Identity {}

impl std::hash::Hash for Identity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.key)
    }
}

#[cfg(test)]
mod tests;
