use super::*;
use proptest::prelude::*;

#[test]
fn digests_are_the_published_ones() {
    assert_eq!(
        sha256_hex(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert_eq!(sha256_parts(&[b"a", b"", b"bc"]), sha256(b"abc"));
    // RFC 4231, test case 2.
    assert_eq!(
        hex(&hmac_sha256(b"Jefe", &[b"what do ya want ", b"for nothing?"])),
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

#[test]
fn comparison_sees_length_and_content() {
    assert!(constant_time_eq(b"same", b"same"));
    assert!(!constant_time_eq(b"same", b"sama"));
    assert!(!constant_time_eq(b"same", b"same "));
}

#[test]
fn random_bytes_differ() {
    assert_ne!(random::<16>(), random::<16>());
}

#[test]
fn a_token_opens_for_its_purpose_and_key_only() {
    let sealer = Sealer::random();
    let token = sealer.seal("cursor", b"page 2");
    assert_eq!(sealer.open("cursor", &token).unwrap(), b"page 2");
    assert_eq!(sealer.open("session", &token), Err(SealFault::Forged));
    assert_eq!(
        Sealer::random().open("cursor", &token),
        Err(SealFault::UnknownKey)
    );
    assert_eq!(sealer.open("cursor", ""), Err(SealFault::Malformed));
    assert_eq!(sealer.open("cursor", "AAAA"), Err(SealFault::Malformed));
    assert_eq!(sealer.open("cursor", "not base64!"), Err(SealFault::Malformed));
    assert_ne!(token, sealer.seal("cursor", b"page 2"));
}

#[test]
fn stable_tokens_repeat_and_still_depend_on_the_purpose() {
    let sealer = Sealer::random();
    let token = sealer.seal_stable("task", b"42");
    assert_eq!(token, sealer.seal_stable("task", b"42"));
    assert_ne!(token, sealer.seal_stable("task", b"43"));
    assert_ne!(token, sealer.seal_stable("tas", b"k42"));
    assert_eq!(sealer.open("task", &token).unwrap(), b"42");
}

#[test]
fn a_rotated_key_still_opens_what_it_sealed() {
    let old = Sealer::new(SealKey::from_bytes(&[1; 32]).unwrap(), Vec::new());
    let token = old.seal("session", b"s");
    let both = Sealer::new(
        SealKey::from_bytes(&[2; 32]).unwrap(),
        vec![SealKey::from_bytes(&[1; 32]).unwrap()],
    );
    assert_eq!(both.open("session", &token).unwrap(), b"s");
    assert_eq!(
        old.open("session", &both.seal("session", b"s")),
        Err(SealFault::UnknownKey)
    );
}

#[test]
fn keys_are_not_shown() {
    let shown = format!(
        "{:?}",
        Sealer::new(SealKey::from_bytes(&[7; 32]).unwrap(), Vec::new())
    );
    assert!(!shown.contains("0707"), "{shown}");
}

proptest! {
    #[test]
    fn any_change_to_a_token_is_noticed(plain in proptest::collection::vec(any::<u8>(), 0..60), at in any::<usize>(), to in any::<u8>()) {
        let sealer = Sealer::random();
        let token = sealer.seal("p", &plain);
        let mut bytes = token.clone().into_bytes();
        let at = at % bytes.len();
        bytes[at] = to;
        let changed = String::from_utf8_lossy(&bytes).into_owned();
        if changed == token {
            prop_assert_eq!(sealer.open("p", &changed).unwrap(), plain);
        } else {
            prop_assert!(sealer.open("p", &changed).is_err());
        }
        prop_assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'));
    }
}
