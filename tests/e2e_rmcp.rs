//! The Rust SDK as a host before the built binary with real servers behind it.
//!
//! `tests/real/run rmcp` installs the servers, starts a daemon and passes what it made in the environment:
//! `REAL_FLEET` (a JSON file: the servers' own commands and their data), `REAL_URL` (the daemon's endpoint) and
//! `REAL_STDIO` (the command of `manifold stdio`). Without it there is nothing to test against and the test says so.
//! Each check is a line `ok - name` or `not ok - name: why`, as the other drivers print them.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test program that prints its checks"
)]
#![expect(
    deprecated,
    reason = "sampling, roots and log levels are what legacy servers use"
)]

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientConfig, ClientRequest, CreateMessageRequestParams,
    CreateMessageResult, ElicitRequestParams, ElicitResult, GetPromptRequestParams, ListRootsResult,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, ResourceUpdatedNotificationParam,
    SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions, RequestContext,
    RoleClient, RunningService,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::process::Command;

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;
const LEGACY_SERVERS: [&str; 3] = ["everything", "filesystem", "memory"];
const DOCUMENT: &str = "demo://resource/static/document/architecture.md";

/// A host that answers every question of a server and remembers what it was told.
#[derive(Clone)]
struct Host {
    docs: PathBuf,
    told: Arc<Mutex<Vec<(&'static str, Value)>>>,
}

impl Host {
    fn note(&self, what: &'static str, value: &impl Serialize) {
        self.told
            .lock()
            .unwrap()
            .push((what, serde_json::to_value(value).unwrap()));
    }

    fn told(&self, what: &str) -> Vec<Value> {
        self.told
            .lock()
            .unwrap()
            .iter()
            .filter(|(kind, _)| *kind == what)
            .map(|(_, value)| value.clone())
            .collect()
    }

    fn forget(&self) {
        self.told.lock().unwrap().clear();
    }

    async fn hears(&self, what: &str, count: usize) -> Outcome {
        for _ in 0..150 {
            if self.told(what).len() >= count {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!("{} of {count} {what} within 3 s", self.told(what).len()).into())
    }
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities =
            serde_json::from_value(json!({"sampling": {}, "elicitation": {"form": {}}, "roots": {}}))
                .unwrap();
        info
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.note("sampling", &params);
        let answer = json!({"model": "test-model", "role": "assistant", "stopReason": "endTurn", "content": {"type": "text", "text": "sampled words"}});
        Ok(serde_json::from_value(answer).unwrap())
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.note("elicitation", &params);
        Ok(serde_json::from_value(json!({"action": "accept", "content": {"name": "Ada Lovelace"}})).unwrap())
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        let uri = format!("file://{}", self.docs.display());
        Ok(serde_json::from_value(json!({"roots": [{"uri": uri, "name": "documents"}]})).unwrap())
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.note("progress", &params);
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.note("updated", &params);
    }
}

/// One connection: a server directly, or manifold.
struct Connection {
    service: RunningService<RoleClient, Host>,
}

impl Connection {
    async fn open(
        host: &Host,
        way: &Way,
        legacy: bool,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mode = if legacy {
            ClientLifecycleMode::Initialize
        } else {
            ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::LATEST],
            }
        };
        let host = Host {
            told: Arc::default(),
            ..host.clone()
        };
        let service = match way {
            Way::Url(url) => {
                host.serve_with_lifecycle(StreamableHttpClientTransport::from_uri(url.as_str()), mode)
                    .await?
            }
            Way::Command(words, env) => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).envs(env);
                let (child, _) = TokioChildProcess::builder(command)
                    .stderr(std::process::Stdio::null())
                    .spawn()?;
                host.serve_with_lifecycle(child, mode).await?
            }
        };
        Ok(Self { service })
    }

    fn host(&self) -> &Host {
        self.service.service()
    }

    async fn call(
        &self,
        name: &str,
        arguments: Value,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let result = self
            .service
            .call_tool(CallToolRequestParams::new(name.to_owned()).with_arguments(arguments))
            .await?;
        Ok(plain(&result))
    }
}

enum Way {
    Url(String),
    Command(Vec<String>, BTreeMap<String, String>),
}

/// A result without what belongs to the hop.
fn plain(value: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).unwrap();
    if let Some(members) = value.as_object_mut() {
        members.remove("resultType");
        members.remove("ttlMs");
        members.remove("cacheScope");
        if let Some(meta) = members.get_mut("_meta").and_then(Value::as_object_mut) {
            meta.remove("io.modelcontextprotocol/serverInfo");
            if meta.is_empty() {
                members.remove("_meta");
            }
        }
    }
    value
}

fn expect(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(why().into()) }
}

#[derive(Default)]
struct Report {
    passed: usize,
    failed: usize,
}

impl Report {
    async fn check(&mut self, name: &str, work: impl Future<Output = Outcome>) {
        let why = match tokio::time::timeout(Duration::from_secs(40), work).await {
            Ok(Ok(())) => {
                self.passed += 1;
                println!("ok - {name}");
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no end after 40 s".to_owned(),
        };
        self.failed += 1;
        println!("not ok - {name}: {}", why.replace('\n', " "));
    }
}

/// What the runner made, if it ran us.
struct Fleet {
    docs: PathBuf,
    repo: String,
    servers: BTreeMap<String, Way>,
    ways: Vec<(&'static str, Way)>,
}

fn fleet() -> Option<Fleet> {
    let text = std::fs::read_to_string(std::env::var_os("REAL_FLEET")?).unwrap();
    let fleet: Value = serde_json::from_str(&text).unwrap();
    let words = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let servers = fleet["servers"].as_object().unwrap().iter().map(|(name, spec)| {
        let mut command = vec![spec["command"].as_str().unwrap().to_owned()];
        command.extend(words(&spec["args"]));
        let env = spec
            .get("env")
            .map(|env| serde_json::from_value(env.clone()).unwrap())
            .unwrap_or_default();
        (name.clone(), Way::Command(command, env))
    });
    let stdio: Value = serde_json::from_str(&std::env::var("REAL_STDIO").unwrap()).unwrap();
    Some(Fleet {
        docs: PathBuf::from(fleet["docs"].as_str().unwrap()),
        repo: fleet["repo"].as_str().unwrap().to_owned(),
        servers: servers.collect(),
        ways: vec![
            ("http", Way::Url(std::env::var("REAL_URL").unwrap())),
            ("stdio", Way::Command(words(&stdio), BTreeMap::new())),
        ],
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_servers() {
    let Some(fleet) = fleet() else {
        println!("skipped: run tests/real/run rmcp");
        return;
    };
    let mut report = Report::default();
    let host = Host {
        docs: fleet.docs.clone(),
        told: Arc::default(),
    };
    for legacy in [true, false] {
        let mut direct = BTreeMap::new();
        for (name, way) in &fleet.servers {
            direct.insert(
                name.clone(),
                Connection::open(&host, way, legacy || LEGACY_SERVERS.contains(&name.as_str()))
                    .await
                    .unwrap(),
            );
        }
        for (way_name, way) in &fleet.ways {
            let title = format!("{} {way_name}", if legacy { "legacy" } else { "modern" });
            match Connection::open(&host, way, legacy).await {
                Ok(through) => scenarios(&mut report, &title, &fleet, &direct, through, legacy).await,
                Err(error) => {
                    report
                        .check(&format!("{title}: connects"), async move { Err(error) })
                        .await
                }
            }
        }
        for connection in direct.into_values() {
            let _ = connection.service.cancel().await;
        }
    }
    println!("# {} passed, {} failed", report.passed, report.failed);
    assert_eq!(report.failed, 0, "checks failed");
}

async fn scenarios(
    report: &mut Report,
    title: &str,
    fleet: &Fleet,
    direct: &BTreeMap<String, Connection>,
    through: Connection,
    legacy: bool,
) {
    let named = |what: &str| format!("{title}: {what}");
    report
        .check(
            &named("tools are the servers' own, item for item"),
            lists(direct, &through, legacy),
        )
        .await;
    let calls = [
        ("everything", "echo", json!({"message": "Grüße 世界"})),
        (
            "everything",
            "get-structured-content",
            json!({"location": "Chicago"}),
        ),
        (
            "filesystem",
            "read_text_file",
            json!({"path": fleet.docs.join("hello.txt")}),
        ),
        ("memory", "search_nodes", json!({"query": "nobody"})),
        ("git", "git_log", json!({"repo_path": fleet.repo, "max_count": 2})),
        (
            "time",
            "convert_time",
            json!({"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ),
        ("modern", "add", json!({"a": 40, "b": 2})),
    ];
    for (server, tool, arguments) in calls {
        let work = async {
            let expected = direct[server].call(tool, arguments.clone()).await?;
            let got = through
                .call(&format!("{server}__{tool}"), arguments.clone())
                .await?;
            expect(expected == got, || format!("expected {expected}, got {got}"))
        };
        report
            .check(
                &named(&format!("{server} {tool} answers as it does directly")),
                work,
            )
            .await;
    }
    report
        .check(
            &named("resource and prompt are as they are directly"),
            reads(direct, &through),
        )
        .await;
    report
        .check(&named("progress comes in order"), progress(&through, legacy))
        .await;
    report
        .check(
            &named("a cancelled call ends and is not heard of again"),
            cancel(&through, legacy),
        )
        .await;
    let questions = if legacy {
        [
            (
                "everything__trigger-sampling-request",
                json!({"prompt": "a rhyme"}),
                "sampled words",
            ),
            (
                "everything__trigger-elicitation-request",
                json!({}),
                "Ada Lovelace",
            ),
            ("everything__get-roots-list", json!({}), "/docs"),
        ]
    } else {
        [
            ("modern__summarise", json!({"topic": "rivers"}), "sampled words"),
            ("modern__ask_name", json!({}), "Ada Lovelace"),
            ("modern__show_roots", json!({}), "/docs"),
        ]
    };
    for (tool, arguments, wanted) in questions {
        let work = async {
            let answer = through.call(tool, arguments).await?.to_string();
            expect(answer.contains(wanted), || answer)
        };
        report.check(&named(&format!("{tool} asks the host")), work).await;
    }
    if legacy {
        report
            .check(
                &named("a subscribed resource is reported as updated"),
                subscription(&through),
            )
            .await;
    } else {
        report
            .check(
                &named("a listening host hears of an updated resource"),
                listening(&through),
            )
            .await;
    }
    let closed = async {
        through.service.cancel().await?;
        Ok(())
    };
    report.check(&named("closes"), closed).await;
}

async fn lists(direct: &BTreeMap<String, Connection>, through: &Connection, legacy: bool) -> Outcome {
    let found: BTreeMap<String, Value> = through
        .service
        .list_all_tools()
        .await?
        .iter()
        .map(|tool| (tool.name.to_string(), serde_json::to_value(tool).unwrap()))
        .collect();
    for (server, connection) in direct {
        for tool in connection.service.list_all_tools().await? {
            let name = format!("{server}__{}", tool.name);
            let mut wanted = serde_json::to_value(&tool).unwrap();
            wanted["name"] = json!(name);
            if !legacy && LEGACY_SERVERS.contains(&server.as_str()) {
                // The modern schema has no such member.
                wanted.as_object_mut().unwrap().remove("execution");
            }
            // A modern host need not be shown what server-everything offers to some clients only.
            let Some(got) = found.get(&name) else {
                expect(
                    server == "everything"
                        && (tool.name.contains("request")
                            || tool.name.contains("roots")
                            || tool.name.contains("url")
                            || tool.name.contains("research")),
                    || format!("{name} is not among {:?}", found.keys()),
                )?;
                continue;
            };
            expect(*got == wanted, || format!("expected {wanted}, got {got}"))?;
        }
    }
    Ok(())
}

async fn reads(direct: &BTreeMap<String, Connection>, through: &Connection) -> Outcome {
    let mut answers = Vec::new();
    for (connection, prompt) in [
        (&direct["everything"], "args-prompt"),
        (through, "everything__args-prompt"),
    ] {
        let resource = connection
            .service
            .read_resource(ReadResourceRequestParams::new(DOCUMENT))
            .await?;
        let arguments = json!({"city": "Paris", "state": "Texas"})
            .as_object()
            .cloned()
            .unwrap();
        let mut params = GetPromptRequestParams::new(prompt);
        params.arguments = Some(arguments);
        answers.push((
            plain(&resource),
            plain(&connection.service.get_prompt(params).await?),
        ));
    }
    expect(answers[0] == answers[1], || {
        format!("expected {:?}, got {:?}", answers[0], answers[1])
    })
}

fn long_call(legacy: bool, quick: bool) -> (&'static str, Value) {
    match (legacy, quick) {
        (true, true) => (
            "everything__trigger-long-running-operation",
            json!({"duration": 0.6, "steps": 6}),
        ),
        (true, false) => (
            "everything__trigger-long-running-operation",
            json!({"duration": 6, "steps": 20}),
        ),
        (false, true) => ("modern__count", json!({"to": 6, "delayMs": 50})),
        (false, false) => ("modern__count", json!({"to": 40, "delayMs": 200})),
    }
}

async fn progress(through: &Connection, legacy: bool) -> Outcome {
    through.host().forget();
    let (tool, arguments) = long_call(legacy, true);
    through.call(tool, arguments).await?;
    through.host().hears("progress", 6).await?;
    let steps: Vec<f64> = through
        .host()
        .told("progress")
        .iter()
        .filter_map(|told| told["progress"].as_f64())
        .collect();
    expect(steps == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], || format!("{steps:?}"))
}

async fn cancel(through: &Connection, legacy: bool) -> Outcome {
    through.host().forget();
    let (tool, arguments) = long_call(legacy, false);
    let params =
        CallToolRequestParams::new(tool).with_arguments(arguments.as_object().cloned().unwrap_or_default());
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let handle = through
        .service
        .send_cancellable_request(request, PeerRequestOptions::no_options())
        .await?;
    through.host().hears("progress", 2).await?;
    handle.cancel(Some("enough".to_owned())).await?;
    tokio::time::sleep(Duration::from_millis(400)).await;
    through.host().forget();
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let late = through.host().told("progress");
    expect(late.is_empty(), || {
        format!("progress after the cancellation: {late:?}")
    })?;
    let answer = through.call("modern__add", json!({"a": 1, "b": 1})).await?;
    expect(answer["structuredContent"]["sum"] == 2, || answer.to_string())
}

async fn subscription(through: &Connection) -> Outcome {
    through
        .service
        .subscribe(SubscribeRequestParams::new(DOCUMENT))
        .await?;
    through.host().forget();
    through
        .call("everything__toggle-subscriber-updates", json!({}))
        .await?;
    through.host().hears("updated", 1).await?;
    through
        .call("everything__toggle-subscriber-updates", json!({}))
        .await?;
    through
        .service
        .unsubscribe(UnsubscribeRequestParams::new(DOCUMENT))
        .await?;
    let told = through.host().told("updated");
    expect(told.iter().all(|update| update["uri"] == DOCUMENT), || {
        format!("{told:?}")
    })
}

async fn listening(through: &Connection) -> Outcome {
    let mut filter = SubscriptionFilter::new();
    filter.resource_subscriptions = Some(vec!["note://one".to_owned()]);
    let mut subscription = through.service.listen(filter).await?;
    through.call("modern__touch", json!({})).await?;
    let heard = tokio::time::timeout(Duration::from_secs(3), subscription.next()).await??;
    let heard = serde_json::to_value(&heard)?;
    expect(heard["params"]["uri"] == "note://one", || heard.to_string())?;
    subscription.cancel().await?;
    Ok(())
}
