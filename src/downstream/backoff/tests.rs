use super::*;

/// Starts within a minute of a downstream that fails `lives` after each start.
fn starts_in_a_minute(seed: u64, lives: Duration) -> u32 {
    let begin = Instant::now();
    let mut backoff = Backoff::new(BackoffSettings::default(), seed);
    let (mut now, mut starts) = (begin, 0);
    while now.duration_since(begin) < Duration::from_secs(60) {
        starts += 1;
        backoff.started(now);
        now += lives;
        now += backoff.failed(now);
    }
    starts
}

#[test]
fn a_server_that_exits_right_after_its_handshake_is_started_a_handful_of_times() {
    for seed in 0..500 {
        let starts = starts_in_a_minute(seed, Duration::from_millis(50));
        assert!((5..=9).contains(&starts), "seed {seed}: {starts} starts");
    }
}

#[test]
fn delays_grow_and_stay_below_the_cap_for_ever() {
    for seed in 0..50 {
        let mut backoff = Backoff::new(BackoffSettings::default(), seed);
        let now = Instant::now();
        let delays: Vec<_> = (0..200).map(|_| backoff.failed(now)).collect();
        assert!(delays[0] >= Duration::from_millis(300) && delays[0] <= Duration::from_millis(600));
        assert!(delays.iter().all(|delay| *delay <= Duration::from_secs(30)));
        assert!(delays[6..].iter().all(|delay| *delay >= Duration::from_secs(15)));
        assert_eq!(backoff.failures(), 200);
    }
}

#[test]
fn only_stable_running_starts_over() {
    let mut backoff = Backoff::new(BackoffSettings::default(), 7);
    let mut now = Instant::now();
    for _ in 0..6 {
        backoff.started(now);
        now += Duration::from_secs(29);
        now += backoff.failed(now);
    }
    assert_eq!(backoff.failures(), 6);
    backoff.started(now);
    now += Duration::from_secs(30);
    assert!(backoff.failed(now) <= Duration::from_millis(600));
    assert_eq!(backoff.failures(), 1);
}

#[test]
fn time_spent_between_failures_without_a_start_is_not_running() {
    let mut backoff = Backoff::new(BackoffSettings::default(), 7);
    let now = Instant::now();
    backoff.failed(now);
    backoff.failed(now + Duration::from_secs(3600));
    assert_eq!(backoff.failures(), 2);
}

#[test]
fn seeds_spread_the_delays_and_the_same_seed_repeats_them() {
    let first = |seed| Backoff::new(BackoffSettings::default(), seed).failed(Instant::now());
    let different: std::collections::HashSet<_> = (0..100).map(first).collect();
    assert!(different.len() > 50);
    assert_eq!(first(3), first(3));
}
