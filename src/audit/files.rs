//! The files of one audit series: names, permissions, appending whole lines, retention.
//!
//! Used by the audit thread alone. Each process writes its own series and holds a lock on the file it writes; the only
//! files of others that it ever touches are unlocked ones past retention, which it removes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const PREFIX: &str = "audit-";
const SUFFIX: &str = ".jsonl";

/// The path of file `number` of a series.
pub(super) fn path_of(dir: &Path, instance: &str, number: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{instance}-{number:04}{SUFFIX}"))
}

/// Makes the directory if needed, for us alone.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// What an audit file is written to. Only tests use something else than a [`File`].
pub(super) trait RawFile: Send {
    /// Like [`Write::write`].
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Cuts the file.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
    /// Waits until the content is on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl RawFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        Self::set_len(self, len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A file that is only ever longer by whole lines.
pub(super) struct LineFile {
    raw: Box<dyn RawFile>,
    len: u64,
    broken: bool,
    dirty: bool,
}

impl LineFile {
    /// Creates a file that was not there before, for us alone, locks it and writes its head. Leaves none behind if
    /// that fails: a full disk must not be filled with empty files.
    pub(super) fn create(path: &Path, head: &[u8]) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        // Where locks are not supported retention could remove an old file of an idle process, and nothing else.
        let _ = file.try_lock();
        let mut file = Self::over(Box::new(file));
        if let Err(error) = file.append(head) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok(file)
    }

    pub(super) fn over(raw: Box<dyn RawFile>) -> Self {
        Self {
            raw,
            len: 0,
            broken: false,
            dirty: false,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether a failed write left something that could not be removed: the file must be given up.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Appends all of `lines` or, as far as it lies with us, nothing.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut rest = lines;
        while !rest.is_empty() {
            let result = match self.raw.write(rest) {
                Ok(0) => Err(io::Error::from(io::ErrorKind::WriteZero)),
                other => other,
            };
            match result {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // A torn line would look like a crash, or worse, be completed by the next one.
                    if rest.len() < lines.len() && self.raw.set_len(self.len).is_err() {
                        self.broken = true;
                    }
                    return Err(error);
                }
            }
        }
        self.len += lines.len() as u64;
        self.dirty = true;
        Ok(())
    }

    /// Waits until everything is on the disk, if anything was written since the last time.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.raw.sync()?;
            self.dirty = false;
        }
        Ok(())
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }
}

/// Removes audit files that nobody writes and that were last written more than `keep` before `now`. Returns how many.
pub(super) fn prune(dir: &Path, keep: Duration, now: SystemTime) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(dir)? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let is_ours = name
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_ours || !is_file {
            continue;
        }
        let modified = entry.metadata().and_then(|facts| facts.modified());
        let age = modified
            .ok()
            .and_then(|modified| now.duration_since(modified).ok());
        if age.is_none_or(|age| age <= keep) {
            continue;
        }
        // Others may be pruning too, and the writer may be alive and idle: both are no fault.
        let path = entry.path();
        let unused = File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
        if unused && fs::remove_file(&path).is_ok() {
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests;
