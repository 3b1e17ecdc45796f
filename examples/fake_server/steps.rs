//! Runs the steps of a script.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::reply::Context;
use crate::script::Step;
use crate::server::MODERN;

#[derive(PartialEq, Eq, Debug, Clone, Copy)]
pub enum Flow {
    /// The request has its answer.
    Answered,
    /// Nothing answered: the usual answer follows.
    Fell,
    /// The request ends without an answer.
    Stopped,
}

fn cancelled(context: &Context) -> bool {
    context
        .id
        .as_ref()
        .is_some_and(|id| context.session.cancelled.lock().unwrap().contains(id))
}

fn over(context: &Context) -> bool {
    context.id.is_some()
        && (cancelled(context) || context.reply.gone() || context.session.ended.load(Ordering::SeqCst))
}

fn note_end(context: &Context) {
    let how = if cancelled(context) { "cancelled" } else { "closed" };
    context.server.record.add(
        "end",
        &json!({ "how": how, "id": context.id, "name": context.name, "session": context.session.id }),
    );
}

/// Waits until the request was cancelled or its stream closed, and records which.
pub fn wait_end(context: &Context, limit: Duration) {
    let end = Instant::now() + limit;
    while !over(context) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    note_end(context);
}

pub fn run(context: &Context, steps: &[Step]) -> Flow {
    for step in steps {
        match one(context, step) {
            Flow::Fell => {}
            done => return done,
        }
    }
    Flow::Fell
}

#[expect(clippy::too_many_lines, reason = "one arm per step")]
fn one(context: &Context, step: &Step) -> Flow {
    let server = &context.server;
    match step {
        Step::Gate(name) => {
            server.record.add("event", &json!({ "name": format!("at {name}"), "id": context.id, "call": context.name, "session": context.session.id }));
            if !server.wait_file(&format!("gate-{name}"), || over(context)) {
                note_end(context);
                return Flow::Stopped;
            }
        }
        Step::GateDeaf(name) => {
            server.record.add("event", &json!({ "name": format!("at {name}"), "id": context.id, "call": context.name, "session": context.session.id }));
            let mut told = false;
            server.wait_file(&format!("gate-{name}"), || {
                if !told && over(context) {
                    told = true;
                    note_end(context);
                }
                false
            });
        }
        Step::UntilCancelled => {
            wait_end(context, Duration::from_secs(120));
            return Flow::Stopped;
        }
        Step::Event(name) => server.record.add(
            "event",
            &json!({ "name": name, "id": context.id, "session": context.session.id }),
        ),
        Step::Progress(times) => {
            for _ in 0..*times {
                let mut progress = context.progress.lock().unwrap();
                *progress += 1;
                if let Some(token) = &context.token {
                    let progress = *progress;
                    context.reply.note(
                        format!(
                            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress},"total":100,"message":"step {progress}"}}}}"#
                        )
                        .as_bytes(),
                    );
                }
            }
        }
        Step::Log(level, logger, data) => {
            let message = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","logger":"{logger}","data":{}}}}}"#,
                context.fill(data)
            );
            context.reply.note(message.as_bytes());
        }
        Step::Note(text) => context.reply.note(context.fill(text).as_bytes()),
        Step::Outside(text) => context.session.send(context.fill(text).as_bytes()),
        Step::Ask(asks) if context.modern => return ask_modern(context, asks),
        Step::Ask(asks) => return ask_legacy(context, asks, true),
        Step::AskOnly(asks) => return ask_legacy(context, asks, false),
        Step::CancelAsks => {
            for id in context.asks.lock().unwrap().iter() {
                let text = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"no longer wanted"}}}}"#
                );
                send_ask(context, &text);
            }
        }
        Step::Result(text) => {
            server.result(context, &context.fill(text), false);
            return Flow::Answered;
        }
        Step::Error(text) => {
            let id = context.id.as_deref().unwrap_or("null");
            context.reply.answer(
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, context.fill(text)).as_bytes(),
            );
            return Flow::Answered;
        }
        Step::RawAnswer(text) => {
            context.reply.answer(context.fill(text).as_bytes());
            return Flow::Answered;
        }
        Step::Big(size) => {
            let id = context.id.as_deref().unwrap_or("null");
            let kind = if context.modern {
                r#""resultType":"complete","#
            } else {
                ""
            };
            let head = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{{kind}"content":[{{"type":"text","text":""#
            );
            context.reply.big(&head, *size, r#""}]}}"#);
            return Flow::Answered;
        }
        Step::ListChanged(kind, times) => {
            for _ in 0..*times {
                server.change(
                    &context.session,
                    &format!("notifications/{kind}/list_changed"),
                    &json!({}),
                    &format!("{kind}ListChanged"),
                );
            }
        }
        Step::ResourceUpdated(uri) => {
            server.change(
                &context.session,
                "notifications/resources/updated",
                &json!({ "uri": uri }),
                "uri",
            );
        }
        Step::Variant(key, number) => {
            server.state.lock().unwrap().variants.insert(key.clone(), *number);
        }
        Step::Enable(key) => {
            let mut state = server.state.lock().unwrap();
            state.enabled.insert(key.clone());
            state.disabled.remove(key);
            // Other processes of this server share what it offers, as those with a common store do.
            let _ = std::fs::write(server.enabled_file(key), b"");
        }
        Step::Disable(key) => {
            server.state.lock().unwrap().disabled.insert(key.clone());
        }
        Step::SleepMs(time) => std::thread::sleep(Duration::from_millis(*time)),
        Step::Stderr(text) => eprintln!("{}", context.fill(text)),
        Step::StderrFlood(size) => {
            use std::io::Write;
            let mut out = std::io::stderr().lock();
            let mut piece = vec![b'e'; 4096];
            piece[100] = 0xff;
            let mut left = *size;
            while left > 0 {
                let now = left.min(piece.len());
                let _ = out.write_all(&piece[..now]);
                left -= now;
            }
            let _ = out.write_all(b"\n");
        }
        Step::Bytes(bytes) => context.reply.bytes(bytes),
        Step::Stdout(text) => context.reply.bytes(context.fill(text).as_bytes()),
        Step::Status(status, media, body) => {
            context.reply.status(*status, media, &context.fill(body));
            return Flow::Answered;
        }
        Step::Drop => {
            context.reply.close();
            return Flow::Answered;
        }
        Step::Cut => context.reply.cut(),
        Step::ForgetSessions => {
            let mut state = server.state.lock().unwrap();
            for (_, session) in state.sessions.drain() {
                session.ended.store(true, Ordering::SeqCst);
                if let Some(stream) = session.outbox.lock().unwrap().stream.take() {
                    stream.close();
                }
            }
        }
        Step::Exit(code) => std::process::exit(*code),
        Step::Abort => std::process::abort(),
        Step::Hang => loop {
            std::thread::park();
        },
        Step::Flood(text) => {
            let text = context.fill(text);
            while !context.reply.gone() {
                context.reply.note(text.as_bytes());
            }
            return Flow::Stopped;
        }
        Step::Count => {
            context.session.counter.fetch_add(1, Ordering::SeqCst);
        }
        Step::Nth(number, steps) => {
            let now = if context.name.is_empty() {
                server.run
            } else {
                server
                    .state
                    .lock()
                    .unwrap()
                    .calls
                    .get(&context.name)
                    .copied()
                    .unwrap_or(0)
            };
            if now == *number {
                return run(context, steps);
            }
        }
        Step::Stop => return Flow::Stopped,
    }
    Flow::Fell
}

fn send_ask(context: &Context, text: &str) {
    if context.server.script.asks_on_get {
        context.session.send(text.as_bytes());
    } else {
        context.reply.note(text.as_bytes());
    }
}

fn ask_legacy(context: &Context, asks: &[(String, String, String)], wait: bool) -> Flow {
    let mut open = Vec::new();
    for (key, method, params) in asks {
        let id = context.session.next_ask.fetch_add(1, Ordering::SeqCst);
        let params = context.fill(params);
        send_ask(
            context,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#),
        );
        context.asks.lock().unwrap().push(id);
        open.push((id, key.clone()));
    }
    if !wait {
        return Flow::Fell;
    }
    let end = Instant::now() + Duration::from_secs(120);
    for (id, key) in open {
        let text = loop {
            if let Some(text) = context.session.ask_answers.lock().unwrap().get(&id).cloned() {
                break text;
            }
            if over(context) || Instant::now() > end {
                note_end(context);
                return Flow::Stopped;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        let answer = message
            .get("result")
            .cloned()
            .unwrap_or_else(|| json!({ "error": message["error"] }));
        context.server.record.add(
            "ask_answer",
            &json!({ "key": key, "raw": text, "session": context.session.id }),
        );
        context.answers.lock().unwrap().insert(key, answer);
    }
    Flow::Fell
}

fn ask_modern(context: &Context, asks: &[(String, String, String)]) -> Flow {
    let answers = context.answers.lock().unwrap().clone();
    let missing: Vec<_> = asks
        .iter()
        .filter(|(key, _, _)| !answers.contains_key(key))
        .collect();
    if missing.is_empty() {
        return Flow::Fell;
    }
    let requests: Vec<String> = missing
        .iter()
        .map(|(key, method, params)| {
            format!(
                r#"{}:{{"method":"{method}","params":{}}}"#,
                json!(key),
                context.fill(params)
            )
        })
        .collect();
    let state = json!(Value::Object(answers).to_string());
    debug_assert_eq!(MODERN.len(), 10);
    let text = format!(
        r#"{{"resultType":"input_required","inputRequests":{{{}}},"requestState":{state}}}"#,
        requests.join(",")
    );
    context.server.result(context, &text, false);
    Flow::Answered
}
