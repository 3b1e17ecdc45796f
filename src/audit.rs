//! The record of every decision: one line of JSON per intent, outcome, denial and event.
//!
//! [`AuditLog`] is the cheap handle that pipeline and runtime record through. Recording never waits for a disk: a
//! record is moved into a bounded queue and one thread of its own writes it. A disk that fails is seen in
//! [`AuditStatus`] and in the log, retried, and hurts no call; records that do not fit meanwhile are counted exactly.
//! `durability: strict`, where no record means no call, is not offered by this version.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::clock::SharedClock;
use crate::crypto;

mod files;
pub mod record;
mod writer;

pub use record::{
    ArgumentDigest, Callee, Caller, ErrorFacts, Event, Outcome, Record, SCHEMA_VERSION, session_label,
};

/// Where records go and when files change.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// The directory, made if needed. Several processes may share it.
    pub dir: PathBuf,
    /// A file is closed before it gets longer than this many bytes.
    pub rotate_size: u64,
    /// A file is closed once it is this old, if given.
    pub rotate_age: Option<Duration>,
    /// Files that nobody writes are removed this long after their last write, if given.
    pub keep: Option<Duration>,
    /// Records that may wait for the disk. More are counted as lost.
    pub queue: usize,
}

impl AuditOptions {
    /// The defaults: 64 MiB or 24 hours per file, 30 days kept, 16,384 records waiting.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        const HOUR: u64 = 3600;
        Self {
            dir,
            rotate_size: 64 << 20,
            rotate_age: Some(Duration::from_secs(24 * HOUR)),
            keep: Some(Duration::from_secs(30 * 24 * HOUR)),
            queue: 16_384,
        }
    }
}

/// How the audit is doing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AuditStatus {
    /// `buffered` or `off`.
    pub durability: &'static str,
    /// What the file names of this process have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<Arc<str>>,
    /// The file being written; none before the first and while none can be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Records written since the start.
    pub written: u64,
    /// Records that could not be kept since the start.
    pub lost: u64,
    /// Records waiting for the disk.
    pub waiting: u64,
    /// Whether the last attempt to write failed.
    pub failing: bool,
    /// The last failure, also when it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<AuditFault>,
}

/// A failure to write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AuditFault {
    /// When it was last seen.
    pub time: Timestamp,
    /// What was tried and what the system said.
    pub message: String,
}

/// The audit did not end in order.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloseFault {
    /// The disk did not take the last records in the time given.
    #[error("the audit was still writing after {0:?}")]
    TooSlow(Duration),
    /// Records were lost since the start, now or earlier.
    #[error("{0} audit records were lost")]
    Lost(u64),
}

/// The handle to record through. Clones share one queue, one thread and one series of files.
#[derive(Clone)]
pub struct AuditLog(Option<Arc<Handle>>);

/// What clones of the handle share. The thread holds the inner part only, so it learns when nobody can record any more.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instance = self.0.as_ref().map_or("off", |handle| &handle.0.instance);
        f.debug_tuple("AuditLog").field(&instance).finish()
    }
}

impl AuditLog {
    /// The audit of `durability: off`: takes records and keeps none.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Starts the audit thread. A directory that cannot be written is no error here: it is reported, shown in the
    /// status and tried again.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn open(options: AuditOptions, clock: SharedClock) -> std::io::Result<Self> {
        let time = clock.wall().strftime("%Y%m%dT%H%M%SZ").to_string();
        let instance = format!(
            "{time}-{}-{}",
            std::process::id(),
            crypto::hex(&crypto::random::<4>())
        );
        let shared = Arc::new(Shared {
            instance: instance.into(),
            salt: crypto::random(),
            capacity: options.queue.max(1),
            clock,
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
            report: Mutex::new(Report::default()),
            ended: Condvar::new(),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            in_hand: AtomicU64::new(0),
        });
        writer::start(options, Arc::clone(&shared))?;
        Ok(Self(Some(Arc::new(Handle(shared)))))
    }

    /// Whether records are kept at all. Callers may spare themselves building one if not.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records one event, stamped with the time of this call. Never waits for the disk: if the queue is full, the
    /// record is counted as lost.
    pub fn record(&self, record: Record) {
        if let Some(handle) = &self.0 {
            handle.0.push(record);
        }
    }

    /// The digest of a call's arguments as they were received, salted for this process. Nothing if the audit is off.
    #[must_use]
    pub fn digest(&self, arguments: &[u8]) -> Option<ArgumentDigest> {
        let shared = &self.0.as_ref()?.0;
        let digest = crypto::sha256_parts(&[&shared.salt, arguments]);
        Some(ArgumentDigest {
            digest,
            bytes: arguments.len() as u64,
        })
    }

    /// How the audit is doing.
    #[must_use]
    pub fn status(&self) -> AuditStatus {
        let Some(Handle(shared)) = self.0.as_deref() else {
            return AuditStatus {
                durability: "off",
                instance: None,
                file: None,
                written: 0,
                lost: 0,
                waiting: 0,
                failing: false,
                last_error: None,
            };
        };
        let queued = shared.lock_queue().records.len() as u64;
        let report = shared.lock_report();
        AuditStatus {
            durability: "buffered",
            instance: Some(Arc::clone(&shared.instance)),
            file: report.file.clone(),
            written: shared.written.load(Ordering::Relaxed),
            lost: shared.lost.load(Ordering::Relaxed),
            waiting: queued + shared.in_hand.load(Ordering::Relaxed),
            failing: report.failing,
            last_error: report.last_error.clone(),
        }
    }

    /// Writes what is waiting, syncs the file and ends the thread. Dropping the last handle does the same without
    /// waiting for it. Records that come later are counted as lost.
    /// Blocks the calling thread up to `within`; closing again waits again.
    ///
    /// # Errors
    /// If that took too long (the thread goes on by itself), or if any record was lost since the start.
    pub fn close(&self, within: Duration) -> Result<(), CloseFault> {
        let Some(Handle(shared)) = self.0.as_deref() else {
            return Ok(());
        };
        shared.begin_close();
        let (mut report, timeout) = shared
            .ended
            .wait_timeout_while(shared.lock_report(), within, |report| !report.ended)
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() && !report.ended {
            return Err(CloseFault::TooSlow(within));
        }
        let thread = report.thread.take();
        drop(report);
        // It has said that it ended; this only waits for the system to clear it away.
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        match shared.lost.load(Ordering::Relaxed) {
            0 => Ok(()),
            lost => Err(CloseFault::Lost(lost)),
        }
    }
}

/// What the handles and the thread share.
struct Shared {
    instance: Arc<str>,
    salt: [u8; 16],
    capacity: usize,
    clock: SharedClock,
    queue: Mutex<Queue>,
    /// Notified when a waiting thread has something to do.
    work: Condvar,
    report: Mutex<Report>,
    /// Notified when the thread has ended.
    ended: Condvar,
    written: AtomicU64,
    lost: AtomicU64,
    /// Records taken from the queue and not yet written.
    in_hand: AtomicU64,
}

#[derive(Default)]
struct Queue {
    records: Vec<Stamped>,
    /// The thread waits for the first record, so somebody must wake it.
    idle: bool,
    closing: bool,
    /// The thread is gone: nothing that comes now will be written.
    closed: bool,
    /// Lost since the thread last took the queue.
    lost: u64,
}

struct Stamped {
    time: Timestamp,
    record: Record,
}

#[derive(Default)]
struct Report {
    file: Option<PathBuf>,
    failing: bool,
    last_error: Option<AuditFault>,
    ended: bool,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Shared {
    fn lock_queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_close(&self) {
        self.lock_queue().closing = true;
        self.work.notify_one();
    }

    fn push(&self, record: Record) {
        let stamped = Stamped {
            time: self.clock.wall(),
            record,
        };
        let wake = {
            let mut queue = self.lock_queue();
            if queue.closing || queue.closed || queue.records.len() >= self.capacity {
                queue.lost += 1;
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            queue.records.push(stamped);
            // A thread that is collecting a batch needs no waking, unless room is getting short.
            std::mem::take(&mut queue.idle) || queue.records.len() == self.capacity / 2
        };
        if wake {
            self.work.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
