//! Responses from a raw socket, and what the client got of each.
//!
//! A case is a row: its name, why it is so, what the origin sends, and what the client gets. Each is
//! asked for by GET, twice: what is not to be stored is fetched again; and by POST, which
//! no cache touches.

#![allow(clippy::too_many_lines, reason = "a table is as long as it has rows")]

mod chunks;
mod ends;
mod extra;
mod fields;
mod interim;
mod lengths;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::client::Client;
use crate::support::proxy::{Proxy, Storage};
use crate::support::tap::{Step, Tap};

/// Lines that other cases look at, or whose values are random.
const LEFT_OUT: [&str; 4] = ["date", "cache-status", "age", "etag"];

/// A row.
struct Case {
    name: &'static str,
    why: &'static str,
    /// How it is asked for.
    methods: &'static [&'static str],
    steps: Vec<Step>,
    /// What the client gets: status, lines and body; `None`: nothing, or a body that is cut.
    got: Option<String>,
    status: Option<u16>,
    stored: bool,
}

/// The client gets a 502 of ours.
fn bad(name: &'static str, why: &'static str, sent: impl AsRef<[u8]>) -> Case {
    let steps = vec![Step::Send(sent.as_ref().to_vec()), Step::Close];
    let methods = &["GET", "POST"];
    Case { name, why, methods, steps, got: None, status: Some(502), stored: false }
}

/// The client gets this, as text with `\n` between lines, and nothing is stored.
fn passes(name: &'static str, why: &'static str, sent: impl AsRef<[u8]>, got: &str) -> Case {
    let mut case = bad(name, why, sent.as_ref());
    let head = String::from_utf8_lossy(sent.as_ref()).to_lowercase();
    let says_its_end = ["content-length:", "transfer-encoding:", "http/1.1 204", "http/1.1 304"];
    if says_its_end.iter().any(|text| head.contains(text)) {
        // A POST on a connection that is just closing would fail, which is another matter.
        case.steps.pop();
    }
    Case { got: Some(got.to_owned()), status: None, ..case }
}

/// The client gets it, and so does the next one.
fn stored(name: &'static str, why: &'static str, sent: impl AsRef<[u8]>, got: &str) -> Case {
    Case { stored: true, ..passes(name, why, sent, got) }
}

/// The client sees that the body broke off, or gets a 502.
fn cut(name: &'static str, why: &'static str, sent: impl AsRef<[u8]>) -> Case {
    Case { status: None, ..bad(name, why, sent) }
}

impl Case {
    /// The origin does this instead.
    fn steps(self, steps: Vec<Step>) -> Self {
        Self { steps, ..self }
    }

    /// The client gets this status of ours.
    fn status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    /// Asked for by these methods only.
    fn by(self, methods: &'static [&'static str]) -> Self {
        Self { methods, ..self }
    }

    fn expected(&self, answer: &str) -> String {
        match (&self.got, self.status) {
            (Some(got), _) => got.trim_end().to_owned(),
            (None, Some(status)) => format!("{status} of ours"),
            (None, None) if answer == "502 of ours" => answer.to_owned(),
            (None, None) => "a body that broke off".to_owned(),
        }
    }

    /// What is wrong.
    fn check(&self, path: &str, proxy: &Proxy, tap: &Tap) -> Vec<String> {
        let mut wrong = Vec::new();
        for method in self.methods {
            let found = ask(method, path, proxy, self.got.is_some());
            let expected = self.expected(&found);
            if found != expected {
                wrong.push(format!("-- {method}, expected\n{expected}\n-- found\n{found}"));
            }
            if *method == "POST" {
                continue;
            }
            let before = tap.count();
            let again = ask(method, path, proxy, self.got.is_some());
            let is_stored = tap.count() == before;
            if is_stored != self.stored || unframed(&again) != unframed(&self.expected(&again)) {
                wrong.push(format!("-- {method} again, from the store: {is_stored}\n{again}"));
            }
        }
        wrong
    }
}

/// An answer without what frames it, for a page from the store knows its length.
fn unframed(answer: &str) -> String {
    let frames = |line: &&str| {
        line.starts_with("transfer-encoding: ") || line.starts_with("content-length: ")
    };
    answer.lines().filter(|line| !frames(line)).collect::<Vec<_>>().join("\n")
}

/// Asks for a path, and tells the answer as text.
fn ask(method: &str, path: &str, proxy: &Proxy, in_full: bool) -> String {
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    let mut client: Client = proxy.connect();
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\n{length}\r\n").as_bytes());
    let Some(answer) = client.try_answer(method) else { return "a body that broke off".to_owned() };
    if !in_full && answer.body.whole && answer.text().starts_with(&format!("{} ", answer.status)) {
        return format!("{} of ours", answer.status);
    }
    if !answer.body.whole {
        return "a body that broke off".to_owned();
    }
    let mut lines: Vec<String> = answer
        .fields
        .iter()
        .filter(|(name, _)| !LEFT_OUT.contains(name))
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    lines.sort_by(|a, b| a.split(':').next().cmp(&b.split(':').next()));
    let text =
        format!("{} {}\n{}\n{}", answer.status, answer.reason, lines.concat(), answer.text());
    text.trim_end().to_owned()
}

/// Holds each row against one proxy.
#[track_caller]
fn hold(settings: &str, cases: &[Case]) {
    let path = |number: usize| format!("/c{number}");
    let scripts: BTreeMap<String, Vec<Step>> =
        cases.iter().enumerate().map(|(number, case)| (path(number), case.steps.clone())).collect();
    let scripts = Arc::new(scripts);
    let tap = Tap::start(move |seen| match scripts.get(&seen.target()) {
        Some(steps) => steps.clone(),
        None => vec![Step::Close],
    });
    // What the origin sends is compared: no codings of ours.
    let settings = format!("cache.compress = []\n{settings}");
    let proxy = Proxy::before(tap.address(), &Storage::Embedded, &settings);
    let wrong: Vec<String> = cases
        .iter()
        .enumerate()
        .map(|(number, case)| (case, case.check(&path(number), &proxy, &tap)))
        .filter(|(_, wrong)| !wrong.is_empty())
        .map(|(case, wrong)| format!("== {} ({})\n{}", case.name, case.why, wrong.join("\n")))
        .collect();
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
