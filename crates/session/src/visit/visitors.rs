//! Visits with a visitor token, on their way to the store: noted on the hot path by any thread,
//! flushed by a task.
//!
//! They have a queue of their own, so that invented tokens take no room from sessions. Touches
//! within a tenth of a second are one visit; visits that the store refuses are put back. The flush
//! finds out which tokens are gone.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ahash::RandomState;
use anteroom_http::ident::{Item, VisitorToken};
use quick_cache::sync::Cache;
use tokio::sync::Notify;

use anteroom_store::{StoreError, VisitorStore, VisitorVisit};

/// How long visits are gathered.
const GATHER: Duration = Duration::from_millis(100);
/// Tokens in one flush step.
const BATCH: usize = 250;
/// The most tokens known to be gone; the least used are evicted first, and found out again.
const GONE_MAX: usize = 50_000;
/// How long, at most, the views of a token that the store did not have wait for the login that may have merged it: as
/// long as a write to the store may take. The next flight ends it, too.
const MISSED_FOR: Duration = Duration::from_secs(2);

/// Visits that wait for the store.
#[derive(Debug)]
pub struct VisitorVisits {
    /// A short lock that is never held across an await.
    waiting: Mutex<WaitingVisits>,
    capacity: usize,
    /// The most items kept for one token: the store would cut further ones.
    items: usize,
    gone: Cache<VisitorToken, GoneReason>,
    dropped: AtomicU64,
    /// Whether the last flush found visits whose part of the store is away.
    parts_are_away: AtomicBool,
    /// Wakes the flushing task.
    news: Notify,
    /// Held during a flush: once it is released, what was in flight is in the store, or back here.
    flushing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct WaitingVisits {
    visits: HashMap<VisitorToken, PendingVisit, RandomState>,
    /// Tokens and items in the queue.
    queued: usize,
    /// The items in flight to the store, if they were not taken meanwhile: a batch at most.
    flying: HashMap<VisitorToken, Vec<(Item, f64)>, RandomState>,
    /// The items of the last flight for which the store had no token: a login may have merged the
    /// token a moment before.
    missed: HashMap<VisitorToken, Vec<(Item, f64)>, RandomState>,
    /// When that flight landed.
    missed_at: Option<Instant>,
}

/// Why a token is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoneReason {
    /// It was merged or forgotten here.
    Ended,
    /// The store does not have it.
    Absent,
}

/// What is to be flushed for one token.
#[derive(Debug)]
struct PendingVisit {
    seen: f64,
    items: Vec<(Item, f64)>,
}

impl VisitorVisits {
    /// A queue that holds at most `capacity` tokens and items together, and at most `items` of one
    /// token.
    #[must_use]
    pub fn new(capacity: usize, items: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            capacity,
            items,
            gone: Cache::new(GONE_MAX),
            dropped: AtomicU64::new(0),
            parts_are_away: AtomicBool::new(false),
            news: Notify::new(),
            flushing: tokio::sync::Mutex::default(),
        }
    }

    /// Notes that a token was seen at `seen` (Unix time in seconds), viewing `item`. At the limit
    /// the visit, or its item, is dropped and counted.
    pub fn note(&self, token: VisitorToken, item: Option<Item>, seen: f64) {
        let items = item.map(|item| (item, seen)).into_iter().collect();
        self.add(&mut self.lock(), VisitorVisit { token, seen, items });
        self.news.notify_one();
    }

    fn add(&self, waiting: &mut WaitingVisits, visit: VisitorVisit) {
        let VisitorVisit { token, seen, items } = visit;
        let WaitingVisits { visits, queued: held, .. } = waiting;
        let mut reserve = || {
            let has_room = *held < self.capacity;
            *held += usize::from(has_room);
            self.dropped.fetch_add(u64::from(!has_room), Ordering::Relaxed);
            has_room
        };
        let pending = match visits.entry(token) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if !reserve() => return,
            Entry::Vacant(unknown) => unknown.insert(PendingVisit { seen, items: Vec::new() }),
        };
        pending.seen = pending.seen.max(seen);
        for (item, seen) in items {
            let known = pending.items.iter_mut().find(|(known, _)| *known == item);
            if let Some((_, known)) = known {
                *known = known.max(seen);
            } else if pending.items.len() < self.items {
                if reserve() {
                    pending.items.push((item, seen));
                }
            } else if let Some(oldest) =
                pending.items.iter_mut().min_by(|(_, a), (_, b)| a.total_cmp(b))
                && oldest.1 < seen
            {
                *oldest = (item, seen);
            }
        }
    }

    /// Ends a token that is merged or forgotten. Returns its views that wait, to be recorded by the caller: the items, each
    /// with the time of its view. Views in flight to the store are among them, because they may arrive there too late, and
    /// those of the last flight that did. `None`: it has ended before, and what is left of it is dropped.
    ///
    /// One step, so that no view is taken twice, or behind the end.
    pub fn end(&self, token: &VisitorToken) -> Option<Vec<(Item, f64)>> {
        let mut waiting = self.lock();
        let has_ended = self.gone.get(token) == Some(GoneReason::Ended);
        self.gone.insert(token.clone(), GoneReason::Ended);
        let mut items = waiting.missed.remove(token).unwrap_or_default();
        if waiting.missed_at.is_none_or(|at| at.elapsed() > MISSED_FOR) {
            items.clear();
        }
        items.extend(waiting.flying.remove(token).unwrap_or_default());
        if let Some(pending) = waiting.visits.remove(token) {
            waiting.queued -= 1 + pending.items.len();
            items.extend(pending.items);
        }
        (!has_ended).then_some(items)
    }

    /// Whether a token has ended here, or the store does not have it.
    #[must_use]
    pub fn is_gone(&self, token: &VisitorToken) -> bool {
        self.gone.get(token).is_some()
    }

    /// How many tokens have pending visits.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.lock().visits.len()
    }

    /// How many visits and views were lost to the limit.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns when there is something to flush, and has been for a moment.
    pub async fn due(&self) {
        while self.backlog() == 0 {
            self.news.notified().await;
        }
        tokio::time::sleep(GATHER).await;
    }

    /// One flush step of bounded size. Returns how many visits it passed to the store.
    ///
    /// # Errors
    /// When the store fails. Visits that it did not take are put back, also when the future is
    /// dropped half way; visits may reach the store twice, which changes nothing.
    pub async fn flush<S: VisitorStore>(&self, store: &S) -> Result<usize, StoreError> {
        let _turn = self.flushing.lock().await;
        let mut flight = Flight { queue: self, visits: self.some() };
        if flight.visits.is_empty() {
            return Ok(0);
        }
        let held = store.touch_visitors_within_reach(&flight.visits).await?;
        let mut landed = 0;
        for (visit, held) in mem::take(&mut flight.visits).into_iter().zip(held) {
            match held {
                Some(is_there) => {
                    landed += 1;
                    if !is_there {
                        self.miss(visit.token);
                    }
                }
                // Put back on drop.
                None => flight.visits.push(visit),
            }
        }
        self.parts_are_away.store(!flight.visits.is_empty(), Ordering::Relaxed);
        if self.lock().queued > self.capacity / 2 {
            // The parts of the store that are there need the rest of the queue.
            self.dropped.fetch_add(flight.visits.len() as u64, Ordering::Relaxed);
            flight.visits.clear();
        }
        Ok(landed)
    }

    /// The store does not have a token. Its views are kept for a moment, unless they were taken while they were in
    /// flight.
    fn miss(&self, token: VisitorToken) {
        let mut waiting = self.lock();
        if self.gone.get(&token) == Some(GoneReason::Ended) {
            return;
        }
        self.gone.insert(token.clone(), GoneReason::Absent);
        if let Some(items) = waiting.flying.remove(&token) {
            waiting.missed.insert(token, items);
            waiting.missed_at = Some(Instant::now());
        }
    }

    /// Takes a batch.
    fn some(&self) -> Vec<VisitorVisit> {
        let mut waiting = self.lock();
        // While a part of the store is away, its visits must not hold up those behind them.
        let first = match self.parts_are_away.load(Ordering::Relaxed) {
            true => fastrand::usize(..waiting.visits.len().saturating_sub(BATCH).max(1)),
            false => 0,
        };
        let tokens: Vec<_> = waiting.visits.keys().skip(first).take(BATCH).cloned().collect();
        let mut visits = Vec::with_capacity(tokens.len());
        waiting.missed.clear();
        for token in tokens {
            let Some(PendingVisit { seen, items }) = waiting.visits.remove(&token) else {
                continue;
            };
            waiting.queued -= 1 + items.len();
            waiting.flying.insert(token.clone(), items.clone());
            visits.push(VisitorVisit { token, seen, items });
        }
        visits
    }

    fn lock(&self) -> MutexGuard<'_, WaitingVisits> {
        // Every change under it is complete before anything could panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Visits in flight to the store; put back on drop unless they have landed.
struct Flight<'q> {
    queue: &'q VisitorVisits,
    visits: Vec<VisitorVisit>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        let flying = mem::take(&mut waiting.flying);
        // What was taken meanwhile is recorded elsewhere, or forgotten.
        let left = self.visits.drain(..).filter(|visit| flying.contains_key(&visit.token));
        left.for_each(|visit| self.queue.add(&mut waiting, visit));
    }
}

#[cfg(test)]
mod tests {
    use anteroom_http::ident::Token;
    use anteroom_store::scratch::with_store;

    use super::*;

    fn token() -> VisitorToken {
        VisitorToken::of(&Token::mint().unwrap())
    }

    fn item(number: usize) -> Item {
        Item::new(&format!("item-{number}")).unwrap()
    }

    #[test]
    fn visits_of_a_visitor_are_merged_and_gone_visitors_are_known() {
        with_store(async |store| {
            let (queue, here, gone) = (VisitorVisits::new(100, 25), token(), token());
            store.begin_visitor(&here, &item(0), 1.0).await.unwrap();
            for (number, seen) in [(1, 5.0), (2, 6.0), (1, 7.0)] {
                queue.note(here.clone(), Some(item(number)), seen);
                queue.note(gone.clone(), None, seen);
            }
            queue.due().await;
            assert_eq!((queue.backlog(), queue.flush(&store).await.unwrap()), (2, 2));
            let viewed = store.visitor_viewed(&here).await.unwrap();
            assert_eq!(viewed, [(item(1), 7.0), (item(2), 6.0), (item(0), 1.0)]);
            assert!(queue.is_gone(&gone) && !queue.is_gone(&here));
            assert_eq!((queue.backlog(), queue.lock().queued), (0, 0));
        });
    }

    #[test]
    fn the_queue_has_a_bound_in_all_and_for_each() {
        let (queue, one) = (VisitorVisits::new(10, 3), token());
        for number in 0..6 {
            queue.note(one.clone(), Some(item(number)), number as f64);
        }
        let taken = queue.end(&one).unwrap().into_iter();
        let mut newest: Vec<_> = taken.map(|(item, _)| item).collect();
        newest.sort_unstable();
        assert_eq!(newest, [item(3), item(4), item(5)]);
        for _ in 0..20 {
            queue.note(token(), Some(item(1)), 1.0);
        }
        assert_eq!((queue.backlog(), queue.lock().queued), (5, 10));
        assert_eq!(queue.dropped(), 15);
    }

    #[test]
    fn visits_being_stored_are_taken_once() {
        let (queue, one) = (VisitorVisits::new(10, 3), token());
        queue.note(one.clone(), Some(item(1)), 1.0);
        let flight = Flight { queue: &queue, visits: queue.some() };
        queue.note(one.clone(), Some(item(2)), 2.0);
        assert_eq!(queue.end(&one).unwrap(), [(item(1), 1.0), (item(2), 2.0)]);
        // Nor are they put back where the store fails, and what comes later is dropped.
        drop(flight);
        queue.note(one.clone(), Some(item(3)), 3.0);
        assert_eq!(queue.end(&one), None);
        assert_eq!((queue.backlog(), queue.lock().queued), (0, 0));
    }

    #[test]
    fn views_that_reach_the_store_behind_a_merge_are_taken_until_the_next_flight() {
        with_store(async |store| {
            let (queue, merged, late) = (VisitorVisits::new(10, 3), token(), token());
            queue.note(merged.clone(), Some(item(1)), 1.0);
            assert_eq!(queue.flush(&store).await.unwrap(), 1);
            assert!(queue.is_gone(&merged));
            assert_eq!(queue.end(&merged).unwrap(), [(item(1), 1.0)]);
            assert_eq!(queue.end(&merged), None);
            queue.note(late.clone(), Some(item(2)), 2.0);
            queue.flush(&store).await.unwrap();
            queue.flush(&store).await.unwrap();
            assert!(queue.end(&late).unwrap().is_empty());
        });
    }

    #[test]
    fn views_of_a_token_that_ended_in_their_flight_are_not_taken_later() {
        let (queue, ended) = (VisitorVisits::new(10, 3), token());
        queue.note(ended.clone(), Some(item(1)), 1.0);
        let mut flight = Flight { queue: &queue, visits: queue.some() };
        queue.end(&ended);
        // The flight lands, and the store has no such token.
        queue.miss(flight.visits.pop().unwrap().token);
        drop(flight);
        assert_eq!(queue.end(&ended), None);
        assert!(queue.is_gone(&ended));
    }

    #[test]
    fn visits_the_store_does_not_take_keep_waiting() {
        let (queue, one) = (VisitorVisits::new(10, 3), token());
        queue.note(one.clone(), Some(item(1)), 1.0);
        let flight = Flight { queue: &queue, visits: queue.some() };
        queue.note(one.clone(), Some(item(2)), 2.0);
        drop(flight);
        let mut both = queue.end(&one).unwrap();
        both.sort_unstable_by(|a, b| a.1.total_cmp(&b.1));
        assert_eq!(both, [(item(1), 1.0), (item(2), 2.0)]);
        assert_eq!(queue.lock().queued, 0);
    }
}
