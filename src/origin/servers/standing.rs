//! How a server stands: whether it is asked, rests, is tried, or comes back slowly.
//!
//! Two things take it out, apart from each other: failures of requests, after which it rests, and checks
//! of its health. Pure: every time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(300);
/// The whole share of a server, in thousandths.
const WHOLE: u32 = 1_000;
/// The least that a server gets that has just come back.
const LEAST: u32 = 100;

/// When servers rest and come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Failures in a row after which a server rests.
    pub fails: u32,
    /// Within which they count.
    pub fail_window: Duration,
    /// The first rest.
    pub rest: Duration,
    /// How long the share of a server grows that came back.
    pub slow_start: Duration,
    /// Good checks in a row that bring a server back.
    pub healthy_after: u32,
    /// Bad ones that take it out.
    pub unhealthy_after: u32,
}

/// What a request or a check has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It rests for so long.
    Rests(Duration),
    /// Its checks say that it is not well.
    Sick,
    /// It is asked again.
    Back,
}

/// A request that shows whether a server is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// It can be sent again, has no body, and is answered in time or has failed.
    Quick,
    /// It takes as long as its client does to send it, or the server to have something to say: no other
    /// waits for what comes of it for longer than the rest was.
    Slow,
}

/// A trial that is on its way: when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trying {
    by: Trial,
    since: Instant,
}

impl Trial {
    pub(super) fn by(is_repeatable: bool) -> Self {
        if is_repeatable { Self::Quick } else { Self::Slow }
    }
}

/// A rest, and the time behind it until somebody has tried the server.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    length: Duration,
}

/// How a server stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    /// Failures in a row, and when the first of them was.
    fails: Option<(u32, Instant)>,
    rest: Option<Rest>,
    /// The requests that are on their way and try it, one of each kind: when the quick one began.
    tried: Option<Instant>,
    /// And the newest slow one.
    tried_slowly: Option<Instant>,
    tried_at: Option<Instant>,
    is_sick: bool,
    /// Checks in a row that say other than `is_sick`.
    contrary: u32,
    back_at: Option<Instant>,
}

impl Standing {
    /// Whether it gets requests as they come.
    pub(super) fn is_up(&self) -> bool {
        self.rest.is_none() && !self.is_sick
    }

    /// Whether a request may try it now. One that cannot be sent again leaves that to others for as
    /// long as the rest was.
    pub(super) fn may_be_tried(&self, by: Trial, now: Instant) -> bool {
        let Some(rest) = self.rest.filter(|_| !self.is_tried_by(by, now) && !self.is_sick) else {
            return false;
        };
        let until = match by {
            Trial::Quick => rest.until,
            Trial::Slow => rest.until + rest.length,
        };
        until <= now
    }

    /// Whether it is being tried so that this one need not. A slow one leaves it to whoever is quick, and
    /// to the next when it has gone on for as long as the rest was.
    fn is_tried_by(&self, by: Trial, now: Instant) -> bool {
        let rest = self.rest.map(|rest| rest.length);
        let goes_on = |since: Instant| rest.is_none_or(|rest| now < since + rest);
        self.tried.is_some() || (by == Trial::Slow && self.tried_slowly.is_some_and(goes_on))
    }

    /// Where no server is up this one may be tried before its rest is over: the least of several is next.
    pub(super) fn last_resort(&self, by: Trial, now: Instant) -> Option<(bool, Option<Instant>)> {
        (!self.is_tried_by(by, now)).then_some((self.is_sick, self.tried_at))
    }

    /// A request is on its way that tries it.
    pub(super) fn try_it(&mut self, by: Trial, now: Instant) -> Trying {
        *self.tried_by(by) = Some(now);
        self.tried_at = Some(now);
        Trying { by, since: now }
    }

    fn tried_by(&mut self, by: Trial) -> &mut Option<Instant> {
        match by {
            Trial::Quick => &mut self.tried,
            Trial::Slow => &mut self.tried_slowly,
        }
    }

    /// That request is over. Another may have taken its turn since.
    fn has_tried(&mut self, trial: Trying) {
        self.tried_by(trial.by).take_if(|since| *since == trial.since);
    }

    /// Whether nothing but its checks has taken it out.
    pub(super) fn is_out_by_checks(&self) -> bool {
        self.is_sick && self.rest.is_none()
    }

    /// The same under other rules, where nobody who tries it is known.
    pub(super) fn taken_over(&self) -> Self {
        Self { tried: None, tried_slowly: None, ..self.clone() }
    }

    /// Another is back, and none was up before: so may this one be, whatever it had to rest for.
    pub(super) fn hurry(&mut self, patience: &Patience, now: Instant) {
        if let Some(rest) = &mut self.rest {
            *rest = Rest { until: rest.until.min(now), length: patience.rest.min(REST_MAX) };
        }
    }

    /// That request was given up, and has shown nothing.
    pub(super) fn tried_in_vain(&mut self, trial: Trying) {
        self.has_tried(trial);
    }

    /// A request was answered.
    pub(super) fn succeeded(&mut self, trial: Option<Trying>, now: Instant) -> Option<Change> {
        if let Some(trial) = trial {
            self.has_tried(trial);
            self.rest.take()?;
            self.fails = None;
            self.back_at = Some(now);
            return (!self.is_sick).then_some(Change::Back);
        }
        if self.rest.is_none() {
            self.fails = None;
        }
        None
    }

    /// A request failed. `may_rest`: whether the others can do without this one.
    pub(super) fn failed(
        &mut self,
        trial: Option<Trying>,
        may_rest: bool,
        patience: &Patience,
        now: Instant,
    ) -> Option<Change> {
        if let Some(trial) = trial {
            self.has_tried(trial);
            let rest = self.rest?;
            // A last resort, tried early, does not make the rest longer.
            let is_due = rest.until <= now;
            return is_due.then(|| self.lie_down((rest.length * 2).min(REST_MAX), now));
        }
        if self.rest.is_some() {
            // It was on its way when the rest began.
            return None;
        }
        let (count, since) = match self.fails {
            Some((count, since)) if since + patience.fail_window >= now => (count + 1, since),
            Some(_) | None => (1, now),
        };
        self.fails = Some((count, since));
        if count < patience.fails || !may_rest {
            return None;
        }
        self.fails = None;
        Some(self.lie_down(patience.rest.min(REST_MAX), now))
    }

    fn lie_down(&mut self, length: Duration, now: Instant) -> Change {
        self.rest = Some(Rest { until: now + length, length });
        Change::Rests(length)
    }

    /// A check said how it is.
    pub(super) fn checked(
        &mut self,
        is_well: bool,
        patience: &Patience,
        now: Instant,
    ) -> Option<Change> {
        if is_well != self.is_sick {
            self.contrary = 0;
            return None;
        }
        self.contrary += 1;
        let enough = if is_well { patience.healthy_after } else { patience.unhealthy_after };
        if self.contrary < enough {
            return None;
        }
        self.contrary = 0;
        self.is_sick = !is_well;
        if !is_well {
            return Some(Change::Sick);
        }
        self.back_at = Some(now);
        self.rest.is_none().then_some(Change::Back)
    }

    /// The part of its share that it gets now, in thousandths.
    pub(super) fn share(&self, slow_start: Duration, now: Instant) -> u32 {
        let Some(back_at) = self.back_at else { return WHOLE };
        let since = now.saturating_duration_since(back_at);
        if since >= slow_start {
            return WHOLE;
        }
        let grown = since.as_nanos() * u128::from(WHOLE) / slow_start.as_nanos().max(1);
        u32::try_from(grown).unwrap_or(WHOLE).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PATIENCE: Patience = Patience {
        fails: 3,
        fail_window: Duration::from_secs(30),
        rest: Duration::from_secs(10),
        slow_start: Duration::from_secs(10),
        healthy_after: 2,
        unhealthy_after: 3,
    };

    fn failing(standing: &mut Standing, now: Instant) -> Option<Change> {
        standing.failed(None, true, &PATIENCE, now)
    }

    fn fail(standing: &mut Standing, times: usize, now: Instant) {
        for _ in 0..times {
            failing(standing, now);
        }
    }

    #[test]
    fn a_server_rests_after_failures_in_a_row() {
        let now = Instant::now();
        let mut server = Standing::default();
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(server.succeeded(None, now), None);
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(failing(&mut server, now), Some(Change::Rests(10 * SECOND)));
        assert!(!server.is_up());
        // What was on its way changes nothing.
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(server.succeeded(None, now), None);
        assert!(!server.is_up());
    }

    #[test]
    fn failures_beyond_the_window_do_not_add_up() {
        let now = Instant::now();
        let mut server = Standing::default();
        failing(&mut server, now);
        failing(&mut server, now);
        assert_eq!(failing(&mut server, now + 31 * SECOND), None);
        assert!(server.is_up());
    }

    #[test]
    fn one_request_tries_it_and_a_failure_doubles_the_rest() {
        let mut now = Instant::now();
        let mut server = Standing::default();
        fail(&mut server, 3, now);
        assert!(!server.may_be_tried(Trial::Quick, now + 9 * SECOND));
        let mut length = 10 * SECOND;
        for _ in 0..8 {
            now += length;
            assert!(server.may_be_tried(Trial::Quick, now));
            let trial = server.try_it(Trial::Quick, now);
            assert!(!server.may_be_tried(Trial::Quick, now), "one at a time");
            length = (length * 2).min(REST_MAX);
            let change = server.failed(Some(trial), true, &PATIENCE, now);
            assert_eq!(change, Some(Change::Rests(length)));
        }
        now += length;
        let trial = server.try_it(Trial::Quick, now);
        server.tried_in_vain(trial);
        assert!(server.may_be_tried(Trial::Quick, now), "a client that left has shown nothing");
        let trial = server.try_it(Trial::Quick, now);
        assert_eq!(server.succeeded(Some(trial), now), Some(Change::Back));
        fail(&mut server, 2, now);
        assert_eq!(failing(&mut server, now), Some(Change::Rests(10 * SECOND)));
    }

    #[test]
    fn what_is_tried_early_rests_no_longer_and_waits_for_its_next_turn() {
        let now = Instant::now();
        let (mut one, mut other) = (Standing::default(), Standing::default());
        for server in [&mut one, &mut other] {
            fail(server, 3, now);
        }
        assert!(
            one.last_resort(Trial::Quick, now) == other.last_resort(Trial::Quick, now)
                && one.last_resort(Trial::Quick, now).is_some()
        );
        let trial = one.try_it(Trial::Quick, now);
        assert_eq!(one.last_resort(Trial::Quick, now), None);
        assert_eq!(one.failed(Some(trial), true, &PATIENCE, now + SECOND), None);
        assert!(other.last_resort(Trial::Quick, now) < one.last_resort(Trial::Quick, now));
        assert!(one.may_be_tried(Trial::Quick, now + 10 * SECOND));
        one.hurry(&PATIENCE, now + 2 * SECOND);
        assert!(one.may_be_tried(Trial::Quick, now + 2 * SECOND));
    }

    #[test]
    fn a_request_that_cannot_be_sent_again_tries_later() {
        let now = Instant::now();
        let mut server = Standing::default();
        fail(&mut server, 3, now);
        assert!(!server.may_be_tried(Trial::Slow, now + 19 * SECOND));
        assert!(server.may_be_tried(Trial::Slow, now + 20 * SECOND));
    }

    #[test]
    fn an_upload_that_takes_its_time_keeps_nobody_from_trying() {
        let now = Instant::now();
        let mut server = Standing::default();
        fail(&mut server, 3, now);
        let later = now + 20 * SECOND;
        server.try_it(Trial::Slow, later);
        assert!(!server.may_be_tried(Trial::Slow, later));
        assert!(server.last_resort(Trial::Slow, later).is_none());
        assert!(server.last_resort(Trial::Quick, later).is_some());
        assert!(server.may_be_tried(Trial::Quick, later));
        let trial = server.try_it(Trial::Quick, later);
        assert_eq!(server.succeeded(Some(trial), later), Some(Change::Back));
    }

    #[test]
    fn a_slow_trial_lapses_when_it_has_gone_on_for_as_long_as_the_rest() {
        let now = Instant::now();
        let mut server = Standing::default();
        fail(&mut server, 3, now);
        let begun = now + 20 * SECOND;
        let silent = server.try_it(Trial::Slow, begun);
        let before = begun + 9 * SECOND;
        assert!(!server.may_be_tried(Trial::Slow, before));
        assert!(server.last_resort(Trial::Slow, before).is_none());
        let later = begun + 10 * SECOND;
        assert!(server.last_resort(Trial::Slow, later).is_some());
        assert!(server.may_be_tried(Trial::Slow, later));
        let next = server.try_it(Trial::Slow, later);
        // Whose turn is over does not end that of the next.
        server.tried_in_vain(silent);
        assert!(!server.may_be_tried(Trial::Slow, later));
        assert_eq!(server.succeeded(Some(next), later), Some(Change::Back));
        // What comes of it late is of no account.
        assert_eq!(server.failed(Some(silent), true, &PATIENCE, later), None);
        assert!(server.is_up());
    }

    #[test]
    fn a_trial_that_fails_late_does_not_make_the_rest_longer_again() {
        let now = Instant::now();
        let mut server = Standing::default();
        fail(&mut server, 3, now);
        let begun = now + 20 * SECOND;
        let silent = server.try_it(Trial::Slow, begun);
        let later = begun + 10 * SECOND;
        let next = server.try_it(Trial::Slow, later);
        let change = server.failed(Some(next), true, &PATIENCE, later);
        assert_eq!(change, Some(Change::Rests(20 * SECOND)));
        assert_eq!(server.failed(Some(silent), true, &PATIENCE, later + SECOND), None);
    }

    #[test]
    fn a_server_that_is_needed_does_not_rest() {
        let now = Instant::now();
        let mut server = Standing::default();
        for _ in 0..10 {
            assert_eq!(server.failed(None, false, &PATIENCE, now), None);
        }
        assert!(server.is_up());
    }

    #[test]
    fn checks_in_a_row_take_it_out_and_bring_it_back() {
        let now = Instant::now();
        let mut server = Standing::default();
        let said = [false, false, true, false, false, false, true, false, true, true];
        let changes: Vec<_> =
            said.iter().map(|well| server.checked(*well, &PATIENCE, now)).collect();
        let mut expected = vec![None; 10];
        expected[5] = Some(Change::Sick);
        expected[9] = Some(Change::Back);
        assert_eq!(changes, expected);
    }

    #[test]
    fn requests_do_not_bring_back_what_checks_call_sick() {
        let now = Instant::now();
        let mut server = Standing::default();
        for _ in 0..3 {
            server.checked(false, &PATIENCE, now);
        }
        let trial = server.try_it(Trial::Quick, now);
        assert_eq!(server.succeeded(Some(trial), now), None);
        assert!(!server.is_up() && !server.may_be_tried(Trial::Quick, now));
    }

    #[test]
    fn the_share_of_a_server_that_came_back_grows() {
        let now = Instant::now();
        let mut server = Standing::default();
        assert_eq!(server.share(10 * SECOND, now), 1_000);
        fail(&mut server, 3, now);
        let trial = server.try_it(Trial::Quick, now);
        server.succeeded(Some(trial), now);
        for (seconds, share) in [(0, 100), (1, 100), (5, 500), (9, 900), (10, 1_000), (99, 1_000)] {
            let at = now + seconds * SECOND;
            assert_eq!(server.share(10 * SECOND, at), share, "{seconds}");
        }
        assert_eq!(server.share(Duration::ZERO, now), 1_000);
    }
}
