//! A listing on disk: one JSON file whose items are the received bytes.
//!
//! Several processes may share the folder: a file is replaced as a whole, the last writer wins, and every listing in
//! it is true of the same server. What cannot be read is ignored by the caller with a warning, never half used.

use bytes::Bytes;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ItemList, Listing, ServerInfo};
use crate::catalog::offers::Offers;
use crate::catalog::{ListKind, PerKind};
use crate::revision::Revision;
use crate::wire::Span;
use crate::wire::json::{JsonLimits, Scanner, ValueKind, check_utf8, kind_of, quote, unquote};

/// Changes when older files can no longer be understood.
const FORMAT: &str = "1";
/// A file larger than this is not ours.
const LARGEST_FILE: u64 = 256 * 1024 * 1024;

/// Why a file on disk was not used.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// The file system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not a listing of ours, or damaged.
    #[error("the file is damaged or not a listing")]
    Damaged,
    /// Written by another version of manifold.
    #[error("the file has another format")]
    OtherFormat,
    /// Recorded for another configuration of the server.
    #[error("the file was recorded for another configuration of this server")]
    OtherServer,
}

impl Listing {
    /// Writes the listing to `path`, replacing the file as a whole. `key` says what it was read from (a digest of
    /// the server's configuration and the capability set): only the same key reads it again. Blocks.
    ///
    /// # Errors
    /// If the file system refuses; an older file stays as it was.
    pub fn save(&self, path: &Path, key: &str) -> io::Result<()> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let unique = format!(
            "{}.{}.tmp",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        );
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let temporary = path.with_extension(unique);
        let written = File::create(&temporary)
            .and_then(|mut file| file.write_all(&self.to_file(key)))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The first failure is the one to report; the leftover is in the way of nobody.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Reads a listing back; `None` if there is no file. Blocks.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or was written for another key or by another version. The caller
    /// goes on without it and says so.
    pub fn load(path: &Path, key: &str) -> Result<Option<Self>, StoreFault> {
        let size = match fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if size > LARGEST_FILE {
            return Err(StoreFault::Damaged);
        }
        Self::from_file(&Bytes::from(fs::read(path)?), key).map(Some)
    }

    fn to_file(&self, key: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.total_bytes() + 4096);
        let or_empty = |raw: &Bytes| {
            if raw.is_empty() {
                Bytes::from_static(b"{}")
            } else {
                raw.clone()
            }
        };
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        put(format!("{{\"format\":{FORMAT},\n\"key\":{},\n", quote(key)).as_bytes());
        put(format!("\"revision\":{},\n\"serverInfo\":", quote(self.revision.as_str())).as_bytes());
        put(&or_empty(&self.server.raw));
        put(b",\n\"capabilities\":");
        put(&or_empty(&self.offers.raw));
        if let Some(text) = &self.instructions {
            put(format!(",\n\"instructions\":{}", quote(text)).as_bytes());
        }
        put(format!(",\n\"incomplete\":{}", self.incomplete).as_bytes());
        for kind in ListKind::ALL {
            let list = self.lists.get(kind);
            let (name, ttl, public) = (kind.result_key(), list.ttl_ms, list.public);
            put(format!(",\n\"{name}\":{{\"ttlMs\":{ttl},\"public\":{public},\"items\":[").as_bytes());
            for (at, item) in list.items.iter().enumerate() {
                put(if at == 0 { b"\n" } else { b",\n" });
                put(item);
            }
            put(b"]}");
        }
        put(b"}\n");
        out
    }

    fn from_file(bytes: &Bytes, key: &str) -> Result<Self, StoreFault> {
        check_utf8(bytes).map_err(|_| StoreFault::Damaged)?;
        let members = all_members(bytes, Span::new(0, bytes.len()), true).ok_or(StoreFault::Damaged)?;
        let find = |name: &str| {
            members
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, span)| *span)
        };
        let text = |name: &str| {
            find(name)
                .filter(|span| kind_of(span.of(bytes)) == Some(ValueKind::String))
                .map(|span| unquote(span.of(bytes)))
        };
        if find("format").map(|span| span.text(bytes)) != Some(FORMAT) {
            return Err(StoreFault::OtherFormat);
        }
        if text("key").as_deref() != Some(key) {
            return Err(StoreFault::OtherServer);
        }
        let revision = text("revision")
            .and_then(|version| Revision::parse(&version))
            .ok_or(StoreFault::OtherFormat)?;
        let raw = |name: &str| {
            find(name)
                .filter(|span| kind_of(span.of(bytes)) == Some(ValueKind::Object))
                .map(|span| bytes.slice(span.range()))
                .ok_or(StoreFault::Damaged)
        };
        let mut lists = PerKind::<ItemList>::default();
        for kind in ListKind::ALL {
            let span = find(kind.result_key()).ok_or(StoreFault::Damaged)?;
            *lists.get_mut(kind) = read_list(bytes, span).ok_or(StoreFault::Damaged)?;
        }
        Ok(Self {
            revision,
            server: ServerInfo::parse(raw("serverInfo")?),
            instructions: text("instructions").map(|text| Arc::from(&*text)),
            offers: Offers::parse(&raw("capabilities")?),
            lists,
            incomplete: find("incomplete").is_some_and(|span| span.of(bytes) == b"true"),
        })
    }
}

/// The members of an object of the file; `to_end` also checks that nothing follows it.
fn all_members(bytes: &[u8], span: Span, to_end: bool) -> Option<Vec<(String, Span)>> {
    let mut out = Vec::new();
    let mut scanner = Scanner::at(bytes, span, JsonLimits { depth: u32::MAX });
    scanner
        .object(|s, key| {
            out.push((unquote(key.of(bytes)).into_owned(), s.value()?));
            Ok(())
        })
        .ok()?;
    if to_end {
        scanner.end().ok()?;
    }
    Some(out)
}

fn read_list(bytes: &Bytes, span: Span) -> Option<ItemList> {
    let mut list = ItemList::default();
    let mut scanner = Scanner::at(bytes, span, JsonLimits { depth: u32::MAX });
    scanner
        .object(|s, key| {
            match key.of(bytes) {
                b"\"items\"" => {
                    s.array(|s| {
                        list.items.push(bytes.slice(s.value()?.range()));
                        Ok(())
                    })?;
                }
                b"\"ttlMs\"" => list.ttl_ms = s.value()?.text(bytes).parse().unwrap_or(0),
                b"\"public\"" => list.public = s.value()?.of(bytes) == b"true",
                _ => {
                    s.value()?;
                }
            }
            Ok(())
        })
        .ok()?;
    Some(list)
}
