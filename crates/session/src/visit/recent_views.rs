//! Views by visitors without a login: counted once for an address and item in ten seconds, so that
//! repeated requests do not make an item popular.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use ahash::RandomState;
use quick_cache::unsync::Cache;

use anteroom_http::ident::{Item, holder};

/// How long a view suppresses further ones, in seconds.
const WINDOW: f64 = 10.0;
/// Views remembered in each shard. The least used are evicted first, and may count again then.
const SHARD_MAX: usize = 8_192;
/// Locks that the threads share. A power of two.
const SHARDS: usize = 16;

/// The views of the last seconds.
#[derive(Debug)]
pub(super) struct RecentViews {
    hasher: RandomState,
    /// When a view was counted, in Unix time, by the hash of address and item.
    shards: [Mutex<Cache<u64, f64>>; SHARDS],
}

impl Default for RecentViews {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::new(Cache::new(SHARD_MAX)));
        Self { hasher: RandomState::new(), shards }
    }
}

impl RecentViews {
    /// Whether the view counts; then the following ones do not.
    pub(super) fn counts(&self, address: IpAddr, item: &Item, now: f64) -> bool {
        let hash = self.hasher.hash_one((holder(address), item));
        let shard = &self.shards[(hash >> 60) as usize & (SHARDS - 1)];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = shard.get(&hash).is_some_and(|at| (now - at).abs() < WINDOW);
        if !counted {
            shard.insert(hash, now);
        }
        !counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_counts_once_in_ten_seconds_for_an_address() {
        let once = RecentViews::default();
        let (cup, mug) = (Item::new("cup").unwrap(), Item::new("mug").unwrap());
        for (address, item, now, counts) in [
            ("192.0.2.1", &cup, 100.0, true),
            ("192.0.2.1", &cup, 109.9, false),
            ("192.0.2.1", &mug, 109.9, true),
            ("192.0.2.2", &cup, 109.9, true),
            ("192.0.2.1", &cup, 110.0, true),
            ("192.0.2.1", &cup, 119.9, false),
            ("192.0.2.1", &cup, 50.0, true),
            ("2001:db8::1", &cup, 100.0, true),
            ("2001:db8::2", &cup, 100.0, false),
            ("2001:db8:0:1::2", &cup, 100.0, true),
        ] {
            assert_eq!(once.counts(address.parse().unwrap(), item, now), counts, "{address} {now}");
        }
    }

    #[test]
    fn remembered_views_are_bounded() {
        let once = RecentViews::default();
        let cup = Item::new("cup").unwrap();
        for bits in 0..300_000_u32 {
            once.counts(IpAddr::V4(bits.into()), &cup, 1.0);
        }
        let held: usize = once.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(held <= SHARDS * SHARD_MAX, "{held}");
    }
}
