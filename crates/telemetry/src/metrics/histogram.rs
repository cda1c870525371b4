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

/// The duration, in seconds, that a share (0 to 1) of the counted durations does not exceed, interpolated within its
/// bucket. `buckets` has one more than `bounds`, for durations over all bounds; there it is the last bound. `None`: nothing
/// is counted.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts of requests, for a percentile")]
pub fn quantile(bounds: &[f64], buckets: &[u64], share: f64) -> Option<f64> {
    let count: u64 = buckets.iter().sum();
    if count == 0 {
        return None;
    }
    let rank = share.clamp(0.0, 1.0) * count as f64;
    let (mut below, mut bottom) = (0.0, 0.0);
    for (top, inside) in bounds.iter().zip(buckets) {
        let inside = *inside as f64;
        if inside > 0.0 && below + inside >= rank {
            return Some(bottom + (top - bottom) * (rank - below) / inside);
        }
        (below, bottom) = (below + inside, *top);
    }
    Some(bottom)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: [f64; 3] = [1.0, 2.0, 4.0];

    #[track_caller]
    fn is(buckets: [u64; 4], share: f64, wanted: f64) {
        let found = quantile(&SIDES, &buckets, share).unwrap();
        assert!((found - wanted).abs() < 1e-9, "{buckets:?} at {share}: {found}");
    }

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        assert_eq!(quantile(&SIDES, &[0; 4], 0.5), None);
        assert_eq!(quantile(&[], &[], 0.5), None);
        is([2, 0, 0, 0], 0.5, 0.5);
        is([1, 0, 1, 0], 0.5, 1.0);
        is([1, 0, 1, 0], 0.75, 3.0);
        is([0, 4, 0, 0], 0.25, 1.25);
        is([0, 4, 0, 0], 1.0, 2.0);
        is([0, 4, 0, 0], 0.0, 1.0);
        is([10, 0, 0, 10], 0.99, 4.0);
        is([0, 0, 0, 5], 0.1, 4.0);
    }

    #[test]
    fn a_greater_share_is_no_shorter_duration() {
        let buckets = [3, 0, 7, 1];
        let found = (0..=100).map(|part| quantile(&SIDES, &buckets, f64::from(part) / 100.0));
        assert!(found.map(Option::unwrap).is_sorted());
    }
}
