//! `cache_rows`: a pool of fetches, refilled as each of them ends.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anteroom_http::ident::Row;
use anteroom_store::{RowClaim, RowStore, StoreError, StoredRow};
use bytes::Bytes;
use futures_util::stream::{self, FuturesUnordered, StreamExt as _};
use tokio::time::Instant;

use super::claimed_rows::{BATCH, ClaimedRows, FetchSlot};
use super::failures::{Failures, pause};
use super::shared::SharedRows;
use super::source::{FetchError, RowSource, checked};

/// How long a worker has a row to itself.
pub const LEASE: Duration = Duration::from_secs(10);
/// The longest time of a fetch: it ends before the lease does, so that its result can still be
/// stored.
const FETCH_TIME: Duration = Duration::from_secs(9);

/// The assumed time of a successful fetch while none is known, in seconds.
const USUAL: f64 = 1.0 / 40.0;
/// The chapter's pause when no row is due. Another process may schedule one at any time.
const PAUSE: Duration = Duration::from_millis(50);
/// Rows of one fetch that are stored at a time.
const STORED_AT_A_TIME: usize = 64;
/// The least time between two claims, however much is due.
const BETWEEN_CLAIMS: Duration = Duration::from_millis(10);

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RefreshProgress {
    /// Rows fetched and stored.
    pub fetched: usize,
    /// Rows that could not be fetched or stored.
    pub failed: usize,
    /// Rows fetched in vain: they were stopped, rescheduled or claimed by another worker meanwhile.
    pub dropped: usize,
    /// Rows removed.
    pub removed: usize,
    /// Whether fetches are under way.
    pub busy: bool,
}

impl RefreshProgress {
    fn count(&mut self, outcome: &RefreshOutcome) {
        match outcome {
            RefreshOutcome::Fetched => self.fetched += 1,
            RefreshOutcome::Failed => self.failed += 1,
            RefreshOutcome::Dropped => self.dropped += 1,
        }
    }
}

/// Refreshes rows. Dropping it drops the fetches under way; their rows are due again after
/// [`LEASE`].
pub struct Refresher<S, R, C> {
    parts: Rc<Parts<S, R, C>>,
    waiting: Rc<RefCell<ClaimedRows>>,
    open: RefCell<FuturesUnordered<RowFetch>>,
    /// What was done and not yet reported.
    progress: Cell<RefreshProgress>,
    /// When the next row is due, as of the last claim.
    next: Cell<Option<f64>>,
    /// When rows were last claimed.
    claimed_at: Cell<Option<Instant>>,
}

/// The complete fetch of one row, or of some that are read together.
type RowFetch = Pin<Box<dyn Future<Output = Vec<RefreshOutcome>>>>;

/// The result of a claim.
enum RefreshOutcome {
    Fetched,
    Failed,
    Dropped,
}

struct Parts<S, R, C> {
    /// Rows claimed from the store at a time.
    claimed_at_a_time: usize,
    store: S,
    source: R,
    clock: C,
    shared: Arc<SharedRows>,
    failures: Failures,
    /// How long recent successful fetches took, in seconds.
    usual: Cell<f64>,
}

impl<S, R, C> fmt::Debug for Refresher<S, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refresher").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl<S, R, C> Refresher<S, R, C>
where
    S: RowStore + 'static,
    R: RowSource + 'static,
    C: Fn() -> f64 + 'static,
{
    /// A refresher of the rows in `store`; `clock` returns the Unix time. `together` is the most
    /// rows that any source reads together.
    pub fn new(store: S, source: R, clock: C, together: usize, shared: Arc<SharedRows>) -> Self {
        let parts = Parts {
            claimed_at_a_time: together.max(BATCH),
            store,
            source,
            clock,
            failures: Failures::listed_in(Arc::clone(&shared.failures)),
            shared,
            usual: Cell::new(USUAL),
        };
        Self {
            parts: Rc::new(parts),
            waiting: Rc::default(),
            open: RefCell::default(),
            progress: Cell::default(),
            next: Cell::default(),
            claimed_at: Cell::default(),
        }
    }

    /// `cache_rows`, one step of it: claims due rows, begins as many fetches as there are slots,
    /// and waits until a fetch ends, or the next row may be due. Returns at once if nothing is
    /// under way.
    ///
    /// A row that fails keeps its last good content and is tried again later and later.
    ///
    /// # Errors
    /// When the store gives no claims. Fetches under way continue with the next step or
    /// [`Refresher::go_on`].
    pub async fn cache_rows(&self) -> Result<RefreshProgress, StoreError> {
        self.claim().await?;
        self.begin();
        if self.is_busy() {
            tokio::select! {
                () = self.some_end() => {}
                () = self.rest() => {}
            }
        }
        let busy = self.is_busy();
        Ok(RefreshProgress { busy, ..self.progress.take() })
    }

    /// Returns when the next row is due, and soon.
    pub async fn rest(&self) {
        let until = self.next.get().map_or(PAUSE.as_secs_f64(), |next| next - (self.parts.clock)());
        // Clamped to the pause, so that any number makes a duration.
        let least = BETWEEN_CLAIMS.as_secs_f64();
        let rest = Duration::from_secs_f64(until.clamp(least, PAUSE.as_secs_f64()));
        let end = Instant::now() + rest;
        let rested = self.waiting.borrow().next_rested();
        tokio::select! {
            () = tokio::time::sleep_until(rested.map_or(end, |rested| rested.min(end))) => {}
            () = self.parts.shared.made_due.notified() => self.claimed_at.set(None),
        }
    }

    /// Continues the fetches under way, and begins none; never returns.
    pub async fn go_on(&self) {
        loop {
            self.some_end().await;
        }
    }

    /// Claims due rows, unless that was done a moment ago.
    async fn claim(&self) -> Result<(), StoreError> {
        let is_soon = self.claimed_at.get().is_some_and(|last| last.elapsed() < BETWEEN_CLAIMS);
        let batch = self.parts.claimed_at_a_time;
        if is_soon || !self.waiting.borrow().has_room(batch) {
            return Ok(());
        }
        let now = (self.parts.clock)();
        self.parts.failures.look(now);
        let claims = self.parts.store.claim_rows(now, batch, LEASE.as_secs_f64());
        // Fetches that end meanwhile are not delayed.
        let claimed = tokio::select! {
            claimed = claims => claimed?,
            () = self.go_on() => return Ok(()),
        };
        self.claimed_at.set(Some(Instant::now()));
        self.next.set(claimed.next);
        self.note(|progress| progress.removed += claimed.removed);
        let mut waiting = self.waiting.borrow_mut();
        for claim in claimed.rows {
            let trust = self.parts.failures.trust(&claim.row);
            waiting.add(claim, trust, Instant::now());
        }
        Ok(())
    }

    /// Begins as many fetches as there are slots.
    fn begin(&self) {
        let now = (self.parts.clock)();
        let failures = &self.parts.failures;
        self.waiting.borrow_mut().tidy(|row| failures.trust(row), now, Instant::now());
        while let Some((claim, mut slot)) = ClaimedRows::next(&self.waiting, now) {
            let (parts, source) = (Rc::clone(&self.parts), &self.parts.source);
            let further = source.together(&claim.row) - 1;
            let mut claims = vec![claim];
            if further > 0 {
                let first = source.name(&claims[0].row);
                let fits = |row: &Row| source.name(row) == first;
                claims.extend(ClaimedRows::join(&mut slot, further, now, fits));
            }
            let flight = async move { parts.refresh(&claims, &slot).await };
            self.open.borrow_mut().push(Box::pin(flight));
        }
    }

    /// Waits until some of the fetches under way have ended.
    async fn some_end(&self) {
        poll_fn(|cx| {
            let mut ended = false;
            while let Poll::Ready(Some(done)) = self.open.borrow_mut().poll_next_unpin(cx) {
                self.note(|progress| done.iter().for_each(|outcome| progress.count(outcome)));
                ended = true;
            }
            if ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn is_busy(&self) -> bool {
        !self.open.borrow().is_empty() || self.waiting.borrow().next_rested().is_some()
    }

    fn note(&self, change: impl FnOnce(&mut RefreshProgress)) {
        let mut progress = self.progress.get();
        change(&mut progress);
        self.progress.set(progress);
    }
}

impl<S: RowStore, R: RowSource, C: Fn() -> f64> Parts<S, R, C> {
    /// Fetches rows and stores the content of each, or when to try again.
    async fn refresh(&self, claims: &[RowClaim], slot: &FetchSlot) -> Vec<RefreshOutcome> {
        let fetched = self.fetch(claims, slot).await;
        let settled = claims.iter().zip(fetched).map(|(claim, json)| self.settle(claim, json));
        stream::iter(settled).buffer_unordered(STORED_AT_A_TIME).collect().await
    }

    /// Stores what was fetched of a row, or when to try again.
    async fn settle(
        &self,
        claim: &RowClaim,
        fetched: Result<Option<Bytes>, FetchError>,
    ) -> RefreshOutcome {
        let now = (self.clock)();
        match fetched.and_then(|json| json.map(checked).transpose()) {
            Ok(json) => {
                let due = next_due(claim, now);
                let (is_there, json) = (json.is_some(), json.unwrap_or_default());
                let changes = self.shared.memory.changes();
                match self.store.put_row(claim, json.clone(), due, now).await {
                    Ok(is_kept) => {
                        if is_kept {
                            self.show(&claim.row, json, changes, now);
                        }
                        self.failures.note_well(&claim.row, now);
                        self.failures.note_there(
                            &claim.row,
                            self.source.name(&claim.row),
                            is_there,
                        );
                        // The row's new owner starts again.
                        if is_kept { RefreshOutcome::Fetched } else { RefreshOutcome::Dropped }
                    }
                    Err(error) => {
                        // This row's failure: it is due again when its lease ends.
                        self.fails(claim, &FetchError::Store(error), now);
                        RefreshOutcome::Failed
                    }
                }
            }
            Err(error) => self.postpone(claim, &error, now).await,
        }
    }

    /// Shows this process what was stored.
    fn show(&self, row: &Row, json: Bytes, changes: u64, now: f64) {
        let stored = StoredRow { json, refreshed: Some(now) };
        self.shared.memory.renew(row, stored, changes, std::time::Instant::now());
    }

    /// Lets a row that failed wait.
    async fn postpone(&self, claim: &RowClaim, why: &FetchError, now: f64) -> RefreshOutcome {
        let count = self.fails(claim, why, now);
        let mut pause = pause(claim.delay, count, fastrand::f64());
        if matches!(why, FetchError::Away(_)) {
            pause = pause.min(claim.delay);
        }
        match self.store.postpone_row(claim, now + pause).await {
            Ok(true) => RefreshOutcome::Failed,
            Ok(false) => RefreshOutcome::Dropped,
            Err(error) => {
                tracing::debug!(%error, "a failed row cannot be postponed: it is due again when its lease ends");
                RefreshOutcome::Failed
            }
        }
    }

    /// Fetches rows, for longer than a moment if the slow quarter has a slot for it.
    async fn fetch(
        &self,
        claims: &[RowClaim],
        slot: &FetchSlot,
    ) -> Vec<Result<Option<Bytes>, FetchError>> {
        let rows: Vec<&Row> = claims.iter().map(|claim| &claim.row).collect();
        let timed_out = || claims.iter().map(|_| Err(FetchError::TimedOut)).collect();
        let (mut fetch, begun) = (pin!(self.source.fetch(&rows)), Instant::now());
        let limit = slot.lease_limit(self.usual.get());
        if let Ok(fetched) = tokio::time::timeout(limit, fetch.as_mut()).await {
            if fetched.iter().any(Result::is_ok) {
                let change = begun.elapsed().as_secs_f64() - self.usual.get();
                self.usual.set(self.usual.get() + change / 8.0);
            }
            return fetched;
        }
        if !slot.slow_down() {
            return timed_out();
        }
        // A claim that waited has less of its lease left.
        let spare = (LEASE - FETCH_TIME).as_secs_f64();
        let fence = claims.iter().map(|claim| claim.fence).fold(f64::INFINITY, f64::min);
        let left = fence - (self.clock)() - spare;
        let left = Duration::from_secs_f64(
            left.clamp(0.0, FETCH_TIME.saturating_sub(limit).as_secs_f64()),
        );
        tokio::time::timeout(left, fetch).await.unwrap_or_else(|_| timed_out())
    }

    fn fails(&self, claim: &RowClaim, why: &FetchError, now: f64) -> u32 {
        self.failures.add(&claim.row, self.source.name(&claim.row), why, now)
    }
}

/// When a row is due after a successful fetch: counted from when it was due and not from now, so
/// that it does not drift; after a whole missed interval it starts again.
fn next_due(claim: &RowClaim, now: f64) -> f64 {
    let next = claim.due + claim.delay;
    if next > now { next } else { now + claim.delay }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use anteroom_store::AnyStore;
    use anteroom_store::scratch::with_store;

    use super::*;
    use crate::schedule_row_cache;

    /// Answers each fetch as set, and counts them; rows called `slow…` hang, and those called `many…`
    /// are read together.
    #[derive(Clone)]
    struct ScriptedSource(
        Rc<Cell<Result<&'static str, u16>>>,
        Rc<RefCell<HashMap<Row, usize>>>,
        Rc<Cell<usize>>,
    );

    impl ScriptedSource {
        /// How often a row was requested.
        fn count(&self, name: &str) -> usize {
            self.1.borrow().get(&row(name)).copied().unwrap_or_default()
        }

        fn hanging(&self) -> usize {
            self.1.borrow().keys().filter(|row| row.as_str().starts_with("slow")).count()
        }
    }

    impl RowSource for ScriptedSource {
        async fn fetch(&self, rows: &[&Row]) -> Vec<Result<Option<Bytes>, FetchError>> {
            for row in rows {
                *self.1.borrow_mut().entry((*row).clone()).or_default() += 1;
                if row.as_str().starts_with("slow") {
                    std::future::pending::<()>().await;
                }
            }
            self.2.set(self.2.get() + 1);
            let content = |_| match self.0.get() {
                Ok("none") => Ok(None),
                Ok(json) => Ok(Some(Bytes::from(json))),
                Err(0) => Err(FetchError::Away("refused".into())),
                Err(status) => Err(FetchError::Status(status)),
            };
            rows.iter().map(content).collect()
        }

        fn together(&self, row: &Row) -> usize {
            if row.as_str().starts_with("many") { 500 } else { 1 }
        }

        fn name(&self, row: &Row) -> &str {
            if row.as_str().starts_with("many") { "many" } else { "told" }
        }
    }

    /// A store with a source and a clock that the test sets.
    struct Bench<C> {
        store: AnyStore,
        scripted: ScriptedSource,
        time: Rc<Cell<f64>>,
        refresher: Refresher<AnyStore, ScriptedSource, C>,
    }

    fn bench(store: AnyStore) -> Bench<impl Fn() -> f64 + 'static> {
        let scripted =
            ScriptedSource(Rc::new(Cell::new(Ok("{\"n\":1}"))), Rc::default(), Rc::default());
        let time = Rc::new(Cell::new(0.0));
        let clock = Rc::clone(&time);
        let refresher = Refresher::new(
            store.clone(),
            scripted.clone(),
            move || clock.get(),
            500,
            Arc::default(),
        );
        Bench { store, scripted, time, refresher }
    }

    impl<C: Fn() -> f64 + 'static> Bench<C> {
        async fn schedule(&self, name: &str) {
            let delay = Some(Duration::from_secs(5));
            schedule_row_cache(&self.store, &row(name), delay, 100.0).await.unwrap();
        }

        /// Runs steps until only hanging fetches are under way.
        async fn run(&self, now: f64) -> RefreshProgress {
            self.time.set(now);
            self.refresher.claimed_at.set(None);
            let mut all = RefreshProgress::default();
            loop {
                let some = self.refresher.cache_rows().await.unwrap();
                all.fetched += some.fetched;
                all.failed += some.failed;
                all.dropped += some.dropped;
                all.removed += some.removed;
                all.busy = some.busy;
                let only_hangs = self.refresher.open.borrow().len() == self.scripted.hanging();
                let rests = self.refresher.waiting.borrow().next_rested().is_some();
                if only_hangs && !rests && self.refresher.next.get().is_none_or(|next| next > now) {
                    return all;
                }
            }
        }
    }

    fn row(name: &str) -> Row {
        Row::new(name).unwrap()
    }

    #[test]
    fn a_row_is_fetched_when_it_is_due_and_kept_when_it_fails() {
        with_store(async |store| {
            let bench = bench(store);
            bench.schedule("1").await;
            assert_eq!(bench.run(100.5).await.fetched, 1);
            assert_eq!(bench.run(104.0).await, RefreshProgress::default());
            assert_eq!(bench.refresher.next.get(), Some(105.0));
            bench.scripted.0.set(Err(404));
            assert_eq!(bench.run(105.0).await.failed, 1);
            let stored = bench.store.row(&row("1")).await.unwrap().unwrap();
            assert_eq!((&stored.json[..], stored.refreshed), (&b"{\"n\":1}"[..], Some(100.5)));
            bench.scripted.0.set(Ok("no json"));
            assert_eq!(bench.run(116.0).await.failed, 1);

            schedule_row_cache(&bench.store, &row("1"), None, 117.0).await.unwrap();
            assert_eq!(
                bench.run(117.0).await,
                RefreshProgress { removed: 1, ..RefreshProgress::default() }
            );
            assert_eq!(bench.store.row(&row("1")).await.unwrap(), None);
        });
    }

    #[test]
    fn rows_that_are_read_together_take_one_fetch_and_are_stored_one_by_one() {
        with_store(async |store| {
            let bench = bench(store);
            for number in 0..400 {
                bench.schedule(&format!("many-{number}")).await;
            }
            bench.schedule("one").await;
            assert_eq!(bench.run(100.5).await.fetched, 401);
            assert_eq!(bench.scripted.2.get(), 2);
            for name in ["many-0", "many-399", "one"] {
                assert!(bench.store.row(&row(name)).await.unwrap().is_some(), "{name}");
            }
            // One of them is stopped before the next fetch, and is not brought back by it.
            schedule_row_cache(&bench.store, &row("many-7"), None, 101.0).await.unwrap();
            let progress = bench.run(105.5).await;
            assert_eq!((progress.fetched, progress.removed), (400, 1));
            assert_eq!(bench.store.row(&row("many-7")).await.unwrap(), None);
        });
    }

    #[test]
    fn a_row_that_its_source_no_longer_has_is_removed_and_still_looked_for() {
        with_store(async |store| {
            let bench = bench(store);
            bench.schedule("1").await;
            bench.run(100.5).await;
            bench.scripted.0.set(Ok("none"));
            assert_eq!(bench.run(105.0).await.fetched, 1);
            assert_eq!(bench.store.row(&row("1")).await.unwrap(), None);
            bench.scripted.0.set(Ok("2"));
            assert_eq!(bench.run(110.0).await.fetched, 1);
            assert_eq!(bench.store.row(&row("1")).await.unwrap().unwrap().json, "2");
        });
    }

    #[test]
    fn a_row_whose_source_is_away_is_tried_again_within_its_delay() {
        with_store(async |store| {
            let bench = bench(store);
            bench.schedule("1").await;
            bench.run(100.5).await;
            bench.scripted.0.set(Err(0));
            let mut now = 105.0;
            for _ in 0..8 {
                assert_eq!(bench.run(now).await.failed, 1);
                now += 5.0;
            }
            let kept = bench.store.row(&row("1")).await.unwrap().unwrap();
            assert_eq!(kept.refreshed, Some(100.5));
        });
    }

    #[test]
    fn rows_that_hang_do_not_hold_up_those_that_are_well() {
        with_store(async |store| {
            let scripted =
                ScriptedSource(Rc::new(Cell::new(Ok("1"))), Rc::default(), Rc::default());
            let start = Instant::now();
            let clock = move || 100.0 + start.elapsed().as_secs_f64();
            let refresher =
                Refresher::new(store.clone(), scripted.clone(), clock, 1, Arc::default());
            let well: Vec<String> = (0..20).map(|number| format!("well-{number}")).collect();
            let schedule = async |name: &str| {
                let delay = Some(Duration::from_millis(30));
                schedule_row_cache(&store, &row(name), delay, 99.0).await.unwrap();
            };
            let more = async |times: usize| {
                let counts: Vec<usize> = well.iter().map(|name| scripted.count(name)).collect();
                let left = |(name, count): (&String, &usize)| scripted.count(name) < count + times;
                while well.iter().zip(&counts).any(left) {
                    refresher.cache_rows().await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            for name in &well {
                schedule(name).await;
            }
            more(1).await;
            for number in 0..150 {
                schedule(&format!("slow-{number}")).await;
            }
            more(5).await;
            assert!(scripted.hanging() < 150, "they were not waited for");

            scripted.0.set(Err(503));
            more(1).await;
            scripted.0.set(Ok("2"));
            more(3).await;
            assert_eq!(store.row(&row("well-7")).await.unwrap().unwrap().json, "2");
        });
    }

    #[test]
    fn a_row_that_is_due_again_during_its_fetch_is_not_fetched_twice_at_a_time() {
        with_store(async |store| {
            let bench = bench(store);
            bench.schedule("slow").await;
            bench.run(100.0).await;
            for now in [101.0, 102.0] {
                bench.store.outdate_row(&row("slow"), now).await.unwrap();
                assert!(bench.run(now).await.busy);
            }
            assert_eq!((bench.scripted.count("slow"), bench.refresher.open.borrow().len()), (1, 1));
        });
    }

    #[test]
    fn a_hanging_fetch_is_given_up_before_its_lease_ends() {
        assert!(FETCH_TIME < LEASE);
        with_store(async |store| {
            let bench = bench(store);
            bench.schedule("slow").await;
            assert!(bench.run(100.0).await.busy);
            // It is stopped meanwhile.
            schedule_row_cache(&bench.store, &row("slow"), None, 101.0).await.unwrap();
            assert_eq!(
                bench.run(101.0).await,
                RefreshProgress { removed: 1, busy: true, ..RefreshProgress::default() }
            );
        });
    }

    #[test]
    fn a_row_does_not_drift_and_does_not_make_up_for_what_it_missed() {
        let claim = |due| RowClaim { row: row("1"), delay: 5.0, due, fence: due + 10.0 };
        assert_eq!(next_due(&claim(100.0), 100.3), 105.0);
        assert_eq!(next_due(&claim(100.0), 107.0), 112.0);
        assert_eq!(next_due(&claim(100.0), 3_600.0), 3_605.0);
    }
}
