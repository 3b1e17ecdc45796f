use super::*;
use std::io::{BufRead as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

const QUICK: StopLadder = StopLadder {
    after_stdin_close: Duration::from_millis(100),
    after_term: Duration::from_millis(300),
};
const PATIENT: StopLadder = StopLadder {
    after_stdin_close: Duration::from_secs(20),
    after_term: Duration::from_secs(20),
};

fn spec(command: &str, args: &[&str]) -> ChildSpec {
    ChildSpec {
        command: command.into(),
        args: args.iter().map(|argument| (*argument).to_owned()).collect(),
        env: Vec::new(),
        cwd: None,
        stderr_lines: 20,
        label: "test".into(),
    }
}

fn sh(script: &str) -> ChildSpec {
    spec("sh", &["-c", script])
}

/// Whether a process is there and no zombie.
fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, facts)| !facts.trim_start().starts_with(['Z', 'X']))
}

/// Polls a condition that another process brings about.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

async fn line(stdout: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    stdout.read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

#[tokio::test]
async fn speaks_through_pipes_and_leaves_by_itself_when_stdin_closes() {
    let child = spawn(&spec("cat", &[])).await.unwrap();
    let (mut stdin, stdout, _, process) = child.into_parts();
    let mut stdout = BufReader::new(stdout);
    stdin.write_all(b"hello\n").await.unwrap();
    assert_eq!(line(&mut stdout).await, "hello");
    drop(stdin);
    let pid = process.pid();
    let report = process.stop(PATIENT).await;
    assert!(report.exit.unwrap().success());
    assert!(!report.forced);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "no zombie");
}

#[tokio::test]
async fn sigterm_ends_a_child_that_does_not_read_stdin() {
    let child = spawn(&spec("sleep", &["1000"])).await.unwrap();
    let process = child.process();
    drop(child.stdin);
    let report = process
        .stop(StopLadder {
            after_stdin_close: Duration::from_millis(20),
            ..PATIENT
        })
        .await;
    assert_eq!(report.exit.unwrap().signal(), Some(Signal::TERM.as_raw()));
    assert!(!report.forced);
}

#[tokio::test]
async fn the_whole_group_goes_although_child_and_grandchild_ignore_sigterm() {
    let script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.05; done' & echo $$; \
                  while :; do sleep 0.05; done";
    let child = spawn(&sh(script)).await.unwrap();
    let (stdin, stdout, _, process) = child.into_parts();
    let mut stdout = BufReader::new(stdout);
    let (one, two) = (
        line(&mut stdout).await.parse().unwrap(),
        line(&mut stdout).await.parse().unwrap(),
    );
    drop(stdin);
    let report = process.stop(QUICK).await;
    assert!(report.forced);
    assert_eq!(report.exit.unwrap().signal(), Some(Signal::KILL.as_raw()));
    assert!(!alive(one) && !alive(two));
}

#[tokio::test]
async fn what_an_exiting_leader_leaves_behind_is_ended() {
    let child = spawn(&sh(
        "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.05; done' & read x; exit 3",
    ))
    .await
    .unwrap();
    let (mut stdin, stdout, _, process) = child.into_parts();
    let mut stdout = BufReader::new(stdout);
    let grandchild = line(&mut stdout).await.parse().unwrap();
    assert!(alive(grandchild));
    stdin.write_all(b"\n").await.unwrap();
    assert_eq!(process.clone().exited().await.code(), Some(3));
    let report = process.stop(QUICK).await;
    assert_eq!(report.exit.unwrap().code(), Some(3));
    assert!(report.forced);
    assert!(!alive(grandchild));
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn a_second_shorter_ladder_hurries_the_first() {
    let child = spawn(&sh("trap '' TERM; echo ready; while :; do sleep 0.05; done"))
        .await
        .unwrap();
    let (_stdin, stdout, _, process) = child.into_parts();
    assert_eq!(line(&mut BufReader::new(stdout)).await, "ready");
    let slow = tasks::spawn("slow stop", process.clone().stop(PATIENT));
    let report = process.stop(StopLadder::NOW).await;
    assert!(report.forced);
    assert!(slow.await.unwrap().forced);
}

#[tokio::test]
async fn dropping_every_handle_kills() {
    let child = spawn(&sh("trap '' TERM; echo $$; while :; do sleep 0.05; done"))
        .await
        .unwrap();
    let (stdin, stdout, _, process) = child.into_parts();
    let pid: u32 = line(&mut BufReader::new(stdout)).await.parse().unwrap();
    assert_eq!(process.pid(), pid);
    drop((stdin, process));
    eventually("the child is reaped", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    })
    .await;
}

#[test]
fn the_end_of_the_runtime_kills() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let child = runtime.block_on(spawn(&spec("sleep", &["1000"]))).unwrap();
    let pid = child.process().pid();
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    other.block_on(eventually("the child is reaped", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    }));
    drop(child);
}

#[tokio::test]
async fn many_exits_at_once_are_all_seen() {
    let mut processes = Vec::new();
    for code in 0..20 {
        processes.push((code, spawn(&sh(&format!("exit {code}"))).await.unwrap()));
    }
    for (code, child) in processes {
        assert_eq!(child.process().exited().await.code(), Some(code));
        assert!(!child.process().stop(QUICK).await.forced);
    }
}

#[tokio::test]
async fn stderr_without_newline_invalid_and_huge_is_drained_and_bounded() {
    let script = "import os\n\
        os.write(2, b'first\\n' + b'x' * 1000000)\n\
        os.write(2, b'\\n\\xff\\xfe\\x1b[31mred\\r\\n')\n\
        for i in range(1000): os.write(2, b'line %d\\n' % i)\n\
        os.write(2, b'the token is hunter2-token')\n\
        print('done', flush=True)\n";
    let mut spec = spec("python3", &["-c", script]);
    spec.stderr_lines = 1010;
    spec.env
        .push(("TOKEN".into(), SecretString::from("hunter2-token").into()));
    let child = spawn(&spec).await.unwrap();
    let (_stdin, stdout, stderr, process) = child.into_parts();
    assert_eq!(line(&mut BufReader::new(stdout)).await, "done");
    eventually("everything was read", || {
        stderr
            .lines()
            .last()
            .is_some_and(|last| last.starts_with("the token"))
    })
    .await;
    let lines = stderr.lines();
    assert_eq!(lines[0], "first");
    assert!(
        lines[1].len() < 5000 && lines[1].ends_with(" [995904 bytes more]"),
        "{}",
        lines[1].len()
    );
    assert_eq!(lines[2], "\u{fffd}\u{fffd}\\x1b[31mred");
    assert_eq!(lines[1002], "line 999");
    assert_eq!(lines[1003], "the token is ***");
    process.stop(QUICK).await;
}

#[test]
fn the_tail_keeps_the_last_lines_only() {
    let tail = StderrTail::new(2, Vec::new());
    let mut seen = Vec::new();
    tail.push(b"a\nb\nc\nd", |line| seen.push(line.to_owned()));
    assert_eq!(seen, ["a", "b", "c"]);
    assert_eq!(tail.lines(), ["c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn log_lines_are_limited_per_second_and_the_rest_is_counted() {
    let start = tokio::time::Instant::now();
    let mut rate = stderr::LogRate::new(start);
    assert_eq!((0..1000).filter(|_| rate.admit(start).is_some()).count(), 50);
    let later = start + Duration::from_secs(1);
    assert_eq!(rate.admit(later), Some(950));
    assert_eq!((0..1000).filter(|_| rate.admit(later).is_some()).count(), 9);
}

#[tokio::test]
async fn the_environment_is_the_short_list_and_the_configured_one() {
    let mut spec = spec("env", &[]);
    spec.env = vec![
        ("LOG_LEVEL".into(), "info".to_owned().into()),
        ("LANG".into(), "C".to_owned().into()),
    ];
    let child = spawn(&spec).await.unwrap();
    let (stdin, mut stdout, _, process) = child.into_parts();
    drop(stdin);
    let mut all = String::new();
    stdout.read_to_string(&mut all).await.unwrap();
    for name in all
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
    {
        assert!(
            ["PATH", "HOME", "LANG", "TMPDIR", "LOG_LEVEL", RECURSION_MARKER].contains(&name),
            "{name}"
        );
    }
    assert!(all.contains("LOG_LEVEL=info\n") && all.contains("LANG=C\n") && all.contains(RECURSION_MARKER));
    process.stop(QUICK).await;
}

#[tokio::test]
async fn no_descriptor_but_the_three_pipes_is_inherited() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("leaky")).unwrap();
    // As whoever started us might have left it open for us.
    rustix::io::fcntl_setfd(file.as_fd(), rustix::io::FdFlags::empty()).unwrap();
    let child = spawn(&spec("ls", &["-l", "/proc/self/fd"])).await.unwrap();
    let (stdin, mut stdout, _, process) = child.into_parts();
    drop(stdin);
    let mut all = String::new();
    stdout.read_to_string(&mut all).await.unwrap();
    // 0, 1, 2 and the descriptor with which `ls` reads the folder.
    assert_eq!(all.matches(" -> ").count(), 4, "{all}");
    assert!(!all.contains("leaky"), "{all}");
    process.stop(QUICK).await;
}

fn script(folder: &Path, name: &str, text: &str, mode: u32) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    file.to_str().unwrap().to_owned()
}

async fn refusal(spec: ChildSpec) -> String {
    spawn(&spec).await.unwrap_err().to_string()
}

#[tokio::test]
async fn what_cannot_be_started_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap().to_owned();
    let path = |path: &str| vec![("PATH".to_owned(), SecretOrString::Plain(path.to_owned()))];

    let missing = refusal(ChildSpec {
        env: path("/nowhere:/no/where"),
        ..spec("tool", &[])
    })
    .await;
    assert!(
        missing.contains("`tool` is not in PATH `/nowhere:/no/where`"),
        "{missing}"
    );

    let missing = refusal(spec(&format!("{at}/absent"), &[])).await;
    assert!(
        missing.contains(&format!("`{at}/absent` does not exist")),
        "{missing}"
    );

    let plain = script(folder.path(), "plain", "#!/bin/sh\n", 0o644);
    for spec in [
        spec(&plain, &[]),
        ChildSpec {
            env: path(&at),
            ..spec("plain", &[])
        },
    ] {
        let text = refusal(spec).await;
        assert!(text.contains("no execute bit"), "{text}");
    }

    let crlf = script(folder.path(), "crlf", "#!/bin/sh\r\necho hi\r\n", 0o755);
    let text = refusal(spec(&crlf, &[])).await;
    assert!(text.contains("carriage return") && text.contains(&crlf), "{text}");

    let orphan = script(folder.path(), "orphan", "#!/opt/none/interp -x\n", 0o755);
    let text = refusal(spec(&orphan, &[])).await;
    assert!(
        text.contains("`/opt/none/interp`, which does not exist"),
        "{text}"
    );

    let through_env = script(
        folder.path(),
        "through-env",
        "#!/usr/bin/env no-such-language\n",
        0o755,
    );
    let text = refusal(spec(&through_env, &[])).await;
    assert!(
        text.contains("`no-such-language`, which is not in PATH `"),
        "{text}"
    );

    let text = refusal(spec(&at, &[])).await;
    assert!(text.contains("is not a file"), "{text}");

    let text = refusal(ChildSpec {
        cwd: Some(folder.path().join("none")),
        ..spec("sh", &[])
    })
    .await;
    assert!(
        text.contains("working directory") && text.contains("/none"),
        "{text}"
    );

    let text = refusal(spec("", &[])).await;
    assert!(text.contains("not in PATH"), "{text}");
}

#[tokio::test]
async fn the_childs_own_path_and_directory_are_used() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    script(
        &folder.path().join("bin"),
        "my-tool",
        "#!/bin/sh\npwd\nmy-helper\n",
        0o755,
    );
    script(
        &folder.path().join("bin"),
        "my-helper",
        "#!/bin/sh\necho helped\n",
        0o755,
    );
    let path = format!("{}/bin:/usr/bin:/bin", folder.path().display());
    let bare = ChildSpec {
        env: vec![("PATH".into(), path.into())],
        cwd: Some(folder.path().to_owned()),
        ..spec("my-tool", &[])
    };
    for spec in [
        bare.clone(),
        ChildSpec {
            command: "./bin/my-tool".into(),
            ..bare
        },
    ] {
        let child = spawn(&spec).await.unwrap();
        let (_stdin, stdout, _, process) = child.into_parts();
        let mut stdout = BufReader::new(stdout);
        assert_eq!(
            line(&mut stdout).await,
            folder.path().canonicalize().unwrap().to_str().unwrap()
        );
        assert_eq!(line(&mut stdout).await, "helped");
        process.stop(QUICK).await;
    }
}

#[test]
fn secrets_and_arguments_are_not_in_debug_output() {
    let mut spec = spec("tool", &["--token=geheim"]);
    spec.env.push(("KEY".into(), SecretString::from("geheim").into()));
    assert!(!format!("{spec:?}").contains("geheim"));
}

#[test]
fn a_manifold_inside_itself_is_noticed() {
    let outer = ancestry::extend("", 1, 100).unwrap();
    let inner = ancestry::extend(&outer, 2, 101).unwrap();
    assert_eq!(inner, "100:0000000000000001,101:0000000000000002");
    assert!(ancestry::contains(&inner, 1) && !ancestry::contains(&inner, 3));
    assert!(matches!(
        ancestry::extend(&inner, 1, 102),
        Err(SpawnError::Recursion(_))
    ));
    let deep = ancestry::extend(&ancestry::extend(&inner, 3, 102).unwrap(), 4, 103).unwrap();
    assert!(matches!(
        ancestry::extend(&deep, 5, 104),
        Err(SpawnError::Recursion(_))
    ));
}

const HELPER: &str = "MANIFOLD_TEST_PARENT_DEATH";

/// The body of the other process of the next test; nothing when run as a test.
#[test]
fn helper_that_is_killed() {
    if std::env::var_os(HELPER).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let child = runtime
        .block_on(spawn(&sh("trap '' TERM HUP; while :; do sleep 0.05; done")))
        .unwrap();
    println!("\nCHILD {}", child.process().pid());
    std::io::stdout().flush().unwrap();
    // Until killed, or until the test goes away.
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[tokio::test]
async fn the_child_dies_when_we_are_killed() {
    let name = format!(
        "{}::helper_that_is_killed",
        module_path!().split_once("::").unwrap().1
    );
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(HELPER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(helper.stdout.take().unwrap()).lines();
    let child: u32 = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("CHILD ")?.parse().ok())
        .unwrap();
    assert!(alive(child));
    helper.kill().unwrap();
    helper.wait().unwrap();
    eventually("the child is gone", || !alive(child)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_children_at_once_start_and_stop_and_leave_nothing() {
    let one = || async {
        let child = spawn(&sh("sleep 1000 & cat")).await.unwrap();
        let (stdin, stdout, _, process) = child.into_parts();
        drop(stdin);
        let pid = process.pid();
        let report = process.stop(PATIENT).await;
        drop(stdout);
        (pid, report)
    };
    let all = futures_util::future::join_all((0..50).map(|_| one())).await;
    for (pid, report) in all {
        assert!(!report.forced && report.exit.unwrap().success());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert_eq!(
            keeper::group_listed(Pid::from_raw(i32::try_from(pid).unwrap())),
            Some(false)
        );
    }
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().to_str().unwrap().to_owned();
    let spec = spec("sh", &["-c", "while :; do sleep 0.05; done", &mark]);
    for give_up_after in 0..20 {
        // Dropped at some point of its work.
        let _ = tokio::time::timeout(Duration::from_micros(give_up_after * 200), spawn(&spec)).await;
    }
    // Forks are made in order, so those before are done when this one is.
    let last = spawn(&spec).await.unwrap();
    last.process().stop(StopLadder::NOW).await;
    let running = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        processes
            .map(line)
            .any(|line| String::from_utf8_lossy(&line).contains(&mark))
    };
    eventually("all are gone", || !running()).await;
}
