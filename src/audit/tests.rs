use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use crate::clock::{FakeClock, SystemClock};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < SOON, "never happened: {what}");
        std::thread::yield_now();
    }
}

fn call(number: u64) -> Record {
    Record {
        call: Some(number),
        ..Record::new(Event::Intent)
    }
}

/// All files of a directory, by name, as their lines.
fn read(dir: &Path) -> BTreeMap<String, Vec<Value>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let text = fs::read_to_string(entry.path()).unwrap();
        assert!(text.ends_with('\n'), "a torn line at the end");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        files.insert(entry.file_name().into_string().unwrap(), lines);
    }
    files
}

/// The records of one series in order, checked for heads and gaps.
fn records(files: &BTreeMap<String, Vec<Value>>, instance: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut number = 0;
    for (name, lines) in files {
        if !name.starts_with(&format!("audit-{instance}-")) {
            continue;
        }
        number += 1;
        assert_eq!(lines[0]["event"], "file");
        assert_eq!(lines[0]["file"], number);
        assert_eq!(lines[0]["first"], all.len() as u64 + 1);
        all.extend(lines[1..].iter().cloned());
    }
    for (index, record) in all.iter().enumerate() {
        assert_eq!(record["seq"], index as u64 + 1);
        assert_eq!(record["instance"], instance);
    }
    all
}

#[test]
fn records_are_in_the_file_in_order_when_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let log = AuditLog::open(AuditOptions::new(dir.path().join("new")), SystemClock::shared()).unwrap();
    for number in 0..1000 {
        log.record(call(number));
    }
    log.close(SOON).unwrap();
    let status = log.status();
    assert_eq!((status.written, status.lost, status.waiting), (1000, 0, 0));
    let files = read(&dir.path().join("new"));
    assert_eq!(files.len(), 1);
    let records = records(&files, status.instance.as_deref().unwrap());
    let calls: Vec<u64> = records
        .iter()
        .map(|record| record["call"].as_u64().unwrap())
        .collect();
    assert_eq!(calls, (0..1000).collect::<Vec<_>>());
    // What comes after the end is counted, not kept.
    log.record(call(1));
    assert_eq!(log.close(SOON), Err(CloseFault::Lost(1)));
}

#[test]
fn one_record_is_soon_readable_without_closing() {
    let dir = tempfile::tempdir().unwrap();
    let log = AuditLog::open(AuditOptions::new(dir.path().to_owned()), SystemClock::shared()).unwrap();
    for number in 1..4 {
        log.record(call(number));
        until("written", || log.status().written == number);
        let file = log.status().file.unwrap();
        assert_eq!(
            fs::read_to_string(file).unwrap().lines().count() as u64,
            number + 1
        );
    }
    log.close(SOON).unwrap();
}

#[test]
fn files_change_before_they_get_too_long() {
    let dir = tempfile::tempdir().unwrap();
    let options = AuditOptions {
        rotate_size: 2000,
        ..AuditOptions::new(dir.path().to_owned())
    };
    let log = AuditLog::open(options, SystemClock::shared()).unwrap();
    for number in 0..500 {
        log.record(call(number));
    }
    log.close(SOON).unwrap();
    let files = read(dir.path());
    assert!(files.len() > 20, "{}", files.len());
    for name in files.keys() {
        let length = fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(length <= 2000, "{name}: {length}");
    }
    assert_eq!(
        records(&files, log.status().instance.as_deref().unwrap()).len(),
        500
    );
}

#[test]
fn a_record_longer_than_a_file_still_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let options = AuditOptions {
        rotate_size: 10,
        ..AuditOptions::new(dir.path().to_owned())
    };
    let log = AuditLog::open(options, SystemClock::shared()).unwrap();
    for number in 0..5 {
        log.record(call(number));
    }
    log.close(SOON).unwrap();
    let files = read(dir.path());
    assert_eq!(files.len(), 5);
    assert_eq!(
        records(&files, log.status().instance.as_deref().unwrap()).len(),
        5
    );
}

#[test]
fn files_change_when_they_are_old_and_go_when_they_are_very_old() {
    let dir = tempfile::tempdir().unwrap();
    let clock = FakeClock::at(Timestamp::now());
    let options = AuditOptions {
        rotate_age: Some(Duration::from_secs(60)),
        keep: Some(Duration::from_secs(3600)),
        ..AuditOptions::new(dir.path().to_owned())
    };
    let log = AuditLog::open(options.clone(), Arc::new(clock.clone())).unwrap();
    log.record(call(1));
    until("written", || log.status().written == 1);
    clock.advance(Duration::from_secs(61));
    log.record(call(2));
    until("written", || log.status().written == 2);
    assert_eq!(read(dir.path()).len(), 2);
    let first = log.status().instance.unwrap();
    clock.advance(Duration::from_secs(7200));
    // Another process comes and clears what nobody writes: the closed file of the first, not its open one.
    let other = AuditLog::open(options, Arc::new(clock)).unwrap();
    other.record(call(1));
    until("written", || other.status().written == 1);
    let names: Vec<String> = read(dir.path()).into_keys().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&format!("audit-{first}-0002.jsonl")), "{names:?}");
    log.close(SOON).unwrap();
    other.close(SOON).unwrap();
}

#[test]
fn several_series_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let options = AuditOptions {
        rotate_size: 5000,
        ..AuditOptions::new(dir.path().to_owned())
    };
    let logs: Vec<AuditLog> = (0..4)
        .map(|_| AuditLog::open(options.clone(), SystemClock::shared()).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for log in &logs {
            for half in 0..2 {
                scope.spawn(move || (0..200).for_each(|number| log.record(call(half * 200 + number))));
            }
        }
    });
    for log in &logs {
        log.close(SOON).unwrap();
    }
    let files = read(dir.path());
    for log in &logs {
        let mut calls: Vec<u64> = records(&files, log.status().instance.as_deref().unwrap())
            .iter()
            .map(|record| record["call"].as_u64().unwrap())
            .collect();
        calls.sort_unstable();
        assert_eq!(calls, (0..400).collect::<Vec<_>>());
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_seen_and_used_once_it_can() {
    let parent = tempfile::tempdir().unwrap();
    let blocked = parent.path().join("state");
    fs::write(&blocked, "a file where a folder should be").unwrap();
    let options = AuditOptions {
        queue: 10,
        ..AuditOptions::new(blocked.join("audit"))
    };
    let log = AuditLog::open(options, SystemClock::shared()).unwrap();
    log.record(call(0));
    until("the failure is seen", || log.status().failing);
    let error = log.status().last_error.unwrap().message;
    assert!(error.contains("audit"), "{error}");
    until("the first batch is in hand", || log.status().waiting == 1);
    for number in 1..=13 {
        log.record(call(number));
    }
    assert_eq!((log.status().lost, log.status().waiting), (3, 11));
    fs::remove_file(&blocked).unwrap();
    until("it is written after all", || log.status().written == 12);
    let status = log.status();
    assert!(!status.failing && status.last_error.is_some() && status.lost == 3);
    assert_eq!(log.close(SOON), Err(CloseFault::Lost(3)));
    let records = records(&read(&blocked.join("audit")), status.instance.as_deref().unwrap());
    let lost: Vec<&Value> = records
        .iter()
        .filter(|record| record["event"] == "lost")
        .collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0]["count"], 3);
    let calls: Vec<u64> = records
        .iter()
        .filter_map(|record| record["call"].as_u64())
        .collect();
    assert_eq!(calls, (0..=10).collect::<Vec<_>>());
}

#[test]
fn closing_over_a_failing_disk_ends_and_counts() {
    let parent = tempfile::tempdir().unwrap();
    let blocked = parent.path().join("state");
    fs::write(&blocked, "").unwrap();
    let log = AuditLog::open(AuditOptions::new(blocked.join("audit")), SystemClock::shared()).unwrap();
    log.record(call(0));
    until("the failure is seen", || log.status().failing);
    log.record(call(1));
    assert_eq!(log.close(SOON), Err(CloseFault::Lost(2)));
    assert_eq!(log.status().waiting, 0);
}

#[test]
fn a_log_that_everybody_dropped_writes_what_it_has_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let log = AuditLog::open(AuditOptions::new(dir.path().to_owned()), SystemClock::shared()).unwrap();
    let shared = Arc::downgrade(&log.0.as_ref().unwrap().0);
    log.clone().record(call(1));
    drop(log);
    until("the thread has ended", || shared.strong_count() == 0);
    assert_eq!(read(dir.path()).into_values().next().unwrap().len(), 2);
}

#[test]
fn off_keeps_nothing_and_costs_nothing() {
    let log = AuditLog::off();
    log.record(call(0));
    assert!(!log.is_on());
    assert_eq!(log.digest(b"{}"), None);
    assert_eq!((log.status().durability, log.status().written), ("off", 0));
    log.close(SOON).unwrap();
}

#[test]
fn digests_are_salted_per_process_and_checkable_with_the_salt_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let open = || AuditLog::open(AuditOptions::new(dir.path().to_owned()), SystemClock::shared()).unwrap();
    let (one, other) = (open(), open());
    let arguments = br#"{"path":"/srv"}"#;
    assert_eq!(one.digest(arguments), one.digest(arguments));
    assert_ne!(one.digest(arguments), other.digest(arguments));
    one.record(Record {
        arguments: one.digest(arguments),
        ..call(1)
    });
    one.close(SOON).unwrap();
    other.close(SOON).unwrap();
    let lines = read(dir.path()).into_values().next().unwrap();
    let salt = lines[0]["salt"].as_str().unwrap();
    let salt: Vec<u8> = (0..salt.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&salt[at..at + 2], 16).unwrap())
        .collect();
    assert_eq!(
        lines[1]["arguments"]["digest"],
        crypto::hex(&crypto::sha256_parts(&[&salt, arguments]))
    );
    assert_eq!(lines[1]["arguments"]["bytes"], arguments.len() as u64);
}
