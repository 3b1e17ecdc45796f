//! The built daemon under load, beside a direct connection and a proxy that forwards bytes without reading them.
//!
//! `cargo bench --bench load` runs everything (about two minutes) and prints ratios of this one run; budgets are in
//! `docs/performance.md`. Server, proxy and daemon are processes of their own, so that CPU time can be told apart. All
//! on loopback, port 0, bounded in time; every process is ended at the end.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints, and is no part of the daemon"
)]

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

type Anything = Box<dyn std::error::Error + Send + Sync>;

/// What the server answers to one message; `None` for a notification.
fn answer(text: &str, tools: usize) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(text).ok()?;
    let id = message.get("id")?;
    let result = match message.get("method")?.as_str()? {
        "initialize" => r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#.to_owned(),
        "tools/list" => {
            let all: Vec<String> = (0..tools)
                .map(|n| format!(r#"{{"name":"echo{n}","description":"Echoes what it is given, number {n}.","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string"}}}}}}}}"#))
                .collect();
            format!(r#"{{"tools":[{}]}}"#, all.join(","))
        }
        "tools/call" => {
            let size = message.pointer("/params/arguments/size").and_then(serde_json::Value::as_u64).unwrap_or(20);
            format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(usize::try_from(size).ok()?))
        }
        "ping" => "{}".to_owned(),
        _ => return Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#)),
    };
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

async fn serve_one(request: Request<Incoming>, tools: usize) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = |status: StatusCode, body: String| {
        let built = Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .header("mcp-session-id", "bench");
        Ok(built.body(Full::new(Bytes::from(body))).unwrap_or_default())
    };
    match *request.method() {
        Method::POST => {}
        Method::DELETE => return plain(StatusCode::OK, String::new()),
        _ => return plain(StatusCode::METHOD_NOT_ALLOWED, String::new()),
    }
    let body = request
        .into_body()
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    match answer(&String::from_utf8_lossy(&body), tools) {
        Some(text) if text.contains("Method not found") => plain(StatusCode::NOT_FOUND, text),
        Some(text) => plain(StatusCode::OK, text),
        None => plain(StatusCode::ACCEPTED, String::new()),
    }
}

async fn forward(
    client: Client<HttpConnector, Incoming>,
    target: String,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Anything> {
    *request.uri_mut() = target.parse()?;
    request.headers_mut().remove("host");
    Ok(client.request(request).await?)
}

/// The server or the proxy, until it is killed. Prints its address first.
async fn be(role: &str) -> Result<(), Anything> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let tools = std::env::var("BENCH_TOOLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let target = std::env::var("BENCH_TARGET").unwrap_or_default();
    let client: Client<HttpConnector, Incoming> = Client::builder(TokioExecutor::new()).build_http();
    let proxy = role == "proxy";
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, target) = (client.clone(), target.clone());
        tokio::spawn(async move {
            let builder = hyper::server::conn::http1::Builder::new();
            if proxy {
                let service = service_fn(move |request| forward(client.clone(), target.clone(), request));
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            } else {
                let service = service_fn(move |request| serve_one(request, tools));
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            }
        });
    }
}

fn be_stdio() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Some(text) = answer(&line, 1) {
            let _ = writeln!(out, "{text}").and_then(|()| out.flush());
        }
    }
}

/// A process that is killed when it goes out of scope.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// User and system time in clock ticks.
    fn cpu(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks = |at: usize| {
            fields
                .get(at)
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or(0)
        };
        ticks(11) + ticks(12)
    }

    fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap_or_default();
        line.split_whitespace()
            .nth(1)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }
}

fn helper(role: &str, environment: &[(&str, String)]) -> Result<(Process, String), Anything> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env("BENCH_ROLE", role)
        .envs(environment.iter().map(|(key, value)| (*key, value.as_str())))
        .stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    Ok((Process(child), format!("http://{}/mcp", line.trim())))
}

/// The daemon with these servers (YAML lines), 50 rules and a buffered audit.
fn manifold(folder: &std::path::Path, servers: &str) -> Result<(Process, String), Anything> {
    let rules: String = (0..50)
        .map(|n| {
            format!(
                "    - {{ id: r{n}, effect: {}, tools: [\"s{n}/never_{n}*\"] }}\n",
                if n % 2 == 0 { "deny" } else { "allow" }
            )
        })
        .collect();
    let state = folder.join(format!("state-{:?}", Instant::now()).replace([' ', ':', '{', '}', ','], ""));
    let config = format!(
        "listen: {{ http: \"127.0.0.1:0\" }}\nadmin: null\nstate_dir: {0}\naudit: {{ dir: {0}/audit }}\npolicy:\n  default: allow\n  rules:\n{rules}servers:\n{servers}",
        state.display()
    );
    let file = folder.join("bench.yaml");
    std::fs::write(&file, config)?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_manifold"))
        .args(["serve", "--config"])
        .arg(&file)
        .env("NO_COLOR", "1")
        .stderr(Stdio::piped())
        .spawn()?;
    let mut log = BufReader::new(child.stderr.take().ok_or("no stderr")?);
    let mut url = String::new();
    while url.is_empty() {
        let mut line = String::new();
        if log.read_line(&mut line)? == 0 {
            return Err("manifold did not start".into());
        }
        if let Some((_, rest)) = line.split_once("listening on ") {
            rest.trim().clone_into(&mut url);
        }
    }
    // The rest of the log must be read, or the daemon would stall on it.
    std::thread::spawn(move || log.lines().map_while(Result::ok).count());
    Ok((Process(child), url))
}

/// One connection of a host.
struct Host {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    session: String,
    authority: String,
    next: u64,
}

impl Host {
    async fn open(url: &str) -> Result<Self, Anything> {
        let authority = url
            .trim_start_matches("http://")
            .split('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let stream = TcpStream::connect(authority.parse::<SocketAddr>()?).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self {
            sender,
            session: String::new(),
            authority,
            next: 0,
        })
    }

    async fn initialize(url: &str) -> Result<Self, Anything> {
        let mut host = Self::open(url).await?;
        let params = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#;
        host.request("initialize", params).await?;
        host.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned())
            .await?;
        Ok(host)
    }

    async fn post(&mut self, body: String) -> Result<Bytes, Anything> {
        let mut request = Request::post("/mcp")
            .header("host", &self.authority)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if !self.session.is_empty() {
            request = request
                .header("mcp-session-id", &self.session)
                .header("mcp-protocol-version", "2025-11-25");
        }
        self.sender.ready().await?;
        let response = self
            .sender
            .send_request(request.body(Full::new(Bytes::from(body)))?)
            .await?;
        if let Some(session) = response.headers().get("mcp-session-id") {
            session.to_str()?.clone_into(&mut self.session);
        }
        Ok(response.into_body().collect().await?.to_bytes())
    }

    async fn request(&mut self, method: &str, params: &str) -> Result<Bytes, Anything> {
        self.next += 1;
        let answer = self
            .post(format!(
                r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{params}}}"#,
                self.next
            ))
            .await?;
        if !answer.windows(8).any(|part| part == b"\"result\"") {
            return Err(format!(
                "no result: {}",
                String::from_utf8_lossy(answer.get(..answer.len().min(300)).unwrap_or_default())
            )
            .into());
        }
        Ok(answer)
    }

    async fn call(&mut self, tool: &str, size: usize) -> Result<(), Anything> {
        self.request(
            "tools/call",
            &format!(r#"{{"name":"{tool}","arguments":{{"size":{size}}}}}"#),
        )
        .await
        .map(|_| ())
    }
}

/// Calls per second with `sessions` sessions of `each` connections.
async fn throughput(
    url: &str,
    tool: &str,
    size: usize,
    sessions: usize,
    each: usize,
    time: Duration,
) -> Result<f64, Anything> {
    let done = Arc::new(AtomicU64::new(0));
    let mut hosts = Vec::new();
    for _ in 0..sessions {
        let first = Host::initialize(url).await?;
        let session = first.session.clone();
        hosts.push(first);
        for _ in 1..each {
            let mut other = Host::open(url).await?;
            other.session.clone_from(&session);
            hosts.push(other);
        }
    }
    // Connections to the server are opened by the first call of each session: not part of the figure.
    for host in &mut hosts {
        host.call(tool, size).await?;
    }
    let end = Instant::now() + time;
    let tasks: Vec<_> = hosts
        .into_iter()
        .enumerate()
        .map(|(n, mut host)| {
            let (done, tool) = (done.clone(), tool.to_owned());
            tokio::spawn(async move {
                host.next = 1000 * (n as u64 + 1) * 1000;
                while Instant::now() < end {
                    host.call(&tool, size).await?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), Anything>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / time.as_secs_f64())
}

/// The median of `count` calls, one at a time, in microseconds.
async fn median(url: &str, tool: &str, count: usize) -> Result<f64, Anything> {
    let mut host = Host::initialize(url).await?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        host.call(tool, 20).await?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(count / 2).copied().unwrap_or_default())
}

async fn lists(url: &str, time: Duration) -> Result<f64, Anything> {
    let mut host = Host::initialize(url).await?;
    host.request("tools/list", "{}").await?;
    let (start, mut count) = (Instant::now(), 0u32);
    while start.elapsed() < time {
        host.request("tools/list", "{}").await?;
        count += 1;
    }
    Ok(f64::from(count) / time.as_secs_f64())
}

fn row(work: &str, figure: String, budget: &str) {
    println!("{work:<58} {figure:>26}   {budget}");
}

async fn run() -> Result<(), Anything> {
    let folder = tempfile::tempdir()?;
    let time = Duration::from_secs(4);
    let (server, direct) = helper("server", &[])?;
    let (proxy, proxied) = helper("proxy", &[("BENCH_TARGET", direct.clone())])?;
    let program = std::env::current_exe()?;
    let http = format!("  b: {{ url: \"{direct}\", prefix: \"\", concurrency: 256 }}\n");
    let (daemon, bridged) = manifold(folder.path(), &http)?;

    println!("{:<58} {:>26}   budget", "work (ratios of this run)", "figure");
    let base = throughput(&direct, "echo0", 20, 8, 4, time).await?;
    let before = proxy.cpu();
    let floor = throughput(&proxied, "echo0", 20, 8, 4, time).await?;
    let floor_cpu = (proxy.cpu() - before) as f64 / (floor * time.as_secs_f64());
    let before = daemon.cpu();
    let ours = throughput(&bridged, "echo0", 20, 8, 4, time).await?;
    let our_cpu = (daemon.cpu() - before) as f64 / (ours * time.as_secs_f64());
    row(
        "direct, proxy, manifold: calls per second",
        format!("{base:.0}, {floor:.0}, {ours:.0}"),
        "",
    );
    row(
        "small call, 8 sessions x 4: of the proxy's calls/s",
        format!("{:.2}", ours / floor),
        ">= 0.70",
    );
    row(
        "the same: CPU per call against the proxy's",
        format!("{:.2}", our_cpu / floor_cpu),
        "<= 1.6",
    );

    let (d, p, m) = (
        median(&direct, "echo0", 3000).await?,
        median(&proxied, "echo0", 3000).await?,
        median(&bridged, "echo0", 3000).await?,
    );
    row(
        "one at a time, p50 direct, proxy, manifold (us)",
        format!("{d:.0}, {p:.0}, {m:.0}"),
        "",
    );
    row(
        "added p50 against what the proxy adds",
        format!("{:.2}", (m - d) / (p - d)),
        "<= 1.8",
    );

    for (label, size) in [("1 MiB", 1 << 20), ("8 MiB", 8 << 20)] {
        let floor = throughput(&proxied, "echo0", size, 2, 1, time).await?;
        let ours = throughput(&bridged, "echo0", size, 2, 1, time).await?;
        row(
            &format!("results of {label}: of the proxy's"),
            format!("{:.2}", ours / floor),
            ">= 0.80",
        );
    }
    row(
        "peak memory after that (MiB)",
        format!("{}", daemon.memory_kib() / 1024),
        "2.5 x in flight",
    );
    drop(daemon);

    let child = format!(
        "  b: {{ command: \"{}\", env: {{ BENCH_ROLE: stdio }}, prefix: \"\", sharing: shared, concurrency: 256 }}\n",
        program.display()
    );
    let (daemon, bridged) = manifold(folder.path(), &child)?;
    let ours = throughput(&bridged, "echo0", 20, 8, 4, time).await?;
    row(
        "HTTP to a stdio child: of the proxy's HTTP to HTTP",
        format!("{:.2}", ours / floor),
        ">= 0.70",
    );
    drop(daemon);

    let (many, thousand) = helper("server", &[("BENCH_TOOLS", "1000".to_owned())])?;
    let (many_proxy, many_proxied) = helper("proxy", &[("BENCH_TARGET", thousand.clone())])?;
    let (daemon, bridged) = manifold(folder.path(), &format!("  b: {{ url: \"{thousand}\" }}\n"))?;
    let (floor, ours) = (lists(&many_proxied, time).await?, lists(&bridged, time).await?);
    row(
        "tools/list of 1,000 tools: of the proxy's lists/s",
        format!("{:.2}", ours / floor),
        "> 1",
    );
    drop((daemon, many_proxy, many));

    let ten: String = (0..10)
        .map(|n| format!("  s{n}: {{ url: \"{direct}\" }}\n"))
        .collect();
    let start = Instant::now();
    let (daemon, bridged) = manifold(folder.path(), &ten)?;
    let mut host = Host::initialize(&bridged).await?;
    let list = host.request("tools/list", "{}").await?;
    let cold = start.elapsed();
    let complete = String::from_utf8_lossy(&list).matches("\"name\":").count();
    row(
        &format!("start to the first list of ten servers ({complete} tools, ms)"),
        format!("{}", cold.as_millis()),
        "40 over the handshake",
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = daemon.memory_kib();
    row(
        "idle with ten HTTP servers (MiB)",
        format!("{:.1}", idle as f64 / 1024.0),
        "<= 20",
    );
    let mut sessions = Vec::new();
    for _ in 0..500 {
        let mut host = Host::initialize(&bridged).await?;
        host.sender = Host::open(&bridged).await?.sender;
        sessions.push(host.session);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let each = daemon.memory_kib().saturating_sub(idle) as f64 / 500.0;
    row("per idle legacy session (KiB)", format!("{each:.1}"), "<= 8");
    drop((daemon, proxy, server));
    Ok(())
}

fn main() -> Result<(), Anything> {
    match std::env::var("BENCH_ROLE").as_deref() {
        Ok("stdio") => {
            be_stdio();
            Ok(())
        }
        Ok(role) => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(be(role)),
        Err(_) => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(run()),
    }
}
