//! Requests from a raw socket, and what the origin saw of each, byte for byte.
//!
//! A case is a row: its name, why it is so, what the client sends, what the origin sees, and what
//! becomes of the client's connection. `/~` stands for a path that no other case asks for.

#![allow(clippy::too_many_lines, reason = "a table is as long as it has rows")]

mod coding;
mod forging;
mod hops;
mod host;
mod length;
mod line;
mod names;
mod path;
mod shared;
mod turns;
mod upgrade;

use std::net::Shutdown;

use crate::support::client::Client;
use crate::support::proxy::{Proxy, Storage};
use crate::support::tap::{RawRequest, Step, Tap, name_of, told};

/// What is asked behind each case on its connection, to see whether that goes on.
const PROBE: &[u8] = b"OPTIONS /probe HTTP/1.1\r\nHost: probe.test\r\n\r\n";

/// What we say of each request from loopback without a cookie; a case that expects another line of
/// that name says so.
const OURS: [&str; 6] = [
    "forwarded: for=127.0.0.1;host={host};proto=http",
    "via: 1.1 anteroom",
    "x-anteroom-session: none",
    "x-forwarded-for: 127.0.0.1",
    "x-forwarded-host: {host}",
    "x-forwarded-proto: http",
];

/// A row.
struct Case {
    name: &'static str,
    why: &'static str,
    sent: Vec<u8>,
    /// Whether the client ends its side behind that.
    ends: bool,
    /// What the origin sees, as text with `\n` between lines; `None`: nothing whole.
    saw: Option<Vec<String>>,
    /// The statuses that the client gets.
    got: Vec<u16>,
    /// Whether the client's connection goes on.
    goes_on: bool,
    /// Whether the page is for all, so that a second request is made for all where the first was sent as it came.
    is_fill: bool,
}

/// The request does not go on: the client gets that status, and its connection ends.
fn refused(name: &'static str, why: &'static str, sent: impl AsRef<[u8]>, status: u16) -> Case {
    let sent = sent.as_ref().to_vec();
    let (saw, got) = (Some(Vec::new()), vec![status]);
    Case { name, why, sent, ends: false, saw, got, goes_on: false, is_fill: false }
}

/// The origin sees this, its answer arrives, and the connection goes on.
fn passes(name: &'static str, why: &'static str, sent: impl AsRef<[u8]>, saw: &str) -> Case {
    let case = refused(name, why, sent, 200);
    Case { goes_on: true, saw: Some(vec![saw.to_owned()]), ..case }
}

/// The origin sees this as the request of all visitors of the page.
fn fills(name: &'static str, why: &'static str, sent: impl AsRef<[u8]>, saw: &str) -> Case {
    Case { is_fill: true, ..passes(name, why, sent, saw) }
}

/// Whatever the origin sees of the request, it is not whole.
fn cut(name: &'static str, why: &'static str, sent: impl AsRef<[u8]>, got: &[u16]) -> Case {
    let case = refused(name, why, sent, 0);
    Case { saw: None, got: got.to_vec(), ..case }
}

impl Case {
    /// The connection ends behind the answer.
    fn then_closed(self) -> Self {
        Self { goes_on: false, ..self }
    }

    /// The client says no more.
    fn ending(self) -> Self {
        Self { ends: true, ..self }
    }

    /// The client gets these statuses.
    fn got(self, statuses: &[u16]) -> Self {
        Self { got: statuses.to_vec(), ..self }
    }

    /// The origin sees this, too.
    fn and_saw(mut self, saw: &str) -> Self {
        self.saw.get_or_insert_default().push(saw.to_owned());
        self
    }

    fn expected(&self, path: &str) -> String {
        let seen = self.saw.as_ref().map_or_else(
            || "nothing whole\n".to_owned(),
            |seen| seen.iter().map(|text| full(&text.replace("/~", path))).collect(),
        );
        let end = if self.goes_on { "goes on" } else { "ends" };
        format!("got {:?}, {end}\n{seen}", self.got)
    }

    fn found(&self, path: &str, proxy: &Proxy, tap: &Tap) -> String {
        let before = tap.count();
        let mut client = proxy.connect();
        if self.is_fill {
            client.send(&with_path(&self.sent, path));
            client.try_answer("GET");
        }
        client.send(&with_path(&self.sent, path));
        if self.ends {
            client.shut(Shutdown::Write);
        }
        let method = if self.sent.starts_with(b"HEAD ") { "HEAD" } else { "GET" };
        let mut got = Vec::new();
        for _ in &self.got {
            got.extend(client.try_answer(method).map(|answer| answer.status));
        }
        let end = if goes_on(&mut client) { "goes on" } else { "ends" };
        let seen = &tap.seen()[before..];
        // What is left of an earlier case's broken body may come in late; whole requests may not.
        let is_of_this = |seen: &&RawRequest| seen.whole || seen.target().contains(path);
        let seen = seen.iter().filter(|seen| seen.target() != "/probe").filter(is_of_this);
        let first = if self.is_fill { seen.clone().count().saturating_sub(1) } else { 0 };
        let seen = seen.skip(first);
        let seen: String = match &self.saw {
            None if seen.clone().any(|seen| seen.whole) => "something whole\n".to_owned(),
            None => "nothing whole\n".to_owned(),
            Some(_) => {
                seen.map(|seen| told(&seen.raw, &["cdn-loop", "traceparent"]) + "\n").collect()
            }
        };
        format!("got {got:?}, {end}\n{seen}")
    }
}

/// Whether another request on the connection is answered.
fn goes_on(client: &mut Client) -> bool {
    client.send(PROBE);
    client.try_answer("OPTIONS").is_some_and(|answer| answer.status == 200)
}

fn with_path(sent: &[u8], path: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sent.len());
    let mut rest = sent;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"/~") {
        bytes.extend_from_slice(&rest[..at]);
        bytes.extend_from_slice(path.as_bytes());
        rest = &rest[at + 2..];
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// What the origin is to see, with the lines that we add.
fn full(saw: &str) -> String {
    let (head, body) = saw.split_once("\n\n").unwrap_or((saw, ""));
    let mut lines: Vec<String> = head.split('\n').map(str::to_owned).collect();
    let first = lines.remove(0);
    let host = lines.iter().find_map(|line| line.strip_prefix("host: ")).unwrap_or("").to_owned();
    let quote = if host.contains([':', '[']) { "\"" } else { "" };
    for line in OURS {
        if !lines.iter().any(|said| name_of(said) == name_of(line)) {
            let place = if line.starts_with("forwarded") { quote } else { "" };
            lines.push(line.replace("{host}", &format!("{place}{host}{place}")));
        }
    }
    lines.sort_by(|a, b| name_of(a).cmp(name_of(b)));
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let end = if body.is_empty() { "" } else { "\n" };
    format!("{first}\n{lines}{end}{body}\n")
}

/// Holds each row against one proxy.
#[track_caller]
fn hold(settings: &str, cases: &[Case]) {
    let tap = Tap::start(answer);
    let proxy = Proxy::before(tap.address(), &Storage::Embedded, settings);
    let wrong: Vec<String> = cases
        .iter()
        .enumerate()
        .filter_map(|(number, case)| {
            let path = format!("/c{number}");
            let (expected, found) = (case.expected(&path), case.found(&path, &proxy, &tap));
            let Case { name, why, .. } = case;
            (expected != found)
                .then(|| format!("== {name} ({why})\n-- expected {expected}-- found {found}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// A page that is not kept; where the target says `keep`, one that every cache may keep.
fn answer(seen: &RawRequest) -> Vec<Step> {
    let control = if seen.target().contains("keep") { "max-age=60" } else { "no-store" };
    let body = if seen.raw.starts_with(b"HEAD ") { "" } else { "ok" };
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: {control}\r\n\
         Content-Length: 2\r\n\r\n{body}"
    );
    vec![Step::Send(text.into_bytes())]
}
