//! The cleaner: keeps the newest sessions, and removes the oldest over the limit.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteroom_http::clock::{self, unix_now};
use anteroom_http::ident::TokenStorage;
use anteroom_session::clean::{clean_full_sessions, clean_sessions};
use anteroom_session::expire::{CartSink, CleaningResult, clean_expiring, report_idle_carts};
use anteroom_store::{
    AnyStore, Cursor, EndedCarts, Eviction, ExpiryStore as _, IdleRange, LeaseStore as _,
    StoreError, TaskLease,
};
use anteroom_telemetry::metrics::{Count, ThreadMetrics};

use super::{NextStep, Task, Visits};

/// How long a process that hands carts on holds the lease.
const TURN: Duration = Duration::from_secs(5);
/// The shortest lease: it ends at once.
const GIVEN_UP: Duration = Duration::from_millis(1);
/// How often times from the future are looked for: each shard is asked.
const CORRECT_EVERY: Duration = Duration::from_secs(300);
/// The first and the longest pause after carts were refused.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// `clean_sessions`, or `clean_full_sessions` with the carts.
#[derive(Debug)]
pub struct Clean {
    /// The store.
    pub store: AnyStore,
    /// Pending visits: a session that was just seen is not cleaned because its visit is still
    /// unwritten.
    pub visits: Visits,
    /// Sessions kept.
    pub keep: u64,
    /// Sessions not seen for this long are removed, too, if set.
    pub unseen: Option<Duration>,
    /// The most sessions removed in a step.
    pub batch: u32,
    /// How long to rest while the number of sessions is within the limit.
    pub every: Duration,
    /// Whether carts are removed, too.
    pub carts: bool,
    /// Where carts are handed on first, if anywhere.
    pub expiring: Option<CartExpiry>,
    /// Counters.
    pub thread_metrics: Arc<ThreadMetrics>,
    /// Whether the log has reported that the store refuses visits.
    pub refusal_logged: Cell<bool>,
    /// Whether the log has reported that carts are lost.
    pub loss_logged: Cell<bool>,
    /// When times from the future were last looked for.
    pub corrected: Cell<Option<Instant>>,
}

/// State for handing on carts.
#[derive(Debug)]
pub struct CartExpiry {
    on_expire: RefCell<CartSink>,
    /// How long a session must be idle before its cart is handed on, if set.
    idle: Option<Duration>,
    storage: TokenStorage,
    /// The id of this process in the lease.
    process_id: u64,
    /// Where the round continues.
    cursor: RefCell<Cursor>,
    refusals: Cell<CartHandoverPause>,
}

/// Since when carts cannot be handed on. Until the next attempt, sessions with a cart wait, and are
/// not looked at a second time.
#[derive(Clone, Copy, Debug, Default)]
struct CartHandoverPause {
    in_a_row: u32,
    until: Option<Instant>,
}

impl CartExpiry {
    /// Hands on carts to `on_expire`, with tokens stored as `storage` says: of cleaned sessions,
    /// and, if `idle` is set, of sessions not seen for that long.
    #[must_use]
    pub fn new(on_expire: CartSink, idle: Option<Duration>, storage: TokenStorage) -> Self {
        Self {
            on_expire: RefCell::new(on_expire),
            idle,
            storage,
            process_id: fastrand::u64(..),
            cursor: RefCell::default(),
            refusals: Cell::default(),
        }
    }

    fn is_into_file(&self) -> bool {
        match *self.on_expire.borrow() {
            CartSink::File(_) => true,
            CartSink::Stream | CartSink::Queue => false,
        }
    }

    /// Whether carts may be handed on now. After a pause this begins a round.
    fn is_open(&self, now: Instant) -> bool {
        let mut refusals = self.refusals.get();
        match refusals.until {
            Some(until) if now < until => return false,
            Some(_) => {
                refusals.until = None;
                self.refusals.set(refusals);
                self.cursor.take();
            }
            None => {}
        }
        true
    }

    /// Carts were refused: they wait for a while. Logged when it begins.
    fn refuse(&self, refusal: &str, now: Instant) {
        let CartHandoverPause { in_a_row, .. } = self.refusals.get();
        if in_a_row == 0 {
            tracing::warn!(
                refusal,
                "abandoned carts cannot be handed on: their sessions are kept until then"
            );
        }
        let (first, longest) = BACK_OFF;
        let until = Some(now + (first * (1 << in_a_row.min(8))).min(longest));
        self.refusals.set(CartHandoverPause { in_a_row: in_a_row.saturating_add(1), until });
    }

    /// Carts were handed on. Logged after refusals.
    fn resume(&self) {
        if self.refusals.take().in_a_row > 0 {
            tracing::info!("abandoned carts are handed on again");
        }
    }
}

impl Clean {
    /// A step that hands carts on, by the holder of the lease: two processes would write a batch of
    /// the outbox into two files. If the lease cannot be stored, no cart is handed on.
    #[expect(
        clippy::await_holding_refcell_ref,
        reason = "steps of a task follow each other, and nobody else borrows"
    )]
    async fn clean_expiring(&self, expiring: &CartExpiry) -> Result<NextStep, StoreError> {
        let now = Instant::now();
        let mut is_open = expiring.is_open(now);
        if is_open {
            match self.store.take_lease(TaskLease::Cleaner, expiring.process_id, TURN).await {
                Ok(true) => {}
                Ok(false) => return Ok(NextStep::Idle),
                // A store without room for the lease has none for carts, but cleaning can make
                // room.
                Err(StoreError::Failed(error)) => {
                    expiring.refuse(&error.to_string(), now);
                    is_open = false;
                }
                Err(error) => return Err(error),
            }
        }
        let how = self.how();
        let mut on_expire = expiring.on_expire.borrow_mut();
        let (from, target) = (expiring.cursor.borrow().clone(), is_open.then_some(&mut *on_expire));
        let (storage, time) = (expiring.storage, unix_now());
        let cleaned = clean_expiring(&self.store, how, &from, target, storage, time).await;
        let mut open_still = self.take_note(expiring, &cleaned, now).await && is_open;
        let (mut more, mut failure) = (cleaned.more, cleaned.failure);
        // The next round starts with the oldest, except while they can only wait.
        let ends = open_still && !more;
        expiring.cursor.replace(if ends { Cursor::default() } else { cleaned.cursor });
        open_still &= failure.is_none();
        if let Some(after) = expiring.idle.filter(|_| open_still && clock::may_expire()) {
            let idle =
                IdleRange { until: time - after.as_secs_f64(), now: time, batch: self.batch };
            let result = report_idle_carts(&self.store, idle, &mut on_expire, storage, time).await;
            more |= self.take_note(expiring, &result, now).await && result.more;
            failure = result.failure;
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(if more { NextStep::Again } else { NextStep::Idle }),
        }
    }

    /// Counts the carts of sessions that were ended outside the cleaner: those callers have no
    /// counters.
    fn count_ended_carts(&self) {
        let EndedCarts { handed_on, dropped, lost, refusal } =
            self.visits.sessions.take_ended_carts();
        // For a file they are in the outbox now, and are counted when written.
        let is_file = self.expiring.as_ref().is_some_and(CartExpiry::is_into_file);
        self.thread_metrics.add(Count::CartsHandedOn, if is_file { 0 } else { handed_on as u64 });
        self.thread_metrics.add(Count::CartEventsDropped, dropped as u64);
        self.thread_metrics.add(Count::CartsLost, lost as u64);
        if lost > 0 {
            if !self.loss_logged.replace(true) {
                tracing::warn!(
                    refusal,
                    "carts are lost: their sessions were ended, and the carts could not be handed on"
                );
            }
        } else if handed_on > 0 {
            self.loss_logged.set(false);
        }
    }

    /// Counts the result of a step; returns whether carts may still be handed on.
    async fn take_note(&self, expiring: &CartExpiry, done: &CleaningResult, now: Instant) -> bool {
        self.thread_metrics.add(Count::SessionsCleaned, done.removed as u64);
        self.thread_metrics.add(Count::CartsHandedOn, done.handed_on as u64);
        self.thread_metrics.add(Count::CartsRefused, done.waiting as u64);
        self.thread_metrics.add(Count::CartEventsDropped, done.dropped as u64);
        if let Some(refusal) = &done.refusal {
            expiring.refuse(refusal, now);
            self.give_turn_up(expiring).await;
        } else if done.handed_on > 0 {
            expiring.resume();
        }
        done.refusal.is_none()
    }

    /// What must be removed now. Where the time is in doubt, no session is over by its age.
    fn how(&self) -> Eviction {
        let unseen = self.unseen.filter(|_| clock::may_expire());
        let before = unseen.map_or(0.0, |unseen| unix_now() - unseen.as_secs_f64());
        Eviction { keep: self.keep, batch: self.batch, carts: self.carts, before }
    }

    /// Corrects the times that a clock has written which was ahead, where they matter.
    async fn correct_times(&self) -> Result<(), StoreError> {
        let is_due = self.corrected.get().is_none_or(|last| last.elapsed() >= CORRECT_EVERY);
        if self.unseen.is_some() && is_due && clock::may_expire() {
            match self.store.correct_times(unix_now(), self.batch).await {
                Ok(0) => self.corrected.set(Some(Instant::now())),
                Ok(_) => {}
                // A store without room: cleaning can make some.
                Err(error) if error.is_refusal() => {
                    tracing::debug!(%error, "times from the future are corrected later");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Another process may have a working target: it gets the lease.
    async fn give_turn_up(&self, expiring: &CartExpiry) {
        if let Err(error) =
            self.store.take_lease(TaskLease::Cleaner, expiring.process_id, GIVEN_UP).await
        {
            tracing::debug!(%error, "the lease cannot be released: it expires by itself");
        }
    }

    /// Writes the visits that are pending or in flight: after an outage, many batches. Newer visits
    /// do not delay the cleaner, nor does a store that refuses visits: one without room gets some
    /// by cleaning.
    async fn write_visits(&self) -> Result<(), StoreError> {
        self.visits.queue.written().await;
        let mut left = self.visits.queue.backlog();
        loop {
            let progress = self.visits.write(true).await;
            // Their sessions are in a part of the store that is away: they are not cleaned either.
            if progress.postponed > 0 && progress.visits + progress.items == 0 {
                return Ok(());
            }
            match progress.failure {
                Some(error) if error.is_refusal() => {
                    if !self.refusal_logged.replace(true) {
                        tracing::warn!(%error, "the store refuses visits: sessions are cleaned by the last recorded visit");
                    }
                    // Views may be refused while visits are taken.
                    if progress.visits == 0 {
                        return Ok(());
                    }
                }
                Some(error) => return Err(error),
                None => self.refusal_logged.set(false),
            }
            let written = progress.visits + progress.items;
            left = left.saturating_sub(written);
            if left == 0 || written == 0 {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Task for Clean {
    const NAME: &'static str = "clean_sessions";

    async fn step(&self) -> Result<NextStep, StoreError> {
        self.count_ended_carts();
        self.write_visits().await?;
        self.correct_times().await?;
        if let Some(expiring) = &self.expiring {
            return self.clean_expiring(expiring).await;
        }
        let Eviction { keep, batch, carts, before } = self.how();
        let removed = if carts {
            clean_full_sessions(&self.store, keep, batch, before).await?
        } else {
            clean_sessions(&self.store, keep, batch, before).await?
        };
        self.thread_metrics.add(Count::SessionsCleaned, removed as u64);
        Ok(if removed > 0 { NextStep::Again } else { NextStep::Idle })
    }

    async fn rest(&self) {
        tokio::time::sleep(self.every).await;
    }
}

#[cfg(test)]
mod tests {
    use anteroom_http::ident::{StoredToken, User};
    use anteroom_session::expire::ExpiredFile;
    use anteroom_session::visit::VisitQueue;
    use anteroom_session::{Rules, Sessions};
    use anteroom_store::Rotation;
    use anteroom_store::scratch::with_store;
    use anteroom_store::traits::*;

    use super::*;

    fn token(number: u32) -> StoredToken {
        StoredToken::from_store(format!("token-{number:04}").as_bytes()).unwrap()
    }

    fn user() -> User {
        User::new(b"alice").unwrap()
    }

    async fn log_in(store: &AnyStore, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let (new, now) = (token(number), f64::from(number));
            let rotation = Rotation {
                old: None,
                new,
                user: user(),
                now,
                most: 0,
                expiry_action: None,
                visitor: None,
            };
            store.rotate_token(&rotation).await.unwrap();
        }
    }

    fn cleaner(store: &AnyStore, keep: u32, expiring: Option<CartExpiry>) -> Clean {
        Clean {
            store: store.clone(),
            visits: Visits {
                store: store.clone(),
                queue: Arc::new(VisitQueue::new(1_000, 25)),
                sessions: Arc::new(Sessions::new(
                    TokenStorage::Plain,
                    Rules::default(),
                    Arc::default(),
                )),
            },
            keep: keep.into(),
            unseen: None,
            batch: 120,
            every: Duration::from_secs(1),
            carts: true,
            expiring,
            thread_metrics: Arc::default(),
            refusal_logged: Cell::default(),
            loss_logged: Cell::default(),
            corrected: Cell::default(),
        }
    }

    fn into_file(path: &std::path::Path) -> CartExpiry {
        let file = ExpiredFile::new(path.to_owned());
        CartExpiry::new(CartSink::File(file), None, TokenStorage::Plain)
    }

    #[test]
    fn a_target_that_refuses_carts_is_retried_less_often_each_time() {
        let expiring = into_file("nowhere".as_ref());
        let mut now = Instant::now();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            assert!(expiring.is_open(now));
            expiring.refuse("no room", now);
            now += Duration::from_secs(seconds);
            assert!(!expiring.is_open(now.checked_sub(Duration::from_millis(1)).unwrap()));
        }
        expiring.resume();
        expiring.refuse("no room", now);
        assert!(expiring.is_open(now + Duration::from_secs(1)));
    }

    #[test]
    fn within_a_round_carts_that_were_refused_are_not_tried_again() {
        with_store(async |store| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("not-yet").join("expired.jsonl");
            log_in(&store, 0..9).await;
            for number in [0, 4, 8] {
                let item = anteroom_http::ident::Item::new("mug").unwrap();
                store.add_to_cart(&token(number), &item, 1).await.unwrap();
            }
            let clean = Clean { batch: 3, ..cleaner(&store, 0, Some(into_file(&path))) };
            assert_eq!(clean.step().await.unwrap(), NextStep::Again);
            std::fs::create_dir(folder.path().join("not-yet")).unwrap();
            assert_eq!(clean.step().await.unwrap(), NextStep::Again);
            assert_eq!(clean.step().await.unwrap(), NextStep::Idle);
            assert!(!path.exists());
            let expiring = clean.expiring.as_ref().unwrap();
            let waiting = expiring.cursor.borrow().clone();
            for number in [0, 4, 8] {
                assert!(store.check_token(&token(number)).await.unwrap().is_some());
            }
            // Until then waiting sessions are not looked at again, and others are cleaned.
            log_in(&store, 20..22).await;
            assert_eq!(clean.step().await.unwrap(), NextStep::Idle);
            assert_eq!(*expiring.cursor.borrow(), waiting);
            assert!(store.check_token(&token(21)).await.unwrap().is_none());

            expiring.refusals.set(CartHandoverPause { in_a_row: 1, until: Some(Instant::now()) });
            assert_eq!(clean.step().await.unwrap(), NextStep::Idle);
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
            assert!(expiring.refusals.get().until.is_none());
        });
    }

    #[test]
    fn users_seen_while_the_store_was_away_are_not_cleaned() {
        const RETURNED: u32 = 120;
        with_store(async |store| {
            log_in(&store, 0..2 * RETURNED).await;
            let clean = cleaner(&store, RETURNED, None);
            for number in 0..RETURNED {
                clean.visits.queue.note(token(number), user(), None, 1_000.0);
            }

            clean.step().await.unwrap();

            for number in 0..RETURNED {
                let found = store.check_token(&token(number)).await.unwrap();
                assert!(found.is_some(), "{number} came back");
            }
        });
    }
}
