//! The decision on one bound item: a permit or a refusal.
//!
//! Total, bounded, no I/O, no allocation: everything that depends on names was settled when the item was bound. The
//! list view asks [`Bound::listed`], the call asks [`decide`]; both read the same value.

use std::fmt;
use std::sync::Arc;

use super::model::{Effect, Kind};
use super::permit::Permit;

/// What settled a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Layer {
    /// There is no policy section and no shorthand about the item: everything is allowed.
    Open,
    /// `policy.default`, since no rule matched.
    Default,
    /// The `allow` and `deny` lists of the server's own section.
    Shorthand,
    /// Rules of the policy section.
    Policy,
}

impl Layer {
    /// The word used in logs and audit records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Default => "default",
            Self::Shorthand => "shorthand",
            Self::Policy => "policy",
        }
    }
}

/// An item with the rules that are about it. Made by [`super::CompiledPolicy::bind`] at publication of a catalog, kept
/// beside the item, cheap to clone.
#[derive(Clone)]
pub struct Bound {
    pub(super) effect: Effect,
    pub(super) facts: Arc<Facts>,
}

/// What a bound item, its permit and its refusal share.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) kind: Kind,
    pub(super) server: Arc<str>,
    pub(super) local: Arc<str>,
    pub(super) rules: Arc<[Arc<str>]>,
    pub(super) message: Option<Arc<str>>,
    pub(super) layer: Layer,
}

impl Bound {
    /// Whether hosts see the item in lists.
    #[must_use]
    pub fn listed(&self) -> bool {
        self.effect == Effect::Allow
    }

    /// What the rules say about the item.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// The ids of the rules that settled it, sorted; empty if a default did.
    #[must_use]
    pub fn rules(&self) -> &Arc<[Arc<str>]> {
        &self.facts.rules
    }

    /// The message of the settling rule, for people on our side.
    #[must_use]
    pub fn message(&self) -> Option<&Arc<str>> {
        self.facts.message.as_ref()
    }

    /// What settled it.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.facts.layer
    }

    /// What sort of item it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// The item's downstream.
    #[must_use]
    pub fn server(&self) -> &Arc<str> {
        &self.facts.server
    }

    /// The item's local name or URI.
    #[must_use]
    pub fn local(&self) -> &Arc<str> {
        &self.facts.local
    }
}

impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.effect == other.effect && self.facts == other.facts
    }
}

impl Eq for Bound {}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("effect", &self.effect)
            .field("facts", &self.facts)
            .finish()
    }
}

/// Policy said no. The host is told what it is told about a name that does not exist; the rest is for the audit record.
#[derive(Clone)]
pub struct Refusal {
    facts: Arc<Facts>,
}

impl Refusal {
    /// What sort of item was asked for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// The downstream that was not reached.
    #[must_use]
    pub fn server(&self) -> &Arc<str> {
        &self.facts.server
    }

    /// The local name or URI that was asked for.
    #[must_use]
    pub fn local(&self) -> &Arc<str> {
        &self.facts.local
    }

    /// The ids of the rules that refused; empty if the default did.
    #[must_use]
    pub fn rules(&self) -> &Arc<[Arc<str>]> {
        &self.facts.rules
    }

    /// The refusing rule's message.
    #[must_use]
    pub fn message(&self) -> Option<&Arc<str>> {
        self.facts.message.as_ref()
    }

    /// What refused.
    #[must_use]
    pub fn layer(&self) -> Layer {
        self.facts.layer
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Refusal").field(&self.facts).finish()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "policy ({}) denies {} {}/{}",
            self.layer().as_str(),
            self.kind().as_str(),
            self.server(),
            self.local()
        )
    }
}

impl std::error::Error for Refusal {}

/// Decides on a bound item. The one way to a [`Permit`].
///
/// # Errors
/// The refusal, with the rules that made it.
pub fn decide(bound: &Bound) -> Result<Permit, Refusal> {
    match bound.effect {
        Effect::Allow => Ok(Permit::granted(Arc::clone(&bound.facts))),
        Effect::Deny => Err(Refusal {
            facts: Arc::clone(&bound.facts),
        }),
    }
}
