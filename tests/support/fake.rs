//! The scriptable server (`examples/fake_server.rs`) as the tests hold it: a script, a record, gates and commands.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::process::{MANIFOLD, Process, signal_pid};
use super::{never, until};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerKind {
    StdioLegacy,
    StdioModern,
    StdioDual,
    HttpLegacy,
    HttpModern,
    HttpDual,
    Sse,
}

impl ServerKind {
    pub fn transport(self) -> &'static str {
        match self {
            Self::StdioLegacy | Self::StdioModern | Self::StdioDual => "stdio",
            Self::HttpLegacy | Self::HttpModern | Self::HttpDual => "http",
            Self::Sse => "sse",
        }
    }

    pub fn family(self) -> &'static str {
        match self {
            Self::StdioLegacy | Self::HttpLegacy | Self::Sse => "legacy",
            Self::StdioModern | Self::HttpModern => "modern",
            Self::StdioDual | Self::HttpDual => "dual",
        }
    }

    pub fn modern(self) -> bool {
        self.family() != "legacy"
    }
}

/// One tool entry for a script.
pub fn tool(name: &str, steps: Value) -> Value {
    json!({ "key": name, "raw": tool_text(name), "steps": steps })
}

pub fn tool_text(name: &str) -> String {
    format!(
        r#"{{"name":{},"description":{},"inputSchema":{{"type":"object"}}}}"#,
        json!(name),
        json!(format!("does {name}"))
    )
}

pub struct Fake {
    pub name: String,
    pub kind: ServerKind,
    script: Mutex<Value>,
    folder: tempfile::TempDir,
    process: Mutex<Option<Process>>,
    port: Mutex<u16>,
    commands: AtomicU32,
}

/// One thing that the server recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub kind: String,
    pub pid: u32,
    pub session: String,
    pub raw: String,
    /// The message parsed, for the kind `message`; else the entry.
    pub value: Value,
    pub entry: Value,
}

impl Recorded {
    pub fn method(&self) -> &str {
        self.value["method"].as_str().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        self.entry["headers"]
            .as_array()?
            .iter()
            .find(|pair| pair[0] == json!(name))
            .and_then(|pair| pair[1].as_str().map(String::from))
    }
}

fn binary() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let path = Path::new(MANIFOLD).parent().unwrap().join("examples/fake_server");
        // `cargo test` builds examples; `cargo test --test e2e` alone does not.
        if !path.exists() {
            let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
            let built = Command::new(cargo)
                .args(["build", "--quiet", "--example", "fake_server"])
                .status()
                .expect("cargo runs");
            assert!(built.success(), "the fake server builds");
        }
        path
    })
}

impl Fake {
    pub fn new(name: &str, kind: ServerKind) -> Self {
        let folder = tempfile::Builder::new().prefix("fake-").tempdir().unwrap();
        let script = json!({
            "control": folder.path(), "transport": kind.transport(), "family": kind.family(), "name": name, "tools": [], "prompts": [],
            "resources": [], "templates": [],
        });
        Self {
            name: name.to_owned(),
            kind,
            script: Mutex::new(script),
            folder,
            process: Mutex::default(),
            port: Mutex::default(),
            commands: AtomicU32::new(0),
        }
    }

    /// A server with one tool `echo` that returns its arguments as they came.
    pub fn echo(name: &str, kind: ServerKind) -> Self {
        Self::new(name, kind).tool("echo", json!([]))
    }

    #[must_use]
    pub fn set(self, key: &str, value: Value) -> Self {
        self.change(key, value);
        self
    }

    /// Changes the script of a server that is started later (again).
    pub fn change(&self, key: &str, value: Value) {
        self.script.lock().unwrap()[key] = value;
    }

    #[must_use]
    pub fn item(self, list: &str, item: Value) -> Self {
        self.script.lock().unwrap()[list]
            .as_array_mut()
            .unwrap()
            .push(item);
        self
    }

    #[must_use]
    pub fn tool(self, name: &str, steps: Value) -> Self {
        self.item("tools", tool(name, steps))
    }

    #[must_use]
    pub fn raw_tool(self, name: &str, raw: &str, steps: Value) -> Self {
        self.item("tools", json!({ "key": name, "raw": raw, "steps": steps }))
    }

    #[must_use]
    pub fn prompt(self, name: &str) -> Self {
        let raw = format!(r#"{{"name":{},"arguments":[{{"name":"topic"}}]}}"#, json!(name));
        self.item("prompts", json!({ "key": name, "raw": raw }))
    }

    #[must_use]
    pub fn resource(self, uri: &str) -> Self {
        let raw = format!(r#"{{"uri":{},"name":"r"}}"#, json!(uri));
        self.item("resources", json!({ "key": uri, "raw": raw }))
    }

    #[must_use]
    pub fn template(self, uri: &str) -> Self {
        let raw = format!(r#"{{"uriTemplate":{},"name":"t"}}"#, json!(uri));
        self.item("templates", json!({ "key": uri, "raw": raw }))
    }

    #[must_use]
    pub fn on(self, method: &str, steps: Value) -> Self {
        {
            let mut script = self.script.lock().unwrap();
            script["on"][method] = steps;
        }
        self
    }

    pub fn control(&self) -> &Path {
        self.folder.path()
    }

    fn write_script(&self) -> PathBuf {
        let path = self.folder.path().join("script.json");
        let fresh = self.folder.path().join("script.new");
        std::fs::write(&fresh, serde_json::to_vec(&*self.script.lock().unwrap()).unwrap()).unwrap();
        std::fs::rename(&fresh, &path).unwrap();
        path
    }

    pub fn command(&self) -> Vec<String> {
        vec![
            binary().display().to_string(),
            self.write_script().display().to_string(),
        ]
    }

    /// What the configuration of the daemon says; starts the server when it is an HTTP one.
    pub fn entry(&self) -> Value {
        if self.kind.transport() == "stdio" {
            let command = self.command();
            return json!({ "command": command[0], "args": [command[1]] });
        }
        json!({ "url": self.url() })
    }

    pub fn url(&self) -> String {
        if self.process.lock().unwrap().is_none() {
            self.start_http();
        }
        let path = if self.kind == ServerKind::Sse {
            "/sse"
        } else {
            "/mcp"
        };
        format!("http://127.0.0.1:{}{path}", *self.port.lock().unwrap())
    }

    /// Starts the HTTP server, on its old port if it had one.
    pub fn start_http(&self) {
        let script = self.write_script();
        let _ = std::fs::remove_file(self.folder.path().join("port"));
        let (process, _) = Process::start(
            &format!("fake server {}", self.name),
            Command::new(binary()).arg(script),
        );
        let port = until("the fake server listens", || {
            assert!(
                process.exited().is_none(),
                "the fake server ended: {}",
                process.log_tail(10)
            );
            std::fs::read_to_string(self.folder.path().join("port"))
                .ok()?
                .parse::<u16>()
                .ok()
        });
        *self.port.lock().unwrap() = port;
        self.script.lock().unwrap()["port"] = json!(port);
        *self.process.lock().unwrap() = Some(process);
    }

    /// Ends the HTTP server at once.
    pub fn kill_http(&self) {
        if let Some(process) = self.process.lock().unwrap().take() {
            process.signal(Signal::KILL);
            process.wait_exit("the fake server ends");
        }
    }

    pub fn records(&self) -> Vec<Recorded> {
        let text = std::fs::read(self.folder.path().join("record.jsonl")).unwrap_or_default();
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        text[..whole]
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| {
                let entry: Value = serde_json::from_slice(line).unwrap();
                let raw = entry["raw"].as_str().unwrap_or_default().to_owned();
                let value = super::host::lenient(&raw).unwrap_or(Value::Null);
                Recorded {
                    kind: entry["kind"].as_str().unwrap_or_default().to_owned(),
                    pid: entry["pid"]
                        .as_u64()
                        .and_then(|pid| u32::try_from(pid).ok())
                        .unwrap_or_default(),
                    session: entry["session"].as_str().unwrap_or_default().to_owned(),
                    raw,
                    value,
                    entry,
                }
            })
            .collect()
    }

    /// Every message with that method, in order.
    pub fn received(&self, method: &str) -> Vec<Recorded> {
        self.records()
            .into_iter()
            .filter(|entry| entry.kind == "message" && entry.method() == method)
            .collect()
    }

    pub fn wait_received(&self, method: &str) -> Recorded {
        until(&format!("{} receives {method}", self.name), || {
            self.received(method).pop()
        })
    }

    /// The `tools/call` messages for a local name.
    pub fn calls(&self, name: &str) -> Vec<Recorded> {
        self.received("tools/call")
            .into_iter()
            .filter(|entry| entry.value["params"]["name"] == json!(name))
            .collect()
    }

    pub fn events(&self, name: &str) -> Vec<Recorded> {
        self.records()
            .into_iter()
            .filter(|entry| entry.kind == "event" && entry.entry["name"] == json!(name))
            .collect()
    }

    pub fn wait_event(&self, name: &str) -> Recorded {
        self.wait_events(name, 1).pop().unwrap()
    }

    pub fn wait_events(&self, name: &str, count: usize) -> Vec<Recorded> {
        until(&format!("{} records {count} times {name:?}", self.name), || {
            let found = self.events(name);
            (found.len() >= count).then_some(found)
        })
    }

    /// The calls that ended because the caller gave up: cancelled or with a closed stream.
    pub fn ends(&self) -> Vec<Recorded> {
        self.records()
            .into_iter()
            .filter(|entry| entry.kind == "end")
            .collect()
    }

    pub fn wait_end(&self, name: &str) -> Recorded {
        until(&format!("{} is told to stop {name}", self.name), || {
            self.ends()
                .into_iter()
                .find(|entry| entry.entry["name"] == json!(name))
        })
    }

    pub fn release(&self, gate: &str) {
        std::fs::write(self.folder.path().join(format!("gate-{gate}")), b"").unwrap();
    }

    /// Lets every running process of this server do the steps now, in each of its sessions.
    pub fn perform(&self, steps: Value) {
        let name = self.put_command(steps, false);
        until("the command was done", || {
            self.records()
                .iter()
                .any(|entry| entry.kind == "command" && entry.entry["name"] == json!(name))
                .then_some(())
        });
    }

    /// The same without waiting, also for processes that start later.
    pub fn perform_always(&self, steps: Value) {
        self.put_command(steps, true);
    }

    /// Steps that end the process, so that nobody says that they are done.
    pub fn perform_last(&self, steps: Value) {
        self.put_command(steps, false);
    }

    fn put_command(&self, steps: Value, sticky: bool) -> String {
        let number = self.commands.fetch_add(1, Ordering::SeqCst);
        let name = format!("cmd-{number:04}.json");
        let fresh = self.folder.path().join(format!("new-{number}"));
        std::fs::write(
            &fresh,
            serde_json::to_vec(&json!({ "steps": steps, "sticky": sticky })).unwrap(),
        )
        .unwrap();
        std::fs::rename(&fresh, self.folder.path().join(&name)).unwrap();
        name
    }

    /// Process ids of every start, in order.
    pub fn pids(&self) -> Vec<u32> {
        self.records()
            .iter()
            .filter(|entry| entry.kind == "start")
            .map(|entry| entry.pid)
            .collect()
    }

    pub fn violations(&self) -> Vec<String> {
        self.records()
            .iter()
            .filter(|entry| entry.kind == "violation")
            .map(|entry| format!("{}: {}", entry.entry["what"], entry.raw))
            .collect()
    }

    /// Nothing that we sent to this server broke the protocol.
    pub fn assert_clean(&self) {
        let found = self.violations();
        assert!(found.is_empty(), "{} was sent: {found:#?}", self.name);
    }

    pub fn never_received(&self, method: &str) {
        never(&format!("{} receives {method}", self.name), || {
            !self.received(method).is_empty()
        });
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let records = self.records();
            eprintln!(
                "--- last records of fake server {} ({} in all):",
                self.name,
                records.len()
            );
            for entry in records.iter().skip(records.len().saturating_sub(25)) {
                let mut text = entry.entry.to_string();
                let cut = (0..=700.min(text.len()))
                    .rev()
                    .find(|at| text.is_char_boundary(*at))
                    .unwrap_or(0);
                text.truncate(cut);
                if entry.kind != "start" {
                    eprintln!("{text}");
                }
            }
        }
        // A stdio server of a daemon that failed to end it.
        if self.kind.transport() == "stdio" {
            for pid in self.pids() {
                if super::process::alive(pid) && std::thread::panicking() {
                    signal_pid(pid, Signal::KILL);
                }
            }
        }
    }
}
