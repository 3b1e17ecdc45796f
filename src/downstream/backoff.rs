//! How long to wait before a downstream is started again.
//!
//! Pure: the caller passes the time and a seed. The delay grows by each failure, is never shortened by a short success,
//! and starts over only after the downstream has run long enough to be called stable. It never gives up and never
//! sleeps. Used by the supervisor; whether a call may force an earlier attempt is decided there.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// The shape of the delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffSettings {
    /// The first delay lies between this and twice this.
    pub first: Duration,
    /// No delay is longer.
    pub cap: Duration,
    /// Growth per failure.
    pub factor: f32,
    /// A run at least this long makes the next failure count as the first.
    pub stable: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(300),
            cap: Duration::from_secs(30),
            factor: 3.0,
            stable: Duration::from_secs(30),
        }
    }
}

/// The delays of one downstream.
#[derive(Debug)]
pub struct Backoff {
    settings: BackoffSettings,
    seed: u64,
    delays: ExponentialBackoff,
    started: Option<Instant>,
    failures: u32,
}

impl Backoff {
    /// `seed` drives the jitter; two downstreams should not share one.
    #[must_use]
    pub fn new(settings: BackoffSettings, seed: u64) -> Self {
        Self {
            settings,
            seed,
            delays: delays(settings, seed),
            started: None,
            failures: 0,
        }
    }

    /// The downstream is up: the handshake has succeeded. Stable running is counted from here.
    pub fn started(&mut self, now: Instant) {
        self.started = Some(now);
    }

    /// An attempt failed, or the downstream went away. Returns the time to wait before the next attempt.
    pub fn failed(&mut self, now: Instant) -> Duration {
        let ran = self
            .started
            .take()
            .map(|since| now.saturating_duration_since(since));
        if ran.is_some_and(|ran| ran >= self.settings.stable) {
            self.reset();
        }
        self.failures = self.failures.saturating_add(1);
        // Without a limit of attempts the sequence has no end; the cap stands in for the type's `None`.
        self.delays
            .next()
            .unwrap_or(self.settings.cap)
            .min(self.settings.cap)
    }

    /// Failures in a row without stable running between them.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Starts over, for instance because the configuration of the server has changed.
    pub fn reset(&mut self) {
        self.failures = 0;
        // Another jitter next time, reproducible from the first seed.
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.delays = delays(self.settings, self.seed);
    }
}

/// The jitter adds up to as much again, so the growing part stops at half of the cap.
fn delays(settings: BackoffSettings, seed: u64) -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(settings.first)
        .with_max_delay(settings.cap / 2)
        .with_factor(settings.factor)
        .without_max_times()
        .with_jitter()
        .with_jitter_seed(seed)
        .build()
}

#[cfg(test)]
mod tests;
