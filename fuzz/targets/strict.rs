//! Arbitrary bytes for the strict reader: what it accepts, another reader understands alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manifold::wire::JsonFault;
use manifold::wire::number::Decimal;
use manifold::wire::strict::{StrictFault, StrictLimits, StrictValue};
use serde_json::Value;

/// Equal but for the last digits of a float, which the other reader does not always round right.
fn near(a: Option<f64>, b: Option<f64>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if a == b || (a - b).abs() <= a.abs().max(b.abs()) * 1e-12 || a.abs().max(b.abs()) < 1e-300)
}

fn same(ours: &StrictValue, theirs: &Value) -> bool {
    match (ours, theirs) {
        (StrictValue::Null, Value::Null) => true,
        (StrictValue::Bool(a), Value::Bool(b)) => a == b,
        (StrictValue::Number(a), Value::Number(b)) => near(a.parse().ok(), b.as_f64()),
        (StrictValue::String(a), Value::String(b)) => a == b,
        (StrictValue::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (StrictValue::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => false,
    }
}

fuzz_target!(|data: &[u8]| {
    let theirs = serde_json::from_slice::<Value>(data);
    match StrictValue::parse(data, StrictLimits::default()) {
        // Another reader may refuse a number that is too large for its floats.
        Ok(ours) => {
            assert_eq!(ours, ours.clone());
            assert!(theirs.map_or(true, |theirs| same(&ours, &theirs)));
        }
        Err(StrictFault::DuplicateKey { .. } | StrictFault::Json(JsonFault::TooDeep(_))) => {}
        Err(fault) => assert!(theirs.is_err(), "refused for {fault}"),
    }
    let mut words = data
        .split(|b| *b == b' ')
        .filter_map(|word| std::str::from_utf8(word).ok())
        .filter_map(Decimal::parse);
    if let (Some(a), Some(b)) = (words.next(), words.next()) {
        assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        assert_eq!(a.cmp(&b).is_eq(), a == b);
    }
});
