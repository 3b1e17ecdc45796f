//! Byte for byte: recorded and generated JSON goes through unchanged except the named fields.

use serde_json::json;

use crate::support::host::{raw_items, raw_member};
use crate::support::{Fake, Host, HostKind, ServerKind, Setup};

/// A small deterministic generator: the same odd JSON in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[usize::try_from(self.next(choices.len() as u64)).unwrap()]
    }

    fn space(&mut self) -> &'static str {
        self.pick(&["", "", "", " ", "  ", "\t"])
    }

    fn string(&mut self) -> String {
        let inner: String = (0..self.next(6))
            .map(|_| {
                self.pick(&[
                    "a",
                    "é",
                    "\\u0041",
                    "\\/",
                    "/",
                    "\\n",
                    "\\u2028",
                    "\u{2028}",
                    "\\\\",
                    "\\\"",
                    "😀",
                    "\\ud83d\\ude00",
                    "\\u0000",
                    " ",
                    "<",
                ])
            })
            .collect();
        format!("\"{inner}\"")
    }

    fn number(&mut self) -> &'static str {
        self.pick(&[
            "0",
            "-0",
            "-0.0",
            "1.10",
            "1e400",
            "1E+2",
            "18446744073709551617",
            "9007199254740993",
            "123456789012345678901234567890",
            "0.1000",
            "-1e-400",
            "5",
        ])
    }

    fn value(&mut self, depth: u32) -> String {
        match self.next(if depth == 0 { 5 } else { 8 }) {
            0 => "null".into(),
            1 => self.pick(&["true", "false"]).into(),
            2 => self.number().into(),
            3 | 4 => self.string(),
            5 => {
                let items: Vec<String> = (0..self.next(4))
                    .map(|_| format!("{}{}{}", self.space(), self.value(depth - 1), self.space()))
                    .collect();
                format!("[{}]", items.join(","))
            }
            _ => self.object(depth - 1, "k"),
        }
    }

    /// Keys differ, so that no reader has to choose.
    fn object(&mut self, depth: u32, prefix: &str) -> String {
        let members: Vec<String> = (0..self.next(5))
            .map(|number| {
                let odd = self.pick(&["", "\\u00e9", "-x", " ", "é", "\\/"]);
                format!(
                    "{}\"{prefix}{number}{odd}\"{}:{}{}",
                    self.space(),
                    self.space(),
                    self.space(),
                    self.value(depth)
                )
            })
            .collect();
        format!("{{{}}}", members.join(","))
    }
}

fn odd_json(host: HostKind, server: ServerKind) {
    let mut random = Random(42);
    let mut fake = Fake::echo("one", server);
    let mut items = Vec::new();
    for number in 0..40 {
        let extra = random.object(3, "extra");
        let extra = extra[1..extra.len() - 1].to_owned();
        let comma = if extra.trim().is_empty() { "" } else { "," };
        let raw = format!(
            r#"{{{extra}{comma}"name" : "t{number}","inputSchema":{{"type":"object","x":{}}},"_meta":{{"v":{}}}}}"#,
            random.value(3),
            random.value(3)
        );
        let result = format!(
            r#"{{"content":[{{"type":"text","text":{}}}],"structuredContent":{{"v":{}}},"_meta":{{"vendor/x":{}}}}}"#,
            random.string(),
            random.value(4),
            random.value(2)
        );
        fake = fake.raw_tool(&format!("t{number}"), &raw, json!([{ "result": result }]));
        items.push((
            raw.replace(&format!("\"t{number}\""), &format!("\"one__t{number}\"")),
            result,
        ));
    }
    let daemon = Setup::of(&[&fake]).for_host(host);
    let host = Host::connect(&daemon, host);
    host.wait_tool("one__t39");
    let listed = host.tools();
    for (number, (raw, result)) in items.iter().enumerate() {
        assert_eq!(&listed[number + 1], raw, "list item {number}");
        let answer = host.call(&format!("one__t{number}"), "{}").member("result");
        // A modern result opens with what our hop owns; the rest are the server's bytes.
        let body = result
            .trim_start_matches('{')
            .split(r#","_meta":{"#)
            .next()
            .unwrap();
        assert!(answer.contains(body), "result {number}: {answer} lacks {body}");
        if !host.kind().modern() {
            assert_eq!(&answer, result, "result {number}");
        }
    }
    for round in 0..60 {
        let arguments = random.object(4, "a");
        let seen = host.call("one__echo", &arguments);
        assert!(
            seen.raw.contains(&arguments),
            "round {round} back: {arguments} in {}",
            seen.raw
        );
        assert!(
            fake.calls("echo").pop().unwrap().raw.contains(&arguments),
            "round {round} there: {arguments}"
        );
    }
    fake.assert_clean();
}

crate::pairs!(generated_json, super::odd_json, [
    http_to_stdio: Http -> StdioLegacy,
    http_to_http: Http -> HttpLegacy,
    http_to_sse: Http -> Sse,
    stdio_to_stdio: Stdio -> StdioLegacy,
    modern_http_to_stdio: HttpModern -> StdioModern,
    modern_http_to_http: HttpModern -> HttpModern,
]);

/// Every recorded listing of a real server under `tests/fixtures` goes through as it is, in every kind.
#[test]
fn recorded_listings() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/listings");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ndjson"))
        .collect();
    files.sort();
    assert!(files.len() >= 5, "recorded listings in {}", folder.display());
    for file in files {
        recorded(&file);
    }
}

const KINDS: [(&str, &str, &str, &str); 4] = [
    ("tools/list", "tools", "tools", "name"),
    ("prompts/list", "prompts", "prompts", "name"),
    ("resources/list", "resources", "resources", "uri"),
    (
        "resources/templates/list",
        "resourceTemplates",
        "templates",
        "uriTemplate",
    ),
];

fn recorded(file: &std::path::Path) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut fake = Fake::new("one", ServerKind::StdioLegacy);
    let mut expected: Vec<Vec<String>> = vec![Vec::new(); KINDS.len()];
    for line in text.lines() {
        let Some(result) = raw_member(line, "result") else {
            continue;
        };
        for (number, (_, key, list, id)) in KINDS.iter().enumerate() {
            let Some(items) = raw_member(&result, key) else {
                continue;
            };
            for raw in raw_items(&items) {
                let name: String = serde_json::from_str(&raw_member(&raw, id).unwrap()).unwrap();
                fake = fake.item(list, json!({ "key": name, "raw": raw }));
                expected[number].push(raw);
            }
        }
    }
    let daemon = Setup::of(&[&fake])
        .set("names", json!({ "max_length": 64 }))
        .start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tools("every recorded tool", |names| names.len() == expected[0].len());
    for ((method, key, _, id), expected) in KINDS.iter().zip(&expected) {
        if expected.is_empty() {
            continue;
        }
        let listed = host.list(method, key);
        assert_eq!(listed.len(), expected.len(), "{method} of {}", file.display());
        for (listed, raw) in listed.iter().zip(expected) {
            let public = raw_member(listed, id).unwrap();
            let local = raw_member(raw, id).unwrap();
            assert_eq!(
                listed.replacen(&format!("\"{id}\":{public}"), &format!("\"{id}\":{local}"), 1),
                *raw,
                "{method} of {}",
                file.display()
            );
        }
    }
}

/// `_meta` of the host arrives whole; only what our hop owns is replaced.
#[test]
fn the_hosts_meta_arrives() {
    let meta = r#""progressToken":"t","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","vendor/key":{"n":1.10,"b":[ ]}"#;
    for (host, server) in [
        (HostKind::Http, ServerKind::StdioLegacy),
        (HostKind::HttpModern, ServerKind::HttpModern),
    ] {
        let fake = Fake::echo("one", server);
        let daemon = Setup::of(&[&fake]).start();
        let host = Host::connect(&daemon, host);
        host.wait_tool("one__echo");
        let call = host.start_call_with("70", "one__echo", "{}", meta);
        host.wait_answer(&call).result();
        let raw = fake.calls("echo")[0].raw.clone();
        assert!(raw.contains(r#""vendor/key":{"n":1.10,"b":[ ]}"#), "{raw}");
        assert!(raw.contains("0af7651916cd43dd8448eb211c80319c"), "{raw}");
        assert!(
            !raw.contains(r#""progressToken":"t""#),
            "the token on the wire is ours: {raw}"
        );
    }
}

/// A pretty-printed message is one line for a child.
#[test]
fn line_breaks_between_tokens_are_folded_for_a_child() {
    let fake = Fake::echo("one", ServerKind::StdioLegacy);
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__echo");
    let text = "{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 88,\n  \"method\": \"tools/call\",\n  \"params\": {\n    \"name\": \"one__echo\",\n    \"arguments\": {\n      \"n\": 1.10,\n      \"s\": \"a\\nb\"\n    }\n  }\n}";
    host.send_text(text, "88");
    let seen = host.wait("the answer", |seen| seen.value["id"] == json!(88));
    assert!(
        seen.raw.contains("1.10") && seen.raw.contains("a\\nb"),
        "{}",
        seen.raw
    );
    fake.assert_clean();
}

/// Answers arrive from the server in any spelling of the envelope.
#[test]
fn the_envelope_of_an_answer_may_be_spelt_in_any_way() {
    let fake = Fake::new("one", ServerKind::StdioLegacy)
        .tool("a", json!([{ "raw_answer": r#"{ "result" : {"content":[],"n":1.10} , "id" : @@ID@@, "jsonrpc":"2.0" }"# }]))
        .tool("b", json!([{ "raw_answer": r#"{"\u0069d":@@ID@@,"jsonrpc":"2.0","extra":{"id":7,"result":8},"re\u0073ult":{"content":[]}}"# }]))
        .tool("c", json!([{ "stdout": "\t {\"jsonrpc\":\"2.0\",\"id\":@@ID@@,\"result\":{\"content\":[]}} \r\n" }, "stop"]));
    let daemon = Setup::of(&[&fake]).start();
    let host = Host::connect(&daemon, HostKind::Http);
    host.wait_tool("one__c");
    assert!(
        host.call("one__a", "{}")
            .raw
            .contains(r#"{"content":[],"n":1.10}"#)
    );
    host.call("one__b", "{}").result();
    host.call("one__c", "{}").result();
}
