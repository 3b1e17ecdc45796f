//! What a host can do for a server, reduced to what a gateway can carry.
//!
//! A set is small and closed, so the number of different downstream connections and listings that hosts can cause
//! is bounded by what we know, not by what they send.

use crate::wire::json::{Span, ValueKind, kind_of, member};

/// A set of host capabilities.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CapabilitySet(u16);

impl CapabilitySet {
    /// Nothing at all.
    pub const NONE: Self = Self(0);
    /// `roots`
    pub const ROOTS: Self = Self(1);
    /// `roots.listChanged`
    pub const ROOTS_LIST_CHANGED: Self = Self(1 << 1);
    /// `sampling`
    pub const SAMPLING: Self = Self(1 << 2);
    /// `sampling.tools`
    pub const SAMPLING_TOOLS: Self = Self(1 << 3);
    /// `sampling.context`
    pub const SAMPLING_CONTEXT: Self = Self(1 << 4);
    /// `elicitation` with forms
    pub const ELICITATION_FORM: Self = Self(1 << 5);
    /// `elicitation.url`
    pub const ELICITATION_URL: Self = Self(1 << 6);

    /// Everything a gateway can carry.
    pub const ALL: Self = Self(0b111_1111);

    /// Reads the `capabilities` object of a host.
    #[must_use]
    pub fn from_json(capabilities: &[u8]) -> Self {
        let whole = Span::new(0, capabilities.len());
        let object = |span: Span| kind_of(span.of(capabilities)) == Some(ValueKind::Object);
        let get = |outer: Span, key: &str| member(capabilities, outer, key);
        let mut set = Self::NONE;
        if let Some(roots) = get(whole, "roots").filter(|span| object(*span)) {
            set = set.with(Self::ROOTS);
            if get(roots, "listChanged").is_some_and(|span| span.of(capabilities) == b"true") {
                set = set.with(Self::ROOTS_LIST_CHANGED);
            }
        }
        if let Some(sampling) = get(whole, "sampling").filter(|span| object(*span)) {
            set = set.with(Self::SAMPLING);
            if get(sampling, "tools").is_some_and(object) {
                set = set.with(Self::SAMPLING_TOOLS);
            }
            if get(sampling, "context").is_some_and(object) {
                set = set.with(Self::SAMPLING_CONTEXT);
            }
        }
        if let Some(elicitation) = get(whole, "elicitation").filter(|span| object(*span)) {
            let form = get(elicitation, "form").is_some_and(object);
            let url = get(elicitation, "url").is_some_and(object);
            // An empty object means forms only.
            if form || !url {
                set = set.with(Self::ELICITATION_FORM);
            }
            if url {
                set = set.with(Self::ELICITATION_URL);
            }
        }
        set
    }

    /// The union.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What both have.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The bits, for keys on disk.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// From bits; unknown ones are dropped.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The `capabilities` object that declares this set to a legacy server.
    #[must_use]
    pub fn to_json(self) -> String {
        let mut parts = Vec::new();
        if self.has(Self::ROOTS) {
            parts.push(format!(
                "\"roots\":{{\"listChanged\":{}}}",
                self.has(Self::ROOTS_LIST_CHANGED)
            ));
        }
        if self.has(Self::SAMPLING) {
            let mut inner = Vec::new();
            if self.has(Self::SAMPLING_TOOLS) {
                inner.push("\"tools\":{}");
            }
            if self.has(Self::SAMPLING_CONTEXT) {
                inner.push("\"context\":{}");
            }
            parts.push(format!("\"sampling\":{{{}}}", inner.join(",")));
        }
        let (form, url) = (self.has(Self::ELICITATION_FORM), self.has(Self::ELICITATION_URL));
        if form || url {
            let inner = match (form, url) {
                // The empty object is what hosts before 2025-11-25 send, and it means forms.
                (true, false) => "",
                (true, true) => "\"form\":{},\"url\":{}",
                _ => "\"url\":{}",
            };
            parts.push(format!("\"elicitation\":{{{inner}}}"));
        }
        format!("{{{}}}", parts.join(","))
    }
}

#[cfg(test)]
mod tests;
