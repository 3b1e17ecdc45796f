//! Arbitrary bytes as stdio lines: any chunking gives the same lines, nothing grows over the limit.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use manifold::wire::lines::{LineDecoder, frame};

fn read(limit: usize, chunks: &[&[u8]]) -> Vec<Option<Bytes>> {
    let mut decoder = LineDecoder::new(limit);
    let mut out = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Some(line) = decoder.next_line() {
            out.push(line.ok());
        }
        assert!(decoder.buffered() <= limit);
    }
    out.extend(decoder.finish().map(Result::ok));
    out
}

fuzz_target!(|data: &[u8]| {
    let [limit, chunk, stream @ ..] = data else { return };
    let limit = usize::from(*limit);
    let lines = read(limit, &[stream]);
    let chunks: Vec<&[u8]> = stream.chunks(usize::from(chunk % 32) + 1).collect();
    assert_eq!(lines, read(limit, &chunks));
    for line in lines.into_iter().flatten() {
        assert!(line.len() <= limit && !line.contains(&b'\n'));
    }
    let framed = frame([Bytes::copy_from_slice(stream)]).concat();
    assert_eq!(framed.len(), stream.len() + 1);
    assert_eq!(
        framed.iter().position(|b| matches!(b, b'\r' | b'\n')),
        Some(stream.len())
    );
});
