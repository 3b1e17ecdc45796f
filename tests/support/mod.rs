//! What the end-to-end and fault tests share: the built daemon, a scriptable server behind it, scripted hosts before it.
//!
//! Everything waits with a bound, polls conditions instead of sleeping for a guess, and prints the tail of every log
//! when a test fails. Nothing here uses the daemon's own code: the bytes are read by other eyes.

#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "test support: each binary uses its part, and a broken assumption must end the test"
)]
#![allow(unreachable_pub, missing_docs, reason = "private to the test binaries")]

pub mod daemon;
pub mod fake;
pub mod host;
pub mod http;
pub mod process;

pub use daemon::{Daemon, Setup};
pub use fake::{Fake, ServerKind, tool};
pub use host::{Call, Host, HostKind, Options, Seen};

use std::time::{Duration, Instant};

/// The bound of every wait: generous, since builders share the machine.
pub const LIMIT: Duration = Duration::from_secs(15);

/// How long we look before we believe that something does *not* happen.
pub const QUIET: Duration = Duration::from_millis(400);

/// Polls until there is a value; fails with `what` at the limit.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(LIMIT, what, look)
}

pub fn until_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {limit:?} for: {what}");
        std::thread::sleep(Duration::from_millis(4));
    }
}

/// Holds that a condition stays false for a while: the only place where time passes without an event.
pub fn never(what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + QUIET;
    while Instant::now() < end {
        assert!(!look(), "must not happen: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One module with a test per named pair: `matrix!(name, [(a, b), ...], |host, server| body)`.
#[macro_export]
macro_rules! pairs {
    ($name:ident, $run:path, [$($case:ident: $host:ident -> $server:ident),+ $(,)?]) => {
        mod $name {
            $(
                #[test]
                fn $case() {
                    $run($crate::support::HostKind::$host, $crate::support::ServerKind::$server);
                }
            )+
        }
    };
}

/// Every combination of transports inside one family.
#[macro_export]
macro_rules! same_family {
    ($name:ident, $run:path) => {
        $crate::pairs!($name, $run, [
            stdio_to_stdio: Stdio -> StdioLegacy,
            stdio_to_http: Stdio -> HttpLegacy,
            stdio_to_sse: Stdio -> Sse,
            http_to_stdio: Http -> StdioLegacy,
            http_to_http: Http -> HttpLegacy,
            http_to_sse: Http -> Sse,
            modern_stdio_to_stdio: StdioModern -> StdioModern,
            modern_stdio_to_http: StdioModern -> HttpModern,
            modern_http_to_stdio: HttpModern -> StdioModern,
            modern_http_to_http: HttpModern -> HttpModern,
        ]);
    };
}

/// Every combination of transports and families.
#[macro_export]
macro_rules! every_pair {
    ($name:ident, $run:path) => {
        $crate::same_family!($name, $run);
    };
    ($name:ident, $crossed:ident, $run:path) => {
        $crate::same_family!($name, $run);
        $crate::pairs!($crossed, $run, [
            stdio_to_modern_stdio: Stdio -> StdioModern,
            http_to_modern_stdio: Http -> StdioModern,
            http_to_modern_http: Http -> HttpModern,
            modern_http_to_stdio: HttpModern -> StdioLegacy,
            modern_http_to_http: HttpModern -> HttpLegacy,
            modern_stdio_to_sse: StdioModern -> Sse,
        ]);
    };
}
