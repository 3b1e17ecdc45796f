//! The state of a server as people and probes see it. Pure.

use jiff::Timestamp;

/// What a server is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Not started, or stopped on purpose.
    Idle,
    /// An attempt to connect is under way.
    Starting,
    /// Connected and listed.
    Ready,
    /// The last attempt or connection failed; another one follows.
    Failed,
}

impl Phase {
    /// The word in status, log and audit.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

/// A state with its history.
#[derive(Clone, Debug)]
pub struct StateReport {
    /// The state.
    pub phase: Phase,
    /// Since when.
    pub since: Timestamp,
    /// Where the last failure happened: `start`, `connect`, `handshake`, `running`.
    pub stage: Option<&'static str>,
    /// For people.
    pub detail: String,
    /// The last failure, kept while the server is well.
    pub last_failure: Option<(Timestamp, String)>,
}

impl StateReport {
    /// A fresh state.
    #[must_use]
    pub fn new(phase: Phase) -> Self {
        Self {
            phase,
            since: Timestamp::now(),
            stage: None,
            detail: String::new(),
            last_failure: None,
        }
    }

    /// Moves to another state; `false` if nothing changed.
    pub fn change(&mut self, phase: Phase, stage: Option<&'static str>, detail: &str) -> bool {
        let now = Timestamp::now();
        if phase == Phase::Failed {
            self.last_failure = Some((now, detail.to_owned()));
        }
        if self.phase == phase && self.detail == detail {
            return false;
        }
        if self.phase != phase {
            self.since = now;
        }
        self.phase = phase;
        self.stage = stage;
        detail.clone_into(&mut self.detail);
        true
    }
}
