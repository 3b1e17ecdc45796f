use super::*;
use proptest::prelude::*;

const WIDE: SseLimits = SseLimits {
    line: 10_000,
    event: 10_000,
};

fn decode(limits: SseLimits, chunks: &[&[u8]]) -> (Vec<Result<Event, SseFault>>, SseDecoder) {
    let mut decoder = SseDecoder::new(limits);
    let mut out = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Some(event) = decoder.next_event() {
            out.push(event);
        }
    }
    (out, decoder)
}

fn events(stream: &str) -> Vec<Event> {
    decode(WIDE, &[stream.as_bytes()])
        .0
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

fn plain(data: &str) -> Event {
    Event {
        id: None,
        name: None,
        data: Bytes::copy_from_slice(data.as_bytes()),
    }
}

#[test]
fn the_examples_of_the_format_are_read() {
    assert_eq!(
        events("data: YHOO\ndata: +2\ndata: 10\n\n"),
        [plain("YHOO\n+2\n10")]
    );
    assert_eq!(events("data\n\ndata\ndata\n\ndata:"), [plain(""), plain("\n")]);
    assert_eq!(
        events("data:test\n\ndata: test\n\ndata:  test\n\n"),
        [plain("test"), plain("test"), plain(" test")]
    );
    assert_eq!(events(": comment\n\nunknown: x\nunknown\n\n"), []);
    assert_eq!(events("data: no blank line\n"), []);
}

#[test]
fn all_line_ends_and_a_mark_at_the_start() {
    assert_eq!(
        events("\u{feff}data: a\r\rdata: b\r\n\r\ndata: c\n\n"),
        [plain("a"), plain("b"), plain("c")]
    );
    assert_eq!(events("data: a\n\n\u{feff}data: b\n\n"), [plain("a")]);
    assert_eq!(
        decode(WIDE, &[b"data: a\r", b"\n\r", b"\ndata: b\r\r"]).0.len(),
        2
    );
}

#[test]
fn ids_names_and_retry() {
    let (read, decoder) = decode(
        WIDE,
        &[b"id: 7\nevent: endpoint\ndata: /x\n\nevent: message\nretry: 1500\ndata: y\n\nid: 8\n\nid: a\0b\nretry: 5x\nretry:\ndata: z\n\n"],
    );
    let read: Vec<Event> = read.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        read[0],
        Event {
            id: Some("7".into()),
            name: Some("endpoint".into()),
            data: "/x".into()
        }
    );
    assert_eq!(read[1..], [plain("y"), plain("z")]);
    assert_eq!(decoder.last_event_id(), Some("8"));
    assert_eq!(decoder.retry(), Some(Duration::from_millis(1500)));
    let (_, decoder) = decode(
        WIDE,
        &[b"id: 7\ndata: x\n\nid\ndata: y\n\nretry: 99999999999999999999999\n"],
    );
    assert_eq!(decoder.last_event_id(), None);
    assert_eq!(decoder.retry(), Some(Duration::from_millis(u64::MAX)));
}

#[test]
fn one_line_within_one_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"data: {\"a\":1}\n\n");
    let mut decoder = SseDecoder::new(WIDE);
    decoder.push(chunk.clone());
    assert_eq!(
        decoder.next_event().unwrap().unwrap().data.as_ptr(),
        chunk[6..].as_ptr()
    );
}

#[test]
fn a_too_large_event_is_reported_once_and_the_next_one_works() {
    let limits = SseLimits { line: 16, event: 9 };
    let stream =
        b"id: 1\ndata: 12345678901\n\ndata: 12345\ndata: 6789\nid: 2\ndata: 1\n\ndata: 12345678901\n\ndata:1\n\n";
    let (read, decoder) = decode(limits, &[stream]);
    // The first data line is 17 bytes long, over the line limit; the second event over the event limit.
    assert_eq!(
        read,
        [
            Err(SseFault::TooLarge {
                length_so_far: 17,
                limit: 16,
                head: "12345678901".into()
            }),
            Err(SseFault::TooLarge {
                length_so_far: 10,
                limit: 9,
                head: "12345\n6789".into()
            }),
            Err(SseFault::TooLarge {
                length_so_far: 17,
                limit: 16,
                head: "12345678901".into()
            }),
            Ok(plain("1")),
        ]
    );
    assert_eq!(
        decoder.last_event_id(),
        Some("2"),
        "the id of a skipped event counts: nobody wants it again"
    );
}

#[test]
fn an_endless_event_costs_no_memory() {
    for piece in [
        &b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[..],
        b"data:\n",
        b"data: xxxxxxxxxxxxxx\n",
        b": c\n",
    ] {
        let mut decoder = SseDecoder::new(SseLimits {
            line: 1000,
            event: 1000,
        });
        decoder.push(&b"data: "[..]);
        let mut faults = 0;
        for _ in 0..10_000 {
            decoder.push(Bytes::copy_from_slice(piece));
            while let Some(event) = decoder.next_event() {
                event.unwrap_err();
                faults += 1;
            }
            assert!(decoder.buffered() <= 2000);
        }
        assert_eq!(faults, usize::from(piece != b": c\n"));
        decoder.push(&b"\n\ndata: ok\n\n"[..]);
        let last = std::iter::from_fn(|| decoder.next_event()).last();
        assert_eq!(last, Some(Ok(plain("ok"))));
    }
}

#[test]
fn the_end_of_a_stream_may_lack_the_blank_line() {
    for stream in ["data: x", "data: x\n", "data: x\r", "data: x\r\n"] {
        let (read, mut decoder) = decode(WIDE, &[stream.as_bytes()]);
        assert_eq!(read, []);
        assert_eq!(decoder.finish(), Some(Ok(plain("x"))));
        assert_eq!(decoder.finish(), None);
    }
}

#[test]
fn events_are_written_as_one_data_line() {
    let joined = |pieces: Vec<Bytes>| String::from_utf8(pieces.concat()).unwrap();
    let data = [Bytes::from_static(b"{\r\n\"a\":"), Bytes::from_static(b"1\n}")];
    assert_eq!(
        joined(event(Some("s-1"), Some("message"), data.clone())),
        "id: s-1\nevent: message\ndata: {  \"a\":1 }\n\n"
    );
    assert_eq!(joined(event(None, None, data)), "data: {  \"a\":1 }\n\n");
    assert_eq!(joined(event(Some("a\nb\0"), None, [])), "id: ab\ndata: \n\n");
    assert_eq!(
        priming("s-0", Some(Duration::from_secs(2))),
        "id: s-0\nretry: 2000\ndata: \n\n"
    );
    assert_eq!(retry(Duration::from_millis(10)), "retry: 10\n\n");
    assert_eq!(comment("keep\nalive"), ": keep alive\n\n");
}

#[test]
fn what_is_written_for_priming_is_an_event_without_data() {
    let (read, decoder) = decode(
        WIDE,
        &[
            &priming("s-0", None),
            &comment("x"),
            &retry(Duration::from_millis(3)),
        ],
    );
    assert_eq!(
        read,
        [Ok(Event {
            id: Some("s-0".into()),
            name: None,
            data: Bytes::new()
        })]
    );
    assert_eq!(
        (decoder.last_event_id(), decoder.retry()),
        (Some("s-0"), Some(Duration::from_millis(3)))
    );
}

fn cut<'a>(stream: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|p| p % (stream.len() + 1)).collect();
    places.sort_unstable();
    let mut out = Vec::new();
    let mut from = 0;
    for place in places {
        out.push(&stream[from..place]);
        from = place;
    }
    out.push(&stream[from..]);
    out
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just("\n"),
        Just("\r"),
        Just("\r\n"),
        Just("\n\n"),
        Just("data:"),
        Just("data: "),
        Just("data"),
        Just("id:"),
        Just("event: "),
        Just("retry: "),
        Just("12"),
        Just(":"),
        Just(" "),
        Just("message"),
        Just("\0"),
        Just("\u{feff}"),
        Just("{\"jsonrpc\":\"2.0\"}"),
        Just("long text in a line"),
    ];
    proptest::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat().into_bytes())
}

proptest! {
    #[test]
    fn chunking_does_not_matter(
        stream in stream(),
        places in proptest::collection::vec(any::<usize>(), 0..20),
        line in 1usize..60,
        event in 1usize..60,
    ) {
        // How much had arrived when an event was given up depends on the chunks, nothing else does.
        let comparable = |read: Vec<Result<Event, SseFault>>| read.into_iter().map(Result::ok).collect::<Vec<_>>();
        let limits = SseLimits { line, event };
        let (whole, one) = decode(limits, &[&stream]);
        let (pieces, other) = decode(limits, &cut(&stream, &places));
        prop_assert_eq!(comparable(whole), comparable(pieces));
        prop_assert_eq!(one.last_event_id(), other.last_event_id());
        prop_assert_eq!(one.retry(), other.retry());
    }

    #[test]
    fn what_is_written_is_read_back(
        id in "[!-~]{0,10}",
        name in "[a-z]{0,8}",
        data in "[ -~]{0,80}",
        places in proptest::collection::vec(any::<usize>(), 0..6),
    ) {
        let written = event(Some(&id), Some(&name), [Bytes::from(data.clone())]).concat();
        let (read, _) = decode(WIDE, &cut(&written, &places));
        let name = Some(name.into_boxed_str()).filter(|n| !n.is_empty() && n.as_ref() != DEFAULT_NAME);
        prop_assert_eq!(read, [Ok(Event { id: Some(id.into()), name, data: data.into() })]);
    }
}
