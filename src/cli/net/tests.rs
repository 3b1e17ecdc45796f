use super::Target;

#[test]
fn addresses_are_read_and_wrong_ones_explained() {
    let target = Target::parse("http://127.0.0.1:8420", "/mcp").unwrap();
    assert_eq!(target.uri.to_string(), "http://127.0.0.1:8420/mcp");
    assert_eq!(target.shown(), "http://127.0.0.1:8420");
    let target = Target::parse("http://127.0.0.1:8420/other", "/mcp").unwrap();
    assert_eq!(target.uri.path(), "/other");
    let target = Target::parse("unix:/run/m.sock", "/mcp").unwrap();
    assert_eq!((target.uri.path(), target.shown()), ("/mcp", "unix:/run/m.sock"));
    let target = Target::parse("unix:///run/m.sock", "/mcp").unwrap();
    assert_eq!(target.shown(), "unix:/run/m.sock");
    for wrong in [
        "127.0.0.1:8420",
        "ftp://host/",
        "unix:relative.sock",
        "",
        "http://",
    ] {
        let text = Target::parse(wrong, "/mcp").unwrap_err();
        assert!(text.contains("is no address"), "{wrong}: {text}");
    }
}
