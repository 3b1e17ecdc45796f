use super::*;
use crate::policy::decide;
use proptest::prelude::*;

fn rule(id: &str, effect: Effect, tools: &[&str]) -> Rule {
    Rule {
        id: id.to_owned(),
        effect,
        tools: tools.iter().map(|&tool| tool.to_owned()).collect(),
        prompts: Vec::new(),
        resources: Vec::new(),
        reverse: Vec::new(),
        message: None,
    }
}

fn policy(default: Effect, rules: Vec<Rule>) -> CompiledPolicy {
    CompiledPolicy::new(Some(&PolicyFile { default, rules }), &[]).unwrap()
}

fn shorthand(server: &str, kind: Kind, allow: Option<&[&str]>, deny: &[&str]) -> Shorthand {
    let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    Shorthand {
        server: server.to_owned(),
        kind,
        allow: allow.map(owned),
        deny: owned(deny),
    }
}

fn ids(bound: &Bound) -> Vec<&str> {
    bound.rules().iter().map(|id| &**id).collect()
}

#[test]
fn without_a_policy_everything_passes_and_it_says_so() {
    let open = CompiledPolicy::new(None, &[]).unwrap();
    assert!(open.is_open());
    let bound = open.bind(Kind::Tool, "files", "delete_all");
    assert!(bound.listed());
    assert_eq!(bound.layer(), Layer::Open);
    let permit = decide(&bound).unwrap();
    assert_eq!(
        (permit.kind(), &**permit.server(), &**permit.local()),
        (Kind::Tool, "files", "delete_all")
    );
    assert_eq!(open.digest(), CompiledPolicy::open().digest());
    assert!(!policy(Effect::Allow, vec![]).is_open());
}

#[test]
fn deny_over_allow_over_default() {
    let mut deletes = rule("deletes", Effect::Deny, &["*/delete_*"]);
    deletes.message = Some("ask the owner".to_owned());
    let policy = policy(
        Effect::Deny,
        vec![rule("files", Effect::Allow, &["files/*"]), deletes],
    );
    let read = policy.bind(Kind::Tool, "files", "read");
    assert_eq!(
        (read.effect(), ids(&read), read.layer()),
        (Effect::Allow, vec!["files"], Layer::Policy)
    );
    let delete = policy.bind(Kind::Tool, "files", "delete_file");
    assert_eq!(ids(&delete), ["deletes"]);
    let refusal = decide(&delete).unwrap_err();
    assert_eq!(refusal.message().map(|text| &**text), Some("ask the owner"));
    assert!(!delete.listed());
    let other = policy.bind(Kind::Tool, "db", "read");
    assert_eq!((other.effect(), other.layer()), (Effect::Deny, Layer::Default));
    // Tool rules say nothing about prompts.
    assert!(!policy.bind(Kind::Prompt, "files", "read").listed());
}

#[test]
fn an_allow_list_denies_the_rest_of_its_server_and_kind_only() {
    let lists = [
        shorthand("tickets", Kind::Tool, Some(&["search", "get_*"]), &["get_secret"]),
        shorthand("docs", Kind::Resource, Some(&["file:///srv/*"]), &[]),
        shorthand("chatty", Kind::Reverse, None, &["sampling"]),
    ];
    let policy = CompiledPolicy::new(None, &lists).unwrap();
    assert!(!policy.is_open());
    let effect = |kind, server, local| policy.bind(kind, server, local).effect();
    assert_eq!(effect(Kind::Tool, "tickets", "search"), Effect::Allow);
    assert_eq!(effect(Kind::Tool, "tickets", "get_one"), Effect::Allow);
    assert_eq!(effect(Kind::Tool, "tickets", "Search"), Effect::Deny);
    assert_eq!(effect(Kind::Tool, "other", "delete"), Effect::Allow);
    assert_eq!(effect(Kind::Prompt, "tickets", "anything"), Effect::Allow);
    let secret = policy.bind(Kind::Tool, "tickets", "get_secret");
    assert_eq!(ids(&secret), ["servers.tickets.tools.deny[0]"]);
    let rest = policy.bind(Kind::Tool, "tickets", "delete");
    assert_eq!(
        (ids(&rest), rest.layer()),
        (vec!["servers.tickets.tools.allow"], Layer::Shorthand)
    );
    assert_eq!(effect(Kind::Resource, "docs", "file:///srv/a"), Effect::Allow);
    assert_eq!(
        effect(Kind::Resource, "docs", "file:///srv/../etc/passwd"),
        Effect::Deny
    );
    assert_eq!(
        effect(Kind::ResourceTemplate, "docs", "file:///{path}"),
        Effect::Allow
    );
    assert_eq!(
        effect(Kind::ResourceTemplate, "docs", "db:///{table}"),
        Effect::Deny
    );
    assert_eq!(effect(Kind::Reverse, "chatty", "sampling"), Effect::Deny);
    assert_eq!(effect(Kind::Reverse, "chatty", "roots"), Effect::Allow);
}

#[test]
fn a_shorthand_allow_opens_under_a_closed_default_and_policy_denies_still_win() {
    let file = PolicyFile {
        default: Effect::Deny,
        rules: vec![rule("no", Effect::Deny, &["t/drop"])],
    };
    let policy = CompiledPolicy::new(Some(&file), &[shorthand("t", Kind::Tool, Some(&["*"]), &[])]).unwrap();
    assert!(policy.bind(Kind::Tool, "t", "read").listed());
    assert!(!policy.bind(Kind::Tool, "t", "drop").listed());
}

#[test]
fn every_problem_is_reported_with_its_key() {
    let mut bad = rule("a", Effect::Allow, &["nothing", "x/["]);
    bad.reverse = vec!["x/rooots".to_owned()];
    bad.resources = vec!["file:///x".to_owned()];
    let file = PolicyFile {
        default: Effect::Deny,
        rules: vec![
            bad,
            rule("a", Effect::Deny, &["x/y"]),
            rule("", Effect::Deny, &[]),
            rule("servers.x", Effect::Deny, &["x/y"]),
        ],
    };
    let problems =
        CompiledPolicy::new(Some(&file), &[shorthand("s", Kind::Tool, None, &["ok", "{"])]).unwrap_err();
    let mut paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "policy.rules[0].resources[0]",
            "policy.rules[0].reverse[0]",
            "policy.rules[0].tools[0]",
            "policy.rules[0].tools[1]",
            "policy.rules[1].id",
            "policy.rules[2]",
            "policy.rules[2].id",
            "policy.rules[3].id",
            "servers.s.tools.deny[1]",
        ]
    );
}

#[test]
fn rules_about_nothing_are_found() {
    let policy = policy(
        Effect::Deny,
        vec![
            rule("used", Effect::Allow, &["files/*"]),
            rule("typo", Effect::Deny, &["filse/delete"]),
        ],
    );
    let idle = policy.rules_about_nothing([(Kind::Tool, "files", "read"), (Kind::Prompt, "filse", "delete")]);
    assert_eq!(idle.iter().map(|id| &**id).collect::<Vec<_>>(), ["typo"]);
}

#[test]
fn the_file_reads_as_documented_and_refuses_other_keys() {
    let read = |text: &str| serde_json::from_str::<PolicyFile>(text);
    let file =
        read(r#"{"default":"deny","rules":[{"id":"r","effect":"allow","tools":["a/*"],"message":"m"}]}"#)
            .unwrap();
    assert_eq!(file.rules[0].effect, Effect::Allow);
    for bad in [
        r#"{"rules":[]}"#,
        r#"{"default":"ask"}"#,
        r#"{"default":"deny","rule":[]}"#,
        r#"{"default":"deny","rules":[{"id":"r","effect":"allow","who":{}}]}"#,
        r#"{"default":"deny","rules":[{"effect":"allow","tools":["a/*"]}]}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

fn any_effect() -> impl Strategy<Value = Effect> {
    prop_oneof![Just(Effect::Allow), Just(Effect::Deny)]
}

fn any_pattern() -> impl Strategy<Value = String> {
    "[ab*?]{1,2}/[ab*?/]{1,3}"
}

fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
    let one = (
        any_effect(),
        proptest::collection::vec(any_pattern(), 1..3),
        proptest::option::of("[xy]"),
    );
    proptest::collection::vec(one, 0..6).prop_map(|rules| {
        let build =
            |(index, (effect, patterns, message)): (usize, (Effect, Vec<String>, Option<String>))| Rule {
                id: format!("r{index}"),
                effect,
                tools: patterns.clone(),
                prompts: Vec::new(),
                resources: patterns,
                reverse: Vec::new(),
                message,
            };
        rules.into_iter().enumerate().map(build).collect()
    })
}

fn any_item() -> impl Strategy<Value = (Kind, String, String)> {
    let kind = prop_oneof![
        Just(Kind::Tool),
        Just(Kind::Resource),
        Just(Kind::ResourceTemplate)
    ];
    (kind, "[ab]{1,2}", "[ab/{}.]{1,4}")
}

proptest! {
    #[test]
    fn order_never_matters((mut rules, seed) in (any_rules(), any::<u64>()), default in any_effect(), (kind, server, local) in any_item()) {
        let before = policy(default, rules.clone());
        let turn = usize::try_from(seed % 7).unwrap() % rules.len().max(1);
        rules.rotate_left(turn);
        if seed % 2 == 0 {
            rules.reverse();
        }
        let after = policy(default, rules);
        prop_assert_eq!(before.bind(kind, &server, &local), after.bind(kind, &server, &local));
        prop_assert_eq!(before.digest(), after.digest());
    }

    #[test]
    fn adding_a_deny_never_allows_more(mut rules in any_rules(), pattern in any_pattern(), default in any_effect(), (kind, server, local) in any_item()) {
        let before = policy(default, rules.clone()).bind(kind, &server, &local).listed();
        let mut deny = rule("added", Effect::Deny, &[&pattern]);
        deny.resources = vec![pattern.clone()];
        rules.push(deny);
        let after = policy(default, rules).bind(kind, &server, &local).listed();
        prop_assert!(before || !after);
    }

    #[test]
    fn adding_an_allow_never_denies_more(mut rules in any_rules(), pattern in any_pattern(), default in any_effect(), (kind, server, local) in any_item()) {
        let before = policy(default, rules.clone()).bind(kind, &server, &local).listed();
        let mut allow = rule("added", Effect::Allow, &[&pattern]);
        allow.resources = vec![pattern.clone()];
        rules.push(allow);
        let after = policy(default, rules).bind(kind, &server, &local).listed();
        prop_assert!(!before || after);
    }

    #[test]
    fn the_list_and_the_call_agree(rules in any_rules(), default in any_effect(), (kind, server, local) in any_item()) {
        let bound = policy(default, rules).bind(kind, &server, &local);
        prop_assert_eq!(bound.listed(), decide(&bound).is_ok());
    }
}
