//! `cache_rows`: a pool of fetches, filled again as each of them ends.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::failures::{Failures, pause};
use super::{FETCH_TIME, LEASE, RowSource, checked};
use crate::store::{Claim, RowStore, StoreError};

/// Fetches under way at a time.
const SLOTS: usize = 32;
/// Those of rows whose last attempt failed: rows that hang must not hold up those that are well.
const SLOTS_FOR_FAILING: usize = SLOTS / 4;
/// How long a failing row that finds no slot waits for another chance, in seconds.
const WAIT: f64 = 1.0;
/// The chapter's pause when no row is due. Another process may schedule one at any time.
const PAUSE: Duration = Duration::from_millis(50);

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Rows fetched and kept.
    pub fetched: usize,
    /// Rows that could not be fetched.
    pub failed: usize,
    /// Rows fetched in vain: they were stopped, scheduled anew or taken by another meanwhile.
    pub dropped: usize,
    /// Rows removed.
    pub removed: usize,
    /// Whether fetches are under way.
    pub busy: bool,
}

/// Refreshes rows. Fetches under way are dropped with it, and their rows due again after [`LEASE`].
pub struct Refresher<S, R, C> {
    parts: Rc<Parts<S, R, C>>,
    open: RefCell<FuturesUnordered<Flight>>,
    /// What was done and not yet told.
    progress: Cell<Progress>,
    /// When the next row is due, as far as the last claim saw.
    next: Cell<Option<f64>>,
}

/// One row's fetch, to the end.
type Flight = Pin<Box<dyn Future<Output = Result<Done, StoreError>>>>;

/// What became of a claim.
enum Done {
    Fetched,
    Failed,
    Dropped,
    /// It waits for a slot.
    Waits,
}

struct Parts<S, R, C> {
    store: S,
    source: R,
    clock: C,
    failures: Failures,
    /// Slots taken by rows whose last attempt failed.
    failing: Cell<usize>,
}

/// A slot that a failing row takes; free when this is dropped.
struct Slot<S, R, C>(Rc<Parts<S, R, C>>);

impl<S, R, C> Drop for Slot<S, R, C> {
    fn drop(&mut self) {
        self.0.failing.set(self.0.failing.get() - 1);
    }
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
    /// A refresher of the rows in `store`; `clock` tells the Unix time.
    pub fn new(store: S, source: R, clock: C) -> Self {
        let failures = Failures::default();
        let parts = Rc::new(Parts { store, source, clock, failures, failing: Cell::new(0) });
        Self { parts, open: RefCell::default(), progress: Cell::default(), next: Cell::default() }
    }

    /// `cache_rows`, one step of it: takes as many rows that are due as there are free slots, and
    /// waits until a fetch ends, or the next row may be due. At once where nothing is under way.
    ///
    /// A row that fails keeps its last good content and is tried again later and later.
    ///
    /// # Errors
    /// When the store fails. What is under way stays so, and goes on with the next step.
    pub async fn cache_rows(&self) -> Result<Progress, StoreError> {
        let free = SLOTS - self.open.borrow().len();
        if free > 0 {
            let now = (self.parts.clock)();
            self.parts.failures.look(now);
            let claimed = self.parts.store.claim_rows(now, free, LEASE.as_secs_f64()).await?;
            self.next.set(claimed.next);
            self.note(|progress| progress.removed += claimed.removed);
            for claim in claimed.rows {
                self.begin(claim);
            }
        }
        if !self.open.borrow().is_empty() {
            if self.open.borrow().len() < SLOTS {
                tokio::select! {
                    done = self.some_end() => done?,
                    () = self.rest() => {}
                }
            } else {
                self.some_end().await?;
            }
        }
        let busy = !self.open.borrow().is_empty();
        Ok(Progress { busy, ..self.progress.take() })
    }

    /// Ends when the next row is due, and soon.
    pub async fn rest(&self) {
        let until = self.next.get().map_or(PAUSE.as_secs_f64(), |next| next - (self.parts.clock)());
        // Within the pause, so that any number makes a duration.
        let rest = until.clamp(0.001, PAUSE.as_secs_f64());
        tokio::time::sleep(Duration::from_secs_f64(rest)).await;
    }

    fn begin(&self, claim: Claim) {
        let parts = Rc::clone(&self.parts);
        let fails = parts.failures.has(&claim.row);
        let flight: Flight = if fails && parts.failing.get() >= SLOTS_FOR_FAILING {
            Box::pin(async move { parts.put_off(&claim).await })
        } else {
            parts.failing.set(parts.failing.get() + usize::from(fails));
            let slot = fails.then(|| Slot(Rc::clone(&parts)));
            Box::pin(async move {
                let _slot = slot;
                parts.refresh(&claim).await
            })
        };
        self.open.borrow_mut().push(flight);
    }

    /// Waits until some of what is under way has ended.
    async fn some_end(&self) -> Result<(), StoreError> {
        poll_fn(|cx| {
            let mut ended = false;
            while let Poll::Ready(Some(done)) = self.open.borrow_mut().poll_next_unpin(cx) {
                match done? {
                    Done::Fetched => self.note(|progress| progress.fetched += 1),
                    Done::Failed => self.note(|progress| progress.failed += 1),
                    Done::Dropped => self.note(|progress| progress.dropped += 1),
                    Done::Waits => {}
                }
                ended = true;
            }
            if ended { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    fn note(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress.get();
        change(&mut progress);
        self.progress.set(progress);
    }
}

impl<S: RowStore, R: RowSource, C: Fn() -> f64> Parts<S, R, C> {
    /// Fetches a row and keeps what came, or when to try again.
    async fn refresh(&self, claim: &Claim) -> Result<Done, StoreError> {
        let fetched = tokio::time::timeout(FETCH_TIME, self.source.fetch(&claim.row)).await;
        let json = fetched.unwrap_or(Err(super::FetchError::TimedOut)).and_then(checked);
        let now = (self.clock)();
        let (held, done) = match json {
            Ok(json) => {
                self.failures.forget(&claim.row);
                let due = next_due(claim, now);
                (self.store.put_row(claim, json, due, now).await?, Done::Fetched)
            }
            Err(error) => {
                let source = self.source.name(&claim.row);
                let count = self.failures.add(&claim.row, source, &error, now);
                let due = now + pause(claim.delay, count, fastrand::f64());
                (self.store.postpone_row(claim, due).await?, Done::Failed)
            }
        };
        if held {
            return Ok(done);
        }
        // Whoever has it now begins anew.
        self.failures.forget(&claim.row);
        Ok(Done::Dropped)
    }

    /// Leaves a row for later.
    async fn put_off(&self, claim: &Claim) -> Result<Done, StoreError> {
        let due = (self.clock)() + WAIT * (0.5 + fastrand::f64() / 2.0);
        self.store.postpone_row(claim, due).await?;
        Ok(Done::Waits)
    }
}

/// When a row is due after a good fetch: counted from when it was due and not from now, so that it
/// does not drift; where a whole turn was missed, it begins anew.
fn next_due(claim: &Claim, now: f64) -> f64 {
    let next = claim.due + claim.delay;
    if next > now { next } else { now + claim.delay }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ident::Row;
    use crate::row::{FetchError, schedule_row_cache};
    use crate::store::AnyStore;
    use crate::store::scratch::with_store;

    /// Answers each fetch as it is told to; rows called `slow…` hang.
    #[derive(Clone)]
    struct Told(Rc<Cell<Result<&'static str, u16>>>, Rc<Cell<usize>>);

    impl RowSource for Told {
        async fn fetch(&self, row: &Row) -> Result<Bytes, FetchError> {
            if row.as_str().starts_with("slow") {
                self.1.set(self.1.get() + 1);
                std::future::pending::<()>().await;
            }
            self.0.get().map(Bytes::from).map_err(FetchError::Status)
        }

        fn name(&self, _: &Row) -> &str {
            "told"
        }
    }

    /// A store with a source and a clock of which it is told.
    struct Bench<C> {
        store: AnyStore,
        told: Told,
        time: Rc<Cell<f64>>,
        refresher: Refresher<AnyStore, Told, C>,
    }

    fn bench(store: AnyStore) -> Bench<impl Fn() -> f64 + 'static> {
        let told = Told(Rc::new(Cell::new(Ok("{\"n\":1}"))), Rc::default());
        let time = Rc::new(Cell::new(0.0));
        let clock = Rc::clone(&time);
        let refresher = Refresher::new(store.clone(), told.clone(), move || clock.get());
        Bench { store, told, time, refresher }
    }

    impl<C: Fn() -> f64 + 'static> Bench<C> {
        async fn schedule(&self, name: &str) {
            let delay = Some(Duration::from_secs(5));
            schedule_row_cache(&self.store, &row(name), delay, 100.0).await.unwrap();
        }

        /// Steps at a time until nothing but what hangs is under way.
        async fn run(&self, now: f64) -> Progress {
            self.time.set(now);
            let mut all = Progress::default();
            loop {
                let some = self.refresher.cache_rows().await.unwrap();
                all.fetched += some.fetched;
                all.failed += some.failed;
                all.dropped += some.dropped;
                all.removed += some.removed;
                all.busy = some.busy;
                let only_hangs = self.refresher.open.borrow().len() == self.told.1.get();
                if only_hangs && self.refresher.next.get().is_none_or(|next| next > now) {
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
            assert_eq!(bench.run(104.0).await, Progress::default());
            assert_eq!(bench.refresher.next.get(), Some(105.0));
            bench.told.0.set(Err(404));
            assert_eq!(bench.run(105.0).await.failed, 1);
            let stored = bench.store.row(&row("1")).await.unwrap().unwrap();
            assert_eq!((&stored.json[..], stored.refreshed), (&b"{\"n\":1}"[..], Some(100.5)));
            bench.told.0.set(Ok("no json"));
            assert_eq!(bench.run(116.0).await.failed, 1);

            schedule_row_cache(&bench.store, &row("1"), None, 117.0).await.unwrap();
            assert_eq!(bench.run(117.0).await, Progress { removed: 1, ..Progress::default() });
            assert_eq!(bench.store.row(&row("1")).await.unwrap(), None);
        });
    }

    #[test]
    fn rows_that_hang_leave_slots_to_the_others() {
        with_store(async |store| {
            let bench = bench(store);
            for number in 0..SLOTS {
                let name = format!("slow-{number}");
                bench.schedule(&name).await;
                bench.refresher.parts.failures.add(&row(&name), "told", &FetchError::NotJson, 99.0);
            }
            for number in 0..200 {
                bench.schedule(&format!("well-{number}")).await;
            }
            let progress = bench.run(100.0).await;
            assert_eq!((progress.fetched, progress.busy), (200, true));
            assert_eq!(bench.refresher.open.borrow().len(), SLOTS_FOR_FAILING);
            assert_eq!(bench.refresher.parts.failing.get(), SLOTS_FOR_FAILING);
            let listed = bench.store.rows(1_000).await.unwrap();
            let late = |row: &&crate::store::ScheduledRow| row.row.as_str().starts_with("slow");
            let waiting = listed.iter().filter(late).filter(|row| row.due <= 100.0 + WAIT).count();
            assert_eq!(waiting, SLOTS - SLOTS_FOR_FAILING, "they have another chance soon");
        });
    }

    #[test]
    fn what_hangs_is_given_up_before_its_lease_ends() {
        assert!(FETCH_TIME < LEASE);
        with_store(async |store| {
            let bench = bench(store);
            bench.schedule("slow").await;
            assert!(bench.run(100.0).await.busy);
            // Somebody stops it meanwhile.
            schedule_row_cache(&bench.store, &row("slow"), None, 101.0).await.unwrap();
            assert_eq!(
                bench.run(101.0).await,
                Progress { removed: 1, busy: true, ..Progress::default() }
            );
        });
    }

    #[test]
    fn a_row_does_not_drift_and_does_not_make_up_for_what_it_missed() {
        let claim = |due| Claim { row: row("1"), delay: 5.0, due, fence: due + 10.0 };
        assert_eq!(next_due(&claim(100.0), 100.3), 105.0);
        assert_eq!(next_due(&claim(100.0), 107.0), 112.0);
        assert_eq!(next_due(&claim(100.0), 3_600.0), 3_605.0);
    }
}
