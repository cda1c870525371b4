//! Pages in this process's memory, bounded by bytes; and the keys that are known to be uncacheable.

use std::sync::Arc;

use ahash::RandomState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::entry::{Entry, VariantIndex};
use crate::ident::PageKey;
use crate::reason::Reason;

/// A guess of a page's size, to size the tables.
const USUAL_PAGE: u64 = 16 * 1024;
/// What a table entry costs beside the page itself.
const SLOT: u64 = 64;
/// Keys remembered as uncacheable, at most; the least used are forgotten first.
const UNCACHEABLE_MAX: usize = 65_536;
/// For how long a key is remembered as uncacheable, in seconds.
const UNCACHEABLE_TTL: u64 = 120;
/// Shards of the page memory: a page larger than a shard's part of the budget is refused.
const SHARDS: usize = 4;

/// What memory holds under a key.
#[derive(Clone, Debug)]
pub enum Slot {
    /// A page, with a deadline of its own in its lifetime.
    Page(Arc<Entry>),
    /// Its variants' keys; each variant has its own slot.
    Variants(Arc<VariantIndex>),
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<PageKey, Slot> for ByBytes {
    fn weight(&self, _: &PageKey, slot: &Slot) -> u64 {
        SLOT + match slot {
            Slot::Page(entry) => entry.weight() as u64,
            Slot::Variants(index) => {
                (index.keys.len() * size_of::<PageKey>() + index.fields.len() * 32) as u64
            }
        }
    }
}

/// Pages in memory, shared by all threads.
#[derive(Debug)]
pub struct Memory {
    pages: Cache<PageKey, Slot, ByBytes, RandomState>,
    uncacheable: Cache<PageKey, (u64, Reason)>,
    /// Until when the origin is not asked for a page that may be served stale meanwhile.
    failing: Cache<PageKey, u64>,
}

impl Memory {
    /// Room for `bytes` of pages.
    ///
    /// # Panics
    /// Never: the options are complete.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let items = usize::try_from(bytes / USUAL_PAGE).unwrap_or(usize::MAX).clamp(64, 1 << 22);
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(items)
            .weight_capacity(bytes)
            .build()
            .expect("capacity and item count are set above");
        let pages =
            Cache::with_options(options, ByBytes, RandomState::new(), DefaultLifecycle::default());
        let (uncacheable, failing) = (Cache::new(UNCACHEABLE_MAX), Cache::new(UNCACHEABLE_MAX));
        Self { pages, uncacheable, failing }
    }

    /// What is held under `key`.
    #[must_use]
    pub fn get(&self, key: &PageKey) -> Option<Slot> {
        self.pages.get(key)
    }

    /// Puts a page or an index.
    pub fn put(&self, key: PageKey, slot: Slot) {
        self.pages.insert(key, slot);
    }

    /// Forgets a key.
    pub fn remove(&self, key: &PageKey) {
        self.pages.remove(key);
    }

    /// Remembers that the page under `key` turned out uncacheable at `now`, and why.
    pub fn mark_uncacheable(&self, key: PageKey, reason: Reason, now: u64) {
        self.mark_uncacheable_for(key, reason, now, UNCACHEABLE_TTL);
    }

    /// The same, for `seconds`.
    pub fn mark_uncacheable_for(&self, key: PageKey, reason: Reason, now: u64, seconds: u64) {
        self.uncacheable.insert(key, (now.saturating_add(seconds), reason));
    }

    /// Why the page under `key` turned out uncacheable, if it did lately.
    #[must_use]
    pub fn uncacheable(&self, key: &PageKey, now: u64) -> Option<Reason> {
        // PERF: mostly nothing is remembered, and a look at the count is cheaper than a look-up.
        if self.uncacheable.is_empty() {
            return None;
        }
        let (until, reason) = self.uncacheable.get(key)?;
        (now < until).then_some(reason)
    }

    /// Remembers until `until` that the origin fails at the page under `key`.
    pub fn mark_failing(&self, key: PageKey, until: u64) {
        self.failing.insert(key, until);
    }

    /// Whether the origin failed at the page under `key` a moment ago.
    #[must_use]
    pub fn is_failing(&self, key: &PageKey, now: u64) -> bool {
        !self.failing.is_empty() && self.failing.get(key).is_some_and(|until| now < until)
    }

    /// How many pages held are such.
    #[must_use]
    pub fn count(&self, is_such: impl Fn(&Entry) -> bool) -> usize {
        let pages = self.pages.iter();
        pages.filter(|(_, slot)| matches!(slot, Slot::Page(entry) if is_such(entry))).count()
    }

    /// Bytes of pages held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// Pages and indexes held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderMap;
    use bytes::Bytes;

    use super::super::entry::{LifetimeSource, Stale};
    use super::*;

    fn page(size: usize) -> Slot {
        Slot::Page(Arc::new(Entry {
            status: 200,
            reason: None,
            headers: HeaderMap::new(),
            body: Bytes::from(vec![b'x'; size]),
            stored_at: 0,
            initial_age: 0,
            lifetime: 300,
            source: LifetimeSource::Default,
            stale: Stale::default(),
            static_proof: false,
            vary: Vec::new(),
            marks: Default::default(),
        }))
    }

    fn key(n: u32) -> PageKey {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        PageKey(bytes)
    }

    #[test]
    fn memory_is_bounded_by_bytes() {
        let memory = Memory::new(1 << 20);
        for n in 0..1_000 {
            memory.put(key(n), page(10_000));
        }
        assert!(memory.bytes() <= 1 << 20, "{} bytes", memory.bytes());
        assert!(memory.len() > 50);
    }

    #[test]
    fn uncacheable_is_remembered_for_two_minutes() {
        let memory = Memory::new(1 << 20);
        assert_eq!(memory.uncacheable(&key(1), 1_000), None);
        memory.mark_uncacheable(key(1), Reason::SetCookie, 1_000);
        assert_eq!(memory.uncacheable(&key(1), 1_119), Some(Reason::SetCookie));
        assert_eq!(memory.uncacheable(&key(1), 1_120), None);
    }
}
