//! The play: one step after the other, as chance says.

use std::collections::HashMap;
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteroom_http::clock::{self, unix_now};
use anteroom_tests::wire::{Body, Framing, Wire};
use fastrand::Rng;

use crate::cast::{Ask, Share, Url, Visitor};
use crate::check::{Answer, check};
use crate::origin::{TAGS, body};
use crate::proxy::{self, Proxy, TOKEN};
use crate::rules::MAX_OBJECT;
use crate::world::{DEADLINE, Health, Hold, Purge, Scope, World};

/// Connections of visitors.
const CONNECTIONS: usize = 12;
/// Requests by which the use of the cache can be told.
const ENOUGH: u64 = 40_000;
/// Pages are known to be kept where they are fresh for so many seconds more, at least.
const TO_SPARE: f64 = 3.0;

/// How often the cache was of use.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    answers: u64,
    shareable: u64,
    hits: u64,
    validated: u64,
    expected: u64,
    missed: u64,
    stale: u64,
    bursts: u64,
    writes: u64,
    purges: u64,
    holds: u64,
    late: u64,
    broken: u64,
}

impl Tally {
    pub(crate) fn text(&self) -> String {
        let rate = 100.0 * self.hits as f64 / self.shareable as f64;
        format!("{rate:.1} % of the shareable requests are hits: {self:?}")
    }

    /// At least half of what can be shared is, where there was enough of it for chance to even out;
    /// and nearly all of which the model is sure.
    pub(crate) fn check(&self) {
        let is_useful = 2 * self.hits >= self.shareable || self.shareable < ENOUGH;
        assert!(is_useful, "the cache is of little use");
        assert!(20 * self.missed <= self.expected, "pages are lost");
    }
}

/// A request under way.
struct PendingRequest {
    ask: Ask,
    place: usize,
    begun: u64,
    begun_at: f64,
    since: Instant,
    is_expected: bool,
}

/// Everything.
pub(crate) struct Play {
    rng: Rng,
    world: Arc<World>,
    proxy: Proxy,
    connections: Vec<Option<Wire>>,
    asked: u64,
    /// The newest tag that came for an address.
    tags: HashMap<Url, String>,
    /// Answers that the proxy is sure to have kept, the newest of each address.
    kept: HashMap<Url, Vec<usize>>,
    pub(crate) tally: Tally,
}

impl Play {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let world = Arc::new(World::new(rng.u64(..)));
        let proxy = proxy::start(crate::origin::start(&world));
        Self {
            rng,
            world,
            proxy,
            connections: (0..CONNECTIONS).map(|_| None).collect(),
            asked: 0,
            tags: HashMap::new(),
            kept: HashMap::new(),
            tally: Tally::default(),
        }
    }

    /// What is wrong by now, with what led to it.
    pub(crate) fn wrong(&self) -> Option<String> {
        let state = self.world.state();
        (!state.wrongs.is_empty()).then(|| state.wrongs.clone())
    }

    pub(crate) fn step(&mut self) {
        {
            let mut state = self.world.state();
            state.step += 1;
            state.before = state.events.len();
            state.health = match (state.health, self.rng.u8(..100)) {
                (Health::Well, 0) | (Health::Failing, 20..) => Health::Failing,
                (Health::Well, _) | (Health::Failing, _) => Health::Well,
            };
        }
        let url = Url::any(&mut self.rng);
        match self.rng.u8(..100) {
            0..72 => self.exchange(&url, 1),
            72..82 => self.burst(&url),
            82..84 => self.write(&url),
            84..86 => self.purge(&url),
            86..90 => self.hold(&url),
            90..92 => self.leave(&url),
            92 => self.late(&url),
            _ => {
                for _ in 0..6 {
                    self.exchange(&url, 1);
                }
            }
        }
        if self.rng.u8(..36) == 0 {
            self.wait();
        }
    }

    /// Time goes by.
    fn wait(&mut self) {
        let seconds = [0.3, 1.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0][self.rng.usize(..9)];
        let seconds = if self.rng.u8(..60) == 0 { 700.0 } else { seconds };
        self.pass(seconds);
    }

    fn pass(&mut self, seconds: f64) {
        clock::advance(Duration::from_secs_f64(seconds));
        let mut state = self.world.state();
        state.tell(None, &format!("{seconds} s go by"));
        // A failure of this step may be noticed only now.
        let (step, now) = (state.step, unix_now());
        for (_, when) in state.failures.values_mut().filter(|(failed_in, _)| *failed_in == step) {
            *when = now;
        }
    }

    /// The same where answers of this step may not have come to the proxy yet.
    fn pass_under_way(&mut self, seconds: f64) {
        self.pass(seconds);
        let mut state = self.world.state();
        let (before, now) = (state.before, unix_now());
        for event in &mut state.events[before..] {
            event.arrived = event.arrived.max(now);
        }
    }

    fn ask(&mut self, url: &Url) -> Ask {
        self.asked += 1;
        let mut ask = Ask::any(&mut self.rng, self.asked, url.clone());
        if self.rng.u8(..12) == 0 {
            ask.tag = self.tags.get(url).cloned();
        }
        ask
    }

    /// Many ask for the same at once; one of them may change it.
    fn burst(&mut self, url: &Url) {
        self.tally.bursts += 1;
        let count = self.rng.usize(2..7);
        self.exchange(url, count);
    }

    fn exchange(&mut self, url: &Url, count: usize) {
        let start = self.rng.usize(..CONNECTIONS);
        let mut pending = Vec::new();
        for nth in 0..count {
            let mut ask = self.ask(url);
            if count > 1 && self.rng.u8(..40) == 0 {
                ask = written(ask);
            }
            pending.push(self.send(ask, (start + nth) % CONNECTIONS));
        }
        for one in pending {
            self.finish(one);
        }
    }

    fn write(&mut self, url: &Url) {
        self.tally.writes += 1;
        let ask = written(self.ask(url));
        let place = self.rng.usize(..CONNECTIONS);
        let pending = self.send(ask, place);
        self.finish(pending);
    }

    /// A visitor does not wait for the answer.
    fn leave(&mut self, url: &Url) {
        let ask = self.ask(url);
        let pending = self.send(ask, 0);
        self.world.state().goes_on(pending.ask.id);
        self.connections[0] = None;
    }

    /// Things happen while an answer of the origin is under way.
    fn hold(&mut self, url: &Url) {
        self.tally.holds += 1;
        let in_body = self.rng.bool();
        self.world.set_hold(Hold::Wanted { url: url.clone(), in_body });
        let mut first = self.ask(url);
        first.method = "GET";
        let mut pending = vec![self.send(first, 0)];
        if self.is_held() {
            let count = self.rng.usize(1..5);
            for place in 1..=count {
                match self.rng.u8(..6) {
                    0 => self.purge(url),
                    1 => {
                        let seconds = [2.0, 30.0, 30.0, 30.0, 700.0][self.rng.usize(..5)];
                        self.pass_under_way(seconds);
                    }
                    2 => {
                        let ask = written(self.ask(url));
                        let one = self.send(ask, place);
                        self.finish(one);
                    }
                    _ => {
                        let ask = self.ask(url);
                        pending.push(self.send(ask, place));
                    }
                }
            }
        }
        self.world.set_hold(Hold::None);
        for one in pending {
            self.finish(one);
        }
        self.exchange(url, 1);
    }

    /// A visitor wants what is being fetched for another one, when so much time has gone by on the way that
    /// the page may be stale.
    fn late(&mut self, url: &Url) {
        // What is kept would be a hit.
        self.write(url);
        self.world.set_hold(Hold::Wanted { url: url.clone(), in_body: true });
        let any = self.ask(url);
        let first =
            Ask { method: "GET", visitor: Visitor::Anonymous, lang: None, tag: None, ..any };
        let second = Ask { id: self.ask(url).id, ..first.clone() };
        let mut pending = vec![self.send(first, 0)];
        if self.is_held() {
            self.tally.late += 1;
            self.pass(30.0);
            pending.push(self.send(second, 1));
        }
        self.world.set_hold(Hold::None);
        for one in pending {
            self.finish(one);
        }
    }

    /// Waits until the origin holds the request on the first connection; false where that is answered.
    fn is_held(&mut self) -> bool {
        let deadline = Instant::now() + DEADLINE;
        let wire = self.connections[0].as_mut().expect("a request was sent on it");
        wire.socket().set_nonblocking(true).unwrap();
        let is_held = loop {
            assert!(Instant::now() < deadline, "neither held nor answered");
            if self.world.state().hold == Hold::Held {
                break true;
            }
            match wire.socket().peek(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                _ => break false,
            }
        };
        wire.socket().set_nonblocking(false).unwrap();
        is_held
    }

    fn purge(&mut self, url: &Url) {
        self.tally.purges += 1;
        let Url { scheme, host, path, kept_query: query } = *url;
        let whole = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let is_hard = self.rng.bool();
        let tag = TAGS[self.rng.usize(..TAGS.len())];
        let (scope, order) = match self.rng.u8(..8) {
            0 => (Scope::Everything, "\"all\":true".to_owned()),
            1 | 2 => (Scope::Tag(tag), format!("\"tags\":[\"{tag}\"]")),
            3 => {
                let place = format!("{scheme}://{host}{path}");
                (Scope::Prefix { host, path }, format!("\"prefixes\":[\"{place}\"]"))
            }
            4 => (
                Scope::Prefix { host, path: &path[..2] },
                format!("\"prefixes\":[\"{scheme}://{host}{}\"]", &path[..2]),
            ),
            _ => (
                Scope::Url { host, path, query },
                format!("\"urls\":[\"{scheme}://{host}{whole}\"]"),
            ),
        };
        let begun = self.world.tick();
        let said = order_purge(self.proxy.admin, &format!("{{{order},\"hard\":{is_hard}}}"));
        let ended = Some(self.world.tick());
        let mut state = self.world.state();
        let purge = Purge { scope, is_hard, begun, ended };
        state.tell(None, &format!("{purge:?}: {said:?}"));
        if !said.as_deref().is_some_and(|said| said.contains("\"confirmed\":true")) {
            state.wrong(url, &format!("a purge came to {said:?}"));
        }
        // The list is in order of the beginnings.
        assert!(state.purges.last().is_none_or(|last| last.begun < begun), "no other purge runs");
        state.purges.push(purge);
    }

    fn send(&mut self, ask: Ask, place: usize) -> PendingRequest {
        let bytes = ask.bytes();
        let is_expected = self.is_expected(&ask);
        {
            let mut state = self.world.state();
            let told = format!("{} (a hit is expected: {is_expected})", ask.text());
            state.tell(Some(&ask.url), &told);
            state.sent(&ask, unix_now());
        }
        let (begun, begun_at, since) = (self.world.tick(), unix_now(), Instant::now());
        let wire = self.connections[place].get_or_insert_with(|| open(self.proxy.visitors));
        wire.socket().write_all(&bytes).unwrap();
        PendingRequest { ask, place, begun, begun_at, since, is_expected }
    }

    /// Reads the answer, and looks at it.
    fn finish(&mut self, pending: PendingRequest) {
        let PendingRequest { ask, place, begun, begun_at, since, is_expected } = pending;
        let wire = self.connections[place].as_mut().expect("the request was sent on it");
        let read = read(wire, ask.method);
        let mut state = self.world.state();
        let Some((status, fields, body, goes_on)) = read else {
            // What breaks off may do so before the head is on its way.
            if !state.has_failed(&ask.url, unix_now()) {
                state.wrong(&ask.url, &format!("no answer to {}", ask.text()));
            }
            self.tally.broken += 1;
            self.connections[place] = None;
            return;
        };
        let (ended_at, took) = (unix_now(), since.elapsed());
        let got = Answer { status, fields, body, begun, begun_at, ended_at, took };
        state.tell(Some(&ask.url), &format!("{} is answered {}", ask.id, got.text()));
        if let Err(wrong) = check(&mut state, &ask, &got) {
            state.wrong(&ask.url, &format!("{}: {wrong}: {:?}", ask.id, got.fields));
        }
        if got.is_stale() {
            state.goes_on(ask.id);
        }
        let purges =
            got.number().and_then(|n| state.events.get(n)).map(|event| event.purges.clone());
        if ask.method == "POST" {
            let now = Some(self.world.tick());
            let lost = state.lost.remove(&ask.id).unwrap_or_default();
            for place in purges.unwrap_or_default().into_iter().chain(lost) {
                state.purges[place].ended = now;
            }
        }
        drop(state);
        if !(got.body.whole && goes_on) {
            self.connections[place] = None;
        }
        self.count(&ask, &got, is_expected);
    }

    fn count(&mut self, ask: &Ask, got: &Answer, is_expected: bool) {
        let tally = &mut self.tally;
        tally.answers += 1;
        tally.broken += u64::from(!got.body.whole);
        tally.stale += u64::from(got.is_stale());
        if ask.is_shareable() {
            tally.shareable += 1;
            tally.hits += u64::from(got.is_hit());
            tally.validated += u64::from(got.is_validated());
            tally.expected += u64::from(is_expected);
            tally.missed += u64::from(is_expected && !got.is_hit());
        }
        let is_whole = got.body.whole && got.status != 304 && ask.method == "GET";
        let (true, Some(number)) = (is_whole, got.number()) else { return };
        if let Some(tag) = got.fields.get("etag") {
            self.tags.insert(ask.url.clone(), tag.to_owned());
        }
        let state = self.world.state();
        let event = &state.events[number];
        let is_small = body(event.of, &event.page).len() <= MAX_OBJECT;
        if event.seen.id.is_none() && event.is_for_all() && is_small {
            let kept = self.kept.entry(ask.url.clone()).or_default();
            if !kept.contains(&number) {
                kept.push(number);
            }
            if kept.len() > 8 {
                kept.remove(0);
            }
        }
    }

    /// Whether the proxy is sure to have a page for that request.
    fn is_expected(&self, ask: &Ask) -> bool {
        let (state, now) = (self.world.state(), unix_now());
        // Two kinds of pages lie there, by the visitor who was answered.
        let is_plain = ask.is_shareable() && ask.url.rule().share != Share::Public;
        let Some(kept) = self.kept.get(&ask.url).filter(|_| is_plain) else { return false };
        // What came later may have outdated it.
        let newest = state.newest.get(&ask.url);
        let has_variants = state.varied.contains(&ask.url);
        kept.iter().any(|number| {
            let event = &state.events[*number];
            newest == Some(number)
                && event.suits(ask).is_ok()
                // Where other pages at the address had variants, this is one of them.
                && (!has_variants
                    || (ask.language == event.seen.language.as_deref()
                        && ask.agent == event.seen.agent.as_deref()
                        && ask.custom == event.seen.custom.as_deref()))
                && event.fresh_until().is_some_and(|until| until > now + TO_SPARE)
                && !state.purges.iter().rev().take_while(|p| p.begun > event.asked).any(|p| p.hits(event))
        })
    }
}

/// The same as a request that changes something.
fn written(ask: Ask) -> Ask {
    Ask { method: "POST", tag: None, ..ask }
}

impl Ask {
    /// Whether it may be answered from the cache, and fill it whatever the origin says of logins.
    fn is_shareable(&self) -> bool {
        let may_fill = Self { method: "GET", ..self.clone() }.may_fill();
        let is_for_all = self.url.rule().share != Share::Public || self.is_anonymous();
        matches!(self.method, "GET" | "HEAD") && may_fill && is_for_all
    }
}

fn open(address: SocketAddr) -> Wire {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    Wire::new(stream)
}

/// Status, fields, body, and whether the connection goes on.
fn read(wire: &mut Wire, method: &str) -> Option<(u16, anteroom_tests::wire::Fields, Body, bool)> {
    let head = wire.head().ok()??;
    let status: u16 = head.first.split(' ').nth(1)?.parse().ok()?;
    let is_silent = method == "HEAD" || matches!(status, 204 | 304);
    let framing =
        if is_silent { Framing::Nothing } else { Framing::of(&head.fields, Framing::UntilClose) };
    let goes_on =
        head.fields.get("connection") != Some("close") && !matches!(framing, Framing::UntilClose);
    let body = wire.body(framing);
    Some((status, head.fields, body, goes_on))
}

/// What the administration says to an order.
fn order_purge(admin: SocketAddr, order: &str) -> Option<String> {
    let mut wire = open(admin);
    let request = format!(
        "POST /purge HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{order}",
        order.len()
    );
    wire.socket().write_all(request.as_bytes()).ok()?;
    let (_, _, body, _) = read(&mut wire, "POST")?;
    Some(String::from_utf8_lossy(&body.bytes).into_owned())
}
