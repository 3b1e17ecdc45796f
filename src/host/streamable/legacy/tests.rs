use std::time::Duration;

use crate::host::HostSettings;
use crate::host::testing::{Fake, PLAIN, Rig, call, initialize, until};
use crate::session::Lane;
use crate::session::table::TableLimits;
use crate::wire::Outgoing;

const NEWEST: &str = "2025-11-25";

#[tokio::test]
async fn a_handshake_makes_a_session() {
    let rig = Rig::new().await;
    for (asked, agreed) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        (NEWEST, NEWEST),
        ("2026-07-28", NEWEST),
        ("1999-01-01", NEWEST),
    ] {
        let answer = rig.send("POST", "/mcp", &PLAIN, &initialize(asked)).await;
        assert_eq!(answer.status, 200);
        assert!(
            answer.seen.contains(&format!("\"protocolVersion\":\"{agreed}\"")),
            "{}",
            answer.seen
        );
        let id = answer.headers["mcp-session-id"].to_str().unwrap();
        assert!(id.len() >= 32 && id.bytes().all(|b| (0x21..=0x7e).contains(&b)));
    }
    // A host that names the modern revision in the header as well, without the modern key, still means a handshake.
    let headers = [PLAIN[0], PLAIN[1], ("mcp-protocol-version", "2026-07-28")];
    assert_eq!(
        rig.send("POST", "/mcp", &headers, &initialize("2026-07-28"))
            .await
            .status,
        200
    );
    assert_eq!(rig.server.sessions(), 6);
    let caller = rig.fake.callers.lock().unwrap()[0].clone();
    assert_eq!((&*caller.host_name, &*caller.host_version), ("test", "1"));
}

#[tokio::test]
async fn accept_in_every_spelling() {
    let rig = Rig::new().await;
    for accept in [
        "application/json",
        "text/event-stream",
        "*/*",
        "",
        "Application/JSON ; q=0.9",
    ] {
        let headers = [PLAIN[0], ("accept", accept)];
        let answer = rig.send("POST", "/mcp", &headers, &initialize(NEWEST)).await;
        assert_eq!(answer.status, 200, "{accept}");
        assert_eq!(answer.is_stream(), accept == "text/event-stream", "{accept}");
        assert!(answer.seen.contains("protocolVersion"));
        assert!(answer.headers.contains_key("mcp-session-id"));
    }
    let headers = [PLAIN[0], ("accept", "text/html")];
    assert_eq!(
        rig.send("POST", "/mcp", &headers, &initialize(NEWEST))
            .await
            .status,
        406
    );
}

#[tokio::test]
async fn a_request_needs_its_session() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let mut answer = rig.legacy(&session, &call("1", "echo")).await;
    answer.rest().await;
    assert_eq!(
        answer.seen,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"echo\":{\"n\":1}}}"
    );
    assert_eq!(answer.content_type(), "application/json");
    let answer = rig.send("POST", "/mcp", &PLAIN, &call("1", "echo")).await;
    assert_eq!(answer.status, 400);
    assert!(answer.seen.contains("initialize"), "{}", answer.seen);
    let mut answer = rig.legacy("made-up", &call("1", "echo")).await;
    answer.rest().await;
    assert_eq!(answer.status, 404);
    assert!(
        answer.seen.contains("\"error\"") && answer.seen.contains("\"id\":1"),
        "{}",
        answer.seen
    );
    for (version, status) in [
        ("2025-06-18", 200),
        (NEWEST, 200),
        ("nonsense", 400),
        ("2026-07-28", 400),
    ] {
        let headers = [
            PLAIN[0],
            PLAIN[1],
            ("mcp-session-id", &session),
            ("mcp-protocol-version", version),
        ];
        assert_eq!(
            rig.send("POST", "/mcp", &headers, &call("1", "echo"))
                .await
                .status,
            status,
            "{version}"
        );
    }
}

#[tokio::test]
async fn delete_ends_a_session() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let headers = [PLAIN[0], PLAIN[1], ("mcp-session-id", session.as_str())];
    let slow = rig.legacy(&session, &call("9", "first")).await;
    assert_eq!(rig.send("DELETE", "/mcp", &headers, "").await.status, 204);
    until("the call is cancelled", || Fake::count(&rig.fake.cancelled) == 1).await;
    drop(slow);
    assert_eq!(rig.fake.ended.lock().unwrap().len(), 1);
    for method in ["DELETE", "GET", "POST"] {
        let answer = rig.send(method, "/mcp", &headers, &call("1", "echo")).await;
        assert_eq!(answer.status, 404, "{method}");
    }
    assert_eq!(rig.server.sessions(), 0);
}

#[tokio::test]
async fn a_second_initialize_is_refused_and_the_session_survives() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let mut answer = rig.legacy(&session, &initialize(NEWEST)).await;
    answer.rest().await;
    assert!(answer.seen.contains("-32600"));
    let mut answer = rig
        .legacy(&session, "{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}")
        .await;
    answer.rest().await;
    assert_eq!(answer.seen, "{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"result\":{}}");
}

#[tokio::test]
async fn get_is_answered_by_what_it_names() {
    let rig = Rig::new().await;
    // Codex looks at the endpoint like this before anything else.
    let bare = rig
        .send(
            "GET",
            "/mcp",
            &[("accept", "*/*"), ("mcp-protocol-version", "2024-11-05")],
            "",
        )
        .await;
    assert_eq!(bare.status, 400);
    let unknown = rig
        .send("GET", "/mcp", &[PLAIN[1], ("mcp-session-id", "made-up")], "")
        .await;
    assert_eq!(unknown.status, 404);
    let session = rig.initialize(NEWEST).await;
    let live = rig
        .open("GET", "/mcp", &[PLAIN[1], ("mcp-session-id", &session)], "")
        .await;
    assert_eq!(live.status, 200);
    assert!(live.is_stream());
    for method in ["HEAD", "PUT", "PATCH"] {
        let answer = rig.send(method, "/mcp", &PLAIN, "").await;
        assert_eq!(answer.status, 405);
        assert_eq!(answer.headers["allow"], "POST, GET, DELETE");
    }
}

#[tokio::test]
async fn notifications_and_responses_get_202() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let mut answer = rig
        .legacy(
            &session,
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}",
        )
        .await;
    answer.rest().await;
    assert_eq!((answer.status.as_u16(), answer.seen.as_str()), (202, ""));
    assert_eq!(*rig.fake.notes.lock().unwrap(), ["notifications/initialized"]);
    let mut forged = rig
        .legacy(&session, "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}")
        .await;
    forged.rest().await;
    assert_eq!(forged.status, 400);
    assert!(rig.fake.rejected.lock().unwrap().contains(&"response_unknown"));
}

#[tokio::test]
async fn a_question_goes_to_the_stream_of_its_call_and_nobody_else_may_answer() {
    let rig = Rig::new().await;
    let (asked, other) = (rig.initialize(NEWEST).await, rig.initialize(NEWEST).await);
    let mut answer = rig.legacy(&asked, &call("1", "ask")).await;
    answer.read_until("elicitation/create").await;
    let reply = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"action\":\"accept\"}}";
    let mut forged = rig.legacy(&other, reply).await;
    forged.rest().await;
    assert_eq!(forged.status, 400);
    for _ in 0..2 {
        // The second is a repetition of the first and taken in silence.
        assert_eq!(rig.legacy(&asked, reply).await.status, 202);
    }
    answer.rest().await;
    assert!(
        answer.seen.contains("\"result\":{\"action\":\"accept\"}"),
        "{}",
        answer.seen
    );
}

#[tokio::test]
async fn the_same_id_twice_at_once_is_refused() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let mut first = rig.legacy(&session, &call("1", "first")).await;
    let mut second = rig.legacy(&session, &call("1", "echo")).await;
    second.rest().await;
    assert!(second.seen.contains("-32600"), "{}", second.seen);
    rig.fake.open(1);
    first.rest().await;
    assert!(first.seen.contains("\"first\":true"));
    let mut again = rig.legacy(&session, &call("1", "echo")).await;
    again.rest().await;
    assert!(again.seen.contains("echo"));
}

#[tokio::test]
async fn cancelling_finds_the_right_request() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let mut slow = rig.legacy(&session, &call("1", "first")).await;
    slow.read_until("progress").await;
    let cancel = |id: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}}}}}"
        )
    };
    // The string "1" is another id than the number 1.
    assert_eq!(rig.legacy(&session, &cancel("\"1\"")).await.status, 202);
    assert_eq!(Fake::count(&rig.fake.cancelled), 0);
    assert_eq!(rig.legacy(&session, &cancel("1")).await.status, 202);
    slow.rest().await;
    assert!(!slow.seen.contains("\"first\":true"), "{}", slow.seen);
    assert_eq!(Fake::count(&rig.fake.cancelled), 1);
    // opencode cancels every call after its answer.
    assert_eq!(rig.legacy(&session, &cancel("1")).await.status, 202);
}

#[tokio::test]
async fn a_dropped_connection_cancels_nothing_and_the_rest_is_there_for_who_comes_back() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let mut answer = rig.legacy(&session, &call("1", "first")).await;
    answer.read_until("\"progress\":1").await;
    let events = answer.events();
    assert!(
        events[0].1.is_empty() && events[0].0.ends_with("-0"),
        "a priming event: {events:?}"
    );
    let (primed, progressed) = (events[0].0.clone(), events[1].0.clone());
    answer.close();
    rig.fake.open(1);
    until("the call is answered", || Fake::count(&rig.fake.answered) == 1).await;
    assert_eq!(Fake::count(&rig.fake.dropped), 0);
    let resume = |id: String| {
        let (rig, session) = (&rig, session.clone());
        async move {
            let headers = [
                PLAIN[1],
                ("mcp-session-id", session.as_str()),
                ("last-event-id", id.as_str()),
            ];
            rig.send("GET", "/mcp", &headers, "").await
        }
    };
    let rest = resume(progressed.clone()).await;
    assert_eq!(rest.events().len(), 1, "{}", rest.seen);
    assert!(rest.events()[0].1.contains("\"first\":true"));
    // Taken up once more after its end: the same rest, and nothing after the answer.
    let whole = resume(primed).await;
    assert_eq!(whole.events().len(), 2, "{}", whole.seen);
    let end = resume(rest.events()[0].0.clone()).await;
    assert_eq!((end.status.as_u16(), end.events().len()), (200, 0));
    for bad in ["nonsense", "77-1", "1-99"] {
        assert_eq!(resume(bad.to_owned()).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_call_nobody_can_take_up_again_leaves_nothing() {
    let rig = Rig::new().await;
    let session = rig.initialize("2025-06-18").await;
    let headers = [PLAIN[0], PLAIN[1], ("mcp-session-id", session.as_str())];
    rig.abandon(&headers, &call("1", "slow")).await;
    rig.fake.open(1);
    until("the call is answered", || Fake::count(&rig.fake.answered) == 1).await;
    let entry = rig.server.shared.table.get(&session).unwrap();
    until("the request is closed", || entry.session.in_flight.is_empty()).await;
    assert_eq!(
        (entry.face.replay.open_streams(), entry.face.replay.size()),
        (1, (0, 0))
    );
}

#[tokio::test]
async fn no_empty_event_for_older_parsers() {
    let rig = Rig::new().await;
    let session = rig.initialize("2025-06-18").await;
    let mut answer = rig.legacy(&session, &call("1", "progress")).await;
    answer.rest().await;
    let events = answer.events();
    assert_eq!(events.len(), 4);
    assert!(events.iter().all(|(id, data)| !id.is_empty() && !data.is_empty()));
    assert!(!answer.seen.contains("retry"));
}

#[tokio::test]
async fn the_general_stream_has_one_reader_and_waits_for_one() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let general = rig.fake.session().general.clone();
    let note = |n: usize| Outgoing::from(format!("{{\"note\":{n}}}"));
    assert!(!general.attached());
    general.send(Lane::Notice, note(1));
    let headers = [PLAIN[1], ("mcp-session-id", session.as_str())];
    let mut older = rig.open("GET", "/mcp", &headers, "").await;
    older.read_until("{\"note\":1}").await;
    assert!(general.attached());
    let mut newer = rig.open("GET", "/mcp", &headers, "").await;
    older.rest().await;
    general.send(Lane::Notice, note(2));
    newer.read_until("{\"note\":2}").await;
    assert!(!newer.seen.contains("\"note\":1") && !older.seen.contains("\"note\":2"));
    let last = newer.events()[0].0.clone();
    newer.close();
    until("nobody reads", || !general.attached()).await;
    general.send(Lane::Notice, note(3));
    let headers = [headers[0], headers[1], ("last-event-id", last.as_str())];
    let mut again = rig.open("GET", "/mcp", &headers, "").await;
    again.read_until("{\"note\":3}").await;
    assert!(!again.seen.contains("\"note\":2"));
}

#[tokio::test]
async fn batches_only_where_they_were_agreed() {
    let rig = Rig::new().await;
    let batch = format!(
        "[{},{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}},{},3,{}]",
        call("1", "echo"),
        call("2", "echo"),
        initialize("2025-03-26")
    );
    let newest = rig.initialize(NEWEST).await;
    let mut refused = rig.legacy(&newest, &batch).await;
    refused.rest().await;
    assert_eq!(refused.status, 400);
    assert!(refused.seen.contains("-32600"));
    let older = rig.initialize("2025-03-26").await;
    let mut answer = rig.legacy(&older, &batch).await;
    answer.rest().await;
    assert_eq!(answer.content_type(), "application/json");
    let answers: Vec<serde_json::Value> = serde_json::from_str(&answer.seen).unwrap();
    assert_eq!(answers.len(), 4, "{}", answer.seen);
    for id in [1, 2] {
        assert!(
            answers
                .iter()
                .any(|answer| answer["id"] == id && answer["result"]["echo"]["n"] == id)
        );
    }
    assert!(
        answers
            .iter()
            .any(|answer| answer["id"] == 0 && answer["error"]["code"] == -32600)
    );
    let only = "[{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}]";
    assert_eq!(rig.legacy(&older, only).await.status, 202);
    let streamed = format!("[{},{}]", call("3", "progress"), call("4", "echo"));
    let mut answer = rig.legacy(&older, &streamed).await;
    answer.rest().await;
    assert!(answer.is_stream());
    assert!(answer.events().last().unwrap().1.starts_with('['));
}

#[tokio::test]
async fn caps_and_idle_expiry() {
    let sessions = TableLimits {
        total: 3,
        per_identity: 2,
        idle: Duration::from_millis(200),
    };
    let rig = Rig::with(HostSettings {
        sessions,
        ..HostSettings::default()
    })
    .await;
    let first = rig.initialize(NEWEST).await;
    let held = rig
        .open("GET", "/mcp", &[PLAIN[1], ("mcp-session-id", &first)], "")
        .await;
    rig.initialize(NEWEST).await;
    let refused = rig.send("POST", "/mcp", &PLAIN, &initialize(NEWEST)).await;
    assert_eq!(refused.status, 429);
    assert!(refused.seen.contains("\"retryable\":true"));
    until("the idle one is gone", || rig.server.sessions() == 1).await;
    assert!(rig.server.shared.table.get(&first).is_some());
    drop(held);
    until("the other is gone too", || rig.server.sessions() == 0).await;
    assert_eq!(rig.fake.ended.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_panic_is_an_error_to_its_caller_only() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let mut answer = rig.legacy(&session, &call("1", "panic")).await;
    answer.rest().await;
    assert!(answer.seen.contains("-32603"), "{}", answer.seen);
    let mut answer = rig.legacy(&session, &call("1", "echo")).await;
    answer.rest().await;
    assert!(answer.seen.contains("echo"));
}

#[tokio::test]
async fn a_stalled_reader_costs_a_bounded_queue_and_still_gets_the_answer() {
    let rig = Rig::new().await;
    let session = rig.initialize(NEWEST).await;
    let mut answer = rig.legacy(&session, &call("1", "flood")).await;
    rig.fake.open(1);
    answer.rest().await;
    let events = answer.events();
    assert!(events.len() < 5_000);
    assert!(events.last().unwrap().1.contains("\"flood\":true"));
    assert!(
        events.iter().any(|(_, data)| data.contains("\"progress\":5000")),
        "the latest is never lost"
    );
}
