//! HTTP by hand: what is sent is exactly what the test wrote, and what comes back is read byte by byte.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

use super::LIMIT;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(String),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => out.write_str(address),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// What goes into the Host header.
    pub fn host(&self) -> String {
        match self {
            Self::Tcp(address) => address.clone(),
            Self::Unix(_) => "localhost".into(),
        }
    }
}

pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn connect(address: &Address) -> std::io::Result<Self> {
        let socket = match address {
            Address::Tcp(address) => {
                let socket = TcpStream::connect(address)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(LIMIT * 2))?;
                socket.set_write_timeout(Some(LIMIT))?;
                Self::Tcp(socket)
            }
            Address::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(LIMIT * 2))?;
                socket.set_write_timeout(Some(LIMIT))?;
                Self::Unix(socket)
            }
        };
        Ok(socket)
    }

    pub fn copy(&self) -> Self {
        match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone().unwrap()),
            Self::Unix(socket) => Self::Unix(socket.try_clone().unwrap()),
        }
    }

    /// Closes both directions: the peer sees that we are gone.
    pub fn close(&self) {
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => socket.write(bytes),
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub name: Option<String>,
    pub retry: Option<String>,
    pub data: String,
}

enum Framing {
    Length(usize),
    Chunked { left: usize, done: bool },
    ToEnd,
}

/// One request and its answer, read as far as the caller wants.
pub struct Exchange {
    pub socket: Socket,
    reader: BufReader<Socket>,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    framing: Framing,
    /// Comment lines seen in the stream.
    pub comments: usize,
}

impl Exchange {
    /// Sends the bytes; nothing is read yet.
    pub fn send(address: &Address, head: &str, body: &[u8]) -> std::io::Result<Self> {
        let mut socket = Socket::connect(address)?;
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(body);
        socket.write_all(&bytes)?;
        let reader = BufReader::new(socket.copy());
        Ok(Self {
            socket,
            reader,
            status: 0,
            headers: Vec::new(),
            framing: Framing::ToEnd,
            comments: 0,
        })
    }

    /// Reads the status line and headers.
    pub fn read_head(&mut self) -> std::io::Result<()> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                "closed without an answer",
            ));
        }
        self.status = line
            .split_whitespace()
            .nth(1)
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| std::io::Error::other(format!("no status in {line:?}")))?;
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::UnexpectedEof,
                    "closed inside the head",
                ));
            }
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                break;
            }
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| std::io::Error::other(format!("bad header {line:?}")))?;
            self.headers
                .push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        self.framing = if self
            .header("transfer-encoding")
            .is_some_and(|value| value.contains("chunked"))
        {
            Framing::Chunked { left: 0, done: false }
        } else if let Some(length) = self.header("content-length").and_then(|value| value.parse().ok()) {
            Framing::Length(length)
        } else {
            Framing::ToEnd
        };
        if (self.status == 202 || self.status == 204)
            && let Framing::ToEnd = self.framing
        {
            self.framing = Framing::Length(0);
        }
        Ok(())
    }

    pub fn header(&self, name: &str) -> Option<String> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.clone())
    }

    pub fn is_stream(&self) -> bool {
        self.header("content-type")
            .is_some_and(|value| value.starts_with("text/event-stream"))
    }

    fn byte(&mut self) -> std::io::Result<Option<u8>> {
        let mut one = [0; 1];
        match &mut self.framing {
            Framing::Length(0) => return Ok(None),
            Framing::Length(left) => *left -= 1,
            Framing::ToEnd => {
                return Ok(match self.reader.read(&mut one)? {
                    0 => None,
                    _ => Some(one[0]),
                });
            }
            Framing::Chunked { done: true, .. } => return Ok(None),
            Framing::Chunked { left: 0, .. } => {
                let mut line = String::new();
                if self.reader.read_line(&mut line)? == 0 {
                    return Err(std::io::Error::new(
                        std::io::ErrorKind::UnexpectedEof,
                        "closed inside a chunked body",
                    ));
                }
                let size = usize::from_str_radix(line.trim().split(';').next().unwrap_or_default(), 16)
                    .map_err(std::io::Error::other)?;
                if size == 0 {
                    let _ = self.reader.read_line(&mut String::new());
                    self.framing = Framing::Chunked { left: 0, done: true };
                    return Ok(None);
                }
                self.framing = Framing::Chunked {
                    left: size - 1,
                    done: false,
                };
            }
            Framing::Chunked { left, .. } => *left -= 1,
        }
        self.reader.read_exact(&mut one)?;
        if let Framing::Chunked { left: 0, done: false } = self.framing {
            let _ = self.reader.read_exact(&mut [0; 2]);
        }
        Ok(Some(one[0]))
    }

    pub fn body(&mut self) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(byte) = self.byte()? {
            body.push(byte);
        }
        Ok(body)
    }

    pub fn text(&mut self) -> String {
        String::from_utf8(self.body().unwrap()).unwrap()
    }

    pub fn json(&mut self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!(
                "status {} with a body that is not JSON ({error}): {text:?}",
                self.status
            )
        })
    }

    /// The next event; nothing at the end of the stream.
    pub fn event(&mut self) -> std::io::Result<Option<Event>> {
        let mut event = Event::default();
        let mut any = false;
        loop {
            let mut line = Vec::new();
            loop {
                match self.byte()? {
                    None if line.is_empty() => return Ok(None),
                    None => break,
                    Some(b'\n') => break,
                    Some(byte) => line.push(byte),
                }
            }
            let line = String::from_utf8(line).map_err(std::io::Error::other)?;
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                if any {
                    return Ok(Some(event));
                }
                continue;
            }
            if line.starts_with(':') {
                self.comments += 1;
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            any = true;
            match field {
                "id" => event.id = Some(value.to_owned()),
                "event" => event.name = Some(value.to_owned()),
                "retry" => event.retry = Some(value.to_owned()),
                "data" => {
                    if !event.data.is_empty() {
                        event.data.push('\n');
                    }
                    event.data.push_str(value);
                }
                _ => {}
            }
        }
    }

    /// The answer of a POST, whatever form it took: the last message.
    pub fn answer(&mut self) -> Value {
        if !self.is_stream() {
            return self.json();
        }
        let mut last = None;
        while let Some(event) = self.event().unwrap() {
            if !event.data.is_empty() {
                last = Some(event.data);
            }
        }
        serde_json::from_str(&last.expect("the stream has an answer")).unwrap()
    }
}

/// The text of a request head.
pub fn head(method: &str, path: &str, host: &str, headers: &[(&str, &str)], length: Option<usize>) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(length) = length {
        text.push_str(&format!("content-length: {length}\r\n"));
    }
    text.push_str("\r\n");
    text
}

pub const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");
pub const JSON: (&str, &str) = ("content-type", "application/json");

/// POST and read the head of the answer.
pub fn post(address: &Address, headers: &[(&str, &str)], body: &str) -> Exchange {
    post_to(address, "/mcp", headers, body)
}

pub fn post_to(address: &Address, path: &str, headers: &[(&str, &str)], body: &str) -> Exchange {
    request(address, "POST", path, headers, Some(body))
}

pub fn get(address: &Address, path: &str, headers: &[(&str, &str)]) -> Exchange {
    request(address, "GET", path, headers, None)
}

pub fn request(
    address: &Address,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> Exchange {
    let head = head(method, path, &address.host(), headers, body.map(str::len));
    let mut exchange = Exchange::send(address, &head, body.unwrap_or_default().as_bytes()).unwrap();
    exchange
        .read_head()
        .unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    exchange
}

/// Raw bytes as they are, and the head of what comes back.
pub fn raw(address: &Address, bytes: &[u8]) -> Exchange {
    let mut exchange = Exchange::send(address, "", bytes).unwrap();
    exchange.read_head().unwrap_or_else(|error| {
        panic!(
            "{:?}: {error}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
        )
    });
    exchange
}
