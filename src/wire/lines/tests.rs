use super::*;
use proptest::prelude::*;

type Delivered = Result<Vec<u8>, Vec<u8>>;

/// All that a decoder delivers for these chunks, with the head for an over-long line.
fn decode(limit: usize, chunks: &[&[u8]]) -> Vec<Delivered> {
    let mut decoder = LineDecoder::new(limit);
    let mut out = Vec::new();
    let simple = |line: Result<Bytes, LineFault>| match line {
        Ok(line) => Ok(line.to_vec()),
        Err(LineFault::TooLong { head, .. }) => Err(head.to_vec()),
    };
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Some(line) = decoder.next_line() {
            out.push(simple(line));
        }
    }
    out.extend(decoder.finish().map(simple));
    assert_eq!(decoder.buffered(), 0);
    out
}

fn line(text: &str) -> Delivered {
    Ok(text.as_bytes().to_vec())
}

#[test]
fn lines_are_cut_and_cleaned() {
    let stream = "\u{feff}{\"a\":1}\r\n\n \t\r\n\r\n{}\n\u{feff}[1]\nlast";
    assert_eq!(
        decode(100, &[stream.as_bytes()]),
        [line("{\"a\":1}"), line("{}"), line("[1]"), line("last")]
    );
}

#[test]
fn a_line_within_one_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"first\nsecond\n");
    let mut decoder = LineDecoder::new(100);
    decoder.push(chunk.clone());
    assert_eq!(decoder.next_line().unwrap().unwrap().as_ptr(), chunk.as_ptr());
    assert_eq!(
        decoder.next_line().unwrap().unwrap().as_ptr(),
        chunk[6..].as_ptr()
    );
    assert!(decoder.next_line().is_none());
}

#[test]
fn the_limit_is_exact_and_the_next_line_works() {
    assert_eq!(decode(4, &[b"1234\n5\n"]), [line("1234"), line("5")]);
    assert_eq!(decode(4, &[b"12345\n6\n"]), [Err(b"12345".to_vec()), line("6")]);
    assert_eq!(
        decode(4, &[b"1234", b"5", b"67", b"8\n9\n"]),
        [Err(b"12345".to_vec()), line("9")]
    );
}

#[test]
fn an_endless_line_is_reported_before_it_ends_and_costs_no_memory() {
    let mut decoder = LineDecoder::new(10_000);
    let mut faults = 0;
    for _ in 0..1000 {
        decoder.push(vec![b'x'; 5000]);
        while let Some(line) = decoder.next_line() {
            let Err(LineFault::TooLong {
                length_so_far,
                limit,
                head,
            }) = line
            else {
                panic!("a line?")
            };
            assert_eq!((length_so_far, limit, head.len()), (15_000, 10_000, HEAD_LENGTH));
            faults += 1;
        }
        assert!(decoder.buffered() <= 10_000);
    }
    assert_eq!(faults, 1);
    decoder.push(&b"x\nok\n"[..]);
    assert_eq!(decoder.next_line(), Some(Ok(Bytes::from_static(b"ok"))));
}

#[test]
fn framing_folds_line_breaks_and_keeps_the_length() {
    let pretty = Bytes::from_static(b"{\r\n  \"a\": \"\\n\"\n}");
    let same = Bytes::from_static(b"{}");
    let framed = frame([pretty, same.clone()]);
    assert_eq!(framed[0], "{    \"a\": \"\\n\" }");
    assert_eq!(framed[1].as_ptr(), same.as_ptr());
    assert_eq!(framed[2], "\n");
}

/// What the decoder should deliver, written the slow way.
fn reference(limit: usize, stream: &[u8]) -> Vec<Delivered> {
    let mut out = Vec::new();
    for raw in stream.split(|b| *b == b'\n') {
        let cut = raw.strip_prefix(BYTE_ORDER_MARK).unwrap_or(raw);
        if raw.len() > limit {
            out.push(Err(Vec::new()));
        } else if !cut.iter().all(u8::is_ascii_whitespace) {
            out.push(Ok(cut.strip_suffix(b"\r").unwrap_or(cut).to_vec()));
        }
    }
    out
}

/// Cuts a stream at the given places.
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

proptest! {
    #[test]
    fn chunking_does_not_matter(
        stream in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b' '), Just(0xef), Just(0xbb), Just(0xbf), any::<u8>()], 0..200),
        places in proptest::collection::vec(any::<usize>(), 0..12),
        limit in 0usize..20,
    ) {
        let forget_heads = |lines: Vec<Delivered>| lines.into_iter().map(|l| l.map_err(|_| Vec::new())).collect::<Vec<_>>();
        prop_assert_eq!(forget_heads(decode(limit, &cut(&stream, &places))), reference(limit, &stream));
    }
}
