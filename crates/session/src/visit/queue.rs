//! The bounded queue of visits: noted on the hot path by any thread, flushed by a task.
//!
//! The first touch of a session after a pause is due at once; later ones of the same session are
//! gathered for 100 ms, or for up to 700 ms while thousands of sessions are busy; views of items
//! for 1 s. Visits that the store refuses are put back and merged with newer ones; those whose part
//! of the store is away wait for two seconds, in at most half of the queue, and delay no others. Which
//! visits to note is decided elsewhere.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::mem;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ahash::RandomState;
use anteroom_http::ident::{Item, StoredToken, User};
use anteroom_store::{StoreError, Visit, VisitResult, VisitStore};
use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};

use super::recent_views::RecentViews;

/// How long later touches of a session are gathered, while few sessions are busy.
const REST: Duration = Duration::from_millis(100);
/// The same while many are. With the store's own quarter of a second a visit is then nearly one
/// behind.
const REST_MAX: Duration = Duration::from_millis(700);
/// What one busy session adds to the time: so that about 10,000 touches a second reach the store,
/// however many visitors click at once, until the longest time is reached.
const REST_EACH: Duration = Duration::from_micros(100);
/// How long views of items are gathered.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Sessions in one flush step. The embedded store carries them out in one transaction.
const TOUCH_BATCH: usize = 250;
/// The least time between two flush steps that take everything: a call to the store costs more than
/// a visit in it.
const GATHER: Duration = Duration::from_millis(10);
/// Items in one flush step.
const COUNT_BATCH: usize = 500;
/// How long visits wait whose part of the store is away.
const POSTPONED: Duration = Duration::from_secs(2);
/// Locks that the threads share. A power of two.
const SHARDS: usize = 16;
/// The first and the longest pause after the store refused.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What one flush step did.
#[derive(Debug, Default)]
pub struct WriteProgress {
    /// Visits handed to the store.
    pub visits: usize,
    /// The store's answer about each of them.
    pub touched: Vec<VisitResult>,
    /// Items whose views were handed to the store.
    pub items: usize,
    /// Visits and items that wait because their part of the store is away.
    pub postponed: usize,
    /// The store's error for the rest, which was put back and is due again after a pause.
    pub failure: Option<StoreError>,
    /// More was due when the step ended.
    pub more: bool,
}

/// Visits and views that wait for the store.
///
/// ```
/// use anteroom_http::ident::{Item, Token, TokenStorage, User};
/// use anteroom_session::visit::VisitQueue;
///
/// let queue = VisitQueue::new(100_000, 25);
/// let token = Token::parse(b"c0ffee00c0ffee00").unwrap().stored(TokenStorage::Plain);
/// queue.note(token, User::new(b"ann").unwrap(), Item::new("shoes"), 1_790_000_000.0);
/// queue.count_view(Item::new("shoes").unwrap());
/// assert_eq!(queue.backlog(), 2);
/// ```
#[derive(Debug)]
pub struct VisitQueue {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    capacity: usize,
    /// The most items kept for one session: the store would cut further ones.
    items: usize,
    /// Sessions, their items, and items to count, those in flight included.
    queued: AtomicUsize,
    dropped: AtomicU64,
    /// Wakes the flushing task when something becomes due earlier than expected.
    news: Notify,
    refusals: Mutex<Refusals>,
    /// Held during a flush: once it is released, what was in flight is in the store, or back here.
    flushing: tokio::sync::Mutex<()>,
    /// Recent views by visitors without a login.
    once: RecentViews,
}

/// One lock's share of the queue.
#[derive(Debug, Default)]
struct Shard {
    sessions: HashMap<StoredToken, Session, RandomState>,
    /// Sessions in [`Phase::Ready`], in the order in which they became so.
    ready: VecDeque<StoredToken>,
    /// Sessions in [`Phase::Resting`], each with the end of its rest, soonest first.
    resting: VecDeque<(Instant, StoredToken)>,
    /// The same for sessions whose part of the store is away: their rest is longer.
    postponed: VecDeque<(Instant, StoredToken)>,
    /// How many sessions have something to flush.
    pending: usize,
    counts: HashMap<Item, u64, RandomState>,
    /// When the counts are to be flushed; set while there are any.
    counts_due: Option<Instant>,
}

/// The state of one session.
#[derive(Debug)]
struct Session {
    phase: Phase,
    pending: Option<PendingSession>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In the `ready` queue: to be flushed by the next step.
    Ready,
    /// In flight to the store.
    Flying,
    /// Flushed less than [`REST`] ago: new touches are gathered.
    Resting,
}

/// What is to be flushed for one session.
#[derive(Debug)]
struct PendingSession {
    user: User,
    seen: f64,
    items: Vec<(Item, f64)>,
}

/// Since when, and for how long, no flush is tried.
#[derive(Debug, Default)]
struct Refusals {
    in_a_row: u32,
    until: Option<Instant>,
}

impl VisitQueue {
    /// A queue that holds at most `capacity` sessions and items together, and at most `items` of
    /// one session.
    #[must_use]
    pub fn new(capacity: usize, items: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            capacity,
            items,
            queued: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            news: Notify::new(),
            refusals: Mutex::default(),
            flushing: tokio::sync::Mutex::default(),
            once: RecentViews::default(),
        }
    }

    /// Notes that a session was seen at `seen` (Unix time in seconds), viewing `item`. Cheap: one
    /// short lock, no wait. At the limit the visit, or its item, is dropped and counted.
    pub fn note(&self, token: StoredToken, user: User, item: Option<Item>, seen: f64) {
        let mut shard = self.shard_of(&token);
        let shard = &mut *shard;
        let session = match shard.sessions.entry(token) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                if !self.reserve() {
                    return;
                }
                shard.ready.push_back(unknown.key().clone());
                self.news.notify_one();
                unknown.insert(Session { phase: Phase::Ready, pending: None })
            }
        };
        let pending = session.pending.get_or_insert_with(|| {
            shard.pending += 1;
            PendingSession { user: user.clone(), seen, items: Vec::new() }
        });
        if pending.user != user {
            // Another user's by now: the store would refuse the old user's visit.
            self.release(pending.items.len());
            *pending = PendingSession { user, seen, items: Vec::new() };
        }
        pending.seen = pending.seen.max(seen);
        if let Some(item) = item {
            self.add_item(&mut pending.items, item, seen);
        }
    }

    /// Counts one view of an item, by any visitor. Cheap like [`Self::note`].
    pub fn count_view(&self, item: Item) {
        let mut shard = self.shard_of(&item);
        match shard.counts.entry(item) {
            Entry::Occupied(mut known) => *known.get_mut() = known.get().saturating_add(1),
            Entry::Vacant(unknown) => {
                if self.reserve() {
                    unknown.insert(1);
                    self.counts_wait(&mut shard, COUNT_EVERY);
                }
            }
        }
    }

    /// Counts a view by a visitor without a login, from `address`, unless the same address viewed
    /// the item in the ten seconds before `now` (Unix time in seconds).
    pub fn count_anonymous_view(&self, item: Item, address: IpAddr, now: f64) {
        if self.once.counts(address, &item, now) {
            self.count_view(item);
        }
    }

    /// Drops what is pending for a session that was logged out here.
    pub fn forget(&self, token: &StoredToken) {
        let mut shard = self.shard_of(token);
        let Some(session) = shard.sessions.get_mut(token) else { return };
        if let Some(pending) = session.pending.take() {
            shard.pending -= 1;
            self.release(pending.items.len());
        }
    }

    /// A session continues under another token: its pending visit moves to it.
    pub fn rename(&self, old: &StoredToken, new: &StoredToken, user: &User) {
        let pending = {
            let mut shard = self.shard_of(old);
            let session = shard.sessions.get_mut(old);
            let Some(pending) = session.and_then(|session| session.pending.take()) else { return };
            shard.pending -= 1;
            pending
        };
        self.release(pending.items.len());
        if pending.user != *user {
            return;
        }
        self.note(new.clone(), user.clone(), None, pending.seen);
        for (item, seen) in pending.items {
            self.note(new.clone(), user.clone(), Some(item), seen);
        }
    }

    /// How many sessions and items wait, without those in flight.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.shards().map(|shard| shard.pending + shard.counts.len()).sum()
    }

    /// How many visits and views were lost to the limit, or to a store that did not confirm them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns when a flush step has something to do. For one task: of several, one is woken.
    pub async fn due(&self) {
        loop {
            let news = self.news.notified();
            let now = Instant::now();
            match self.next_due(now) {
                Some(at) if at <= now => return,
                // After a refusal or a recent flush the store is left alone, whatever comes.
                Some(at) if self.pause_ends().is_some_and(|end| end >= at) => {
                    sleep_until(at.into()).await;
                }
                Some(at) => {
                    // Elapsed or woken: check again either way.
                    let _ = timeout_at(at.into(), news).await;
                }
                None => news.await,
            }
        }
    }

    /// One flush step of bounded size: sessions that are due, then items that are due. What the
    /// store refuses is put back, and so is everything when the future is dropped half way.
    ///
    /// Touches may reach the store twice, which changes nothing. Views may not: when the store does
    /// not answer, it is unknown whether it counted them, and they are dropped. Of several
    /// concurrent calls one flushes, and the others wait.
    pub async fn drain<S: VisitStore>(&self, store: &S) -> WriteProgress {
        let _turn = self.flushing.lock().await;
        self.drain_at(store, Instant::now(), false).await
    }

    /// Like [`Self::drain`], but without waiting for the gathering times: for the shutdown.
    pub async fn drain_all<S: VisitStore>(&self, store: &S) -> WriteProgress {
        let _turn = self.flushing.lock().await;
        self.drain_at(store, Instant::now(), true).await
    }

    /// Returns when everything that was in flight at the call is written, or waits again.
    pub async fn written(&self) {
        drop(self.flushing.lock().await);
    }

    async fn drain_at<S: VisitStore>(&self, store: &S, now: Instant, all: bool) -> WriteProgress {
        let mut progress = WriteProgress::default();
        let touched = self.flush_touches(store, now, all, &mut progress).await;
        // A store that refuses visits may accept views.
        let goes_on = touched.as_ref().err().is_none_or(StoreError::is_refusal);
        let counted = match goes_on {
            true => self.flush_counts(store, now, all, &mut progress).await,
            false => Ok(()),
        };
        let written = progress.visits + progress.items;
        let all_taken = progress.visits < TOUCH_BATCH && progress.items < COUNT_BATCH;
        progress.postponed += self.shards().map(|shard| shard.postponed.len()).sum::<usize>();
        // Refused views wait by themselves, and delay no visit.
        let away = counted.as_ref().is_err_and(|error| !error.is_refusal());
        self.note_result(touched.is_ok() && !away, now, all_taken);
        progress.failure = touched.err().or_else(|| counted.err());
        if all && progress.postponed > 0 && written == 0 {
            // The rest has no part of the store to go to.
            progress.failure = progress.failure.or(Some(StoreError::Away));
        }
        progress.more = progress.failure.is_none()
            && if all {
                self.backlog() > 0
            } else {
                self.next_due(now).is_some_and(|at| at <= now)
            };
        progress
    }

    async fn flush_touches<S: VisitStore>(
        &self,
        store: &S,
        now: Instant,
        all: bool,
        progress: &mut WriteProgress,
    ) -> Result<(), StoreError> {
        let mut flight = TouchFlight { queue: self, visits: self.take_visits(now, all) };
        if !flight.visits.is_empty() {
            let held = store.touch_within_reach(&flight.visits).await?;
            progress.touched = flight.land(now, &held);
            progress.visits = progress.touched.len();
        }
        Ok(())
    }

    async fn flush_counts<S: VisitStore>(
        &self,
        store: &S,
        now: Instant,
        all: bool,
        progress: &mut WriteProgress,
    ) -> Result<(), StoreError> {
        let (counts, rest) = (self.take_counts(now, all), Duration::ZERO);
        let mut flight = CountFlight { queue: self, counts, rest };
        if flight.counts.is_empty() {
            return Ok(());
        }
        let counted = store.count_within_reach(&flight.counts).await;
        match &counted {
            Ok(uncounted) => {
                self.drop_views(&uncounted.unknown);
                let waiting = match self.has_room_for_postponed() {
                    true => uncounted.not_sent.clone(),
                    false => {
                        self.drop_views(&uncounted.not_sent);
                        Vec::new()
                    }
                };
                progress.items = flight.counts.len() - waiting.len();
                progress.postponed += waiting.len();
                self.release(progress.items);
                // Put back on drop.
                (flight.counts, flight.rest) = (waiting, POSTPONED);
            }
            Err(error) if error.is_unknown() => {
                self.drop_views(&flight.counts);
                flight.land();
            }
            // Put back on drop.
            Err(error) if error.is_refusal() => flight.rest = COUNT_EVERY,
            Err(_) => {}
        }
        counted.map(drop)
    }

    /// Views that are lost.
    fn drop_views(&self, views: &[(Item, u64)]) {
        let views = views.iter().map(|(_, count)| *count).sum();
        self.dropped.fetch_add(views, Ordering::Relaxed);
    }

    /// What waits for a part of the store that is away has half of the queue: the other parts need the rest.
    fn has_room_for_postponed(&self) -> bool {
        self.queued.load(Ordering::Relaxed) <= self.capacity / 2
    }

    /// Takes sessions that are due, and moves those whose rest is over.
    fn take_visits(&self, now: Instant, all: bool) -> Vec<Visit> {
        let mut visits = Vec::new();
        // A random start, else the last shard would starve under load.
        let first = fastrand::usize(..SHARDS);
        for shard in self.shards.iter().cycle().skip(first).take(SHARDS) {
            let mut shard = lock(shard);
            self.end_rests(&mut shard, now, all);
            while visits.len() < TOUCH_BATCH {
                let Some(token) = shard.ready.pop_front() else { break };
                visits.extend(self.take_visit(&mut shard, token));
            }
        }
        visits
    }

    fn take_visit(&self, shard: &mut Shard, token: StoredToken) -> Option<Visit> {
        let session = shard.sessions.get_mut(&token)?;
        let Some(pending) = session.pending.take() else {
            // Dropped meanwhile.
            shard.sessions.remove(&token);
            self.release(1);
            return None;
        };
        session.phase = Phase::Flying;
        shard.pending -= 1;
        let PendingSession { user, seen, items } = pending;
        Some(Visit { token, user, seen, items })
    }

    /// Sessions whose rest is over become ready if they have touches, else they are removed.
    fn end_rests(&self, shard: &mut Shard, now: Instant, all: bool) {
        let is_over = |(end, _): &mut (Instant, StoredToken)| all || *end <= now;
        let is_due = |(end, _): &mut (Instant, StoredToken)| *end <= now;
        while let Some((_, token)) =
            shard.resting.pop_front_if(is_over).or_else(|| shard.postponed.pop_front_if(is_due))
        {
            let Some(session) = shard.sessions.get_mut(&token) else { continue };
            if session.pending.is_some() {
                session.phase = Phase::Ready;
                shard.ready.push_back(token);
            } else {
                shard.sessions.remove(&token);
                self.release(1);
            }
        }
    }

    /// Takes counts that are due.
    fn take_counts(&self, now: Instant, all: bool) -> Vec<(Item, u64)> {
        let mut counts = Vec::new();
        let first = fastrand::usize(..SHARDS);
        for shard in self.shards.iter().cycle().skip(first).take(SHARDS) {
            let mut shard = lock(shard);
            if !shard.counts_due.is_some_and(|due| all || due <= now) {
                continue;
            }
            let room = COUNT_BATCH - counts.len();
            if shard.counts.len() <= room {
                counts.extend(shard.counts.drain());
                shard.counts_due = None;
            } else {
                let some: Vec<_> = shard.counts.keys().take(room).cloned().collect();
                counts.extend(some.into_iter().filter_map(|item| shard.counts.remove_entry(&item)));
            }
        }
        counts
    }

    /// When the next flush step has something to do, not before the end of the store's pause.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        let soonest = self.shards().filter_map(|shard| shard.next_due(now)).min()?;
        Some(self.pause_ends().map_or(soonest, |end| end.max(soonest)))
    }

    fn pause_ends(&self) -> Option<Instant> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).until
    }

    fn note_result(&self, is_ok: bool, now: Instant, all_taken: bool) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if is_ok {
            *refusals = Refusals { in_a_row: 0, until: all_taken.then(|| now + GATHER) };
        } else {
            let (first, longest) = BACK_OFF;
            refusals.until = Some(now + (first * (1 << refusals.in_a_row.min(8))).min(longest));
            refusals.in_a_row = refusals.in_a_row.saturating_add(1);
        }
    }

    /// Puts back a visit whose part of the store is away, or drops it where those take too much room.
    fn postpone(&self, visit: Visit, now: Instant) {
        if self.has_room_for_postponed() {
            self.put_back(visit, Some(now + POSTPONED));
        } else {
            self.dropped.fetch_add(1 + visit.items.len() as u64, Ordering::Relaxed);
            self.land(&visit, now);
        }
    }

    /// Puts back a visit that the store refused, merged under newer touches. It is due at once, or at a time.
    fn put_back(&self, visit: Visit, due: Option<Instant>) {
        let Visit { token, user, seen, items } = visit;
        let mut shard = self.shard_of(&token);
        let shard = &mut *shard;
        let flying = shard.sessions.get_mut(&token).filter(|known| known.phase == Phase::Flying);
        let Some(session) = flying else { return self.release(items.len()) };
        match due {
            None => {
                session.phase = Phase::Ready;
                shard.ready.push_back(token);
            }
            Some(due) => {
                session.phase = Phase::Resting;
                shard.postponed.push_back((due, token));
            }
        }
        match &mut session.pending {
            None => {
                shard.pending += 1;
                session.pending = Some(PendingSession { user, seen, items });
            }
            Some(newer) if newer.user == user => {
                self.release(items.len());
                for (item, seen) in items {
                    self.add_item(&mut newer.items, item, seen);
                }
            }
            Some(_somebody_else) => self.release(items.len()),
        }
    }

    /// Starts the rest of a session whose visit the store has taken.
    fn land(&self, visit: &Visit, now: Instant) {
        self.release(visit.items.len());
        let mut shard = self.shard_of(&visit.token);
        let shard = &mut *shard;
        let Some(session) = shard.sessions.get_mut(&visit.token) else { return };
        if session.phase == Phase::Flying {
            session.phase = Phase::Resting;
            shard.resting.push_back((now + self.rest(), visit.token.clone()));
        }
    }

    fn rest(&self) -> Duration {
        let held = u32::try_from(self.queued.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        REST_EACH.saturating_mul(held).clamp(REST, REST_MAX)
    }

    /// Adds a view to a session's items, of which the newest stay.
    fn add_item(&self, items: &mut Vec<(Item, f64)>, item: Item, seen: f64) {
        if let Some((_, known)) = items.iter_mut().find(|(known, _)| *known == item) {
            *known = known.max(seen);
            return;
        }
        if items.len() < self.items {
            if self.reserve() {
                items.push((item, seen));
            }
            return;
        }
        let oldest = items.iter_mut().min_by(|(_, a), (_, b)| a.total_cmp(b));
        if let Some(oldest) = oldest.filter(|(_, oldest)| *oldest < seen) {
            *oldest = (item, seen);
        }
    }

    /// Puts back a count that the store refused. Its room is still reserved.
    fn put_back_count(&self, item: Item, count: u64, rest: Duration) {
        let mut shard = self.shard_of(&item);
        match shard.counts.entry(item) {
            Entry::Occupied(mut known) => {
                *known.get_mut() = known.get().saturating_add(count);
                self.release(1);
            }
            Entry::Vacant(unknown) => {
                unknown.insert(count);
                self.counts_wait(&mut shard, rest);
            }
        }
    }

    /// Makes sure that the shard's counts are flushed, `after` this time at the latest, unless a
    /// time is set already.
    fn counts_wait(&self, shard: &mut Shard, after: Duration) {
        if shard.counts_due.is_none() {
            shard.counts_due = Some(Instant::now() + after);
            self.news.notify_one();
        }
    }

    /// Reserves room for one session or item, or counts it as dropped.
    fn reserve(&self) -> bool {
        let taken = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            (held < self.capacity).then(|| held + 1)
        });
        if taken.is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn release(&self, count: usize) {
        self.queued.fetch_sub(count, Ordering::Relaxed);
    }

    fn shard_of(&self, key: &impl Hash) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(key);
        // The top bits: the maps inside use the other bits of their own hashes.
        lock(&self.shards[(hash >> 60) as usize & (SHARDS - 1)])
    }

    fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(lock)
    }
}

impl Shard {
    fn next_due(&self, now: Instant) -> Option<Instant> {
        if !self.ready.is_empty() {
            return Some(now);
        }
        let rests = [self.resting.front(), self.postponed.front()].into_iter().flatten();
        rests.map(|(end, _)| *end).chain(self.counts_due).min()
    }
}

/// A poisoned lock remains usable: every change under it is complete before anything could panic.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Visits in flight to the store; put back on drop unless they have landed.
struct TouchFlight<'q> {
    queue: &'q VisitQueue,
    visits: Vec<Visit>,
}

impl TouchFlight<'_> {
    /// Returns the store's answer about each visit. Those without one are put back.
    fn land(&mut self, now: Instant, held: &[Option<bool>]) -> Vec<VisitResult> {
        let mut held = held.iter().copied();
        let land = |visit: Visit| {
            let Some(held) = held.next().flatten() else {
                self.queue.postpone(visit, now);
                return None;
            };
            self.queue.land(&visit, now);
            let Visit { token, user, .. } = visit;
            Some(VisitResult { token, user, held })
        };
        mem::take(&mut self.visits).into_iter().filter_map(land).collect()
    }
}

impl Drop for TouchFlight<'_> {
    fn drop(&mut self) {
        for visit in self.visits.drain(..) {
            self.queue.put_back(visit, None);
        }
    }
}

/// Counts in flight to the store; put back on drop unless they have landed.
struct CountFlight<'q> {
    queue: &'q VisitQueue,
    counts: Vec<(Item, u64)>,
    /// How long they wait after they are put back.
    rest: Duration,
}

impl CountFlight<'_> {
    fn land(&mut self) -> usize {
        let counts = mem::take(&mut self.counts);
        self.queue.release(counts.len());
        counts.len()
    }
}

impl Drop for CountFlight<'_> {
    fn drop(&mut self) {
        for (item, count) in self.counts.drain(..) {
            self.queue.put_back_count(item, count, self.rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::{BTreeMap, BTreeSet};

    use anteroom_http::ident::{Token, TokenStorage};
    use anteroom_store::UncountedViews;
    use proptest::prelude::*;

    use super::*;

    /// A store that records its calls, or refuses them.
    #[derive(Default)]
    struct Book {
        refuses: Cell<bool>,
        /// Whether touches are answered only on demand.
        waits: Cell<bool>,
        reported: Notify,
        /// The error of touches, and of views.
        fails: Cell<Option<fn() -> StoreError>>,
        loses: Cell<Option<fn() -> StoreError>>,
        seen: RefCell<BTreeMap<String, f64>>,
        counts: RefCell<BTreeMap<String, u64>>,
        /// Tokens without a session.
        strangers: RefCell<BTreeSet<String>>,
        /// Tokens, and items, whose part of the store is away.
        away: RefCell<BTreeSet<String>>,
        largest: Cell<usize>,
    }

    impl Book {
        fn answer<T>(&self, value: T) -> Result<T, StoreError> {
            if self.refuses.get() { Err(StoreError::Away) } else { Ok(value) }
        }
    }

    impl VisitStore for Book {
        async fn touch_tokens(&self, visits: &[Visit]) -> Result<Vec<bool>, StoreError> {
            self.answer(())?;
            if self.waits.get() {
                self.reported.notified().await;
            }
            if let Some(error) = self.fails.get() {
                return Err(error());
            }
            self.largest.set(self.largest.get().max(visits.len()));
            for visit in visits {
                assert!(visit.items.len() <= 25);
                let mut seen = self.seen.borrow_mut();
                let newest = seen.entry(visit.token.as_str().to_owned()).or_insert(visit.seen);
                *newest = newest.max(visit.seen);
            }
            let strangers = self.strangers.borrow();
            Ok(visits.iter().map(|visit| !strangers.contains(visit.token.as_str())).collect())
        }

        async fn touch_within_reach(
            &self,
            visits: &[Visit],
        ) -> Result<Vec<Option<bool>>, StoreError> {
            let is_away = |visit: &Visit| self.away.borrow().contains(visit.token.as_str());
            let there: Vec<Visit> = visits.iter().filter(|it| !is_away(it)).cloned().collect();
            let mut held = self.touch_tokens(&there).await?.into_iter();
            let answer = |visit| if is_away(visit) { None } else { held.next() };
            Ok(visits.iter().map(answer).collect())
        }

        async fn count_within_reach(
            &self,
            views: &[(Item, u64)],
        ) -> Result<UncountedViews, StoreError> {
            let is_away = |(item, _): &(Item, u64)| self.away.borrow().contains(item.as_str());
            let (not_sent, there): (Vec<_>, Vec<_>) = views.iter().cloned().partition(is_away);
            self.count_views(&there).await?;
            Ok(UncountedViews { not_sent, unknown: Vec::new() })
        }

        async fn count_views(&self, views: &[(Item, u64)]) -> Result<(), StoreError> {
            self.answer(())?;
            if let Some(error) = self.loses.get() {
                return Err(error());
            }
            for (item, count) in views {
                *self.counts.borrow_mut().entry(item.as_str().to_owned()).or_default() += count;
            }
            Ok(())
        }
    }

    fn token(number: usize) -> StoredToken {
        Token::parse(format!("token-{number:04}").as_bytes()).unwrap().stored(TokenStorage::Plain)
    }

    fn user() -> User {
        User::new(b"ann").unwrap()
    }

    fn item(number: usize) -> Item {
        Item::new(&format!("item-{number}")).unwrap()
    }

    #[tokio::test]
    async fn the_first_touch_goes_at_once_and_later_ones_are_gathered() {
        let (queue, book, start) = (VisitQueue::new(100, 25), Book::default(), Instant::now());
        queue.note(token(1), user(), None, 1.0);
        queue.due().await;
        assert_eq!(queue.drain_at(&book, start, false).await.visits, 1);

        queue.note(token(1), user(), None, 2.0);
        queue.note(token(1), user(), None, 3.0);
        assert_eq!(queue.drain_at(&book, start + REST / 2, false).await.visits, 0);
        assert_eq!(queue.drain_at(&book, start + REST, false).await.visits, 1);
        assert_eq!(book.seen.borrow()["token-0001"], 3.0);

        assert_eq!(queue.drain_at(&book, start + REST * 3, false).await.visits, 0);
        assert_eq!(queue.queued.load(Ordering::Relaxed), 0, "a session at rest is let go");
    }

    #[tokio::test]
    async fn visits_whose_part_of_the_store_is_away_wait_and_delay_no_others() {
        let (queue, book, start) = (VisitQueue::new(100, 25), Book::default(), Instant::now());
        book.away.borrow_mut().insert(token(1).as_str().to_owned());
        book.away.borrow_mut().insert("item-1".to_owned());
        for number in [1, 2] {
            queue.note(token(number), user(), None, 1.0);
            queue.count_view(item(number));
        }
        let later = start + COUNT_EVERY * 2;
        let progress = queue.drain_at(&book, later, false).await;
        assert_eq!((progress.visits, progress.items, progress.postponed), (1, 1, 2));
        assert!(progress.failure.is_none());
        assert_eq!((queue.backlog(), queue.dropped()), (2, 0));

        // A stop does not wait for them.
        let progress = queue.drain_at(&book, later, true).await;
        assert!(progress.failure.is_some() && !progress.more, "{progress:?}");

        book.away.borrow_mut().clear();
        queue.note(token(1), user(), Some(item(3)), 2.0);
        let progress = queue.drain_at(&book, later + POSTPONED * 2, false).await;
        assert_eq!((progress.visits, progress.items, progress.postponed), (1, 1, 0));
        assert_eq!(book.seen.borrow()["token-0001"], 2.0);
        assert_eq!(book.counts.borrow()["item-1"], 1);
        assert_eq!(queue.backlog(), 0);
    }

    #[tokio::test]
    async fn what_waits_for_a_part_of_the_store_takes_half_of_the_queue() {
        let (queue, book, start) = (VisitQueue::new(10, 25), Book::default(), Instant::now());
        for number in 0..10 {
            book.away.borrow_mut().insert(token(number).as_str().to_owned());
        }
        for number in 0..4 {
            queue.note(token(number), user(), None, 1.0);
        }
        assert_eq!(queue.drain_at(&book, start, false).await.postponed, 4);
        for number in 4..10 {
            queue.note(token(number), user(), None, 1.0);
        }
        assert_eq!(queue.drain_at(&book, start, false).await.postponed, 4);
        assert_eq!((queue.backlog(), queue.dropped()), (4, 6));
        // Those that were dropped have left their room.
        queue.drain_at(&book, start + REST_MAX, false).await;
        assert_eq!(queue.queued.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn the_store_result_of_each_visit_is_handed_on() {
        let (queue, book) = (VisitQueue::new(100, 25), Book::default());
        book.strangers.borrow_mut().insert(token(2).as_str().to_owned());
        for number in 0..4 {
            queue.note(token(number), user(), Some(item(number)), 1.0);
        }
        let mut touched = queue.drain(&book).await.touched;
        touched.sort_by(|a, b| a.token.cmp(&b.token));
        let reported: Vec<_> = touched.iter().map(|it| (it.token.as_str(), it.held)).collect();
        let expected = ["token-0000", "token-0001", "token-0002", "token-0003"]
            .map(|token| (token, token != "token-0002"));
        assert_eq!(reported, expected);
        assert!(touched.iter().all(|it| it.user == user()));

        book.refuses.set(true);
        queue.note(token(5), user(), None, 1.0);
        assert!(queue.drain(&book).await.touched.is_empty(), "the outcome is unknown");
    }

    #[tokio::test]
    async fn the_more_sessions_are_busy_the_longer_their_touches_are_gathered() {
        let (queue, book, start) = (VisitQueue::new(100_000, 25), Book::default(), Instant::now());
        for (sessions, rest) in [(500, REST), (2_000, REST * 2), (20_000, REST_MAX)] {
            for number in 0..sessions {
                queue.note(token(number), user(), None, 1.0);
            }
            assert_eq!(queue.rest(), rest, "{sessions} sessions");
        }
        queue.drain_at(&book, start, true).await;
    }

    #[tokio::test]
    async fn views_are_gathered_for_a_second() {
        let (queue, book, start) = (VisitQueue::new(100, 25), Book::default(), Instant::now());
        for _ in 0..3 {
            queue.count_view(item(1));
        }
        assert_eq!(queue.drain_at(&book, start, false).await.items, 0);
        let later = Instant::now() + COUNT_EVERY;
        assert_eq!(queue.drain_at(&book, later, false).await.items, 1);
        assert_eq!(book.counts.borrow()["item-1"], 3);
    }

    #[tokio::test]
    async fn at_the_bound_what_is_new_is_dropped_and_counted() {
        let (queue, book) = (VisitQueue::new(3, 25), Book::default());
        queue.note(token(1), user(), Some(item(1)), 1.0);
        queue.count_view(item(1));
        queue.note(token(2), user(), None, 1.0);
        queue.count_view(item(2));
        queue.note(token(1), user(), Some(item(3)), 5.0);
        queue.count_view(item(1));
        assert_eq!((queue.backlog(), queue.dropped()), (2, 3));

        queue.drain_all(&book).await;
        queue.drain_all(&book).await;
        assert_eq!(book.seen.borrow()["token-0001"], 5.0, "what is known is renewed at the bound");
        assert_eq!(book.counts.borrow()["item-1"], 2);
        queue.note(token(2), user(), Some(item(1)), 1.0);
        assert_eq!((queue.backlog(), queue.dropped()), (1, 3), "there is room again");
    }

    #[tokio::test]
    async fn only_the_newest_items_of_a_session_wait() {
        let (queue, book) = (VisitQueue::new(1000, 25), Book::default());
        for number in 0..100_u8 {
            queue.note(token(1), user(), Some(item(number.into())), f64::from(number));
        }
        let visits = queue.take_visits(Instant::now(), false);
        let oldest = visits[0].items.iter().map(|(_, seen)| *seen).fold(f64::INFINITY, f64::min);
        assert_eq!((visits[0].items.len(), oldest), (25, 75.0));
        drop(TouchFlight { queue: &queue, visits });
        assert_eq!(queue.drain(&book).await.visits, 1);
    }

    #[tokio::test]
    async fn queued_visits_move_to_the_new_token() {
        let (queue, book) = (VisitQueue::new(100, 25), Book::default());
        let bob = User::new(b"bob").unwrap();
        queue.note(token(1), user(), Some(item(1)), 5.0);
        queue.note(token(2), bob, Some(item(2)), 6.0);
        queue.rename(&token(1), &token(3), &user());
        queue.rename(&token(2), &token(4), &user());
        let visits = queue.take_visits(Instant::now(), false);
        assert_eq!(visits.len(), 1, "no other user's visits are taken over: {visits:?}");
        assert_eq!((&visits[0].token, &visits[0].items), (&token(3), &vec![(item(1), 5.0)]));
        drop(TouchFlight { queue: &queue, visits });
        assert_eq!(queue.drain_all(&book).await.visits, 1);
        queue.drain_all(&book).await;
        assert_eq!(queue.queued.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_session_that_was_forgotten_is_not_flushed() {
        let (queue, book) = (VisitQueue::new(100, 25), Book::default());
        queue.note(token(1), user(), Some(item(1)), 1.0);
        queue.forget(&token(1));
        assert_eq!(queue.backlog(), 0);
        assert_eq!(queue.drain(&book).await.visits, 0);
        assert_eq!(queue.queued.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_visit_of_another_user_replaces_the_first_ones() {
        let queue = VisitQueue::new(100, 25);
        queue.note(token(1), user(), Some(item(1)), 1.0);
        queue.note(token(1), User::new(b"bob").unwrap(), None, 2.0);
        let visits = queue.take_visits(Instant::now(), false);
        assert_eq!((visits[0].user.as_bytes(), visits[0].items.len()), (&b"bob"[..], 0));
    }

    fn refused() -> StoreError {
        StoreError::Failed("no room".into())
    }

    #[tokio::test]
    async fn views_are_counted_though_the_store_refuses_touches() {
        for (error, counted) in [(refused as fn() -> _, 1), (|| StoreError::TimedOut, 0)] {
            let (queue, book) = (VisitQueue::new(100, 25), Book::default());
            book.fails.set(Some(error));
            queue.note(token(1), user(), None, 1.0);
            queue.count_view(item(1));
            let progress = queue.drain_all(&book).await;
            assert!(progress.failure.is_some());
            assert_eq!((progress.visits, progress.items), (0, counted));
            assert_eq!(queue.backlog(), 2 - counted, "what was refused waits");
        }
    }

    #[tokio::test]
    async fn visits_are_written_at_their_pace_though_the_store_refuses_views() {
        let (queue, book, now) = (VisitQueue::new(1_000, 25), Book::default(), Instant::now());
        book.loses.set(Some(refused));
        queue.count_view(item(1));
        for number in 0..2 * TOUCH_BATCH {
            queue.note(token(number), user(), None, 1.0);
        }
        for _ in 0..2 {
            let progress = queue.drain_at(&book, now, true).await;
            assert_eq!((progress.visits, progress.failure.is_some()), (TOUCH_BATCH, true));
        }
        assert!(queue.pause_ends().is_none(), "the next visits do not wait");
        assert!(queue.take_counts(now, false).is_empty(), "the view is not tried again at once");
    }

    #[tokio::test]
    async fn views_with_an_unknown_result_are_dropped_and_counted() {
        let unanswered = || StoreError::Unanswered("it broke".into());
        for (error, dropped) in
            [(refused as fn() -> _, 0), (unanswered, 5), (|| StoreError::TimedOut, 5)]
        {
            let (queue, book) = (VisitQueue::new(100, 25), Book::default());
            book.loses.set(Some(error));
            for number in [1, 1, 1, 2, 2] {
                queue.count_view(item(number));
            }
            assert!(queue.drain_all(&book).await.failure.is_some());
            assert_eq!(queue.dropped(), dropped);
            assert_eq!(queue.backlog(), if dropped > 0 { 0 } else { 2 });
        }
    }

    #[tokio::test]
    async fn waiting_for_visits_under_way_finds_them_written() {
        let (queue, book) = (VisitQueue::new(100, 25), Book::default());
        book.waits.set(true);
        queue.note(token(1), user(), None, 1.0);
        let written = || book.seen.borrow().len();
        let landed = async {
            queue.written().await;
            written()
        };
        let answer = async {
            tokio::task::yield_now().await;
            assert_eq!((written(), queue.backlog()), (0, 0));
            book.reported.notify_one();
        };
        let (_, landed, ()) = tokio::join!(queue.drain(&book), landed, answer);
        assert_eq!(landed, 1);
    }

    #[tokio::test]
    async fn a_flush_dropped_half_way_loses_nothing() {
        let queue = VisitQueue::new(100, 25);
        queue.note(token(1), user(), Some(item(1)), 1.0);
        queue.count_view(item(1));
        let now = Instant::now() + COUNT_EVERY * 2;
        let visits = queue.take_visits(now, false);
        queue.note(token(1), user(), Some(item(2)), 2.0);
        drop(TouchFlight { queue: &queue, visits });
        let counts = queue.take_counts(now, false);
        drop(CountFlight { queue: &queue, counts, rest: Duration::ZERO });
        assert_eq!(queue.backlog(), 2);
        let visits = queue.take_visits(now, false);
        assert_eq!((visits[0].seen, visits[0].items.len()), (2.0, 2));
        assert_eq!(queue.take_counts(Instant::now(), false), [(item(1), 1)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_view_counts_once_and_the_newest_touch_wins_despite_failures(
            acts in prop::collection::vec((0_u8..5, 0_usize..80, 0_u32..1000), 1..400),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (queue, book) = (VisitQueue::new(10_000, 25), Book::default());
            let (mut seen, mut counts) = (BTreeMap::new(), BTreeMap::new());
            let mut now = Instant::now();
            for (act, number, time) in acts {
                match act {
                    0 | 1 => {
                        let time = f64::from(time);
                        queue.note(token(number), user(), Some(item(number)), time);
                        let newest = seen.entry(number).or_insert(time);
                        *newest = time.max(*newest);
                    }
                    2 => {
                        queue.count_view(item(number));
                        *counts.entry(number).or_insert(0_u64) += 1;
                    }
                    _ => {
                        now += Duration::from_millis(60);
                        book.refuses.set(act == 3);
                        runtime.block_on(queue.drain_at(&book, now, false));
                    }
                }
            }
            book.refuses.set(false);
            while runtime.block_on(queue.drain_all(&book)).more {}
            runtime.block_on(queue.drain_all(&book));
            prop_assert_eq!(queue.queued.load(Ordering::Relaxed), 0);
            prop_assert_eq!(queue.dropped(), 0);
            prop_assert!(book.largest.get() <= TOUCH_BATCH);
            for (number, time) in seen {
                prop_assert_eq!(book.seen.borrow()[token(number).as_str()], time);
            }
            for (number, count) in counts {
                prop_assert_eq!(book.counts.borrow()[item(number).as_str()], count);
            }
        }
    }
}
