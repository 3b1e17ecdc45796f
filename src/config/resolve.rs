//! Resolves references to secrets: variables, files, the output of commands.
//!
//! Only the loader calls it. Every error names the reference and never a value. The environment is the one injected
//! into the loader.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest secret.
const MAX_SECRET: u64 = 64 * 1024;
/// How long a command may take.
const COMMAND_TIME: Duration = Duration::from_secs(10);

/// What references are resolved with.
#[derive(Clone, Copy)]
pub(crate) struct Resolver<'a> {
    pub(crate) environment: &'a BTreeMap<String, String>,
    /// What `${self}` stands for.
    pub(crate) program: Option<&'a Path>,
}

impl Resolver<'_> {
    /// The text with every reference replaced. `$${` stands for `${`.
    ///
    /// # Errors
    /// The first reference that cannot be resolved, and why.
    pub(crate) fn expand(&self, written: &str) -> Result<String, String> {
        let mut out = String::with_capacity(written.len());
        let mut rest = written;
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            if let Some(escaped) = before.strip_suffix('$') {
                out.push_str(escaped);
                out.push_str("${");
                rest = from.get(2..).unwrap_or_default();
                continue;
            }
            out.push_str(before);
            let inner = from.get(2..).unwrap_or_default();
            let end = closing_brace(inner).ok_or_else(|| format!("`{from}`: the `}}` is missing"))?;
            let (reference, tail) = inner.split_at(end);
            let value = self
                .reference(reference)
                .map_err(|why| format!("${{{reference}}}: {why}"))?;
            out.push_str(&value);
            rest = tail.get(1..).unwrap_or_default();
        }
        out.push_str(rest);
        Ok(out)
    }

    fn reference(&self, reference: &str) -> Result<String, String> {
        if reference == "self" {
            let program = self
                .program
                .ok_or("the path of the running program is not known")?;
            return program
                .to_str()
                .map(str::to_owned)
                .ok_or_else(|| "the path of the running program is not UTF-8".to_owned());
        }
        if let Some(path) = reference.strip_prefix("file:") {
            return self.file(path);
        }
        if let Some(command) = reference.strip_prefix("exec:") {
            return run(command);
        }
        let (name, default) = match reference
            .strip_prefix("env:")
            .unwrap_or(reference)
            .split_once(":-")
        {
            Some((name, default)) => (name, Some(default)),
            None => (reference.strip_prefix("env:").unwrap_or(reference), None),
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(legal) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(
                "references are ${env:NAME}, ${file:/path}, ${exec:command}, ${NAME} and ${NAME:-default}"
                    .to_owned(),
            );
        }
        match (self.environment.get(name), default) {
            (Some(value), None) => Ok(value.clone()),
            (Some(value), Some(_)) if !value.is_empty() => Ok(value.clone()),
            (_, Some(default)) => Ok(default.to_owned()),
            (None, None) => Err(format!("the environment variable {name} is not set")),
        }
    }

    fn file(&self, path: &str) -> Result<String, String> {
        let path = home_path(path, self.environment)?;
        if !path.is_absolute() {
            return Err("the path must be absolute".to_owned());
        }
        let file = std::fs::File::open(&path).map_err(|error| format!("cannot read the file: {error}"))?;
        let mut bytes = Vec::new();
        file.take(MAX_SECRET + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot read the file: {error}"))?;
        text_of(bytes)
    }
}

/// `~` and `~/...` in a path are the home directory.
pub(crate) fn home_path(path: &str, environment: &BTreeMap<String, String>) -> Result<PathBuf, String> {
    let Some(rest) = path
        .strip_prefix('~')
        .filter(|rest| rest.is_empty() || rest.starts_with('/'))
    else {
        return Ok(PathBuf::from(path));
    };
    match environment.get("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Ok(Path::new(home).join(rest.trim_start_matches('/'))),
        None => Err("`~` needs the environment variable HOME, which is not set".to_owned()),
    }
}

/// The closing brace of a reference; braces inside it (of a shell command) must be balanced.
fn closing_brace(inner: &str) -> Option<usize> {
    let mut depth = 0u32;
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// A secret ends before the line break that editors and commands put behind it.
fn text_of(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() as u64 > MAX_SECRET {
        return Err("longer than 64 KiB".to_owned());
    }
    let mut text = String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// Runs a command by the shell. Loading happens before the daemon serves, so waiting here holds up nobody.
fn run(command: &str) -> Result<String, String> {
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    let mut child = shell
        .spawn()
        .map_err(|error| format!("cannot run the command: {error}"))?;
    let stdout = child.stdout.take();
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = std::thread::Builder::new()
        .name("config-exec".to_owned())
        .spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.map_or(Ok(0), |stdout| {
                stdout.take(MAX_SECRET + 1).read_to_end(&mut bytes)
            });
            // The receiver is gone only if the command took too long.
            let _ = sender.send(read.map(|_| bytes));
        });
    reader.map_err(|error| format!("cannot run the command: {error}"))?;
    let deadline = Instant::now() + COMMAND_TIME;
    let output = receiver.recv_timeout(COMMAND_TIME);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) if output.is_ok() => break status,
            Ok(_) if output.is_ok() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2))
            }
            _ => {
                kill_group(&mut child);
                return Err(format!(
                    "the command took longer than {} s",
                    COMMAND_TIME.as_secs()
                ));
            }
        }
    };
    if !status.success() {
        return Err(format!("the command failed ({status})"));
    }
    match output {
        Ok(Ok(bytes)) => text_of(bytes),
        _ => Err("the command's output could not be read".to_owned()),
    }
}

fn kill_group(child: &mut std::process::Child) {
    #[cfg(unix)]
    if let Some(group) = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        // It may have ended meanwhile; then there is nothing to kill.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests;
