//! How often pages that are not stored were requested, for routes that store a page only from its Nth request on.

use std::sync::OnceLock;

use quick_cache::sync::Cache;

use anteroom_http::ident::PageKey;

/// The most pages that are counted at a time. Beyond that, those that were not requested for the longest time are
/// forgotten, and start again at zero.
const COUNTED_MAX: usize = 100_000;

/// The counts of one process. They take no memory until a page is counted.
#[derive(Debug, Default)]
pub struct UseCounts(OnceLock<Cache<PageKey, u32>>);

impl UseCounts {
    /// Whether a page has been requested fewer than `least` times, this time included.
    #[must_use]
    pub fn is_rare(&self, key: &PageKey, least: u32) -> bool {
        let count = self.0.get().and_then(|counts| counts.peek(key));
        count.unwrap_or(0).saturating_add(1) < least
    }

    /// Counts a request. Of two at the same moment one may be missed.
    pub fn count(&self, key: &PageKey) {
        let counts = self.0.get_or_init(|| Cache::new(COUNTED_MAX));
        let count = counts.get(key).unwrap_or(0).saturating_add(1);
        counts.insert(*key, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_rare_until_it_was_requested_often_enough() {
        let (counts, key) = (UseCounts::default(), PageKey([1; 32]));
        for is_rare in [true, true, false, false] {
            assert_eq!(counts.is_rare(&key, 3), is_rare);
            counts.count(&key);
        }
        assert!(counts.is_rare(&PageKey([2; 32]), 3));
        assert!(!counts.is_rare(&PageKey([2; 32]), 1));
    }
}
