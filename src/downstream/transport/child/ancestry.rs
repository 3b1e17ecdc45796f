//! Notices a manifold that is started, directly or through others, by itself.
//!
//! Each child gets the chain of manifolds above it in one environment variable. One entry is the process number and a
//! digest of what would make the same thing run again: program, arguments, working directory. Pure but for reading our
//! own command line and environment once.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;

use super::SpawnError;

/// The variable that tells a child which manifolds it runs under. Its value is a comma-separated list of
/// `PROCESS:DIGEST`, the outermost first.
pub const RECURSION_MARKER: &str = "MANIFOLD_PARENT";

/// How many manifolds may run inside each other. One behind another is of use, more is a mistake.
const DEEPEST: usize = 4;

/// Whether a manifold with the same program, arguments and working directory is among our ancestors: our
/// configuration, or that of one we start, starts us.
#[must_use]
pub fn runs_inside_itself() -> bool {
    contains(inherited(), own_digest())
}

/// The value for a child of ours.
pub(super) fn marker() -> Result<String, SpawnError> {
    extend(inherited(), own_digest(), std::process::id())
}

pub(super) fn extend(chain: &str, digest: u64, pid: u32) -> Result<String, SpawnError> {
    if contains(chain, digest) {
        return Err(SpawnError::Recursion(
            "this manifold was started, through its own configuration, by itself",
        ));
    }
    if chain.split(',').filter(|entry| !entry.is_empty()).count() + 1 > DEEPEST {
        return Err(SpawnError::Recursion("too many manifolds run inside each other"));
    }
    let comma = if chain.is_empty() { "" } else { "," };
    Ok(format!("{chain}{comma}{pid}:{digest:016x}"))
}

pub(super) fn contains(chain: &str, digest: u64) -> bool {
    let digest = format!("{digest:016x}");
    chain
        .split(',')
        .any(|entry| entry.split_once(':').is_some_and(|(_, known)| known == digest))
}

fn inherited() -> &'static str {
    static CHAIN: OnceLock<String> = OnceLock::new();
    CHAIN.get_or_init(|| std::env::var(RECURSION_MARKER).unwrap_or_default())
}

fn own_digest() -> u64 {
    static DIGEST: OnceLock<u64> = OnceLock::new();
    *DIGEST.get_or_init(|| {
        let mut digest = DefaultHasher::new();
        std::env::current_exe().ok().hash(&mut digest);
        std::env::args_os()
            .skip(1)
            .for_each(|argument| argument.hash(&mut digest));
        std::env::current_dir().ok().hash(&mut digest);
        digest.finish()
    })
}
