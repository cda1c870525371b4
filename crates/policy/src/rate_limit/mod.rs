//! Rate limits: how many requests one address, or one session, may send in a span of time.
//!
//! The arithmetic is governor's (GCRA): a time for each address or session, in a table of fixed size that all
//! limits and threads share. A full table drops an entry that was counted once before one that was counted
//! often, and a dropped entry restarts: a flood of addresses mostly displaces its own entries. Which address
//! and session a request counts for is decided elsewhere. `handed_rates` is what a successor is told.

mod handed_rates;
mod token_hasher;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ahash::RandomState;
use governor::clock::{Clock, MonotonicClock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use quick_cache::unsync::Cache;

use anteroom_http::ident::{StoredToken, holder};

pub use handed_rates::{RateReader, hand_out};
use token_hasher::TokenHasher;

/// Locks that the threads share. A power of two.
const SHARDS: usize = 16;
/// How often the log reports a limit that is exceeded.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// A number of requests per span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests.
    pub requests: NonZeroU32,
    /// The span of time.
    pub per: Duration,
    /// The requests allowed at once after a pause.
    pub burst: NonZeroU32,
}

impl Rate {
    /// A limiter of this rate, for one subject.
    #[must_use]
    pub fn limiter(&self) -> DefaultDirectRateLimiter {
        RateLimiter::direct(self.quota())
    }

    fn quota(&self) -> Quota {
        let quota = Quota::with_period(self.each()).expect("a span that is not nothing");
        quota.allow_burst(self.burst)
    }

    /// The time after which a request is forgotten.
    fn each(&self) -> Duration {
        // The shortest span that counts is a nanosecond.
        (self.per / self.requests.get()).max(Duration::from_nanos(1))
    }
}

/// The subject of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RateKey {
    /// All clients at an address.
    Address(IpAddr),
    /// A session, by the hash of its token.
    Session(u128),
}

impl RateKey {
    /// The clients at this address.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self::Address(holder(address))
    }
}

/// The times at which each address and session may send again, for all limits.
#[derive(Debug)]
pub struct RateLimitCounters {
    /// How tokens are hashed. A process that takes over does as the one before; any other chooses at the first token.
    tokens: OnceLock<TokenHasher>,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

/// Nanoseconds since the limit began, by the limit's number and what is counted.
type Shard = Cache<(u32, RateKey), u64>;

impl RateLimitCounters {
    /// Room for `max` addresses and sessions.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        let (tokens, hasher) = (OnceLock::new(), RandomState::new());
        let each = max.div_ceil(SHARDS);
        let shards = std::array::from_fn(|_| Mutex::new(Cache::new(each)));
        Arc::new(Self { tokens, hasher, shards })
    }

    /// The holder of this token.
    #[must_use]
    pub fn session(&self, token: &StoredToken) -> RateKey {
        RateKey::Session(self.tokens().hash(token))
    }

    fn tokens(&self) -> &TokenHasher {
        self.tokens.get_or_init(TokenHasher::random)
    }

    fn shard(&self, key: &(u32, RateKey)) -> &Mutex<Shard> {
        &self.shards[(self.hasher.hash_one(key) >> 60) as usize & (SHARDS - 1)]
    }

    /// Shows each time, with the limit's number and what is counted.
    fn each(&self, mut see: impl FnMut(u32, RateKey, u64)) {
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.iter().for_each(|((number, who), at)| see(*number, *who, *at));
        }
    }

    fn put(&self, key: (u32, RateKey), at: u64) {
        self.shard(&key).lock().unwrap_or_else(PoisonError::into_inner).insert(key, at);
    }
}

/// The part of the counters that belongs to one limit.
#[derive(Debug)]
struct Part {
    counters: Arc<RateLimitCounters>,
    number: u32,
}

impl StateStore for Part {
    type Key = RateKey;

    fn measure_and_replace<T, F, E>(&self, who: &RateKey, judge: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let key = (self.number, *who);
        // What runs under this lock is arithmetic, which the bounds of a rate keep from overflowing.
        let mut shard = self.counters.shard(&key).lock().unwrap_or_else(PoisonError::into_inner);
        let (outcome, next) = judge(shard.get(&key).map(|at| Nanos::new(*at)))?;
        shard.insert(key, next.into());
        Ok(outcome)
    }
}

/// One limit, shared by all threads.
#[derive(Debug)]
pub struct Limit<C: Clock = MonotonicClock> {
    /// What it is called in metrics and in the log: the name of its route, or `*` for all requests.
    pub name: Arc<str>,
    counters: Arc<RateLimitCounters>,
    number: u32,
    /// When its times begin. The limiter has read the clock a moment later.
    began: C::Instant,
    /// The most that a time is ahead, in nanoseconds: after a whole burst at once.
    most_ahead: u64,
    limiter: RateLimiter<RateKey, Part, C, NoOpMiddleware<C::Instant>>,
    log_limiter: RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>,
}

impl Limit {
    /// A limit with a number that no other has on these counters.
    #[must_use]
    pub fn new(name: Arc<str>, rate: Rate, counters: Arc<RateLimitCounters>, number: u32) -> Self {
        Self::by(name, rate, counters, number, &MonotonicClock)
    }
}

impl<C: Clock + Clone> Limit<C> {
    fn by(
        name: Arc<str>,
        rate: Rate,
        counters: Arc<RateLimitCounters>,
        number: u32,
        clock: &C,
    ) -> Self {
        let began = clock.now();
        let part = Part { counters: Arc::clone(&counters), number };
        let limiter = RateLimiter::new(rate.quota(), part, clock.clone());
        let most_ahead = nanoseconds(rate.each()).saturating_mul(rate.burst.get().into());
        let rarely = Quota::with_period(LOG_EVERY).expect("a span that is not nothing");
        let told = RateLimiter::new(rarely, InMemoryState::default(), clock.clone());
        Self { name, counters, number, began, most_ahead, limiter, log_limiter: told }
    }

    /// The nanoseconds since its times began.
    fn elapsed(&self) -> u64 {
        Reference::duration_since(&self.limiter.clock().now(), self.began).into()
    }

    /// Goes on with a time that is so far ahead in another process. Under another rate it is no further ahead than one burst.
    fn resume(&self, who: RateKey, ahead: Duration) {
        let ahead = nanoseconds(ahead).min(self.most_ahead);
        self.counters.put((self.number, who), self.elapsed().saturating_add(ahead));
    }

    /// Counts a request.
    ///
    /// # Errors
    /// When it is one too many: the time after which one more is none.
    pub fn take(&self, who: RateKey) -> Result<(), Duration> {
        let over = match self.limiter.check_key(&who) {
            Ok(()) => return Ok(()),
            Err(over) => over,
        };
        Err(over.wait_time_from(self.limiter.clock().now()))
    }

    /// Whether it is time to tell that the limit is reached: once a minute.
    #[must_use]
    pub fn may_log(&self) -> bool {
        self.log_limiter.check().is_ok()
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The limits of all requests, or of those of a route.
#[derive(Clone, Debug, Default)]
pub struct RequestLimits {
    /// For each address.
    pub address: Option<Arc<Limit>>,
    /// For each session, and for each address without one that is known.
    pub session: Option<Arc<Limit>>,
}

impl RequestLimits {
    /// Whether nothing is counted.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.address.is_none() && self.session.is_none()
    }
}

/// Makes limits, each with a number of its own on counters that they share.
#[derive(Debug)]
pub struct RateLimitBuilder {
    counters: Option<Arc<RateLimitCounters>>,
    number: u32,
}

impl RateLimitBuilder {
    /// Limits on `counters`; `None` where nothing is limited.
    #[must_use]
    pub fn new(counters: Option<Arc<RateLimitCounters>>) -> Self {
        Self { counters, number: 0 }
    }

    /// The limits called `name`.
    pub fn limits(
        &mut self,
        name: &str,
        address: Option<Rate>,
        session: Option<Rate>,
    ) -> RequestLimits {
        let mut limit = |rate: Rate| {
            let counters = Arc::clone(self.counters.as_ref()?);
            self.number += 1;
            Some(Arc::new(Limit::new(name.into(), rate, counters, self.number)))
        };
        RequestLimits {
            address: address.and_then(&mut limit),
            session: session.and_then(&mut limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rate(requests: u32, per: Duration, burst: u32) -> Rate {
        let some = |number| NonZeroU32::new(number).unwrap();
        Rate { requests: some(requests), per, burst: some(burst) }
    }

    fn at(text: &str) -> RateKey {
        RateKey::at(text.parse().unwrap())
    }

    /// How many of a hundred requests are taken.
    fn taken(limit: &Limit<FakeRelativeClock>, who: RateKey) -> usize {
        (0..100).filter(|_| limit.take(who).is_ok()).count()
    }

    #[test]
    fn a_burst_is_taken_and_comes_back_with_time() {
        let clock = FakeRelativeClock::default();
        let counters = RateLimitCounters::new(1_000);
        let limit = Limit::by("a".into(), rate(6, 60 * SECOND, 3), counters, 1, &clock);
        let who = at("192.0.2.1");
        assert_eq!(taken(&limit, who), 3);
        assert_eq!(limit.take(who), Err(10 * SECOND), "the time after which one is taken");
        clock.advance(9 * SECOND);
        assert_eq!(limit.take(who), Err(SECOND));
        clock.advance(SECOND);
        assert_eq!(taken(&limit, who), 1);
        clock.advance(3_600 * SECOND);
        assert_eq!(taken(&limit, who), 3, "no more than a burst");
    }

    #[test]
    fn each_client_and_each_limit_is_counted_by_itself() {
        let clock = FakeRelativeClock::default();
        let counters = RateLimitCounters::new(1_000);
        let limit = |number| {
            Limit::by("a".into(), rate(1, SECOND, 2), Arc::clone(&counters), number, &clock)
        };
        let (one, other) = (limit(1), limit(2));
        let session =
            |token: &str| counters.session(&StoredToken::from_store(token.as_bytes()).unwrap());
        for (who, left) in [
            (at("192.0.2.1"), 2),
            (at("192.0.2.2"), 2),
            (at("::ffff:192.0.2.1"), 0),
            (at("2001:db8::1"), 2),
            (at("2001:db8::2"), 0),
            (at("2001:db8:0:1::1"), 2),
            (session("0123456789abcdef"), 2),
            (session("0123456789abcdeg"), 2),
            (session("0123456789abcdef"), 0),
        ] {
            assert_eq!(taken(&one, who), left, "{who:?}");
        }
        assert_eq!(taken(&other, at("192.0.2.1")), 2);
    }

    #[test]
    fn a_time_goes_on_in_another_process_and_by_another_rate() {
        let clock = FakeRelativeClock::default();
        let limit = |rate| {
            clock.advance(SECOND);
            Limit::by("a".into(), rate, RateLimitCounters::new(1_000), 1, &clock)
        };
        let who = at("192.0.2.1");
        let same = limit(rate(6, 60 * SECOND, 3));
        same.resume(who, 25 * SECOND);
        assert_eq!(same.take(who), Err(5 * SECOND));
        clock.advance(5 * SECOND);
        assert_eq!(taken(&same, who), 1);
        let wider = limit(rate(60, 60 * SECOND, 3));
        wider.resume(who, 3_600 * SECOND);
        assert_eq!(wider.take(who), Err(SECOND), "as after a burst");
    }

    #[test]
    fn a_flood_of_addresses_stays_bounded_and_frees_no_busy_address() {
        let clock = FakeRelativeClock::default();
        let counters = RateLimitCounters::new(4_000);
        let limit = Limit::by("a".into(), rate(1, SECOND, 2), Arc::clone(&counters), 1, &clock);
        let busy = at("192.0.2.1");
        assert_eq!(taken(&limit, busy), 2);
        let mut freed = 0;
        for bits in 0..100_000_u32 {
            let stranger = RateKey::at(IpAddr::V4((0x0a00_0000 + bits).into()));
            assert!(limit.take(stranger).is_ok(), "strangers pay only for themselves");
            freed += usize::from(bits % 100 == 0 && limit.take(busy).is_ok());
        }
        assert_eq!(freed, 0);
        let held: usize = counters.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(held <= 4_000, "{held}");
    }

    #[test]
    fn the_widest_bounds_of_a_rate_do_not_overflow() {
        let clock = FakeRelativeClock::default();
        let most = 1_000_000;
        for (requests, per) in [(1, 3_600 * SECOND), (most, SECOND)] {
            let counters = RateLimitCounters::new(1_000);
            let limit = Limit::by("a".into(), rate(requests, per, most), counters, 1, &clock);
            let who = at("192.0.2.1");
            assert!((0..most).all(|_| limit.take(who).is_ok()));
            assert!(limit.take(who).is_err());
        }
    }

    #[test]
    fn that_it_is_reached_is_told_once_a_minute() {
        let clock = FakeRelativeClock::default();
        let limit =
            Limit::by("a".into(), rate(1, SECOND, 1), RateLimitCounters::new(1_000), 1, &clock);
        assert!(limit.may_log() && !limit.may_log());
        clock.advance(LOG_EVERY);
        assert!(limit.may_log());
    }
}
