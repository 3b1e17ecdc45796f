//! Our HTTP: one thread per connection, no library, so that every byte and every fault is ours to choose.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::reply::{EventStream, Journal, PostReply, Reply, plain};
use crate::server::{CAPABILITIES_KEY, MODERN, Parsed, Server, Session, VERSION_KEY};
use crate::steps;

const JSON: &str = "application/json";

struct Request {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

pub fn serve(server: &Arc<Server>) {
    let start = crate::reply::Context::outside(
        server,
        &server.open_session("start"),
        Arc::new(crate::reply::LineOut::new(0, 0)),
    );
    steps::run(&start, &server.script.start);
    server.state.lock().unwrap().sessions.clear();
    let listener = TcpListener::bind(("127.0.0.1", server.script.port)).expect("the port is free");
    let port = listener.local_addr().unwrap().port();
    // Written whole, then renamed: a reader never sees half a number.
    let file = server.control("port");
    let fresh = server.control("port.new");
    std::fs::write(&fresh, port.to_string()).unwrap();
    std::fs::rename(&fresh, &file).unwrap();
    server.watch_commands();
    // The test holds our stdin: its end is ours, whatever became of the test.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    for socket in listener.incoming().flatten() {
        let server = server.clone();
        std::thread::spawn(move || connection(&server, socket));
    }
}

fn connection(server: &Arc<Server>, socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let Ok(read_half) = socket.try_clone() else { return };
    let mut reader = BufReader::new(read_half);
    while let Some(request) = read_request(&mut reader) {
        if !handle(server, &socket, &request) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let method = words.next()?.to_owned();
    let target = words.next()?.to_owned();
    let (path, query) = target.split_once('?').unwrap_or((target.as_str(), ""));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let header = |name: &str| {
        headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
    };
    let mut body = Vec::new();
    if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim().split(';').next()?, 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else if let Some(length) = header("content-length").and_then(|value| value.parse::<usize>().ok()) {
        body.resize(length, 0);
        reader.read_exact(&mut body).ok()?;
    }
    Some(Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// Serves one request; false ends the connection.
fn handle(server: &Arc<Server>, socket: &TcpStream, request: &Request) -> bool {
    if request.method != "POST" {
        server.record.add("http", &json!({ "method": request.method, "path": request.path, "query": request.query, "headers": request.headers }));
    }
    match (
        server.script.transport.as_str(),
        request.method.as_str(),
        request.path.as_str(),
    ) {
        ("http", "POST", "/mcp") => post(server, socket, request),
        ("http", "GET", "/mcp") => get(server, socket, request),
        ("http", "DELETE", "/mcp") => {
            let ended = request
                .header("mcp-session-id")
                .and_then(|id| server.state.lock().unwrap().sessions.remove(id));
            if let Some(session) = &ended {
                session.ended.store(true, Ordering::SeqCst);
            }
            plain(socket, if ended.is_some() { 200 } else { 404 }, "", "", "");
            true
        }
        ("sse", "GET", "/sse") => sse_open(server, socket),
        ("sse", "POST", "/messages") => sse_message(server, socket, request),
        (_, _, "/mcp" | "/sse" | "/messages") => {
            plain(socket, 405, "text/plain", "allow: GET\r\n", "Method Not Allowed");
            true
        }
        _ => {
            plain(socket, 404, "text/plain", "", "Not Found");
            true
        }
    }
}

fn refuse(socket: &TcpStream, status: u16, id: Option<&str>, code: i64, message: &str, data: &str) -> bool {
    let id = id.unwrap_or("null");
    let data = if data.is_empty() {
        String::new()
    } else {
        format!(r#","data":{data}"#)
    };
    plain(
        socket,
        status,
        JSON,
        "",
        &format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"{data}}}}}"#),
    );
    true
}

fn common_faults(request: &Request) -> Option<String> {
    let accept = request.header("accept").unwrap_or_default().to_owned();
    if !accept.contains("application/json") || !accept.contains("text/event-stream") {
        return Some(format!("Accept lacks one of the two forms: {accept}"));
    }
    if !request
        .header("content-type")
        .unwrap_or_default()
        .starts_with(JSON)
    {
        return Some(format!("Content-Type {:?}", request.header("content-type")));
    }
    for name in [
        "accept",
        "content-type",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
    ] {
        if request.headers.iter().filter(|(key, _)| key == name).count() > 1 {
            return Some(format!("the header {name} twice"));
        }
    }
    None
}

fn post(server: &Arc<Server>, socket: &TcpStream, request: &Request) -> bool {
    let script = &server.script;
    if script.post_status != 0 {
        server.record.add("http", &json!({ "method": "POST", "path": request.path, "headers": request.headers, "raw": request.body }));
        plain(socket, script.post_status, "text/plain", "", "no");
        return true;
    }
    let Some(parsed) = Parsed::read(&request.body) else {
        server.violation("a POST that is not one JSON object", &request.body);
        return refuse(socket, 400, None, -32700, "not JSON", "");
    };
    let id = parsed.id.clone();
    if let Some(fault) = common_faults(request) {
        server.violation(&fault, &request.body);
        if script.strict {
            return refuse(socket, 406, id.as_deref(), -32600, "bad headers", "");
        }
    }
    if parsed.modern && script.family != "legacy" {
        return post_modern(server, socket, request, &parsed);
    }
    post_legacy(server, socket, request, &parsed)
}

fn post_modern(server: &Arc<Server>, socket: &TcpStream, request: &Request, parsed: &Parsed) -> bool {
    // One pseudo-session for all: modern servers have none.
    let session = server.named_session("modern".into());
    server.record.message(&session, &request.body, &request.headers);
    let mut faults = Vec::new();
    let meta: Value = serde_json::from_str(&parsed.meta).unwrap_or_default();
    if request.header("mcp-protocol-version") != meta[VERSION_KEY].as_str() {
        faults.push("MCP-Protocol-Version differs from _meta");
    }
    if request.header("mcp-method") != parsed.method.as_deref() {
        faults.push("Mcp-Method differs from the body");
    }
    let named = matches!(
        parsed.method.as_deref(),
        Some("tools/call" | "prompts/get" | "resources/read" | "tasks/get" | "tasks/update" | "tasks/cancel")
    );
    if named && request.header("mcp-name").map(decode_sentinel).as_deref() != Some(parsed.name.as_str()) {
        faults.push("Mcp-Name differs from the body");
    }
    if request.header("mcp-session-id").is_some() {
        faults.push("a session id on a modern request");
    }
    if !meta[CAPABILITIES_KEY].is_object() {
        faults.push("no client capabilities");
    }
    if parsed.method.is_none() || parsed.id.is_none() {
        faults.push("a modern POST that is not a request");
    }
    for fault in &faults {
        server.violation(fault, &request.body);
    }
    if !faults.is_empty() && server.script.strict {
        return refuse(socket, 400, parsed.id.as_deref(), -32020, "header mismatch", "");
    }
    if meta[VERSION_KEY] != json!(MODERN) {
        return refuse(
            socket,
            400,
            parsed.id.as_deref(),
            -32022,
            "version",
            &json!({ "supported": [MODERN], "requested": meta[VERSION_KEY] }).to_string(),
        );
    }
    run_post(server, socket, &session, &request.body, "", false)
}

fn decode_sentinel(value: &str) -> String {
    let Some(inner) = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="))
    else {
        return value.to_owned();
    };
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut out = Vec::new();
    let mut bits = 0u32;
    let mut count = 0;
    for value in inner.bytes().filter_map(digit) {
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from((bits >> count) & 0xff).unwrap());
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn post_legacy(server: &Arc<Server>, socket: &TcpStream, request: &Request, parsed: &Parsed) -> bool {
    let script = &server.script;
    let id = parsed.id.as_deref();
    if parsed.method.as_deref() == Some("initialize") && script.family != "modern" {
        let session = server.open_session("session");
        server.record.message(&session, &request.body, &request.headers);
        let header = if script.sessionless {
            String::new()
        } else {
            format!("mcp-session-id: {}\r\n", session.id)
        };
        return run_post(server, socket, &session, &request.body, &header, true);
    }
    let sent = request.header("mcp-session-id");
    let session = match sent {
        None if script.sessionless => server.state.lock().unwrap().sessions.values().next().cloned(),
        None => None,
        Some(sent) => server.state.lock().unwrap().sessions.get(sent).cloned(),
    };
    let Some(session) = session else {
        server.record.add("http", &json!({ "method": "POST", "path": request.path, "headers": request.headers, "raw": request.body }));
        if sent.is_some() {
            return match script.lost_as.as_str() {
                "400" => {
                    plain(socket, 400, "text/plain", "", "Bad Request: No valid session");
                    true
                }
                "-32001" => refuse(socket, 200, id, -32001, "Session not found", ""),
                _ => refuse(socket, 404, id, -32001, "Session not found", ""),
            };
        }
        if !matches!(parsed.method.as_deref(), Some("server/discover" | "initialize")) {
            server.violation("a request without a session", &request.body);
        }
        return match script.before_handshake.as_str() {
            "silence" => {
                std::thread::sleep(Duration::from_secs(60));
                false
            }
            "empty" => {
                plain(
                    socket,
                    200,
                    JSON,
                    "",
                    &format!(
                        r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#,
                        id.unwrap_or("null")
                    ),
                );
                true
            }
            "garbage" => {
                plain(socket, 400, "text/html", "", "<html>?</html>");
                true
            }
            "exit" => false,
            "error" => refuse(
                socket,
                400,
                None,
                -32000,
                "Bad Request: Server not initialized",
                "",
            ),
            code => refuse(socket, 200, id, code.parse().unwrap_or(-32000), "not now", ""),
        };
    };
    server.record.message(&session, &request.body, &request.headers);
    let version = session.version.lock().unwrap().clone();
    if request.header("mcp-protocol-version") != version.as_deref()
        && version.as_deref() != Some("2025-03-26")
    {
        server.violation("MCP-Protocol-Version is not the session's", &request.body);
        if script.strict {
            return refuse(socket, 400, id, -32600, "protocol version", "");
        }
    }
    run_post(server, socket, &session, &request.body, "", true)
}

/// A note or an answer gets 202, a request its reply.
fn run_post(
    server: &Arc<Server>,
    socket: &TcpStream,
    session: &Arc<Session>,
    body: &str,
    headers: &str,
    resumable: bool,
) -> bool {
    let parsed = Parsed::read(body).unwrap();
    if parsed.id.is_none() || parsed.method.is_none() {
        let nowhere: Arc<dyn Reply> = Arc::new(crate::reply::LineOut::new(0, 0));
        server.receive(session, body, nowhere, false);
        plain(socket, 202, "", "", "");
        return true;
    }
    let journal = (server.script.event_ids && resumable && parsed.method.as_deref() != Some("initialize"))
        .then(|| new_journal(server));
    let Ok(copy) = socket.try_clone() else {
        return false;
    };
    let reply = Arc::new(PostReply::new(
        copy,
        headers.to_owned(),
        server.script.sse_answers,
        journal,
    ));
    server.receive(session, body, reply.clone(), false);
    reply.reusable()
}

fn new_journal(server: &Server) -> Arc<Journal> {
    let mut state = server.state.lock().unwrap();
    let id = state.journals.len() as u64 + 1;
    let journal = Arc::new(Journal {
        id,
        ..Journal::default()
    });
    state.journals.insert(id, journal.clone());
    journal
}

fn get(server: &Arc<Server>, socket: &TcpStream, request: &Request) -> bool {
    match server.script.get.as_str() {
        "405" => {
            plain(socket, 405, "text/plain", "allow: POST\r\n", "Method Not Allowed");
            return true;
        }
        "404" => {
            plain(socket, 404, "text/plain", "", "Not Found");
            return true;
        }
        "hang" => {
            std::thread::sleep(Duration::from_secs(120));
            return false;
        }
        _ => {}
    }
    let session = match request.header("mcp-session-id") {
        None if server.script.sessionless => server.state.lock().unwrap().sessions.values().next().cloned(),
        None => None,
        Some(sent) => server.state.lock().unwrap().sessions.get(sent).cloned(),
    };
    let Some(session) = session else {
        return refuse(socket, 404, None, -32001, "Session not found", "");
    };
    let Ok(copy) = socket.try_clone() else {
        return false;
    };
    if let Some(last) = request.header("last-event-id") {
        resume(server, copy, last);
        return false;
    }
    let stream = Arc::new(EventStream::open(copy, "", None));
    session.attach(stream.clone());
    server
        .record
        .add("event", &json!({ "name": "get stream", "session": session.id }));
    while !stream.gone() && !session.ended.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.record.add(
        "event",
        &json!({ "name": "get stream ended", "session": session.id }),
    );
    false
}

fn resume(server: &Arc<Server>, socket: TcpStream, last: &str) {
    let parts = last
        .split_once('-')
        .and_then(|(journal, number)| Some((journal.parse::<u64>().ok()?, number.parse::<usize>().ok()?)));
    let journal = parts.and_then(|(journal, _)| server.state.lock().unwrap().journals.get(&journal).cloned());
    let (Some((_, mut sent)), Some(journal)) = (parts, journal) else {
        plain(&socket, 404, "text/plain", "", "no such event");
        return;
    };
    let stream = EventStream::open(socket, "", None);
    loop {
        let state = journal.state.lock().unwrap();
        let fresh: Vec<Vec<u8>> = state.events.iter().skip(sent).cloned().collect();
        let ended = state.ended;
        drop(state);
        for data in fresh {
            sent += 1;
            stream.replay(journal.id, sent, &data);
        }
        if ended || stream.gone() {
            stream.end();
            return;
        }
        let state = journal.state.lock().unwrap();
        drop(journal.changed.wait_timeout(state, Duration::from_millis(20)));
    }
}

fn sse_open(server: &Arc<Server>, socket: &TcpStream) -> bool {
    let Ok(copy) = socket.try_clone() else {
        return false;
    };
    let session = server.open_session("sse");
    let stream = Arc::new(EventStream::open(copy, "", None));
    stream.event(
        Some("endpoint"),
        format!("/messages?session={}", session.id).as_bytes(),
    );
    session.attach(stream.clone());
    while !stream.gone() && !session.ended.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
    session.ended.store(true, Ordering::SeqCst);
    server.state.lock().unwrap().sessions.remove(&session.id);
    server
        .record
        .add("event", &json!({ "name": "sse ended", "session": session.id }));
    false
}

fn sse_message(server: &Arc<Server>, socket: &TcpStream, request: &Request) -> bool {
    let id = request.query.strip_prefix("session=").unwrap_or_default();
    let session = server.state.lock().unwrap().sessions.get(id).cloned();
    let Some(session) = session else {
        return refuse(socket, 404, None, -32001, "Session not found", "");
    };
    server.record.message(&session, &request.body, &request.headers);
    let stream = session.outbox.lock().unwrap().stream.clone();
    let Some(stream) = stream else {
        return refuse(socket, 400, None, -32001, "no stream", "");
    };
    let _ = (&mut &*socket)
        .write_all(b"HTTP/1.1 202 Accepted\r\ncontent-type: text/plain\r\ncontent-length: 8\r\n\r\nAccepted");
    server.receive(&session, &request.body, stream, true);
    true
}
