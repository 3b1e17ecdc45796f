//! Reading what a server offers: every page of every list it serves, and the records of it on disk.
//!
//! A server that does not offer a kind is never asked for it; one that offers it and fails counts as empty, with
//! one warning. Used by the supervisor.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use super::connection::Connection;
use super::handshake::Opened;
use crate::catalog::ListKind;
use crate::catalog::listing::{ItemLimits, ListReader, Listing};
use crate::config;
use crate::crypto::sha256_hex;
use crate::session::CapabilitySet;
use crate::wire::json::quote;
use crate::wire::{Kind, Member};

/// One list that must be read again for one capability set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Wanted {
    /// Bits of the capability set; `None` for the base connection.
    pub set: Option<u16>,
    /// Which list.
    pub kind: ListKind,
}

/// How long the first reading waits for one list before it goes on without it.
const FIRST: Duration = Duration::from_secs(3);
/// How long any later page may take.
const LATER: Duration = Duration::from_secs(30);

/// The lists that a `list_changed` notification speaks of.
#[must_use]
pub fn kinds_of(method: &str) -> &'static [ListKind] {
    match method {
        "notifications/tools/list_changed" => &[ListKind::Tools],
        "notifications/prompts/list_changed" => &[ListKind::Prompts],
        "notifications/resources/list_changed" => &[ListKind::Resources, ListKind::Templates],
        _ => &[],
    }
}

fn item_limits(limits: &config::Limits) -> ItemLimits {
    ItemLimits {
        items: limits.list_items,
        item_bytes: limits.schema_bytes.as_usize(),
        total_bytes: limits.listing_bytes.as_usize(),
        depth: limits.json_depth,
        pages: limits.list_pages,
    }
}

struct Read {
    reader: ListReader,
    complete: bool,
}

/// Reads one list to its end.
async fn read_list(
    connection: &Arc<Connection>,
    kind: ListKind,
    limits: ItemLimits,
    limit: Duration,
) -> Read {
    let mut reader = ListReader::new(kind, limits, 0);
    let mut params = "{}".to_owned();
    let server = connection.server().clone();
    loop {
        let fault = match connection
            .own_request(kind.method(), &params, None, Some(limit))
            .await
        {
            Ok(message) if message.kind() == Kind::Result => match reader.add(&result_bytes(&message)) {
                Ok(Some(cursor)) => {
                    params = format!("{{\"cursor\":{}}}", String::from_utf8_lossy(&cursor));
                    continue;
                }
                Ok(None) => {
                    return Read {
                        reader,
                        complete: true,
                    };
                }
                Err(fault) => fault.to_string(),
            },
            Ok(message) => format!(
                "error {}: {}",
                message.error_code().unwrap_or_default(),
                message.text(Member::ErrorMessage).unwrap_or_default()
            ),
            Err(fault) => fault.message,
        };
        if !connection.is_closed() {
            tracing::warn!(%server, "{} failed, what it would have listed is left out: {fault}", kind.method());
        }
        reader.gave_up();
        return Read {
            reader,
            complete: false,
        };
    }
}

/// Reads everything after a handshake. The second value names the lists that were too slow and should be read again.
/// `None` if the connection went before the server had told everything: half a listing is none.
pub async fn read_all(
    connection: &Arc<Connection>,
    opened: &Opened,
    limits: &config::Limits,
) -> Option<(Listing, Vec<ListKind>)> {
    let mut listing = Listing::from_handshake(opened.revision, &opened.result);
    let kinds: Vec<ListKind> = ListKind::ALL
        .into_iter()
        .filter(|kind| listing.offers.serves(*kind))
        .collect();
    let reads = join_all(
        kinds
            .iter()
            .map(|kind| read_list(connection, *kind, item_limits(limits), FIRST)),
    )
    .await;
    let mut late = Vec::new();
    for (kind, read) in kinds.iter().zip(reads) {
        if !read.complete {
            late.push(*kind);
        }
        report(connection, read.reader.finish(&mut listing));
    }
    let cut = !late.is_empty() && connection.is_closed();
    (!cut).then_some((listing, late))
}

/// Reads some lists again; one that fails keeps what was known.
pub async fn read_kinds(
    connection: &Arc<Connection>,
    old: &Listing,
    kinds: &[ListKind],
    limits: &config::Limits,
) -> Listing {
    let mut listing = old.clone();
    let reads = join_all(
        kinds
            .iter()
            .filter(|kind| old.offers.serves(**kind))
            .map(|kind| read_list(connection, *kind, item_limits(limits), LATER)),
    )
    .await;
    listing.incomplete = false;
    for read in reads {
        if read.complete {
            report(connection, read.reader.finish(&mut listing));
        } else {
            listing.incomplete = true;
        }
    }
    listing
}

fn report(connection: &Connection, warnings: Vec<String>) {
    for warning in warnings {
        tracing::warn!(server = %connection.server(), "{warning}");
    }
}

/// The `params` of our listen request: the list flags that the server announces, and the URIs that hosts watch.
/// `None` if there is nothing to listen for.
#[must_use]
pub fn listen_filter(listing: Option<&Listing>, uris: &[String], tasks: &[String]) -> Option<String> {
    let listing = listing?;
    let mut parts = Vec::new();
    for (kind, flag) in [
        (ListKind::Tools, "toolsListChanged"),
        (ListKind::Prompts, "promptsListChanged"),
        (ListKind::Resources, "resourcesListChanged"),
    ] {
        if listing.offers.announces(kind) {
            parts.push(format!("\"{flag}\":true"));
        }
    }
    if !uris.is_empty() && listing.offers.subscribe {
        let uris: Vec<String> = uris.iter().map(|uri| quote(uri)).collect();
        parts.push(format!("\"resourceSubscriptions\":[{}]", uris.join(",")));
    }
    if !tasks.is_empty() {
        let tasks: Vec<String> = tasks.iter().map(|task| quote(task)).collect();
        parts.push(format!("\"taskIds\":[{}]", tasks.join(",")));
    }
    (!parts.is_empty()).then(|| format!("{{\"notifications\":{{{}}}}}", parts.join(",")))
}

/// What a record depends on: another command or URL is another server.
fn record_key(config: &config::Server) -> String {
    let written = |value: &Option<config::Resolvable>| {
        value.as_ref().map(|v| v.written().to_owned()).unwrap_or_default()
    };
    let args: Vec<&str> = config.args.iter().map(config::Resolvable::written).collect();
    let env: Vec<&String> = config.env.keys().collect();
    let all = format!(
        "{:?}",
        (
            &config.name,
            written(&config.command),
            args,
            env,
            written(&config.cwd),
            written(&config.url)
        )
    );
    sha256_hex(all.as_bytes())
}

fn file(dir: &Path, config: &config::Server, set: Option<CapabilitySet>) -> PathBuf {
    let safe: String = config
        .name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
                c
            } else {
                '-'
            }
        })
        .collect();
    let tag = sha256_hex(config.name.as_bytes());
    let short = tag.get(..8).unwrap_or_default();
    let set = set.map_or_else(|| "base".to_owned(), |set| format!("c{}", set.bits()));
    dir.join("listings").join(format!("{safe}-{short}-{set}.listing"))
}

/// The record of one capability set (`None`: the base connection), if there is a usable one.
#[must_use]
pub fn load(dir: &Path, config: &config::Server, set: Option<CapabilitySet>) -> Option<Listing> {
    let path = file(dir, config, set);
    match Listing::load(&path, &record_key(config)) {
        Ok(listing) => listing,
        Err(fault) => {
            tracing::warn!(server = %config.name, path = %path.display(), "a recorded listing is ignored: {fault}");
            None
        }
    }
}

/// All records of other capability sets.
#[must_use]
pub fn load_sets(dir: &Path, config: &config::Server) -> Vec<(u16, Listing)> {
    (0..=CapabilitySet::ALL.bits())
        .filter(|bits| file(dir, config, Some(CapabilitySet::from_bits(*bits))).exists())
        .filter_map(|bits| Some((bits, load(dir, config, Some(CapabilitySet::from_bits(bits)))?)))
        .collect()
}

/// Writes a record. A failure is reported and changes nothing else.
pub fn save(dir: &Path, config: &config::Server, set: Option<CapabilitySet>, listing: &Listing) {
    let path = file(dir, config, set);
    if let Err(error) = listing.save(&path, &record_key(config)) {
        tracing::warn!(server = %config.name, path = %path.display(), "could not record the listing: {error}");
    }
}

/// The bytes of a handshake result.
#[must_use]
pub fn result_bytes(message: &crate::wire::Message) -> Bytes {
    message
        .payload()
        .map(|span| message.slice(span))
        .unwrap_or_default()
}
