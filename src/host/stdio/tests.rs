use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split};
use tokio::task::JoinHandle;

use super::*;
use crate::host::testing::{Fake, META, call, initialize, modern_call, until};

struct Host {
    fake: Arc<Fake>,
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    served: JoinHandle<io::Result<()>>,
    shutdown: CancellationToken,
}

use std::io;

impl Host {
    fn new() -> Self {
        Self::with(HostSettings::default())
    }

    fn with(settings: HostSettings) -> Self {
        let fake = Fake::new();
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        let (reader, writer) = split(ours);
        let (output, input) = split(theirs);
        let shutdown = CancellationToken::new();
        let (service, stop) = (fake.clone(), shutdown.clone());
        let served = tasks::spawn("test stdio", async move {
            serve_stdio(service, reader, writer, settings, stop).await
        });
        Self {
            fake,
            input,
            output: BufReader::new(output).lines(),
            served,
            shutdown,
        }
    }

    async fn say(&mut self, line: &str) {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn hear(&mut self) -> String {
        let line = timeout(Duration::from_secs(10), self.output.next_line())
            .await
            .expect("no line");
        line.unwrap().unwrap()
    }

    async fn ask(&mut self, line: &str) -> String {
        self.say(line).await;
        self.hear().await
    }

    async fn end(mut self) -> Arc<Fake> {
        self.input.shutdown().await.unwrap();
        timeout(Duration::from_secs(5), self.served)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(
            self.output.next_line().await.unwrap().is_none(),
            "nothing after the end"
        );
        self.fake
    }
}

const CANCEL: &str =
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}";

#[tokio::test]
async fn both_eras_on_one_connection() {
    let mut host = Host::new();
    let discover =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":\"d\",\"method\":\"server/discover\",\"params\":{{{META}}}}}");
    assert!(host.ask(&discover).await.contains("\"id\":\"d\",\"result\""));
    let bare = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\"}";
    assert!(host.ask(bare).await.contains("-32602"));
    assert!(host.ask(&call("1", "echo")).await.contains("-32601"));
    assert!(
        host.ask("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}")
            .await
            .contains("\"result\":{}")
    );
    assert!(
        host.ask(&initialize("2026-07-28"))
            .await
            .contains("\"protocolVersion\":\"2025-11-25\"")
    );
    assert!(host.ask(&initialize("2025-11-25")).await.contains("-32600"));
    assert!(
        host.ask(&call("2", "echo"))
            .await
            .contains("\"id\":2,\"result\":{\"echo\":{\"n\":2}}")
    );
    assert!(
        host.ask(&modern_call("\"m\"", "echo", "{}"))
            .await
            .contains("\"id\":\"m\",\"result\"")
    );
    let newer = modern_call("1", "echo", "{}").replace("2026-07-28", "2031-01-01");
    assert!(host.ask(&newer).await.contains("-32022"));
    let tagged = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{{{META}}}}}");
    assert!(host.ask(&tagged).await.contains("-32601"));
    let fake = host.end().await;
    assert_eq!(*fake.ended.lock().unwrap(), ["stdio"]);
}

#[tokio::test]
async fn answers_come_as_they_are_ready() {
    let mut host = Host::new();
    host.ask(&initialize("2025-11-25")).await;
    host.say(&call("1", "slow")).await;
    assert!(host.ask(&call("2", "echo")).await.contains("\"id\":2"));
    assert!(
        host.ask("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}")
            .await
            .contains("\"id\":3")
    );
    assert!(
        host.ask(&call("1", "echo")).await.contains("-32600"),
        "the id is in use"
    );
    host.fake.open(1);
    assert!(host.hear().await.contains("\"slow\":true"));
    host.say(&call("4", "progress")).await;
    for n in 1..=3 {
        assert!(host.hear().await.contains(&format!("\"progress\":{n}")));
    }
    assert!(host.hear().await.contains("\"done\":true"));
    host.end().await;
}

#[tokio::test]
async fn cancelling_in_both_eras() {
    for first in [call("1", "slow"), modern_call("1", "slow", "{}")] {
        let mut host = Host::new();
        host.ask(&initialize("2025-11-25")).await;
        host.say(&first).await;
        until("the call runs", || Fake::count(&host.fake.started) == 1).await;
        host.say(CANCEL).await;
        until("the call is cancelled", || Fake::count(&host.fake.cancelled) == 1).await;
        // Nothing for the cancelled one; a cancellation too late does nothing.
        assert!(host.ask(&call("1", "echo")).await.contains("echo"));
        host.say(CANCEL).await;
        assert!(host.ask(&call("2", "echo")).await.contains("\"id\":2"));
        host.end().await;
    }
}

#[tokio::test]
async fn garbage_is_answered_and_the_next_line_is_served() {
    let mut host = Host::with(HostSettings {
        max_line: 1_000,
        ..HostSettings::default()
    });
    assert!(
        host.ask("{\"jsonrpc\":\"2.0\",")
            .await
            .starts_with("{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700")
    );
    assert!(host.ask("[]").await.contains("-32600"));
    assert!(host.ask("17").await.contains("-32600"));
    let long = format!("{{\"x\":\"{}\"}}", "x".repeat(5_000));
    let answer = host.ask(&long).await;
    assert!(answer.contains("-32600") && answer.contains("1000"), "{answer}");
    assert!(
        host.ask("{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":7}")
            .await
            .contains("\"id\":9")
    );
    host.say("").await;
    host.say("{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}").await;
    assert!(
        host.ask("{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}\r")
            .await
            .contains("\"id\":\"p\"")
    );
    host.end().await;
}

#[tokio::test]
async fn batches_by_revision() {
    let batch = format!("[{},{},{CANCEL}]", call("1", "echo"), call("2", "progress"));
    let mut host = Host::new();
    host.ask(&initialize("2025-06-18")).await;
    assert!(host.ask(&batch).await.contains("-32600"));
    host.end().await;
    let mut host = Host::new();
    host.ask(&initialize("2025-03-26")).await;
    host.say(&batch).await;
    loop {
        let line = host.hear().await;
        if line.starts_with('[') {
            let answers: Vec<serde_json::Value> = serde_json::from_str(&line).unwrap();
            assert!((1..=2).contains(&answers.len()), "{line}");
            break;
        }
        assert!(line.contains("progress"), "{line}");
    }
    host.end().await;
}

#[tokio::test]
async fn a_question_on_the_same_wire() {
    let mut host = Host::new();
    host.ask(&initialize("2025-11-25")).await;
    assert!(host.ask(&call("1", "ask")).await.contains("elicitation/create"));
    host.say("{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}").await;
    let answer = host
        .ask("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"yes\":1}}")
        .await;
    assert!(answer.contains("\"result\":{\"yes\":1}"), "{answer}");
    let fake = host.end().await;
    assert_eq!(*fake.rejected.lock().unwrap(), ["response_unknown"]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_cancels_and_ends_promptly() {
    let mut host = Host::new();
    host.ask(&initialize("2025-11-25")).await;
    host.say(&call("1", "slow")).await;
    host.say(&modern_call("2", "slow", "{}")).await;
    until("both run", || Fake::count(&host.fake.started) == 2).await;
    let start = Instant::now();
    let fake = host.end().await;
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(Fake::count(&fake.cancelled), 2);
}

#[tokio::test]
async fn what_is_asked_last_is_still_answered() {
    let mut host = Host::new();
    host.say(&initialize("2025-11-25")).await;
    host.say(&call("1", "echo")).await;
    host.input.shutdown().await.unwrap();
    let lines = [host.hear().await, host.hear().await];
    assert!(lines.iter().any(|line| line.contains("echo")), "{lines:?}");
    timeout(Duration::from_secs(5), host.served)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn shutdown_and_a_closed_output_end_it_too() {
    let mut host = Host::new();
    host.ask(&initialize("2025-11-25")).await;
    host.shutdown.cancel();
    timeout(Duration::from_secs(5), host.served)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let mut host = Host::new();
    host.say(&call("1", "echo")).await;
    drop((host.input, host.output));
    timeout(Duration::from_secs(5), host.served)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
