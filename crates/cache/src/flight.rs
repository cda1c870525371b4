//! A flight: one fetch from the origin, shared by all requests for the same page at the same time.
//!
//! A flight is independent of the request that began it. The fetcher pushes the verdict on the head and the
//! parts of the body into it; participants wait for the verdict and read the parts as they arrive. This file
//! has no runtime and no I/O: a mutex and wakers.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use ::http::HeaderMap;
use ahash::RandomState;
use anteroom_fault::fault;
use anteroom_http::ident::PageKey;
use anteroom_origin::SharedPriority;
use anteroom_policy::priority::Priority;
use anteroom_telemetry::reason::Reason;
use bytes::Bytes;
use slab::Slab;

use super::entry::Entry;
use super::purge::scope::ScopeDigest;
use super::purge::{PurgeSnapshot, PurgeTable};

/// How many bytes the slowest reader may lag behind once the parts are no longer kept.
const WINDOW: u64 = 256 * 1024;
/// The number of locks over the table of flights.
const SHARDS: usize = 32;

/// The verdict that the participants of a flight get.
#[derive(Clone, Debug)]
pub enum FlightVerdict {
    /// No verdict yet.
    Pending,
    /// The response may not be shared, for this reason: each participant asks the origin on its own.
    Refused(Reason),
    /// There is no response.
    Failed(FlightFailure),
    /// The response may be shared: its head, and the length of its body where it is known. The body is read
    /// from the flight.
    Shared(Arc<Entry>, Option<u64>),
    /// The whole page as it is kept. It differs from the response, so the body in the flight is not read.
    Landed(Arc<Entry>),
}

/// Why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlightFailure {
    /// The origin was unreachable, or sent no valid response.
    Unusable,
    /// The origin was too slow.
    TimedOut,
    /// The origin was not asked, because no server of it was free.
    Crowded,
    /// The origin was not asked, because no server of it was up.
    Unavailable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlightEnd {
    Whole,
    Cut,
}

#[derive(Debug, Default)]
struct Participant {
    waker: Option<Waker>,
    /// The number of parts read so far.
    read: usize,
}

#[derive(Debug)]
struct FlightState {
    verdict: FlightVerdict,
    parts: VecDeque<Bytes>,
    /// The number of parts that are dropped, because all readers have them.
    gone: usize,
    /// Bytes of the oldest parts that count as in flight; while parts are kept, all do.
    reserved: u64,
    /// Whether parts are kept for participants that join later.
    keeping: bool,
    /// How the body ended, if it has.
    end: Option<FlightEnd>,
    participants: Slab<Participant>,
    /// The fetcher, if it waits for the readers.
    fetcher: Option<Waker>,
    /// An unsafe request has changed the page since the flight began.
    invalidated: bool,
}

/// One fetch, with its participants.
#[derive(Debug)]
pub struct Flight {
    /// The page's key without variants.
    primary: PageKey,
    key: PageKey,
    /// The fields that the fetch sent, with which `Vary` is compared.
    pub sent: HeaderMap,
    /// The snapshot of the future page, as far as it is known without the response: it determines which
    /// purges apply.
    pub purge_snapshot: PurgeSnapshot,
    /// How soon the origin gets the fetch where others wait.
    pub priority: SharedPriority,
    state: Mutex<FlightState>,
    flights: Weak<Flights>,
}

/// One shard of the table of flights.
#[derive(Debug, Default)]
struct FlightShard {
    /// Flights that requests can join.
    joined: HashMap<PageKey, Arc<Flight>, RandomState>,
    /// Flights that accept no more participants, and may still write to the store. A change to the page must
    /// find them, but a new request need not wait for them.
    leaving: Vec<Arc<Flight>>,
}

/// All flights of this process.
#[derive(Debug)]
pub struct Flights {
    /// Sharded by the key without variants, so that a change to a page finds all its flights in one shard.
    shards: [Mutex<FlightShard>; SHARDS],
    in_flight: AtomicU64,
    in_flight_max: u64,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// The result of joining.
#[derive(Debug)]
pub enum JoinResult {
    /// The page has no flight yet: the caller fetches it.
    Lead(Arc<Flight>),
    /// The page has a flight, and the caller has a reader in it.
    Wait(FlightReader),
    /// Too many requests wait already, or the flight accepts no more.
    Full,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks, so a poisoned lock still guards a consistent value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flights {
    /// Creates the table, with at most `in_flight_max` bytes of bodies and `waiting_max` waiting requests.
    #[must_use]
    pub fn new(in_flight_max: u64, waiting_max: usize) -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            in_flight: AtomicU64::new(0),
            in_flight_max,
            waiting: AtomicUsize::new(0),
            waiting_max,
        })
    }

    fn shard(&self, primary: &PageKey) -> MutexGuard<'_, FlightShard> {
        // A key is a hash already.
        lock(&self.shards[usize::from(primary.0[0]) % SHARDS])
    }

    /// Joins the flight for `key`, or begins one that sends `sent` for a page with these purge scopes.
    /// `primary` is the page's key without variants. A flight that began before a matching purge, or whose
    /// page is no longer fresh at `now`, accepts no new participants and is replaced.
    #[must_use]
    pub fn join(
        self: &Arc<Self>,
        primary: PageKey,
        key: PageKey,
        sent: &HeaderMap,
        purged: &PurgeTable,
        scopes: impl FnOnce() -> Vec<ScopeDigest>,
        now: u64,
    ) -> JoinResult {
        let mut shard = self.shard(&primary);
        if let Some(flight) = shard.joined.get(&key)
            && (fault!("flight") || flight.is_current(purged, now))
        {
            return match self.reader(flight, purged) {
                Some(reader) => JoinResult::Wait(reader),
                None => JoinResult::Full,
            };
        }
        let flight = Arc::new(Flight {
            primary,
            key,
            sent: sent.clone(),
            purge_snapshot: purged.now(&scopes()),
            priority: SharedPriority::default(),
            state: Mutex::new(FlightState {
                verdict: FlightVerdict::Pending,
                parts: VecDeque::new(),
                gone: 0,
                reserved: 0,
                keeping: true,
                end: None,
                participants: Slab::new(),
                fetcher: None,
                invalidated: false,
            }),
            flights: Arc::downgrade(self),
        });
        if let Some(outdated) = shard.joined.insert(key, Arc::clone(&flight)) {
            shard.leaving.push(outdated);
        }
        JoinResult::Lead(flight)
    }

    fn reader(self: &Arc<Self>, flight: &Arc<Flight>, purged: &PurgeTable) -> Option<FlightReader> {
        let mut state = lock(&flight.state);
        // A request can still find the flight between this state and its removal from the table. By then the
        // first parts are dropped, or the page is where requests look before they join.
        if !state.keeping || state.end.is_some() {
            return None;
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.waiting_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let place = state.participants.insert(Participant::default());
        let joined = purged.now(&[]);
        Some(FlightReader {
            flight: Arc::clone(flight),
            place,
            waits_in: Some(Arc::clone(self)),
            joined,
        })
    }

    /// An unsafe request has changed the page under `primary`: earlier fetches of it and of its variants are
    /// not stored.
    pub fn invalidate(&self, primary: &PageKey) {
        let is_other = |flight: &Flight| {
            let other = flight.primary != *primary;
            if !other {
                lock(&flight.state).invalidated = true;
            }
            other
        };
        let mut shard = self.shard(primary);
        shard.joined.retain(|_, flight| is_other(flight));
        shard.leaving.retain(|flight| is_other(flight));
    }

    /// Bytes of bodies in flight.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The number of requests that wait for, or read from, another request's fetch.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: u64) -> bool {
        let before = self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes <= self.in_flight_max {
            return true;
        }
        self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        false
    }
}

/// What happened to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushResult {
    /// The part is kept.
    Kept,
    /// The part is the first without room: the page can no longer be stored. Present readers get the part.
    NoRoom,
    /// The part follows one without room; present readers get it.
    PassedOn,
}

impl Flight {
    /// A reader for the request that began the flight. It does not count as waiting.
    #[must_use]
    pub fn leader_reader(self: &Arc<Self>) -> FlightReader {
        let place = lock(&self.state).participants.insert(Participant::default());
        let joined = self.purge_snapshot.clone();
        FlightReader { flight: Arc::clone(self), place, waits_in: None, joined }
    }

    /// Whether a new request may get the page: no purge has hit it since the flight began (tags are checked
    /// once they are known), and it is still fresh.
    fn is_current(&self, purged: &PurgeTable, now: u64) -> bool {
        purged.is_current(&self.purge_snapshot)
            && match &lock(&self.state).verdict {
                FlightVerdict::Shared(entry, _) => {
                    purged.is_current(&entry.purge_snapshot)
                        && (fault!("late") || entry.is_fresh(now))
                }
                FlightVerdict::Pending | FlightVerdict::Refused(_) | FlightVerdict::Failed(_) => {
                    true
                }
                // The page is where requests look first.
                FlightVerdict::Landed(_) => false,
            }
    }

    /// Gives the participants their verdict; a refusal or failure also ends the flight.
    pub fn decide(&self, verdict: FlightVerdict) {
        if !matches!(verdict, FlightVerdict::Shared(..)) {
            self.close();
        }
        self.change(|state| state.verdict = verdict);
    }

    /// Sends all but the first participant to the origin on their own, while the fetch continues and the page
    /// is kept. A change to the page still finds the flight.
    pub fn turn_away(&self, reason: Reason) {
        self.change(|state| state.verdict = FlightVerdict::Refused(reason));
    }

    /// Gives the verdict to participants that still wait for one; the others keep theirs.
    pub fn decide_pending(&self, verdict: FlightVerdict) {
        self.change(|state| {
            if matches!(state.verdict, FlightVerdict::Pending) {
                state.verdict = verdict;
            }
        });
    }

    /// The page is ready: all participants that have joined get it.
    pub fn answer(&self, entry: &Arc<Entry>) {
        self.push(entry.body.clone(), u64::MAX);
        self.decide(FlightVerdict::Shared(Arc::clone(entry), Some(entry.body.len() as u64)));
        self.end_whole();
    }

    /// Whether some request has joined, or the fetcher reads along for the one that began it.
    #[must_use]
    pub fn has_participants(&self) -> bool {
        !lock(&self.state).participants.is_empty()
    }

    /// Adds a part of the body. `limit` is the largest body that may be stored, in bytes.
    pub fn push(&self, part: Bytes, limit: u64) -> PushResult {
        let size = part.len() as u64;
        let pushed = self.change(|state| {
            let room = || self.flights.upgrade().is_some_and(|flights| flights.reserve(size));
            let pushed = if !state.keeping {
                PushResult::PassedOn
            } else if state.reserved + size > limit || !room() {
                state.keeping = false;
                self.give_back(state.drop_read_parts());
                PushResult::NoRoom
            } else {
                state.reserved += size;
                PushResult::Kept
            };
            state.parts.push_back(part);
            pushed
        });
        if pushed == PushResult::NoRoom {
            self.close();
        }
        pushed
    }

    /// Ready when there is room for another part: at once while parts are kept, else when the slowest reader
    /// is close enough. `false`: there are no readers left.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = lock(&self.state);
        if state.keeping {
            return Poll::Ready(true);
        }
        if state.participants.is_empty() {
            return Poll::Ready(false);
        }
        let lag: u64 = state.parts.iter().map(|part| part.len() as u64).sum();
        if lag < WINDOW {
            return Poll::Ready(true);
        }
        state.fetcher = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The kept body in one buffer of exactly its size; `None` if it was not kept whole.
    #[must_use]
    pub fn body(&self) -> Option<Bytes> {
        let state = lock(&self.state);
        if !state.keeping || state.gone > 0 {
            return None;
        }
        let mut whole = Vec::with_capacity(usize::try_from(state.reserved).ok()?);
        state.parts.iter().for_each(|part| whole.extend_from_slice(part));
        Some(whole.into())
    }

    /// The length of the kept body, if it was kept whole.
    #[must_use]
    pub fn whole_length(&self) -> Option<u64> {
        let state = lock(&self.state);
        (state.keeping && state.gone == 0).then_some(state.reserved)
    }

    /// The key under which the page is fetched: the variant's, if variants are known.
    #[must_use]
    pub fn key(&self) -> &PageKey {
        &self.key
    }

    /// Whether an unsafe request has changed the page since the flight began.
    #[must_use]
    pub fn is_invalidated(&self) -> bool {
        lock(&self.state).invalidated
    }

    /// Marks the body as whole. Call this after the page is where the next request will look. A change to the
    /// page still finds the flight until [`EndGuard`] ends it, because the store may not have the page yet.
    pub fn end_whole(&self) {
        // Close first, so that a request never joins a flight that has ended.
        self.close();
        self.change(|state| state.end = Some(FlightEnd::Whole));
    }

    /// Accepts no more participants. A change to the page still finds the flight.
    fn close(&self) {
        let Some(flights) = self.flights.upgrade() else { return };
        let mut shard = flights.shard(&self.primary);
        if shard.joined.get(&self.key).is_some_and(|current| self.is(current))
            && let Some(closed) = shard.joined.remove(&self.key)
        {
            shard.leaving.push(closed);
        }
    }

    /// Removes the flight from the table.
    fn leave(&self) {
        self.close();
        let Some(flights) = self.flights.upgrade() else { return };
        flights.shard(&self.primary).leaving.retain(|other| !self.is(other));
    }

    fn is(&self, other: &Arc<Self>) -> bool {
        std::ptr::eq(self, Arc::as_ptr(other))
    }

    /// Ends the flight early, because the body broke off or the fetcher is gone. Readers get a truncated
    /// body; participants without a verdict ask the origin on their own.
    pub fn end_cut(&self) {
        self.close();
        self.change(|state| {
            if state.end.is_none() {
                state.end = Some(FlightEnd::Cut);
                if matches!(state.verdict, FlightVerdict::Pending) {
                    state.verdict = FlightVerdict::Refused(Reason::Origin);
                }
            }
        });
    }

    /// Changes the state and wakes all participants.
    fn change<T>(&self, change: impl FnOnce(&mut FlightState) -> T) -> T {
        let mut state = lock(&self.state);
        let result = change(&mut state);
        let wakers: Vec<Waker> =
            state.participants.iter_mut().filter_map(|(_, one)| one.waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    fn give_back(&self, bytes: u64) {
        if let Some(flights) = self.flights.upgrade() {
            flights.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let reserved = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).reserved;
        self.give_back(reserved);
    }
}

impl FlightState {
    /// Drops the parts that every reader has, once parts are no longer kept for later participants. Returns
    /// how many of their bytes counted as in flight.
    fn drop_read_parts(&mut self) -> u64 {
        if self.keeping {
            return 0;
        }
        let slowest = self.participants.iter().map(|(_, one)| one.read).min();
        let mut dropped = 0;
        while self.gone < slowest.unwrap_or(usize::MAX)
            && let Some(part) = self.parts.pop_front()
        {
            self.gone += 1;
            dropped += part.len() as u64;
        }
        let freed = dropped.min(self.reserved);
        self.reserved -= freed;
        freed
    }
}

/// A participant's place in a flight.
#[derive(Debug)]
pub struct FlightReader {
    flight: Arc<Flight>,
    place: usize,
    waits_in: Option<Arc<Flights>>,
    /// The position in the order of purges at which the reader was created.
    joined: PurgeSnapshot,
}

/// The origin broke off the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the origin broke off")]
pub struct BodyCutOff;

impl FlightReader {
    /// The fetch is as urgent as this request is, at least.
    pub fn raise(&self, priority: Priority) {
        self.flight.priority.raise(priority);
    }

    /// The fields that the fetch sent.
    #[must_use]
    pub fn sent(&self) -> &HeaderMap {
        &self.flight.sent
    }

    /// Whether a purge may have occurred between the start of the fetch and the creation of this reader.
    #[must_use]
    pub fn is_later(&self) -> bool {
        !self.joined.is_as_old_as(&self.flight.purge_snapshot)
    }

    /// Waits for the verdict. Cancel-safe.
    pub async fn verdict(&mut self) -> FlightVerdict {
        std::future::poll_fn(|cx| {
            let mut state = lock(&self.flight.state);
            if let FlightVerdict::Pending = state.verdict {
                self.wait(&mut state, cx)
            } else {
                Poll::Ready(state.verdict.clone())
            }
        })
        .await
    }

    /// The next part of the body; `None` at its end.
    pub fn poll_part(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyCutOff>>> {
        let mut state = lock(&self.flight.state);
        let read = state.participants[self.place].read;
        if let Some(part) = state.parts.get(read - state.gone).cloned() {
            state.participants[self.place].read += 1;
            let fetcher = self.after_read(&mut state);
            drop(state);
            if let Some(fetcher) = fetcher {
                fetcher.wake();
            }
            return Poll::Ready(Some(Ok(part)));
        }
        match state.end {
            Some(FlightEnd::Whole) => Poll::Ready(None),
            Some(FlightEnd::Cut) => Poll::Ready(Some(Err(BodyCutOff))),
            None => self.wait(&mut state, cx),
        }
    }

    fn after_read(&self, state: &mut FlightState) -> Option<Waker> {
        self.flight.give_back(state.drop_read_parts());
        if state.keeping { None } else { state.fetcher.take() }
    }

    fn wait<T>(&self, state: &mut FlightState, cx: &mut Context<'_>) -> Poll<T> {
        state.participants[self.place].waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for FlightReader {
    fn drop(&mut self) {
        let mut state = lock(&self.flight.state);
        state.participants.remove(self.place);
        let fetcher = self.after_read(&mut state);
        drop(state);
        if let Some(fetcher) = fetcher {
            fetcher.wake();
        }
        if let Some(flights) = &self.waits_in {
            flights.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Ends the flight as truncated when dropped, so that a fetcher that is cancelled or panics leaves no
/// participant waiting. If the flight has already ended, it is removed from the table.
#[derive(Debug)]
pub struct EndGuard(pub Arc<Flight>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end_cut();
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;

    use super::*;
    use crate::page_fields::PageFields;

    const KEY: PageKey = PageKey([1; 32]);

    fn join(flights: &Arc<Flights>, primary: PageKey, key: PageKey) -> JoinResult {
        join_at(flights, primary, key, 0)
    }

    fn join_at(flights: &Arc<Flights>, primary: PageKey, key: PageKey, now: u64) -> JoinResult {
        flights.join(primary, key, &HeaderMap::new(), &PurgeTable::new(false), Vec::new, now)
    }

    fn lead(flights: &Arc<Flights>) -> Arc<Flight> {
        match join(flights, KEY, KEY) {
            JoinResult::Lead(flight) => flight,
            other => panic!("{other:?}"),
        }
    }

    fn wait(flights: &Arc<Flights>) -> FlightReader {
        match join(flights, KEY, KEY) {
            JoinResult::Wait(reader) => reader,
            other => panic!("{other:?}"),
        }
    }

    fn poll<F: Future>(future: F) -> Poll<F::Output> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn part(reader: &mut FlightReader) -> Poll<Option<Result<Bytes, BodyCutOff>>> {
        Pin::new(reader).poll_part(&mut Context::from_waker(Waker::noop()))
    }

    fn shared() -> FlightVerdict {
        FlightVerdict::Shared(
            Arc::new(Entry {
                status: 200,
                reason: None,
                fields: PageFields::default(),
                body: Bytes::new(),
                stored_at: 0,
                initial_age: 0,
                lifetime: 1,
                source: crate::entry::LifetimeSource::Default,
                stale: crate::entry::StaleLifetimes::default(),
                static_proof: false,
                has_own_etag: false,
                vary: Vec::new(),
                purge_snapshot: Arc::default(),
                recipe: None,
                hits: crate::hit_count::HitCount::default(),
            }),
            None,
        )
    }

    #[test]
    fn all_read_one_fetch_whole() {
        let flights = Flights::new(1 << 20, 10);
        let flight = lead(&flights);
        let mut early = wait(&flights);
        assert!(poll(early.verdict()).is_pending());
        flight.decide(shared());
        assert_eq!(flight.push(Bytes::from_static(b"ab"), 100), PushResult::Kept);
        let mut late = wait(&flights);
        flight.push(Bytes::from_static(b"c"), 100);
        assert_eq!(flight.body().unwrap(), "abc");
        flight.end_whole();
        for reader in [&mut early, &mut late] {
            assert!(matches!(poll(reader.verdict()), Poll::Ready(FlightVerdict::Shared(..))));
            assert_eq!(part(reader), Poll::Ready(Some(Ok("ab".into()))));
            assert_eq!(part(reader), Poll::Ready(Some(Ok("c".into()))));
            assert_eq!(part(reader), Poll::Ready(None));
        }
        drop((early, late));
        assert_eq!(flights.waiting(), 0);
        assert!(!flight.is_invalidated());
        let next = lead(&flights);
        flights.invalidate(&KEY);
        assert!(flight.is_invalidated(), "the store may not have the page yet");
        assert!(next.is_invalidated());
        drop((EndGuard(flight), EndGuard(next)));
        assert!(flights.shard(&KEY).leaving.is_empty());
    }

    #[test]
    fn a_flight_with_an_expired_page_takes_no_new_readers() {
        let flights = Flights::new(1 << 20, 10);
        let flight = lead(&flights);
        let mut early = wait(&flights);
        flight.decide(shared());
        assert!(matches!(join_at(&flights, KEY, KEY, 0), JoinResult::Wait(_)));
        assert!(matches!(join_at(&flights, KEY, KEY, 1), JoinResult::Lead(_)));
        assert!(matches!(poll(early.verdict()), Poll::Ready(FlightVerdict::Shared(..))));
    }

    #[test]
    fn a_closed_flight_leaves_the_table_with_its_guard() {
        let flights = Flights::new(1 << 20, 10);
        let refused = EndGuard(lead(&flights));
        refused.0.decide(FlightVerdict::Refused(Reason::Private));
        let landed = EndGuard(lead(&flights));
        landed.0.end_whole();
        assert_eq!(flights.shard(&KEY).leaving.len(), 2);
        drop((refused, landed));
        let shard = flights.shard(&KEY);
        assert_eq!((shard.joined.len(), shard.leaving.len()), (0, 0));
    }

    #[test]
    fn a_flight_without_its_first_parts_takes_no_new_readers() {
        let flights = Flights::new(1 << 20, 10);
        let flight = lead(&flights);
        flight.decide(shared());
        flight.push(Bytes::from_static(b"first"), 100);
        // The state between the last part that was kept and the removal from the table.
        lock(&flight.state).keeping = false;
        flight.push(Bytes::from_static(b"second"), 100);
        assert!(matches!(join(&flights, KEY, KEY), JoinResult::Full));
        assert_eq!(flights.waiting(), 0);
    }

    #[test]
    fn bytes_unread_by_a_slow_reader_stay_counted() {
        let flights = Flights::new(1 << 20, 10);
        let flight = lead(&flights);
        flight.decide(shared());
        let mut slow = wait(&flights);
        flight.push(Bytes::from_static(b"12345"), 10);
        flight.push(Bytes::from_static(b"67890"), 10);
        assert_eq!(flight.push(Bytes::from_static(b"over"), 10), PushResult::NoRoom);
        assert_eq!(flights.bytes(), 10, "they are in memory still");
        assert!(matches!(part(&mut slow), Poll::Ready(Some(Ok(_)))));
        assert_eq!(flights.bytes(), 5);
        drop(slow);
        assert_eq!(flights.bytes(), 0);
    }

    #[test]
    fn a_page_found_in_the_cache_is_given_to_all_waiters() {
        let flights = Flights::new(1 << 20, 10);
        let flight = lead(&flights);
        let mut reader = wait(&flights);
        let FlightVerdict::Shared(entry, _) = shared() else { panic!("it is shared") };
        flight.answer(&Arc::new(Entry { body: "page".into(), ..Entry::clone(&entry) }));
        assert!(matches!(poll(reader.verdict()), Poll::Ready(FlightVerdict::Shared(_, Some(4)))));
        assert_eq!(part(&mut reader), Poll::Ready(Some(Ok("page".into()))));
        assert_eq!(part(&mut reader), Poll::Ready(None));
        lead(&flights);
    }

    #[test]
    fn bytes_in_flight_are_given_back() {
        let flights = Flights::new(10, 10);
        let flight = lead(&flights);
        assert_eq!(flight.push(Bytes::from_static(b"12345678"), 100), PushResult::Kept);
        assert_eq!(flights.bytes(), 8);
        assert_eq!(flight.push(Bytes::from_static(b"9012"), 100), PushResult::NoRoom);
        assert_eq!(flights.bytes(), 0);
        assert!(flight.body().is_none());
        drop(flight);
        assert_eq!(flights.bytes(), 0);
    }

    #[test]
    fn a_refusal_sends_everyone_away_and_frees_the_key() {
        let flights = Flights::new(1 << 20, 10);
        let flight = lead(&flights);
        let mut reader = wait(&flights);
        flight.decide(FlightVerdict::Refused(Reason::SetCookie));
        assert!(matches!(
            poll(reader.verdict()),
            Poll::Ready(FlightVerdict::Refused(Reason::SetCookie))
        ));
        lead(&flights);
    }

    #[test]
    fn a_dropped_fetcher_leaves_no_request_waiting() {
        let flights = Flights::new(1 << 20, 10);
        let guard = EndGuard(lead(&flights));
        let mut waiting = wait(&flights);
        drop(guard);
        assert!(matches!(poll(waiting.verdict()), Poll::Ready(FlightVerdict::Refused(_))));

        let guard = EndGuard(lead(&flights));
        guard.0.decide(shared());
        guard.0.push(Bytes::from_static(b"half"), 100);
        let mut reading = wait(&flights);
        drop(guard);
        assert!(matches!(part(&mut reading), Poll::Ready(Some(Ok(_)))));
        assert_eq!(part(&mut reading), Poll::Ready(Some(Err(BodyCutOff))), "never a short body");
    }

    #[test]
    fn over_the_limit_present_readers_set_the_pace_and_late_comers_are_on_their_own() {
        let flights = Flights::new(1 << 30, 10);
        let flight = lead(&flights);
        flight.decide(shared());
        let mut reader = wait(&flights);
        let big = Bytes::from(vec![0; 200_000]);
        assert_eq!(flight.push(big.clone(), 100_000), PushResult::NoRoom);
        assert!(matches!(join(&flights, KEY, KEY), JoinResult::Lead(_)));
        let room = |flight: &Flight| flight.poll_room(&mut Context::from_waker(Waker::noop()));
        assert_eq!(room(&flight), Poll::Ready(true));
        assert_eq!(flight.push(big, 100_000), PushResult::PassedOn);
        assert!(room(&flight).is_pending(), "the reader lags");
        assert!(matches!(part(&mut reader), Poll::Ready(Some(Ok(_)))));
        assert_eq!(room(&flight), Poll::Ready(true));
        drop(reader);
        assert_eq!(room(&flight), Poll::Ready(false), "no reader reads");
    }

    #[test]
    fn waiting_is_bounded() {
        let flights = Flights::new(1 << 20, 1);
        let _flight = lead(&flights);
        let _seat = wait(&flights);
        assert!(matches!(join(&flights, KEY, KEY), JoinResult::Full));
    }

    #[test]
    fn an_invalidated_flight_is_marked_and_takes_no_new_readers() {
        let flights = Flights::new(1 << 20, 10);
        let flight = lead(&flights);
        flights.invalidate(&KEY);
        assert!(flight.is_invalidated());
        lead(&flights);
    }

    #[test]
    fn a_change_to_a_page_is_known_to_the_flights_of_its_variants() {
        let flights = Flights::new(1 << 20, 10);
        let begin = |primary, key| match join(&flights, primary, key) {
            JoinResult::Lead(flight) => flight,
            other => panic!("{other:?}"),
        };
        // Both fall into one shard.
        let variant = begin(KEY, PageKey([2; 32]));
        let other = begin(PageKey([1 + 32; 32]), PageKey([3; 32]));
        flights.invalidate(&KEY);
        assert!(variant.is_invalidated());
        assert!(!other.is_invalidated());
    }
}
