//! Starts and ends the process of a stdio downstream.
//!
//! It owns the process, its group, its stderr and its end: whoever starts a child gets the two protocol pipes and a
//! [`ProcessHandle`], and no process of the group is left when [`ProcessHandle::stop`] returns or when the last handle
//! is dropped. It never reads or writes the protocol pipes, never decides whether to start again (that is the
//! supervisor), and never puts the value of a secret into an error or a log line. Called by the stdio transport only.
//!
//! Three facts shape it:
//! * The parent-death signal belongs to the *thread* that forked, so all forks are made by one thread that never ends.
//!   The signal is `SIGKILL`: nobody is left to follow up on a `SIGTERM` that the child ignores. It reaches the leader
//!   only; grandchildren see their end of the pipes close, and a service manager ends the rest of the control group.
//! * A process number may be used again as soon as the process was waited for. So the leader stays a zombie until its
//!   group has been signalled for the last time; otherwise the group number could be a stranger's by then.
//! * A leader that exits may leave grandchildren that hold the pipes. Its exit therefore starts the same ladder.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{oneshot, watch};

use crate::runtime::tasks;

mod ancestry;
mod keeper;
mod locate;
mod stderr;

pub use ancestry::{RECURSION_MARKER, runs_inside_itself};
pub use stderr::StderrTail;

/// What of our own environment a child gets; everything else must be in its configuration.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// The value of an environment variable: open, or one that must not be shown.
#[derive(Clone)]
pub enum SecretOrString {
    /// May be shown.
    Plain(String),
    /// Never printed, and masked where the child itself prints it to stderr.
    Secret(SecretString),
}

impl SecretOrString {
    fn expose(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Secret(secret) => secret.expose_secret(),
        }
    }
}

impl fmt::Debug for SecretOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(text) => fmt::Debug::fmt(text, f),
            Self::Secret(_) => f.write_str("***"),
        }
    }
}

impl From<String> for SecretOrString {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

impl From<SecretString> for SecretOrString {
    fn from(secret: SecretString) -> Self {
        Self::Secret(secret)
    }
}

/// What to start.
#[derive(Clone)]
pub struct ChildSpec {
    /// A bare name, looked up in the *child's* `PATH`, or a path; a relative path is taken from `cwd`.
    pub command: String,
    /// Arguments, passed unchanged; no shell reads them.
    pub args: Vec<String>,
    /// Added to `PATH`, `HOME`, `LANG` and `TMPDIR` of ours, and stronger than them. Nothing else is passed on.
    pub env: Vec<(String, SecretOrString)>,
    /// The working directory; ours if absent, relative to ours if relative.
    pub cwd: Option<PathBuf>,
    /// How many lines of stderr are kept.
    pub stderr_lines: usize,
    /// The server name, for log lines.
    pub label: Arc<str>,
}

impl fmt::Debug for ChildSpec {
    /// Arguments may come from secret references, so only their number is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("label", &self.label)
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

impl ChildSpec {
    /// The whole environment of the child except the recursion marker.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let configured = |name: &str| self.env.iter().any(|(key, _)| key == name);
        let ours = PASSED_ON.iter().filter(|name| !configured(name));
        let ours = ours.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
        let theirs = self
            .env
            .iter()
            .map(|(key, value)| (key.into(), value.expose().into()));
        ours.chain(theirs).collect()
    }

    fn secrets(&self) -> Vec<SecretString> {
        let secret = |(_, value): &(String, SecretOrString)| match value {
            SecretOrString::Secret(secret) => Some(secret.clone()),
            SecretOrString::Plain(_) => None,
        };
        self.env.iter().filter_map(secret).collect()
    }
}

/// Why a child could not be started. The texts are for the operator and say what to mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// A bare command is in no directory of the child's `PATH`.
    #[error(
        "command `{command}` is not in PATH `{path}`; give an absolute path or set PATH in the server's env"
    )]
    NotInPath {
        /// As configured.
        command: String,
        /// The `PATH` that was searched.
        path: String,
    },
    /// A command given as a path does not exist.
    #[error("command `{}` does not exist", file.display())]
    NoSuchFile {
        /// The path after resolving it from the working directory.
        file: PathBuf,
    },
    /// The file is there and may not be executed.
    #[error("`{}` is not executable by us: it has no execute bit (chmod +x)", file.display())]
    NotExecutable {
        /// The file found.
        file: PathBuf,
    },
    /// The path names something that is no regular file.
    #[error("`{}` is not a file", file.display())]
    NotAFile {
        /// The path found.
        file: PathBuf,
    },
    /// The first line of a script ends in CRLF, so the system looks for an interpreter with a carriage return in its name.
    #[error("the first line of `{}` ends in a carriage return (CRLF line ends); save it with LF", file.display())]
    CarriageReturn {
        /// The script.
        file: PathBuf,
    },
    /// The interpreter that the script names is missing.
    #[error("the first line of `{}` names `{interpreter}`, which {missing}", file.display())]
    InterpreterMissing {
        /// The script.
        file: PathBuf,
        /// As the script names it.
        interpreter: String,
        /// "does not exist" or "is not in PATH ...".
        missing: String,
    },
    /// The working directory is not there.
    #[error("the working directory `{}` cannot be used: {reason}", cwd.display())]
    WorkingDirectory {
        /// The directory.
        cwd: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// This process was itself started by a process with the same command line, or too many of us are nested.
    #[error("not started: {0}")]
    Recursion(&'static str),
    /// Anything else the system says.
    #[error("starting `{}` failed: {source}", file.display())]
    System {
        /// The file that was to be executed.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// How long each step of stopping may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopLadder {
    /// From the closing of stdin to SIGTERM.
    pub after_stdin_close: Duration,
    /// From SIGTERM to SIGKILL.
    pub after_term: Duration,
}

impl StopLadder {
    /// SIGKILL at once.
    pub const NOW: Self = Self {
        after_stdin_close: Duration::ZERO,
        after_term: Duration::ZERO,
    };

    fn quicker(self, other: Self) -> Self {
        Self {
            after_stdin_close: self.after_stdin_close.min(other.after_stdin_close),
            after_term: self.after_term.min(other.after_term),
        }
    }
}

impl Default for StopLadder {
    fn default() -> Self {
        Self {
            after_stdin_close: Duration::from_secs(2),
            after_term: Duration::from_secs(3),
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub struct StopReport {
    /// The leader's status; `None` only if it could not be killed (stuck in the kernel).
    pub exit: Option<ExitStatus>,
    /// Whether something of the group was still alive when SIGKILL was sent.
    pub forced: bool,
}

/// A running child: its protocol pipes, the end of its stderr, and the process.
#[derive(Debug)]
pub struct Child {
    /// To the server. Dropping it is the first step of a stop.
    pub stdin: ChildStdin,
    /// From the server.
    pub stdout: ChildStdout,
    /// The last lines of its stderr.
    pub stderr: StderrTail,
    process: ProcessHandle,
}

impl Child {
    /// A handle on the process. The group is killed when the last handle, this child included, is dropped.
    #[must_use]
    pub fn process(&self) -> ProcessHandle {
        self.process.clone()
    }

    /// Takes the child apart.
    #[must_use]
    pub fn into_parts(self) -> (ChildStdin, ChildStdout, StderrTail, ProcessHandle) {
        (self.stdin, self.stdout, self.stderr, self.process)
    }
}

/// A cheap clone that observes and ends the process group.
#[derive(Clone, Debug)]
pub struct ProcessHandle {
    pid: u32,
    orders: Arc<watch::Sender<Option<StopLadder>>>,
    state: watch::Receiver<keeper::State>,
}

impl ProcessHandle {
    /// The number of the leader, also of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the leader's exit and tells its status, at once if it is over. Grandchildren may still be about;
    /// they are being ended from that moment on.
    pub async fn exited(&mut self) -> ExitStatus {
        let known = self
            .state
            .wait_for(|state| state.exit.is_some())
            .await
            .ok()
            .and_then(|state| state.exit);
        // The keeper only goes away early with the whole runtime, and it kills when it does.
        known.unwrap_or_else(|| ExitStatus::from_raw(Signal::KILL.as_raw()))
    }

    /// Climbs the ladder: wait for the exit (the caller has dropped stdin), SIGTERM to the group, wait, SIGKILL to the
    /// group. Returns when no process of the group is left and the leader was waited for. Of several calls the shortest
    /// waits count, so that a later call can hurry a stop that is under way.
    pub async fn stop(mut self, ladder: StopLadder) -> StopReport {
        self.orders
            .send_modify(|order| *order = Some(order.map_or(ladder, |earlier| earlier.quicker(ladder))));
        let report = self
            .state
            .wait_for(|state| state.report.is_some())
            .await
            .ok()
            .and_then(|state| state.report);
        report.unwrap_or(StopReport {
            exit: None,
            forced: true,
        })
    }
}

/// Starts the child in its own process group.
///
/// # Errors
/// [`SpawnError`] with what is wrong with the command, the file or the directory.
pub async fn spawn(spec: &ChildSpec) -> Result<Child, SpawnError> {
    let mut environment = spec.environment();
    environment.push((RECURSION_MARKER.into(), ancestry::marker()?.into()));
    let gone = || SpawnError::System {
        file: spec.command.clone().into(),
        source: io::ErrorKind::Other.into(),
    };
    // The look at the files comes before the queue: a hanging network mount of one server must not hold up the
    // one thread that starts all of them.
    let path = environment
        .iter()
        .find(|(key, _)| key == "PATH")
        .map(|(_, path)| path.clone())
        .unwrap_or_default();
    let (command, cwd) = (spec.command.clone(), spec.cwd.clone());
    let search = move || {
        locate::directory(cwd.as_deref())?;
        locate::program(&command, &path, cwd.as_deref())
    };
    let file = tokio::task::spawn_blocking(search).await.map_err(|_| gone())??;

    let (reply, started) = oneshot::channel();
    let wanted = Wanted {
        spec: spec.clone(),
        environment,
        file: file.clone(),
    };
    let job = Box::new(move || {
        // If the caller has gone the process comes back in the error, and its drop ends it.
        drop(reply.send(wanted.start()));
    });
    spawner().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
    let mut leader = started.await.map_err(|_| gone())??;

    let system = |source| SpawnError::System {
        file: file.clone(),
        source,
    };
    let missing = || system(io::Error::other("a pipe is missing"));
    let stdin = ChildStdin::from_std(leader.process.stdin.take().ok_or_else(missing)?).map_err(system)?;
    let stdout = ChildStdout::from_std(leader.process.stdout.take().ok_or_else(missing)?).map_err(system)?;
    let pipe = leader.process.stderr.take().ok_or_else(missing)?;
    let pipe = tokio::process::ChildStderr::from_std(pipe).map_err(system)?;

    let pid = leader.process.id();
    let (orders, ordered) = watch::channel(None);
    let (publish, state) = watch::channel(keeper::State::default());
    let stderr = StderrTail::new(spec.stderr_lines, spec.secrets());
    tasks::spawn(
        "server stderr",
        stderr::drain(pipe, stderr.clone(), spec.label.clone(), state.clone()),
    );
    tasks::spawn("process keeper", keeper::keep(leader, ordered, publish));
    Ok(Child {
        stdin,
        stdout,
        stderr,
        process: ProcessHandle {
            pid,
            orders: Arc::new(orders),
            state,
        },
    })
}

type Job = Box<dyn FnOnce() + Send>;

/// The queue of the one thread that forks. `None` if the system refuses us a thread.
fn spawner() -> Option<&'static mpsc::Sender<Job>> {
    static SPAWNER: OnceLock<Option<mpsc::Sender<Job>>> = OnceLock::new();
    let start = || {
        let (queue, jobs) = mpsc::channel::<Job>();
        let run = move || jobs.into_iter().for_each(|job| job());
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(run)
            .ok()?;
        Some(queue)
    };
    SPAWNER.get_or_init(start).as_ref()
}

struct Wanted {
    spec: ChildSpec,
    environment: Vec<(OsString, OsString)>,
    file: PathBuf,
}

impl Wanted {
    /// Forks, and returns when the child has executed the file or failed to. Runs on the spawner thread.
    fn start(self) -> Result<Leader, SpawnError> {
        let Self {
            spec,
            environment,
            file,
        } = self;
        let mut command = Command::new(&file);
        command
            .arg0(&spec.command)
            .args(&spec.args)
            .env_clear()
            .envs(environment);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(cwd) = &spec.cwd {
            command.current_dir(cwd);
        }
        bind_to_parent(&mut command);
        match command.spawn() {
            Ok(process) => Ok(Leader {
                process,
                ended: false,
            }),
            Err(source) => Err(SpawnError::System { file, source }),
        }
    }
}

/// Makes the child die with us and lets it inherit no descriptor but the three pipes.
#[expect(
    unsafe_code,
    reason = "code between fork and exec cannot be had otherwise; see the SAFETY comments"
)]
fn bind_to_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    // Ours are all close-on-exec; these may also be ones that whoever started us forgot to close.
    let open = open_descriptors();
    let hook = move || {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // Had we died before the line above, no signal would ever come.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(
                rustix::io::Errno::SRCH.raw_os_error(),
            ));
        }
        for &number in &open {
            // SAFETY: the number is not negative, and the borrow ends with this statement. A descriptor that was
            // closed since the listing makes the call fail with EBADF, which harms nothing.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
        }
        Ok(())
    };
    // SAFETY: the hook runs in the forked child, where only async-signal-safe work is allowed: it makes the system
    // calls prctl, getppid and fcntl through rustix, reads a vector made before the fork, and takes no lock,
    // allocates and frees nothing (an error from a raw number is a plain value).
    unsafe { command.pre_exec(hook) };
}

/// The numbers of our open descriptors above stderr; empty where the system does not list them.
fn open_descriptors() -> Vec<RawFd> {
    let Ok(listing) = std::fs::read_dir("/dev/fd") else {
        return Vec::new();
    };
    let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    listing.filter_map(number).filter(|&number| number > 2).collect()
}

/// The leader of a group. It is waited for only after its group was signalled for the last time; dropping it early
/// kills the group.
#[derive(Debug)]
struct Leader {
    process: std::process::Child,
    ended: bool,
}

impl Leader {
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.process.id()).ok()?)
    }

    /// Signals the whole group. Nothing happens once the leader was waited for.
    fn signal(&self, signal: Signal) {
        if let (false, Some(group)) = (self.ended, self.pid()) {
            // The only failure possible for our own child is that nobody is left.
            let _ = kill_process_group(group, signal);
        }
    }

    /// The leader's status if it has exited; it stays a zombie.
    fn peek(&self) -> Option<ExitStatus> {
        peek(self.pid()?)
    }

    /// Takes the zombie away. Only after the last signal to the group, and only when `peek` has seen the exit.
    fn reap(&mut self) {
        self.ended = true;
        let _ = self.process.wait();
    }
}

/// Looks at the exit of a child of ours without taking its zombie away.
fn peek(pid: Pid) -> Option<ExitStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let status = loop {
        match waitid(WaitId::Pid(pid), options) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other.ok()??,
        }
    };
    let code = status.exit_status().map(|code| (code & 0xff) << 8);
    code.or(status.terminating_signal()).map(ExitStatus::from_raw)
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.signal(Signal::KILL);
        self.ended = true;
        if matches!(self.process.try_wait(), Ok(None))
            && let Some(pid) = Pid::from_raw(i32::try_from(self.process.id()).unwrap_or(0))
        {
            // Not gone within the microsecond: wait for it elsewhere, this may be an asynchronous thread.
            let wait = move || {
                while matches!(
                    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED),
                    Err(rustix::io::Errno::INTR)
                ) {}
            };
            let _ = std::thread::Builder::new().name("reaper".into()).spawn(wait);
        }
    }
}

#[cfg(test)]
mod tests;
