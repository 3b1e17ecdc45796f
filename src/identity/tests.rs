use super::*;

#[test]
fn keys_tell_callers_and_proofs_apart() {
    let all = [
        Identity::local_stdio(),
        Identity::http_loopback(),
        Identity::http_anonymous(),
        Identity::unix_peer(0),
        Identity::unix_peer(1000),
    ];
    let keys: std::collections::BTreeSet<_> = all.iter().map(|identity| identity.key().clone()).collect();
    assert_eq!(keys.len(), all.len());
    assert_eq!(Identity::unix_peer(1000), Identity::unix_peer(1000));
    assert_eq!(Identity::unix_peer(1000).key().as_ref(), "unix_peer:uid:1000");
}
