//! Tests of the clock sample server.

use super::*;

#[test]
fn the_clock_tells_the_time_in_its_zones() {
    let mut host = Host::new(SampleKind::Clock);
    let answer = host.modern(
        json!(1),
        "tools/call",
        json!({"name": "now", "arguments": {"zone": "Asia/Tokyo"}}),
    );
    let said = &answer["result"]["structuredContent"];
    assert_eq!(said["zone"], "Asia/Tokyo");
    let time = said["time"].as_str().unwrap();
    assert!(time.ends_with("+09:00"));
    assert_eq!(
        time.parse::<jiff::Timestamp>().unwrap().as_second(),
        said["unix"].as_i64().unwrap()
    );
    assert_eq!(
        host.modern(json!(2), "tools/call", json!({"name": "now"}))["result"]["structuredContent"]["zone"],
        "UTC"
    );
    let unknown = json!({"name": "now", "arguments": {"zone": "Mars/Base"}});
    assert_eq!(
        host.modern(json!(3), "tools/call", unknown)["result"]["isError"],
        true
    );

    let summer = "2026-07-01T12:00:00Z".parse().unwrap();
    let winter = "2026-12-01T12:00:00Z".parse().unwrap();
    let hour = |time, zone: &str| clock::in_zone(time, zone).unwrap().hour();
    assert_eq!(
        (hour(summer, "Europe/Berlin"), hour(winter, "Europe/Berlin")),
        (14, 13)
    );
    assert_eq!(
        (hour(summer, "Australia/Sydney"), hour(winter, "Australia/Sydney")),
        (22, 23)
    );
    assert_eq!(
        (
            hour(summer, "America/New_York"),
            hour(winter, "America/Sao_Paulo")
        ),
        (8, 9)
    );

    let read = host.modern(json!(4), "resources/read", json!({"uri": "clock:///timezones"}));
    let zones: Value = serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    for zone in zones.as_array().unwrap() {
        assert!(
            clock::in_zone(summer, zone["name"].as_str().unwrap()).is_some(),
            "{zone}"
        );
    }
}

#[test]
fn a_countdown_reports_rising_progress_and_then_the_answer() {
    let mut host = Host::new(SampleKind::Clock);
    for token in [json!("t"), json!(7)] {
        let call = json!({"name": "countdown", "arguments": {"seconds": 0.05, "steps": 5.0}, "_meta": {"progressToken": token}});
        host.send(json!(1), "tools/call", modern(call));
        for step in 1..=5 {
            let progress = host.next();
            assert_eq!(progress["method"], "notifications/progress");
            assert_eq!(progress["params"]["progressToken"], token);
            assert_eq!(
                (&progress["params"]["progress"], &progress["params"]["total"]),
                (&json!(step), &json!(5))
            );
        }
        let answer = host.next();
        assert_eq!(
            (&answer["id"], &answer["result"]["resultType"]),
            (&json!(1), &json!("complete"))
        );
    }
    // Neither token nor log level: nothing but the answer.
    let call = json!({"name": "countdown", "arguments": {"seconds": 0}});
    assert!(host.modern(json!(2), "tools/call", call)["result"]["isError"].is_null());
    for bad in [
        json!({}),
        json!({"seconds": -1}),
        json!({"seconds": 1, "steps": 0}),
        json!({"seconds": 1, "steps": 1.5}),
    ] {
        let call = json!({"name": "countdown", "arguments": bad});
        assert_eq!(
            host.modern(json!(3), "tools/call", call)["result"]["isError"],
            true
        );
    }
}

#[test]
fn a_cancelled_countdown_says_nothing_more_and_others_go_on() {
    let mut host = Host::legacy(SampleKind::Clock, "2025-11-25");
    host.ask(json!("l"), "logging/setLevel", json!({"level": "error"}));
    let long = json!({"name": "countdown", "arguments": {"seconds": 3000, "steps": 1}});
    host.send(json!(1), "tools/call", long.clone());
    host.send(json!("1"), "tools/call", long);
    // Unknown ones are ignored.
    host.notify("notifications/cancelled", json!({"requestId": 99}));
    host.notify("notifications/cancelled", json!({}));
    host.notify(
        "notifications/cancelled",
        json!({"requestId": 1, "reason": "test"}),
    );
    assert!(host.ask(json!(2), "ping", json!({}))["result"].is_object());
    // The number is free again, the string is not.
    assert!(host.ask(json!(1), "ping", json!({}))["result"].is_object());
    assert_eq!(host.ask(json!("1"), "ping", json!({}))["error"]["code"], -32600);
    assert_eq!(host.end(), "", "the end of stdin cancels the rest");
}

#[test]
fn log_messages_follow_the_level_of_the_family() {
    let call = |level: Option<&str>| {
        let mut call = modern(json!({"name": "countdown", "arguments": {"seconds": 0, "steps": 2}}));
        if let Some(level) = level {
            call["_meta"]["io.modelcontextprotocol/logLevel"] = json!(level);
        }
        call
    };
    let logged = |host: &mut Host, params: Value| {
        host.send(json!(1), "tools/call", params);
        let mut levels = Vec::new();
        loop {
            let message = host.next();
            if message["id"] == 1 {
                return levels;
            }
            assert_eq!(message["method"], "notifications/message");
            levels.push(message["params"]["level"].as_str().unwrap().to_owned());
        }
    };
    let mut host = Host::legacy(SampleKind::Clock, "2025-11-25");
    assert_eq!(logged(&mut host, call(None)), [""; 0]);
    assert_eq!(logged(&mut host, call(Some("info"))), ["info", "info"]);
    assert_eq!(
        logged(&mut host, call(Some("debug"))),
        ["info", "debug", "debug", "info"]
    );
    assert_eq!(logged(&mut host, call(Some("emergency"))), [""; 0]);
    let legacy = json!({"name": "countdown", "arguments": {"seconds": 0, "steps": 2}});
    assert_eq!(logged(&mut host, legacy.clone()), ["info", "info"]);
    host.ask(json!(2), "logging/setLevel", json!({"level": "debug"}));
    assert_eq!(logged(&mut host, legacy).len(), 4);
    assert_eq!(host.error("logging/setLevel", json!({"level": "loud"})), -32602);
}
