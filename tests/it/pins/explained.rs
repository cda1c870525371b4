//! What `explain` says of each recorded request just before it is sent is what then happens: where pages are served,
//! where the cache learns, and while it is bypassed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::play::{Pass, Stage, is_played, script_of};
use super::script::{Script, Step};
use crate::support::client::{Ask, Client};
use crate::support::proxy::Storage;
use crate::support::{DEADLINE, holds_within};

/// How the cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Serve,
    Learn,
    Bypass,
}

impl Mode {
    fn settings(self) -> &'static str {
        if self == Self::Learn { "cache.mode = \"learn\"\n" } else { "" }
    }
}

/// Plays `cases/<group>.txt`, and has each request explained before it is sent.
pub(super) fn play(group: &str, mode: Mode, storage: &Storage) {
    let script = script_of(group);
    let stage = Stage::set_with(mode.settings(), &script, storage);
    if mode == Mode::Bypass {
        stage.prepare(&Step::Command(words("bypass on --for 1h")), &BTreeMap::new());
    }
    let wrong = differences(&stage, &script, mode, storage);
    assert!(wrong.is_empty(), "{} of {group}, {mode:?}:\n{}", wrong.len(), wrong.join("\n"));
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn differences(stage: &Stage, script: &Script, mode: Mode, storage: &Storage) -> Vec<String> {
    let (mut wrong, mut values, mut number) = (Vec::new(), BTreeMap::new(), 0);
    for case in script.cases.iter().filter(|case| is_played(case, Pass::Http1, storage)) {
        let begun = stage.counters();
        for step in &case.steps {
            let Step::Ask(ask) = step else {
                stage.prepare(step, &begun);
                continue;
            };
            // While the cache is bypassed nothing is stored that decides of a later request.
            if mode != Mode::Bypass {
                stage.rest();
            }
            let (head, body) = stage.filled(ask, &values);
            let asked = question(&head, body.as_deref());
            let told = asked.as_ref().and_then(|asked| explain(stage, asked));
            let asked_before = stage.origin.count();
            let answer = stage.ask_for(ask, number, &mut values);
            number += 1;
            let (Some(told), Some((status, cache_status))) = (told, answer) else { continue };
            let happened =
                RequestOutcome { status, cache_status, asked: stage.origin.count() > asked_before };
            let mut what = difference(&told, &happened);
            // What an answer teaches is learned behind it, and decides of later requests.
            if let (Some(asked), Mode::Learn) = (&asked, mode) {
                let is_told = || {
                    what = what.take().and_then(|_| difference(&explain(stage, asked)?, &happened));
                    what.is_none()
                };
                holds_within(DEADLINE, is_told);
            }
            if let Some(what) = what {
                wrong.push(format!("{}: {}: {what}", case.name, ask.head[0]));
            }
        }
    }
    wrong
}

/// The question that describes this request; `None` where none does: a question has one host, no version, and a path
/// without `..`.
fn question(head: &[String], body: Option<&str>) -> Option<Value> {
    let mut first = head[0].split(' ');
    let (method, target) = (first.next()?, first.next()?);
    if first.next() != Some("HTTP/1.1") || target.contains("/..") {
        return None;
    }
    let mut site = None;
    let mut fields = Vec::new();
    for line in &head[1..] {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("host") {
            if site.replace(value.trim()).is_some() {
                return None;
            }
        } else {
            fields.push(json!([name, value.trim()]));
        }
    }
    let has_framing = |name: &Value| {
        let name = name[0].as_str().unwrap_or_default().to_ascii_lowercase();
        matches!(name.as_str(), "content-length" | "transfer-encoding")
    };
    if let Some(body) = body
        && !fields.iter().any(has_framing)
    {
        fields.push(json!(["Content-Length", body.len().to_string()]));
    }
    let site = site?;
    let url =
        if target.starts_with('/') { format!("http://{site}{target}") } else { target.to_owned() };
    Some(json!({ "url": url, "method": method, "headers": fields, "from": "127.0.0.1" }))
}

/// What the proxy says of a question; `None` where it takes it for none.
fn explain(stage: &Stage, question: &Value) -> Option<Value> {
    let sockets = ["data", "anteroom-data"]
        .map(|folder| stage.proxy.folder().join(folder).join("admin.sock"));
    let socket = sockets
        .iter()
        .find(|socket| socket.exists())
        .expect("a socket of the store or the default one");
    let mut client = Client::unix(socket);
    let ask = Ask::new(stage.proxy.admin_address(), "POST", "/explain").host("localhost");
    let ask = ask.header("Content-Type", "application/json");
    let answer = ask.body(question.to_string().as_bytes()).send_on(&mut client);
    assert!(matches!(answer.status, 200 | 400), "{question}: {}", answer.text());
    (answer.status == 200).then(|| serde_json::from_slice(&answer.body.bytes).unwrap())
}

/// What came of a request.
struct RequestOutcome {
    status: String,
    cache_status: Option<String>,
    /// Whether the app was asked.
    asked: bool,
}

/// How what was told differs from what happened.
fn difference(told: &Value, happened: &RequestOutcome) -> Option<String> {
    let had = happened.cache_status.as_deref().map(timeless);
    let expected = told["cache_status"].as_str().map(timeless);
    let (outcome, reason) =
        (told["outcome"].as_str().unwrap(), told["reason"].as_str().unwrap_or_default());
    let has = |detail: &str| had.as_ref().is_some_and(|had| had.contains(detail));
    let is_same = match outcome {
        _ if has("detail=rate-limited") => happened.status == "429",
        // Where the app fails, there may be a stale page.
        "fetch" if happened.asked => {
            has("fwd=") || has("detail=stale") || happened.status.starts_with('5')
        }
        _ if expected == had => true,
        // The app is asked now, or has failed, or speaks another protocol.
        "forward" if happened.asked => {
            reason == "unverified" || has("detail=origin") || had.is_none()
        }
        // Whether the client may purge.
        "own" if reason == "method" => happened.status == "403",
        // What the parser refuses has no fields of ours.
        "refuse" => had.is_none() && happened.status == "400",
        // A body that did not say how long it is.
        "forward" => happened.status == "413",
        _ => false,
    };
    let said = told["why"].as_str().unwrap().split_once(": ").map(|(word, _)| word);
    let code = said.filter(|word| word.len() == 3 && word.parse::<u16>().is_ok());
    let is_code = code.is_none_or(|code| code == happened.status);
    (!is_same || !is_code).then(|| {
        let (why, status) = (&told["why"], &happened.status);
        format!("explained {outcome} {expected:?}, happened {status} {had:?} ({why})")
    })
}

/// `Cache-Status` without seconds, which pass.
fn timeless(status: &str) -> String {
    let parts = status.split(';').map(str::trim).filter(|part| !part.starts_with("ttl="));
    parts.collect::<Vec<_>>().join("; ")
}
