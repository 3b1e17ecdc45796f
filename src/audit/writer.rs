//! The audit thread: takes batches from the queue, turns them into lines, writes, rotates, retries.
//!
//! A thread of its own and not a task, so that a disk that hangs holds up nothing else. It is the only one that
//! opens, writes or removes audit files. Order and sequence numbers are made here, so they are those of the file.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::files::{self, LineFile};
use super::record::{FileHead, Position, Record, SCHEMA_VERSION, write_line};
use super::{AuditFault, AuditOptions, Event, Shared, Stamped};
use crate::crypto;

/// How long records are collected before they are written together. Also the most that a killed process loses.
const COLLECT: Duration = Duration::from_millis(5);

/// How much text is written at once.
const CHUNK: usize = 256 << 10;

/// How often what was written is forced to the disk while records keep coming.
const SYNC_EVERY: Duration = Duration::from_secs(5);

/// How often old files are looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// Delays between attempts while the disk fails.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);

/// How often a lasting failure is logged again.
const REMIND_EVERY: Duration = Duration::from_secs(60);

/// The queue's memory is given back above this many records.
const KEEP_CAPACITY: usize = 1024;

/// Starts the thread.
pub(super) fn start(options: AuditOptions, shared: Arc<Shared>) -> io::Result<()> {
    let keeper = Arc::clone(&shared);
    let thread = std::thread::Builder::new()
        .name("audit".to_owned())
        .spawn(move || {
            // Dropped last, also by a panic: whoever closes must not wait for a thread that is gone.
            let ending = Ending(Arc::clone(&shared));
            Writer::new(options, shared).run();
            drop(ending);
        })?;
    keeper.lock_report().thread = Some(thread);
    Ok(())
}

struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        let unwritten = {
            let mut queue = self.0.lock_queue();
            queue.closed = true;
            std::mem::take(&mut queue.records).len() as u64
        };
        let lost = unwritten + self.0.in_hand.swap(0, Ordering::Relaxed);
        if lost > 0 {
            self.0.lost.fetch_add(lost, Ordering::Relaxed);
            tracing::error!(records = lost, "audit records were lost at the end");
        }
        let mut report = self.0.lock_report();
        if std::thread::panicking() {
            report.failing = true;
            report.last_error = Some(AuditFault {
                time: self.0.clock.wall(),
                message: "the audit thread panicked".to_owned(),
            });
        }
        report.ended = true;
        drop(report);
        self.0.ended.notify_all();
    }
}

struct Writer {
    options: AuditOptions,
    shared: Arc<Shared>,
    salt: String,
    file: Option<Open>,
    /// The number of the file that is or was last open.
    number: u64,
    /// The sequence number that the next record gets.
    sequence: u64,
    /// Records taken from the queue that are not in `text` yet.
    batch: std::vec::IntoIter<Stamped>,
    /// A record that did not fit into the file before it.
    carried: Option<Stamped>,
    /// Lines that are not in the file yet, whole ones only, at most about [`CHUNK`] bytes.
    text: Vec<u8>,
    /// How many records are in `text`.
    in_text: u64,
    /// How many of them are about lost ones: nobody waits for those, they are not counted as in hand.
    own_in_text: u64,
    synced: Instant,
    pruned: Option<Instant>,
    reminded: Option<Instant>,
}

struct Open {
    file: LineFile,
    path: PathBuf,
    /// Monotonic time of the shared clock.
    since: Instant,
    /// Length of the head line: a file that is no longer has no record.
    head: u64,
}

/// What the thread is woken for.
enum Turn {
    /// There may be records.
    Write { closing: bool },
    /// Nothing came for a while.
    Tidy,
}

impl Writer {
    fn new(options: AuditOptions, shared: Arc<Shared>) -> Self {
        Self {
            salt: crypto::hex(&shared.salt),
            options,
            shared,
            file: None,
            number: 0,
            sequence: 1,
            batch: Vec::new().into_iter(),
            carried: None,
            text: Vec::new(),
            in_text: 0,
            own_in_text: 0,
            synced: Instant::now(),
            pruned: None,
            reminded: None,
        }
    }

    fn run(mut self) {
        let mut delay = RETRY_FIRST;
        loop {
            let closing = match self.wait() {
                Turn::Write { closing } => closing,
                Turn::Tidy => {
                    self.tidy();
                    continue;
                }
            };
            let mut last_try = closing;
            while let Err(fault) = self.write_in_hand() {
                self.failed(&fault);
                if last_try {
                    return;
                }
                last_try = self.pause(delay);
                delay = (delay * 2).min(RETRY_LAST);
            }
            self.recovered();
            delay = RETRY_FIRST;
            if closing || last_try {
                // What came while a failing disk was being retried is still in the queue.
                if self.shared.lock_queue().records.is_empty() {
                    self.sync();
                    return;
                }
                continue;
            }
            if self.synced.elapsed() >= SYNC_EVERY {
                self.sync();
            }
        }
    }

    /// Waits for records and takes them all.
    fn wait(&mut self) -> Turn {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.lock_queue();
        if queue.records.is_empty() && !queue.closing {
            queue.idle = true;
            let patience = if self.is_dirty() { SYNC_EVERY } else { PRUNE_EVERY };
            let (guard, timeout) = shared
                .work
                .wait_timeout_while(queue, patience, |queue| {
                    queue.records.is_empty() && !queue.closing
                })
                .unwrap_or_else(PoisonError::into_inner);
            queue = guard;
            queue.idle = false;
            if timeout.timed_out() && queue.records.is_empty() && !queue.closing {
                return Turn::Tidy;
            }
        }
        let half = shared.capacity / 2;
        (queue, _) = shared
            .work
            .wait_timeout_while(queue, COLLECT, |queue| {
                queue.records.len() < half && !queue.closing
            })
            .unwrap_or_else(PoisonError::into_inner);
        let capacity = queue.records.capacity().min(KEEP_CAPACITY);
        let taken = std::mem::replace(&mut queue.records, Vec::with_capacity(capacity));
        let lost = std::mem::take(&mut queue.lost);
        let closing = queue.closing;
        shared.in_hand.store(taken.len() as u64, Ordering::Relaxed);
        drop(queue);
        self.batch = taken.into_iter();
        if lost > 0 {
            // Carried in front of the batch: it was lost before these, or while they waited.
            let record = Record {
                count: Some(lost),
                ..Record::new(Event::Lost)
            };
            self.carried = Some(Stamped {
                time: shared.clock.wall(),
                record,
            });
            tracing::error!(records = lost, "audit records were lost: the queue was full");
        }
        Turn::Write { closing }
    }

    /// Waits between two attempts. True if the log is being closed, so that the next attempt is the last.
    fn pause(&self, delay: Duration) -> bool {
        let (queue, _) = self
            .shared
            .work
            .wait_timeout_while(self.shared.lock_queue(), delay, |queue| !queue.closing)
            .unwrap_or_else(PoisonError::into_inner);
        queue.closing
    }

    /// Writes everything that was taken from the queue. After an error the rest is still in hand, in order.
    fn write_in_hand(&mut self) -> Result<(), Fault> {
        loop {
            self.flush_if(CHUNK)?;
            let Some(stamped) = self.carried.take().or_else(|| self.batch.next()) else {
                return self.flush_if(1);
            };
            if self.file.is_none() {
                match self.open(self.sequence - self.in_text) {
                    Ok(open) => self.file = Some(open),
                    Err(fault) => {
                        self.carried = Some(stamped);
                        return Err(fault);
                    }
                }
            }
            let before = self.text.len();
            let position = Position {
                time: stamped.time,
                sequence: self.sequence,
                instance: &self.shared.instance,
            };
            write_line(&mut self.text, &position, &stamped.record);
            if self.must_rotate() {
                self.text.truncate(before);
                self.carried = Some(stamped);
                self.flush_if(1)?;
                self.close_file();
                continue;
            }
            self.sequence += 1;
            self.in_text += 1;
            self.own_in_text += u64::from(stamped.record.event == Event::Lost);
        }
    }

    /// Whether the open file is too old, or would get too long by the text in hand.
    fn must_rotate(&self) -> bool {
        let Some(open) = &self.file else { return false };
        let has_records = open.file.len() > open.head || self.in_text > 0;
        has_records
            && (self.is_old(open) || open.file.len() + self.text.len() as u64 > self.options.rotate_size)
    }

    fn is_old(&self, open: &Open) -> bool {
        let age = self
            .shared
            .clock
            .monotonic()
            .saturating_duration_since(open.since);
        self.options.rotate_age.is_some_and(|limit| age >= limit)
    }

    /// Writes the text in hand if there is at least that much.
    fn flush_if(&mut self, at_least: usize) -> Result<(), Fault> {
        if self.text.len() < at_least {
            return Ok(());
        }
        let first = self.sequence - self.in_text;
        let mut open = match self.file.take() {
            Some(open) => open,
            None => self.open(first)?,
        };
        let result = open.file.append(&self.text);
        if let Err(error) = result {
            let fault = Fault {
                action: format!("cannot write {}", open.path.display()),
                error,
            };
            if !open.file.is_broken() {
                self.file = Some(open);
            }
            return Err(fault);
        }
        self.file = Some(open);
        self.text.clear();
        self.shared.written.fetch_add(self.in_text, Ordering::Relaxed);
        self.shared
            .in_hand
            .fetch_sub(self.in_text - self.own_in_text, Ordering::Relaxed);
        self.in_text = 0;
        self.own_in_text = 0;
        Ok(())
    }

    fn open(&mut self, first: u64) -> Result<Open, Fault> {
        let dir = &self.options.dir;
        files::make_dir(dir).map_err(|error| Fault {
            action: format!("cannot make the directory {}", dir.display()),
            error,
        })?;
        let number = self.number + 1;
        let path = files::path_of(dir, &self.shared.instance, number);
        let mut head = Vec::new();
        FileHead {
            v: SCHEMA_VERSION,
            time: self.shared.clock.wall(),
            instance: &self.shared.instance,
            event: "file",
            file: number,
            first,
            salt: &self.salt,
        }
        .write_line(&mut head);
        let file = LineFile::create(&path, &head).map_err(|error| Fault {
            action: format!("cannot write {}", path.display()),
            error,
        })?;
        self.number = number;
        self.shared.lock_report().file = Some(path.clone());
        self.prune();
        Ok(Open {
            file,
            path,
            since: self.shared.clock.monotonic(),
            head: head.len() as u64,
        })
    }

    fn close_file(&mut self) {
        self.sync();
        self.file = None;
    }

    fn is_dirty(&self) -> bool {
        self.file.as_ref().is_some_and(|open| open.file.is_dirty())
    }

    fn sync(&mut self) {
        self.synced = Instant::now();
        if let Some(open) = &mut self.file
            && let Err(error) = open.file.sync()
        {
            let fault = Fault {
                action: format!("cannot sync {}", open.path.display()),
                error,
            };
            self.failed(&fault);
        }
    }

    /// What is done while nothing comes.
    fn tidy(&mut self) {
        self.sync();
        if self
            .file
            .as_ref()
            .is_some_and(|open| open.file.len() > open.head && self.is_old(open))
        {
            self.close_file();
        }
        self.prune();
    }

    fn prune(&mut self) {
        let Some(keep) = self.options.keep else { return };
        if self.pruned.is_some_and(|last| last.elapsed() < PRUNE_EVERY) && self.file.is_some() {
            return;
        }
        self.pruned = Some(Instant::now());
        let seconds = u64::try_from(self.shared.clock.wall().as_second()).unwrap_or(0);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        match files::prune(&self.options.dir, keep, now) {
            Ok(0) => {}
            Ok(count) => tracing::info!(files = count, "removed audit files past their retention"),
            Err(error) => tracing::warn!(%error, "cannot look for old audit files"),
        }
    }

    fn failed(&mut self, fault: &Fault) {
        let message = format!("{}: {}", fault.action, fault.error);
        let mut report = self.shared.lock_report();
        let news = !std::mem::replace(&mut report.failing, true);
        report.last_error = Some(AuditFault {
            time: self.shared.clock.wall(),
            message: message.clone(),
        });
        drop(report);
        if news || self.reminded.is_none_or(|last| last.elapsed() >= REMIND_EVERY) {
            self.reminded = Some(Instant::now());
            tracing::error!(
                error = message,
                "the audit cannot be written; calls go on, records wait and may get lost"
            );
        }
    }

    fn recovered(&self) {
        if std::mem::take(&mut self.shared.lock_report().failing) {
            tracing::info!("the audit is being written again");
        }
    }
}

/// A failed attempt.
struct Fault {
    action: String,
    error: io::Error,
}
