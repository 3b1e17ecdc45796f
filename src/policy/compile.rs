//! From the policy section and the servers' shorthands to rules that can be bound to items.
//!
//! `config` compiles a candidate to find its problems, the runtime compiles the one in force, the catalog builder
//! binds every item with it. Binding looks at every rule; deciding on a bound item ([`super::decide`]) looks at none.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::decide::{Bound, Facts, Layer};
use super::model::{Effect, Kind, PolicyFile, Rule};
use super::pattern::{NamePattern, Uri, UriPattern};
use crate::crypto;

/// What a reverse request is about.
pub const REVERSE_WORDS: [&str; 3] = ["sampling", "elicitation", "roots"];

/// The `allow` and `deny` lists of one server's section for one kind of item.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Shorthand {
    /// The server name; matched exactly, not as a glob.
    pub server: String,
    /// [`Kind::Tool`], [`Kind::Prompt`], [`Kind::Resource`] (templates too) or [`Kind::Reverse`].
    pub kind: Kind,
    /// If given, only these names pass: everything else of that server and kind is denied.
    pub allow: Option<Vec<String>>,
    /// These never pass.
    pub deny: Vec<String>,
}

/// One thing wrong with a policy, with the configuration key it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyProblem {
    /// A key path such as `policy.rules[2].tools[0]` or `servers.tickets.tools.deny[1]`.
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for PolicyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// The policy in force. Immutable; a reload makes another.
#[derive(Debug)]
pub struct CompiledPolicy {
    default: Effect,
    has_section: bool,
    /// Sorted by id, so that nothing that comes out depends on the order in the file.
    rules: Vec<CompiledRule>,
    digest: Arc<str>,
}

#[derive(Debug)]
struct CompiledRule {
    id: Arc<str>,
    effect: Effect,
    layer: Layer,
    message: Option<Arc<str>>,
    patterns: Patterns,
    /// The rule is about what its patterns do *not* match, within this server and kind: the rest of an allow list.
    rest_of: Option<(String, Kind)>,
}

#[derive(Debug, Default)]
struct Patterns {
    tools: Vec<NamePattern>,
    prompts: Vec<NamePattern>,
    resources: Vec<UriPattern>,
    reverse: Vec<NamePattern>,
}

/// An item while it is being bound.
struct Item<'a> {
    kind: Kind,
    server: &'a str,
    local: &'a str,
    uri: Option<Uri<'a>>,
}

impl CompiledPolicy {
    /// Compiles a policy section, if there is one, together with the shorthands.
    ///
    /// # Errors
    /// Every problem found, each with its key path. A policy with a problem is never used in part.
    pub fn new(policy: Option<&PolicyFile>, shorthands: &[Shorthand]) -> Result<Self, Vec<PolicyProblem>> {
        let mut compiler = Compiler::default();
        for (index, rule) in policy.iter().flat_map(|policy| &policy.rules).enumerate() {
            compiler.rule(index, rule);
        }
        for shorthand in shorthands {
            compiler.shorthand(shorthand);
        }
        let Compiler { mut rules, problems } = compiler;
        if !problems.is_empty() {
            return Err(problems);
        }
        rules.sort_by(|left, right| left.id.cmp(&right.id));
        Ok(Self {
            default: policy.map_or(Effect::Allow, |policy| policy.default),
            has_section: policy.is_some(),
            rules,
            digest: digest(policy, shorthands),
        })
    }

    /// The policy of a configuration that has none: everything is allowed.
    #[must_use]
    pub fn open() -> Self {
        Self {
            default: Effect::Allow,
            has_section: false,
            rules: Vec::new(),
            digest: digest(None, &[]),
        }
    }

    /// Whether there is no policy section and no shorthand at all, so that everything is allowed. `serve`, `check` and
    /// `status` say so.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.has_section && self.rules.is_empty()
    }

    /// SHA-256 of the policy in force, as hexadecimal: the same for the same rules in any order.
    #[must_use]
    pub fn digest(&self) -> &Arc<str> {
        &self.digest
    }

    /// Settles what the rules say about one item. `server` and `local` are the downstream's own words, for resources
    /// the URI, for templates the template text.
    #[must_use]
    pub fn bind(&self, kind: Kind, server: &str, local: &str) -> Bound {
        let item = Item::new(kind, server, local);
        let mut effect = self.default;
        let mut matching: Vec<&CompiledRule> = Vec::new();
        for wanted in [Effect::Deny, Effect::Allow] {
            matching.extend(
                self.rules
                    .iter()
                    .filter(|rule| rule.effect == wanted && rule.matches(&item)),
            );
            if !matching.is_empty() {
                effect = wanted;
                break;
            }
        }
        let layer = if matching.iter().any(|rule| rule.layer == Layer::Policy) {
            Layer::Policy
        } else if !matching.is_empty() {
            Layer::Shorthand
        } else if self.has_section {
            Layer::Default
        } else {
            Layer::Open
        };
        let message = matching.iter().find_map(|rule| rule.message.clone());
        let rules: Arc<[Arc<str>]> = matching.iter().map(|rule| Arc::clone(&rule.id)).collect();
        Bound {
            effect,
            facts: Arc::new(Facts {
                kind,
                server: server.into(),
                local: local.into(),
                rules,
                message,
                layer,
            }),
        }
    }

    /// The ids of the rules of the policy section that are about none of these items, for `check --connect`.
    #[must_use]
    pub fn rules_about_nothing<'a>(
        &self,
        items: impl IntoIterator<Item = (Kind, &'a str, &'a str)>,
    ) -> Vec<Arc<str>> {
        let mut idle: Vec<&CompiledRule> = self
            .rules
            .iter()
            .filter(|rule| rule.layer == Layer::Policy)
            .collect();
        for (kind, server, local) in items {
            let item = Item::new(kind, server, local);
            idle.retain(|rule| !rule.matches(&item));
        }
        idle.into_iter().map(|rule| Arc::clone(&rule.id)).collect()
    }
}

impl<'a> Item<'a> {
    fn new(kind: Kind, server: &'a str, local: &'a str) -> Self {
        let uri = (kind == Kind::Resource).then(|| Uri::new(local));
        Self {
            kind,
            server,
            local,
            uri,
        }
    }
}

impl CompiledRule {
    fn matches(&self, item: &Item<'_>) -> bool {
        match &self.rest_of {
            None => self.patterns.matches(item, self.effect),
            Some((server, kind)) => {
                let same_kind =
                    *kind == item.kind || (*kind == Kind::Resource && item.kind == Kind::ResourceTemplate);
                // What the allow list holds is exactly what this rule leaves alone.
                server == item.server && same_kind && !self.patterns.matches(item, Effect::Allow)
            }
        }
    }
}

impl Patterns {
    fn matches(&self, item: &Item<'_>, effect: Effect) -> bool {
        let by_name = |patterns: &[NamePattern]| patterns.iter().any(|p| p.matches(item.server, item.local));
        match item.kind {
            Kind::Tool => by_name(&self.tools),
            Kind::Prompt => by_name(&self.prompts),
            Kind::Reverse => by_name(&self.reverse),
            Kind::Resource | Kind::ResourceTemplate => self
                .resources
                .iter()
                .filter(|p| p.of(item.server))
                .any(|p| match (&item.uri, effect) {
                    (Some(uri), Effect::Deny) => p.touches(uri),
                    (Some(uri), Effect::Allow) => p.holds(uri),
                    (None, Effect::Deny) => p.covers_template(item.local),
                    (None, Effect::Allow) => p.may_match_template(item.local),
                }),
        }
    }
}

/// Collects rules and problems.
#[derive(Default)]
struct Compiler {
    rules: Vec<CompiledRule>,
    problems: Vec<PolicyProblem>,
}

impl Compiler {
    fn problem(&mut self, path: String, message: impl Into<String>) {
        self.problems.push(PolicyProblem {
            path,
            message: message.into(),
        });
    }

    fn rule(&mut self, index: usize, rule: &Rule) {
        let path = format!("policy.rules[{index}]");
        if rule.id.is_empty() || rule.id.chars().any(char::is_control) {
            self.problem(format!("{path}.id"), "a rule needs an id of visible characters");
        } else if rule.id.starts_with("servers.") {
            self.problem(
                format!("{path}.id"),
                "ids that begin with `servers.` name the servers' own lists",
            );
        } else if self.rules.iter().any(|other| *other.id == *rule.id) {
            self.problem(
                format!("{path}.id"),
                format!("the id `{}` is used by an earlier rule", rule.id),
            );
        }
        let mut patterns = Patterns::default();
        self.names(&format!("{path}.tools"), &rule.tools, &mut patterns.tools);
        self.names(&format!("{path}.prompts"), &rule.prompts, &mut patterns.prompts);
        self.names(&format!("{path}.reverse"), &rule.reverse, &mut patterns.reverse);
        for (index, pattern) in rule.resources.iter().enumerate() {
            match UriPattern::parse(pattern) {
                Ok(pattern) => patterns.resources.push(pattern),
                Err(message) => self.problem(format!("{path}.resources[{index}]"), message),
            }
        }
        for (index, pattern) in rule.reverse.iter().enumerate() {
            if NamePattern::parse(pattern).is_ok_and(|pattern| !pattern.can_be(&REVERSE_WORDS)) {
                self.problem(
                    format!("{path}.reverse[{index}]"),
                    "servers ask for `sampling`, `elicitation` or `roots`: `server/sampling`",
                );
            }
        }
        if [&rule.tools, &rule.prompts, &rule.resources, &rule.reverse]
            .iter()
            .all(|list| list.is_empty())
        {
            self.problem(
                path,
                format!(
                    "the rule `{}` names nothing: give it tools, prompts, resources or reverse",
                    rule.id
                ),
            );
        }
        self.rules.push(CompiledRule {
            id: rule.id.as_str().into(),
            effect: rule.effect,
            layer: Layer::Policy,
            message: rule.message.as_deref().map(Into::into),
            patterns,
            rest_of: None,
        });
    }

    fn names(&mut self, path: &str, written: &[String], compiled: &mut Vec<NamePattern>) {
        for (index, pattern) in written.iter().enumerate() {
            match NamePattern::parse(pattern) {
                Ok(pattern) => compiled.push(pattern),
                Err(message) => self.problem(format!("{path}[{index}]"), message),
            }
        }
    }

    fn shorthand(&mut self, shorthand: &Shorthand) {
        let word = match shorthand.kind {
            Kind::Tool => "tools",
            Kind::Prompt => "prompts",
            Kind::Resource | Kind::ResourceTemplate => "resources",
            Kind::Reverse => "reverse",
        };
        let path = format!("servers.{}.{word}", shorthand.server);
        for (index, pattern) in shorthand.deny.iter().enumerate() {
            self.listed(shorthand, Effect::Deny, format!("{path}.deny[{index}]"), pattern);
        }
        let Some(allow) = &shorthand.allow else { return };
        let mut listed = Patterns::default();
        for (index, pattern) in allow.iter().enumerate() {
            self.listed(
                shorthand,
                Effect::Allow,
                format!("{path}.allow[{index}]"),
                pattern,
            );
            // A faulty pattern was reported by the line above.
            let _ = listed.add(shorthand, pattern);
        }
        self.rules.push(CompiledRule {
            id: format!("{path}.allow").into(),
            effect: Effect::Deny,
            layer: Layer::Shorthand,
            message: None,
            patterns: listed,
            rest_of: Some((shorthand.server.clone(), shorthand.kind)),
        });
    }

    fn listed(&mut self, shorthand: &Shorthand, effect: Effect, path: String, pattern: &str) {
        let mut patterns = Patterns::default();
        match patterns.add(shorthand, pattern) {
            Err(message) => self.problem(path, message),
            Ok(()) => self.rules.push(CompiledRule {
                id: path.into(),
                effect,
                layer: Layer::Shorthand,
                message: None,
                patterns,
                rest_of: None,
            }),
        }
    }
}

impl Patterns {
    fn add(&mut self, shorthand: &Shorthand, pattern: &str) -> Result<(), String> {
        let names = match shorthand.kind {
            Kind::Tool => &mut self.tools,
            Kind::Prompt => &mut self.prompts,
            Kind::Reverse => &mut self.reverse,
            Kind::Resource | Kind::ResourceTemplate => {
                self.resources
                    .push(UriPattern::of_server(&shorthand.server, pattern)?);
                return Ok(());
            }
        };
        names.push(NamePattern::of_server(&shorthand.server, pattern)?);
        Ok(())
    }
}

/// The digest of what the policy says, not of how it is laid out: sorted where order does not matter.
fn digest(policy: Option<&PolicyFile>, shorthands: &[Shorthand]) -> Arc<str> {
    let sorted = |list: &Vec<String>| {
        let mut list = list.clone();
        list.sort();
        list.dedup();
        list
    };
    let policy = policy.map(|policy| {
        let mut rules: Vec<Rule> = policy.rules.clone();
        for rule in &mut rules {
            rule.tools = sorted(&rule.tools);
            rule.prompts = sorted(&rule.prompts);
            rule.resources = sorted(&rule.resources);
            rule.reverse = sorted(&rule.reverse);
        }
        rules.sort_by(|left, right| left.id.cmp(&right.id));
        PolicyFile {
            default: policy.default,
            rules,
        }
    });
    let mut shorthands: Vec<Shorthand> = shorthands
        .iter()
        .map(|one| Shorthand {
            allow: one.allow.as_ref().map(sorted),
            deny: sorted(&one.deny),
            ..one.clone()
        })
        .collect();
    shorthands.sort_by(|left, right| (&left.server, left.kind).cmp(&(&right.server, right.kind)));
    // Plain structs of strings always serialise.
    let canonical = serde_json::to_vec(&(policy, shorthands)).unwrap_or_default();
    crypto::sha256_hex(&canonical).into()
}

#[cfg(test)]
mod tests;
