//! Counts of durations by size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::bump;

/// Upper bounds of the buckets, in seconds. A page in memory takes a tenth of a millisecond; a client waits for
/// ten seconds at most.
pub const BOUNDS: [f64; 11] = [0.000_25, 0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0];
/// Buckets, with the one of durations over all bounds.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// What one thread counts. Only this thread writes it.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
}

impl Histogram {
    /// Counts a duration.
    pub fn add(&self, took: Duration) {
        bump(&self.buckets[bucket(took)], 1);
        bump(&self.micros, micros(took));
    }

    /// What has been counted.
    #[must_use]
    pub fn read(&self) -> Durations {
        Durations {
            buckets: std::array::from_fn(|place| self.buckets[place].load(Ordering::Relaxed)),
            micros: self.micros.load(Ordering::Relaxed),
        }
    }
}

/// The bucket of a duration.
pub(super) fn bucket(took: Duration) -> usize {
    let seconds = took.as_secs_f64();
    BOUNDS.iter().position(|top| seconds <= *top).unwrap_or(BOUNDS.len())
}

/// Whole microseconds.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Durations that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many there are up to each bound and over the one before; the last has those over all bounds.
    pub buckets: [u64; BUCKETS],
    /// Their sum, in microseconds.
    pub micros: u64,
}

impl Durations {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(own, others)| *own += others);
        self.micros += other.micros;
    }

    /// Counts by bucket, and the sum in microseconds.
    pub(super) fn parts(&self) -> (&[u64], u64) {
        (&self.buckets, self.micros)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        seconds(self.micros)
    }
}

/// Microseconds as seconds.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a sum of microseconds, shown in seconds")]
pub fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
