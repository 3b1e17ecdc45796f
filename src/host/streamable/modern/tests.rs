use crate::host::HostSettings;
use crate::host::testing::{Fake, META, PLAIN, Rig, modern_call, modern_headers, until};
use std::time::Duration;

fn with<'h>(headers: &[(&'h str, &'h str)], name: &str, value: &'h str) -> Vec<(&'h str, &'h str)> {
    headers
        .iter()
        .map(|(key, old)| (*key, if *key == name { value } else { *old }))
        .collect()
}

#[tokio::test]
async fn an_answer_that_comes_first_is_plain_json_of_known_length() {
    let rig = Rig::new().await;
    let mut answer = rig.modern("\"a\"", "echo", "{\"n\":1.10}").await;
    answer.rest().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.content_type(), "application/json");
    assert_eq!(answer.headers["content-length"], answer.seen.len().to_string());
    assert_eq!(
        answer.seen,
        "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"echo\":{\"n\":1.10}}}"
    );
    assert!(!answer.headers.contains_key("mcp-session-id"));
}

#[tokio::test]
async fn progress_makes_a_stream_and_the_answer_comes_in_a_frame_of_its_own() {
    let rig = Rig::new().await;
    let mut answer = rig.modern("7", "progress", "{}").await;
    assert!(answer.is_stream());
    assert_eq!(answer.headers["x-accel-buffering"], "no");
    assert_eq!(answer.headers["cache-control"], "no-cache, no-transform");
    let mut last = String::new();
    while let Some(frame) = answer.frame().await {
        last = frame;
    }
    assert!(!last.contains("notifications/progress"), "{last}");
    let events = answer.events();
    assert_eq!(events.len(), 4);
    for (n, (id, data)) in events.iter().take(3).enumerate() {
        assert!(id.is_empty());
        assert!(data.contains(&format!("\"progress\":{}", n + 1)));
    }
    assert_eq!(
        events[3].1,
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"done\":true}}"
    );
}

#[tokio::test]
async fn a_large_answer_is_plain_json() {
    let rig = Rig::new().await;
    let mut answer = rig.modern("1", "big", "{}").await;
    answer.rest().await;
    assert_eq!(answer.content_type(), "application/json");
    assert!(answer.seen.len() > 2 << 20);
}

#[tokio::test]
async fn closing_before_the_first_byte_cancels() {
    let rig = Rig::new().await;
    rig.abandon(
        &modern_headers("tools/call", "slow"),
        &modern_call("1", "slow", "{}"),
    )
    .await;
    until("the call is dropped", || Fake::count(&rig.fake.dropped) == 1).await;
}

#[tokio::test]
async fn closing_the_stream_cancels() {
    let rig = Rig::new().await;
    let mut answer = rig.modern("1", "first", "{}").await;
    answer.read_until("notifications/progress").await;
    assert_eq!(Fake::count(&rig.fake.dropped), 0);
    answer.close();
    until("the call is dropped", || Fake::count(&rig.fake.dropped) == 1).await;
    assert_eq!(Fake::count(&rig.fake.answered), 0);
}

#[tokio::test]
async fn a_silent_wait_becomes_a_stream_with_comments() {
    let rig = Rig::with(HostSettings {
        keep_alive: Duration::from_millis(30),
        ..HostSettings::default()
    })
    .await;
    let mut answer = rig.modern("1", "slow", "{}").await;
    assert!(answer.is_stream());
    answer.read_until(": keep-alive").await;
    rig.fake.open(1);
    answer.rest().await;
    assert!(answer.seen.contains("\"slow\":true"));
}

#[tokio::test]
async fn the_host_chooses_the_form() {
    let rig = Rig::new().await;
    let headers = modern_headers("tools/call", "progress");
    let body = modern_call("1", "progress", "{}");
    for accept in ["application/json", "Application/JSON ; q=0.9"] {
        let answer = rig
            .send("POST", "/mcp", &with(&headers, "accept", accept), &body)
            .await;
        assert_eq!(answer.content_type(), "application/json", "{accept}");
        assert!(answer.seen.contains("\"done\":true"));
    }
    for accept in ["text/event-stream", "*/*", ""] {
        let answer = rig
            .send("POST", "/mcp", &with(&headers, "accept", accept), &body)
            .await;
        assert!(answer.is_stream(), "{accept}");
        assert_eq!(answer.events().len(), 4);
    }
    let echo = modern_call("1", "echo", "{}");
    let headers = modern_headers("tools/call", "echo");
    let answer = rig
        .send(
            "POST",
            "/mcp",
            &with(&headers, "accept", "text/event-stream"),
            &echo,
        )
        .await;
    assert!(answer.is_stream() && answer.events().len() == 1);
    let answer = rig
        .send("POST", "/mcp", &with(&headers, "accept", "text/html"), &echo)
        .await;
    assert_eq!(answer.status, 406);
}

#[tokio::test]
async fn what_is_checked_and_how_it_is_answered() {
    let rig = Rig::new().await;
    let good = modern_headers("tools/call", "echo");
    let body = modern_call("1", "echo", "{}");
    let bare = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\"}}";
    let no_capabilities = body.replace(",\"io.modelcontextprotocol/clientCapabilities\":{}", "");
    let newer = body.replace("2026-07-28", "2031-01-01");
    let initialize =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{{{META}}}}}");
    let response = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}";
    let level = body.replace(
        "\"_meta\":{",
        "\"_meta\":{\"io.modelcontextprotocol/logLevel\":\"loud\",",
    );
    type Case<'c> = (&'c str, Vec<(&'c str, &'c str)>, &'c str, u16, &'c str);
    let cases: Vec<Case<'_>> = vec![
        ("broken", good.clone(), "{\"jsonrpc\":", 400, "-32700"),
        ("array", good.clone(), "[]", 400, "-32600"),
        ("not an object", good.clone(), "3", 400, "-32600"),
        (
            "versions differ",
            with(&good, "mcp-protocol-version", "2025-11-25"),
            &body,
            400,
            "-32020",
        ),
        ("no meta", good.clone(), bare, 400, "-32602"),
        ("no capabilities", good.clone(), &no_capabilities, 400, "-32602"),
        (
            "newer",
            with(&good, "mcp-protocol-version", "2031-01-01"),
            &newer,
            400,
            "-32022",
        ),
        (
            "no version header",
            with(&good, "mcp-protocol-version", ""),
            &body,
            400,
            "-32020",
        ),
        (
            "no method header",
            with(&good, "mcp-method", ""),
            &body,
            400,
            "-32020",
        ),
        (
            "other method",
            with(&good, "mcp-method", "tools/list"),
            &body,
            400,
            "-32020",
        ),
        (
            "method in other case",
            with(&good, "mcp-method", "Tools/Call"),
            &body,
            400,
            "-32020",
        ),
        (
            "no name header",
            with(&good, "mcp-name", ""),
            &body,
            400,
            "-32020",
        ),
        (
            "other name",
            with(&good, "mcp-name", "other"),
            &body,
            400,
            "-32020",
        ),
        (
            "bad base64",
            with(&good, "mcp-name", "=?base64?%%?="),
            &body,
            400,
            "-32020",
        ),
        (
            "initialize",
            with(&good, "mcp-method", "initialize"),
            &initialize,
            404,
            "-32601",
        ),
        ("a response", good.clone(), response, 400, "-32600"),
        ("log level", good.clone(), &level, 400, "-32602"),
        (
            "text",
            with(&good, "content-type", "text/plain"),
            &body,
            415,
            "-32600",
        ),
    ];
    for (what, headers, body, status, code) in cases {
        let answer = rig.send("POST", "/mcp", &headers, body).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.seen);
        assert!(
            answer.seen.contains(&format!("\"code\":{code}")),
            "{what}: {}",
            answer.seen
        );
        assert!(answer.seen.contains("\"manifold\":{\"side\":\"host\""), "{what}");
    }
    assert_eq!(Fake::count(&rig.fake.started), 0);
    let answer = rig
        .send(
            "POST",
            "/mcp",
            &with(&good, "mcp-protocol-version", "2031-01-01"),
            &newer,
        )
        .await;
    assert!(
        answer
            .seen
            .contains("\"supported\":[\"2026-07-28\"],\"requested\":\"2031-01-01\""),
        "{}",
        answer.seen
    );
    let encoded = with(&good, "mcp-name", "=?base64?ZWNobw==?=");
    assert_eq!(rig.send("POST", "/mcp", &encoded, &body).await.status, 200);
    let charset = with(&good, "content-type", "APPLICATION/JSON; charset=UTF-8");
    assert_eq!(rig.send("POST", "/mcp", &charset, &body).await.status, 200);
}

#[tokio::test]
async fn a_session_id_means_nothing_here() {
    let rig = Rig::new().await;
    let mut headers = modern_headers("tools/call", "echo");
    headers.extend([("mcp-session-id", "made-up"), ("last-event-id", "1-1")]);
    let answer = rig
        .send("POST", "/mcp", &headers, &modern_call("1", "echo", "{}"))
        .await;
    assert_eq!(answer.status, 200);
    let headers = [PLAIN[1], ("mcp-protocol-version", "2026-07-28")];
    for method in ["GET", "DELETE"] {
        let answer = rig.send(method, "/mcp", &headers, "").await;
        assert_eq!(
            (answer.status.as_u16(), answer.headers["allow"].to_str().unwrap()),
            (405, "POST"),
            "{method}"
        );
    }
}

#[tokio::test]
async fn notifications_are_taken_in_silence() {
    let rig = Rig::new().await;
    let mut headers = PLAIN.to_vec();
    headers.push(("mcp-protocol-version", "2026-07-28"));
    let body = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}";
    let answer = rig.send("POST", "/mcp", &headers, body).await;
    assert_eq!((answer.status.as_u16(), answer.seen.as_str()), (202, ""));
}

#[tokio::test]
async fn many_hosts_with_the_same_ids_get_their_own_answers() {
    let rig = Rig::new().await;
    let calls = (0..50).map(|n| {
        let rig = &rig;
        async move {
            let mut answer = rig.modern("1", "echo", &format!("{{\"secret\":{n}}}")).await;
            answer.rest().await;
            assert!(
                answer.seen.contains(&format!("{{\"secret\":{n}}}")),
                "{}",
                answer.seen
            );
        }
    });
    futures_util::future::join_all(calls).await;
}

#[tokio::test]
async fn many_that_disconnect_leave_nothing() {
    let rig = Rig::new().await;
    for _ in 0..100 {
        rig.abandon(
            &modern_headers("tools/call", "slow"),
            &modern_call("1", "slow", "{}"),
        )
        .await;
    }
    until("all are dropped", || Fake::count(&rig.fake.dropped) == 100).await;
    until("no connection is left", || rig.server.connections() == 0).await;
    let mut answer = rig.modern("1", "echo", "{}").await;
    answer.rest().await;
    assert_eq!(answer.status, 200);
}
