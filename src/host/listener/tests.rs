use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty, Full};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::host::testing::{Fake, PLAIN, Rig, call, modern_call, modern_headers, until};

#[tokio::test]
async fn a_unix_socket_names_its_user_and_is_taken_over_when_stale() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let fake = Fake::new();
    let listen = [BindAddress::Unix(path.clone())];
    let server = HostServer::start(&listen, HostSettings::default(), fake.clone())
        .await
        .unwrap();
    assert!(
        HostServer::start(&listen, HostSettings::default(), fake.clone())
            .await
            .is_err()
    );
    let stream = UnixStream::connect(&path).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tasks::spawn("test client", connection);
    let mut request = Request::post("/mcp").header("host", "anything.example");
    for (name, value) in modern_headers("tools/call", "echo") {
        request = request.header(name, value);
    }
    let body = Full::new(bytes::Bytes::from(modern_call("1", "echo", "{}")));
    let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let caller = fake.callers.lock().unwrap()[0].clone();
    assert!(
        caller.identity.key().starts_with("unix_peer:uid:"),
        "{:?}",
        caller.identity
    );
    assert_eq!(caller.transport, HostTransport::Unix);
    drop(sender);
    connection.await.unwrap().unwrap();
    server.drain(Duration::from_secs(1)).await;
    assert!(!path.exists());
}

#[tokio::test]
async fn http2_without_tls() {
    let rig = Rig::new().await;
    let stream = TcpStream::connect(rig.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(Tasks, TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tasks::spawn("test client", connection);
    let mut request = Request::post(format!("http://{}/mcp", rig.address));
    for (name, value) in modern_headers("tools/call", "first") {
        request = request.header(name, value);
    }
    let body = Full::new(bytes::Bytes::from(modern_call("1", "first", "{}")));
    let mut answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.body_mut().frame().await.is_some());
    // Resetting the stream cancels, though the connection lives.
    drop(answer);
    until("the call is dropped", || Fake::count(&rig.fake.dropped) == 1).await;
    assert!(!connection.is_finished());
    connection.abort();
}

#[tokio::test]
async fn a_drain_lets_calls_finish_and_ends_the_rest() {
    let rig = Rig::new().await;
    let session = rig.initialize("2025-11-25").await;
    let mut idle = rig
        .open("GET", "/mcp", &[PLAIN[1], ("mcp-session-id", &session)], "")
        .await;
    let mut running = rig.modern("1", "first", "{}").await;
    running.read_until("progress").await;
    let finish = async {
        idle.rest().await;
        rig.fake.open(1);
        running.rest().await;
        assert!(running.seen.contains("\"first\":true"), "{}", running.seen);
    };
    let (forced, ()) = tokio::join!(rig.server.drain(Duration::from_secs(10)), finish);
    assert_eq!(forced, Forced::default());
    assert!(TcpStream::connect(rig.address).await.is_err());
    assert_eq!(rig.server.sessions(), 0);
}

#[tokio::test]
async fn a_drain_ends_in_time_whatever_hosts_do() {
    let rig = Rig::new().await;
    let session = rig.initialize("2025-11-25").await;
    let _modern = rig.modern("1", "first", "{}").await;
    let _legacy = rig.legacy(&session, &call("1", "first")).await;
    let mut silent = TcpStream::connect(rig.address).await.unwrap();
    let mut half = TcpStream::connect(rig.address).await.unwrap();
    half.write_all(b"POST /mcp HTTP/1.1\r\n").await.unwrap();
    until("all are connected", || rig.server.connections() == 4).await;
    let start = Instant::now();
    let forced = rig.server.drain(Duration::from_millis(100)).await;
    assert!(start.elapsed() < Duration::from_secs(6));
    assert!(forced.connections >= 2 && forced.requests == 1, "{forced:?}");
    until("the legacy call is cancelled", || {
        Fake::count(&rig.fake.cancelled) >= 1
    })
    .await;
    assert_eq!(rig.server.connections(), 0);
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn connections_that_say_nothing_or_take_nothing_are_dropped() {
    let settings = HostSettings {
        head_timeout: Duration::from_millis(100),
        write_timeout: Duration::from_millis(100),
        ..HostSettings::default()
    };
    let rig = Rig::with(settings).await;
    let mut silent = TcpStream::connect(rig.address).await.unwrap();
    let mut half = TcpStream::connect(rig.address).await.unwrap();
    half.write_all(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest).await;
    let _ = half.read_to_end(&mut rest).await;
    until("both are gone", || rig.server.connections() == 0).await;
    // Asks for large answers again and again and reads none of them.
    let mut deaf = TcpStream::connect(rig.address).await.unwrap();
    let body = modern_call("1", "big", "{}");
    let mut request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in modern_headers("tools/call", "big") {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    request.push_str(&body);
    for _ in 0..20 {
        if deaf.write_all(request.as_bytes()).await.is_err() {
            break;
        }
    }
    until("the call was answered", || Fake::count(&rig.fake.answered) >= 1).await;
    until("the deaf one is gone", || rig.server.connections() == 0).await;
}

#[tokio::test]
async fn past_the_limit_connections_wait_for_one_to_end() {
    let rig = Rig::with(HostSettings {
        connections: 2,
        ..HostSettings::default()
    })
    .await;
    let first = TcpStream::connect(rig.address).await.unwrap();
    let _second = TcpStream::connect(rig.address).await.unwrap();
    until("two are served", || rig.server.connections() == 2).await;
    let stream = TcpStream::connect(rig.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tasks::spawn("test client", connection);
    let request = Request::get("/nowhere")
        .header("host", "localhost")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let third = sender.send_request(request);
    assert_eq!(rig.server.connections(), 2);
    drop(first);
    assert_eq!(third.await.unwrap().status(), 404);
    connection.abort();
}
