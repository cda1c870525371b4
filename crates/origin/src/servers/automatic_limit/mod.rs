//! How many requests a server works on well at a time: found from how long it takes, with no setting. Pure.
//!
//! Above the limit, visitors of unproven standing wait here and not at the server, where known visitors would wait
//! behind them. `benches/automatic_limit.py` has the same rules, and `overload_sim.py` beside it shows what they do to sites of
//! all kinds.
//!
//! The server's queue shows in its answers: each takes longer than its kind does in calm. While visitors wait for a short
//! time in all, the limit grows with what is asked, as a TCP window does. Where they wait for long, the cause is proven: more
//! is tried, which makes the wait longer if there is a queue, and after that less, which makes it shorter by as much as
//! Little's law tells. A server that is slow of itself shows neither; it is known by its new times from then on, and its limit
//! grows again. `usual_times` has the times in calm, `round` weighs answers.

mod round;
mod usual_times;

use std::collections::{HashSet, VecDeque};

use round::{Round, RoundResult, calm, slow};
use usual_times::{Calm, UsualTimes};

/// The limit of a new server, and the least that it is lowered to.
pub(super) const START: f64 = 6.0;
const FLOOR: f64 = 4.0;
const MAX: f64 = 10_000.0;
/// A server whose answers take longer than usual by this part of it, or by so many seconds, has hardly a queue.
const CALM_PART: f64 = 0.4;
const CALM_S: f64 = 0.2;
/// Where visitors wait for so many times the usual time, or so many seconds, the cause is looked for.
const SLOW_PART: f64 = 3.0;
const SLOW_S: f64 = 1.0;
/// The same where it is looked for by less and not by more: it is nearly sure.
const SURE_PART: f64 = 5.0;
const SURE_S: f64 = 5.0;
/// In so many rounds one after the other, where no visitor waits here.
const SLOW_ROUNDS: u32 = 3;
/// In so many rounds one after the other the limit rose, and strangers waited for no reason.
const CALM_ROUNDS: u32 = 3;
/// A server that gives no answer for so many times the usual time, or so many seconds, is away: that is no queue.
const STALL_PART: f64 = 3.0;
const STALL_S: f64 = 2.0;
/// After so many seconds without an answer, one more may be sent to a server that is not proven to have a queue.
const SILENCE_S: f64 = 1.0;
/// A kind of page that takes longer in calm waits for something, as a long poll does, and is no work. A request of an unknown
/// kind, or with an upload, that has no answer after this time is thought to wait, too.
const WORK_MAX_S: f64 = 5.0;
/// Unless all answers are slow: a server has given a quick one if it took less than this, in so many seconds.
const QUICK_S: f64 = 2.5;
const QUICK_LASTS_S: f64 = 10.0;
/// How much more is tried, how much more after that, and how much a limit grows in a round.
const UP: f64 = 1.5;
const GROWS: f64 = 2.0;
/// How much less is tried after less, where the server answers this part of the requests in a second that it did before,
/// and the times differ by so little that their error is this part of them.
const LESS: f64 = 0.75;
const STILL_FULL: f64 = 0.95;
const SURE_ERROR: f64 = 0.08;
const RISES: f64 = 1.25;
/// After so many seconds, what was at the server before its limit was lowered is gone.
const DRAINED_S: f64 = 10.0;
/// How long no more is tried after that was in vain, in seconds. It doubles each time.
const REST_MIN_S: f64 = 2.0;
const REST_MAX_S: f64 = 16.0;
/// Where no stranger has waited for so long, in seconds, none is held back.
const LETS_GO_S: f64 = 10.0;
/// How often a limit follows what was used of it, in seconds, and how much more than that it is.
const FOLLOWS_EVERY_S: f64 = 60.0;
const FOLLOWS: f64 = 2.0;

/// What is known of a server and kept over restarts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KnownServer {
    /// The most requests at the server at which its answers showed no queue.
    pub(super) calm_at: f32,
    /// How long kinds of pages take in calm, in seconds, in the order of their keys.
    pub(super) kinds: Vec<(u64, f32)>,
}

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

impl RequestAtServer {
    /// Whether it counts towards the limit when it is sent: a long poll is no work.
    pub(super) fn counts(&self) -> bool {
        self.counts
    }
}

/// The limit of one server. Times are seconds of a clock that only goes forward.
#[derive(Clone, Debug)]
pub(super) struct AutomaticLimit {
    limit: f64,
    /// The most requests at the server at which its answers showed no queue.
    calm_at: f64,
    at_server: u32,
    next: u64,
    /// Requests of unknown kinds and with uploads, and when they were sent.
    unsure: VecDeque<(u64, f64)>,
    /// Those of them that do not count any more.
    excused: HashSet<u64>,
    usual_times: UsualTimes,
    trial: Option<LimitTrial>,
    round: Round,
    /// Whether the server is found to have a queue because of what it is asked. Else the limit grows with that.
    has_queue: bool,
    /// Whether more is still at the server than a lower limit lets in.
    drains: bool,
    waiting: WaitingStrangers,
    /// Averages of the last answers: how much longer than usual, and the usual time.
    recent_wait: f64,
    recent_time: f64,
    slow_rounds: u32,
    calm_rounds: u32,
    rest: f64,
    rests_until: f64,
    /// When there was an answer, or a request to an idle server.
    answered: f64,
    /// When a quick answer came.
    quick: f64,
    /// When the limit has last grown because there was no answer.
    grew_in_silence: f64,
    /// Answers to earlier requests show that the server was away.
    away_until: f64,
    used: RecentUse,
    /// Whether it goes on from another process, which knew more than the store.
    is_resumed: bool,
    /// Whether nothing is tried, because no visitor is held back.
    only_watches: bool,
}

/// The strangers that wait for a server, as far as they are its own.
#[derive(Clone, Copy, Debug)]
struct WaitingStrangers {
    count: f64,
    /// When that was told, and when there were some.
    told: f64,
    seen: f64,
}

/// The most requests at the server in this minute.
#[derive(Clone, Copy, Debug)]
struct RecentUse {
    most: u32,
    since: f64,
}

/// Another limit that is tried, and what was known before.
#[derive(Clone, Copy, Debug)]
struct LimitTrial {
    is_up: bool,
    limit: f64,
    before: RoundResult,
}

impl AutomaticLimit {
    pub(super) fn new(now: f64, only_watches: bool) -> Self {
        Self {
            limit: START,
            calm_at: START,
            at_server: 0,
            next: 0,
            unsure: VecDeque::new(),
            excused: HashSet::new(),
            usual_times: UsualTimes::new(now),
            trial: None,
            round: Round::new(now),
            has_queue: false,
            drains: false,
            waiting: WaitingStrangers { count: 0.0, told: now, seen: now },
            recent_wait: 0.0,
            recent_time: 0.0,
            slow_rounds: 0,
            calm_rounds: 0,
            rest: REST_MIN_S,
            rests_until: now,
            answered: now,
            quick: f64::NEG_INFINITY,
            grew_in_silence: now,
            away_until: now,
            used: RecentUse { most: 0, since: now },
            is_resumed: false,
            only_watches,
        }
    }

    /// The same limit in a list that takes the server over: what is at the server ends in both.
    pub(super) fn taken_over(&self, now: f64) -> Self {
        Self {
            limit: self.limit,
            calm_at: self.calm_at,
            usual_times: self.usual_times.taken_over(now),
            has_queue: self.has_queue,
            recent_wait: self.recent_wait,
            recent_time: self.recent_time,
            ..Self::new(now, self.only_watches)
        }
    }

    /// What is known of the server, with the times of at most so many kinds of pages.
    pub(super) fn known(&self, kinds_max: usize) -> KnownServer {
        let kinds = self.usual_times.most_answered(kinds_max);
        KnownServer { calm_at: self.calm_at.max(START) as f32, kinds }
    }

    /// Takes over what an earlier process knew, or another one. What was learned since goes before it: times of kinds of
    /// which there was an answer, and a limit that has moved, is being tried, or was [resumed](Self::resume).
    pub(super) fn recall(&mut self, known: &KnownServer) {
        self.usual_times.recall(&known.kinds);
        // That kinds take long was found beside quick ones.
        self.quick = self.quick.max(self.answered);
        let is_at_start = self.limit == START && self.calm_at == START && !self.is_resumed;
        if is_at_start && !self.has_queue && self.trial.is_none() {
            self.calm_at = f64::from(known.calm_at).max(START);
            self.set(self.calm_at);
        }
    }

    /// Goes on from where the process before has just been. What that knew goes before what was recalled here.
    pub(super) fn resume(&mut self, now: f64, known: &KnownServer, limit: f64, has_queue: bool) {
        let recalled = self.usual_times.most_answered(usize::MAX);
        self.usual_times = UsualTimes::new(now);
        self.usual_times.recall(&known.kinds);
        self.usual_times.recall(&recalled);
        // That kinds take long was found beside quick ones.
        self.quick = self.quick.max(self.answered);
        self.is_resumed = true;
        self.trial = None;
        self.round = Round::new(now);
        self.has_queue = has_queue;
        self.calm_at = f64::from(known.calm_at).max(START);
        self.set(if limit.is_finite() { limit } else { self.calm_at });
        // Neither that no stranger waits, nor that little is used, is known of the time before.
        self.waiting.seen = now;
        self.used = RecentUse { most: 0, since: now };
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
        self.waiting.count > 0.0
    }

    /// Whether the server is found to have a queue because of what it is asked.
    pub(super) fn has_queue(&self) -> bool {
        self.has_queue
    }

    /// How long a stranger waits that comes after so many others, in seconds, by how long the last answers took.
    pub(super) fn predicted_wait(&self, before: f64) -> f64 {
        before * (self.recent_time + self.recent_wait.max(0.0)) / self.limit
    }

    /// How long the kind of page of a request takes in calm, in seconds, if that is known. What only waits is no work.
    pub(super) fn usual(&self, request: &RequestAtServer) -> Option<f64> {
        self.usual_times.of(request.kind).filter(|seconds| *seconds <= WORK_MAX_S)
    }

    /// The same, however long it is.
    pub(super) fn usual_however_long(&self, request: &RequestAtServer) -> Option<f64> {
        self.usual_times.of(request.kind)
    }

    /// A request for this kind of page is sent to the server. One with an upload may wait for its client.
    pub(super) fn begin(&mut self, now: f64, kind: u64, has_upload: bool) -> RequestAtServer {
        let kind = self.usual_times.key(kind);
        let usual = self.usual_times.of(kind);
        let is_known_work = usual.is_some_and(|usual| usual <= WORK_MAX_S);
        let is_quick = now - self.quick < QUICK_LASTS_S;
        let counts = usual.is_none() || is_known_work || !is_quick;
        let number = self.next;
        self.next += 1;
        if counts && (!is_known_work || has_upload) {
            self.unsure.push_back((number, now));
        }
        if self.at_server == 0 {
            self.answered = now;
        }
        self.at_server += u32::from(counts);
        RequestAtServer { began: now, at_server: self.at_server, kind, number, counts }
    }

    /// How many strangers wait from now on. Returns whether there is more room than was.
    pub(super) fn observe(&mut self, now: f64, waiting: f64) -> bool {
        if self.is_full() {
            self.round.note_full(now - self.waiting.told);
            self.waiting.seen = now;
        }
        (self.waiting.told, self.waiting.count) = (now, waiting);
        let before = self.at_server;
        while let Some((number, began)) = self.unsure.front().copied()
            && now - began > WORK_MAX_S
        {
            self.unsure.pop_front();
            self.excused.insert(number);
            self.at_server = self.at_server.saturating_sub(1);
        }
        self.at_server < before || self.grow_in_silence(now)
    }

    /// Grows by one where the server gives no answer although nothing is proven: what hangs there must not keep all others
    /// from it.
    fn grow_in_silence(&mut self, now: f64) -> bool {
        // What rests or has nothing to do gives no answer, either.
        let at_server = f64::from(self.at_server) + self.excused.len() as f64;
        let is_used = at_server >= 0.5 * self.limit;
        let is_held = self.is_full() && !self.has_queue && self.trial.is_none() && is_used;
        let is_silent = now - self.answered.max(self.grew_in_silence) > SILENCE_S;
        if is_held && is_silent {
            self.grew_in_silence = now;
            self.set(self.limit + 1.0);
        }
        is_held && is_silent
    }

    /// A request is over without an answer that says how long the server takes.
    pub(super) fn end(&mut self, request: &RequestAtServer) {
        let is_excused = !self.excused.is_empty() && self.excused.remove(&request.number);
        self.at_server = self.at_server.saturating_sub(u32::from(request.counts && !is_excused));
        if let Ok(at) = self.unsure.binary_search_by_key(&request.number, |(number, _)| *number) {
            self.unsure.remove(at);
        }
    }

    /// A request has its answer.
    pub(super) fn answer(&mut self, now: f64, request: &RequestAtServer) {
        self.observe(now, self.waiting.count);
        self.end(request);
        if self.was_away(now, request) {
            self.give_up_trial();
            self.away_until = now;
            self.round = Round::new(now);
            return;
        }
        let took = now - request.began;
        if took < QUICK_S {
            self.quick = now;
        }
        let usual = self.learn(now, request, took);
        if usual > WORK_MAX_S {
            return;
        }
        self.recent_wait += (took - usual - self.recent_wait) / 8.0;
        self.recent_time += (usual - self.recent_time) / 8.0;
        self.follow_use(now, request);
        self.grow(request, took);
        let is_drained = f64::from(self.at_server) <= RISES * self.limit + 1.0;
        if self.drains && (is_drained || now - self.round.began() > DRAINED_S) {
            self.drains = false;
            self.round = Round::new(now);
        }
        if self.drains || request.began < self.round.began() {
            return;
        }
        // PERF: while no visitor waits for long anywhere, there is nothing to find out.
        let is_calm = self.recent_wait <= calm(self.recent_time);
        if is_calm && self.trial.is_none() && !self.is_full() && !self.has_queue {
            self.slow_rounds = 0;
            self.round = Round::new(now);
            if took - usual <= calm(usual) {
                self.calm_at = self.calm_at.max(f64::from(request.at_server));
            }
            return;
        }
        self.round.note(took, usual, request.at_server);
        if self.round.is_over(now, self.limit) {
            self.end_round(now);
        }
    }

    /// Whether the server has given no answer for so long that it was away. An answer of an unknown kind does not tell.
    fn was_away(&mut self, now: f64, request: &RequestAtServer) -> bool {
        let silent = now - self.answered;
        self.answered = now;
        // PERF: first of all, so that the kind is looked up only after a silence.
        if silent <= STALL_S {
            return false;
        }
        let usual = self.usual(request).map(|usual| usual.max(self.recent_time));
        usual.is_some_and(|usual| silent > STALL_S.max(STALL_PART * usual))
    }

    fn give_up_trial(&mut self) {
        if let Some(trial) = self.trial.take() {
            self.limit = trial.limit;
        }
        self.drains = false;
    }

    /// Learns how long the kind of page takes in calm, and returns it.
    fn learn(&mut self, now: f64, request: &RequestAtServer, took: f64) -> f64 {
        let is_usable = self.trial.is_none() && request.began >= self.away_until;
        let calm = match f64::from(request.at_server) <= (self.calm_at / 2.0).max(2.0) {
            true if is_usable => Calm::Yes,
            false if is_usable && !self.has_queue => Calm::Unproven,
            _ => Calm::No,
        };
        self.usual_times.learn(now, request.kind, took, calm)
    }

    /// Lets strangers go where none waits any more, and lowers a limit of which little is used.
    fn follow_use(&mut self, now: f64, request: &RequestAtServer) {
        let none_waits = !self.is_full() && now - self.waiting.seen > LETS_GO_S;
        if none_waits && self.trial.is_none() && !self.only_watches {
            self.has_queue = false;
        }
        self.used.most = self.used.most.max(request.at_server);
        if now - self.used.since <= FOLLOWS_EVERY_S {
            return;
        }
        if self.trial.is_none() && !self.is_full() {
            self.set(self.limit.min(FOLLOWS * f64::from(self.used.most)).max(START));
            self.calm_at = self.calm_at.min(self.limit);
        }
        self.used = RecentUse { most: 0, since: now };
    }

    /// Grows by one with an answer where as many are at the server as may be, while nothing is proven and visitors wait for
    /// a short time in all.
    fn grow(&mut self, request: &RequestAtServer, took: f64) {
        let was_full = f64::from(request.at_server) >= 0.75 * self.limit;
        if self.has_queue || self.trial.is_some() || !self.is_full() || !was_full {
            return;
        }
        let in_all = self.recent_wait + self.waiting.count * took / self.limit;
        if self.recent_wait <= calm(self.recent_time) / 2.0 || in_all < slow(self.recent_time) {
            self.set(self.limit + 1.0);
        }
    }

    /// A request has an answer of which the time says nothing, because it had to wait for its client or is no page.
    pub(super) fn answer_untimed(&mut self, now: f64, request: &RequestAtServer) {
        self.observe(now, self.waiting.count);
        self.end(request);
        self.answered = now;
        let was_full = f64::from(request.at_server) >= 0.75 * self.limit;
        let may_grow = self.is_full() && !self.has_queue && self.trial.is_none();
        if may_grow && was_full && self.recent_wait <= calm(self.recent_time) / 2.0 {
            self.set(self.limit + 1.0);
        }
    }

    fn end_round(&mut self, now: f64) {
        let was_full = self.round.was_full(now);
        let result = self.round.result();
        match self.trial {
            Some(trial) => {
                if !self.judge(&trial, &result, now) {
                    return;
                }
            }
            None if was_full => self.adjust(&result, now),
            None => self.suspect(&result, now),
        }
        self.round = Round::new(now);
    }

    /// What follows from a round in which strangers waited.
    fn adjust(&mut self, result: &RoundResult, now: f64) {
        let in_all = result.wait_in_all(self.waiting.count);
        // That visitors wait a little proves nothing, and the limit grows.
        let proves_nothing = !self.has_queue && !result.is_slow(in_all);
        if result.is_calm() {
            return self.rise(result);
        }
        self.calm_rounds = 0;
        if proves_nothing {
            return;
        }
        let is_unsure = !self.has_queue && in_all < SURE_S.max(SURE_PART * result.usual);
        if is_unsure || !self.try_less(result) && now >= self.rests_until {
            self.try_limit(true, self.limit * UP, result);
        }
    }

    /// What follows from a round in which no stranger waited: the server may have a queue below its limit.
    fn suspect(&mut self, result: &RoundResult, now: f64) {
        self.slow_rounds = if result.is_slow(result.wait) { self.slow_rounds + 1 } else { 0 };
        if self.only_watches {
            let goes_on = self.has_queue && !result.is_calm();
            self.has_queue = goes_on || self.slow_rounds >= SLOW_ROUNDS;
            return;
        }
        // Strangers wait for a part of the time only, and the server is calm.
        if self.has_queue && result.is_calm() && self.round.was_full_at_times() {
            self.rise(result);
        }
        if self.slow_rounds >= SLOW_ROUNDS && now >= self.rests_until {
            self.slow_rounds = 0;
            self.try_less(result);
        }
    }

    /// Raises the limit after a calm round.
    fn rise(&mut self, result: &RoundResult) {
        self.calm_at = self.calm_at.max(result.at_server);
        // Where nothing is proven, each answer raises it, too.
        if !self.has_queue && result.wait > calm(result.usual) / 2.0 {
            return;
        }
        self.set(self.limit * RISES);
        let is_clear = result.wait <= calm(result.usual) / 4.0;
        self.calm_rounds = if is_clear { self.calm_rounds + 1 } else { 0 };
        if self.calm_rounds >= CALM_ROUNDS {
            self.has_queue = false;
        }
    }

    fn try_limit(&mut self, is_up: bool, limit: f64, before: &RoundResult) {
        self.trial = Some(LimitTrial { is_up, limit: self.limit, before: *before });
        self.drains = !is_up;
        self.calm_rounds = 0;
        self.set(limit);
    }

    /// Tries a limit without most of the queue, if that is less.
    fn try_less(&mut self, result: &RoundResult) -> bool {
        let is_less = result.drained() < 0.9 * self.limit && self.limit > FLOOR;
        if is_less {
            self.try_limit(false, result.drained(), result);
        }
        is_less
    }

    /// Decides on the limit that was tried; false: the round goes on, because chance may explain what it shows.
    fn judge(&mut self, trial: &LimitTrial, result: &RoundResult, now: f64) -> bool {
        let change = result.at_server - trial.before.at_server;
        if change.abs() < 0.1 * trial.before.at_server {
            self.give_up_trial();
            return true;
        }
        // If all of the change was in the server's queue, answers take longer by this.
        let expected = change / result.rate;
        let error = result.error.hypot(trial.before.error);
        if expected.abs() < 4.0 * error && self.round.extend() {
            return false;
        }
        self.trial = None;
        // As far as chance may explain it, there is a queue.
        let share = (result.wait - trial.before.wait) / expected;
        let is_load = share + error / expected.abs() >= 0.5;
        match (trial.is_up, is_load) {
            (true, true) => self.more_was_in_vain(trial, result, now),
            (false, true) => self.less_was_right(trial, result),
            (is_up, false) => self.is_slow_of_itself(is_up, trial, result, now),
        }
        true
    }

    /// Fewer requests at the server waited for as much shorter: it has a queue. While it answers as many in a second as before,
    /// it may still have one that was taken for usual, so yet less is tried.
    fn less_was_right(&mut self, trial: &LimitTrial, result: &RoundResult) {
        self.has_queue = true;
        self.calm_at = self.calm_at.min(self.limit);
        if result.error > SURE_ERROR * result.usual {
            return;
        }
        let before = result.sped_up();
        if result.wait < 0.0 {
            self.usual_times.scale(before.usual / result.usual.max(1e-6), WORK_MAX_S);
        }
        if result.rate >= STILL_FULL * trial.before.rate && self.limit > FLOOR {
            self.try_limit(false, LESS * self.limit, &before);
        }
    }

    /// More requests at the server had to wait for as much longer.
    fn more_was_in_vain(&mut self, trial: &LimitTrial, result: &RoundResult, now: f64) {
        self.limit = trial.limit;
        if self.has_queue {
            self.rest = (2.0 * self.rest).min(REST_MAX_S);
        }
        // The first proof. If less is tried now, that is the second.
        if std::mem::replace(&mut self.has_queue, true) || !self.try_less(result) {
            self.rests_until = now + self.rest;
        }
    }

    /// As many requests at the server, or as few, change nothing in its times: these are its times now.
    fn is_slow_of_itself(
        &mut self,
        is_up: bool,
        trial: &LimitTrial,
        result: &RoundResult,
        now: f64,
    ) {
        self.has_queue = false;
        self.calm_at = self.calm_at.max(result.at_server);
        if is_up {
            self.rest = REST_MIN_S;
            // The next round is judged by the new times.
            let before = if result.is_calm() { *result } else { result.rebased() };
            self.try_limit(true, self.limit * GROWS, &before);
        } else {
            self.limit = trial.limit;
            self.rests_until = now + self.rest;
        }
        if !result.is_calm() {
            self.usual_times.scale(result.slowdown(), WORK_MAX_S);
        }
    }

    /// As if it had been proven that there is a queue.
    #[cfg(test)]
    pub(super) fn find_queue(&mut self) {
        self.has_queue = true;
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(FLOOR, MAX);
    }
}

#[cfg(test)]
mod tests;
