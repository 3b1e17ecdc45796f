use super::*;

#[test]
fn near_words_are_found_and_far_ones_are_not() {
    let keys = ["command", "cwd", "concurrency", "max_timeout", "headers", "url"];
    for (word, meant) in [
        ("comand", Some("command")),
        ("comamnd", Some("command")),
        ("maxTimeout", Some("max_timeout")),
        ("header", Some("headers")),
        ("ulr", Some("url")),
        ("concurren", Some("concurrency")),
        ("timeout", None),
        ("xyz", None),
        ("", None),
    ] {
        assert_eq!(nearest(word, keys), meant, "{word}");
    }
}
