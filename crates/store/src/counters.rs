//! Whether the store answers, and counts of its errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::StoreError;

/// The last known state of the store; reading it makes no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// The store answers.
    Connected,
    /// There is no connection, or the breaker is open: calls fail at once.
    Away,
}

/// The most shards that have pages.
const SHARDS_MAX: usize = 64;

/// Upper bounds of the buckets of [`CallTimes`], in seconds: a call takes a tenth of a millisecond beside the store,
/// and has 50 ms by default.
pub const CALL_BOUNDS: [f64; 11] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.25, 2.0];

/// How long calls took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTimes {
    /// How many took up to each bound, and longer than the one before; the last has those over all bounds.
    pub buckets: [u64; CALL_BOUNDS.len() + 1],
    /// Their sum, in microseconds.
    pub micros: u64,
}

/// Counters for `/metrics`, over all handles.
#[derive(Debug)]
pub struct StoreCounters {
    timeouts: AtomicU64,
    failures: AtomicU64,
    breaker_openings: AtomicU64,
    call_buckets: [AtomicU64; CALL_BOUNDS.len() + 1],
    call_micros: AtomicU64,
    /// By shard.
    page_bytes: [AtomicU64; SHARDS_MAX],
}

impl Default for StoreCounters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            timeouts: zero(),
            failures: zero(),
            breaker_openings: zero(),
            call_buckets: std::array::from_fn(|_| zero()),
            call_micros: zero(),
            page_bytes: std::array::from_fn(|_| zero()),
        }
    }
}

/// One reading of the [`StoreCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterReading {
    /// Calls that used up their budget.
    pub timeouts: u64,
    /// Calls that ended in an error from the store or a broken connection.
    pub failures: u64,
    /// How often the breaker opened.
    pub breaker_openings: u64,
}

impl StoreCounters {
    pub(super) fn opened(&self) {
        self.breaker_openings.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call over the network that took so long.
    pub(super) fn took(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = CALL_BOUNDS.iter().position(|top| seconds <= *top);
        self.call_buckets[bucket.unwrap_or(CALL_BOUNDS.len())].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.call_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// How long calls over the network took. The embedded store has none.
    #[must_use]
    pub fn calls(&self) -> CallTimes {
        CallTimes {
            buckets: std::array::from_fn(|at| self.call_buckets[at].load(Ordering::Relaxed)),
            micros: self.call_micros.load(Ordering::Relaxed),
        }
    }

    /// Counts the error that a call is about to return. `Away` and `Full` are not errors here.
    pub(super) fn count(&self, error: &StoreError) {
        match error {
            StoreError::TimedOut => self.timeouts.fetch_add(1, Ordering::Relaxed),
            StoreError::Failed(_) | StoreError::Unanswered(_) => {
                self.failures.fetch_add(1, Ordering::Relaxed)
            }
            StoreError::Away
            | StoreError::Full
            | StoreError::NearlyFull
            | StoreError::TooLarge
            | StoreError::RowsFull
            | StoreError::BypassesFull => 0,
        };
    }

    /// Bytes of pages in the store, as last reported.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// A shard has this many bytes of pages.
    pub(super) fn holds(&self, shard: usize, page_bytes: u64) {
        if let Some(bytes) = self.page_bytes.get(shard) {
            bytes.store(page_bytes, Ordering::Relaxed);
        }
    }

    /// The counters now.
    #[must_use]
    pub fn read(&self) -> CounterReading {
        CounterReading {
            timeouts: self.timeouts.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            breaker_openings: self.breaker_openings.load(Ordering::Relaxed),
        }
    }
}
