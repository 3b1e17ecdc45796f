//! Tells when the content of a configuration file really changed.
//!
//! Watches the folders of the files, because editors and Kubernetes replace a file instead of writing into it. Waits
//! for quiet, compares content, and calls back only on a difference. The reload owns it; it reads files and never
//! interprets them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use notify::{EventKind, RecursiveMode, Watcher as _};

use super::load::LoadedFile;
use crate::crypto;

/// How long the files must be left alone.
const QUIET: Duration = Duration::from_millis(250);
/// A folder that is never quiet is looked at this often.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    // Dropping it closes the channel, which ends the thread.
    _watching: notify::RecommendedWatcher,
    thread: Option<std::thread::JoinHandle<()>>,
    stop: Sender<Message>,
}

enum Message {
    Touched,
    Stop,
}

impl Watcher {
    /// Watches the files that a load has read. `changed` is called on a thread of its own after each real change,
    /// also for one that happened since the load. A file that cannot be read for the moment counts as unchanged.
    ///
    /// # Errors
    /// If the system refuses to watch a folder.
    pub fn start(
        files: Vec<LoadedFile>,
        mut changed: impl FnMut() + Send + 'static,
    ) -> Result<Self, WatchError> {
        let (sender, receiver) = channel();
        let touched = sender.clone();
        let mut watching = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Errors (an overflow) may hide a change, so they count; mere reads do not.
            if !matches!(event.map(|event| event.kind), Ok(EventKind::Access(_))) {
                let _ = touched.send(Message::Touched);
            }
        })
        .map_err(WatchError)?;
        for folder in folders(&files) {
            watching
                .watch(&folder, RecursiveMode::NonRecursive)
                .map_err(WatchError)?;
        }
        // A change between the load and the watch.
        let _ = sender.send(Message::Touched);
        let thread = std::thread::Builder::new()
            .name("config-watch".to_owned())
            .spawn(move || run(&receiver, files, &mut changed))
            .map_err(|error| WatchError(notify::Error::io(error)))?;
        Ok(Self {
            _watching: watching,
            thread: Some(thread),
            stop: sender,
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.stop.send(Message::Stop);
        if let Some(thread) = self
            .thread
            .take()
            .filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

/// Why a folder cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch the configuration: {0}")]
pub struct WatchError(#[source] notify::Error);

/// The folders of the paths as given and of the files that symbolic links lead to.
fn folders(files: &[LoadedFile]) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    for file in files {
        folders.insert(folder(&file.path));
        if let Ok(real) = file.path.canonicalize() {
            folders.insert(folder(&real));
        }
    }
    folders
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn run(receiver: &Receiver<Message>, mut files: Vec<LoadedFile>, changed: &mut dyn FnMut()) {
    while let Ok(Message::Touched) = receiver.recv() {
        let since = Instant::now();
        loop {
            match receiver.recv_timeout(QUIET) {
                Ok(Message::Touched) if since.elapsed() < PATIENCE => {}
                Ok(Message::Touched) | Err(RecvTimeoutError::Timeout) => break,
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let mut differs = false;
        for file in &mut files {
            // Gone for a moment is how a replacement looks half-way.
            let Ok(content) = std::fs::read(&file.path) else {
                continue;
            };
            let digest = crypto::sha256_hex(&content);
            if digest != file.digest {
                file.digest = digest;
                differs = true;
            }
        }
        if differs {
            changed();
        }
    }
}

#[cfg(test)]
mod tests;
