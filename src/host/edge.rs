//! What is checked before a request is looked at: `Host`, `Origin`, media types; and the answers browsers need.
//! Pure; the HTTP faces and the administration listener call it.

use std::net::IpAddr;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue, Uri, Version};

/// Where a listener is bound, as far as `Host` matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// A TCP address.
    Tcp(IpAddr),
    /// A Unix socket: no browser reaches it, so `Host` says nothing.
    Unix,
}

/// Request headers a browser may send.
const ALLOWED_HEADERS: &str = "content-type, accept, authorization, last-event-id, mcp-session-id, \
     mcp-protocol-version, mcp-method, mcp-name, traceparent, tracestate, baggage";

/// Splits `host[:port]` into the host without brackets, lower case.
fn host_of(authority: &str) -> Option<String> {
    let authority = authority.trim();
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        (host, after.strip_prefix(':').or(after.is_empty().then_some("")))
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, Some("")),
        }
    };
    let port = port?;
    let ok = !host.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && !host.contains(['@', '/', ' ']);
    ok.then(|| host.trim_end_matches('.').to_ascii_lowercase())
}

fn is_loopback_name(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether the `Host` of a request is one of ours. A name that only DNS could have pointed at us is foreign, since
/// that is how a web page reaches a loopback listener.
#[must_use]
pub fn host_allowed(
    headers: &HeaderMap,
    uri: &Uri,
    version: Version,
    bound: Bound,
    allowed: &[String],
) -> bool {
    let Bound::Tcp(ip) = bound else { return true };
    if headers.get_all(HOST).iter().count() > 1 {
        return false;
    }
    let authority = match (uri.authority(), headers.get(HOST)) {
        (Some(authority), _) => authority.as_str(),
        (None, Some(host)) => match host.to_str() {
            Ok(host) => host,
            Err(_) => return false,
        },
        // Probes that speak HTTP/1.0; no browser does.
        (None, None) => return version < Version::HTTP_11,
    };
    let Some(host) = host_of(authority) else {
        return false;
    };
    if is_loopback_name(&host)
        || allowed
            .iter()
            .any(|name| host_of(name).as_deref() == Some(host.as_str()))
    {
        return true;
    }
    // Addresses cannot be rebound; with the unspecified address we do not know which of them are ours.
    host.parse::<IpAddr>()
        .is_ok_and(|named| named == ip || ip.is_unspecified())
}

/// What the `Origin` of a request means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OriginCheck {
    /// None: not a browser.
    Absent,
    /// A page served from this machine: let through, without CORS.
    Loopback,
    /// On the list: let through, with CORS.
    Listed(HeaderValue),
    /// Refused.
    Foreign,
}

/// Checks the `Origin` of a request against loopback and the list. `null` is foreign.
#[must_use]
pub fn origin(headers: &HeaderMap, allowed: &[String]) -> OriginCheck {
    let mut values = headers.get_all(ORIGIN).iter();
    let Some(value) = values.next() else {
        return OriginCheck::Absent;
    };
    let (Ok(text), None) = (value.to_str(), values.next()) else {
        return OriginCheck::Foreign;
    };
    let normal = |origin: &str| origin.trim().trim_end_matches('/').to_ascii_lowercase();
    let text = normal(text);
    if allowed.iter().any(|entry| normal(entry) == text) {
        return OriginCheck::Listed(value.clone());
    }
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    match rest.and_then(host_of) {
        Some(host) if is_loopback_name(&host) => OriginCheck::Loopback,
        _ => OriginCheck::Foreign,
    }
}

/// Adds to any answer what a listed browser origin needs to read it.
pub fn add_cors(headers: &mut HeaderMap, origin: &HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.append(VARY, HeaderValue::from_static("Origin"));
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate, MCP-Protocol-Version"),
    );
}

/// Adds the answer to a preflight of a listed origin: our methods, our headers, and whatever `mcp-param-*` it asks for.
pub fn add_preflight(headers: &mut HeaderMap, request: &HeaderMap) {
    let asked = request
        .get(ACCESS_CONTROL_REQUEST_HEADERS)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let mut allow = ALLOWED_HEADERS.to_owned();
    for name in asked.split(',').map(|name| name.trim().to_ascii_lowercase()) {
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if plain && name.starts_with("mcp-param-") && allow.len() < 4096 {
            allow.push_str(", ");
            allow.push_str(&name);
        }
    }
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("POST, GET, DELETE, OPTIONS"),
    );
    if let Ok(value) = HeaderValue::from_str(&allow) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, value);
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
}

/// The forms of an answer that a host accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepts {
    /// `application/json`
    pub json: bool,
    /// `text/event-stream`
    pub events: bool,
}

/// Reads `Accept`. Absent means everything.
#[must_use]
pub fn accepts(headers: &HeaderMap) -> Accepts {
    let mut any = false;
    let mut out = Accepts {
        json: false,
        events: false,
    };
    let values = headers.get_all(http::header::ACCEPT).iter();
    for range in values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
    {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or("").to_ascii_lowercase();
        if kind.is_empty() {
            continue;
        }
        any = true;
        let refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.trim().parse::<f32>() == Ok(0.0))
        });
        if refused {
            continue;
        }
        out.json |= matches!(kind.as_str(), "*/*" | "application/*" | "application/json");
        out.events |= matches!(kind.as_str(), "*/*" | "text/*" | "text/event-stream");
    }
    if any {
        out
    } else {
        Accepts {
            json: true,
            events: true,
        }
    }
}

/// Whether the body of a request is JSON as it stands: the right media type, not compressed.
#[must_use]
pub fn is_plain_json(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or("?"))
    };
    let kind = text(http::header::CONTENT_TYPE).and_then(|value| value.split(';').next());
    let json = kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    let coding = text(http::header::CONTENT_ENCODING);
    json && coding
        .is_none_or(|coding| coding.trim().is_empty() || coding.trim().eq_ignore_ascii_case("identity"))
}

#[cfg(test)]
mod tests;
