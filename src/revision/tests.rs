use super::*;

#[test]
fn version_strings_round_trip_and_sort_as_published() {
    for pair in Revision::ALL.windows(2) {
        assert!(pair[0] < pair[1]);
        assert!(pair[0].as_str() < pair[1].as_str());
    }
    for revision in Revision::ALL {
        assert_eq!(Revision::parse(revision.as_str()), Some(revision));
        assert_eq!(revision.as_str().parse(), Ok(revision));
    }
    for strange in ["", "2025-06-18 ", "2025-06-19", "2025", "DRAFT-2026-v1"] {
        assert_eq!(Revision::parse(strange), None, "{strange}");
    }
}

#[test]
fn a_handshake_echoes_a_legacy_version_and_otherwise_offers_the_newest_legacy_one() {
    for &revision in Revision::supported_legacy() {
        assert_eq!(Revision::negotiate_legacy(revision.as_str()), revision);
    }
    for other in ["2026-07-28", "2099-01-01", "1999-01-01", "", "latest"] {
        assert_eq!(
            Revision::negotiate_legacy(other),
            Revision::V2025_11_25,
            "{other}"
        );
    }
}

#[test]
fn the_families_split_all_revisions() {
    let mut both = Revision::supported_legacy().to_vec();
    both.extend_from_slice(Revision::supported_modern());
    assert_eq!(both, Revision::ALL);
    assert!(
        Revision::supported_legacy()
            .iter()
            .all(|r| r.family() == Family::Legacy)
    );
    assert!(
        Revision::supported_modern()
            .iter()
            .all(|r| r.family() == Family::Modern)
    );
}

#[test]
fn the_newest_common_modern_revision_ignores_order_and_legacy_entries() {
    assert_eq!(
        Revision::newest_common_modern(["2025-11-25", "2026-07-28", "2030-01-01"]),
        Some(Revision::V2026_07_28)
    );
    assert_eq!(Revision::newest_common_modern(["2025-11-25", "2030-01-01"]), None);
    assert_eq!(Revision::newest_common_modern([]), None);
}

#[test]
fn later_versions_than_ours_look_modern() {
    assert!(looks_modern("2026-07-28"));
    assert!(looks_modern("2027-01-01"));
    assert!(!looks_modern("2025-11-25"));
    assert!(!looks_modern("2025-01-01"));
}

#[test]
fn the_table_says_what_the_specification_says() {
    let with = |has: fn(Features) -> bool| -> Vec<&'static str> {
        Revision::ALL
            .into_iter()
            .filter(|r| has(r.features()))
            .map(Revision::as_str)
            .collect()
    };
    assert_eq!(with(|f| f.batches), ["2025-03-26"]);
    assert_eq!(
        with(|f| f.audio),
        ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
    );
    assert_eq!(
        with(|f| f.structured_content),
        ["2025-06-18", "2025-11-25", "2026-07-28"]
    );
    assert_eq!(with(|f| f.elicitation_url), ["2025-11-25", "2026-07-28"]);
    assert_eq!(with(|f| f.priming_event), ["2025-11-25"]);
    assert_eq!(with(|f| f.tasks_core), ["2025-11-25"]);
    assert_eq!(with(|f| f.routing_headers), ["2026-07-28"]);
    assert_eq!(
        with(|f| f.reverse_requests),
        ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
    );
    assert_eq!(with(|f| f.resource_not_found_code == -32602), ["2026-07-28"]);
}

#[test]
fn methods_are_known_by_family_and_side() {
    for both in [
        "tools/list",
        "tools/call",
        "notifications/cancelled",
        "completion/complete",
    ] {
        assert!(
            known_to_host_side(both, Family::Legacy) && known_to_host_side(both, Family::Modern),
            "{both}"
        );
    }
    for removed in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        assert!(
            known_to_host_side(removed, Family::Legacy) && !known_to_host_side(removed, Family::Modern),
            "{removed}"
        );
    }
    assert!(!known_to_host_side("server/discover", Family::Legacy));
    assert!(
        !known_to_host_side("roots/list", Family::Legacy),
        "only servers ask for roots"
    );
    assert!(known_to_downstream_side("roots/list", Family::Legacy));
    assert!(!known_to_downstream_side("roots/list", Family::Modern));
    assert!(!known_to_host_side("tools/unheard-of", Family::Modern));
}
