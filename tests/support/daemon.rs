//! The configuration folder of a test and the daemon that runs on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::fake::Fake;
use super::http::{self, Address};
use super::process::{MANIFOLD, Process, alive, signal_pid};
use super::{HostKind, until};

/// A configuration in the making. Servers keep their order: it decides who keeps a colliding URI.
pub struct Setup {
    folder: tempfile::TempDir,
    servers: Vec<(String, Value)>,
    keys: Vec<(String, Value)>,
    environment: Vec<(String, String)>,
    controls: Vec<PathBuf>,
}

impl Setup {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("manifold-").tempdir().unwrap();
        let keys = vec![
            ("listen".to_owned(), json!({ "http": "127.0.0.1:0" })),
            ("admin".to_owned(), json!({ "http": "127.0.0.1:0" })),
            ("state_dir".to_owned(), json!(folder.path().join("state"))),
            (
                "audit".to_owned(),
                json!({ "dir": folder.path().join("audit"), "durability": "buffered" }),
            ),
            ("grace".to_owned(), json!("2s")),
        ];
        Self {
            folder,
            servers: Vec::new(),
            keys,
            environment: Vec::new(),
            controls: Vec::new(),
        }
    }

    pub fn of(fakes: &[&Fake]) -> Self {
        fakes
            .iter()
            .fold(Self::new(), |setup, fake| setup.server(fake, json!({})))
    }

    /// A fake server with further keys of its entry.
    #[must_use]
    pub fn server(mut self, fake: &Fake, extra: Value) -> Self {
        let mut entry = fake.entry();
        merge(&mut entry, extra);
        self.put_server(&fake.name, entry);
        if fake.kind.transport() == "stdio" {
            self.controls.push(fake.control().to_owned());
        }
        self
    }

    #[must_use]
    pub fn entry(mut self, name: &str, entry: Value) -> Self {
        self.put_server(name, entry);
        self
    }

    fn put_server(&mut self, name: &str, entry: Value) {
        match self.servers.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => *old = entry,
            None => self.servers.push((name.to_owned(), entry)),
        }
    }

    /// Merges into a top-level key.
    #[must_use]
    pub fn set(mut self, key: &str, value: Value) -> Self {
        self.put(key, value);
        self
    }

    fn put(&mut self, key: &str, value: Value) {
        match self.keys.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => merge(old, value),
            None => self.keys.push((key.to_owned(), value)),
        }
    }

    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.to_owned(), value.to_owned()));
        self
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// JSON is YAML; the order of the servers is ours.
    pub fn text(&self) -> String {
        let servers: Vec<String> = self
            .servers
            .iter()
            .map(|(name, entry)| format!("    {}: {entry}", json!(name)))
            .collect();
        let mut parts: Vec<String> = self
            .keys
            .iter()
            .map(|(key, value)| format!("  {}: {value}", json!(key)))
            .collect();
        parts.push(format!("  \"servers\": {{\n{}\n  }}", servers.join(",\n")));
        format!("{{\n{}\n}}\n", parts.join(",\n"))
    }

    pub fn config_path(&self) -> PathBuf {
        self.folder.path().join("manifold.yaml")
    }

    /// Writes the file as editors and config maps do: a new file renamed over the old.
    pub fn write(&self) {
        self.write_text(&self.text());
    }

    pub fn write_text(&self, text: &str) {
        let fresh = self.folder.path().join(".manifold.yaml.new");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(&fresh, self.config_path()).unwrap();
    }

    /// The folder with its file, for hosts that start their own process.
    pub fn prepare(self) -> Daemon {
        self.write();
        Daemon {
            setup: Mutex::new(self),
            process: None,
            host_address: None,
            admin: Mutex::default(),
        }
    }

    /// Starts `manifold serve`.
    pub fn start(self) -> Daemon {
        let mut daemon = self.prepare();
        daemon.launch();
        daemon
    }

    /// What that kind of host needs: a daemon, or only its file.
    pub fn for_host(self, kind: HostKind) -> Daemon {
        if kind.own_process() {
            self.prepare()
        } else {
            self.start()
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

pub struct Daemon {
    setup: Mutex<Setup>,
    process: Option<Process>,
    host_address: Option<Address>,
    admin: Mutex<Option<Address>>,
}

impl Daemon {
    pub fn command(&self, arguments: &[&str]) -> Command {
        let setup = self.setup.lock().unwrap();
        let mut command = Command::new(MANIFOLD);
        command
            .args(arguments)
            .arg("--config")
            .arg(setup.config_path())
            .current_dir(setup.path());
        command
            .env("NO_COLOR", "1")
            .envs(setup.environment.iter().cloned());
        command
    }

    fn launch(&mut self) {
        let (process, _) = Process::start("manifold serve", &mut self.command(&["serve"]));
        let found = until_log(&process, "the daemon says where it listens", |line| {
            let admin = line.to_ascii_lowercase().contains("admin");
            (line.contains("listening") && !admin)
                .then(|| find_address(line))
                .flatten()
        });
        self.host_address = Some(found);
        self.process = Some(process);
        *self.admin.lock().unwrap() = None;
    }

    /// Ends the daemon and starts it again on the same folder.
    pub fn restart(&mut self) {
        self.process.take();
        self.launch();
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the daemon runs")
    }

    pub fn address(&self) -> Address {
        self.host_address.clone().expect("the daemon listens")
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address())
    }

    pub fn admin(&self) -> Address {
        let mut known = self.admin.lock().unwrap();
        known
            .get_or_insert_with(|| {
                until_log(self.process(), "the admin listener's address is logged", |line| {
                    line.to_ascii_lowercase()
                        .contains("admin")
                        .then(|| find_address(line))
                        .flatten()
                })
            })
            .clone()
    }

    pub fn admin_get(&self, path: &str) -> (u16, String) {
        let mut exchange = http::get(&self.admin(), path, &[]);
        let body = exchange.text();
        (exchange.status, body)
    }

    pub fn status(&self) -> Value {
        let (_, body) = self.admin_get("/status");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("/status is not JSON ({error}): {body}"))
    }

    /// The entry of one server in `/status`, wherever the page keeps it.
    pub fn server_status(&self, name: &str) -> Value {
        let status = self.status();
        let servers = &status["servers"];
        if let Some(list) = servers.as_array() {
            return list
                .iter()
                .find(|entry| entry["name"] == json!(name))
                .cloned()
                .unwrap_or(Value::Null);
        }
        servers[name].clone()
    }

    pub fn path(&self) -> PathBuf {
        self.setup.lock().unwrap().path().to_owned()
    }

    /// Every audit record of every process, oldest file first.
    pub fn audit(&self) -> Vec<Value> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(self.path().join("audit"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        let mut records = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let whole = text.rfind('\n').map_or("", |at| &text[..at]);
            for line in whole.lines().filter(|line| !line.trim().is_empty()) {
                records.push(
                    serde_json::from_str(line)
                        .unwrap_or_else(|error| panic!("audit line of {}: {error}: {line}", file.display())),
                );
            }
        }
        records
    }

    pub fn wait_audit(&self, what: &str, matches: impl Fn(&Value) -> bool) -> Value {
        until(&format!("an audit record: {what}"), || {
            self.audit().into_iter().find(|record| matches(record))
        })
    }

    /// Changes the setup, writes the file, and leaves the rest to the watcher.
    pub fn reconfigure(&self, change: impl FnOnce(Setup) -> Setup) {
        let mut guard = self.setup.lock().unwrap();
        let old = std::mem::replace(
            &mut *guard,
            Setup {
                folder: tempfile::tempdir().unwrap(),
                servers: Vec::new(),
                keys: Vec::new(),
                environment: Vec::new(),
                controls: Vec::new(),
            },
        );
        *guard = change(old);
        guard.write();
    }

    pub fn remove_server(&self, name: &str) {
        self.reconfigure(|mut setup| {
            setup.servers.retain(|(key, _)| key != name);
            setup
        });
    }

    pub fn write_config(&self, text: &str) {
        self.setup.lock().unwrap().write_text(text);
    }

    pub fn config_text(&self) -> String {
        self.setup.lock().unwrap().text()
    }

    pub fn children(&self) -> Vec<u32> {
        children_of(self.process().pid)
    }
}

/// The direct children of a process.
pub fn children_of(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some(rest) = stat.rsplit(')').next() else {
            continue;
        };
        let mut words = rest.split_whitespace();
        let state = words.next().unwrap_or("Z");
        if words.next() == Some(parent.to_string().as_str()) && state != "Z" {
            found.push(pid);
        }
    }
    found
}

fn until_log<T>(process: &Process, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
    until(what, || {
        let found = process.log.lock().unwrap().iter().find_map(|line| find(line));
        if found.is_none()
            && let Some(code) = process.exited()
        {
            panic!(
                "manifold ended with {code} before {what}:\n{}",
                process.log_tail(40)
            );
        }
        found
    })
}

/// The first loopback address with a port, or the first socket path, in a line of the log.
fn find_address(line: &str) -> Option<Address> {
    for host in ["127.0.0.1:", "[::1]:", "localhost:"] {
        if let Some(at) = line.find(host) {
            let digits: String = line[at + host.len()..]
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            if !digits.is_empty() && digits != "0" {
                return Some(Address::Tcp(format!("{host}{digits}")));
            }
        }
    }
    let at = line.find("unix:")?;
    let path: String = line[at + 5..]
        .chars()
        .take_while(|character| !character.is_whitespace() && !"\"',".contains(*character))
        .collect();
    let path = path.strip_prefix("//").map(String::from).unwrap_or(path);
    Some(Address::Unix(PathBuf::from(path)))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.take();
        let mut left = Vec::new();
        for control in &self.setup.lock().unwrap().controls {
            let text = std::fs::read_to_string(control.join("record.jsonl")).unwrap_or_default();
            for line in text.lines().filter(|line| line.contains("\"kind\":\"start\"")) {
                let entry: Value = serde_json::from_str(line).unwrap_or_default();
                left.extend(entry["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()));
            }
        }
        let end = Instant::now() + Duration::from_secs(10);
        left.retain(|pid| {
            while alive(*pid) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            alive(*pid)
        });
        for pid in &left {
            signal_pid(*pid, Signal::KILL);
        }
        if !std::thread::panicking() {
            assert!(left.is_empty(), "children outlived the daemon: {left:?}");
        }
    }
}
