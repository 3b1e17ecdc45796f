use std::sync::{Mutex, PoisonError};

use super::*;

/// The counts are process-wide: these tests take turns, and compare differences only.
static TURN: Mutex<()> = Mutex::new(());

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_panic_ends_one_task_and_is_counted() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = panics();
    runtime().block_on(async {
        let bad = spawn("bad", async { panic!("on purpose") });
        let good = spawn("good", async { 7 });
        assert!(bad.await.unwrap_err().is_panic());
        assert_eq!(good.await.unwrap(), 7);
    });
    assert!(panics() > before);
}

#[test]
fn a_tracker_sees_the_end_of_its_tasks() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    runtime().block_on(async {
        let tracker = TaskTracker::new();
        let (release, gate) = tokio::sync::oneshot::channel::<()>();
        let handle = spawn_tracked(&tracker, "tracked", async move {
            let _ = gate.await;
        });
        assert_eq!(tracker.len(), 1);
        assert!(live() >= 1);
        tracker.close();
        release.send(()).unwrap();
        tracker.wait().await;
        handle.await.unwrap();
        assert!(tracker.is_empty());
    });
}
