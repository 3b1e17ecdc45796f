//! What all servers offer, merged: public names and URIs, the way back to each server, lists ready to be sent.
//!
//! [`listing`] is what one server offers as last read; [`Catalog::build`] makes one immutable, versioned catalog of
//! all listings, the configuration and the policy; the pipeline looks names up in it and answers lists from it. It is
//! pure: no Tokio, no clock, no I/O except where a listing is kept on disk. It never asks a server and never
//! decides: each entry carries its bound rules, and whoever wants to call it must have them decided.

pub mod item;
pub mod listing;
pub mod merge;
pub mod name;
pub mod offers;
pub mod page;
pub mod summary;
pub mod template;
pub mod uri;

pub use item::{Entry, Facts};
pub use listing::{ItemLimits, Listing};
pub use merge::{Built, Catalog, ServerEntry, Warning};
pub use name::{NameRules, Prefix, PublicName};
pub use offers::{Offered, Offers};
pub use page::CursorFault;
pub use uri::Route;

/// The four lists of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ListKind {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    Templates,
}

impl ListKind {
    /// All four, in the order in which they are read.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The method that lists.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// The kind that this method lists.
    #[must_use]
    pub fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// The member of the result that holds the items.
    #[must_use]
    pub const fn result_key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an item that identifies it.
    #[must_use]
    pub const fn id_key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// The notification that says such a list changed. Templates have none of their own.
    #[must_use]
    pub const fn changed_method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    /// What policy calls an item of this list.
    #[must_use]
    pub const fn policy_kind(self) -> crate::policy::Kind {
        match self {
            Self::Tools => crate::policy::Kind::Tool,
            Self::Prompts => crate::policy::Kind::Prompt,
            Self::Resources => crate::policy::Kind::Resource,
            Self::Templates => crate::policy::Kind::ResourceTemplate,
        }
    }

    /// The word for one item in warnings.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "resource template",
        }
    }
}

/// One value for each list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PerKind<T>([T; 4]);

impl<T> PerKind<T> {
    /// The value of a kind.
    #[must_use]
    pub fn get(&self, kind: ListKind) -> &T {
        let [tools, prompts, resources, templates] = &self.0;
        match kind {
            ListKind::Tools => tools,
            ListKind::Prompts => prompts,
            ListKind::Resources => resources,
            ListKind::Templates => templates,
        }
    }

    /// The value of a kind, to be changed.
    pub fn get_mut(&mut self, kind: ListKind) -> &mut T {
        let [tools, prompts, resources, templates] = &mut self.0;
        match kind {
            ListKind::Tools => tools,
            ListKind::Prompts => prompts,
            ListKind::Resources => resources,
            ListKind::Templates => templates,
        }
    }
}
