//! What has happened: every answer of the origin, every purge, and in which order.
//!
//! The order is a count and no clock. Each change takes the next number.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;

use crate::cast::Ask;
pub(crate) use crate::cast::Url;
use crate::rules::Page;

/// Requests that are remembered, for what the origin sees of them.
const ASKS: usize = 96;
/// Lines of the story that are remembered: those about one address are told when something is wrong.
const STORY: usize = 3_000;
/// How long anything may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// A request as the origin saw it.
#[derive(Clone, Debug)]
pub(crate) struct OriginRequest {
    pub(crate) method: String,
    pub(crate) url: Url,
    /// As it came.
    pub(crate) query: String,
    /// The visitor's request: none where it was made for all.
    pub(crate) id: Option<u64>,
    pub(crate) user: Option<String>,
    pub(crate) cookie: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) variant: Option<String>,
    pub(crate) language: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) custom: Option<String>,
}

impl OriginRequest {
    /// In short, for the story.
    pub(crate) fn text(&self) -> String {
        let Self { method, query, id, user, cookie, authorization, .. } = self;
        let told = (query, user, cookie, authorization, &self.variant, &self.language, &self.agent);
        format!("{method} of {id:?} {told:?}")
    }

    /// Whether the origin would answer both alike with a page that varies so.
    pub(crate) fn is_like(&self, other: &Self, vary: &[&str]) -> bool {
        let own = |seen: &Self| {
            [&seen.user, &seen.cookie, &seen.authorization, &seen.variant].map(Option::clone)
        };
        let same = |name: &str, of: fn(&Self) -> &Option<String>| {
            !vary.contains(&name) || of(self) == of(other)
        };
        self.url == other.url
            && own(self) == own(other)
            && same("Accept-Language", |seen| &seen.language)
            && same("User-Agent", |seen| &seen.agent)
            && same("X-Custom", |seen| &seen.custom)
    }
}

/// An answer of the origin. Its number stands in its head, and in each part of its body.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) number: usize,
    /// The answer whose body it is about: itself, but for a 304.
    pub(crate) of: usize,
    /// What is said; for a 304, what page and 304 say together.
    pub(crate) page: Page,
    pub(crate) seen: OriginRequest,
    /// When the request had come, in the order of things.
    pub(crate) asked: u64,
    /// The earliest moment at which the proxy may have asked, in Unix time.
    pub(crate) asked_at: f64,
    /// When it was answered, in Unix time.
    pub(crate) came: f64,
    /// When the proxy had its head at the latest.
    pub(crate) arrived: f64,
    pub(crate) is_cut: bool,
    /// How many visitors were given it, but for stale pages.
    pub(crate) uses: u32,
    /// The purges that it amounts to, by their places.
    pub(crate) purges: Vec<usize>,
}

/// What a purge is for.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    Everything,
    Tag(&'static str),
    Url { host: &'static str, path: &'static str, query: &'static str },
    Prefix { host: &'static str, path: &'static str },
}

/// A purge, or what an unsafe request changed.
#[derive(Clone, Debug)]
pub(crate) struct Purge {
    pub(crate) scope: Scope,
    pub(crate) is_hard: bool,
    /// What the origin was asked for before this is from before it.
    pub(crate) begun: u64,
    /// A request behind this must see it; none while no client has been told.
    pub(crate) ended: Option<u64>,
}

/// How the origin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Well,
    Failing,
}

/// Where the next answer for an address is held up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    None,
    /// Waiting for a request for it.
    Wanted {
        url: Url,
        in_body: bool,
    },
    /// One is held.
    Held,
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    pub(crate) ask: Ask,
    /// When, in Unix time.
    pub(crate) at: f64,
    pub(crate) step: u64,
    /// Whether what it began may go on behind its answer.
    pub(crate) goes_on: bool,
}

/// What all threads share.
#[derive(Debug)]
pub(crate) struct State {
    /// The origin's.
    pub(crate) rng: Rng,
    pub(crate) step: u64,
    pub(crate) health: Health,
    pub(crate) hold: Hold,
    pub(crate) events: Vec<Event>,
    /// How many there were when this step began.
    pub(crate) before: usize,
    pub(crate) purges: Vec<Purge>,
    pub(crate) sent: VecDeque<SentRequest>,
    /// When an address failed last, in Unix time, with the step.
    pub(crate) failures: HashMap<Place, (u64, f64)>,
    /// When an address was changed last, in the order of things.
    pub(crate) changes: HashMap<Place, u64>,
    /// The newest answer for all that was made for an address.
    pub(crate) newest: HashMap<Url, usize>,
    /// Addresses of which there were variants.
    pub(crate) varied: HashSet<Url>,
    /// Unsafe requests that the origin saw.
    pub(crate) writes: HashMap<u64, u32>,
    /// The purges that unsafe requests amount to of whose answers nothing came.
    pub(crate) lost: HashMap<u64, Vec<usize>>,
    /// What was found wrong first, with what led to it.
    pub(crate) wrongs: String,
    /// Lines with the address that they are about, where it is one.
    story: VecDeque<(Option<Url>, String)>,
}

/// An address whatever the scheme.
pub(crate) type Place = (&'static str, &'static str, &'static str);

impl Url {
    pub(crate) fn place(&self) -> Place {
        (self.host, self.path, self.kept_query)
    }
}

impl State {
    /// Adds a line to the story.
    pub(crate) fn tell(&mut self, url: Option<&Url>, line: &str) {
        if self.story.len() == STORY {
            self.story.pop_front();
        }
        self.story.push_back((url.cloned(), format!("[{}] {line}", self.step)));
    }

    pub(crate) fn wrong(&mut self, url: &Url, what: &str) {
        self.tell(Some(url), &format!("WRONG: {what}"));
        if self.wrongs.is_empty() {
            let mine =
                self.story.iter().filter(|(its, _)| its.as_ref().is_none_or(|its| its == url));
            let story: String = mine.map(|(_, line)| format!("  {line}\n")).collect();
            self.wrongs = format!("step {}: {what}\n{url:?}\n{story}", self.step);
        }
    }

    pub(crate) fn sent(&mut self, ask: &Ask, at: f64) {
        if self.sent.len() == ASKS {
            self.sent.pop_front();
        }
        self.sent.push_back(SentRequest { ask: ask.clone(), at, step: self.step, goes_on: false });
    }

    /// The requests for an address that the proxy may be busy with.
    pub(crate) fn open(&self, url: &Url) -> impl Iterator<Item = &SentRequest> {
        let is_open = |sent: &&SentRequest| sent.step == self.step || sent.goes_on;
        self.sent.iter().filter(is_open).filter(|sent| sent.ask.url == *url)
    }

    /// Says that what a request began may go on behind its answer.
    pub(crate) fn goes_on(&mut self, id: u64) {
        for sent in self.sent.iter_mut().filter(|sent| sent.ask.id == id) {
            sent.goes_on = true;
        }
    }

    /// Whether the origin failed at an address in this step or a moment before `now`.
    pub(crate) fn has_failed(&self, url: &Url, now: f64) -> bool {
        self.failures
            .get(&url.place())
            .is_some_and(|(step, when)| *step == self.step || now < when + 3.0)
    }
}

/// The state, and waiting for it to change.
#[derive(Debug)]
pub(crate) struct World {
    state: Mutex<State>,
    changed: Condvar,
    count: AtomicU64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: Mutex::new(State {
                rng: Rng::with_seed(seed),
                step: 0,
                health: Health::Well,
                hold: Hold::None,
                events: Vec::new(),
                before: 0,
                purges: Vec::new(),
                sent: VecDeque::new(),
                failures: HashMap::new(),
                changes: HashMap::new(),
                newest: HashMap::new(),
                varied: HashSet::new(),
                writes: HashMap::new(),
                lost: HashMap::new(),
                wrongs: String::new(),
                story: VecDeque::new(),
            }),
            changed: Condvar::new(),
            count: AtomicU64::new(1),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The next number in the order of things.
    pub(crate) fn tick(&self) -> u64 {
        self.count.fetch_add(1, Ordering::SeqCst)
    }

    /// Changes the hold, and tells those who wait for that.
    pub(crate) fn set_hold(&self, hold: Hold) {
        self.state().hold = hold;
        self.changed.notify_all();
    }

    /// Waits until what is held may go on.
    pub(crate) fn pass(&self) {
        let held = |state: &mut State| state.hold == Hold::Held;
        let waited = self.changed.wait_timeout_while(self.state(), DEADLINE, held).unwrap();
        let (mut state, is_late) = (waited.0, waited.1.timed_out());
        if is_late {
            let last = state.story.iter().rev().take(30).rev();
            let last: String = last.map(|(_, line)| format!("  {line}\n")).collect();
            state.wrongs = format!("nobody let the origin go on\n{last}");
        }
    }
}
