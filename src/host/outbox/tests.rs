use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;

use super::*;

fn message(text: &str) -> Outgoing {
    Outgoing::from(text.to_owned())
}

fn outbox(notifications: usize, requests: usize, bytes: usize) -> Arc<Outbox> {
    Outbox::new(OutboxLimits {
        notifications,
        requests,
        bytes,
    })
}

fn texts(reader: &mut OutboxReader) -> Vec<String> {
    std::iter::from_fn(|| reader.try_next())
        .map(|item| String::from_utf8(item.message.into_bytes().to_vec()).unwrap())
        .collect()
}

#[test]
fn below_the_limits_everything_keeps_its_place() {
    let outbox = outbox(8, 8, 1000);
    for (lane, text) in [
        (Lane::Progress(1), "p1"),
        (Lane::Notice, "n"),
        (Lane::Progress(1), "p2"),
        (Lane::Request, "r"),
        (Lane::Answer, "a"),
    ] {
        assert_eq!(outbox.send(lane, message(text)), Sent::Queued);
    }
    assert_eq!(texts(&mut outbox.attach()), ["p1", "n", "p2", "r", "a"]);
}

#[test]
fn past_the_limit_the_latest_progress_of_each_key_is_kept() {
    let outbox = outbox(3, 1, 1000);
    for (key, text) in [(1, "a1"), (1, "a2"), (2, "b1"), (1, "a3"), (2, "b2")] {
        outbox.send(Lane::Progress(key), message(text));
    }
    assert_eq!(texts(&mut outbox.attach()), ["a1", "a3", "b2"]);
    assert_eq!((outbox.coalesced(), outbox.dropped()), (2, 0));
}

#[test]
fn the_oldest_notice_goes_and_requests_are_refused() {
    let outbox = outbox(2, 1, 1000);
    for n in 0..5 {
        assert_eq!(outbox.send(Lane::Notice, message(&n.to_string())), Sent::Queued);
    }
    assert_eq!(outbox.send(Lane::Request, message("r1")), Sent::Queued);
    assert_eq!(outbox.send(Lane::Request, message("r2")), Sent::Refused);
    assert_eq!(outbox.dropped(), 3);
    assert_eq!(texts(&mut outbox.attach()), ["3", "4", "r1"]);
}

#[test]
fn bytes_are_bounded_except_for_answers() {
    let outbox = outbox(100, 100, 10);
    for _ in 0..5 {
        outbox.send(Lane::Notice, message("12345"));
    }
    assert!(outbox.queued_bytes() <= 10);
    outbox.send(Lane::Answer, message(&"x".repeat(100)));
    assert_eq!(texts(&mut outbox.attach()).last().unwrap().len(), 100);
    assert_eq!(outbox.queued_bytes(), 0);
}

#[tokio::test]
async fn a_newer_reader_takes_over() {
    let outbox = outbox(10, 10, 1000);
    let mut older = outbox.attach();
    assert!(older.next().now_or_never().is_none());
    let mut newer = outbox.attach();
    assert!(older.next().await.is_none());
    drop(older);
    assert!(outbox.attached());
    outbox.send(Lane::Answer, message("a"));
    outbox.finish();
    assert_eq!(texts(&mut newer), ["a"]);
    assert!(newer.next().await.is_none());
    assert_eq!(outbox.send(Lane::Answer, message("late")), Sent::Refused);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_reader_wakes_and_a_waiting_writer_too() {
    let outbox = outbox(10, 10, 1000);
    let mut reader = outbox.attach();
    let waiting = tokio::time::timeout(Duration::from_secs(1), reader.next());
    let (got, ()) = tokio::join!(waiting, async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        outbox.send(Lane::Notice, message("n"));
    });
    assert!(got.unwrap().is_some());
    outbox.send(Lane::Answer, message("a"));
    outbox.send(Lane::Answer, message("b"));
    let short = tokio::time::timeout(Duration::from_secs(1), outbox.short(2, 1000));
    let (short, ()) = tokio::join!(short, async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        reader.try_next();
    });
    assert!(short.is_ok());
}

#[test]
fn a_host_without_streams_gets_answers_only() {
    let outbox = outbox(10, 10, 1000);
    outbox.answers_only();
    let mut reader = outbox.attach();
    assert!(!outbox.attached());
    assert_eq!(outbox.send(Lane::Notice, message("n")), Sent::Queued);
    assert_eq!(outbox.send(Lane::Request, message("r")), Sent::Refused);
    outbox.send(Lane::Answer, message("a"));
    assert_eq!(texts(&mut reader), ["a"]);
}

proptest! {
    /// Whatever is sent: the bounds hold, no answer and no accepted request is lost, what comes out is in the order
    /// in which it went in, and the last progress of every key comes out if the bytes allow.
    #[test]
    fn laws(steps in prop::collection::vec((0u8..5, 0u64..3), 0..200)) {
        let outbox = outbox(4, 3, 100_000);
        let mut reader = outbox.attach();
        let (mut sent, mut seen) = (Vec::new(), Vec::new());
        for (n, (kind, key)) in steps.into_iter().enumerate() {
            let lane = match kind {
                0 => Lane::Progress(key),
                1 => Lane::Notice,
                2 => Lane::Request,
                3 => Lane::Answer,
                _ => {
                    seen.extend(reader.try_next().map(|item| (item.lane, item.message.into_bytes())));
                    continue;
                }
            };
            if outbox.send(lane, message(&n.to_string())) == Sent::Queued {
                sent.push((lane, n));
            }
            let queued: Vec<Lane> = outbox.lock().queue.iter().map(|item| item.lane).collect();
            let count = |wanted: fn(&Lane) -> bool| queued.iter().filter(|lane| wanted(lane)).count();
            prop_assert!(count(|lane| matches!(lane, Lane::Progress(_))) <= 4);
            prop_assert!(count(|lane| *lane == Lane::Notice) <= 4);
            prop_assert!(count(|lane| *lane == Lane::Request) <= 3);
        }
        seen.extend(std::iter::from_fn(|| reader.try_next()).map(|item| (item.lane, item.message.into_bytes())));
        let seen: Vec<(Lane, usize)> =
            seen.into_iter().map(|(lane, text)| (lane, String::from_utf8_lossy(&text).parse().unwrap())).collect();
        prop_assert!(seen.windows(2).all(|pair| pair[0].1 < pair[1].1));
        for (lane, n) in &sent {
            if matches!(lane, Lane::Answer | Lane::Request) {
                prop_assert!(seen.contains(&(*lane, *n)));
            }
        }
        for key in 0..3 {
            let last = sent.iter().rfind(|(lane, _)| *lane == Lane::Progress(key));
            if let Some(last) = last {
                prop_assert!(seen.contains(last));
            }
        }
        let state = outbox.lock();
        prop_assert_eq!((state.progress, state.notices, state.requests, state.bytes, state.answer_bytes), (0, 0, 0, 0, 0));
    }
}
