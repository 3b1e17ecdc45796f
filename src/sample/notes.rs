//! `notes`: keeps short texts by title, offers each as a resource.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use super::feature::{Call, Change, Feature};
use super::rpc::Fault;

const LONGEST_TITLE: usize = 128;
const LONGEST_TEXT: usize = 64 << 10;
const MOST_NOTES: usize = 10_000;
const MOST_MATCHES: usize = 50;
const TEMPLATE: &str = "note:///{title}";
const PROMPT: &str = "summarise_notes";

/// The notes, by title.
#[derive(Default)]
pub(super) struct Notes(Mutex<BTreeMap<String, String>>);

impl Notes {
    fn notes(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, arguments: &Map<String, Value>) -> Result<(String, Vec<Change>), String> {
        let [title, text] = texts(arguments, ["title", "text"])?;
        if title.trim().is_empty()
            || title.chars().count() > LONGEST_TITLE
            || title.chars().any(char::is_control)
        {
            return Err(format!(
                "`title` must be one line of 1 to {LONGEST_TITLE} characters"
            ));
        }
        if text.len() > LONGEST_TEXT {
            return Err(format!("`text` is longer than {LONGEST_TEXT} bytes"));
        }
        let mut notes = self.notes();
        if notes.len() >= MOST_NOTES && !notes.contains_key(title) {
            return Err(format!("there are {MOST_NOTES} notes already; delete one first"));
        }
        let changed = Change::Resource(uri_of(title));
        if notes.insert(title.to_owned(), text.to_owned()).is_some() {
            return Ok((format!("Replaced the note \"{title}\"."), vec![changed]));
        }
        Ok((
            format!("Added the note \"{title}\"."),
            vec![Change::List, changed],
        ))
    }

    fn delete(&self, arguments: &Map<String, Value>) -> Result<(String, Vec<Change>), String> {
        let [title] = texts(arguments, ["title"])?;
        match self.notes().remove(title) {
            Some(_) => {
                let changes = vec![Change::List, Change::Resource(uri_of(title))];
                Ok((format!("Deleted the note \"{title}\"."), changes))
            }
            None => Err(format!("there is no note \"{title}\"")),
        }
    }

    fn search(&self, arguments: &Map<String, Value>) -> Result<Value, String> {
        let [query] = texts(arguments, ["query"])?;
        let query = query.to_lowercase();
        let mut matches = Vec::new();
        let mut total = 0u32;
        for (title, text) in self.notes().iter() {
            if title.to_lowercase().contains(&query) || text.to_lowercase().contains(&query) {
                total += 1;
                if matches.len() < MOST_MATCHES {
                    let start: String = text.chars().take(200).collect();
                    matches.push(json!({"title": title, "uri": uri_of(title), "start": start}));
                }
            }
        }
        let found = json!({"matches": matches, "total": total});
        let text = found.to_string();
        Ok(json!({"content": [{"type": "text", "text": text}], "structuredContent": found}))
    }
}

impl Feature for Notes {
    fn info(&self) -> (Value, &'static str) {
        let info = json!({"name": "notes", "title": "Notes", "version": env!("CARGO_PKG_VERSION")});
        (
            info,
            "Keeps short notes by title, in memory only. Each note is also a resource, note:///TITLE.",
        )
    }

    fn capabilities(&self) -> Value {
        json!({
            "tools": {}, "resources": {"subscribe": true, "listChanged": true}, "prompts": {}, "completions": {},
        })
    }

    fn tools(&self) -> Value {
        let string = |description: &str| json!({"type": "string", "description": description});
        json!([
            {
                "name": "add_note",
                "title": "Add a note",
                "description": "Keeps a text under a title. A note with the same title is replaced.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string", "description": "One line.", "minLength": 1, "maxLength": LONGEST_TITLE},
                        "text": string("The text of the note."),
                    },
                    "required": ["title", "text"],
                    "additionalProperties": false,
                },
                "annotations": {
                    "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false,
                },
            },
            {
                "name": "search_notes",
                "title": "Search the notes",
                "description": "Finds the notes whose title or text contains the words of the query as they stand.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"query": string("Letters are compared without case. Empty finds every note.")},
                    "required": ["query"],
                    "additionalProperties": false,
                },
                "outputSchema": {
                    "type": "object",
                    "properties": {
                        "matches": {
                            "type": "array",
                            "description": format!("The first {MOST_MATCHES}, by title."),
                            "items": {
                                "type": "object",
                                "properties": {
                                    "title": {"type": "string"},
                                    "uri": {"type": "string"},
                                    "start": {"type": "string"},
                                },
                                "required": ["title", "uri", "start"],
                            },
                        },
                        "total": {"type": "integer", "minimum": 0},
                    },
                    "required": ["matches", "total"],
                },
                "annotations": {"readOnlyHint": true, "openWorldHint": false},
            },
            {
                "name": "delete_note",
                "title": "Delete a note",
                "description": "Forgets the note with this title.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"title": string("The exact title.")},
                    "required": ["title"],
                    "additionalProperties": false,
                },
                "annotations": {
                    "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false,
                },
            },
        ])
    }

    fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        _call: &Call<'_>,
    ) -> Option<(Value, Vec<Change>)> {
        let said = |(text, changes): (String, Vec<Change>)| {
            (json!({"content": [{"type": "text", "text": text}]}), changes)
        };
        let done = match tool {
            "add_note" => self.add(arguments).map(said),
            "delete_note" => self.delete(arguments).map(said),
            "search_notes" => self.search(arguments).map(|found| (found, Vec::new())),
            _ => return None,
        };
        Some(done.unwrap_or_else(|text| (tool_error(&text), Vec::new())))
    }

    fn resources(&self) -> Value {
        let resource = |title: &String| json!({"uri": uri_of(title), "name": title, "title": title, "mimeType": "text/plain"});
        Value::Array(self.notes().keys().map(resource).collect())
    }

    fn templates(&self) -> Value {
        json!([{
            "uriTemplate": TEMPLATE, "name": "note", "title": "A note by its title", "mimeType": "text/plain",
            "description": "The text of the note with this title.",
        }])
    }

    fn read(&self, uri: &str) -> Option<Value> {
        let text = self.notes().get(&title_of(uri)?).cloned()?;
        Some(json!([{"uri": uri, "mimeType": "text/plain", "text": text}]))
    }

    fn read_caching(&self) -> (u64, &'static str) {
        (0, "private")
    }

    fn same(&self, one: &str, other: &str) -> bool {
        title_of(one) == title_of(other)
    }

    fn may_subscribe(&self, uri: &str) -> bool {
        title_of(uri).is_some()
    }

    fn prompts(&self) -> Value {
        json!([{
            "name": PROMPT,
            "title": "Summarise the notes",
            "description": "Asks for a summary of the notes.",
            "arguments": [{
                "name": "title", "title": "Title", "required": false,
                "description": "Only the note with this title; all notes without it.",
            }],
        }])
    }

    fn prompt(&self, name: &str, arguments: &Map<String, Value>) -> Result<Value, Fault> {
        if name != PROMPT {
            return Err(Fault::params(format!("unknown prompt: {name}")));
        }
        let wanted = arguments.get("title").and_then(Value::as_str);
        let notes = self.notes();
        if let Some(title) = wanted.filter(|title| !notes.contains_key(*title)) {
            return Err(Fault::params(format!("there is no note \"{title}\"")));
        }
        let mut text = "Summarise these notes in a few sentences.\n".to_owned();
        for (title, note) in notes
            .iter()
            .filter(|(title, _)| wanted.is_none_or(|wanted| wanted == *title))
        {
            text.push_str(&format!("\n# {title}\n{note}\n"));
        }
        Ok(json!({
            "description": "A summary of the notes",
            "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
        }))
    }

    fn complete(&self, reference: &Value, argument: &str, prefix: &str) -> Result<Vec<String>, Fault> {
        let part = |name: &str| reference.get(name).and_then(Value::as_str);
        let known = match part("type") {
            Some("ref/prompt") => part("name") == Some(PROMPT),
            Some("ref/resource") => part("uri") == Some(TEMPLATE),
            _ => false,
        };
        if !known || argument != "title" {
            return Err(Fault::params("unknown reference or argument"));
        }
        let prefix = prefix.to_lowercase();
        let fits = |title: &&String| title.to_lowercase().starts_with(&prefix);
        Ok(self.notes().keys().filter(fits).cloned().collect())
    }
}

/// Exactly these arguments, all strings.
fn texts<'a, const N: usize>(
    arguments: &'a Map<String, Value>,
    names: [&str; N],
) -> Result<[&'a str; N], String> {
    if let Some(other) = arguments.keys().find(|key| !names.contains(&key.as_str())) {
        return Err(format!("unknown argument `{other}`"));
    }
    let mut found = [""; N];
    for (place, name) in found.iter_mut().zip(names) {
        let text = arguments.get(name).and_then(Value::as_str);
        *place = text.ok_or_else(|| format!("`{name}` must be a string"))?;
    }
    Ok(found)
}

/// A tool that could not do its work, in words for the model.
pub(super) fn tool_error(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": true})
}

/// The URI of a title: every byte that is not unreserved is percent-encoded.
pub(super) fn uri_of(title: &str) -> String {
    let mut uri = "note:///".to_owned();
    for byte in title.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

/// The title that a URI names; `None` if it is no URI of a note.
pub(super) fn title_of(uri: &str) -> Option<String> {
    let mut rest = uri.strip_prefix("note:///")?.bytes();
    let mut title = Vec::new();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            title.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        title.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(title).ok().filter(|title| !title.is_empty())
}
