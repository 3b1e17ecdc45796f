//! The pending table over an in-memory pipe with a paused clock: exactly one outcome per call, whatever happens.

use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

use super::*;
use crate::downstream::transport::child::StopLadder;
use crate::downstream::transport::pipe::{PipeLimits, PipeLink};
use crate::wire::JsonLimits;

/// Counts what is reported outside of calls.
#[derive(Debug, Default)]
struct Reports {
    lists: AtomicUsize,
    notices: AtomicUsize,
    reverse: AtomicUsize,
    closed: AtomicUsize,
}

impl Hooks for Reports {
    fn list_changed(&self, _: &Arc<Connection>, _: &str) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }
    fn acknowledged(&self) {}
    fn notice(&self, _: &Arc<Connection>, _: Message) {
        self.notices.fetch_add(1, Ordering::Relaxed);
    }
    fn reverse(&self, _: &Arc<Connection>, _: Message, responder: Responder) {
        self.reverse.fetch_add(1, Ordering::Relaxed);
        drop(responder);
    }
    fn withdrawn(&self, _: &Arc<Connection>, _: &HostId, _: &Message) {}
    fn closed(&self, _: &Arc<Connection>, _: &str) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A sink that keeps what it is given.
#[derive(Debug, Default)]
struct Kept {
    progress: AtomicUsize,
    reverse: Mutex<Vec<(Message, Responder)>>,
    waiting: AtomicUsize,
}

impl CallSink for Kept {
    fn progress(&self, _: Message) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }
    fn notice(&self, _: Message) {}
    fn reverse(&self, message: Message, responder: Responder) {
        self.reverse.lock().unwrap().push((message, responder));
    }
    fn withdrawn(&self, _: &HostId, _: &Message) {}
    fn waiting_for_host(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

struct Rig {
    connection: Arc<Connection>,
    reports: Arc<Reports>,
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    to_us: WriteHalf<DuplexStream>,
}

impl Rig {
    fn new(limits: CallLimits) -> Self {
        let reports = Arc::new(Reports::default());
        let connection = Connection::new("s".into(), reports.clone());
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(ours);
        let pipe = PipeLimits {
            line: 4096,
            json: JsonLimits::default(),
            ladder: StopLadder::NOW,
        };
        connection.attach(Link::Pipe(PipeLink::start(&connection, read, write, pipe)));
        connection.settle(Facts {
            family: Family::Legacy,
            revision: Revision::newest_legacy(),
            capabilities: CapabilitySet::NONE,
            limits,
        });
        let (read, to_us) = tokio::io::split(theirs);
        Self {
            connection,
            reports,
            lines: BufReader::new(read).lines(),
            to_us,
        }
    }

    async fn received(&mut self) -> String {
        self.lines.next_line().await.unwrap().unwrap()
    }

    async fn say(&mut self, line: &str) {
        self.to_us.write_all(line.as_bytes()).await.unwrap();
        self.to_us.write_all(b"\n").await.unwrap();
    }

    fn call(&self, sink: Arc<Kept>) -> tokio::task::JoinHandle<Result<Message, CallFault>> {
        let connection = self.connection.clone();
        crate::runtime::tasks::spawn("test call", async move {
            let head = RequestHead {
                method: "tools/call".into(),
                ..RequestHead::default()
            };
            let limits = connection.facts().map(|facts| facts.limits);
            let body = |id: WireId| {
                Outgoing::from(format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\"}}"
                ))
            };
            connection.exchange(body, head, sink, true, limits).await
        })
    }
}

fn calm() -> CallLimits {
    CallLimits {
        idle: Duration::from_secs(60),
        max: Duration::from_secs(600),
    }
}

#[tokio::test(start_paused = true)]
async fn answers_in_any_order_reach_their_calls() {
    let mut rig = Rig::new(calm());
    let first = rig.call(Arc::default());
    assert!(rig.received().await.contains("\"id\":1"));
    let second = rig.call(Arc::default());
    assert!(rig.received().await.contains("\"id\":2"));
    rig.say(r#"{"jsonrpc":"2.0","id":2,"result":{"n":2}}"#).await;
    rig.say("a banner").await;
    rig.say(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#).await;
    rig.say(r#"{"jsonrpc":"2.0","id":1,"result":{"n":1}}"#).await;
    assert!(String::from_utf8_lossy(second.await.unwrap().unwrap().bytes()).contains("\"n\":2"));
    assert!(String::from_utf8_lossy(first.await.unwrap().unwrap().bytes()).contains("\"n\":1"));
    assert_eq!(
        (rig.connection.late_answers(), rig.connection.calls_in_flight()),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_told_to_the_server_with_its_id_and_its_late_answer_dropped() {
    let mut rig = Rig::new(calm());
    let call = rig.call(Arc::default());
    rig.received().await;
    call.abort();
    let told = rig.received().await;
    assert!(
        told.contains("notifications/cancelled") && told.contains("\"requestId\":1"),
        "{told}"
    );
    rig.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    let next = rig.call(Arc::default());
    assert!(rig.received().await.contains("\"id\":2"));
    rig.say(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).await;
    next.await.unwrap().unwrap();
    assert_eq!(rig.connection.late_answers(), 1);
}

#[tokio::test(start_paused = true)]
async fn progress_keeps_a_call_alive_until_the_maximum() {
    let mut rig = Rig::new(CallLimits {
        idle: Duration::from_secs(3),
        max: Duration::from_secs(10),
    });
    let sink = Arc::new(Kept::default());
    let call = rig.call(sink.clone());
    rig.received().await;
    for n in 0..4 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        rig.say(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"progress":{n}}}}}"#)).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!call.is_finished());
    let fault = call.await.unwrap().unwrap_err();
    assert_eq!(fault.kind, FaultKind::TimedOut);
    assert!(fault.message.contains("maximum"), "{fault}");
    assert_eq!(sink.progress.load(Ordering::Relaxed), 4);
    assert!(rig.received().await.contains("notifications/cancelled"));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_call_at_the_idle_limit_unless_the_host_is_being_asked() {
    let mut rig = Rig::new(CallLimits {
        idle: Duration::from_secs(3),
        max: Duration::from_secs(100),
    });
    let silent = rig.call(Arc::default());
    rig.received().await;
    let fault = silent.await.unwrap().unwrap_err();
    assert!(
        fault.message.contains("idle") && fault.message.contains("\"s\""),
        "{fault}"
    );
    assert!(rig.received().await.contains("notifications/cancelled"));
    let sink = Arc::new(Kept::default());
    sink.waiting.store(1, Ordering::Relaxed);
    let asking = rig.call(sink.clone());
    rig.received().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!asking.is_finished());
    sink.waiting.store(0, Ordering::Relaxed);
    assert_eq!(asking.await.unwrap().unwrap_err().kind, FaultKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_stream_fails_every_call_once() {
    let mut rig = Rig::new(calm());
    let calls: Vec<_> = (0..5).map(|_| rig.call(Arc::default())).collect();
    for _ in 0..5 {
        rig.received().await;
    }
    drop((rig.to_us, rig.lines));
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap_err().kind, FaultKind::Lost);
    }
    assert!(rig.connection.is_closed());
    assert_eq!(rig.reports.closed.load(Ordering::Relaxed), 1);
    assert_eq!(rig.connection.pending.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reverse_request_belongs_to_the_only_call_and_to_nobody_among_several() {
    let mut rig = Rig::new(calm());
    let sink = Arc::new(Kept::default());
    let first = rig.call(sink.clone());
    rig.received().await;
    rig.say(r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?"}}"#)
        .await;
    rig.say(r#"{"jsonrpc":"2.0","id":77,"method":"ping"}"#).await;
    assert_eq!(rig.received().await, r#"{"jsonrpc":"2.0","id":77,"result":{}}"#);
    let (_, responder) = sink.reverse.lock().unwrap().pop().unwrap();
    responder.reply(ReverseReply::Result("{\"action\":\"accept\"}".into()));
    assert_eq!(
        rig.received().await,
        r#"{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}"#
    );
    let _second = rig.call(Arc::default());
    rig.received().await;
    rig.say(r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#)
        .await;
    assert!(
        rig.received().await.contains("-32603"),
        "dropping the responder refuses"
    );
    assert_eq!(rig.reports.reverse.load(Ordering::Relaxed), 1);
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn a_line_over_the_limit_or_badly_encoded_fails_its_call_at_once() {
    let mut rig = Rig::new(calm());
    let long = rig.call(Arc::default());
    rig.received().await;
    rig.say(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":"{}"}}}}"#,
        "y".repeat(9000)
    ))
    .await;
    let fault = long.await.unwrap().unwrap_err();
    assert_eq!(fault.kind, FaultKind::TooLarge);
    assert!(fault.message.contains("4096"), "{fault}");
    let bad = rig.call(Arc::default());
    rig.received().await;
    rig.to_us
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"x\":\"\xb0\xa1\"}}\n")
        .await
        .unwrap();
    assert_eq!(bad.await.unwrap().unwrap_err().kind, FaultKind::Malformed);
    let fine = rig.call(Arc::default());
    rig.received().await;
    rig.say("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}")
        .await;
    fine.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn notices_outside_of_calls_are_reported() {
    let mut rig = Rig::new(calm());
    rig.say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#)
        .await;
    rig.say(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#)
        .await;
    rig.say(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    rig.received().await;
    assert_eq!(rig.reports.lists.load(Ordering::Relaxed), 1);
    assert_eq!(rig.reports.notices.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_and_never_reads_is_given_up_and_holds_no_memory() {
    let mut rig = Rig::new(calm());
    let call = rig.call(Arc::default());
    rig.received().await;
    // Its standard input is never read from here on; each ping wants an answer.
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for _ in 0..20_000 {
        if rig.connection.is_closed() {
            break;
        }
        rig.say(ping).await;
    }
    let fault = call.await.unwrap().unwrap_err();
    assert_eq!(fault.kind, FaultKind::Lost);
    assert!(fault.message.contains("does not read"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_only_logs_does_not_keep_its_call_alive() {
    let mut rig = Rig::new(CallLimits {
        idle: Duration::from_secs(3),
        max: Duration::from_secs(100),
    });
    let call = rig.call(Arc::default());
    rig.received().await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        rig.say(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#)
            .await;
    }
    let fault = call.await.unwrap().unwrap_err();
    assert_eq!(fault.kind, FaultKind::TimedOut);
    assert!(fault.message.contains("idle"), "{fault}");
}
