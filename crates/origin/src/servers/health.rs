//! The health of a server: whether it is up, rests, is tried, or returns slowly.
//!
//! Two things take it out independently: failures of requests, after which it rests, and health checks. Pure:
//! every time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(300);
/// The full share of a server, in thousandths.
const WHOLE: u32 = 1_000;
/// The smallest share of a server that has just come back.
const LEAST: u32 = 100;

/// When servers rest and come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureRules {
    /// Consecutive failures after which a server rests.
    pub fails: u32,
    /// The window in which they count.
    pub fail_window: Duration,
    /// The first rest.
    pub rest: Duration,
    /// How long the share of a returning server grows.
    pub slow_start: Duration,
    /// Consecutive good checks that bring a server back.
    pub healthy_after: u32,
    /// Consecutive bad checks that take it out.
    pub unhealthy_after: u32,
}

/// A rest, as far as it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestLeft {
    /// What is left of it; zero: it is over, and the next request tries the server.
    pub left: Duration,
    /// How long it is in all.
    pub length: Duration,
}

/// What a request or a check has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthChange {
    /// It rests for this long.
    Rests(Duration),
    /// Its health checks fail.
    Sick,
    /// It gets requests again.
    Back,
}

/// The kind of request that tests whether a server is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// It can be sent again, has no body, and is answered in time or has failed.
    Quick,
    /// It takes as long as its client needs to send it, or the server to respond. Other requests wait for its
    /// result for at most the length of the rest.
    Slow,
}

/// A trial in progress, by its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningTrial {
    by: Trial,
    since: Instant,
}

impl Trial {
    pub(super) fn by(is_repeatable: bool) -> Self {
        if is_repeatable { Self::Quick } else { Self::Slow }
    }
}

/// A rest, and the time after it until a request has tried the server.
#[derive(Clone, Copy, Debug)]
struct Cooldown {
    until: Instant,
    length: Duration,
}

/// The health of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerHealth {
    /// Consecutive failures, and the time of the first.
    fails: Option<(u32, Instant)>,
    rest: Option<Cooldown>,
    /// The trials in progress, one of each kind: the start of the quick one.
    tried: Option<Instant>,
    /// The start of the newest slow one.
    tried_slowly: Option<Instant>,
    tried_at: Option<Instant>,
    is_sick: bool,
    /// Consecutive checks that contradict `is_sick`.
    contrary: u32,
    back_at: Option<Instant>,
}

impl ServerHealth {
    /// Whether it gets ordinary requests.
    pub(super) fn is_up(&self) -> bool {
        self.rest.is_none() && !self.is_sick
    }

    /// Whether a request may try it now. A request that cannot be sent again leaves that to others for as
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

    /// Whether another trial makes this one unnecessary. A slow trial yields to a quick one, and to the next
    /// slow one after it has run for as long as the rest was.
    fn is_tried_by(&self, by: Trial, now: Instant) -> bool {
        let rest = self.rest.map(|rest| rest.length);
        let goes_on = |since: Instant| rest.is_none_or(|rest| now < since + rest);
        self.tried.is_some() || (by == Trial::Slow && self.tried_slowly.is_some_and(goes_on))
    }

    /// When no server is up, this one may be tried before its rest is over: the least of several is next.
    pub(super) fn last_resort(&self, by: Trial, now: Instant) -> Option<(bool, Option<Instant>)> {
        (!self.is_tried_by(by, now)).then_some((self.is_sick, self.tried_at))
    }

    /// Starts a trial.
    pub(super) fn try_it(&mut self, by: Trial, now: Instant) -> RunningTrial {
        *self.tried_by(by) = Some(now);
        self.tried_at = Some(now);
        RunningTrial { by, since: now }
    }

    fn tried_by(&mut self, by: Trial) -> &mut Option<Instant> {
        match by {
            Trial::Quick => &mut self.tried,
            Trial::Slow => &mut self.tried_slowly,
        }
    }

    /// The trial is over. Another may have replaced it since.
    fn has_tried(&mut self, trial: RunningTrial) {
        self.tried_by(trial.by).take_if(|since| *since == trial.since);
    }

    /// Whether only its checks have taken it out.
    pub(super) fn is_out_by_checks(&self) -> bool {
        self.is_sick && self.rest.is_none()
    }

    /// The same health for a list with other rules, without the trials in progress.
    pub(super) fn taken_over(&self) -> Self {
        Self { tried: None, tried_slowly: None, ..self.clone() }
    }

    /// What is left of its rest, for another process.
    pub(super) fn rest_left(&self, now: Instant) -> Option<RestLeft> {
        let Cooldown { until, length } = self.rest?;
        Some(RestLeft { left: until.saturating_duration_since(now), length })
    }

    /// Whether its checks have taken it out.
    pub(super) fn fails_checks(&self) -> bool {
        self.is_sick
    }

    /// Goes on as in the process before. A rest is no shorter than the rules of this one want it, and ends in time.
    pub(super) fn resume(
        &mut self,
        rest: Option<RestLeft>,
        fails_checks: bool,
        rules: &FailureRules,
        now: Instant,
    ) {
        if let Some(RestLeft { left, length }) = rest {
            let length = length.max(rules.rest).min(REST_MAX);
            self.rest = Some(Cooldown { until: now + left.min(length), length });
        }
        if fails_checks {
            self.is_sick = true;
            self.contrary = 0;
        }
    }

    /// Another server is back, and none was up before: this one may be back, too, so its rest is cut short.
    pub(super) fn shorten_rest(&mut self, rules: &FailureRules, now: Instant) {
        if let Some(rest) = &mut self.rest {
            *rest = Cooldown { until: rest.until.min(now), length: rules.rest.min(REST_MAX) };
        }
    }

    /// The trial was cancelled, and has shown nothing.
    pub(super) fn tried_in_vain(&mut self, trial: RunningTrial) {
        self.has_tried(trial);
    }

    /// A request was answered.
    pub(super) fn succeeded(
        &mut self,
        trial: Option<RunningTrial>,
        now: Instant,
    ) -> Option<HealthChange> {
        if let Some(trial) = trial {
            self.has_tried(trial);
            self.rest.take()?;
            self.fails = None;
            self.back_at = Some(now);
            return (!self.is_sick).then_some(HealthChange::Back);
        }
        if self.rest.is_none() {
            self.fails = None;
        }
        None
    }

    /// A request failed. `may_rest`: whether the others can do without this server.
    pub(super) fn failed(
        &mut self,
        trial: Option<RunningTrial>,
        may_rest: bool,
        rules: &FailureRules,
        now: Instant,
    ) -> Option<HealthChange> {
        if let Some(trial) = trial {
            self.has_tried(trial);
            let rest = self.rest?;
            // An early trial as a last resort does not lengthen the rest.
            let is_due = rest.until <= now;
            return is_due.then(|| self.begin_rest((rest.length * 2).min(REST_MAX), now));
        }
        if self.rest.is_some() {
            // It was in progress when the rest began.
            return None;
        }
        let (count, since) = match self.fails {
            Some((count, since)) if since + rules.fail_window >= now => (count + 1, since),
            Some(_) | None => (1, now),
        };
        self.fails = Some((count, since));
        if count < rules.fails || !may_rest {
            return None;
        }
        self.fails = None;
        Some(self.begin_rest(rules.rest.min(REST_MAX), now))
    }

    fn begin_rest(&mut self, length: Duration, now: Instant) -> HealthChange {
        self.rest = Some(Cooldown { until: now + length, length });
        HealthChange::Rests(length)
    }

    /// A check has a result.
    pub(super) fn checked(
        &mut self,
        is_well: bool,
        rules: &FailureRules,
        now: Instant,
    ) -> Option<HealthChange> {
        if is_well != self.is_sick {
            self.contrary = 0;
            return None;
        }
        self.contrary += 1;
        let enough = if is_well { rules.healthy_after } else { rules.unhealthy_after };
        if self.contrary < enough {
            return None;
        }
        self.contrary = 0;
        self.is_sick = !is_well;
        if !is_well {
            return Some(HealthChange::Sick);
        }
        self.back_at = Some(now);
        self.rest.is_none().then_some(HealthChange::Back)
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
    const RULES: FailureRules = FailureRules {
        fails: 3,
        fail_window: Duration::from_secs(30),
        rest: Duration::from_secs(10),
        slow_start: Duration::from_secs(10),
        healthy_after: 2,
        unhealthy_after: 3,
    };

    fn failing(standing: &mut ServerHealth, now: Instant) -> Option<HealthChange> {
        standing.failed(None, true, &RULES, now)
    }

    fn fail(standing: &mut ServerHealth, times: usize, now: Instant) {
        for _ in 0..times {
            failing(standing, now);
        }
    }

    #[test]
    fn a_server_rests_after_failures_in_a_row() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(server.succeeded(None, now), None);
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(failing(&mut server, now), Some(HealthChange::Rests(10 * SECOND)));
        assert!(!server.is_up());
        // A request that was in progress changes nothing.
        assert_eq!(failing(&mut server, now), None);
        assert_eq!(server.succeeded(None, now), None);
        assert!(!server.is_up());
    }

    #[test]
    fn failures_beyond_the_window_do_not_add_up() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
        failing(&mut server, now);
        failing(&mut server, now);
        assert_eq!(failing(&mut server, now + 31 * SECOND), None);
        assert!(server.is_up());
    }

    #[test]
    fn one_request_tries_it_and_a_failure_doubles_the_rest() {
        let mut now = Instant::now();
        let mut server = ServerHealth::default();
        fail(&mut server, 3, now);
        assert!(!server.may_be_tried(Trial::Quick, now + 9 * SECOND));
        let mut length = 10 * SECOND;
        for _ in 0..8 {
            now += length;
            assert!(server.may_be_tried(Trial::Quick, now));
            let trial = server.try_it(Trial::Quick, now);
            assert!(!server.may_be_tried(Trial::Quick, now), "one at a time");
            length = (length * 2).min(REST_MAX);
            let change = server.failed(Some(trial), true, &RULES, now);
            assert_eq!(change, Some(HealthChange::Rests(length)));
        }
        now += length;
        let trial = server.try_it(Trial::Quick, now);
        server.tried_in_vain(trial);
        assert!(server.may_be_tried(Trial::Quick, now), "a client that left has shown nothing");
        let trial = server.try_it(Trial::Quick, now);
        assert_eq!(server.succeeded(Some(trial), now), Some(HealthChange::Back));
        fail(&mut server, 2, now);
        assert_eq!(failing(&mut server, now), Some(HealthChange::Rests(10 * SECOND)));
    }

    #[test]
    fn an_early_trial_does_not_extend_the_rest_period() {
        let now = Instant::now();
        let (mut one, mut other) = (ServerHealth::default(), ServerHealth::default());
        for server in [&mut one, &mut other] {
            fail(server, 3, now);
        }
        assert!(
            one.last_resort(Trial::Quick, now) == other.last_resort(Trial::Quick, now)
                && one.last_resort(Trial::Quick, now).is_some()
        );
        let trial = one.try_it(Trial::Quick, now);
        assert_eq!(one.last_resort(Trial::Quick, now), None);
        assert_eq!(one.failed(Some(trial), true, &RULES, now + SECOND), None);
        assert!(other.last_resort(Trial::Quick, now) < one.last_resort(Trial::Quick, now));
        assert!(one.may_be_tried(Trial::Quick, now + 10 * SECOND));
        one.shorten_rest(&RULES, now + 2 * SECOND);
        assert!(one.may_be_tried(Trial::Quick, now + 2 * SECOND));
    }

    #[test]
    fn a_request_that_cannot_be_sent_again_tries_later() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
        fail(&mut server, 3, now);
        assert!(!server.may_be_tried(Trial::Slow, now + 19 * SECOND));
        assert!(server.may_be_tried(Trial::Slow, now + 20 * SECOND));
    }

    #[test]
    fn a_slow_upload_does_not_block_other_trials() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
        fail(&mut server, 3, now);
        let later = now + 20 * SECOND;
        server.try_it(Trial::Slow, later);
        assert!(!server.may_be_tried(Trial::Slow, later));
        assert!(server.last_resort(Trial::Slow, later).is_none());
        assert!(server.last_resort(Trial::Quick, later).is_some());
        assert!(server.may_be_tried(Trial::Quick, later));
        let trial = server.try_it(Trial::Quick, later);
        assert_eq!(server.succeeded(Some(trial), later), Some(HealthChange::Back));
    }

    #[test]
    fn a_slow_trial_lapses_when_it_has_gone_on_for_as_long_as_the_rest() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
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
        // A replaced trial does not end the next one.
        server.tried_in_vain(silent);
        assert!(!server.may_be_tried(Trial::Slow, later));
        assert_eq!(server.succeeded(Some(next), later), Some(HealthChange::Back));
        // Its late result is ignored.
        assert_eq!(server.failed(Some(silent), true, &RULES, later), None);
        assert!(server.is_up());
    }

    #[test]
    fn a_trial_that_fails_late_does_not_make_the_rest_longer_again() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
        fail(&mut server, 3, now);
        let begun = now + 20 * SECOND;
        let silent = server.try_it(Trial::Slow, begun);
        let later = begun + 10 * SECOND;
        let next = server.try_it(Trial::Slow, later);
        let change = server.failed(Some(next), true, &RULES, later);
        assert_eq!(change, Some(HealthChange::Rests(20 * SECOND)));
        assert_eq!(server.failed(Some(silent), true, &RULES, later + SECOND), None);
    }

    #[test]
    fn a_server_that_is_needed_does_not_rest() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
        for _ in 0..10 {
            assert_eq!(server.failed(None, false, &RULES, now), None);
        }
        assert!(server.is_up());
    }

    #[test]
    fn checks_in_a_row_take_it_out_and_bring_it_back() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
        let said = [false, false, true, false, false, false, true, false, true, true];
        let changes: Vec<_> = said.iter().map(|well| server.checked(*well, &RULES, now)).collect();
        let mut expected = vec![None; 10];
        expected[5] = Some(HealthChange::Sick);
        expected[9] = Some(HealthChange::Back);
        assert_eq!(changes, expected);
    }

    #[test]
    fn requests_do_not_bring_back_what_checks_call_sick() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
        for _ in 0..3 {
            server.checked(false, &RULES, now);
        }
        let trial = server.try_it(Trial::Quick, now);
        assert_eq!(server.succeeded(Some(trial), now), None);
        assert!(!server.is_up() && !server.may_be_tried(Trial::Quick, now));
    }

    #[test]
    fn a_rest_goes_on_in_another_process() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
        assert_eq!(server.rest_left(now), None);
        fail(&mut server, 3, now);
        let rest = server.rest_left(now + 4 * SECOND);
        assert_eq!(rest, Some(RestLeft { left: 6 * SECOND, length: 10 * SECOND }));
        let over = server.rest_left(now + 11 * SECOND).map(|rest| rest.left);
        assert_eq!(over, Some(Duration::ZERO));

        let mut next = ServerHealth::default();
        next.resume(rest, true, &RULES, now);
        assert!(!next.is_up() && next.fails_checks());
        next.checked(true, &RULES, now);
        next.checked(true, &RULES, now);
        assert!(!next.fails_checks());
        assert!(!next.may_be_tried(Trial::Quick, now + 5 * SECOND));
        let trial = next.try_it(Trial::Quick, now + 6 * SECOND);
        let change = next.failed(Some(trial), true, &RULES, now + 6 * SECOND);
        assert_eq!(change, Some(HealthChange::Rests(20 * SECOND)));
    }

    #[test]
    fn a_rest_that_another_process_tells_of_has_bounds() {
        let now = Instant::now();
        for (told, kept) in [(Duration::ZERO, RULES.rest), (Duration::MAX, REST_MAX)] {
            let mut server = ServerHealth::default();
            let rest = RestLeft { left: Duration::MAX, length: told };
            server.resume(Some(rest), false, &RULES, now);
            assert_eq!(server.rest_left(now), Some(RestLeft { left: kept, length: kept }));
        }
    }

    #[test]
    fn the_share_of_a_server_that_came_back_grows() {
        let now = Instant::now();
        let mut server = ServerHealth::default();
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
