//! A child of the test: its log, its orderly end, and the proof that nothing of it stays.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The built binary under test.
pub const MANIFOLD: &str = env!("CARGO_BIN_EXE_manifold");

pub struct Process {
    child: Mutex<Child>,
    pub pid: u32,
    pub stdin: Mutex<Option<ChildStdin>>,
    pub log: Arc<Mutex<Vec<String>>>,
    /// Reads stderr into the log; done when the last writer has closed it.
    reader: Mutex<Option<std::thread::JoinHandle<()>>>,
    name: String,
}

impl Process {
    /// Starts with pipes everywhere; stderr goes into the log, stdout to the caller.
    pub fn start(name: &str, command: &mut Command) -> (Self, ChildStdout) {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}: {command:?}"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let kept = log.clone();
        let reader = std::thread::spawn(move || {
            let mut line = Vec::new();
            while stderr.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = plain_text(&String::from_utf8_lossy(&line));
                let mut kept = kept.lock().unwrap();
                kept.push(text);
                line.clear();
            }
        });
        let stdout = child.stdout.take().unwrap();
        let stdin = child.stdin.take();
        let pid = child.id();
        (
            Self {
                child: Mutex::new(child),
                pid,
                stdin: Mutex::new(stdin),
                log,
                reader: Mutex::new(Some(reader)),
                name: name.to_owned(),
            },
            stdout,
        )
    }

    pub fn signal(&self, signal: Signal) {
        signal_pid(self.pid, signal);
    }

    /// The exit code once it ended; -1 for a signal.
    pub fn exited(&self) -> Option<i32> {
        self.child
            .lock()
            .unwrap()
            .try_wait()
            .unwrap()
            .map(|status| status.code().unwrap_or(-1))
    }

    pub fn wait_exit(&self, what: &str) -> i32 {
        super::until(what, || self.exited())
    }

    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log.lock().unwrap();
        log.iter()
            .skip(log.len().saturating_sub(lines))
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    }

    pub fn log_has(&self, text: &str) -> bool {
        self.log.lock().unwrap().iter().any(|line| line.contains(text))
    }

    /// Stdin closed, SIGTERM, and SIGKILL when it is not gone in time; tells whether it had to be killed.
    pub fn stop(&self) -> bool {
        self.stdin.lock().unwrap().take();
        if self.exited().is_some() {
            return false;
        }
        self.signal(Signal::TERM);
        let end = Instant::now() + Duration::from_secs(20);
        while self.exited().is_none() {
            if Instant::now() > end {
                self.signal(Signal::KILL);
                let _ = self.child.lock().unwrap().wait();
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let killed = self.stop();
        if std::thread::panicking() {
            eprintln!(
                "--- last lines of {} (pid {}):\n{}\n---",
                self.name,
                self.pid,
                self.log_tail(60)
            );
        } else {
            assert!(
                !killed,
                "{} did not end after SIGTERM and had to be killed; its log:\n{}",
                self.name,
                self.log_tail(40)
            );
        }
    }
}

pub fn signal_pid(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether a process of that id runs; a zombie does not.
pub fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim_start().starts_with('Z'))
}

/// Runs a command to its end and returns (exit code, stdout, stderr).
pub fn run(command: &mut Command) -> (i32, String, String) {
    let (process, mut stdout) = Process::start("command", command);
    process.stdin.lock().unwrap().take();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let code = process.wait_exit("the command ends");
    let out = reader.join().unwrap();
    // The exit may be seen before the last line was read.
    if let Some(reader) = process.reader.lock().unwrap().take() {
        reader.join().unwrap();
    }
    let err = process.log_tail(10_000);
    (code, out, err)
}

/// The text without colours.
fn plain_text(line: &str) -> String {
    let mut text = String::new();
    let mut characters = line.trim_end().chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            for inner in characters.by_ref() {
                if inner.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            text.push(character);
        }
    }
    text
}
