//! How many requests a server works on well at a time: found from how long it takes, with no setting. Pure.
//!
//! Above the limit, visitors of whom nothing is proven wait here and not at the server, where known visitors would wait
//! behind them. `benches/overload_sim.py` has the same rules, and shows what they do to sites of all kinds.
//!
//! The server's queue shows in its answers: each takes longer than its route does in calm. While it does not, the limit
//! grows with what is asked, as a TCP window does. Where it does, the limit is lowered by most of the queue, by Little's
//! law, which proves the cause: under load the queue gets shorter by as much; a server that is slow of itself shows the same
//! times, gets its limit back, and is known by its new times. Now and then more is tried.

use std::collections::{HashMap, HashSet, VecDeque};

/// The limit of a new server, and the least that it is lowered to.
const START: f64 = 8.0;
const FLOOR: f64 = 4.0;
const MAX: f64 = 10_000.0;
/// A server whose answers take longer than usual by this part of it, or by so many seconds, has hardly a queue.
const CALM_PART: f64 = 0.4;
const CALM_S: f64 = 0.2;
/// A kind of page that takes longer in calm waits for something, as a long poll does, and is no work. Of an unknown kind, a
/// request that has no answer after this time is thought to wait, too.
const WORK_MAX_S: f64 = 5.0;
/// How much more is tried, how much more after that, and how much of a queue is taken away.
const UP: f64 = 1.5;
const GROWS: f64 = 2.0;
const RISES: f64 = 1.25;
const DRAINS: f64 = 0.8;
/// The answers of a round, and its length in seconds. A round that chance may explain goes on once.
const SAMPLES_MIN: usize = 24;
const SAMPLES_MAX: usize = 200;
const FEW_SAMPLES: usize = 8;
const ROUND_MIN_S: f64 = 0.1;
const ROUND_MAX_S: f64 = 5.0;
/// After so many seconds, what was at the server before its limit was lowered is gone.
const DRAINED_S: f64 = 10.0;
/// How long no more is tried after that was in vain, in seconds. It doubles each time.
const REST_MIN_S: f64 = 2.0;
const REST_MAX_S: f64 = 16.0;
/// The weight of an answer in the time of its route.
const GAIN: f64 = 1.0 / 16.0;
/// The most routes whose times are known; others share a few.
const ROUTES_MAX: usize = 1_024;
const SHARED_ROUTES: u64 = 64;
/// How often routes with fewer answers than these go, in seconds.
const SWEPT_EVERY_S: f64 = 60.0;
const RARE: u32 = 4;

/// A request at the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RequestAtServer {
    /// When it was sent.
    began: f64,
    /// The requests at the server then, with this one.
    at_server: u32,
    /// The kind of page that it is for.
    kind: u64,
    number: u64,
    /// Whether it counts towards the limit.
    counts: bool,
}

/// The limit of one server. Times are seconds of a clock that only goes forward.
#[derive(Clone, Debug)]
pub(super) struct AutomaticLimit {
    limit: f64,
    at_server: u32,
    next: u64,
    /// Requests of unknown kinds, and when they were sent.
    unknown: VecDeque<(u64, f64)>,
    /// Those of them that do not count any more.
    excused: HashSet<u64>,
    baselines: HashMap<u64, Baseline>,
    trial: Option<LimitTrial>,
    round: Round,
    /// Whether the limit grows with each answer that had no queue.
    grows: bool,
    /// Whether more is still at the server than a lower limit lets in.
    drains: bool,
    /// Whether strangers wait.
    is_full: bool,
    /// Averages of the last answers: how much longer than usual, and the usual time.
    recent_wait: f64,
    recent_time: f64,
    rest: f64,
    rests_until: f64,
    observed: f64,
    swept: f64,
}

/// How long a route takes in calm.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    seconds: f64,
    answers: u32,
}

/// Another limit that is tried, and what was known before.
#[derive(Clone, Copy, Debug)]
struct LimitTrial {
    is_up: bool,
    limit: f64,
    before: RoundResult,
}

/// The answers to requests that were sent since the limit changed.
#[derive(Clone, Debug, Default)]
struct Round {
    began: f64,
    waits: Vec<f64>,
    usual: f64,
    time: f64,
    at_server: f64,
    full: f64,
    wanted: usize,
    is_extended: bool,
}

/// What a round shows.
#[derive(Clone, Copy, Debug)]
struct RoundResult {
    /// The requests at the server, on average.
    at_server: f64,
    /// Answers in a second, by Little's law.
    rate: f64,
    /// How long routes take in calm, on average.
    usual: f64,
    /// How much longer the median answer took, and the standard error of that.
    wait: f64,
    error: f64,
}

impl Round {
    fn new(now: f64) -> Self {
        Self { began: now, wanted: SAMPLES_MIN, ..Self::default() }
    }

    fn is_over(&self, now: f64, limit: f64) -> bool {
        let (samples, elapsed) = (self.waits.len(), now - self.began);
        let wanted = (self.wanted as f64).max(limit.min(SAMPLES_MAX as f64));
        let longest = if self.is_extended { 2.0 * ROUND_MAX_S } else { ROUND_MAX_S };
        samples as f64 >= wanted && elapsed >= ROUND_MIN_S
            || elapsed >= longest && samples >= FEW_SAMPLES
    }

    fn result(&mut self) -> RoundResult {
        self.waits.sort_unstable_by(f64::total_cmp);
        let (waits, count) = (&self.waits, self.waits.len());
        let samples = count as f64;
        // Of a normal distribution, the median's error is 1.25 σ/√n, and the quartiles are 1.35 σ apart.
        let quartiles = waits[count * 3 / 4] - waits[count / 4];
        let at_server = self.at_server / samples;
        RoundResult {
            at_server,
            rate: at_server * samples / self.time.max(1e-6),
            usual: self.usual / samples,
            wait: waits[count / 2],
            error: 0.93 * quartiles / samples.sqrt(),
        }
    }
}

impl RoundResult {
    fn calm(&self) -> f64 {
        calm(self.usual)
    }

    /// The requests at the server if most of its queue was gone.
    fn drained(&self) -> f64 {
        self.at_server - DRAINS * self.rate * self.wait
    }
}

/// How much longer than usual answers take of a server that has hardly a queue.
fn calm(usual: f64) -> f64 {
    CALM_S.max(CALM_PART * usual)
}

impl AutomaticLimit {
    pub(super) fn new(now: f64) -> Self {
        Self {
            limit: START,
            at_server: 0,
            next: 0,
            unknown: VecDeque::new(),
            excused: HashSet::new(),
            baselines: HashMap::new(),
            trial: None,
            round: Round::new(now),
            grows: true,
            drains: false,
            is_full: false,
            recent_wait: 0.0,
            recent_time: 0.0,
            rest: REST_MIN_S,
            rests_until: now,
            observed: now,
            swept: now,
        }
    }

    /// The same limit in a list that takes the server over: what is at the server ends in both.
    pub(super) fn taken_over(&self, now: f64) -> Self {
        let round = Round::new(now);
        Self {
            at_server: 0,
            unknown: VecDeque::new(),
            excused: HashSet::new(),
            trial: None,
            round,
            drains: false,
            is_full: false,
            rests_until: now,
            observed: now,
            swept: now,
            ..self.clone()
        }
    }

    /// The requests at the server that count.
    pub(super) fn at_server(&self) -> u32 {
        self.at_server
    }

    /// The requests that the server may work on.
    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    /// Whether strangers wait.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether they wait because the server has a queue, and not because its limit still grows.
    pub(super) fn holds_back(&self) -> bool {
        self.is_full && !self.grows
    }

    /// How long the route of a request takes in calm, in seconds, if that is known. What only waits is no work.
    pub(super) fn usual(&self, request: &RequestAtServer) -> Option<f64> {
        let known = self.baselines.get(&request.kind)?;
        Some(known.seconds).filter(|seconds| *seconds <= WORK_MAX_S)
    }

    /// A request for this kind of page is sent to the server.
    pub(super) fn begin(&mut self, now: f64, kind: u64) -> RequestAtServer {
        let kind = self.key(kind);
        let known = self.baselines.get(&kind);
        let counts = known.is_none_or(|known| known.seconds <= WORK_MAX_S);
        let number = self.next;
        self.next += 1;
        if known.is_none() {
            self.unknown.push_back((number, now));
        }
        self.at_server += u32::from(counts);
        RequestAtServer { began: now, at_server: self.at_server, kind, number, counts }
    }

    /// Whether strangers wait from now on. Returns whether there is more room than was.
    pub(super) fn observe(&mut self, now: f64, is_full: bool) -> bool {
        if self.is_full {
            self.round.full += now - self.observed;
        }
        (self.observed, self.is_full) = (now, is_full);
        let before = self.at_server;
        while let Some((number, began)) = self.unknown.front().copied()
            && now - began > WORK_MAX_S
        {
            self.unknown.pop_front();
            self.excused.insert(number);
            self.at_server = self.at_server.saturating_sub(1);
        }
        self.at_server < before
    }

    /// A request is over without an answer that says how long the server takes.
    pub(super) fn end(&mut self, request: &RequestAtServer) {
        let is_excused = !self.excused.is_empty() && self.excused.remove(&request.number);
        self.at_server = self.at_server.saturating_sub(u32::from(request.counts && !is_excused));
        if let Ok(at) = self.unknown.binary_search_by_key(&request.number, |(number, _)| *number) {
            self.unknown.remove(at);
        }
    }

    /// A request has its answer.
    pub(super) fn answer(&mut self, now: f64, request: &RequestAtServer) {
        self.end(request);
        self.observe(now, self.is_full);
        let took = now - request.began;
        let usual = self.learn(request, took);
        if usual > WORK_MAX_S {
            return;
        }
        self.recent_wait += (took - usual - self.recent_wait) / 8.0;
        self.recent_time += (usual - self.recent_time) / 8.0;
        self.grow(request);
        let is_drained = f64::from(self.at_server) <= RISES * self.limit + 1.0;
        if self.drains && (is_drained || now - self.round.began > DRAINED_S) {
            self.drains = false;
            self.round = Round::new(now);
        }
        if self.drains || request.began < self.round.began {
            return;
        }
        self.round.usual += usual;
        self.round.time += took;
        self.round.at_server += f64::from(request.at_server);
        self.round.waits.push(took - usual);
        if self.round.is_over(now, self.limit) {
            self.end_round(now);
        }
    }

    /// Grows by one with an answer that had no queue although as many were at the server as may be.
    fn grow(&mut self, request: &RequestAtServer) {
        let was_full = f64::from(request.at_server) >= 0.75 * self.limit;
        let is_calm = self.recent_wait <= calm(self.recent_time) / 2.0;
        if self.grows && self.trial.is_none() && self.is_full && was_full && is_calm {
            self.set(self.limit + 1.0);
        }
    }

    /// Learns how long the route takes in calm, and returns it.
    fn learn(&mut self, request: &RequestAtServer, took: f64) -> f64 {
        let is_calm = f64::from(request.at_server) <= (self.limit / 2.0).max(2.0);
        let Some(known) = self.baselines.get_mut(&request.kind) else {
            self.make_room(request.began + took);
            self.baselines.insert(request.kind, Baseline { seconds: took, answers: 1 });
            return took;
        };
        if is_calm || took < known.seconds / 2.0 {
            known.answers = known.answers.saturating_add(1);
            let gain = GAIN.max(1.0 / f64::from(known.answers));
            known.seconds += (took.min(4.0 * known.seconds) - known.seconds) * gain;
        }
        known.seconds
    }

    /// The key under which the route's time is kept.
    fn key(&self, route: u64) -> u64 {
        let has_room = self.baselines.len() < ROUTES_MAX || self.baselines.contains_key(&route);
        if has_room { route } else { route % SHARED_ROUTES }
    }

    /// Where there is no place left, routes go that were hardly asked for.
    fn make_room(&mut self, now: f64) {
        if self.baselines.len() >= ROUTES_MAX && now >= self.swept + SWEPT_EVERY_S {
            self.swept = now;
            self.baselines.retain(|_, known| known.answers >= RARE);
        }
    }

    fn end_round(&mut self, now: f64) {
        let is_used = self.round.full > 0.5 * (now - self.round.began);
        let result = self.round.result();
        if let Some(trial) = self.trial {
            if !self.judge(&trial, &result, now) {
                return;
            }
        } else if is_used {
            self.adjust(&result, now);
        }
        self.round = Round::new(now);
    }

    /// What follows from a round in which strangers waited.
    fn adjust(&mut self, result: &RoundResult, now: f64) {
        if result.wait <= result.calm() {
            self.set(self.limit * RISES);
        } else if result.drained() < 0.9 * self.limit && self.limit > FLOOR {
            self.try_limit(false, result.drained(), result);
        } else if now >= self.rests_until {
            self.try_limit(true, self.limit * UP, result);
        }
    }

    fn try_limit(&mut self, is_up: bool, limit: f64, before: &RoundResult) {
        self.trial = Some(LimitTrial { is_up, limit: self.limit, before: *before });
        self.drains = !is_up;
        self.set(limit);
    }

    /// Decides on the limit that was tried; false: the round goes on, because chance may explain what it shows.
    fn judge(&mut self, trial: &LimitTrial, result: &RoundResult, now: f64) -> bool {
        let change = result.at_server - trial.before.at_server;
        if change.abs() < 0.1 * trial.before.at_server {
            self.trial = None;
            if !trial.is_up {
                self.limit = trial.limit;
            }
            return true;
        }
        // If all of the change was in the server's queue, answers take longer by this.
        let expected = change / result.rate;
        let error = result.error + trial.before.error;
        if expected.abs() < 4.0 * error && !self.round.is_extended {
            self.round.is_extended = true;
            self.round.wanted = 2 * self.round.waits.len();
            return false;
        }
        self.trial = None;
        // As far as chance may explain it, there is a queue.
        let share = (result.wait - trial.before.wait) / expected;
        let is_load = share + 2.0 * error / expected.abs() >= 0.5;
        match (trial.is_up, is_load) {
            (true, false) => {
                (self.rest, self.grows) = (REST_MIN_S, true);
                self.try_limit(true, self.limit * GROWS, result);
            }
            (false, true) => self.grows = false,
            (true, true) => {
                self.limit = trial.limit;
                self.rest = (2.0 * self.rest).min(REST_MAX_S);
                self.rests_until = now + self.rest;
            }
            (false, false) => {
                self.limit = trial.limit;
                self.grows = true;
                self.rests_until = now + self.rest;
                // The server is slow of itself: this is how long it takes now.
                let slower =
                    ((result.usual + result.wait) / result.usual.max(1e-6)).clamp(1.0, 100.0);
                self.baselines.values_mut().for_each(|known| known.seconds *= slower);
            }
        }
        true
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(FLOOR, MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use super::*;

    /// A server with workers that answers first come, first served, and strangers who ask again after each answer.
    struct Scene {
        workers: u32,
        page_s: f64,
        limit: AutomaticLimit,
        now: f64,
        waiting: u32,
        queue: VecDeque<RequestAtServer>,
        working: u32,
        ends: BTreeMap<u64, RequestAtServer>,
        count: u64,
    }

    impl Scene {
        fn new(workers: u32, strangers: u32) -> Self {
            let limit = AutomaticLimit::new(0.0);
            let (queue, ends) = (VecDeque::new(), BTreeMap::new());
            let waiting = strangers;
            Self {
                workers,
                page_s: 0.2,
                limit,
                now: 0.0,
                waiting,
                queue,
                working: 0,
                ends,
                count: 0,
            }
        }

        fn step(&mut self) {
            while self.waiting > 0 && f64::from(self.limit.at_server()) < self.limit.limit().floor()
            {
                self.waiting -= 1;
                let request = self.limit.begin(self.now, 1);
                self.queue.push_back(request);
            }
            self.limit.observe(self.now, self.waiting > 0);
            while self.working < self.workers
                && let Some(request) = self.queue.pop_front()
            {
                self.working += 1;
                self.count += 1;
                // Pages differ by a few hundredths.
                let took = self.page_s * (1.0 + 0.1 * ((self.count * 7 % 11) as f64 / 11.0 - 0.5));
                let at = ((self.now + took) * 1e9) as u64 + self.count % 1_000;
                self.ends.insert(at, request);
            }
            let (at, request) = self.ends.pop_first().expect("the server works");
            (self.now, self.working) = (at as f64 / 1e9, self.working - 1);
            self.limit.answer(self.now, &request);
            self.waiting += 1;
        }

        /// The limit on average in the second half of this time: now and then more is tried.
        fn run(&mut self, seconds: f64) -> f64 {
            let (half, end) = (self.now + seconds / 2.0, self.now + seconds);
            let (mut sum, mut last) = (0.0, self.now);
            while self.now < end {
                self.step();
                if last >= half {
                    sum += self.limit.limit() * (self.now - last);
                }
                last = self.now;
            }
            2.0 * sum / seconds
        }
    }

    #[test]
    fn a_crawl_finds_no_more_at_the_server_than_it_works_on_well() {
        for (workers, most) in [(4, 10.0), (16, 32.0), (64, 120.0)] {
            let mut scene = Scene::new(workers, 1_000);
            let limit = scene.run(60.0);
            let least = f64::from(workers) * 0.9;
            assert!((least..most).contains(&limit), "{workers} workers: {limit}");
            assert!(scene.limit.holds_back());
        }
    }

    #[test]
    fn a_server_with_room_for_all_gets_all() {
        let mut scene = Scene::new(500, 200);
        scene.run(10.0);
        assert!(scene.waiting <= 1, "{}", scene.limit.limit());
    }

    #[test]
    fn a_server_that_is_slow_of_itself_gets_its_limit_back() {
        let mut scene = Scene::new(500, 20);
        scene.run(5.0);
        // A database that takes its time: as many at once would be answered in the same time.
        scene.page_s = 1.0;
        scene.waiting += 60;
        scene.run(60.0);
        assert!(scene.waiting <= 1, "{}", scene.limit.limit());
    }

    #[test]
    fn a_server_that_can_do_more_gets_more() {
        let mut scene = Scene::new(16, 1_000);
        let before = scene.run(30.0);
        scene.workers = 500;
        let limit = scene.run(60.0);
        assert!(limit > before * 4.0, "{before} and {limit}");
    }

    #[test]
    fn what_only_waits_does_not_count() {
        let mut limit = AutomaticLimit::new(0.0);
        for _ in 0..3 {
            let poll = limit.begin(0.0, 9);
            limit.answer(30.0, &poll);
        }
        let _poll = limit.begin(31.0, 9);
        assert_eq!(limit.at_server(), 0);
        let _page = limit.begin(31.0, 1);
        assert_eq!(limit.at_server(), 1);
    }

    #[test]
    fn what_has_no_answer_after_a_while_is_thought_to_wait() {
        let mut limit = AutomaticLimit::new(0.0);
        let polls: Vec<_> = (0..8).map(|_| limit.begin(0.0, 9)).collect();
        assert!(!limit.observe(4.9, true));
        assert_eq!(limit.at_server(), 8);
        assert!(limit.observe(5.1, true));
        assert_eq!(limit.at_server(), 0);
        let _page = limit.begin(5.2, 1);
        polls.iter().for_each(|poll| limit.answer(6.0, poll));
        assert_eq!(limit.at_server(), 1, "each is counted once");
    }

    #[test]
    fn times_are_kept_of_a_bounded_number_of_routes() {
        let mut limit = AutomaticLimit::new(0.0);
        for route in 0..10_000 {
            let request = limit.begin(0.0, route);
            limit.answer(0.1, &request);
        }
        assert!(limit.baselines.len() <= ROUTES_MAX + SHARED_ROUTES as usize);
    }
}
