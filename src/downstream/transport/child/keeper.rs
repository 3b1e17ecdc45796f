//! The task that holds one process until nothing of its group is left.
//!
//! It alone signals and waits for the process, so no signal can meet a process number that was given away. It ends by
//! the stop ladder, by the leader's own exit (the same ladder from SIGTERM on, for what the leader leaves behind), or
//! at once when the last handle was dropped.

use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Leader, StopLadder, StopReport, peek};

/// How long grandchildren get between SIGTERM and SIGKILL when the leader exits without being asked.
const LEFT_BEHIND: Duration = Duration::from_secs(1);
/// How long SIGKILL may take. A process stuck in the kernel can take for ever; nobody waits for that.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// First and longest pause between two looks at the group.
const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// What is known of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// Set when the leader has exited.
    pub(super) exit: Option<ExitStatus>,
    /// Set when nothing of the group is left and the leader was waited for.
    pub(super) report: Option<StopReport>,
}

/// Holds `leader` to its end. `orders` yields stop ladders and closes with the last handle.
pub(super) async fn keep(
    mut leader: Leader,
    mut orders: watch::Receiver<Option<StopLadder>>,
    publish: watch::Sender<State>,
) {
    let exited = exit_of(leader.pid());
    tokio::pin!(exited);
    // Whatever ends this wait, the leader's exit is published the moment it is seen.
    let mut leader_exit = None;
    let mut saw = |status: Option<ExitStatus>| {
        leader_exit = leader_exit.or(status);
        publish.send_modify(|state| state.exit = leader_exit);
    };

    let mut ordered = tokio::select! {
        () = &mut exited => { saw(leader.peek()); Ordered::None }
        ordered = next(&mut orders) => ordered,
    };
    let mut over = leader.peek().is_some();
    saw(leader.peek());

    // Step 1: stdin is closed, the server may leave by itself.
    let start = Instant::now();
    while let (false, Ordered::Stop(ladder)) = (over, ordered) {
        tokio::select! {
            () = &mut exited => { saw(leader.peek()); over = true; }
            () = sleep_until(start + ladder.after_stdin_close) => break,
            newer = next(&mut orders) => ordered = newer,
        }
    }

    // Step 2: SIGTERM to the group, the leader being there or not.
    let start = Instant::now();
    let mut pause = LOOK.0;
    let alone = over && !group_lives(leader.pid());
    if !alone && !matches!(ordered, Ordered::Abandoned) {
        leader.signal(Signal::TERM);
    }
    // The group is looked at only when the leader has gone: as long as it is there the look would tell nothing.
    while !over || group_lives(leader.pid()) {
        let patience = match ordered {
            Ordered::Abandoned => Duration::ZERO,
            Ordered::Stop(ladder) => ladder.after_term,
            Ordered::None => LEFT_BEHIND,
        };
        let rest = patience.saturating_sub(start.elapsed());
        if rest.is_zero() {
            break;
        }
        let look = if over { pause.min(rest) } else { rest };
        tokio::select! {
            () = &mut exited, if !over => { saw(leader.peek()); over = true; }
            () = sleep(look) => pause = (pause * 2).min(LOOK.1),
            newer = next(&mut orders), if !matches!(ordered, Ordered::Abandoned) => ordered = newer,
        }
    }

    // Step 3: SIGKILL to the group. Sent always: without /proc the group cannot be looked at.
    let forced = leader.peek().is_none() || group_listed(leader.pid()) == Some(true);
    leader.signal(Signal::KILL);
    let start = Instant::now();
    let mut pause = LOOK.0;
    while start.elapsed() < KILL_WAIT
        && (leader.peek().is_none() || (forced && group_listed(leader.pid()) == Some(true)))
    {
        sleep(pause).await;
        pause = (pause * 2).min(LOOK.1);
    }
    let status = leader.peek();
    saw(status);
    if status.is_some() {
        leader.reap();
    }
    let report = Some(StopReport { exit: status, forced });
    publish.send_modify(|state| state.report = report);
    // A leader that could not be killed is left to the reaper thread of its drop.
}

#[derive(Clone, Copy)]
enum Ordered {
    None,
    Stop(StopLadder),
    Abandoned,
}

async fn next(orders: &mut watch::Receiver<Option<StopLadder>>) -> Ordered {
    loop {
        if orders.changed().await.is_err() {
            return Ordered::Abandoned;
        }
        if let Some(ladder) = *orders.borrow_and_update() {
            return Ordered::Stop(ladder);
        }
    }
}

/// Whether a process of the group is alive, as far as can be known: yes where the system does not say.
fn group_lives(group: Option<Pid>) -> bool {
    group_listed(group).unwrap_or(true)
}

/// Whether a live process (no zombie) is in the group; `None` without `/proc`.
pub(super) fn group_listed(group: Option<Pid>) -> Option<bool> {
    let group = group?.as_raw_pid().to_string();
    let listing = std::fs::read_dir("/proc").ok()?;
    let mut readable = false;
    for entry in listing.flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        // Processes come and go while we look.
        let Ok(stat) = std::fs::read(entry.path().join("stat")) else {
            continue;
        };
        // pid (name) state parent group ...: the name may hold anything, so count from its last parenthesis.
        let stat = String::from_utf8_lossy(&stat);
        let Some((_, facts)) = stat.rsplit_once(')') else {
            continue;
        };
        readable = true;
        let mut facts = facts.split_ascii_whitespace();
        let state = facts.next();
        if facts.nth(1) == Some(group.as_str()) && !matches!(state, Some("Z" | "X")) {
            return Some(true);
        }
    }
    readable.then_some(false)
}

/// Completes when `pid`, a child of ours, has exited; it stays a zombie.
///
/// Woken by SIGCHLD: a descriptor of the process would say the same, but on some systems only.
async fn exit_of(pid: Option<Pid>) {
    let Some(pid) = pid else { return };
    // Subscribed before the first look, so that no exit falls between.
    let mut signals = signal(SignalKind::child());
    while peek(pid).is_none() {
        match &mut signals {
            Ok(signals) => drop(signals.recv().await),
            Err(_) => sleep(LOOK.1).await,
        }
    }
}
