use std::sync::atomic::AtomicUsize;

use super::*;
use crate::revision::Revision;
use crate::session::{CapabilitySet, HostStream, HostTransport, Lane, Sent};
use crate::wire::{HostId, Outgoing};

#[derive(Debug)]
struct Nowhere;

impl HostStream for Nowhere {
    fn send(&self, _lane: Lane, _message: Outgoing) -> Sent {
        Sent::Refused
    }

    fn attached(&self) -> bool {
        false
    }
}

fn entry(id: &str, identity: Identity) -> Arc<Entry<()>> {
    let session = Arc::new(Session::new(
        id.into(),
        id.into(),
        identity.clone(),
        Arc::new(Nowhere),
    ));
    let caller = Arc::new(Caller {
        identity,
        host_name: "h".into(),
        host_version: "1".into(),
        transport: HostTransport::Http,
        revision: Revision::newest_legacy(),
        capabilities: CapabilitySet::NONE,
        session: Some(session.clone()),
        in_flight: Some(session.in_flight.clone()),
        log_level: None,
    });
    Arc::new(Entry::new(session, caller, ()))
}

fn table(total: usize, per_identity: usize) -> (SessionTable<()>, Arc<AtomicUsize>) {
    let ended = Arc::new(AtomicUsize::new(0));
    let counter = ended.clone();
    let limits = TableLimits {
        total,
        per_identity,
        idle: Duration::from_secs(60),
    };
    let table = SessionTable::new(limits, move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    (table, ended)
}

#[tokio::test(start_paused = true)]
async fn caps_hold_and_are_given_back() {
    let (table, ended) = table(3, 2);
    let (one, two) = (Identity::unix_peer(1), Identity::unix_peer(2));
    assert!(table.insert(entry("a", one.clone())).is_ok());
    assert!(table.insert(entry("b", one.clone())).is_ok());
    assert_eq!(table.insert(entry("c", one.clone())), Err(TableFull::Identity));
    assert!(table.insert(entry("d", two.clone())).is_ok());
    assert_eq!(table.insert(entry("e", two)), Err(TableFull::Total));
    assert!(table.end("a") && !table.end("a"));
    assert!(table.insert(entry("f", one)).is_ok());
    assert_eq!((table.len(), ended.load(Ordering::SeqCst)), (3, 1));
    table.end_all();
    assert!(table.is_empty() && table.counts().by_identity.is_empty());
    assert_eq!(ended.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn only_idle_sessions_expire() {
    let (table, _) = table(10, 10);
    let who = Identity::http_loopback();
    let (busy, streaming, used) = (
        entry("busy", who.clone()),
        entry("streaming", who.clone()),
        entry("used", who.clone()),
    );
    for one in [busy.clone(), streaming.clone(), used, entry("idle", who)] {
        table.insert(one).unwrap();
    }
    let token = busy.session.ended.child_token();
    let open = busy
        .session
        .in_flight
        .open(HostId::from_raw("1".into()), token.clone())
        .unwrap();
    let hold = streaming.hold();
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(table.get("used").is_some());
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(table.sweep(), 1);
    assert!(table.get("idle").is_none());
    drop((open, hold));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(table.sweep(), 1, "only the one that was used long ago");
    assert!(!token.is_cancelled());
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(table.sweep(), 2);
    assert!(token.is_cancelled() && busy.session.ended.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn ending_tells_everyone_who_waits() {
    let (table, _) = table(10, 10);
    let one = entry("one", Identity::http_loopback());
    table.insert(one.clone()).unwrap();
    let gone = Arc::new(AtomicUsize::new(0));
    let counter = gone.clone();
    one.session
        .reverse
        .ask(
            move |_| {
                counter.fetch_add(1, Ordering::SeqCst);
            },
            None,
        )
        .unwrap();
    table.end("one");
    assert_eq!(gone.load(Ordering::SeqCst), 1);
    assert!(one.session.reverse.ask(|_| {}, None).is_none());
}
