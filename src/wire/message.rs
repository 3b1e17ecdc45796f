//! One JSON-RPC message: its bytes and the spans of what a gateway must look at. One walk, no copy.

use bytes::Bytes;
use std::borrow::Cow;

use super::id::{HostId, WireId};
use super::json::{
    JsonFault, JsonLimits, ObjectMember, Scanner, Span, ValueKind, check_utf8, kind_of, unquote,
};

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Has a method and an id.
    Request,
    /// Has a method and no id.
    Notification,
    /// Answers with a result.
    Result,
    /// Answers with an error.
    Error,
}

macro_rules! members {
    ($($(#[$doc:meta])* $variant:ident = $place:ident $key:literal),+ $(,)?) => {
        /// A member that the walk notes: of the payload (`params`, `result` or `error`) or of the payload's `_meta`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Member { $($(#[$doc])* #[doc = concat!("`", $key, "`")] $variant),+ }
        impl Member {
            fn in_payload(key: &[u8]) -> Option<Self> { $(members!(@payload $place $key $variant key);)+ None }
            fn in_meta(key: &[u8]) -> Option<Self> { $(members!(@meta $place $key $variant key);)+ None }
            /// The key as it stands in JSON.
            #[must_use]
            pub fn key(self) -> &'static str { match self { $(Self::$variant => $key),+ } }
        }
    };
    (@payload payload $key:literal $variant:ident $k:ident) => { if $k == $key.as_bytes() { return Some(Self::$variant) } };
    (@payload meta $key:literal $variant:ident $k:ident) => {};
    (@meta meta $key:literal $variant:ident $k:ident) => { if $k == $key.as_bytes() { return Some(Self::$variant) } };
    (@meta payload $key:literal $variant:ident $k:ident) => {};
}

members! {
    Name = payload "name",
    Uri = payload "uri",
    Arguments = payload "arguments",
    Meta = payload "_meta",
    Cursor = payload "cursor",
    RequestId = payload "requestId",
    ProgressToken = payload "progressToken",
    Level = payload "level",
    Logger = payload "logger",
    Ref = payload "ref",
    RequestState = payload "requestState",
    InputResponses = payload "inputResponses",
    InputRequests = payload "inputRequests",
    Task = payload "task",
    TaskId = payload "taskId",
    Tasks = payload "tasks",
    ProtocolVersion = payload "protocolVersion",
    SupportedVersions = payload "supportedVersions",
    Capabilities = payload "capabilities",
    ClientInfo = payload "clientInfo",
    ServerInfo = payload "serverInfo",
    Instructions = payload "instructions",
    Notifications = payload "notifications",
    Reason = payload "reason",
    ResultType = payload "resultType",
    TimeToLive = payload "ttlMs",
    CacheScope = payload "cacheScope",
    NextCursor = payload "nextCursor",
    IsError = payload "isError",
    Content = payload "content",
    Contents = payload "contents",
    StructuredContent = payload "structuredContent",
    Messages = payload "messages",
    Mode = payload "mode",
    ElicitationId = payload "elicitationId",
    ErrorCode = payload "code",
    ErrorMessage = payload "message",
    ErrorData = payload "data",
    MetaProgressToken = meta "progressToken",
    MetaProtocolVersion = meta "io.modelcontextprotocol/protocolVersion",
    MetaClientCapabilities = meta "io.modelcontextprotocol/clientCapabilities",
    MetaClientInfo = meta "io.modelcontextprotocol/clientInfo",
    MetaLogLevel = meta "io.modelcontextprotocol/logLevel",
    MetaSubscriptionId = meta "io.modelcontextprotocol/subscriptionId",
    MetaServerInfo = meta "io.modelcontextprotocol/serverInfo",
    MetaRelatedTask = meta "io.modelcontextprotocol/related-task",
    MetaTraceParent = meta "traceparent",
}

/// Why bytes are not a message, with the id if one could be read, so that the answer can name it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{fault}")]
pub struct ParseError {
    /// What is wrong.
    pub fault: ParseFault,
    /// The request's id, if it was read before the fault.
    pub id: Option<HostId>,
}

/// What is wrong with a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseFault {
    /// Not acceptable JSON.
    #[error("{0}")]
    Json(#[from] JsonFault),
    /// An array, where one message is expected.
    #[error("a batch is not allowed here: send one message")]
    Batch,
    /// JSON, but not an object.
    #[error("a JSON-RPC message must be an object")]
    NotAnObject,
    /// `jsonrpc` is absent or not `"2.0"`.
    #[error("\"jsonrpc\" must be \"2.0\"")]
    Version,
    /// The id is neither a string nor an integer.
    #[error("\"id\" must be a string or an integer")]
    Id,
    /// The method is not a string.
    #[error("\"method\" must be a string")]
    Method,
    /// `params` is not an object.
    #[error("\"params\" must be an object")]
    Params,
    /// Neither a request, a notification nor a response.
    #[error("the message has neither a method nor exactly one of result and error")]
    Shape,
}

impl ParseFault {
    /// The JSON-RPC code for it.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::Json(JsonFault::DuplicateKey(_)) => -32600,
            Self::Json(_) => -32700,
            Self::Params => -32602,
            _ => -32600,
        }
    }
}

/// A parsed message. Cheap to move; cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: Bytes,
    kind: Kind,
    extent: Span,
    id: Option<Span>,
    method: Option<Span>,
    payload: Option<Span>,
    members: Vec<(Member, ObjectMember)>,
}

#[derive(Default)]
struct Walk {
    version: Option<Span>,
    id: Option<Span>,
    method: Option<Span>,
    params: Option<Span>,
    result: Option<Span>,
    error: Option<Span>,
    members: Vec<(Member, ObjectMember)>,
}

fn once(slot: &mut Option<Span>, span: Span, key: &'static str) -> Result<(), JsonFault> {
    match slot.replace(span) {
        None => Ok(()),
        Some(_) => Err(JsonFault::DuplicateKey(key)),
    }
}

/// The key without quotes, decoded if it has escapes, so that `na\u006de` is `name`.
fn key_bytes<'a>(bytes: &'a [u8], key: Span) -> Cow<'a, [u8]> {
    let quoted = key.of(bytes);
    if quoted.contains(&b'\\') {
        Cow::Owned(unquote(quoted).into_owned().into_bytes())
    } else {
        Cow::Borrowed(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default())
    }
}

impl Walk {
    fn run(&mut self, bytes: &[u8], scanner: &mut Scanner<'_>) -> Result<Span, JsonFault> {
        scanner.object(|scanner, key| match key_bytes(bytes, key).as_ref() {
            b"jsonrpc" => once(&mut self.version, scanner.value()?, "jsonrpc"),
            b"id" => once(&mut self.id, scanner.value()?, "id"),
            b"method" => once(&mut self.method, scanner.value()?, "method"),
            b"params" => {
                let span = Self::payload(&mut self.members, bytes, scanner)?;
                once(&mut self.params, span, "params")
            }
            b"result" => {
                let span = Self::payload(&mut self.members, bytes, scanner)?;
                once(&mut self.result, span, "result")
            }
            b"error" => {
                let span = Self::payload(&mut self.members, bytes, scanner)?;
                once(&mut self.error, span, "error")
            }
            _ => scanner.value().map(|_| ()),
        })
    }

    fn payload(
        members: &mut Vec<(Member, ObjectMember)>,
        bytes: &[u8],
        scanner: &mut Scanner<'_>,
    ) -> Result<Span, JsonFault> {
        if scanner.next_kind()? != ValueKind::Object {
            return scanner.value();
        }
        if !members.is_empty() {
            // Two payloads in one message: the shape check refuses it, the members would be mixed up.
            return scanner.value();
        }
        scanner.object(|scanner, key| {
            let Some(member) = Member::in_payload(&key_bytes(bytes, key)) else {
                return scanner.value().map(|_| ());
            };
            let value = if member == Member::Meta && scanner.next_kind()? == ValueKind::Object {
                scanner.object(|scanner, key| {
                    let known = Member::in_meta(&key_bytes(bytes, key));
                    let value = scanner.value()?;
                    known.map_or(Ok(()), |member| Self::note(members, member, key, value))
                })?
            } else {
                scanner.value()?
            };
            Self::note(members, member, key, value)
        })
    }

    fn note(
        members: &mut Vec<(Member, ObjectMember)>,
        member: Member,
        key: Span,
        value: Span,
    ) -> Result<(), JsonFault> {
        if members.iter().any(|(known, _)| *known == member) {
            return Err(JsonFault::DuplicateKey(member.key()));
        }
        if members.capacity() == 0 {
            members.reserve(8);
        }
        members.push((member, ObjectMember { key, value }));
        Ok(())
    }
}

fn is_id(raw: &[u8]) -> bool {
    match kind_of(raw) {
        Some(ValueKind::String) => true,
        Some(ValueKind::Number) => !raw.iter().any(|b| matches!(b, b'.' | b'e' | b'E')),
        _ => false,
    }
}

impl Message {
    /// Parses exactly one message.
    ///
    /// # Errors
    /// What is wrong, with the id if it was readable.
    pub fn parse(bytes: Bytes, limits: JsonLimits) -> Result<Self, ParseError> {
        let without_id = |fault: JsonFault| ParseError {
            fault: fault.into(),
            id: None,
        };
        check_utf8(&bytes).map_err(without_id)?;
        let mut scanner = Scanner::new(&bytes, limits);
        match scanner.next_kind().map_err(without_id)? {
            ValueKind::Object => {}
            other => {
                let fault = match scanner.value().and_then(|_| scanner.end()) {
                    Err(fault) => fault.into(),
                    Ok(()) if other == ValueKind::Array => ParseFault::Batch,
                    Ok(()) => ParseFault::NotAnObject,
                };
                return Err(ParseError { fault, id: None });
            }
        }
        let mut walk = Walk::default();
        let walked = walk
            .run(&bytes, &mut scanner)
            .and_then(|extent| scanner.end().map(|()| extent));
        let id = walk.id.filter(|span| is_id(span.of(&bytes)));
        let fail = |fault: ParseFault| ParseError {
            fault,
            id: id.map(|span| HostId::from_raw(bytes.slice(span.range()))),
        };
        let extent = match walked {
            Ok(extent) => extent,
            // Broken JSON may have been cut anywhere: only a duplicate key leaves the id trustworthy.
            Err(fault @ JsonFault::DuplicateKey(key)) if key != "id" => return Err(fail(fault.into())),
            Err(fault) => return Err(without_id(fault)),
        };
        if walk.version.map(|span| unquote(span.of(&bytes))) != Some(Cow::Borrowed("2.0")) {
            return Err(fail(ParseFault::Version));
        }
        let null_id = walk.id.is_some_and(|span| span.of(&bytes) == b"null");
        let (kind, payload) = match (walk.method, walk.params, walk.result, walk.error) {
            (Some(method), params, None, None) => {
                if kind_of(method.of(&bytes)) != Some(ValueKind::String) {
                    return Err(fail(ParseFault::Method));
                }
                if walk.id.is_some() && id.is_none() {
                    return Err(fail(ParseFault::Id));
                }
                if params.is_some_and(|span| kind_of(span.of(&bytes)) != Some(ValueKind::Object)) {
                    return Err(fail(ParseFault::Params));
                }
                (
                    if id.is_some() {
                        Kind::Request
                    } else {
                        Kind::Notification
                    },
                    params,
                )
            }
            (None, None, Some(result), None) if id.is_some() => (Kind::Result, Some(result)),
            // The id of an error may be absent or null: the peer could not read it.
            (None, None, None, Some(error)) if id.is_some() || walk.id.is_none() || null_id => {
                (Kind::Error, Some(error))
            }
            (None, None, Some(_), None) | (None, None, None, Some(_)) => return Err(fail(ParseFault::Id)),
            _ => return Err(fail(ParseFault::Shape)),
        };
        let method = walk.method;
        let members = walk.members;
        Ok(Self {
            bytes,
            kind,
            extent,
            id,
            method,
            payload,
            members,
        })
    }

    /// Splits a batch into its messages' bytes.
    ///
    /// # Errors
    /// If the text is not a JSON array.
    pub fn split_batch(bytes: &Bytes, limits: JsonLimits) -> Result<Vec<Bytes>, JsonFault> {
        check_utf8(bytes)?;
        let mut scanner = Scanner::new(bytes, limits);
        let mut out = Vec::new();
        scanner.array(|scanner| {
            out.push(bytes.slice(scanner.value()?.range()));
            Ok(())
        })?;
        scanner.end()?;
        Ok(out)
    }

    /// The bytes as received.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What the message is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The span of the outer object, without surrounding whitespace.
    #[must_use]
    pub fn extent(&self) -> Span {
        self.extent
    }

    /// Where the id stands.
    #[must_use]
    pub fn id_span(&self) -> Option<Span> {
        self.id
    }

    /// The id as the peer wrote it.
    #[must_use]
    pub fn id(&self) -> Option<HostId> {
        self.id.map(|span| HostId::from_raw(self.slice(span)))
    }

    /// The id as ours, for a response to a request of ours.
    #[must_use]
    pub fn wire_id(&self) -> Option<WireId> {
        WireId::from_raw(self.id?.of(&self.bytes))
    }

    /// The method, decoded.
    #[must_use]
    pub fn method(&self) -> Option<Cow<'_, str>> {
        self.method.map(|span| unquote(span.of(&self.bytes)))
    }

    /// Where the quoted method stands.
    #[must_use]
    pub fn method_span(&self) -> Option<Span> {
        self.method
    }

    /// Where `params`, `result` or `error` stands.
    #[must_use]
    pub fn payload(&self) -> Option<Span> {
        self.payload
    }

    /// Whether the payload is an object.
    #[must_use]
    pub fn payload_is_object(&self) -> bool {
        self.payload
            .is_some_and(|span| kind_of(span.of(&self.bytes)) == Some(ValueKind::Object))
    }

    /// A noted member, key and value.
    #[must_use]
    pub fn noted(&self, member: Member) -> Option<ObjectMember> {
        self.members
            .iter()
            .find(|(known, _)| *known == member)
            .map(|(_, spans)| *spans)
    }

    /// The span of a noted member's value.
    #[must_use]
    pub fn span(&self, member: Member) -> Option<Span> {
        self.noted(member).map(|spans| spans.value)
    }

    /// The JSON text of a noted member's value.
    #[must_use]
    pub fn raw(&self, member: Member) -> Option<&[u8]> {
        self.span(member).map(|span| span.of(&self.bytes))
    }

    /// The JSON text of a noted member's value, sharing the message's bytes.
    #[must_use]
    pub fn shared(&self, member: Member) -> Option<Bytes> {
        self.span(member).map(|span| self.slice(span))
    }

    /// A noted member's value if it is a string, decoded.
    #[must_use]
    pub fn text(&self, member: Member) -> Option<Cow<'_, str>> {
        self.raw(member)
            .filter(|raw| kind_of(raw) == Some(ValueKind::String))
            .map(unquote)
    }

    /// The bytes of a span of this message, shared.
    #[must_use]
    pub fn slice(&self, span: Span) -> Bytes {
        if (span.end as usize) <= self.bytes.len() && span.start <= span.end {
            self.bytes.slice(span.range())
        } else {
            Bytes::new()
        }
    }

    /// The code of an error response.
    #[must_use]
    pub fn error_code(&self) -> Option<i64> {
        if self.kind != Kind::Error {
            return None;
        }
        std::str::from_utf8(self.raw(Member::ErrorCode)?)
            .ok()?
            .parse()
            .ok()
    }
}

#[cfg(test)]
mod tests;
