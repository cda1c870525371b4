//! The bypass switch, as this process knows it: which routes are forwarded, and not served from the cache or
//! stored, until when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::time::timeout;

use anteroom_store::bypass::{BYPASS_LASTS_MAX, BYPASSES_MAX, BypassChange, BypassStore};
use anteroom_store::{StoreError, StoredBypass, StoredBypasses};

/// A switch that is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// The name of the route; `None`: all routes.
    pub route: Option<String>,
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
    in_force: ArcSwap<Vec<Bypass>>,
    known: Mutex<KnownBypasses>,
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

    /// The switches that are on.
    #[must_use]
    pub fn list(&self) -> Vec<Bypass> {
        let now = Instant::now();
        self.in_force.load().iter().filter(|bypass| bypass.ends > now).cloned().collect()
    }

    #[cold]
    fn is_listed(&self, route: &str) -> bool {
        let now = Instant::now();
        self.in_force.load().iter().any(|bypass| bypass.is_for(route, now))
    }

    /// Takes in what the store tells.
    pub fn hear(&self, list: &StoredBypasses) {
        let mut known = self.known();
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
    /// If the store did not take it. With [`StoreError::BypassesFull`] it is not in force here, either.
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
            Err(error @ StoreError::BypassesFull) => Err(error),
            Err(error) => {
                self.change_here(change);
                Err(error)
            }
        }
    }

    /// Sends the changes that were made in this process alone: the store, which has just told its switches, is back.
    /// A switch that is on is sent with the rest of its time. They stay as they are if it does not take them.
    pub async fn send_left(&self, store: &impl BypassStore) {
        let _alone = self.changing.lock().await;
        while let Some(change) = self.next_left() {
            let taken = timeout(SEND_TIMEOUT, store.change_bypass(&change)).await;
            match taken.unwrap_or(Err(StoreError::TimedOut)) {
                Ok(list) => self.took(&change, &list),
                Err(error) => {
                    tracing::debug!(%error, "the bypass switch of this proxy alone cannot be sent yet");
                    return;
                }
            }
            let (route, state) = (change.route.as_deref().unwrap_or("*"), change.state());
            tracing::info!(
                route,
                by = change.by,
                "the store took the bypass switch of this proxy: {state}"
            );
        }
    }

    /// A change that the store has not taken.
    fn next_left(&self) -> Option<BypassChange> {
        let known = self.known();
        known.ended_left().or_else(|| known.only_here_left())
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
                known.only_here.truncate(BYPASSES_MAX - 1);
                known.only_here.push(Bypass {
                    route: change.route.clone(),
                    ends: Instant::now() + lasts.min(BYPASS_LASTS_MAX),
                    by: change.by.clone(),
                    only_here: true,
                });
            }
            None => {
                let KnownBypasses { stored, ended_here, .. } = &mut *known;
                let covered = stored.iter().filter(|one| change.covers(one.route.as_deref()));
                ended_here.extend(
                    covered.map(|one| EndedBypass { stored: one.clone(), by: change.by.clone() }),
                );
            }
        }
        self.put_in_force(&known);
    }

    /// Takes those out of force that have ended by themselves.
    pub fn drop_ended(&self) {
        if self.is_on.load(Ordering::Relaxed) {
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
        let is_in = |list: &[Bypass], route| list.iter().any(|one| one.route == route);
        for bypass in after.iter().filter(|one| !before.contains(one)) {
            let seconds = bypass.ends.saturating_duration_since(Instant::now()).as_secs();
            tracing::info!(
                route = bypass.shown_route(),
                by = bypass.by,
                seconds,
                "the bypass switch is on: requests are forwarded, and nothing is served from the cache or stored"
            );
        }
        for bypass in before.iter().filter(|one| !is_in(&after, one.route.clone())) {
            tracing::info!(
                route = bypass.shown_route(),
                by = bypass.by,
                "the bypass switch is off"
            );
        }
        let is_on = !after.is_empty();
        self.in_force.store(Arc::new(after));
        self.is_on.store(is_on, Ordering::Release);
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
            route: one.route.clone(),
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
            .retain(|own| !shared.iter().any(|one| one.route == own.route && one.ends >= own.ends));
    }

    /// Forgets what an earlier change did here alone for the routes of this one.
    fn drop_own(&mut self, change: &BypassChange) {
        self.only_here.retain(|own| !change.covers(own.route.as_deref()));
        self.ended_here.retain(|ended| !change.covers(ended.stored.route.as_deref()));
    }

    fn has_ended(&self, stored: &StoredBypass) -> bool {
        self.ended_here.iter().any(|ended| ended.stored == *stored)
    }

    /// To switch off what was switched off here alone. The switch for all routes can only be switched off together
    /// with all others, so it waits until no other is on that was switched on elsewhere meanwhile.
    fn ended_left(&self) -> Option<BypassChange> {
        let may_be_sent = |ended: &&EndedBypass| {
            ended.stored.route.is_some() || self.stored.iter().all(|one| self.has_ended(one))
        };
        self.ended_here.iter().find(may_be_sent).map(|ended| BypassChange {
            route: ended.stored.route.clone(),
            lasts: None,
            by: ended.by.clone(),
        })
    }

    /// To switch on what is on here alone, for the rest of its time.
    fn only_here_left(&self) -> Option<BypassChange> {
        let now = Instant::now();
        let rest = |one: &Bypass| one.ends.saturating_duration_since(now);
        self.only_here.iter().find(|one| rest(one) >= REST_MIN).map(|one| BypassChange {
            route: one.route.clone(),
            lasts: Some(rest(one)),
            by: one.by.clone(),
        })
    }

    fn in_force(&self, now: Instant) -> Vec<Bypass> {
        let pairs = self.stored.iter().zip(&self.shared);
        let is_on = |(stored, _): &(&StoredBypass, &Bypass)| !self.has_ended(stored);
        let shared = pairs.filter(is_on).map(|(_, shared)| shared);
        shared.chain(&self.only_here).filter(|bypass| bypass.ends > now).cloned().collect()
    }
}

impl Bypass {
    fn is_for(&self, route: &str, now: Instant) -> bool {
        self.ends > now && self.route.as_deref().is_none_or(|own| own == route)
    }

    /// The route as logs and metrics name it.
    #[must_use]
    pub fn shown_route(&self) -> &str {
        self.route.as_deref().unwrap_or("*")
    }
}

fn lasts(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(BYPASS_LASTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(route: Option<&str>, until: u64) -> StoredBypass {
        StoredBypass { route: route.map(str::to_owned), until, by: "ann".to_owned() }
    }

    fn list(bypasses: Vec<StoredBypass>) -> StoredBypasses {
        StoredBypasses { now: 1_000, bypasses }
    }

    fn change(route: Option<&str>, seconds: u64) -> BypassChange {
        let lasts = (seconds > 0).then(|| Duration::from_secs(seconds));
        BypassChange { route: route.map(str::to_owned), lasts, by: "bob".to_owned() }
    }

    #[test]
    fn a_switch_is_for_its_route_until_its_end() {
        let switch = BypassSwitch::default();
        assert!(!switch.covers("shop"));
        switch.hear(&list(vec![stored(Some("shop"), 61_000), stored(Some("blog"), 1_000)]));
        assert!(switch.covers("shop"));
        assert!(!switch.covers("blog"), "it has ended");
        assert!(!switch.covers("other"));
        assert_eq!(switch.list().len(), 1);
        switch.hear(&list(vec![stored(None, 61_000)]));
        assert!(switch.covers("other"));
        switch.hear(&list(Vec::new()));
        assert!(!switch.covers("shop"));
    }

    #[test]
    fn an_end_that_is_far_away_is_bounded() {
        let switch = BypassSwitch::default();
        switch.hear(&list(vec![stored(None, u64::MAX)]));
        let ends = switch.of("shop").unwrap().ends;
        assert!(ends <= Instant::now() + BYPASS_LASTS_MAX);
    }

    #[test]
    fn a_change_that_the_store_did_not_take_is_in_force_here() {
        let switch = BypassSwitch::default();
        switch.change_here(&change(Some("shop"), 60));
        assert!(switch.of("shop").unwrap().only_here);
        switch.hear(&list(Vec::new()));
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
        switch.hear(&known);
        switch.change_here(&change(None, 0));
        switch.hear(&known);
        assert!(!switch.covers("shop"));
        switch.hear(&list(vec![stored(None, 62_000)]));
        assert!(switch.covers("shop"));
        switch.change_here(&change(None, 60));
        switch.took(&change(None, 0), &list(Vec::new()));
        assert!(!switch.covers("shop"), "the store took a later change");
    }

    #[test]
    fn an_answer_from_before_a_change_does_not_undo_it() {
        let switch = BypassSwitch::default();
        switch.took(&change(None, 60), &list(vec![stored(None, 61_000)]));
        switch.hear(&StoredBypasses { now: 999, bypasses: Vec::new() });
        assert!(switch.covers("shop"));
        switch.hear(&list(Vec::new()));
        assert!(!switch.covers("shop"));
    }

    #[test]
    fn to_switch_a_route_off_leaves_the_others() {
        let switch = BypassSwitch::default();
        switch.hear(&list(vec![stored(None, 61_000), stored(Some("shop"), 61_000)]));
        switch.change_here(&change(Some("shop"), 0));
        let routes: Vec<_> = switch.list().into_iter().map(|one| one.route).collect();
        assert_eq!(routes, [None]);
    }

    /// A store that takes changes, or is away.
    #[derive(Default)]
    struct TestStore {
        is_away: AtomicBool,
        taken: Mutex<Vec<BypassChange>>,
    }

    impl BypassStore for TestStore {
        async fn change_bypass(&self, change: &BypassChange) -> Result<StoredBypasses, StoreError> {
            if self.is_away.load(Ordering::Relaxed) {
                return Err(StoreError::TimedOut);
            }
            self.taken.lock().unwrap().push(change.clone());
            let lasts = change.lasts.map_or(0, |lasts| lasts.as_millis() as u64);
            let one = stored(change.route.as_deref(), 1_000 + lasts);
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
        assert_eq!((&taken[0].route, &taken[0].by), (&on.route, &on.by));
        assert!(taken[0].lasts < on.lasts, "some of its time is over");
    }

    #[tokio::test]
    async fn what_was_switched_off_in_this_process_alone_is_switched_off_in_the_store() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        switch.hear(&list(vec![stored(Some("blog"), 61_000), stored(Some("shop"), 61_000)]));
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
        switch.hear(&list(vec![stored(None, 61_000)]));
        switch.change_here(&change(None, 0));
        switch.hear(&list(vec![stored(None, 61_000), stored(Some("shop"), 61_000)]));
        switch.send_left(&store).await;
        assert!(store.taken.lock().unwrap().is_empty());
        let routes: Vec<_> = switch.list().into_iter().map(|one| one.route).collect();
        assert_eq!(routes, [Some("shop".to_owned())], "it stays off here");
        switch.hear(&list(vec![stored(None, 61_000)]));
        switch.send_left(&store).await;
        assert_eq!(*store.taken.lock().unwrap(), [change(None, 0)]);
    }

    #[tokio::test]
    async fn a_switch_that_another_proxy_has_for_longer_is_not_sent() {
        let (switch, store) = (BypassSwitch::default(), TestStore::default());
        switch.change_here(&change(None, 60));
        switch.hear(&list(vec![stored(None, 3_600_000)]));
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
}
