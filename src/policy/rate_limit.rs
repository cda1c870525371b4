//! Rate limits: how many requests one address, or one session, may send in a span of time.
//!
//! The arithmetic is governor's (GCRA): a time for each who is counted, in a table of fixed size that all
//! limits and threads share. Where it is full, who was counted once goes before those who come again and
//! again, and who was forgotten begins anew: a flood of addresses pushes out itself, and whoever it does
//! push out is neither limited nor free of limits for that. Whom a request counts for is said elsewhere.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ahash::RandomState;
use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{Quota, RateLimiter};
use quick_cache::unsync::Cache;

use crate::ident::{StoredToken, holder};

/// Locks that the threads share. A power of two.
const SHARDS: usize = 16;
/// How often a limit that is reached is told in our own log.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// So many requests in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests.
    pub requests: NonZeroU32,
    /// The span of time.
    pub per: Duration,
    /// Requests at once, after a time without.
    pub burst: NonZeroU32,
}

/// Who is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// Whoever holds an address.
    Address(IpAddr),
    /// A session, by the hash of its token.
    Session(u128),
}

impl Who {
    /// Whoever has this address.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self::Address(holder(address))
    }
}

/// When each who is counted may send again, of all limits.
#[derive(Debug)]
pub struct Counters {
    /// Two hashes that nobody outside can foresee, which stand for a token together.
    hashers: [RandomState; 2],
    shards: [Mutex<Shard>; SHARDS],
}

/// Nanoseconds since the limit began, by the limit's number and who is counted.
type Shard = Cache<(u32, Who), u64>;

impl Counters {
    /// Room for `max` addresses and sessions.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        let hashers = [RandomState::new(), RandomState::new()];
        let each = max.div_ceil(SHARDS);
        let shards = std::array::from_fn(|_| Mutex::new(Cache::new(each)));
        Arc::new(Self { hashers, shards })
    }

    /// Whoever has this token.
    #[must_use]
    pub fn session(&self, token: &StoredToken) -> Who {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one(token));
        Who::Session(u128::from(high) << 64 | u128::from(low))
    }

    fn shard(&self, key: &(u32, Who)) -> &Mutex<Shard> {
        &self.shards[(self.hashers[0].hash_one(key) >> 60) as usize & (SHARDS - 1)]
    }
}

/// The part of the counters that belongs to one limit.
#[derive(Debug)]
struct Part {
    counters: Arc<Counters>,
    number: u32,
}

impl StateStore for Part {
    type Key = Who;

    fn measure_and_replace<T, F, E>(&self, who: &Who, judge: F) -> Result<T, E>
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
    limiter: RateLimiter<Who, Part, C, NoOpMiddleware<C::Instant>>,
    told: RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>,
}

impl Limit {
    /// A limit with a number that no other has on these counters.
    #[must_use]
    pub fn new(name: Arc<str>, rate: Rate, on: (Arc<Counters>, u32)) -> Self {
        Self::by(name, rate, on, &MonotonicClock)
    }
}

impl<C: Clock + Clone> Limit<C> {
    fn by(name: Arc<str>, rate: Rate, (counters, number): (Arc<Counters>, u32), clock: &C) -> Self {
        // The shortest span that counts is a nanosecond.
        let each = (rate.per / rate.requests.get()).max(Duration::from_nanos(1));
        let quota = |each| Quota::with_period(each).expect("a span that is not nothing");
        let limiter = RateLimiter::new(
            quota(each).allow_burst(rate.burst),
            Part { counters, number },
            clock.clone(),
        );
        let told = RateLimiter::new(quota(TELL_EVERY), InMemoryState::default(), clock.clone());
        Self { name, limiter, told }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// When it is one too many: the time after which one more is none.
    pub fn take(&self, who: Who) -> Result<(), Duration> {
        let over = match self.limiter.check_key(&who) {
            Ok(()) => return Ok(()),
            Err(over) => over,
        };
        Err(over.wait_time_from(self.limiter.clock().now()))
    }

    /// Whether it is time to tell that the limit is reached: once a minute.
    #[must_use]
    pub fn is_to_be_told(&self) -> bool {
        self.told.check().is_ok()
    }
}

/// The limits of all requests, or of those of a route.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// For each address.
    pub address: Option<Arc<Limit>>,
    /// For each session, and for each address without one that is known.
    pub session: Option<Arc<Limit>>,
}

impl Limits {
    /// Whether nothing is counted.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.address.is_none() && self.session.is_none()
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

    fn at(text: &str) -> Who {
        Who::at(text.parse().unwrap())
    }

    /// How many of a hundred requests are taken.
    fn taken(limit: &Limit<FakeRelativeClock>, who: Who) -> usize {
        (0..100).filter(|_| limit.take(who).is_ok()).count()
    }

    #[test]
    fn a_burst_is_taken_and_comes_back_with_time() {
        let clock = FakeRelativeClock::default();
        let counters = Counters::new(1_000);
        let limit = Limit::by("a".into(), rate(6, 60 * SECOND, 3), (counters, 1), &clock);
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
    fn each_is_counted_for_himself_and_each_limit_too() {
        let clock = FakeRelativeClock::default();
        let counters = Counters::new(1_000);
        let limit = |number| {
            Limit::by("a".into(), rate(1, SECOND, 2), (Arc::clone(&counters), number), &clock)
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
    fn a_flood_of_addresses_stays_within_the_bound_and_frees_nobody_who_comes_again() {
        let clock = FakeRelativeClock::default();
        let counters = Counters::new(4_000);
        let limit = Limit::by("a".into(), rate(1, SECOND, 2), (Arc::clone(&counters), 1), &clock);
        let busy = at("192.0.2.1");
        assert_eq!(taken(&limit, busy), 2);
        let mut freed = 0;
        for bits in 0..100_000_u32 {
            let stranger = Who::at(IpAddr::V4((0x0a00_0000 + bits).into()));
            assert!(limit.take(stranger).is_ok(), "strangers pay for nobody else");
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
            let on = (Counters::new(1_000), 1);
            let limit = Limit::by("a".into(), rate(requests, per, most), on, &clock);
            let who = at("192.0.2.1");
            assert!((0..most).all(|_| limit.take(who).is_ok()));
            assert!(limit.take(who).is_err());
        }
    }

    #[test]
    fn that_it_is_reached_is_told_once_a_minute() {
        let clock = FakeRelativeClock::default();
        let limit = Limit::by("a".into(), rate(1, SECOND, 1), (Counters::new(1_000), 1), &clock);
        assert!(limit.is_to_be_told() && !limit.is_to_be_told());
        clock.advance(TELL_EVERY);
        assert!(limit.is_to_be_told());
    }
}
