//! The proof that policy allowed something.
//!
//! A permit is needed to reach a downstream. Its fields are private, it is made in one place
//! ([`super::decide::decide`]), it cannot be cloned, and nothing turns a refusal or a name into one: whoever holds it
//! has asked.

use std::fmt;
use std::sync::Arc;

use super::decide::Facts;
use super::model::Kind;

/// Leave to send one request about one item to one downstream. Used up by sending.
pub struct Permit {
    facts: Arc<Facts>,
}

impl Permit {
    /// The only constructor; [`super::decide::decide`] is its only caller.
    pub(super) fn granted(facts: Arc<Facts>) -> Self {
        Self { facts }
    }

    /// What sort of item it is for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// The downstream that may be reached.
    #[must_use]
    pub fn server(&self) -> &Arc<str> {
        &self.facts.server
    }

    /// The local name or URI that may be used.
    #[must_use]
    pub fn local(&self) -> &Arc<str> {
        &self.facts.local
    }

    /// The rules that allowed it; empty if the default did.
    #[must_use]
    pub fn rules(&self) -> &Arc<[Arc<str>]> {
        &self.facts.rules
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Permit({} {}/{})",
            self.kind().as_str(),
            self.server(),
            self.local()
        )
    }
}
