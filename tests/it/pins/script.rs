//! A file of requests, as it is written in `cases/`.
//!
//! ```text
//! settings
//!   lines of a proxy.toml
//! answer /a/path
//! < what the origin answers there, unless a request's own answers are for that target
//! == the name of a case
//! flags: h1 no-hole
//! redis: HSET login: a-token alice
//! > GET /a/page HTTP/1.1
//! > Host: shop.test
//! < HTTP/1.1 200 OK
//! <
//! < the origin's answer to it; another one behind `<<`, or behind `< for /target` for that target
//! ```
//!
//! Flags: `h1` and `h2` (only over that version), `no-hole` (not as a hole in a page), `redis` and `embedded` (only
//! on that store), `looks-up` (with the commands whose answers are remembered for a while: for what is asked for only once),
//! `side-by-side` (its commands come in no certain order).
//!
//! A case is played step by step. `{name}` stands for the newest value of the cookie `name`, `{etag}` for the
//! newest `ETag`, and `{many:N}` for N letters. What begins with `<!` is no line: `<! close` ends the origin's
//! connection, `<! reset` resets it, and `<! raw` sends bytes with Rust's escapes.

use std::collections::BTreeMap;

/// A file.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) settings: String,
    pub(super) answers: BTreeMap<String, Vec<Part>>,
    pub(super) cases: Vec<Case>,
}

/// Some requests, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Case {
    pub(super) name: String,
    flags: Vec<String>,
    pub(super) steps: Vec<Step>,
}

impl Case {
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|have| have == flag)
    }
}

/// What is done in a case.
#[derive(Debug)]
pub(super) enum Step {
    Ask(Ask),
    /// A command to Redis; nothing on the embedded store.
    Redis(Vec<String>),
    /// A run of the binary with these words.
    Command(Vec<String>),
    /// Waits until a counter is greater than when the case began.
    Wait(String),
}

/// A request with the origin's answers to what it leads to.
#[derive(Clone, Debug, Default)]
pub(super) struct Ask {
    /// The first line and the fields.
    pub(super) head: Vec<String>,
    pub(super) body: Option<String>,
    pub(super) answers: Vec<Reply>,
}

/// An answer of the origin's.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    /// Only to this target.
    pub(super) target: Option<String>,
    pub(super) parts: Vec<Part>,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// A line of a head or body.
    Line(String),
    Raw(Vec<u8>),
    Close,
    Reset,
}

/// Where the lines that are read belong to.
enum At {
    Nowhere,
    Settings,
    Answer(String),
    Case,
}

/// Reads a file.
pub(super) fn read(text: &str) -> Script {
    let (mut script, mut at, mut asks) = (Script::default(), At::Nowhere, false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            script.cases.push(Case { name: name.to_owned(), ..Case::default() });
            (at, asks) = (At::Case, false);
        } else if line == "settings" {
            at = At::Settings;
        } else if let Some(path) = line.strip_prefix("answer ") {
            at = At::Answer(path.to_owned());
        } else if !line.starts_with('#') {
            match &at {
                At::Nowhere => assert!(line.is_empty(), "{line}"),
                At::Settings => script.settings += &format!("{}\n", line.trim()),
                At::Answer(path) if line.is_empty() => {
                    assert!(script.answers.contains_key(path), "no answer to {path}");
                }
                At::Answer(path) => {
                    let line = line.strip_prefix('<').expect("an answer's line begins with <");
                    let line = line.strip_prefix(' ').unwrap_or(line);
                    script.answers.entry(path.clone()).or_default().push(part(line));
                }
                At::Case => add(script.cases.last_mut().unwrap(), line, &mut asks),
            }
        }
    }
    script
}

/// Adds a line to a case; `asks`: the lines of a request may go on.
fn add(case: &mut Case, line: &str, asks: &mut bool) {
    if let Some(line) = line.strip_prefix('>') {
        if !*asks {
            case.steps.push(Step::Ask(Ask::default()));
        }
        *asks = true;
        let Some(Step::Ask(ask)) = case.steps.last_mut() else { unreachable!() };
        let line = line.strip_prefix(' ').unwrap_or(line);
        match &mut ask.body {
            Some(body) if body.is_empty() => body.push_str(line),
            Some(body) => *body += &format!("\n{line}"),
            None if line.is_empty() => ask.body = Some(String::new()),
            None => ask.head.push(line.to_owned()),
        }
    } else if let Some(line) = line.strip_prefix('<') {
        let Some(Step::Ask(ask)) = case.steps.last_mut() else { panic!("an answer to nothing") };
        let is_new = std::mem::take(asks);
        let target = line.strip_prefix(" for ").map(str::to_owned);
        if target.is_some() || is_new || line == "<" {
            let is_another = target.is_some() || line == "<";
            ask.answers.push(Reply { target, parts: Vec::new() });
            if is_another {
                return;
            }
        }
        ask.answers.last_mut().unwrap().parts.push(part(line.strip_prefix(' ').unwrap_or(line)));
    } else {
        *asks = false;
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        match line.split_once(": ") {
            Some(("flags", flags)) => case.flags = words(flags),
            Some(("redis", command)) => case.steps.push(Step::Redis(words(command))),
            Some(("command", command)) => case.steps.push(Step::Command(words(command))),
            Some(("wait", counter)) => case.steps.push(Step::Wait(counter.to_owned())),
            _ => assert!(line.is_empty(), "{}: {line}", case.name),
        }
    }
}

fn part(line: &str) -> Part {
    match line.strip_prefix("! ") {
        Some("close") => Part::Close,
        Some("reset") => Part::Reset,
        Some(raw) => Part::Raw(bytes(raw.strip_prefix("raw ").expect("raw, close or reset"))),
        None => Part::Line(line.to_owned()),
    }
}

/// `\r`, `\n`, `\t` and `\xNN`.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let (byte, length) = match (first, behind) {
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'\\', ..]) => (b'\\', 2),
            (b'\\', [b'x', high, low, ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).unwrap();
                (u8::from_str_radix(digits, 16).unwrap(), 4)
            }
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    bytes
}
