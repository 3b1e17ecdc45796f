//! Arbitrary bytes as header values, input schemas and arguments: values survive their encoding, and the headers we
//! make agree with the body they were made from.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manifold::wire::headers::{
    HeaderAnnotations, MismatchProblem, check, decode_value, encode_value, values,
};

fuzz_target!(|data: &[u8]| {
    let _ = decode_value(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let encoded = encode_value(text);
        assert!(encoded.bytes().all(|b| (b' '..=b'~').contains(&b)));
        assert_eq!(decode_value(encoded.as_bytes()).as_deref(), Ok(text));
    }
    let mut parts = data.splitn(2, |b| *b == 0);
    let (Some(schema), Some(arguments)) = (parts.next(), parts.next()) else {
        return;
    };
    let Ok(annotations) = HeaderAnnotations::from_schema(schema) else {
        return;
    };
    let is_json = serde_json::from_slice::<serde_json::Value>(arguments).is_ok();
    let sent = values(&annotations, arguments);
    let lookup = |name: &str| {
        sent.iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_bytes())
    };
    match check(&annotations, arguments, lookup) {
        Err(mismatch) if is_json && mismatch.problem != MismatchProblem::Ambiguous => panic!("{mismatch}"),
        _ => {}
    }
});
