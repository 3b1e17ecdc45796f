use crate::host::HostSettings;
use crate::host::testing::{Fake, PLAIN, Rig, call, initialize, modern_call, modern_headers};

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_before_anything() {
    let rig = Rig::new().await;
    let cases = [
        ("host", "evil.example", 403),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost.evil.example", 403),
        ("origin", "http://localhost:6274", 200),
        ("host", "[::1]:1234", 200),
        ("host", "localhost", 200),
    ];
    for (name, value, status) in cases {
        let headers = [PLAIN[0], PLAIN[1], (name, value)];
        let answer = rig
            .send("POST", "/mcp", &headers, &initialize("2025-11-25"))
            .await;
        assert_eq!(answer.status, status, "{name}: {value}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"));
        let answer = rig.send("POST", "/nowhere", &headers, "").await;
        assert_eq!(answer.status == 403, status == 403);
    }
    assert_eq!(
        rig.send("OPTIONS", "/mcp", &[("origin", "http://evil.example")], "")
            .await
            .status,
        403
    );
}

#[tokio::test]
async fn a_listed_origin_can_read_every_answer() {
    let allowed_origins = vec!["https://app.example".to_owned()];
    let rig = Rig::with(HostSettings {
        allowed_origins,
        ..HostSettings::default()
    })
    .await;
    let origin = ("origin", "https://app.example");
    let ask = [
        origin,
        (
            "access-control-request-headers",
            "content-type, mcp-param-region, x-evil",
        ),
    ];
    let answer = rig.send("OPTIONS", "/mcp", &ask, "").await;
    assert_eq!(answer.status, 204);
    let text = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
    assert_eq!(text("access-control-allow-origin"), "https://app.example");
    assert!(text("access-control-allow-headers").contains("mcp-param-region"));
    assert!(text("access-control-allow-headers").contains("mcp-protocol-version"));
    assert!(!text("access-control-allow-headers").contains("x-evil"));
    assert!(text("access-control-allow-methods").contains("DELETE"));
    assert!(!answer.headers.contains_key("access-control-allow-credentials"));
    for (method, status) in [("GET", 400), ("DELETE", 400), ("PUT", 405), ("POST", 415)] {
        let answer = rig.send(method, "/mcp", &[origin], "").await;
        assert_eq!(answer.status, status, "{method}");
        assert_eq!(
            answer.headers["access-control-allow-origin"],
            "https://app.example"
        );
        assert!(
            answer.headers["access-control-expose-headers"]
                .to_str()
                .unwrap()
                .contains("Mcp-Session-Id")
        );
    }
}

#[tokio::test]
async fn paths() {
    let rig = Rig::new().await;
    for path in ["/mcp", "/mcp/"] {
        let answer = rig.send("POST", path, &PLAIN, &initialize("2025-11-25")).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    for path in [
        "/",
        "/mcp/more",
        "/sse",
        "/messages",
        "/.well-known/oauth-protected-resource",
        "/MCP",
    ] {
        let answer = rig.send("GET", path, &[], "").await;
        assert_eq!(
            (answer.status.as_u16(), answer.content_type()),
            (404, "application/json"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn bodies_are_bounded() {
    let rig = Rig::with(HostSettings {
        max_body: 10_000,
        ..HostSettings::default()
    })
    .await;
    let fits = modern_call("1", "echo", &format!("\"{}\"", "x".repeat(5_000)));
    let headers = modern_headers("tools/call", "echo");
    assert_eq!(rig.send("POST", "/mcp", &headers, &fits).await.status, 200);
    let over = modern_call("1", "echo", &format!("\"{}\"", "x".repeat(500_000)));
    let answer = rig.send("POST", "/mcp", &headers, &over).await;
    assert_eq!(answer.status, 413);
    assert!(
        answer.seen.contains("\"jsonrpc\"") && answer.seen.contains("10000"),
        "{}",
        answer.seen
    );
    let mut coded = headers.clone();
    coded.push(("content-encoding", "gzip"));
    assert_eq!(rig.send("POST", "/mcp", &coded, &fits).await.status, 415);
    assert_eq!(Fake::count(&rig.fake.started), 1);
    assert!(rig.fake.rejected.lock().unwrap().contains(&"body_too_large"));
    let _ = call("1", "echo");
}
