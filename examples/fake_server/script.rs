//! The script file: what the server offers and how it behaves. Everything has a default; unknown keys are errors.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Folder for the record, gates and commands.
    pub control: PathBuf,
    /// `stdio`, `http` (Streamable HTTP at `/mcp`) or `sse` (2024-11-05: `/sse` and `/messages`).
    pub transport: String,
    /// `legacy`, `modern` or `dual`.
    pub family: String,
    /// HTTP: 0 = any.
    pub port: u16,
    pub name: String,
    pub instructions: Option<String>,
    /// Raw JSON text of the capabilities; by default what the lists suggest.
    pub capabilities: Option<String>,
    pub legacy_versions: Vec<String>,
    pub tools: Vec<Item>,
    pub prompts: Vec<Item>,
    pub resources: Vec<Item>,
    pub templates: Vec<Item>,
    /// Items on one page; 0 = all on one.
    pub page_size: usize,
    /// Steps that replace the usual answer to a method (`tools/list`, `initialize`, ...), or precede it when they do not answer.
    pub on: HashMap<String, Vec<Step>>,
    /// Steps at the start, before the first message is read.
    pub start: Vec<Step>,
    /// What an unknown request before the handshake gets: `error`, `silence`, `exit`, `garbage`, `empty`, or a number as the code.
    pub before_handshake: String,
    /// What GET gets: `stream`, `405`, `404`, `hang`.
    pub get: String,
    /// Server requests go to the GET stream, not to the stream of the call.
    pub asks_on_get: bool,
    /// Every answer over HTTP is an event stream.
    pub sse_answers: bool,
    /// Events carry ids, cut streams can be resumed.
    pub event_ids: bool,
    /// Violations of the protocol by the client are refused, not only recorded.
    pub strict: bool,
    /// A child in our process group that ignores every polite signal.
    pub grandchild: bool,
    pub ignore_stdin_end: bool,
    pub never_read: bool,
    /// Lines are written in pieces of this many bytes; 0 = at once.
    pub split: usize,
    pub split_pause_ms: u64,
    /// How a forgotten session is told: `404`, `400`, `-32001`.
    pub lost_as: String,
    /// HTTP: a `405`-free way to say that this is not an MCP endpoint: fixed status for every POST (0 = none).
    pub post_status: u16,
    /// The session header is not used.
    pub sessionless: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            control: PathBuf::new(),
            transport: "stdio".into(),
            family: "legacy".into(),
            port: 0,
            name: "fake".into(),
            instructions: None,
            capabilities: None,
            legacy_versions: ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
                .map(String::from)
                .to_vec(),
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            page_size: 0,
            on: HashMap::new(),
            start: Vec::new(),
            before_handshake: "error".into(),
            get: "stream".into(),
            asks_on_get: false,
            sse_answers: false,
            event_ids: false,
            strict: false,
            grandchild: false,
            ignore_stdin_end: false,
            never_read: false,
            split: 0,
            split_pause_ms: 0,
            lost_as: "404".into(),
            post_status: 0,
            sessionless: false,
        }
    }
}

/// One list entry.
#[derive(Deserialize, Default, Clone)]
#[serde(default, deny_unknown_fields)]
pub struct Item {
    /// The name or URI by which it is called.
    pub key: String,
    /// The raw JSON text that the list contains.
    pub raw: String,
    /// Other texts, chosen with the step `variant`.
    pub variants: Vec<String>,
    /// Listed only to a client that declared this capability.
    pub needs: Option<String>,
    /// Not listed until the step `enable`.
    pub hidden: bool,
    /// What a call, get or read does; with none a tool echoes its arguments.
    pub steps: Vec<Step>,
}

/// One step. Raw texts may contain `@@ID@@ @@TOKEN@@ @@ARGS@@ @@META@@ @@PARAMS@@ @@ANSWERS@@ @@COUNT@@ @@PID@@ @@SESSION@@ @@NAME@@`
/// and `@@TEXT@@`, the inside of the string argument `text`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Wait for the file `gate-NAME`; a cancelled call ends here without an answer.
    Gate(String),
    /// The same, but a cancellation is only recorded.
    GateDeaf(String),
    /// Pass as soon as the call was cancelled or its stream closed.
    UntilCancelled,
    /// Record an event of this name.
    Event(String),
    /// That many progress notifications, counting on, if the caller gave a token.
    Progress(u32),
    /// A log message: level, logger, raw data.
    Log(String, String, String),
    /// A raw message on the stream of the call.
    Note(String),
    /// A raw message on the session's own stream (stdout, GET stream).
    Outside(String),
    /// Server requests, all at once: (key, method, raw params); waits for every answer.
    Ask(Vec<(String, String, String)>),
    /// The same without waiting.
    AskOnly(Vec<(String, String, String)>),
    /// Cancel the asks that are still open.
    CancelAsks,
    Result(String),
    Error(String),
    /// A whole raw message in place of the answer.
    RawAnswer(String),
    /// A result whose text has this many bytes, streamed.
    Big(usize),
    ListChanged(String, u32),
    ResourceUpdated(String),
    Variant(String, usize),
    Enable(String),
    Disable(String),
    SleepMs(u64),
    Stderr(String),
    StderrFlood(usize),
    /// Raw bytes (base64-free: a list) to stdout or into the stream.
    Bytes(Vec<u8>),
    /// Raw text to stdout, no newline added.
    Stdout(String),
    /// HTTP only: status, content type, body.
    Status(u16, String, String),
    /// HTTP only: close the connection without (more of) an answer.
    Drop,
    /// HTTP only: close the connection, keep the stream for a resume.
    Cut,
    ForgetSessions,
    Exit(i32),
    Abort,
    /// Never answer; ends with the process.
    Hang,
    /// Never ends, whatever is cancelled, and keeps sending this raw note.
    Flood(String),
    /// Count up the session's counter.
    Count,
    /// Steps that only the first process of the control folder runs, or the n-th call: (n, steps).
    Nth(u32, Vec<Self>),
    /// Stop here without an answer.
    Stop,
}

/// A command file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    pub steps: Vec<Step>,
    /// Also run by processes that start later.
    #[serde(default)]
    pub sticky: bool,
}
