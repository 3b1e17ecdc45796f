use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

#[derive(Default)]
struct Source {
    ready: AtomicBool,
}

impl StatusSource for Source {
    fn ready(&self) -> Result<(), Vec<String>> {
        if self.ready.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(vec!["draining".to_owned()])
        }
    }

    fn status_json(&self) -> String {
        "{\"servers\":[]}".to_owned()
    }

    fn page(&self, path: &str) -> Option<(&'static str, String)> {
        (path == "/metrics").then(|| ("text/plain", "calls 1\n".to_owned()))
    }
}

async fn start(token: Option<&str>) -> (AdminServer, Arc<Source>) {
    let source = Arc::new(Source::default());
    let settings = AdminSettings {
        token: token.map(str::to_owned),
        ..AdminSettings::default()
    };
    let address = BindAddress::Tcp("127.0.0.1:0".to_owned());
    (
        AdminServer::start(&address, settings, source.clone())
            .await
            .unwrap(),
        source,
    )
}

/// Status and whole answer.
async fn ask(server: &AdminServer, line: &str, headers: &str) -> (u16, String) {
    let BoundAddress::Tcp(address) = server.address() else {
        panic!("not TCP")
    };
    let mut stream = TcpStream::connect(address).await.unwrap();
    let host = if headers.contains("host:") {
        ""
    } else {
        "host: localhost\r\n"
    };
    let request = format!("{line} HTTP/1.1\r\n{host}{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[tokio::test]
async fn probes_and_status() {
    let (server, source) = start(None).await;
    assert_eq!(ask(&server, "GET /healthz", "").await.0, 200);
    let (status, text) = ask(&server, "GET /readyz", "").await;
    assert!(status == 503 && text.contains("draining"));
    source.ready.store(true, Ordering::SeqCst);
    assert_eq!(ask(&server, "GET /readyz", "").await.0, 200);
    let (status, text) = ask(&server, "GET /status", "").await;
    assert!(status == 200 && text.ends_with("{\"servers\":[]}"));
    let (status, text) = ask(&server, "HEAD /status", "").await;
    assert!(status == 200 && text.ends_with("\r\n\r\n"));
    assert!(ask(&server, "GET /metrics", "").await.1.ends_with("calls 1\n"));
    assert_eq!(ask(&server, "GET /mcp", "").await.0, 404);
    assert_eq!(ask(&server, "POST /status", "").await.0, 405);
    assert_eq!(ask(&server, "GET /status", "host: evil.example\r\n").await.0, 403);
    assert_eq!(
        ask(&server, "GET /status", "origin: http://evil.example\r\n")
            .await
            .0,
        403
    );
    server.stop().await;
    let BoundAddress::Tcp(address) = server.address() else {
        panic!("not TCP")
    };
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn details_may_want_a_token() {
    let (server, _) = start(Some("secret")).await;
    assert_eq!(ask(&server, "GET /healthz", "").await.0, 200);
    for headers in ["", "authorization: Bearer wrong\r\n", "authorization: secret\r\n"] {
        assert_eq!(ask(&server, "GET /status", headers).await.0, 401, "{headers}");
    }
    assert_eq!(
        ask(&server, "GET /status", "authorization: bearer secret\r\n")
            .await
            .0,
        200
    );
}
