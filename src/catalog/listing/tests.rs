use super::*;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn limits() -> ItemLimits {
    ItemLimits::default()
}

#[test]
fn reads_the_results_of_both_handshakes() {
    let legacy = bytes(
        r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},
            "serverInfo":{"name":"ev\u0065rything","version":"1.2","title":"E"},"instructions":"Be \"kind\"."}"#,
    );
    let listing = Listing::from_handshake(Revision::V2025_06_18, &legacy);
    assert_eq!(
        (&*listing.server.name, &*listing.server.version),
        ("everything", "1.2")
    );
    assert_eq!(listing.instructions.as_deref(), Some("Be \"kind\"."));
    assert!(listing.offers.tools && listing.offers.tools_changed && listing.offers.subscribe);
    assert!(!listing.offers.prompts && !listing.offers.serves(ListKind::Prompts));
    assert!(listing.offers.serves(ListKind::Templates));

    let modern = bytes(
        r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"prompts":{}},
            "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"2"}},"serverInfo":{"name":"old"}}"#,
    );
    let listing = Listing::from_handshake(Revision::V2026_07_28, &modern);
    assert_eq!(&*listing.server.name, "m");
    assert!(listing.offers.prompts && listing.instructions.is_none());

    let odd = Listing::from_handshake(Revision::V2025_06_18, &bytes("[]"));
    assert_eq!(odd.offers, Offers::default());
}

#[test]
fn a_page_is_cut_into_the_received_bytes() {
    let result = bytes(
        "{\"tools\":[ {\"name\":\"a\", \"n\":1.10} ,{ \"name\" : \"b\\u0000\" }],\"nextCursor\":\"\",\"ttlMs\":7,\"cacheScope\":\"public\"}",
    );
    let page = Page::parse(ListKind::Tools, &result).unwrap();
    assert_eq!(
        page.items,
        vec![
            bytes("{\"name\":\"a\", \"n\":1.10}"),
            bytes("{ \"name\" : \"b\\u0000\" }")
        ]
    );
    assert_eq!(page.next_cursor, Some(bytes("\"\"")));
    assert_eq!((page.ttl_ms, page.public), (7, true));
    assert_eq!(
        Page::parse(ListKind::Prompts, &result),
        Err(PageFault::NoItems("prompts"))
    );
    assert!(matches!(
        Page::parse(ListKind::Tools, &bytes("{\"tools\":[")),
        Err(PageFault::Json(_))
    ));
    assert!(Page::parse(ListKind::Tools, &bytes("{\"tools\":{}}")).is_err());
}

fn page(from: usize, count: usize, next: Option<&str>) -> Bytes {
    let items: Vec<String> = (from..from + count)
        .map(|n| format!("{{\"name\":\"t{n}\"}}"))
        .collect();
    let next = next
        .map(|n| format!(",\"nextCursor\":\"{n}\""))
        .unwrap_or_default();
    bytes(&format!("{{\"tools\":[{}]{next}}}", items.join(",")))
}

fn empty() -> Listing {
    Listing::from_handshake(Revision::V2025_11_25, &bytes("{}"))
}

#[test]
fn all_pages_are_read_and_an_empty_cursor_is_followed() {
    let mut reader = ListReader::new(ListKind::Tools, limits(), 0);
    assert_eq!(reader.add(&page(0, 30, Some("a"))).unwrap(), Some(bytes("\"a\"")));
    assert_eq!(reader.add(&page(30, 30, Some(""))).unwrap(), Some(bytes("\"\"")));
    assert_eq!(reader.add(&page(60, 30, None)).unwrap(), None);
    let mut listing = empty();
    assert!(reader.finish(&mut listing).is_empty());
    assert_eq!(listing.items(ListKind::Tools).len(), 90);
    assert!(!listing.incomplete && !listing.lists.get(ListKind::Tools).public);
}

#[test]
fn a_cursor_that_comes_back_ends_the_list() {
    let mut reader = ListReader::new(ListKind::Tools, limits(), 0);
    assert!(reader.add(&page(0, 1, Some("a"))).unwrap().is_some());
    assert!(reader.add(&page(1, 1, Some("a"))).unwrap().is_none());
    let mut listing = empty();
    let warnings = reader.finish(&mut listing);
    assert!(
        warnings.len() == 1 && warnings[0].contains("same cursor"),
        "{warnings:?}"
    );
    assert!(listing.incomplete);
}

#[test]
fn each_limit_leaves_the_rest_out_and_says_so() {
    let with = |limits: ItemLimits, page: Bytes| {
        let mut reader = ListReader::new(ListKind::Tools, limits, 0);
        reader.add(&page).unwrap();
        let mut listing = empty();
        let warnings = reader.finish(&mut listing);
        (listing.items(ListKind::Tools).len(), warnings.join("; "))
    };
    let (count, warning) = with(ItemLimits { items: 3, ..limits() }, page(0, 5, None));
    assert!(
        count == 3 && warning.contains("more than 3 items"),
        "{count} {warning}"
    );
    let long = bytes(&format!(
        "{{\"tools\":[{{\"name\":\"ok\"}},{{\"name\":\"big\",\"x\":\"{}\"}},{{\"name\":\"too\"}}]}}",
        "x".repeat(200)
    ));
    let (count, warning) = with(
        ItemLimits {
            item_bytes: 100,
            ..limits()
        },
        long,
    );
    assert!(
        count == 2 && warning.contains("\"big\"") && warning.contains("larger than 100"),
        "{warning}"
    );
    let (count, warning) = with(
        ItemLimits {
            total_bytes: 40,
            ..limits()
        },
        page(0, 5, None),
    );
    assert!(count == 3 && warning.contains("larger than 40 bytes together"));
    let deep = bytes(&format!(
        "{{\"tools\":[{{\"name\":\"ok\"}},{{\"name\":\"deep\",\"x\":{}{}}}]}}",
        "[".repeat(5000),
        "]".repeat(5000)
    ));
    let (count, warning) = with(
        ItemLimits {
            depth: 512,
            ..limits()
        },
        deep,
    );
    assert!(
        count == 1 && warning.contains("\"deep\"") && warning.contains("deeper"),
        "{warning}"
    );
    let (count, warning) = with(limits(), bytes("{\"tools\":[1,{\"name\":\"ok\"},null]}"));
    assert!(count == 1 && warning.contains("not an object"));
    let mut reader = ListReader::new(ListKind::Tools, ItemLimits { pages: 2, ..limits() }, 0);
    assert!(reader.add(&page(0, 1, Some("a"))).unwrap().is_some());
    assert!(reader.add(&page(1, 1, Some("b"))).unwrap().is_none());
}

fn sample() -> Listing {
    let handshake = bytes(
        r#"{"capabilities":{"tools":{},"x":[1.0]},"serverInfo":{"name":"s","version":"1"},"instructions":"a\nb"}"#,
    );
    let mut listing = Listing::from_handshake(Revision::V2026_07_28, &handshake);
    let mut reader = ListReader::new(ListKind::Tools, limits(), 0);
    reader
        .add(&bytes("{\"tools\":[{ \"name\":\"a\\u0041\",\n\"n\":9007199254740993,\"e\":1e400}],\"ttlMs\":5000,\"cacheScope\":\"public\"}"))
        .unwrap();
    reader.finish(&mut listing);
    listing
}

#[test]
fn a_listing_survives_the_disk_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/s.json");
    assert!(Listing::load(&path, "k").unwrap().is_none());
    let listing = sample();
    listing.save(&path, "k").unwrap();
    listing.save(&path, "k").unwrap();
    let back = Listing::load(&path, "k").unwrap().unwrap();
    assert_eq!(back, listing);
    assert!(back.same_items(&listing));
    assert!(
        serde_json::from_slice::<serde_json::Value>(&std::fs::read(&path).unwrap()).is_err(),
        "1e400 is kept"
    );
    assert!(matches!(
        Listing::load(&path, "other"),
        Err(StoreFault::OtherServer)
    ));
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "no temporary file stays");
}

#[test]
fn a_damaged_or_foreign_file_is_refused_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.json");
    sample().save(&path, "k").unwrap();
    let whole = std::fs::read(&path).unwrap();
    for cut in 0..whole.len() - 1 {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(Listing::load(&path, "k").is_err(), "cut at {cut}");
    }
    for other in [
        "",
        "{}",
        "[]",
        "{\"format\":2}",
        "{\"format\":1,\"key\":\"k\"}",
        "\u{0}",
    ] {
        std::fs::write(&path, other).unwrap();
        assert!(Listing::load(&path, "k").is_err(), "{other}");
    }
    std::fs::write(&path, b"\xff\xfe").unwrap();
    assert!(matches!(Listing::load(&path, "k"), Err(StoreFault::Damaged)));
}

#[test]
fn only_what_a_host_could_see_is_a_change() {
    let one = sample();
    let mut two = one.clone();
    two.lists.get_mut(ListKind::Tools).ttl_ms = 1;
    assert!(one.same_items(&two) && one.changed_kinds(&two).is_empty());
    two.lists
        .get_mut(ListKind::Tools)
        .items
        .push(bytes("{\"name\":\"b\"}"));
    assert!(!one.same_items(&two));
    assert_eq!(one.changed_kinds(&two), vec![ListKind::Tools]);
    let mut three = one.clone();
    three.instructions = None;
    assert!(!one.same_items(&three));
}
