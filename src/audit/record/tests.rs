use super::*;
use proptest::prelude::*;

fn line(record: &Record) -> String {
    let mut out = Vec::new();
    let position = Position {
        time: Timestamp::UNIX_EPOCH,
        sequence: 3,
        instance: "i",
    };
    write_line(&mut out, &position, record);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_full_record_has_the_documented_fields() {
    let caller = Caller {
        identity: Identity::unix_peer(1000),
        host: Some("claude-code".into()),
        host_version: Some("2.0".into()),
        session: Some(session_label("secret-session-id")),
        transport: "unix",
        revision: Some("2025-11-25".into()),
    };
    let callee = Callee {
        server: "files".into(),
        transport: Some("stdio"),
        revision: Some("2025-06-18".into()),
    };
    let record = Record {
        call: Some(7),
        caller: Some(Arc::new(caller)),
        callee: Some(Arc::new(callee)),
        method: Some("tools/call".into()),
        kind: Some(Kind::Tool),
        local: Some("write".into()),
        public: Some("files__write".into()),
        decision: Some(Effect::Allow),
        layer: Some(Layer::Policy),
        rules: Some(Arc::from([Arc::from("reads")])),
        arguments: Some(ArgumentDigest {
            digest: [0xab; 32],
            bytes: 12,
        }),
        bytes_in: Some(100),
        bytes_out: Some(200),
        duration: Some(Duration::from_micros(1500)),
        queued: Some(Duration::ZERO),
        outcome: Some(Outcome::ToolError),
        error: Some(ErrorFacts {
            side: "downstream",
            code: None,
            rpc: Some(-32000),
        }),
        trace: Some("4bf92f3577b34da6a3ce929d0e0e4736".into()),
        ..Record::new(Event::Outcome)
    };
    let text = line(&record);
    assert!(!text.contains("secret-session-id"));
    insta::assert_snapshot!(text.trim_end().replace(",\"", ",\n\""));
}

#[test]
fn an_empty_record_has_only_its_frame() {
    assert_eq!(
        line(&Record::new(Event::Stop)),
        "{\"v\":1,\"time\":\"1970-01-01T00:00:00.000000Z\",\"seq\":3,\"instance\":\"i\",\"event\":\"stop\"}\n"
    );
}

#[test]
fn hostile_names_stay_on_one_line_and_cannot_move_a_terminal() {
    let name = "a\nb\r\u{1b}[31m\u{7f}\u{9b}2J\u{2028}\u{202e}\"\\é";
    let text = line(&Record {
        public: Some(name.into()),
        ..Record::new(Event::Rejected)
    });
    assert_eq!(text.matches('\n').count(), 1);
    assert!(
        text.trim_end().chars().all(|c| !c.is_control() && !is_layout(c)),
        "{text:?}"
    );
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["public"], name);
}

#[test]
fn endless_names_are_cut() {
    let name = "é".repeat(3_000_000);
    let text = line(&Record {
        public: Some(name.as_str().into()),
        ..Record::new(Event::Rejected)
    });
    assert!(text.len() < 2000);
    assert!(text.contains("…(+5998976 bytes)"), "{text}");
}

proptest! {
    #[test]
    fn any_text_comes_back_from_one_line(text in any::<String>()) {
        let text: String = text.chars().take(200).collect();
        let written = line(&Record { detail: Some(text.clone().into()), ..Record::new(Event::Reload) });
        let breaks = ['\n', '\r', '\u{85}', '\u{2028}'];
        prop_assert!(!written.trim_end_matches('\n').contains(breaks), "more than one line");
        let read: serde_json::Value = serde_json::from_str(&written).unwrap();
        prop_assert_eq!(read["detail"].as_str(), Some(text.as_str()));
    }
}

#[test]
fn records_stay_cheap_to_move() {
    assert!(size_of::<Record>() <= 512, "{}", size_of::<Record>());
}
