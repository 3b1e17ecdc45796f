use super::*;

#[test]
fn a_fake_clock_moves_only_by_hand_and_its_clones_with_it() {
    let clock = FakeClock::at(Timestamp::UNIX_EPOCH);
    let other = clock.clone();
    let start = clock.monotonic();
    assert_eq!(clock.wall(), Timestamp::UNIX_EPOCH);
    clock.advance(Duration::from_millis(1500));
    assert_eq!(other.wall().as_millisecond(), 1500);
    assert_eq!(other.monotonic() - start, Duration::from_millis(1500));
    clock.set_wall(Timestamp::UNIX_EPOCH);
    assert_eq!(other.wall(), Timestamp::UNIX_EPOCH);
    assert_eq!(other.monotonic() - start, Duration::from_millis(1500));
}
