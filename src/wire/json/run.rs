//! The hot loop of the scanner: how far a string goes on without anything special.
//!
//! It owns the tricks. Only the scanner calls it. It never reads past what it is given.

use memchr::memchr2;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// How many bytes come before the first quote, backslash or control character: all, if there is none.
///
/// Most strings are short, and eight bytes at a time in a register beat every call; long ones go to `memchr`, which
/// uses the widest registers there are.
#[inline]
pub(super) fn plain_run(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < 64 {
        let Some(eight) = rest.get(at..).and_then(|r| r.first_chunk::<8>()) else {
            let tail = rest.get(at..).unwrap_or_default();
            return at + tail.iter().position(|b| is_special(*b)).unwrap_or(tail.len());
        };
        let special = special_bytes(u64::from_le_bytes(*eight));
        if special != 0 {
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + long_run(rest.get(at..).unwrap_or_default())
}

#[inline(never)]
fn long_run(rest: &[u8]) -> usize {
    let stop = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
    let run = rest.get(..stop).unwrap_or_default();
    // Without early exit, so that the compiler makes vectors of it. Control characters are an error, hence rare.
    if run.iter().fold(u8::MAX, |least, b| least.min(*b)) >= 0x20 {
        return stop;
    }
    run.iter().position(|b| *b < 0x20).unwrap_or(stop)
}

const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// The high bit of each special byte. Bytes above the first special one may be marked wrongly, as the subtraction
/// borrows upwards; the lowest mark is always right.
const fn special_bytes(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let quotes = quote.wrapping_sub(ONES) & !quote;
    let backslashes = backslash.wrapping_sub(ONES) & !backslash;
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    (quotes | backslashes | controls) & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_stops_where_the_simple_loop_does(
            mut bytes in proptest::collection::vec(prop_oneof![20 => b' '..=b'~', 5 => 0x80u8.., 1 => any::<u8>()], 0..300),
            place in any::<prop::sample::Index>(),
            special in prop_oneof![Just(b'"'), Just(b'\\'), 0u8..0x20],
        ) {
            let simple = |bytes: &[u8]| bytes.iter().position(|b| is_special(*b)).unwrap_or(bytes.len());
            prop_assert_eq!(plain_run(&bytes), simple(&bytes));
            bytes.iter_mut().filter(|b| is_special(**b)).for_each(|b| *b = b'x');
            if !bytes.is_empty() {
                let at = place.index(bytes.len());
                bytes[at] = special;
            }
            prop_assert_eq!(plain_run(&bytes), simple(&bytes));
        }
    }
}
