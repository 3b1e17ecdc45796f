use crate::host::HostSettings;
use crate::host::testing::{Fake, Opened, PLAIN, Rig, call, initialize, until};

async fn pair(rig: &Rig) -> (Opened, String) {
    let mut stream = rig
        .open("GET", "/sse", &[("accept", "text/event-stream")], "")
        .await;
    assert!(stream.is_stream());
    stream.read_until("\n\n").await;
    assert!(stream.seen.starts_with("event: endpoint\n"), "{}", stream.seen);
    let address = stream.events()[0].1.clone();
    assert!(
        address.starts_with("messages?"),
        "relative, for proxies: {address}"
    );
    (stream, format!("/{address}"))
}

#[tokio::test]
async fn a_pair_from_handshake_to_end() {
    let rig = Rig::with(HostSettings {
        sse: true,
        ..HostSettings::default()
    })
    .await;
    let (mut stream, address) = pair(&rig).await;
    let answer = rig
        .send("POST", &address, &PLAIN, &initialize("2024-11-05"))
        .await;
    assert_eq!((answer.status.as_u16(), answer.seen.as_str()), (202, ""));
    stream.read_until("\"protocolVersion\":\"2024-11-05\"").await;
    rig.send("POST", &address, &PLAIN, &call("1", "progress")).await;
    stream.read_until("\"done\":true").await;
    assert!(stream.seen.contains("\"progress\":3"));
    rig.send("POST", &address, &PLAIN, &call("2", "ask")).await;
    stream.read_until("elicitation/create").await;
    rig.send(
        "POST",
        &address,
        &PLAIN,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"yes\":1}}",
    )
    .await;
    stream.read_until("\"result\":{\"yes\":1}").await;
    rig.send("POST", &address, &PLAIN, &call("3", "slow")).await;
    until("the call runs", || Fake::count(&rig.fake.started) == 3).await;
    stream.close();
    until("the call is cancelled", || Fake::count(&rig.fake.cancelled) == 1).await;
    until("the session is over", || {
        rig.fake.ended.lock().unwrap().len() == 1
    })
    .await;
    assert_eq!(
        rig.send("POST", &address, &PLAIN, &call("4", "echo"))
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn what_is_refused() {
    let rig = Rig::with(HostSettings {
        sse: true,
        ..HostSettings::default()
    })
    .await;
    assert_eq!(
        rig.send("POST", "/sse", &PLAIN, &initialize("2024-11-05"))
            .await
            .status,
        405
    );
    assert_eq!(rig.send("GET", "/messages", &PLAIN, "").await.status, 405);
    assert_eq!(
        rig.send("POST", "/messages?session_id=made-up", &PLAIN, "{}")
            .await
            .status,
        404
    );
    assert_eq!(
        rig.send("GET", "/sse", &[("origin", "http://evil.example")], "")
            .await
            .status,
        403
    );
    let (mut stream, address) = pair(&rig).await;
    rig.send("POST", &address, &PLAIN, "{\"broken").await;
    stream.read_until("-32700").await;
    rig.send("POST", &address, &PLAIN, &call("1", "echo")).await;
    stream.read_until("-32601").await;
}
