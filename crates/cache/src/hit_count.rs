//! How often a page in memory was the answer, and whether it is being fetched again before it expires.

use std::sync::atomic::{AtomicU64, Ordering};

/// Set while the page is fetched again ahead of its expiry. The bits below it count hits.
const REFRESHING: u64 = 1 << 63;

/// The hits of one page in one lifetime. A copy of a page begins a lifetime of its own, without hits.
///
/// PERF: one number, so that a hit costs one relaxed addition.
#[derive(Debug, Default)]
pub struct HitCount(AtomicU64);

impl HitCount {
    /// Counts a hit, and returns how many there are now.
    pub fn add(&self) -> u64 {
        (self.0.fetch_add(1, Ordering::Relaxed) & !REFRESHING) + 1
    }

    /// How many hits there are.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & !REFRESHING
    }

    /// Marks the page as being fetched again. `false` if it is so marked already.
    #[must_use]
    pub fn begin_refresh(&self) -> bool {
        self.0.fetch_or(REFRESHING, Ordering::Relaxed) & REFRESHING == 0
    }

    /// Takes the mark away, because the fetch has failed or has not begun.
    pub fn end_refresh(&self) {
        self.0.fetch_and(!REFRESHING, Ordering::Relaxed);
    }
}

impl Clone for HitCount {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The count is no part of what a page is.
impl PartialEq for HitCount {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for HitCount {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_count_on_during_a_refresh_and_a_copy_begins_at_zero() {
        let hits = HitCount::default();
        assert_eq!([hits.add(), hits.add()], [1, 2]);
        assert!(hits.begin_refresh() && !hits.begin_refresh(), "one at a time");
        assert_eq!((hits.add(), hits.get()), (3, 3));
        hits.end_refresh();
        assert_eq!(hits.get(), 3);
        let copy = hits.clone();
        assert_eq!(copy.get(), 0);
        assert!(hits.begin_refresh() && copy.begin_refresh());
    }
}
