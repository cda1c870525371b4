//! The bypass switch, as this process knows it: which routes and pages are forwarded, and not served from the cache or
//! stored, until when. Operators switch routes, and the audit stops pages.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::time::timeout;

use anteroom_store::bypass::{
    BYPASS_LASTS_MAX, BYPASSES_MAX, BypassChange, BypassStore, STOPS_MAX,
};
use anteroom_store::{BypassScope, StoppedPages, StoreError, StoredBypass, StoredBypasses};

/// A switch that is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// What it is for.
    pub scope: BypassScope,
    /// When it ends by itself.
    pub ends: Instant,
    /// Who switched it on.
    pub by: String,
    /// Whether the store did not take it, so that the other proxies do not know of it.
    pub only_here: bool,
}

/// The switches of this process. Shared by all threads.
#[derive(Debug, Default)]
pub struct BypassSwitch {
    /// Whether any is on. PERF: a request reads nothing else while none is.
    is_on: AtomicBool,
    /// Whether any of them is for pages.
    stops_pages: AtomicBool,
    /// How often pages have been stopped, or shared again.
    page_changes: AtomicU64,
    in_force: ArcSwap<Vec<Bypass>>,
    known: Mutex<KnownBypasses>,
    /// The rules of this process's routes, see [`StoppedPages::rules`].
    rules: ArcSwap<Vec<String>>,
    /// Held while the store is asked for a change, so that a switch that is sent late does not undo a newer order.
    changing: tokio::sync::Mutex<()>,
}

/// Where the switches in force come from.
#[derive(Debug, Default)]
struct KnownBypasses {
    /// Those of the store, as it last told them.
    stored: Vec<StoredBypass>,
    /// The same, each with its end on this machine's clock. A clock that differs from the store's does not move it.
    shared: Vec<Bypass>,
    /// Those of the store that were switched off here while it could not be told.
    ended_here: Vec<EndedBypass>,
    /// Those that were switched on here while it could not be told, at most [`BYPASSES_MAX`].
    only_here: Vec<Bypass>,
    /// When the store last had no room for a stop.
    refused: Option<Instant>,
    /// When the store last took a change of this process, by both clocks.
    taken: Option<(u64, Instant)>,
}

/// A switch of the store that was switched off here.
#[derive(Debug)]
struct EndedBypass {
    stored: StoredBypass,
    /// Who switched it off.
    by: String,
}

/// How long after a change an answer of the store may be older than the change: as long as a read may take.
const OVERTAKEN_FOR: Duration = Duration::from_secs(2);
/// How long to wait for the store with a switch that is sent late.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// The shortest rest of a switch's time with which it is still sent.
const REST_MIN: Duration = Duration::from_secs(1);
/// A stop of pages is renewed when so much of its time is left.
const RENEWED_BEFORE: Duration = BYPASS_LASTS_MAX.checked_div(2).expect("2 is not 0");
/// By how much the number of changes grows when pages are shared again.
const SHARED_AGAIN: u64 = 1 << 32;
/// How long what the store has no room for is not sent again.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// The host, and the digest, that stand for any.
const ANY: &str = "*";
/// The pattern of all pages.
const ALL_PAGES: &str = "**";

impl BypassSwitch {
    /// Whether requests of a route are forwarded now.
    #[must_use]
    pub fn covers(&self, route: &str) -> bool {
        self.is_on.load(Ordering::Relaxed) && self.is_listed(route)
    }

    /// The switch that covers a route.
    #[must_use]
    pub fn of(&self, route: &str) -> Option<Bypass> {
        let now = Instant::now();
        self.in_force.load().iter().find(|bypass| bypass.is_for(route, now)).cloned()
    }

    /// The switches of routes that are on.
    #[must_use]
    pub fn list(&self) -> Vec<Bypass> {
        self.listed(|bypass| bypass.scope.pages().is_none())
    }

    /// Whether a page is not shared any more. `rules`, `host`: see [`StoppedPages`]; `digests`: those of its path, and of the
    /// pattern of its path.
    pub fn stops(&self, rules: &str, host: &str, digests: impl FnOnce() -> [String; 2]) -> bool {
        self.stops_pages.load(Ordering::Relaxed) && self.stop_of(rules, host, digests).is_some()
    }

    /// A number that grows whenever pages are stopped, by 1, or shared again, by 2³², in any process.
    #[must_use]
    pub fn page_changes(&self) -> u64 {
        self.page_changes.load(Ordering::Relaxed)
    }

    /// The pages under rules of this process that are not shared any more.
    #[must_use]
    pub fn stopped(&self) -> Vec<Bypass> {
        let rules = self.rules.load();
        let is_here =
            |bypass: &Bypass| bypass.scope.pages().is_some_and(|one| rules.contains(&one.rules));
        let mut stopped = self.listed(is_here);
        stopped.sort_by(|a, b| a.scope.cmp(&b.scope));
        stopped.dedup_by(|a, b| a.scope == b.scope);
        stopped
    }

    /// Takes in the rules of the configuration that is now in force, see [`StoppedPages::rules`].
    pub fn put_rules(&self, rules: Vec<String>) {
        let before = self.stopped();
        self.rules.store(Arc::new(rules));
        let after = self.stopped();
        for one in before.iter().filter(|one| !after.contains(one)) {
            let (pages, by) = (&one.scope, &one.by);
            tracing::info!(%pages, by, "these pages are under other rules now, and are shared by them");
        }
    }

    fn listed(&self, is_one: impl Fn(&Bypass) -> bool) -> Vec<Bypass> {
        let now = Instant::now();
        let in_force = self.in_force.load();
        in_force.iter().filter(|bypass| bypass.ends > now && is_one(bypass)).cloned().collect()
    }

    /// Why a page is not shared any more, see [`Self::stops`].
    #[cold]
    pub fn stop_of(
        &self,
        rules: &str,
        host: &str,
        digests: impl FnOnce() -> [String; 2],
    ) -> Option<Bypass> {
        let (now, in_force) = (Instant::now(), self.in_force.load());
        let of_rules = |one: &&Bypass| {
            one.ends > now && one.scope.pages().is_some_and(|pages| pages.rules == rules)
        };
        let mut of_rules = in_force.iter().filter(of_rules).peekable();
        // PERF: the other routes need no digest.
        of_rules.peek()?;
        let digests = digests();
        let is_one = |pages: &StoppedPages| {
            (pages.host == host || pages.host == ANY)
                && (digests.contains(&pages.digest) || pages.digest == ANY)
        };
        of_rules.find(|one| one.scope.pages().is_some_and(is_one)).cloned()
    }

    #[cold]
    fn is_listed(&self, route: &str) -> bool {
        let now = Instant::now();
        self.in_force.load().iter().any(|bypass| bypass.is_for(route, now))
    }

    /// Takes in what the store tells. `is_new_era`: the store has lost what it had. The pages that were stopped stay so, and
    /// it is told again.
    pub fn hear(&self, list: &StoredBypasses, is_new_era: bool) {
        let mut known = self.known();
        if is_new_era {
            known.keep_stops();
        }
        if known.has_overtaken(list) {
            return;
        }
        known.hear(list);
        self.put_in_force(&known);
    }

    /// Makes a change in every proxy on the store, or in this process alone if the store does not take it in time. It
    /// is then sent by [`Self::send_left`].
    ///
    /// # Errors
    /// If the store did not take it. With [`StoreError::BypassesFull`], that of a route is not in force here, either.
    pub async fn change(
        &self,
        store: &impl BypassStore,
        change: &BypassChange,
        within: Duration,
    ) -> Result<(), StoreError> {
        let _alone = self.changing.lock().await;
        let taken = timeout(within, store.change_bypass(change)).await;
        match taken.unwrap_or(Err(StoreError::TimedOut)) {
            Ok(list) => {
                self.took(change, &list);
                Ok(())
            }
            // To stop pages is not refused by an operator, and must not fail.
            Err(error @ StoreError::BypassesFull) if change.scope.pages().is_none() => Err(error),
            Err(error) => {
                self.change_here(change);
                Err(error)
            }
        }
    }

    /// Sends the changes that were made in this process alone: the store, which has just told its switches, is back.
    /// A switch that is on is sent with the rest of its time. They stay as they are if it does not take them. Then renews
    /// the stops of pages that would end soon.
    pub async fn send_left(&self, store: &impl BypassStore) {
        let _alone = self.changing.lock().await;
        // What the store has no room for must not keep it from the others.
        let left = self.left();
        let mut refused = Vec::new();
        for change in left {
            match self.send(store, &change).await {
                Ok(()) => {
                    let (scope, by, state) = (&change.scope, &change.by, change.state());
                    tracing::info!(%scope, by, "the store took the bypass switch of this proxy: {state}");
                }
                Err(StoreError::BypassesFull) => {
                    self.known().refused = Some(Instant::now());
                    refused.push(change.scope);
                }
                Err(error) => {
                    return tracing::debug!(%error, "the bypass switch of this proxy alone cannot be sent yet");
                }
            }
        }
        while let Some(change) = self.next_renewal(&refused) {
            match self.send(store, &change).await {
                Ok(()) => {}
                Err(StoreError::BypassesFull) => refused.push(change.scope),
                Err(error) => {
                    return tracing::debug!(%error, "a stop of pages cannot be renewed yet");
                }
            }
        }
    }

    /// The changes that the store has not taken.
    fn left(&self) -> Vec<BypassChange> {
        let mut known = self.known();
        known.renew_here();
        let mut left = known.ended_left();
        left.extend(known.only_here_left());
        left
    }

    async fn send(
        &self,
        store: &impl BypassStore,
        change: &BypassChange,
    ) -> Result<(), StoreError> {
        let taken = timeout(SEND_TIMEOUT, store.change_bypass(change)).await;
        self.took(change, &taken.unwrap_or(Err(StoreError::TimedOut))?);
        Ok(())
    }

    /// To go on with a stop of pages under this process's rules: an operator ends it, and not time.
    fn next_renewal(&self, refused: &[BypassScope]) -> Option<BypassChange> {
        let soon = Instant::now() + RENEWED_BEFORE;
        let is_due =
            |one: &Bypass| !one.only_here && one.ends < soon && !refused.contains(&one.scope);
        let due = self.stopped().into_iter().find(is_due)?;
        Some(BypassChange { scope: due.scope, lasts: Some(BYPASS_LASTS_MAX), by: due.by })
    }

    /// Takes in a change that the store took, and what it has since.
    fn took(&self, change: &BypassChange, list: &StoredBypasses) {
        let mut known = self.known();
        known.drop_own(change);
        known.hear(list);
        known.taken = Some((list.now, Instant::now()));
        self.put_in_force(&known);
    }

    /// Makes a change that the store did not take, in this process alone.
    fn change_here(&self, change: &BypassChange) {
        let mut known = self.known();
        known.drop_own(change);
        match change.lasts {
            Some(lasts) => {
                known.make_room(change.scope.pages().is_some());
                known.only_here.push(Bypass {
                    scope: change.scope.clone(),
                    ends: Instant::now() + lasts.min(BYPASS_LASTS_MAX),
                    by: change.by.clone(),
                    only_here: true,
                });
            }
            None => {
                let KnownBypasses { stored, ended_here, .. } = &mut *known;
                let covered = stored.iter().filter(|one| change.covers(&one.scope));
                ended_here.extend(
                    covered.map(|one| EndedBypass { stored: one.clone(), by: change.by.clone() }),
                );
            }
        }
        self.put_in_force(&known);
    }

    /// Takes those out of force that have ended by themselves.
    pub fn drop_ended(&self) {
        if !self.in_force.load().is_empty() {
            self.put_in_force(&self.known());
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownBypasses> {
        // No code that can panic runs under this lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller holds the lock on `known`, so that an older state does not replace a newer one.
    fn put_in_force(&self, known: &KnownBypasses) {
        let before = self.in_force.load();
        let after = known.in_force(Instant::now());
        if **before == after {
            return;
        }
        let is_in =
            |list: &[Bypass], scope: &BypassScope| list.iter().any(|one| one.scope == *scope);
        // A stop of pages that is renewed is no news.
        let is_news = |one: &&Bypass| match one.scope.pages() {
            Some(_) => !is_in(&before, &one.scope),
            None => !before.contains(one),
        };
        after.iter().filter(is_news).for_each(Bypass::log_on);
        for bypass in before.iter().filter(|one| !is_in(&after, &one.scope)) {
            bypass.log_off();
        }
        let is_on = after.iter().any(|one| one.scope.pages().is_none());
        let stops_pages = after.iter().any(|one| one.scope.pages().is_some());
        let pages = |list: &[Bypass]| -> Vec<BypassScope> {
            let of_pages = list.iter().filter(|one| one.scope.pages().is_some());
            let mut scopes: Vec<_> = of_pages.map(|one| one.scope.clone()).collect();
            scopes.sort_unstable();
            scopes.dedup();
            scopes
        };
        let (pages_before, pages_after) = (pages(&before), pages(&after));
        if pages_before.iter().any(|one| !pages_after.contains(one)) {
            self.page_changes.fetch_add(SHARED_AGAIN, Ordering::Relaxed);
        } else if pages_before != pages_after {
            self.page_changes.fetch_add(1, Ordering::Relaxed);
        }
        self.in_force.store(Arc::new(after));
        self.is_on.store(is_on, Ordering::Release);
        self.stops_pages.store(stops_pages, Ordering::Release);
    }
}

impl KnownBypasses {
    /// Whether the store told this before it took a change of this process: the answer came late.
    fn has_overtaken(&self, list: &StoredBypasses) -> bool {
        self.taken.is_some_and(|(now, at)| list.now < now && at.elapsed() < OVERTAKEN_FOR)
    }

    fn hear(&mut self, list: &StoredBypasses) {
        if self.stored == list.bypasses {
            return;
        }
        let now = Instant::now();
        let here = |one: &StoredBypass| Bypass {
            scope: one.scope.clone(),
            ends: now + lasts(one.until.saturating_sub(list.now)),
            by: one.by.clone(),
            only_here: false,
        };
        self.shared = list.bypasses.iter().map(here).collect();
        self.stored.clone_from(&list.bypasses);
        self.ended_here.retain(|ended| list.bypasses.contains(&ended.stored));
        let Self { shared, only_here, .. } = self;
        // Another proxy has the same switch for as long, or longer: this one's would shorten it.
        only_here
            .retain(|own| !shared.iter().any(|one| one.scope == own.scope && one.ends >= own.ends));
    }

    /// Makes room for one of a kind in this process alone: the oldest goes.
    fn make_room(&mut self, of_pages: bool) {
        let most = if of_pages { STOPS_MAX } else { BYPASSES_MAX };
        let is_kind = |one: &Bypass| one.scope.pages().is_some() == of_pages;
        while self.only_here.iter().filter(|one| is_kind(one)).count() >= most {
            let Some(oldest) = self.only_here.iter().position(is_kind) else { return };
            self.only_here.remove(oldest);
        }
    }

    /// Stops that the store has not taken do not end by time, either.
    fn renew_here(&mut self) {
        let ends = Instant::now() + BYPASS_LASTS_MAX;
        let of_pages = self.only_here.iter_mut().filter(|one| one.scope.pages().is_some());
        of_pages.for_each(|one| one.ends = ends);
    }

    /// Keeps the stops of pages that the store had, as if it had not taken them yet.
    fn keep_stops(&mut self) {
        let is_kept = |(stored, one): &(&StoredBypass, &Bypass)| {
            one.scope.pages().is_some()
                && !self.has_ended(stored)
                && !self.only_here.iter().any(|own| own.scope == one.scope)
        };
        let pairs = self.stored.iter().zip(&self.shared).filter(is_kept);
        let kept: Vec<Bypass> = pairs.map(|(_, one)| one.clone()).collect();
        self.only_here.extend(kept.into_iter().map(|one| Bypass { only_here: true, ..one }));
    }

    /// Forgets what an earlier change did here alone for the routes of this one.
    fn drop_own(&mut self, change: &BypassChange) {
        self.only_here.retain(|own| !change.covers(&own.scope));
        self.ended_here.retain(|ended| !change.covers(&ended.stored.scope));
    }

    fn has_ended(&self, stored: &StoredBypass) -> bool {
        self.ended_here.iter().any(|ended| ended.stored == *stored)
    }

    /// To switch off what was switched off here alone. The switch for all routes can only be switched off together
    /// with all others, so it waits until no other is on that was switched on elsewhere meanwhile.
    fn ended_left(&self) -> Vec<BypassChange> {
        let mut of_routes = self.stored.iter().filter(|one| one.scope.pages().is_none());
        let have_all_ended = of_routes.all(|one| self.has_ended(one));
        let may_be_sent =
            |ended: &&EndedBypass| ended.stored.scope != BypassScope::All || have_all_ended;
        let off = |ended: &EndedBypass| BypassChange {
            scope: ended.stored.scope.clone(),
            lasts: None,
            by: ended.by.clone(),
        };
        self.ended_here.iter().filter(may_be_sent).map(off).collect()
    }

    /// To switch on what is on here alone, for the rest of its time.
    fn only_here_left(&self) -> Vec<BypassChange> {
        let now = Instant::now();
        let rest = |one: &Bypass| one.ends.saturating_duration_since(now);
        let on = |one: &Bypass| BypassChange {
            scope: one.scope.clone(),
            lasts: Some(rest(one)),
            by: one.by.clone(),
        };
        let waits = self.refused.is_some_and(|at| at.elapsed() < REFUSED_FOR);
        let is_sent =
            |one: &&Bypass| rest(one) >= REST_MIN && !(waits && one.scope.pages().is_some());
        self.only_here.iter().filter(is_sent).map(on).collect()
    }

    fn in_force(&self, now: Instant) -> Vec<Bypass> {
        let pairs = self.stored.iter().zip(&self.shared);
        let is_on = |(stored, _): &(&StoredBypass, &Bypass)| !self.has_ended(stored);
        let shared = pairs.filter(is_on).map(|(_, shared)| shared);
        shared.chain(&self.only_here).filter(|bypass| bypass.ends > now).cloned().collect()
    }
}

/// All pages under these rules.
#[must_use]
pub fn all_pages(rules: &str) -> StoppedPages {
    let [rules, host, digest, pattern] = [rules, ANY, ANY, ALL_PAGES].map(str::to_owned);
    StoppedPages { rules, host, digest, pattern }
}

impl Bypass {
    fn is_for(&self, route: &str, now: Instant) -> bool {
        let is_for = match &self.scope {
            BypassScope::All => true,
            BypassScope::Route(name) => name == route,
            BypassScope::Pages(_) => false,
        };
        is_for && self.ends > now
    }

    fn log_on(&self) {
        let Self { scope, by, .. } = self;
        let seconds = self.ends.saturating_duration_since(Instant::now()).as_secs();
        match scope {
            BypassScope::Pages(StoppedPages { host, pattern, .. }) => {
                tracing::warn!(host, pattern, by, "these pages are not shared any more");
            }
            BypassScope::All | BypassScope::Route(_) => tracing::info!(
                route = %scope,
                by,
                seconds,
                "the bypass switch is on: requests are forwarded, and nothing is served from the cache or stored"
            ),
        }
    }

    fn log_off(&self) {
        let Self { scope, by, .. } = self;
        match scope {
            BypassScope::Pages(StoppedPages { host, pattern, .. }) => {
                tracing::info!(host, pattern, by, "these pages are shared again");
            }
            BypassScope::All | BypassScope::Route(_) => {
                tracing::info!(route = %scope, by, "the bypass switch is off");
            }
        }
    }
}

fn lasts(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(BYPASS_LASTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(route: Option<&str>, until: u64) -> StoredBypass {
        StoredBypass { scope: scope(route), until, by: "ann".to_owned() }
    }

    fn scope(route: Option<&str>) -> BypassScope {
        route.map_or(BypassScope::All, |name| BypassScope::Route(name.to_owned()))
    }

    fn list(bypasses: Vec<StoredBypass>) -> StoredBypasses {
        StoredBypasses { now: 1_000, bypasses }
    }

    fn change(route: Option<&str>, seconds: u64) -> BypassChange {
        let lasts = (seconds > 0).then(|| Duration::from_secs(seconds));
        BypassChange { scope: scope(route), lasts, by: "bob".to_owned() }
    }

    #[test]
    fn a_switch_is_for_its_route_until_its_end() {
        let switch = BypassSwitch::default();
        assert!(!switch.covers("shop"));
        switch.hear(&list(vec![stored(Some("shop"), 61_000), stored(Some("blog"), 1_000)]), false);
        assert!(switch.covers("shop"));
        assert!(!switch.covers("blog"), "it has ended");
        assert!(!switch.covers("other"));
        assert_eq!(switch.list().len(), 1);
        switch.hear(&list(vec![stored(None, 61_000)]), false);
        assert!(switch.covers("other"));
        switch.hear(&list(Vec::new()), false);
        assert!(!switch.covers("shop"));
    }

    #[test]
    fn an_end_that_is_far_away_is_bounded() {
        let switch = BypassSwitch::default();
        switch.hear(&list(vec![stored(None, u64::MAX)]), false);
        let ends = switch.of("shop").unwrap().ends;
        assert!(ends <= Instant::now() + BYPASS_LASTS_MAX);
    }

    #[test]
    fn a_change_that_the_store_did_not_take_is_in_force_here() {
        let switch = BypassSwitch::default();
        switch.change_here(&change(Some("shop"), 60));
        assert!(switch.of("shop").unwrap().only_here);
        switch.hear(&list(Vec::new()), false);
        assert!(switch.covers("shop"), "a store that knows nothing of it does not end it");
        switch.change_here(&change(None, 0));
        assert!(!switch.covers("shop"));
        for _ in 0..2 * BYPASSES_MAX {
            switch.change_here(&change(Some(&fastrand::u64(..).to_string()), 60));
        }
        assert_eq!(switch.list().len(), BYPASSES_MAX);
    }

    #[test]
    fn what_was_switched_off_here_stays_off_until_the_store_has_a_later_switch() {
        let switch = BypassSwitch::default();
        let known = list(vec![stored(None, 61_000), stored(Some("shop"), 61_000)]);
        switch.hear(&known, false);
        switch.change_here(&change(None, 0));
        switch.hear(&known, false);
        assert!(!switch.covers("shop"));
        switch.hear(&list(vec![stored(None, 62_000)]), false);
        assert!(switch.covers("shop"));
        switch.change_here(&change(None, 60));
        switch.took(&change(None, 0), &list(Vec::new()));
        assert!(!switch.covers("shop"), "the store took a later change");
    }

    #[test]
    fn an_answer_from_before_a_change_does_not_undo_it() {
        let switch = BypassSwitch::default();
        switch.took(&change(None, 60), &list(vec![stored(None, 61_000)]));
        switch.hear(&StoredBypasses { now: 999, bypasses: Vec::new() }, false);
        assert!(switch.covers("shop"));
        switch.hear(&list(Vec::new()), false);
        assert!(!switch.covers("shop"));
    }

    #[test]
    fn to_switch_a_route_off_leaves_the_others() {
        let switch = BypassSwitch::default();
        switch.hear(&list(vec![stored(None, 61_000), stored(Some("shop"), 61_000)]), false);
        switch.change_here(&change(Some("shop"), 0));
        let scopes: Vec<_> = switch.list().into_iter().map(|one| one.scope).collect();
        assert_eq!(scopes, [BypassScope::All]);
    }

    /// A store that takes changes, or is away.
    #[derive(Default)]
    struct TestStore {
        is_away: AtomicBool,
        /// There is no room for stops of pages.
        is_full: AtomicBool,
        taken: Mutex<Vec<BypassChange>>,
    }

    impl BypassStore for TestStore {
        async fn change_bypass(&self, change: &BypassChange) -> Result<StoredBypasses, StoreError> {
            if self.is_away.load(Ordering::Relaxed) {
                return Err(StoreError::TimedOut);
            }
            if self.is_full.load(Ordering::Relaxed) && change.scope.pages().is_some() {
                return Err(StoreError::BypassesFull);
            }
            self.taken.lock().unwrap().push(change.clone());
            let lasts = change.lasts.map_or(0, |lasts| lasts.as_millis() as u64);
            let one = StoredBypass { scope: change.scope.clone(), ..stored(None, 1_000 + lasts) };
            Ok(list(if lasts > 0 { vec![one] } else { Vec::new() }))
        }

        async fn bypasses(&self) -> Result<StoredBypasses, StoreError> {
            Ok(list(Vec::new()))
        }
    }

    #[tokio::test]
    async fn a_switch_of_this_process_alone_is_sent_once_with_the_rest_of_its_time() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        store.is_away.store(true, Ordering::Relaxed);
        let on = change(Some("shop"), 60);
        let refused = switch.change(&store, &on, SEND_TIMEOUT).await;
        assert!(matches!(refused, Err(StoreError::TimedOut)));
        switch.send_left(&store).await;
        assert!(switch.of("shop").unwrap().only_here, "the store is still away");
        store.is_away.store(false, Ordering::Relaxed);
        switch.send_left(&store).await;
        switch.send_left(&store).await;
        assert!(!switch.of("shop").unwrap().only_here);
        let taken = store.taken.lock().unwrap().clone();
        assert_eq!(taken.len(), 1);
        assert_eq!((&taken[0].scope, &taken[0].by), (&on.scope, &on.by));
        assert!(taken[0].lasts < on.lasts, "some of its time is over");
    }

    #[tokio::test]
    async fn what_was_switched_off_in_this_process_alone_is_switched_off_in_the_store() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        switch.hear(&list(vec![stored(Some("blog"), 61_000), stored(Some("shop"), 61_000)]), false);
        store.is_away.store(true, Ordering::Relaxed);
        let refused = switch.change(&store, &change(Some("shop"), 0), SEND_TIMEOUT).await;
        assert!(matches!(refused, Err(StoreError::TimedOut)));
        switch.send_left(&store).await;
        store.is_away.store(false, Ordering::Relaxed);
        switch.send_left(&store).await;
        switch.send_left(&store).await;
        assert_eq!(*store.taken.lock().unwrap(), [change(Some("shop"), 0)]);
    }

    #[tokio::test]
    async fn the_switch_for_all_routes_is_not_ended_together_with_one_of_another_proxy() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        switch.hear(&list(vec![stored(None, 61_000)]), false);
        switch.change_here(&change(None, 0));
        switch.hear(&list(vec![stored(None, 61_000), stored(Some("shop"), 61_000)]), false);
        switch.send_left(&store).await;
        assert!(store.taken.lock().unwrap().is_empty());
        let scopes: Vec<_> = switch.list().into_iter().map(|one| one.scope).collect();
        assert_eq!(scopes, [scope(Some("shop"))], "it stays off here");
        switch.hear(&list(vec![stored(None, 61_000)]), false);
        switch.send_left(&store).await;
        assert_eq!(*store.taken.lock().unwrap(), [change(None, 0)]);
    }

    #[tokio::test]
    async fn a_switch_that_another_proxy_has_for_longer_is_not_sent() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        switch.change_here(&change(None, 60));
        switch.hear(&list(vec![stored(None, 3_600_000)]), false);
        assert!(!switch.of("shop").unwrap().only_here);
        switch.send_left(&store).await;
        assert!(store.taken.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_switch_that_was_turned_off_meanwhile_is_not_sent() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        switch.change_here(&change(None, 60));
        switch.change(&store, &change(None, 0), SEND_TIMEOUT).await.unwrap();
        switch.send_left(&store).await;
        assert_eq!(store.taken.lock().unwrap().len(), 1, "the order itself");
        assert!(!switch.covers("shop"));
    }

    fn pages(rules: &str, pattern: &str) -> BypassScope {
        let [rules, host, digest, pattern] =
            [rules, "shop.test", pattern, pattern].map(str::to_owned);
        BypassScope::Pages(StoppedPages { rules, host, digest, pattern })
    }

    fn stop(pattern: &str, until: u64) -> StoredBypass {
        StoredBypass { scope: pages("r1", pattern), ..stored(None, until) }
    }

    #[test]
    fn pages_are_stopped_under_their_rules_and_no_route_is() {
        let switch = BypassSwitch::default();
        switch.hear(&list(vec![stop("/item/*", 61_000)]), false);
        let stops = |rules, host, path: &str| {
            switch.stops(rules, host, || [path.to_owned(), String::new()])
        };
        assert!(stops("r1", "shop.test", "/item/*"));
        assert!(!stops("r1", "shop.test", "/other"));
        assert!(!stops("r2", "shop.test", "/item/*"), "the rules have changed");
        assert!(!stops("r1", "other.test", "/item/*"));
        assert!(!switch.covers("shop") && switch.list().is_empty());
        assert!(switch.stopped().is_empty(), "this process has no such rules");
        switch.put_rules(vec!["r1".to_owned()]);
        assert_eq!(switch.stopped().len(), 1);
        switch.change_here(&change(None, 0));
        assert!(stops("r1", "shop.test", "/item/*"), "to switch all routes off is another order");
        switch.change_here(&BypassChange { scope: pages("r1", "/item/*"), ..change(None, 0) });
        assert!(!stops("r1", "shop.test", "/item/*"));
    }

    #[test]
    fn all_pages_under_a_rule_can_be_stopped() {
        let switch = BypassSwitch::default();
        let scope = BypassScope::Pages(all_pages("r1"));
        let one = StoredBypass { scope, ..stored(None, 61_000) };
        switch.hear(&list(vec![one]), false);
        assert!(switch.stops("r1", "any.test", || ["/any".to_owned(), String::new()]));
        assert!(!switch.stops("r2", "any.test", || ["/any".to_owned(), String::new()]));
    }

    #[tokio::test]
    async fn a_stop_of_pages_is_renewed_by_the_processes_that_have_its_rules() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        let week = BYPASS_LASTS_MAX.as_millis() as u64;
        switch.hear(&list(vec![stop("/a", week / 3), stop("/b", week)]), false);
        switch.send_left(&store).await;
        assert!(store.taken.lock().unwrap().is_empty(), "other rules");
        switch.put_rules(vec!["r1".to_owned()]);
        switch.send_left(&store).await;
        let taken = store.taken.lock().unwrap().clone();
        assert_eq!(taken.len(), 1);
        assert_eq!((&taken[0].scope, taken[0].lasts), (&pages("r1", "/a"), Some(BYPASS_LASTS_MAX)));
    }

    #[tokio::test]
    async fn pages_stay_stopped_when_the_store_has_lost_them_and_it_is_told_again() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        switch.hear(&list(vec![stop("/a", 61_000)]), false);
        let changes = switch.page_changes();
        switch.hear(&list(Vec::new()), true);
        assert!(switch.stops("r1", "shop.test", || ["/a".to_owned(), String::new()]));
        assert_eq!(switch.page_changes(), changes, "nothing has changed for visitors");
        switch.send_left(&store).await;
        assert_eq!(store.taken.lock().unwrap()[0].scope, pages("r1", "/a"));
        switch.hear(&list(Vec::new()), false);
        assert!(
            !switch.stops("r1", "shop.test", || ["/a".to_owned(), String::new()]),
            "an order has ended it"
        );
        assert!(switch.page_changes() > changes);
    }

    #[tokio::test]
    async fn what_the_store_has_no_room_for_keeps_it_from_no_other() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        store.is_full.store(true, Ordering::Relaxed);
        switch.change_here(&BypassChange { scope: pages("r1", "/a"), ..change(None, 60) });
        switch.change_here(&change(Some("shop"), 60));
        switch.send_left(&store).await;
        let taken = store.taken.lock().unwrap().clone();
        assert_eq!(taken.iter().map(|one| &one.scope).collect::<Vec<_>>(), [&scope(Some("shop"))]);
        assert!(
            switch.stops("r1", "shop.test", || ["/a".to_owned(), String::new()]),
            "it is stopped here"
        );
    }
}
