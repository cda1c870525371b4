//! Plays a file of requests before a proxy, and notes all that can be seen of each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::recording::Recording;
use super::script::{Ask, Case, Part, Reply, Script, Step, bytes, read};
use super::watch::{Counters, Monitor, changes, counters};
use super::words::Words;
use crate::support::http2_client::{self, Http2Client};
use crate::support::proxy::{Proxy, Storage, anteroom};
use crate::support::tap::{self, RawRequest, Tap};
use crate::support::wire::{Body, Fields, Framing, Wire};
use crate::support::{DEADLINE, holds_within, wait_until, wait_within};

/// What each proxy of the pins has: one thread, so that requests stand in one order; no budget that a busy
/// machine could miss; connections to the origin that are not used again, as whether one has died is a matter of
/// time; and a page whose hole is what is asked for.
const SETTINGS: &str = "threads = 1\nstore.timeout = \"5s\"\norigin.keep_idle = 0\n\
                        limits.fragment_timeout = \"10s\"\nsession.clean_every = \"1h\"\n";
const HOLE_ROUTE: &str =
    "[[route]]\nname = \"hole\"\nmatch.path = \"/~hole\"\nshare = \"none\"\nesi = \"always\"\n";

/// How a file is played.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Http1,
    Http2,
    /// The last request of each case is what a page includes.
    Hole,
}

/// Plays `cases/<group>.txt`, and holds it against `recorded/<group>.<store>.txt`.
pub(super) fn play(group: &str, storage: &Storage) {
    let store = if matches!(storage, Storage::Embedded) { "embedded" } else { "redis" };
    let script = script_of(group);
    let mut recording = Recording::open(group, store);
    let mut first = Sections::new();
    for pass in [Pass::Http1, Pass::Http2, Pass::Hole] {
        if !script.cases.iter().any(|case| is_played(case, pass, storage)) {
            continue;
        }
        if let Storage::Redis(server) = storage {
            Monitor::start(server.port()).command(&["FLUSHALL".to_owned()]);
        }
        let stage = Stage::set(&script, storage);
        let played = stage.play(&script, pass, storage, &recording, &first);
        for (headline, mut section) in played {
            if pass == Pass::Http1 {
                first.insert(headline.clone(), section.clone());
            }
            if pass == Pass::Http2 {
                section.leave_out_what_is_as(first.get(&headline));
            }
            recording.add(pass.headline(&headline), section.lines());
        }
        if let Some(monitor) = &stage.monitor {
            let headline = pass.headline("what the store has at the end");
            recording.add(headline.clone(), state(monitor, recording.expected(&headline)));
        }
    }
    recording.close();
}

/// The requests of `cases/<group>.txt`.
pub(super) fn script_of(group: &str) -> Script {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/it/pins/cases");
    read(&std::fs::read_to_string(format!("{folder}/{group}.txt")).unwrap())
}

/// What the store has, once it is as recorded, or does not change any more.
fn state(monitor: &Monitor, recorded: Option<&[String]>) -> Vec<String> {
    let limit = Duration::from_secs(if recorded.is_some() { 4 } else { 2 });
    let mut lines = Vec::new();
    holds_within(limit, || {
        lines = monitor.state().iter().map(|line| Words::blurred(line)).collect();
        lines.sort();
        recorded.is_some_and(|recorded| recorded == lines)
    });
    lines
}

pub(super) fn is_played(case: &Case, pass: Pass, storage: &Storage) -> bool {
    let is_get = |ask: &Ask| ask.head.first().is_some_and(|line| line.starts_with("GET "));
    let ends_with_get = matches!(case.steps.last(), Some(Step::Ask(ask)) if is_get(ask));
    let is_here = !case.has(match storage {
        Storage::Embedded => "redis",
        Storage::Redis(_) => "embedded",
    });
    is_here
        && match pass {
            Pass::Http1 => !case.has("h2"),
            Pass::Http2 => !case.has("h1"),
            Pass::Hole => ends_with_get && !case.has("no-hole"),
        }
}

impl Pass {
    /// What the origin is told of the client's version: the one that is expected.
    fn via(self) -> &'static str {
        if self == Self::Http2 { "via: 2.0 " } else { "via: 1.1 " }
    }

    fn headline(self, headline: &str) -> String {
        match self {
            Self::Http1 => headline.to_owned(),
            Self::Http2 => format!("{headline}, over HTTP/2"),
            Self::Hole => format!("{headline}, in a hole"),
        }
    }
}

type Sections = BTreeMap<String, Section>;

/// What was seen of a request, by where.
#[derive(Clone, Debug, Default)]
struct Section(BTreeMap<usize, Vec<String>>);

/// Where something is seen.
const PLACES: [&str; 6] = ["sent", "origin", "client", "store", "log", "count"];
const SENT: usize = 0;
const ORIGIN: usize = 1;
const CLIENT: usize = 2;
const STORE: usize = 3;
const LOG: usize = 4;
const COUNT: usize = 5;
/// What may come behind the answer.
const BEHIND: [usize; 3] = [ORIGIN, STORE, COUNT];
const AS_FIRST: &str = "as over HTTP/1.1";

impl Section {
    fn of(&self, place: usize) -> &[String] {
        self.0.get(&place).map_or(&[], Vec::as_slice)
    }

    fn lines(&self) -> Vec<String> {
        let line = |(place, lines): (&usize, &Vec<String>)| {
            lines.iter().map(|line| format!("{}: {line}", PLACES[*place])).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(line).collect()
    }

    /// Whether all that may come behind the answer is as recorded; `first`: what was seen over HTTP/1.1.
    fn is_as(&self, recorded: &[String], first: Option<&Self>) -> bool {
        BEHIND.iter().all(|place| Self::expected(recorded, *place, first) == self.of(*place))
    }

    fn leave_out_what_is_as(&mut self, first: Option<&Self>) {
        let Some(first) = first else { return };
        for place in ORIGIN..=COUNT {
            if self.of(place) == first.of(place) {
                self.0.remove(&place);
                if !first.of(place).is_empty() {
                    self.0.insert(place, vec![AS_FIRST.to_owned()]);
                }
            }
        }
    }

    /// What is expected at a place; `first`: what was seen over HTTP/1.1.
    fn expected(recorded: &[String], place: usize, first: Option<&Self>) -> Vec<String> {
        let prefix = format!("{}: ", PLACES[place]);
        let lines = recorded.iter().filter_map(|line| line.strip_prefix(&prefix));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        match (lines.first().map(String::as_str), first) {
            (Some(AS_FIRST), Some(first)) => first.of(place).to_vec(),
            _ => lines,
        }
    }
}

/// What the origin is to say.
#[derive(Default)]
struct Plan {
    standing: BTreeMap<String, Vec<Part>>,
    answers: Vec<Reply>,
    /// What the page of holes includes.
    hole: String,
}

impl Plan {
    fn answer(&mut self, seen: &RawRequest) -> Vec<tap::Step> {
        let (target, words) = (seen.target(), seen.words());
        if target.starts_with("/~hole") {
            let page = format!("before <esi:include src=\"{}\"/> behind", self.hole);
            let head =
                ["HTTP/1.1 200 OK", "Content-Type: text/html", "Cache-Control: no-store", ""];
            let lines = head.into_iter().chain([page.as_str()]);
            let parts: Vec<_> = lines.map(|line| Part::Line(line.to_owned())).collect();
            return sent(&parts, false);
        }
        let own = |reply: &Reply| reply.target.as_deref() == Some(target.as_str());
        let at = self.answers.iter().position(own);
        let standing = self.standing.get(&target);
        let at = at.or_else(|| match standing {
            Some(_) => None,
            None => self.answers.iter().position(|reply| reply.target.is_none()),
        });
        let usual = || {
            let lines = ["HTTP/1.1 200 OK", "Content-Type: text/plain", "Cache-Control: no-store"];
            lines.into_iter().chain(["", "ok"]).map(|line| Part::Line(line.to_owned())).collect()
        };
        let parts = match at {
            Some(at) => self.answers.remove(at).parts,
            None => standing.cloned().unwrap_or_else(usual),
        };
        sent(&parts, words.first().is_some_and(|method| method == "HEAD"))
    }
}

/// An answer as bytes. A length is said where nothing else is.
fn sent(parts: &[Part], is_head: bool) -> Vec<tap::Step> {
    let lines: Vec<&str> = parts
        .iter()
        .filter_map(|part| if let Part::Line(line) = part { Some(line.as_str()) } else { None })
        .collect();
    let end = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
    let (head, body) = lines.split_at(end);
    let body = full(&body.get(1..).unwrap_or_default().join("\n"));
    let is_whole = parts.iter().all(|part| matches!(part, Part::Line(_)));
    let says_length = head.iter().any(|line| {
        let line = line.to_lowercase();
        line.starts_with("content-length:") || line.starts_with("transfer-encoding:")
    });
    let has_none = head.first().is_some_and(|line| {
        ["HTTP/1.1 1", "HTTP/1.1 204", "HTTP/1.1 304"].iter().any(|none| line.starts_with(none))
    });
    let mut steps = Vec::new();
    if !head.is_empty() {
        let mut text: String = head.iter().map(|line| format!("{}\r\n", full(line))).collect();
        if is_whole && !says_length && !has_none {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        if !is_head {
            text += &body;
        }
        steps.push(tap::Step::Send(text.into_bytes()));
    }
    steps.extend(parts.iter().filter_map(|part| match part {
        Part::Line(_) => None,
        Part::Raw(bytes) => Some(tap::Step::Send(bytes.clone())),
        Part::Close => Some(tap::Step::Close),
        Part::Reset => Some(tap::Step::Reset),
    }));
    steps
}

/// `{many:N}` as so many letters.
fn full(text: &str) -> String {
    let Some((before, rest)) = text.split_once("{many:") else { return text.to_owned() };
    let (count, behind) = rest.split_once('}').unwrap();
    format!("{before}{}{}", "x".repeat(count.parse().unwrap()), full(behind))
}

/// How far everything was when something began.
struct Mark {
    origin: usize,
    store: usize,
    counters: Counters,
}

pub(super) struct Stage {
    pub(super) proxy: Proxy,
    pub(super) origin: Tap,
    plan: Arc<Mutex<Plan>>,
    monitor: Option<Monitor>,
    addresses: Vec<(String, &'static str)>,
    /// Where the token of `[admin]` is: `{token}` in the settings.
    _folder: TempDir,
}

impl Stage {
    fn set(script: &Script, storage: &Storage) -> Self {
        Self::set_with("", script, storage)
    }

    /// The same with further settings.
    pub(super) fn set_with(further: &str, script: &Script, storage: &Storage) -> Self {
        let plan = Plan { standing: script.answers.clone(), ..Plan::default() };
        let plan = Arc::new(Mutex::new(plan));
        let answering = Arc::clone(&plan);
        let origin = Tap::start(move |seen| answering.lock().unwrap().answer(seen));
        let settings = &script.settings;
        let at = settings.find("[[").unwrap_or(settings.len());
        let (top, tables) = settings.split_at(at);
        let settings = format!("{SETTINGS}{further}{top}{HOLE_ROUTE}{tables}");
        let folder = TempDir::new().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "secret-token").unwrap();
        let settings = settings.replace("{origin}", &origin.address().to_string());
        let settings = settings.replace("{token}", &token.display().to_string());
        let proxy = Proxy::patient(origin.address(), storage, &settings);
        // Until the store has told of all purges, pages are fresh for a second.
        wait_until("the proxy knows all purges", || proxy.metric("anteroom_cut_off") == 0.0);
        let monitor = match storage {
            Storage::Embedded => None,
            Storage::Redis(server) => Some(Monitor::start(server.port())),
        };
        let addresses = vec![
            (proxy.address().to_string(), "<proxy>"),
            (origin.address().to_string(), "<origin>"),
        ];
        Self { proxy, origin, plan, monitor, addresses, _folder: folder }
    }

    fn mark(&self) -> Mark {
        let store = self.monitor.as_ref().map_or(0, Monitor::count);
        Mark { origin: self.origin.count(), store, counters: counters(&self.proxy) }
    }

    fn play(
        &self,
        script: &Script,
        pass: Pass,
        storage: &Storage,
        recording: &Recording,
        first: &Sections,
    ) -> Vec<(String, Section)> {
        let mut played: Vec<(String, Section)> = Vec::new();
        let (mut values, mut mark) = (BTreeMap::new(), self.mark());
        let mut patience = Duration::from_secs(4);
        for case in script.cases.iter().filter(|case| is_played(case, pass, storage)) {
            let begun = counters(&self.proxy);
            for (at, step) in case.steps.iter().enumerate() {
                let is_last = at + 1 == case.steps.len();
                let Step::Ask(ask) = step else {
                    self.prepare(step, &begun);
                    mark = self.mark();
                    continue;
                };
                let headline = match case.steps.len() {
                    1 => case.name.clone(),
                    _ => format!("{} ({})", case.name, at + 1),
                };
                let how = if pass == Pass::Hole && !is_last { Pass::Http1 } else { pass };
                self.monitor.iter().for_each(Monitor::end_leases);
                let (mut section, words) = self.ask(ask, how, played.len(), &mut values);
                let recorded = recording.expected(&how.headline(&headline));
                let first = first.get(&headline);
                let seen = RefCell::new((usize::MAX, usize::MAX, Counters::new()));
                let look = |section: &mut Section| {
                    let (now, mut words) = (counters(&self.proxy), words.again());
                    let store = self.monitor.as_ref().map_or(0, Monitor::count);
                    let all = (
                        self.origin.seen().iter().map(|seen| seen.raw.len()).sum(),
                        store,
                        now.clone(),
                    );
                    if seen.replace(all.clone()) == all {
                        return now;
                    }
                    self.look(section, &mark, &now, case, &mut words, how);
                    now
                };
                let now = match recorded {
                    Some(recorded) if how == pass => {
                        until_as_recorded(&mut section, look, recorded, first, &mut patience)
                    }
                    // A request before the page of a hole is asked as over HTTP/1.1, and not compared.
                    recorded => until_quiet(&mut section, look, recorded),
                };
                let store = self.monitor.as_ref().map_or(0, Monitor::count);
                mark = Mark { origin: self.origin.count(), store, counters: now };
                played.push((headline, section));
            }
        }
        self.add_log(&mut played, pass);
        if pass == Pass::Hole {
            played.retain(|(headline, _)| {
                script.cases.iter().any(|case| {
                    let last = format!("{} ({})", case.name, case.steps.len());
                    *headline == last || *headline == case.name
                })
            });
        }
        played
    }

    /// What is done before a request.
    pub(super) fn prepare(&self, step: &Step, begun: &Counters) {
        match step {
            Step::Ask(_) => {}
            Step::Redis(words) => self.monitor.iter().for_each(|redis| drop(redis.command(words))),
            Step::Command(words) => {
                let mut command = anteroom();
                command.args(words).args(["--config", "proxy.toml"]);
                command.current_dir(self.proxy.folder()).stdin(Stdio::null());
                let said = command.output().unwrap();
                assert!(said.status.success(), "{words:?}: {said:?}");
            }
            Step::Wait(name) => wait_until(name, || {
                let count = |counters: &Counters| counters.get(name).copied().unwrap_or_default();
                count(&counters(&self.proxy)) > count(begun)
            }),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        counters(&self.proxy)
    }

    /// Waits until what the requests before have led to is done.
    pub(super) fn rest(&self) {
        let (mut before, mut alike) = ((usize::MAX, Counters::new()), 0);
        wait_until("nothing is done any more", || {
            let now = (self.origin.count(), self.counters());
            let is_same = std::mem::replace(&mut before, now.clone()) == now;
            alike = if is_same { alike + 1 } else { 0 };
            alike == 2
        });
    }

    /// The first line, the fields and the body of a request.
    pub(super) fn filled(
        &self,
        ask: &Ask,
        values: &BTreeMap<String, String>,
    ) -> (Vec<String>, Option<String>) {
        let body = ask.body.as_ref().map(|line| filled(line, values));
        let head = ask.head.iter().map(|line| filled(line, values));
        (head.collect(), body.filter(|body| !body.is_empty()))
    }

    /// Asks over HTTP/1.1; the status of the answer and its `Cache-Status`, where one came.
    pub(super) fn ask_for(
        &self,
        ask: &Ask,
        number: usize,
        values: &mut BTreeMap<String, String>,
    ) -> Option<(String, Option<String>)> {
        let (mut head, body) = self.filled(ask, values);
        head.push(format!("User-Agent: pin/{number}"));
        self.plan.lock().unwrap().answers = ask.answers.clone();
        let answers = over_http1(self.proxy.address(), &head, body.as_deref());
        keep_values(&answers, values);
        let last = answers.last().filter(|last| last.first.len() == 3)?;
        let mut fields = last.fields.iter();
        // Others may have written theirs.
        let named = fields.find(|(name, value)| {
            name.eq_ignore_ascii_case("cache-status") && value.starts_with("anteroom")
        });
        Some((last.first.clone(), named.map(|(_, value)| value.clone())))
    }

    /// Asks, and notes what the client got.
    fn ask(
        &self,
        ask: &Ask,
        how: Pass,
        number: usize,
        values: &mut BTreeMap<String, String>,
    ) -> (Section, Words) {
        let mut words = Words::new(&self.addresses);
        let (mut head, body) = self.filled(ask, values);
        head.push(format!("User-Agent: pin/{number}"));
        let mut plan = self.plan.lock().unwrap();
        plan.answers = ask.answers.clone();
        if how == Pass::Hole {
            plan.hole = head[0].split(' ').nth(1).unwrap().to_owned();
            head[0] = format!("GET /~hole?{number} HTTP/1.1");
        }
        drop(plan);
        let mut section = Section::default();
        section.0.insert(SENT, vec![words.line(&shortened(&ask.head[0]))]);
        let answers = match how {
            Pass::Http2 => over_http2(self.proxy.address(), &head, body.as_deref()),
            _ => over_http1(self.proxy.address(), &head, body.as_deref()),
        };
        keep_values(&answers, values);
        let lines = answers.iter().flat_map(|answer| answer.lines(&mut words)).collect();
        section.0.insert(CLIENT, lines);
        (section, words)
    }

    /// Notes what is seen behind a request.
    fn look(
        &self,
        section: &mut Section,
        since: &Mark,
        now: &Counters,
        case: &Case,
        words: &mut Words,
        how: Pass,
    ) {
        let mut seen = self.origin.seen()[since.origin..].to_vec();
        seen.sort_by_key(RawRequest::target);
        let lines = seen.iter().flat_map(|seen| origin_lines(seen, words));
        section
            .0
            .insert(ORIGIN, lines.map(|line| line.replace(how.via(), "via: <version> ")).collect());
        if let Some(monitor) = &self.monitor {
            let mut lines = monitor.since(since.store, case.has("looks-up"));
            if case.has("side-by-side") {
                lines = in_one_order(&lines);
            }
            section.0.insert(STORE, lines.iter().map(|line| words.line(line)).collect());
        }
        let lines = changes(&since.counters, now);
        section.0.insert(COUNT, lines.iter().map(|line| words.line(line)).collect());
    }

    /// Adds the lines of the access log, which is written behind everything.
    fn add_log(&self, played: &mut [(String, Section)], pass: Pass) {
        let end = ["GET / HTTP/1.1", "Host: shop.test", "User-Agent: pin/end"].map(str::to_owned);
        drop(over_http1(self.proxy.address(), &end, None));
        let mut log = Vec::new();
        wait_within(DEADLINE, "the access log is written", || {
            let text = std::fs::read_to_string(self.proxy.log_file()).unwrap_or_default();
            // The last one may not be whole yet.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            log = lines.collect();
            log.iter().any(|line| line["agent"] == "pin/end")
        });
        for (number, (_, section)) in played.iter_mut().enumerate() {
            let agent = format!("pin/{number}");
            let own = log.iter().filter(|line| line["agent"] == agent.as_str());
            section.0.insert(LOG, own.map(|line| log_line(line, pass)).collect());
        }
    }
}

/// A line with the values of its names.
fn filled(line: &str, values: &BTreeMap<String, String>) -> String {
    let line = values
        .iter()
        .fold(line.to_owned(), |line, (name, value)| line.replace(&format!("{{{name}}}"), value));
    full(&line)
}

/// Keeps the cookies and the entity tag of answers for later requests.
fn keep_values(answers: &[Answer], values: &mut BTreeMap<String, String>) {
    for (name, value) in answers.iter().flat_map(|answer| &answer.fields) {
        if let Some((cookie, value)) = value.split(';').next().unwrap().split_once('=')
            && name.eq_ignore_ascii_case("set-cookie")
            && !value.is_empty()
        {
            values.insert(cookie.to_owned(), value.to_owned());
        }
        if name.eq_ignore_ascii_case("etag") {
            values.insert("etag".to_owned(), value.clone());
        }
    }
}

/// Commands that are sent side by side, in the order of their words; those of a script stay behind it.
fn in_one_order(lines: &[String]) -> Vec<String> {
    let mut commands: Vec<Vec<String>> = Vec::new();
    for line in lines {
        match commands.last_mut() {
            Some(command) if line.starts_with(' ') => command.push(line.clone()),
            _ => commands.push(vec![line.clone()]),
        }
    }
    commands.sort_by_key(|command| Words::blurred(&command.join(" ")));
    commands.concat()
}

/// Looks until all is as recorded, or for as long as `patience`, which is not given twice.
fn until_as_recorded(
    section: &mut Section,
    look: impl Fn(&mut Section) -> Counters,
    recorded: &[String],
    first: Option<&Section>,
    patience: &mut Duration,
) -> Counters {
    let mut now = Counters::new();
    let is_there = holds_within(*patience, || {
        now = look(section);
        section.is_as(recorded, first)
    });
    if !is_there {
        *patience = Duration::from_millis(300);
    }
    now
}

/// Looks until nothing has changed for a while, or all is as `expected`.
fn until_quiet(
    section: &mut Section,
    look: impl Fn(&mut Section) -> Counters,
    expected: Option<&[String]>,
) -> Counters {
    let mut quiet_since = Instant::now();
    let mut now = look(section);
    let mut before = section.lines();
    wait_within(Duration::from_secs(60), "nothing changes any more", || {
        now = look(section);
        let lines = section.lines();
        if lines != before {
            (before, quiet_since) = (lines, Instant::now());
        }
        let is_there = expected.is_some_and(|expected| section.is_as(expected, None));
        is_there || quiet_since.elapsed() >= Duration::from_millis(350)
    });
    now
}

/// A long line by its beginning.
fn shortened(line: &str) -> String {
    match line.get(..200) {
        Some(begin) => format!("{begin}… ({} bytes)", line.len()),
        None => line.to_owned(),
    }
}

/// A request as the origin saw it.
fn origin_lines(seen: &RawRequest, words: &mut Words) -> Vec<String> {
    let text = String::from_utf8_lossy(&seen.raw).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines: Vec<String> =
        head.split("\r\n").map(|line| shortened(&words.line(line))).collect();
    if seen.target().starts_with("/~hole") {
        lines.truncate(1);
    }
    lines = without_usual(lines);
    lines.extend(body_lines(body.as_bytes(), words));
    if !seen.whole {
        lines.push("(not whole)".to_owned());
    }
    lines
}

/// What we say of every client on this machine that comes by http, as one line.
fn without_usual(lines: Vec<String>) -> Vec<String> {
    let host = lines.iter().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let usual = [
        "x-forwarded-for: 127.0.0.1".to_owned(),
        "x-forwarded-proto: http".to_owned(),
        format!("x-forwarded-host: {host}"),
        format!("forwarded: for=127.0.0.1;host={host};proto=http"),
    ];
    let Some(at) = lines.windows(usual.len()).position(|some| some == usual) else { return lines };
    let (before, behind) = (lines[..at].to_vec(), lines[at + usual.len()..].to_vec());
    [before, vec!["(forwarded as usual)".to_owned()], behind].concat()
}

fn body_lines(body: &[u8], words: &mut Words) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let is_text = !text.contains('\u{fffd}');
    let text = if is_text { text.replace('\r', "\\r") } else { body.escape_ascii().to_string() };
    text.lines().map(|line| format!("| {}", shortened(&words.line(line)))).collect()
}

/// An answer, or why there is none.
struct Answer {
    first: String,
    fields: Vec<(String, String)>,
    body: Body,
}

impl Answer {
    fn none(why: String) -> Self {
        let body = Body { whole: true, ..Body::default() };
        Self { first: why, fields: Vec::new(), body }
    }

    fn lines(&self, words: &mut Words) -> Vec<String> {
        let mut lines = vec![self.first.clone()];
        let fields = self.fields.iter().map(|(name, value)| format!("{name}: {value}"));
        lines.extend(fields.map(|line| shortened(&words.line(&line))));
        let coding = self.fields.iter().find(|(name, _)| name == "content-encoding");
        match coding.map(|(_, value)| value.as_str()) {
            Some("gzip") if self.body.whole => lines.extend(unzipped(&self.body.bytes)),
            _ => lines.extend(body_lines(&self.body.bytes, words)),
        }
        let trailers = self.body.trailers.iter();
        lines.extend(trailers.map(|(name, value)| format!("trailer {name}: {value}")));
        if !self.body.whole {
            lines.push("(broken off)".to_owned());
        }
        lines
    }
}

fn unzipped(bytes: &[u8]) -> Vec<String> {
    let mut text = String::new();
    let read = std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(bytes), &mut text);
    let lines = text.lines().map(|line| format!("gzip| {}", shortened(line)));
    let mut lines: Vec<String> = lines.collect();
    if let Err(error) = read {
        lines.push(format!("gzip| ({error})"));
    }
    lines
}

/// Asks on a connection of HTTP/1, and reads all answers: interim ones, too.
fn over_http1(address: SocketAddr, head: &[String], body: Option<&str>) -> Vec<Answer> {
    let stream = TcpStream::connect_timeout(&address, DEADLINE).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut wire = Wire::new(stream);
    let mut text: String = head.iter().map(|line| format!("{line}\r\n")).collect();
    let says = |name: &str| head.iter().any(|line| line.to_lowercase().starts_with(name));
    if let Some(body) = body
        && !says("content-length:")
        && !says("transfer-encoding:")
    {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    let mut raw = [text.as_bytes(), b"\r\n"].concat();
    raw.extend(bytes(body.unwrap_or_default()));
    // What closes before all is sent has answered.
    drop(wire.socket().write_all(&raw));
    let mut answers = Vec::new();
    loop {
        let head_came = match wire.head() {
            Ok(Some(head)) => head,
            Ok(None) => return with(answers, Answer::none("(closed)".to_owned())),
            Err(error) => return with(answers, Answer::none(format!("({})", error.kind()))),
        };
        let mut first = head_came.first.splitn(3, ' ').skip(1);
        let status = first.next().unwrap_or_default().to_owned();
        let fields = pairs(&head_came.fields);
        let is_interim = status.starts_with('1') && status != "101";
        let has_none =
            is_interim || head[0].starts_with("HEAD ") || status == "204" || status == "304";
        let framing = match has_none {
            true => Framing::Nothing,
            false => Framing::of(&head_came.fields, Framing::UntilClose),
        };
        let body = wire.body(framing);
        answers.push(Answer { first: status, fields, body });
        if !is_interim {
            return answers;
        }
    }
}

fn with(mut answers: Vec<Answer>, last: Answer) -> Vec<Answer> {
    answers.push(last);
    answers
}

fn pairs(fields: &Fields) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The same on a connection of HTTP/2.
fn over_http2(address: SocketAddr, head: &[String], body: Option<&str>) -> Vec<Answer> {
    let mut first = head[0].split(' ');
    let (method, target) = (first.next().unwrap(), first.next().unwrap());
    let fields: Vec<(String, String)> = head[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let host = fields.iter().find(|(name, _)| name == "host").map_or("", |(_, value)| value);
    let others: Vec<(&str, &str)> = fields
        .iter()
        .filter(|(name, _)| {
            !["host", "connection", "keep-alive", "upgrade"].contains(&name.as_str())
        })
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let request = http2_client::ask(method, &format!("http://{host}{target}"), &others);
    let body = body.map(|body| body.as_bytes());
    let reply = match Http2Client::open(address).send(request, body, None) {
        Ok(reply) => reply,
        Err(error) => return vec![Answer::none(format!("({error})"))],
    };
    let named = |headers: &http::HeaderMap| -> Vec<(String, String)> {
        let pair = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        headers.iter().map(pair).collect()
    };
    let mut fields = named(&reply.headers);
    // The library says it elsewhere than that of HTTP/1.1.
    fields.sort_by_key(|(name, _)| name == "date");
    let trailers = reply.trailers.as_ref().map(named).unwrap_or_default();
    fields.extend(trailers.into_iter().map(|(name, value)| (format!("(trailer) {name}"), value)));
    let body = Body { bytes: reply.body, whole: true, ..Body::default() };
    vec![Answer { first: reply.status.to_string(), fields, body }]
}

/// A line of the access log without what is another each time.
fn log_line(line: &Value, pass: Pass) -> String {
    let version = if pass == Pass::Http2 { "HTTP/2.0" } else { "HTTP/1.1" };
    let fields =
        line.as_object().unwrap().iter().filter_map(|(name, value)| match (name.as_str(), value) {
            ("time" | "ms" | "agent", _) => None,
            ("version", Value::String(value)) if value == version => None,
            ("origin_ms", _) => Some("origin_ms=<ms>".to_owned()),
            (_, Value::String(value)) => Some(format!("{name}={value}")),
            (_, value) => Some(format!("{name}={value}")),
        });
    fields.collect::<Vec<_>>().join(" ")
}
