//! Where messages go: a line on stdout, an event on a stream, the answer of a POST.

use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::server::{Server, Session, raw_object};

/// The two directions in which a handler can speak.
pub trait Reply: Send + Sync {
    /// A message before the answer.
    fn note(&self, text: &[u8]);
    /// The last message.
    fn answer(&self, text: &[u8]);
    /// The last message: head, that many `x`, tail; never in memory as a whole.
    fn big(&self, head: &str, filler: usize, tail: &str);
    /// Bytes outside the protocol.
    fn bytes(&self, bytes: &[u8]);
    /// HTTP only.
    fn status(&self, status: u16, content_type: &str, body: &str);
    /// End without an answer.
    fn close(&self);
    /// Close the connection but keep what follows for a resume.
    fn cut(&self);
    /// The peer has gone.
    fn gone(&self) -> bool;
}

/// What a step knows of the request that it serves.
pub struct Context {
    pub server: Arc<Server>,
    pub session: Arc<Session>,
    pub reply: Arc<dyn Reply>,
    pub id: Option<String>,
    pub token: Option<String>,
    pub params: String,
    pub arguments: String,
    pub meta: String,
    pub name: String,
    pub modern: bool,
    /// Answers to our own questions, by key.
    pub answers: Mutex<serde_json::Map<String, serde_json::Value>>,
    pub progress: Mutex<u32>,
    pub asks: Mutex<Vec<u64>>,
}

impl Context {
    pub fn outside(server: &Arc<Server>, session: &Arc<Session>, reply: Arc<dyn Reply>) -> Self {
        Self {
            server: server.clone(),
            session: session.clone(),
            reply,
            id: None,
            token: None,
            params: "{}".into(),
            arguments: "{}".into(),
            meta: "{}".into(),
            name: String::new(),
            modern: false,
            answers: Mutex::default(),
            progress: Mutex::default(),
            asks: Mutex::default(),
        }
    }

    pub fn fill(&self, text: &str) -> String {
        let answers = serde_json::to_string(&*self.answers.lock().unwrap()).unwrap();
        let count = self.session.counter.load(Ordering::SeqCst).to_string();
        let pid = std::process::id().to_string();
        let text_argument = raw_object(&self.arguments)
            .get("text")
            .map(|raw| raw.get().trim_matches('"').to_owned())
            .unwrap_or_default();
        let pairs = [
            ("@@TEXT@@", text_argument.as_str()),
            ("@@ID@@", self.id.as_deref().unwrap_or("null")),
            ("@@TOKEN@@", self.token.as_deref().unwrap_or("null")),
            ("@@ARGS@@", &self.arguments),
            ("@@META@@", &self.meta),
            ("@@PARAMS@@", &self.params),
            ("@@ANSWERS@@", &answers),
            ("@@COUNT@@", &count),
            ("@@PID@@", &pid),
            ("@@SESSION@@", &self.session.id),
            ("@@NAME@@", &self.name),
        ];
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("@@") {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some((key, value)) = pairs.iter().find(|(key, _)| rest.starts_with(key)) {
                filled.push_str(value);
                rest = &rest[key.len()..];
            } else {
                filled.push_str("@@");
                rest = &rest[2..];
            }
        }
        filled.push_str(rest);
        filled
    }
}

/// Stdout, one message per line.
pub struct LineOut {
    split: usize,
    pause: Duration,
    lock: Mutex<()>,
}

impl LineOut {
    pub fn new(split: usize, pause_ms: u64) -> Self {
        Self {
            split,
            pause: Duration::from_millis(pause_ms),
            lock: Mutex::new(()),
        }
    }

    fn line(&self, text: &[u8]) {
        let mut line = text.to_vec();
        line.push(b'\n');
        self.write(&line);
    }

    fn write(&self, bytes: &[u8]) {
        let _one_at_a_time = self.lock.lock().unwrap();
        let mut out = std::io::stdout().lock();
        let piece = if self.split == 0 {
            bytes.len().max(1)
        } else {
            self.split
        };
        for part in bytes.chunks(piece) {
            let _ = out.write_all(part);
            let _ = out.flush();
            if self.split != 0 && !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
        }
    }
}

impl Reply for LineOut {
    fn note(&self, text: &[u8]) {
        self.line(text);
    }
    fn answer(&self, text: &[u8]) {
        self.line(text);
    }
    fn big(&self, head: &str, filler: usize, tail: &str) {
        let _one_at_a_time = self.lock.lock().unwrap();
        let mut out = std::io::stdout().lock();
        let _ = write_big(&mut out, head, filler, tail);
        let _ = out.write_all(b"\n");
        let _ = out.flush();
    }
    fn bytes(&self, bytes: &[u8]) {
        self.write(bytes);
    }
    fn status(&self, _: u16, _: &str, _: &str) {}
    fn close(&self) {}
    fn cut(&self) {}
    fn gone(&self) -> bool {
        false
    }
}

fn write_big(out: &mut dyn Write, head: &str, filler: usize, tail: &str) -> std::io::Result<()> {
    out.write_all(head.as_bytes())?;
    let piece = [b'x'; 64 * 1024];
    let mut left = filler;
    while left > 0 {
        let now = left.min(piece.len());
        out.write_all(&piece[..now])?;
        left -= now;
    }
    out.write_all(tail.as_bytes())
}

/// The journal of one event stream: what was sent, so that a cut one can be resumed.
#[derive(Default)]
pub struct Journal {
    pub id: u64,
    pub state: Mutex<JournalState>,
    pub changed: Condvar,
}

#[derive(Default)]
pub struct JournalState {
    pub events: Vec<Vec<u8>>,
    pub ended: bool,
}

/// A long-lived event stream: GET of Streamable HTTP, `/sse` of 2024-11-05, or the answer of a POST.
pub struct EventStream {
    socket: Mutex<Option<TcpStream>>,
    pub journal: Option<Arc<Journal>>,
    broken: AtomicBool,
}

impl EventStream {
    /// Writes the head at once.
    pub fn open(mut socket: TcpStream, extra_headers: &str, journal: Option<Arc<Journal>>) -> Self {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n{extra_headers}transfer-encoding: chunked\r\n\r\n"
        );
        let broken = socket.write_all(head.as_bytes()).is_err();
        Self {
            socket: Mutex::new(Some(socket)),
            journal,
            broken: AtomicBool::new(broken),
        }
    }

    pub fn raw(&self, text: &[u8]) {
        let mut socket = self.socket.lock().unwrap();
        if let Some(socket) = socket.as_mut() {
            let mut chunk = format!("{:x}\r\n", text.len()).into_bytes();
            chunk.extend_from_slice(text);
            chunk.extend_from_slice(b"\r\n");
            if socket.write_all(&chunk).is_err() {
                self.broken.store(true, Ordering::SeqCst);
            }
        }
    }

    pub fn event(&self, name: Option<&str>, data: &[u8]) {
        let mut text = Vec::new();
        if let Some(journal) = &self.journal {
            let mut state = journal.state.lock().unwrap();
            state.events.push(data.to_vec());
            text.extend_from_slice(format!("id: {}-{}\n", journal.id, state.events.len()).as_bytes());
            journal.changed.notify_all();
        }
        if let Some(name) = name {
            text.extend_from_slice(format!("event: {name}\n").as_bytes());
        }
        text.extend_from_slice(b"data: ");
        text.extend_from_slice(data);
        text.extend_from_slice(b"\n\n");
        self.raw(&text);
    }

    /// An event of an older journal, under its own number.
    pub fn replay(&self, journal: u64, number: usize, data: &[u8]) {
        let mut text = format!("id: {journal}-{number}\nevent: message\ndata: ").into_bytes();
        text.extend_from_slice(data);
        text.extend_from_slice(b"\n\n");
        self.raw(&text);
    }

    pub fn end(&self) {
        if let Some(socket) = self.socket.lock().unwrap().as_mut() {
            let _ = socket.write_all(b"0\r\n\r\n");
        }
        if let Some(journal) = &self.journal {
            journal.state.lock().unwrap().ended = true;
            journal.changed.notify_all();
        }
    }

    pub fn shut(&self) {
        if let Some(socket) = self.socket.lock().unwrap().take() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    pub fn gone(&self) -> bool {
        if self.broken.load(Ordering::SeqCst) {
            return true;
        }
        self.socket.lock().unwrap().as_ref().is_none_or(closed)
    }
}

/// Whether the peer closed its side; never blocks.
pub fn closed(socket: &TcpStream) -> bool {
    let _ = socket.set_nonblocking(true);
    let seen = socket.peek(&mut [0; 1]);
    let _ = socket.set_nonblocking(false);
    match seen {
        Ok(read) => read == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// A stream that messages outside any request go to.
impl Reply for EventStream {
    fn note(&self, text: &[u8]) {
        self.event(Some("message"), text);
    }
    fn answer(&self, text: &[u8]) {
        self.event(Some("message"), text);
    }
    fn big(&self, head: &str, filler: usize, tail: &str) {
        self.raw(format!("event: message\ndata: {head}").as_bytes());
        let piece = [b'x'; 64 * 1024];
        let mut left = filler;
        while left > 0 && !self.broken.load(Ordering::SeqCst) {
            let now = left.min(piece.len());
            self.raw(&piece[..now]);
            left -= now;
        }
        self.raw(format!("{tail}\n\n").as_bytes());
    }
    fn bytes(&self, bytes: &[u8]) {
        self.raw(bytes);
    }
    fn status(&self, _: u16, _: &str, _: &str) {}
    fn close(&self) {
        self.shut();
    }
    fn cut(&self) {
        self.shut();
    }
    fn gone(&self) -> bool {
        // The stream outlives a call: only its own end counts.
        Self::gone(self)
    }
}

/// The answer of one POST: plain JSON unless something precedes it.
pub struct PostReply {
    socket: TcpStream,
    headers: String,
    always_stream: bool,
    journal: Option<Arc<Journal>>,
    state: Mutex<PostState>,
}

enum PostState {
    Fresh,
    Streaming(Arc<EventStream>),
    Done,
    Shut,
}

impl PostReply {
    pub fn new(
        socket: TcpStream,
        headers: String,
        always_stream: bool,
        journal: Option<Arc<Journal>>,
    ) -> Self {
        Self {
            socket,
            headers,
            always_stream,
            journal,
            state: Mutex::new(PostState::Fresh),
        }
    }

    fn stream(&self, state: &mut PostState) -> Option<Arc<EventStream>> {
        if matches!(state, PostState::Fresh) {
            let stream = Arc::new(EventStream::open(
                self.socket.try_clone().ok()?,
                &self.headers,
                self.journal.clone(),
            ));
            if let Some(journal) = &self.journal {
                // The priming event: a place to resume from.
                stream.raw(format!("id: {}-0\ndata: \n\n", journal.id).as_bytes());
            }
            *state = PostState::Streaming(stream);
        }
        match state {
            PostState::Streaming(stream) => Some(stream.clone()),
            _ => None,
        }
    }

    /// Whether the connection can carry a further request.
    pub fn reusable(&self) -> bool {
        matches!(*self.state.lock().unwrap(), PostState::Done)
    }
}

impl Reply for PostReply {
    fn note(&self, text: &[u8]) {
        let mut state = self.state.lock().unwrap();
        if let Some(stream) = self.stream(&mut state) {
            stream.event(Some("message"), text);
        }
    }

    fn answer(&self, text: &[u8]) {
        let mut state = self.state.lock().unwrap();
        if self.always_stream || self.journal.is_some() {
            self.stream(&mut state);
        }
        match &*state {
            PostState::Fresh => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{}content-length: {}\r\n\r\n",
                    self.headers,
                    text.len()
                );
                let mut whole = head.into_bytes();
                whole.extend_from_slice(text);
                let _ = (&self.socket).write_all(&whole);
                *state = PostState::Done;
            }
            PostState::Streaming(stream) => {
                stream.event(Some("message"), text);
                stream.end();
                *state = if stream.gone() {
                    PostState::Shut
                } else {
                    PostState::Done
                };
            }
            PostState::Done | PostState::Shut => {}
        }
    }

    fn big(&self, head: &str, filler: usize, tail: &str) {
        let mut state = self.state.lock().unwrap();
        if self.always_stream {
            self.stream(&mut state);
        }
        match &*state {
            PostState::Fresh => {
                let total = head.len() + filler + tail.len();
                let start = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{}content-length: {total}\r\n\r\n",
                    self.headers
                );
                let mut out = &self.socket;
                let written = out
                    .write_all(start.as_bytes())
                    .and_then(|()| write_big(&mut out, head, filler, tail));
                *state = if written.is_ok() {
                    PostState::Done
                } else {
                    PostState::Shut
                };
            }
            PostState::Streaming(stream) => {
                Reply::big(&**stream, head, filler, tail);
                stream.end();
                *state = PostState::Done;
            }
            PostState::Done | PostState::Shut => {}
        }
    }

    fn bytes(&self, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap();
        if let Some(stream) = self.stream(&mut state) {
            stream.raw(bytes);
        }
    }

    fn status(&self, status: u16, content_type: &str, body: &str) {
        let mut state = self.state.lock().unwrap();
        if matches!(*state, PostState::Fresh) {
            plain(&self.socket, status, content_type, &self.headers, body);
            *state = PostState::Done;
        }
    }

    fn close(&self) {
        *self.state.lock().unwrap() = PostState::Shut;
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        if let Some(stream) = self.stream(&mut state) {
            stream.shut();
        }
    }

    fn gone(&self) -> bool {
        match &*self.state.lock().unwrap() {
            PostState::Streaming(stream) if self.journal.is_some() => {
                let _ = stream;
                false
            }
            PostState::Streaming(stream) => stream.gone(),
            PostState::Fresh => closed(&self.socket),
            PostState::Done | PostState::Shut => true,
        }
    }
}

/// One whole HTTP answer.
pub fn plain(mut socket: &TcpStream, status: u16, content_type: &str, headers: &str, body: &str) {
    let media = if content_type.is_empty() {
        String::new()
    } else {
        format!("content-type: {content_type}\r\n")
    };
    let text = format!(
        "HTTP/1.1 {status} Status\r\n{media}{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = socket.write_all(text.as_bytes());
}

/// Messages for a session whose stream is not open yet.
#[derive(Default)]
pub struct Outbox {
    pub stream: Option<Arc<dyn Reply>>,
    pub backlog: VecDeque<Vec<u8>>,
}
