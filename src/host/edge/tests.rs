use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut out = HeaderMap::new();
    for (name, value) in pairs {
        out.append(*name, HeaderValue::from_str(value).unwrap());
    }
    out
}

fn host(value: &str, bound: IpAddr, allowed: &[&str]) -> bool {
    let allowed: Vec<String> = allowed.iter().map(|&name| name.to_owned()).collect();
    host_allowed(
        &headers(&[("host", value)]),
        &Uri::from_static("/mcp"),
        Version::HTTP_11,
        Bound::Tcp(bound),
        &allowed,
    )
}

#[test]
fn hosts() {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for good in [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:8420",
        "[::1]:8420",
        "127.0.0.5",
        "localhost.",
    ] {
        assert!(host(good, loopback, &[]), "{good}");
    }
    for bad in [
        "evil.example",
        "localhost.evil.example",
        "",
        "a@localhost",
        "192.168.0.1",
        "localhost:x",
        "[::1",
        "::1",
        "127.0.0.1.nip.io",
    ] {
        assert!(!host(bad, loopback, &[]), "{bad}");
    }
    assert!(host("mcp.example:80", loopback, &["mcp.example"]));
    assert!(host("10.1.2.3:8420", IpAddr::V4(Ipv4Addr::UNSPECIFIED), &[]));
    assert!(!host("evil.example", IpAddr::V6(Ipv6Addr::UNSPECIFIED), &[]));
    assert!(host("10.1.2.3", "10.1.2.3".parse().unwrap(), &[]));
    assert!(!host("10.1.2.4", "10.1.2.3".parse().unwrap(), &[]));
    let none = HeaderMap::new();
    let uri = Uri::from_static("/mcp");
    assert!(!host_allowed(
        &none,
        &uri,
        Version::HTTP_11,
        Bound::Tcp(loopback),
        &[]
    ));
    assert!(host_allowed(
        &none,
        &uri,
        Version::HTTP_10,
        Bound::Tcp(loopback),
        &[]
    ));
    assert!(host_allowed(&none, &uri, Version::HTTP_11, Bound::Unix, &[]));
    let twice = headers(&[("host", "localhost"), ("host", "localhost")]);
    assert!(!host_allowed(
        &twice,
        &uri,
        Version::HTTP_11,
        Bound::Tcp(loopback),
        &[]
    ));
}

#[test]
fn origins() {
    let allowed = vec!["https://app.example".to_owned()];
    let check = |value: &str| origin(&headers(&[("origin", value)]), &allowed);
    assert_eq!(origin(&HeaderMap::new(), &allowed), OriginCheck::Absent);
    for good in [
        "http://localhost:6274",
        "http://127.0.0.1",
        "https://[::1]:3000",
        "http://LOCALHOST",
    ] {
        assert_eq!(check(good), OriginCheck::Loopback, "{good}");
    }
    for bad in [
        "null",
        "http://evil.example",
        "http://localhost.evil.example",
        "http://app.example",
        "https://app.example.evil",
        "file://",
        "",
        "localhost",
        "http://evil@localhost",
        "chrome-extension://localhost",
    ] {
        assert_eq!(check(bad), OriginCheck::Foreign, "{bad}");
    }
    assert!(matches!(check("https://app.example"), OriginCheck::Listed(_)));
    let twice = headers(&[("origin", "http://localhost"), ("origin", "http://evil.example")]);
    assert_eq!(origin(&twice, &allowed), OriginCheck::Foreign);
}

#[test]
fn accept_headers() {
    let check = |value: &str| {
        let found = accepts(&headers(&[("accept", value)]));
        (found.json, found.events)
    };
    assert_eq!(check("application/json"), (true, false));
    assert_eq!(check("application/json, text/event-stream"), (true, true));
    assert_eq!(check("Application/JSON ; q=0.9"), (true, false));
    assert_eq!(check("*/*"), (true, true));
    assert_eq!(check("text/html"), (false, false));
    assert_eq!(check("application/json;q=0, text/event-stream"), (false, true));
    assert_eq!(check("text/*"), (false, true));
    assert_eq!(check(""), (true, true));
    assert_eq!(
        accepts(&HeaderMap::new()),
        Accepts {
            json: true,
            events: true
        }
    );
}

#[test]
fn content_types() {
    let check = |kind: &str, coding: &str| {
        let mut map = headers(&[("content-type", kind)]);
        if !coding.is_empty() {
            map.insert("content-encoding", HeaderValue::from_str(coding).unwrap());
        }
        is_plain_json(&map)
    };
    assert!(check("application/json", "") && check("APPLICATION/JSON; charset=utf-8", "identity"));
    assert!(
        !check("text/plain", "") && !check("application/jsonp", "") && !check("application/json", "gzip")
    );
    assert!(!is_plain_json(&HeaderMap::new()));
}
