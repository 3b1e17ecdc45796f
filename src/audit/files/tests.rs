use std::sync::{Arc, Mutex};

use super::*;

/// A disk with limited room that accepts a few bytes at a time.
#[derive(Clone, Default)]
struct SmallDisk(Arc<Mutex<Disk>>);

#[derive(Default)]
struct Disk {
    content: Vec<u8>,
    room: usize,
    refuse_cut: bool,
}

impl RawFile for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.lock().unwrap();
        let count = bytes.len().min(3).min(disk.room);
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        disk.content.extend_from_slice(&bytes[..count]);
        disk.room -= count;
        Ok(count)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        if disk.refuse_cut {
            return Err(io::Error::other("no"));
        }
        disk.content.truncate(usize::try_from(len).unwrap());
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_never_leaves_half_a_line() {
    let disk = SmallDisk::default();
    disk.0.lock().unwrap().room = 12;
    let mut file = LineFile::over(Box::new(disk.clone()));
    file.append(b"first\n").unwrap();
    assert_eq!(
        file.append(b"second\n").unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    assert!(!file.is_broken());
    assert_eq!(disk.0.lock().unwrap().content, b"first\n");
    disk.0.lock().unwrap().room = 100;
    file.append(b"second\n").unwrap();
    assert_eq!(disk.0.lock().unwrap().content, b"first\nsecond\n");
    assert_eq!(file.len(), 13);
}

#[test]
fn a_file_that_cannot_be_cut_is_given_up() {
    let disk = SmallDisk::default();
    {
        let mut disk = disk.0.lock().unwrap();
        disk.room = 2;
        disk.refuse_cut = true;
    }
    let mut file = LineFile::over(Box::new(disk));
    assert!(file.append(b"line\n").is_err());
    assert!(file.is_broken());
}

#[test]
fn retention_removes_what_is_old_and_unused() {
    let dir = tempfile::tempdir().unwrap();
    let later = SystemTime::now() + Duration::from_secs(100);
    let used = path_of(dir.path(), "used", 1);
    let file = LineFile::create(&used, b"").unwrap();
    let unused = path_of(dir.path(), "unused", 1);
    drop(LineFile::create(&unused, b"").unwrap());
    let other = dir.path().join("notes.jsonl");
    fs::write(&other, "mine").unwrap();
    assert_eq!(prune(dir.path(), Duration::from_secs(1000), later).unwrap(), 0);
    assert_eq!(prune(dir.path(), Duration::from_secs(50), later).unwrap(), 1);
    assert!(used.exists() && other.exists() && !unused.exists());
    drop(file);
    assert_eq!(prune(dir.path(), Duration::from_secs(50), later).unwrap(), 1);
    assert!(!used.exists() && other.exists());
}

#[cfg(unix)]
#[test]
fn files_and_folders_are_for_us_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("a/b");
    make_dir(&dir).unwrap();
    let path = path_of(&dir, "i", 1);
    drop(LineFile::create(&path, b"").unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&path)), (0o700, 0o600));
}
