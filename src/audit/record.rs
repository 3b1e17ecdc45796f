//! What one audit record holds and how it becomes one line of JSON.
//!
//! The schema is stable: fields are added, never renamed, and [`SCHEMA_VERSION`] goes up when a meaning changes. The
//! pipeline fills records in, the audit thread alone turns them into text. Strings come from peers, so every line is
//! one line whatever is in them: control characters, line separators and text-direction marks are escaped and long
//! strings are cut. No record holds arguments, results or secrets.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::crypto;
use crate::identity::Identity;
use crate::policy::{Effect, Kind, Layer};

/// The version of the record schema, field `v`.
pub const SCHEMA_VERSION: u32 = 1;

/// Longest string written as it is, in bytes. Names and versions are far shorter; what is longer is an attack or a fault.
const MAX_STRING: usize = 1024;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The daemon started. `detail` has its version.
    Start,
    /// The daemon stops in order. Its absence at the end of a series means a crash.
    Stop,
    /// A call was allowed and its bytes are about to leave.
    Intent,
    /// The one outcome of a call that had an intent.
    Outcome,
    /// Policy refused; nothing reached a downstream.
    Denied,
    /// A downstream asked the host something.
    ReverseRequest,
    /// The answer, or the lack of one, to a reverse request.
    ReverseAnswer,
    /// A request that did not get as far as policy: unknown name, bad session, limit, invalid message, forged answer.
    Rejected,
    /// A downstream changed its state: `state`, `detail`.
    ServerState,
    /// A new configuration took effect, or was refused: `outcome`, `detail`.
    Reload,
    /// Records that could not be kept: `count`, since the last such record.
    Lost,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A result.
    Ok,
    /// A result with `isError`: the tool failed, the call did not.
    ToolError,
    /// An error answer, the downstream's or ours.
    Error,
    /// Refused by policy.
    Denied,
    /// The host or a shutdown cancelled it.
    Cancelled,
    /// A deadline passed.
    TimedOut,
    /// Nobody knows: the connection or the daemon ended in mid-call.
    Lost,
}

/// Who calls, over what. Made once per connection or request and shared by its records.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who, and how it was proven.
    pub identity: Identity,
    /// The host's name as it says it.
    pub host: Option<Arc<str>>,
    /// The host's version as it says it.
    pub host_version: Option<Arc<str>>,
    /// A short id of the session, see [`session_label`]. Never the session id itself, which is a credential.
    pub session: Option<Arc<str>>,
    /// `stdio`, `http`, `unix`, `sse`.
    pub transport: &'static str,
    /// The revision spoken with the host.
    pub revision: Option<Cow<'static, str>>,
}

/// Which downstream, over what. Made once per connection and shared by its records.
#[derive(Clone, Debug)]
pub struct Callee {
    /// The server name.
    pub server: Arc<str>,
    /// `stdio`, `http`, `sse`; nothing before the first connection.
    pub transport: Option<&'static str>,
    /// The revision spoken with the server.
    pub revision: Option<Cow<'static, str>>,
}

/// A digest of a call's arguments: equal arguments of one process can be recognised, nothing can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArgumentDigest {
    pub(super) digest: [u8; crypto::SHA256_LEN],
    pub(super) bytes: u64,
}

/// Who failed and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorFacts {
    /// `manifold`, `downstream` or `host`, as in the error's `data.manifold.side`.
    pub side: &'static str,
    /// The word in `data.manifold.code`, if the error is ours.
    pub code: Option<Cow<'static, str>>,
    /// The JSON-RPC code, if there was one.
    pub rpc: Option<i64>,
}

/// One record. Cheap to build and to move: everything that is text is shared or static.
///
/// ```
/// use manifold::audit::{Event, Outcome, Record};
/// let record = Record { call: Some(7), outcome: Some(Outcome::Ok), ..Record::new(Event::Outcome) };
/// ```
#[derive(Clone, Debug)]
pub struct Record {
    /// What happened.
    pub event: Event,
    /// The call, unique within the instance; ties intent, reverse requests and outcome together.
    pub call: Option<u64>,
    /// Who called.
    pub caller: Option<Arc<Caller>>,
    /// Which downstream it was about.
    pub callee: Option<Arc<Callee>>,
    /// The JSON-RPC method.
    pub method: Option<Cow<'static, str>>,
    /// What sort of item was used.
    pub kind: Option<Kind>,
    /// The item as its server says it; for resources the URI.
    pub local: Option<Arc<str>>,
    /// The item as the host says it.
    pub public: Option<Arc<str>>,
    /// What policy said.
    pub decision: Option<Effect>,
    /// What settled the decision.
    pub layer: Option<Layer>,
    /// The ids of the rules that settled it.
    pub rules: Option<Arc<[Arc<str>]>>,
    /// The arguments, as a digest and a length.
    pub arguments: Option<ArgumentDigest>,
    /// Bytes received from the host for this call.
    pub bytes_in: Option<u64>,
    /// Bytes sent to the host for this call.
    pub bytes_out: Option<u64>,
    /// From the call's arrival to its end.
    pub duration: Option<Duration>,
    /// How much of it was spent waiting for a slot or for the server's start.
    pub queued: Option<Duration>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Who failed and how.
    pub error: Option<ErrorFacts>,
    /// The trace id, if the call belongs to a trace.
    pub trace: Option<Arc<str>>,
    /// The new state of the downstream.
    pub state: Option<&'static str>,
    /// The digest of the policy in force, at start and reload.
    pub policy: Option<Arc<str>>,
    /// A short text of ours for people. Never a peer's message, never a configured value.
    pub detail: Option<Cow<'static, str>>,
    /// How many, for [`Event::Lost`].
    pub count: Option<u64>,
}

impl Record {
    /// An empty record of this event.
    #[must_use]
    pub fn new(event: Event) -> Self {
        Self {
            event,
            call: None,
            caller: None,
            callee: None,
            method: None,
            kind: None,
            local: None,
            public: None,
            decision: None,
            layer: None,
            rules: None,
            arguments: None,
            bytes_in: None,
            bytes_out: None,
            duration: None,
            queued: None,
            outcome: None,
            error: None,
            trace: None,
            state: None,
            policy: None,
            detail: None,
            count: None,
        }
    }
}

/// A short id of a session that can be logged: the same for the same session, of no use for taking part in it.
#[must_use]
pub fn session_label(session_id: &str) -> Arc<str> {
    let digest = crypto::sha256_parts(&[b"manifold session label ", session_id.as_bytes()]);
    crypto::hex(digest.first_chunk::<8>().map_or(&[], |head| head.as_slice())).into()
}

/// Where and when a record was written.
pub(super) struct Position<'a> {
    pub(super) time: Timestamp,
    pub(super) sequence: u64,
    pub(super) instance: &'a str,
}

/// Appends the record to `out` as one line.
pub(super) fn write_line(out: &mut Vec<u8>, position: &Position<'_>, record: &Record) {
    let caller = record.caller.as_deref();
    let callee = record.callee.as_deref();
    let line = Line {
        v: SCHEMA_VERSION,
        time: Time(position.time),
        seq: position.sequence,
        instance: position.instance,
        event: record.event,
        call: record.call,
        identity: caller.map(|caller| clip(caller.identity.subject())),
        proof: caller.map(|caller| caller.identity.proven_by().as_str()),
        host: caller.and_then(|caller| caller.host.as_deref()).map(clip),
        host_version: caller.and_then(|caller| caller.host_version.as_deref()).map(clip),
        session: caller.and_then(|caller| caller.session.as_deref()).map(clip),
        host_transport: caller.map(|caller| caller.transport),
        host_revision: caller.and_then(|caller| caller.revision.as_deref()).map(clip),
        server: callee.map(|callee| clip(&callee.server)),
        server_transport: callee.and_then(|callee| callee.transport),
        server_revision: callee.and_then(|callee| callee.revision.as_deref()).map(clip),
        method: record.method.as_deref().map(clip),
        kind: record.kind,
        local: record.local.as_deref().map(clip),
        public: record.public.as_deref().map(clip),
        decision: record.decision,
        layer: record.layer.map(Layer::as_str),
        rules: record.rules.as_deref().filter(|rules| !rules.is_empty()),
        arguments: record.arguments.map(|arguments| ArgumentsLine {
            digest: crypto::hex(&arguments.digest),
            bytes: arguments.bytes,
        }),
        bytes_in: record.bytes_in,
        bytes_out: record.bytes_out,
        duration_us: record.duration.map(micros),
        queue_us: record.queued.map(micros),
        outcome: record.outcome,
        error: record.error.as_ref().map(|error| ErrorLine {
            side: error.side,
            code: error.code.as_deref().map(clip),
            rpc: error.rpc,
        }),
        trace: record.trace.as_deref().map(clip),
        state: record.state,
        policy: record.policy.as_deref(),
        detail: record.detail.as_deref().map(clip),
        count: record.count,
    };
    finish_line(out, &line);
}

/// The first line of each file. It is no record and has no sequence number.
#[derive(Serialize)]
pub(super) struct FileHead<'a> {
    pub(super) v: u32,
    #[serde(serialize_with = "serialize_time")]
    pub(super) time: Timestamp,
    pub(super) instance: &'a str,
    pub(super) event: &'static str,
    /// The number of the file in its series.
    pub(super) file: u64,
    /// The sequence number of the first record in it.
    pub(super) first: u64,
    /// What argument digests of this instance are salted with, as hexadecimal.
    pub(super) salt: &'a str,
}

impl FileHead<'_> {
    /// Appends it to `out` as one line.
    pub(super) fn write_line(&self, out: &mut Vec<u8>) {
        finish_line(out, self);
    }
}

fn finish_line(out: &mut Vec<u8>, line: &impl Serialize) {
    let start = out.len();
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, OneLine);
    if line.serialize(&mut serializer).is_err() {
        // Writing plain values into memory does not fail; half a line must not stay if it ever does.
        out.truncate(start);
        return;
    }
    out.push(b'\n');
}

#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    time: Time,
    seq: u64,
    instance: &'a str,
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_version: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_transport: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_revision: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_transport: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_revision: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Effect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a [Arc<str>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<ArgumentsLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_in: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_out: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

#[derive(Serialize)]
struct ArgumentsLine {
    digest: String,
    bytes: u64,
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    side: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rpc: Option<i64>,
}

struct Time(Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_time(&self.0, serializer)
    }
}

/// Always six digits behind the second, so that lines sort and align.
fn serialize_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn clip(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_STRING {
        return Cow::Borrowed(text);
    }
    let head = text
        .get(..text.floor_char_boundary(MAX_STRING))
        .unwrap_or_default();
    Cow::Owned(format!("{head}…(+{} bytes)", text.len() - head.len()))
}

/// serde_json's compact form, with everything escaped that could end a line or play with a terminal.
struct OneLine;

impl serde_json::ser::Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // serde_json has dealt with everything below U+0020.
        if fragment.is_ascii() && !fragment.as_bytes().contains(&0x7f) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut encoded = [0; 4];
        for c in fragment.chars() {
            if c.is_control() || is_layout(c) {
                write!(writer, "\\u{:04x}", u32::from(c))?;
            } else {
                writer.write_all(c.encode_utf8(&mut encoded).as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Line and paragraph separators, direction marks and overrides, invisible characters. All within four hex digits.
fn is_layout(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
