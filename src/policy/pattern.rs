//! One item pattern of a rule: a server glob and a name or URI glob. Used by [`super::compile`] alone.
//!
//! Names are compared exactly as they are: no case folding, no trimming, no decoding, so a look-alike matches nothing
//! that names the real one. URIs are different, since a read goes to the server even if no listing has the URI, and
//! servers decode and normalise them: a deny rule matches if the URI *or* a normal form of it matches, an allow rule
//! only if all do. So `..`, doubled slashes, percent-encoding and case of scheme or host walk around neither.

use std::borrow::Cow;

use globset::{GlobBuilder, GlobMatcher};

/// Longest pattern accepted, in bytes. Far above any name; keeps compiled patterns small.
const MAX_PATTERN: usize = 1024;

/// How often percent-decoding is repeated on text that still changes.
const MAX_DECODES: usize = 8;

const META: [char; 6] = ['*', '?', '[', ']', '{', '}'];

/// A compiled glob. The shapes that nearly all patterns have need no regular expression.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Any,
    Exact(String),
    Prefix(String),
    Glob(GlobMatcher),
}

impl Text {
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        if pattern.len() > MAX_PATTERN {
            return Err(format!("the pattern is longer than {MAX_PATTERN} bytes"));
        }
        if pattern == "*" {
            return Ok(Self::Any);
        }
        let special = |text: &str| text.contains(META) || text.contains('\\');
        if !special(pattern) {
            return Ok(Self::Exact(pattern.to_owned()));
        }
        if let Some(prefix) = pattern.strip_suffix('*')
            && !special(prefix)
        {
            return Ok(Self::Prefix(prefix.to_owned()));
        }
        let glob = GlobBuilder::new(pattern)
            .literal_separator(false)
            .backslash_escape(true)
            .build()
            .map_err(|error| format!("not a glob: {}", error.kind()))?;
        Ok(Self::Glob(glob.compile_matcher()))
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == text,
            Self::Prefix(prefix) => text.starts_with(prefix.as_str()),
            Self::Glob(glob) => glob.is_match(text),
        }
    }
}

/// `server/name` for tools, prompts and reverse requests.
#[derive(Clone, Debug)]
pub(super) struct NamePattern {
    server: Text,
    local: Text,
}

impl NamePattern {
    /// A pattern as written in a rule.
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        let (server, local) = split(pattern)?;
        Ok(Self {
            server: Text::new(server)?,
            local: Text::new(local)?,
        })
    }

    /// A local pattern of one server, as written in its shorthand.
    pub(super) fn of_server(server: &str, local: &str) -> Result<Self, String> {
        if local.is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        Ok(Self {
            server: Text::Exact(server.to_owned()),
            local: Text::new(local)?,
        })
    }

    pub(super) fn matches(&self, server: &str, local: &str) -> bool {
        self.server.matches(server) && self.local.matches(local)
    }

    /// Whether the name part can match one of these words at all.
    pub(super) fn can_be(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.local.matches(word))
    }
}

/// `server/URI` for resources and their templates.
#[derive(Clone, Debug)]
pub(super) struct UriPattern {
    server: Text,
    raw: Text,
    /// The pattern in the forms that a URI's normal forms are compared with; one that matches is enough.
    normal: Vec<Text>,
    source: String,
}

impl UriPattern {
    /// A pattern as written in a rule.
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        let (server, uri) = split(pattern)?;
        if server.contains(':') {
            return Err(format!(
                "a resource pattern begins with the server: `*/{pattern}` for all servers"
            ));
        }
        Self::build(Text::new(server)?, uri)
    }

    /// A URI pattern of one server, as written in its shorthand.
    pub(super) fn of_server(server: &str, uri: &str) -> Result<Self, String> {
        if uri.is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        Self::build(Text::Exact(server.to_owned()), uri)
    }

    fn build(server: Text, uri: &str) -> Result<Self, String> {
        let raw = Text::new(uri)?;
        let normal = match &raw {
            Text::Exact(exact) => vec![Text::Exact(normal_form(exact)), Text::Exact(plain_form(exact))],
            _ => vec![Text::new(&normal_pattern(uri))?],
        };
        Ok(Self {
            server,
            raw,
            normal,
            source: uri.to_owned(),
        })
    }

    pub(super) fn of(&self, server: &str) -> bool {
        self.server.matches(server)
    }

    fn matches_normal(&self, form: &str) -> bool {
        self.normal.iter().any(|pattern| pattern.matches(form))
    }

    /// For deny: any spelling of the URI that a server could take for a matching one.
    pub(super) fn touches(&self, uri: &Uri<'_>) -> bool {
        self.raw.matches(uri.raw) || uri.normal.iter().any(|form| self.matches_normal(form))
    }

    /// For allow: the URI matches, and so does whatever a server could make of it.
    pub(super) fn holds(&self, uri: &Uri<'_>) -> bool {
        self.raw.matches(uri.raw) && uri.normal.iter().all(|form| self.matches_normal(form))
    }

    /// For deny: every URI made from the template matches.
    pub(super) fn covers_template(&self, template: &str) -> bool {
        let only_stars =
            !self.source.contains(|c| c != '*' && META.contains(&c)) && !self.source.contains('\\');
        // With nothing but stars, the stand-in for an expression can only have been matched by a star, and a
        // star matches every expansion.
        only_stars && self.raw.matches(&with_stand_ins(template))
    }

    /// For allow: some URI made from the template may match. Errs on the side of yes: what is listed too much is
    /// still decided by its URI when it is read.
    pub(super) fn may_match_template(&self, template: &str) -> bool {
        let special = |c: char| META.contains(&c) || c == '\\';
        let pattern_head = self.source.split(special).next().unwrap_or_default();
        let pattern_tail = self.source.rsplit(special).next().unwrap_or_default();
        let template_head = template.split('{').next().unwrap_or_default();
        let template_tail = template.rsplit('}').next().unwrap_or_default();
        let heads = pattern_head.starts_with(template_head) || template_head.starts_with(pattern_head);
        let tails = pattern_tail.ends_with(template_tail) || template_tail.ends_with(pattern_tail);
        heads && tails
    }
}

/// A URI in the forms that rules look at.
pub(super) struct Uri<'a> {
    raw: &'a str,
    /// Parsed, then decoded; and decoded alone: dot segments removed before and after decoding are not the same when
    /// a part is encoded twice, and servers do either.
    normal: [String; 2],
}

impl<'a> Uri<'a> {
    pub(super) fn new(raw: &'a str) -> Self {
        Self {
            raw,
            normal: [normal_form(raw), plain_form(raw)],
        }
    }
}

fn split(pattern: &str) -> Result<(&str, &str), String> {
    match pattern.split_once('/') {
        Some((server, local)) if !server.is_empty() && !local.is_empty() => Ok((server, local)),
        Some(_) => Err("both sides of the first `/` need a pattern: `server/name`".to_owned()),
        None => Err(format!("`server/name` is needed: `*/{pattern}` for all servers")),
    }
}

/// What a lenient server could make of a URI: parsed, percent-decoded until nothing changes, backslashes as slashes,
/// scheme and host in lower case, no user, no doubled slashes, no dot segments.
fn normal_form(uri: &str) -> String {
    let parsed = url::Url::parse(uri).ok().map(|mut url| {
        // Refused for URLs that cannot have a user, which is as good.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        String::from(url)
    });
    plain_form(parsed.as_deref().unwrap_or(uri))
}

/// The same without parsing.
fn plain_form(uri: &str) -> String {
    let decoded = percent_decode(uri, false);
    let text: String = decoded
        .chars()
        .filter(|c| !c.is_control())
        .map(|c| if c == '\\' { '/' } else { c })
        .collect();
    let (head, rest) = split_head(text.trim());
    let mut out = head.to_lowercase();
    collapse(rest, &mut out);
    out
}

/// The same for a pattern as far as globs allow it.
fn normal_pattern(pattern: &str) -> String {
    let decoded = percent_decode(pattern, true);
    let (head, rest) = split_head(&decoded);
    let mut out = head.to_lowercase();
    let mut last = ' ';
    for c in rest.chars() {
        if !(c == '/' && last == '/') {
            out.push(c);
        }
        last = c;
    }
    out
}

/// Scheme and authority, and what follows them.
fn split_head(text: &str) -> (&str, &str) {
    let Some(colon) = text.find(':') else {
        return ("", text);
    };
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.*?".contains(c);
    if !text
        .get(..colon)
        .is_some_and(|scheme| scheme.chars().all(is_scheme))
    {
        return ("", text);
    }
    let after = text.get(colon + 1..).unwrap_or_default();
    let head = match after.strip_prefix("//") {
        Some(authority) => colon + 3 + authority.find('/').unwrap_or(authority.len()),
        None => colon + 1,
    };
    text.split_at_checked(head).unwrap_or((text, ""))
}

/// Removes empty, `.` and `..` segments. A leading and a trailing slash stay.
fn collapse(path: &str, out: &mut String) {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    if path.starts_with('/') {
        out.push('/');
    }
    out.push_str(&kept.join("/"));
    if !kept.is_empty() && path.ends_with('/') {
        out.push('/');
    }
}

/// Decodes `%XX` until nothing changes. In a pattern, a decoded glob character stands for itself.
fn percent_decode(text: &str, in_pattern: bool) -> Cow<'_, str> {
    let mut current = Cow::Borrowed(text);
    for _ in 0..MAX_DECODES {
        if !current.contains('%') {
            break;
        }
        let next = decode_once(&current, in_pattern);
        if next == current {
            break;
        }
        current = Cow::Owned(next);
    }
    current
}

fn decode_once(text: &str, in_pattern: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let pair = tail.split_first_chunk::<2>().filter(|_| byte == b'%');
        let decoded = pair.and_then(|([high, low], after)| {
            let value = char::from(*high).to_digit(16)? * 16 + char::from(*low).to_digit(16)?;
            Some((u8::try_from(value).ok()?, after))
        });
        match decoded {
            Some((value, after)) => {
                if in_pattern && b"*?[]{}\\!".contains(&value) {
                    out.extend_from_slice(&[b'[', value, b']']);
                } else {
                    out.push(value);
                }
                rest = after;
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn with_stand_ins(template: &str) -> String {
    let mut out = String::with_capacity(template.len());
    let mut inside = false;
    for c in template.chars() {
        match c {
            '{' if !inside => {
                inside = true;
                out.push('\u{1}');
            }
            '}' if inside => inside = false,
            _ if inside => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests;
