use super::*;

fn replay(events: usize, bytes: usize) -> Replay<&'static str> {
    Replay::new(
        ReplayLimits {
            events,
            bytes,
            keep: Duration::from_secs(60),
        },
        "general",
    )
}

fn message(text: &str) -> Outgoing {
    Outgoing::from(text.to_owned())
}

fn missed(resumed: Resumed<&'static str>) -> Vec<String> {
    resumed
        .missed
        .into_iter()
        .map(|(_, message)| String::from_utf8(message.into_bytes().to_vec()).unwrap())
        .collect()
}

#[test]
fn ids_have_one_spelling() {
    assert_eq!(
        EventId::parse("3-14"),
        Some(EventId {
            stream: 3,
            number: 14
        })
    );
    assert_eq!(
        EventId {
            stream: 3,
            number: 14
        }
        .to_string(),
        "3-14"
    );
    for bad in [
        "",
        "3",
        "-",
        "3-",
        "-4",
        "3-4-5",
        "+3-4",
        "3-x",
        "99999999999999999999-1",
    ] {
        assert_eq!(EventId::parse(bad), None, "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_named_stream_comes_again() {
    let replay = replay(100, 10_000);
    let (one, two) = (replay.open("one"), replay.open("two"));
    let first = replay.record(one, message("1a"));
    replay.record(two, message("2a"));
    replay.record(GENERAL, message("0a"));
    replay.record(one, message("1b"));
    let resumed = replay.resume(first).unwrap();
    assert_eq!(resumed.live, Some("one"));
    assert_eq!(missed(resumed), ["1b"]);
    let resumed = replay
        .resume(EventId {
            stream: GENERAL,
            number: 0,
        })
        .unwrap();
    assert_eq!((resumed.live, resumed.missed.len()), (Some("general"), 1));
}

#[tokio::test(start_paused = true)]
async fn an_ended_stream_ends_again() {
    let replay = replay(100, 10_000);
    let one = replay.open("one");
    replay.record(one, message("1a"));
    let last = replay.record(one, message("answer"));
    replay.ended(one);
    let resumed = replay.resume(last).unwrap();
    assert!(resumed.live.is_none() && resumed.missed.is_empty());
    assert_eq!(
        missed(
            replay
                .resume(EventId {
                    stream: one,
                    number: 1
                })
                .unwrap()
        ),
        ["answer"]
    );
    assert_eq!(
        replay
            .resume(EventId {
                stream: one,
                number: 3
            })
            .unwrap_err(),
        ResumeFault::Unknown
    );
    assert_eq!(
        replay.resume(EventId { stream: 9, number: 1 }).unwrap_err(),
        ResumeFault::Unknown
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_said_to_be_lost() {
    let replay = replay(3, 10_000);
    let one = replay.open("one");
    for n in 0..5 {
        replay.record(one, message(&n.to_string()));
    }
    assert_eq!(replay.size().0, 3);
    assert_eq!(
        replay
            .resume(EventId {
                stream: one,
                number: 1
            })
            .unwrap_err(),
        ResumeFault::Lost
    );
    assert_eq!(
        missed(
            replay
                .resume(EventId {
                    stream: one,
                    number: 2
                })
                .unwrap()
        ),
        ["2", "3", "4"]
    );
    replay.ended(one);
    assert_eq!(
        replay
            .resume(EventId {
                stream: one,
                number: 0
            })
            .unwrap_err(),
        ResumeFault::Lost
    );
    assert!(
        replay
            .resume(EventId {
                stream: one,
                number: 5
            })
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn bytes_and_time_are_bounded() {
    let replay = replay(100, 10);
    let one = replay.open("one");
    for _ in 0..5 {
        replay.record(one, message("12345"));
    }
    assert_eq!(replay.size(), (2, 10));
    let (two, three) = (replay.open("two"), replay.open("three"));
    replay.finished(two, 8);
    tokio::time::advance(Duration::from_secs(1)).await;
    replay.finished(three, 8);
    assert_eq!(
        replay
            .resume(EventId {
                stream: two,
                number: 0
            })
            .unwrap_err(),
        ResumeFault::Lost
    );
    tokio::time::advance(Duration::from_secs(60)).await;
    replay.sweep();
    assert_eq!((replay.size(), replay.open_streams()), ((0, 0), 2));
    assert_eq!(
        replay
            .resume(EventId {
                stream: three,
                number: 0
            })
            .unwrap_err(),
        ResumeFault::Lost
    );
}
