//! Arbitrary bytes as an event stream: any chunking gives the same events, nothing grows over the limits, and what
//! was read can be written and read again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use manifold::wire::sse::{Event, SseDecoder, SseLimits, event};

fn read(limits: SseLimits, chunks: &[&[u8]]) -> (Vec<Option<Event>>, SseDecoder) {
    let mut decoder = SseDecoder::new(limits);
    let mut out = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Some(event) = decoder.next_event() {
            out.push(event.ok());
        }
        assert!(decoder.buffered() <= limits.line.max(16) + limits.event);
    }
    (out, decoder)
}

fuzz_target!(|data: &[u8]| {
    let [line, event_limit, chunk, stream @ ..] = data else {
        return;
    };
    let limits = SseLimits {
        line: usize::from(*line),
        event: usize::from(*event_limit),
    };
    let (whole, one) = read(limits, &[stream]);
    let chunks: Vec<&[u8]> = stream.chunks(usize::from(chunk % 32) + 1).collect();
    let (pieces, other) = read(limits, &chunks);
    assert_eq!(whole, pieces);
    assert_eq!(
        (one.last_event_id(), one.retry()),
        (other.last_event_id(), other.retry())
    );
    for read_event in whole.into_iter().flatten() {
        assert!(read_event.data.len() <= limits.event);
        let wide = SseLimits {
            line: 100_000,
            event: 100_000,
        };
        let written = event(
            read_event.id.as_deref(),
            read_event.name.as_deref(),
            [read_event.data.clone()],
        )
        .concat();
        let (again, _) = read(wide, &[&written]);
        let folded: Bytes = read_event
            .data
            .iter()
            .map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b })
            .collect();
        assert_eq!(
            again,
            [Some(Event {
                data: folded,
                ..read_event
            })]
        );
    }
});
