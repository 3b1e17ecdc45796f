//! The terminal as a host's stream: progress is a bar, log messages are lines on standard error, and whatever asks is
//! refused.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use crate::session::{HostStream, Lane, Sent};
use crate::wire::Outgoing;

/// A bar has this many steps, whatever the numbers of the server: those may be fractions.
const STEPS: f64 = 1_000.0;

/// See the module.
pub(super) struct Terminal {
    bar: ProgressBar,
    /// The bar is drawn from the first progress on.
    drawn: AtomicBool,
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Terminal")
    }
}

impl Terminal {
    /// A bar that appears with the first progress, and only on a terminal.
    pub(super) fn new(name: &str) -> Self {
        let bar =
            ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_prefix(name.to_owned());
        Self {
            bar,
            drawn: AtomicBool::new(false),
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        if self.drawn.load(Ordering::Relaxed) {
            self.bar.finish_and_clear();
        }
    }

    fn progress(&self, params: &Value) {
        let number = |key: &str| params.get(key).and_then(Value::as_f64);
        let done = number("progress").unwrap_or_default();
        let total = number("total").filter(|total| *total > 0.0);
        let said = params.get("message").and_then(Value::as_str).unwrap_or_default();
        let template = if total.is_some() {
            "{prefix} [{bar:30}] {percent:>3}% {msg}"
        } else {
            "{prefix} {spinner} {msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
        if !self.drawn.swap(true, Ordering::Relaxed) {
            // Stays hidden by itself where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        match total {
            Some(total) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "clamped to 0 and STEPS"
                )]
                let position = (done / total * STEPS).clamp(0.0, STEPS) as u64;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a constant"
                )]
                self.bar.set_length(STEPS as u64);
                self.bar.set_position(position);
                self.bar.set_message(said.to_owned());
            }
            None if said.is_empty() => {
                self.bar.set_message(done.to_string());
                self.bar.tick();
            }
            None => {
                self.bar.set_message(said.to_owned());
                self.bar.tick();
            }
        }
    }

    fn line(&self, text: &str) {
        if self.drawn.load(Ordering::Relaxed) {
            self.bar.suspend(|| anstream::eprintln!("{text}"));
        } else {
            anstream::eprintln!("{text}");
        }
    }
}

impl HostStream for Terminal {
    fn send(&self, lane: Lane, message: Outgoing) -> Sent {
        if lane == Lane::Request {
            self.line("The server asks the host something; `manifold call` cannot answer and refuses.");
            return Sent::Refused;
        }
        let message: Value = serde_json::from_slice(&message.into_bytes()).unwrap_or_default();
        let params = message.get("params").unwrap_or(&Value::Null);
        match message.get("method").and_then(Value::as_str) {
            Some("notifications/progress") => self.progress(params),
            Some("notifications/message") => {
                let level = params.get("level").and_then(Value::as_str).unwrap_or("info");
                let logger = params.get("logger").and_then(Value::as_str).unwrap_or("server");
                let data = match params.get("data") {
                    Some(Value::String(text)) => text.clone(),
                    Some(other) => other.to_string(),
                    None => String::new(),
                };
                self.line(&format!("[{level}] {logger}: {data}"));
            }
            _ => {}
        }
        Sent::Queued
    }

    fn attached(&self) -> bool {
        true
    }
}
