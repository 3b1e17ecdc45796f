use super::*;

#[test]
fn sizes_are_read_and_written_back() {
    for (text, bytes, written) in [
        ("16MiB", 16 << 20, "16MiB"),
        ("10MB", 10_000_000, "10000000B"),
        ("512 KiB", 512 << 10, "512KiB"),
        ("7", 7, "7B"),
    ] {
        let size = ByteSize::parse(text).unwrap();
        assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, written));
    }
    for wrong in [
        "",
        "MiB",
        "-1",
        "1.5MiB",
        "16Mib",
        "99999999999999999999",
        "99999999999999GiB",
    ] {
        assert!(ByteSize::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn durations_are_read_and_written_back() {
    for (text, ms, written) in [
        ("500ms", 500, "500ms"),
        ("5s", 5_000, "5s"),
        ("15m", 900_000, "15m"),
        ("1h30m", 5_400_000, "90m"),
        ("0", 0, "0s"),
    ] {
        let duration = parse_duration(text).unwrap();
        assert_eq!(duration, Duration::from_millis(ms), "{text}");
        assert_eq!(duration_text(duration), written);
    }
    for wrong in ["", "5", "s", "5 x", "-1s", "1.5s", "2000d"] {
        assert!(parse_duration(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn addresses_are_checked() {
    for right in [
        "127.0.0.1:0",
        "[::1]:8420",
        "localhost:8420",
        "unix:/run/mcp.sock",
        "0.0.0.0:80",
    ] {
        assert_eq!(BindAddress::parse(right).unwrap().to_string(), right);
    }
    for wrong in [
        "127.0.0.1",
        ":80",
        "http://x:80",
        "unix:mcp.sock",
        "x:70000",
        "a b:1",
        "::1:80x",
    ] {
        assert!(BindAddress::parse(wrong).is_err(), "{wrong}");
    }
}
