//! The pages of this process: the memory tier above the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use anteroom_http::clock::unix_now;
use anteroom_http::ident::PageKey;
use bytes::Bytes;
use quick_cache::sync::Cache;

use super::entry::{Entry, LifetimeSource, StaleLifetimes, StoredValue, VariantIndex};
use super::flight::Flights;
use super::hit_count::HitCount;
use super::memory::{Memory, MemoryValue};
use super::page_fields::PageFields;
use super::purge::scope::PurgeTarget;
use super::purge::{PurgeStanding, PurgeTable};
use super::recipe::Recipe;
use super::rules::key::variant_key;
use super::segment_proof::SegmentProofs;
use super::url_patterns::UrlPatterns;
use super::use_counts::UseCounts;
use super::warm_queue::WarmQueue;
#[cfg(test)]
use anteroom_store::Lease;
use anteroom_store::{PageStore, RequestFrequency, StoreError};

/// How much longer an index of variants stays in the store than its newest variant.
const INDEX_EXTRA: Duration = Duration::from_secs(3600);

/// How long pages from the store are distrusted after a change, in seconds: a version from before the change
/// may still be on its way to or from the store. This is longer than a write may take.
const CHANGED_TTL: u64 = 5;
/// The most changed pages that are remembered.
const CHANGED_MAX: usize = 16_384;

/// If a page was not admitted to a nearly full store on its first request, how long a further request still
/// admits it, in seconds.
const DEFERRED_TTL: u64 = 60;
/// The most such pages that are remembered.
const DEFERRED_MAX: usize = 65_536;

/// The most pages that a request with the method `PURGE` looks at, so that many of them do not hold a thread for long.
const LOOKED_AT_MAX: usize = 10_000;

/// The pages of this process, with their purges and flights.
#[derive(Debug)]
pub struct Pages {
    memory: Memory,
    /// Until when the store's version of a changed page is distrusted.
    changed: Cache<PageKey, u64>,
    /// Pages that are written to the store on their next request, and until when.
    deferred: Cache<PageKey, u64>,
    /// When the last of these times ends. PERF: usually long past; checked on each hit.
    deferred_until: AtomicU64,
    /// What was purged.
    pub purged: Arc<PurgeTable>,
    /// Fetches under way.
    pub flights: Arc<Flights>,
    /// Which user was given which version of a segment's page.
    pub segment_proofs: SegmentProofs,
    /// How often pages that are not stored were requested, on routes with `min_uses`.
    pub use_counts: UseCounts,
    /// What the responses to similar URLs were like.
    pub url_patterns: UrlPatterns,
    /// Pages that are to be fetched again.
    pub warm_queue: WarmQueue,
    variants_max: usize,
}

/// The store that pages are read from.
#[derive(Debug)]
pub struct PageSource<'s, S> {
    /// The store.
    pub store: &'s S,
    /// How long a page that an app stored by itself counts as fresh after it was read.
    pub default_ttl: Duration,
}

// Derived, these would ask the same of the store.
impl<S> Clone for PageSource<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for PageSource<'_, S> {}

/// What a tier holds under the key of a request.
#[derive(Clone, Debug)]
pub struct TierContent {
    /// The index of variants, if there is one.
    pub index: Option<Arc<VariantIndex>>,
    /// The page; with variants, the one for this request.
    pub page: Option<Arc<Entry>>,
}

/// The tier in which a page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheTier {
    /// In this process's memory.
    Memory,
    /// In the store.
    Store,
}

/// The result of a look-up.
#[derive(Debug)]
pub enum Lookup {
    /// A fresh page.
    Fresh(Arc<Entry>, CacheTier),
    /// A stale page; a fetch uses this key.
    Stale(Arc<Entry>, CacheTier, PageKey),
    /// No page; a fetch uses this key, which is the variant's if variants are known.
    Absent(PageKey),
}

/// The page was not kept, because it has too many variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyVariants;

impl Pages {
    /// Creates the tier with room for `bytes` of `memory`; `purged` tells which pages are purged, and a page
    /// has at most `variants_max` variants.
    #[must_use]
    pub fn new(
        memory: u64,
        flights: Arc<Flights>,
        purged: Arc<PurgeTable>,
        variants_max: usize,
    ) -> Self {
        Self {
            memory: Memory::new(memory),
            changed: Cache::new(CHANGED_MAX),
            deferred: Cache::new(DEFERRED_MAX),
            deferred_until: AtomicU64::new(0),
            purged,
            flights,
            segment_proofs: SegmentProofs::default(),
            use_counts: UseCounts::default(),
            url_patterns: UrlPatterns::default(),
            warm_queue: WarmQueue::default(),
            variants_max,
        }
    }

    /// The memory tier, for its metrics and for the keys remembered as uncacheable.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A fresh page in memory. `sent` is what a fill for this request would send.
    #[must_use]
    pub fn in_memory<'h>(
        &self,
        key: &PageKey,
        sent: impl FnOnce() -> &'h HeaderMap,
        now: u64,
    ) -> Option<Arc<Entry>> {
        let slot = match self.memory.get(key)? {
            MemoryValue::Variants(index) => self.memory.get(&named(&index, key, sent()).ok()?)?,
            page @ MemoryValue::Page(_) => page,
        };
        match slot {
            MemoryValue::Page(entry) if self.standing(&entry, now) == PurgeStanding::Current => {
                Some(entry)
            }
            MemoryValue::Page(_) | MemoryValue::Variants(_) => None,
        }
    }

    /// The standing of a page by time and purges. While purges by other processes may be missing, a page is
    /// fresh only within the second in which it was fetched or validated. That second is by the clock of the
    /// process that did it, which may be ahead.
    #[must_use]
    pub fn standing(&self, entry: &Entry, now: u64) -> PurgeStanding {
        match self.purged.standing(&entry.purge_snapshot) {
            PurgeStanding::Current if !entry.is_fresh(now) => PurgeStanding::Stale,
            PurgeStanding::Current if now != entry.stored_at && self.purged.is_cut_off() => {
                PurgeStanding::Stale
            }
            standing => standing,
        }
    }

    fn found(&self, entry: Arc<Entry>, from: CacheTier, key: PageKey, now: u64) -> Lookup {
        match self.standing(&entry, now) {
            PurgeStanding::Current => Lookup::Fresh(entry, from),
            PurgeStanding::Stale => Lookup::Stale(entry, from, key),
            PurgeStanding::Gone => Lookup::Absent(key),
        }
    }

    /// Looks up a page in memory, then in the store.
    ///
    /// # Errors
    /// If the store fails; memory had nothing then.
    pub async fn look_up<S: PageStore>(
        &self,
        source: PageSource<'_, S>,
        key: &PageKey,
        sent: &HeaderMap,
        now: u64,
    ) -> Result<Lookup, StoreError> {
        self.look(source, true, key, sent, now).await
    }

    /// The same, which does not count as a use: no page comes into memory, or leaves it.
    ///
    /// # Errors
    /// If the store fails; memory had nothing then.
    pub async fn peek<S: PageStore>(
        &self,
        source: PageSource<'_, S>,
        key: &PageKey,
        sent: &HeaderMap,
        now: u64,
    ) -> Result<Lookup, StoreError> {
        self.look(source, false, key, sent, now).await
    }

    /// Either of them. `counts`: whether it counts as a use.
    async fn look<S: PageStore>(
        &self,
        source: PageSource<'_, S>,
        counts: bool,
        key: &PageKey,
        sent: &HeaderMap,
        now: u64,
    ) -> Result<Lookup, StoreError> {
        let index = match self.either(source, counts, key, key, now).await? {
            Some((MemoryValue::Page(entry), from)) => return Ok(self.found(entry, from, *key, now)),
            Some((MemoryValue::Variants(index), _)) => index,
            None => return Ok(Lookup::Absent(*key)),
        };
        let variant = match named(&index, key, sent) {
            Ok(variant) => variant,
            Err(variant) => return Ok(Lookup::Absent(variant)),
        };
        Ok(match self.either(source, counts, key, &variant, now).await? {
            Some((MemoryValue::Page(entry), from)) => self.found(entry, from, variant, now),
            Some((MemoryValue::Variants(_), _)) | None => Lookup::Absent(variant),
        })
    }

    /// The value of the page `primary` under `key`: from memory, unless it is stale there and the store has a
    /// newer one. If the store fails, the value from memory stands.
    async fn either<S: PageStore>(
        &self,
        source: PageSource<'_, S>,
        counts: bool,
        primary: &PageKey,
        key: &PageKey,
        now: u64,
    ) -> Result<Option<(MemoryValue, CacheTier)>, StoreError> {
        let held = if counts { self.memory.get(key) } else { self.memory.peek(key) };
        let known = match held {
            Some(MemoryValue::Page(entry)) => match self.standing(&entry, now) {
                PurgeStanding::Current => {
                    return Ok(Some((MemoryValue::Page(entry), CacheTier::Memory)));
                }
                PurgeStanding::Stale => Some(entry),
                PurgeStanding::Gone => {
                    if counts {
                        self.memory.remove(key);
                    }
                    None
                }
            },
            Some(index) => return Ok(Some((index, CacheTier::Memory))),
            None => None,
        };
        let Some(known) = known else {
            let slot = self.read(source, key, None, now).await?;
            return Ok(self
                .taken(primary, key, slot, now, counts)
                .map(|slot| (slot, CacheTier::Store)));
        };
        let newer = self.read(source, key, Some(known.stored_at), now).await;
        let newer = newer.map(|slot| self.taken(primary, key, slot, now, counts));
        Ok(Some(match newer {
            Ok(Some(slot)) => (slot, CacheTier::Store),
            Ok(None) | Err(_) => (MemoryValue::Page(known), CacheTier::Memory),
        }))
    }

    /// Reads the store's value under `key`. Pages that a purge removed are ignored, and so are stale ones no
    /// newer than `than`. An unreadable value counts as absent, and so does a page from the future; the next fill
    /// replaces it.
    async fn read<S: PageStore>(
        &self,
        source: PageSource<'_, S>,
        key: &PageKey,
        than: Option<u64>,
        now: u64,
    ) -> Result<Option<MemoryValue>, StoreError> {
        let Some(bytes) = source.store.page(key).await? else { return Ok(None) };
        let slot = match StoredValue::decode(bytes) {
            // Asked anew, since the request may have waited.
            Ok(StoredValue::Page(entry)) if entry.is_from_the_future(unix_now() as u64) => {
                return Ok(None);
            }
            Ok(StoredValue::Page(entry)) => match self.standing(&entry, now) {
                PurgeStanding::Current => MemoryValue::Page(Arc::new(entry)),
                PurgeStanding::Stale if than.is_none_or(|than| entry.stored_at > than) => {
                    MemoryValue::Page(Arc::new(entry))
                }
                PurgeStanding::Stale | PurgeStanding::Gone => return Ok(None),
            },
            Ok(StoredValue::Variants(index)) => MemoryValue::Variants(Arc::new(index)),
            Ok(StoredValue::Plain(body)) => {
                MemoryValue::Page(Arc::new(plain(body, source.default_ttl, now)))
            }
            Err(_) => return Ok(None),
        };
        Ok(Some(slot))
    }

    /// Takes a value of the page `primary` that was read from the store into memory before a request needs it, as a
    /// look-up does that finds it there. What memory holds stays, and a page that is stale or purged is not taken.
    /// Returns whether it was taken.
    pub(super) fn take_ahead(
        &self,
        primary: &PageKey,
        key: &PageKey,
        stored: Bytes,
        now: u64,
    ) -> bool {
        let slot = match StoredValue::decode(stored) {
            Ok(StoredValue::Page(entry)) if entry.is_from_the_future(now) => return false,
            Ok(StoredValue::Page(entry)) => match self.standing(&entry, now) {
                PurgeStanding::Current => MemoryValue::Page(Arc::new(entry)),
                PurgeStanding::Stale | PurgeStanding::Gone => return false,
            },
            Ok(StoredValue::Variants(index)) => MemoryValue::Variants(Arc::new(index)),
            // A page of an app's own stays in memory for one second only.
            Ok(StoredValue::Plain(_)) | Err(_) => return false,
        };
        // Checked after the decoding, right before the value is put: a fill may have brought a newer page.
        self.memory.peek(key).is_none() && self.taken(primary, key, Some(slot), now, true).is_some()
    }

    /// Puts a value of the page `primary` from the store into memory, if that counts as a use, and unless it may be
    /// from before a change.
    fn taken(
        &self,
        primary: &PageKey,
        key: &PageKey,
        slot: Option<MemoryValue>,
        now: u64,
        counts: bool,
    ) -> Option<MemoryValue> {
        let slot = slot?;
        if !counts {
            return Some(slot).filter(|_| !self.is_changed(primary, now));
        }
        self.memory.put(*key, slot.clone(), now);
        // Checked last: a later change finds the page in memory.
        if self.is_changed(primary, now) {
            self.memory.remove(key);
            return None;
        }
        Some(slot)
    }

    /// Whether the page `primary` was changed so recently that the store's version is distrusted.
    #[must_use]
    pub fn is_changed(&self, primary: &PageKey, now: u64) -> bool {
        self.changed.get(primary).is_some_and(|until| now < until)
    }

    /// What memory holds under `key` for a request whose fill would send `sent`, fresh or not; does not count
    /// as a use.
    #[must_use]
    pub fn held_in_memory(&self, key: &PageKey, sent: &HeaderMap) -> TierContent {
        let peek = |key: &PageKey| self.memory.peek(key);
        match peek(key) {
            None => TierContent { index: None, page: None },
            Some(MemoryValue::Page(page)) => TierContent { index: None, page: Some(page) },
            Some(MemoryValue::Variants(index)) => {
                let variant = named(&index, key, sent).ok().and_then(|variant| peek(&variant));
                let page = variant.and_then(|slot| match slot {
                    MemoryValue::Page(page) => Some(page),
                    MemoryValue::Variants(_) => None,
                });
                TierContent { index: Some(index), page }
            }
        }
    }

    /// What the store holds, likewise.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn held_in_store<S: PageStore>(
        &self,
        source: PageSource<'_, S>,
        key: &PageKey,
        sent: &HeaderMap,
        now: u64,
    ) -> Result<TierContent, StoreError> {
        let mut tier = TierContent { index: None, page: None };
        let mut wanted = *key;
        // The index, if there is one, and then the variant.
        for _ in 0..2 {
            let Some(bytes) = source.store.page(&wanted).await? else { break };
            match StoredValue::decode(bytes) {
                Ok(StoredValue::Page(page)) => tier.page = Some(Arc::new(page)),
                Ok(StoredValue::Plain(body)) => {
                    tier.page = Some(Arc::new(plain(body, source.default_ttl, now)))
                }
                Ok(StoredValue::Variants(index)) if tier.index.is_none() => {
                    let variant = named(&index, key, sent);
                    tier.index = Some(Arc::new(index));
                    let Ok(variant) = variant else { break };
                    wanted = variant;
                    continue;
                }
                Ok(StoredValue::Variants(_)) | Err(_) => {}
            }
            break;
        }
        Ok(tier)
    }

    /// How many pages in memory a purge with these targets will hit.
    #[must_use]
    pub fn count_hit(&self, targets: &[PurgeTarget]) -> usize {
        let marks = self.purged.marks(targets);
        self.memory.count(|entry| {
            self.purged.is_current(&entry.purge_snapshot) && entry.purge_snapshot.are_hit_by(&marks)
        })
    }

    /// Whether a purge with these targets would hit no page in memory. Of more pages than a request may look at, this is
    /// not known, and `false`.
    #[must_use]
    pub fn has_no_hit(&self, targets: &[PurgeTarget]) -> bool {
        self.memory.len() <= LOOKED_AT_MAX && self.count_hit(targets) == 0
    }

    /// How many pages in memory purges of each of these groups of targets would hit.
    #[must_use]
    pub fn count_hit_by_each(&self, groups: &[&[PurgeTarget]]) -> Vec<usize> {
        let grouped = self.purged.grouped(groups);
        let mut counts = vec![0; groups.len()];
        self.memory.each(|entry| {
            let hit = grouped.that_hit(&entry.purge_snapshot);
            if !hit.is_empty() && self.purged.is_current(&entry.purge_snapshot) {
                hit.into_iter().for_each(|group| counts[group] += 1);
            }
        });
        counts
    }

    /// The recipes of the pages in memory that a purge with these targets will hit: at most `most`, of those with
    /// the most hits. A page without hits is not among them.
    #[must_use]
    pub fn hottest_hit_by(&self, targets: &[PurgeTarget], most: usize) -> Vec<Arc<Recipe>> {
        if most == 0 {
            return Vec::new();
        }
        let marks = self.purged.marks(targets);
        let hottest = self.memory.hottest(most, |entry| {
            entry.recipe.is_some()
                && self.purged.is_current(&entry.purge_snapshot)
                && entry.purge_snapshot.are_hit_by(&marks)
        });
        hottest.iter().filter_map(|entry| entry.recipe.clone()).collect()
    }

    /// Keeps a page in memory under `primary`, or as one of its variants. Returns what the store must hold
    /// for other processes to find it.
    ///
    /// # Errors
    /// If the page has too many variants already.
    pub fn keep(
        &self,
        primary: PageKey,
        sent: &HeaderMap,
        entry: Entry,
        now: u64,
    ) -> Result<Vec<ToStore>, TooManyVariants> {
        let ttl = Duration::from_secs(entry.worth(now).max(1));
        let entry = Arc::new(entry);
        let known = match self.memory.get(&primary) {
            Some(MemoryValue::Variants(index)) => Some(index),
            Some(MemoryValue::Page(_)) | None => None,
        };
        if entry.vary.is_empty() && known.is_none() {
            let demand = self.put(primary, MemoryValue::Page(Arc::clone(&entry)), now);
            return Ok(vec![ToStore { key: primary, what: MemoryValue::Page(entry), ttl, demand }]);
        }
        let fields = all_fields(known.as_deref(), &entry.vary);
        let variant = variant_key(&primary, &fields, sent);
        let mut keys = match &known {
            // Other fields mean other keys, so the old variants can no longer be found.
            Some(index) if index.fields == fields => index.keys.clone(),
            _ => Vec::new(),
        };
        if !keys.contains(&variant) {
            if keys.len() >= self.variants_max {
                // Variants that are no longer fresh make room. Otherwise requests with made-up fields could
                // keep a page's real variants out permanently.
                keys.retain(|key| self.is_fresh(key, now));
            }
            if keys.len() >= self.variants_max {
                return Err(TooManyVariants);
            }
            keys.push(variant);
        }
        let index = Arc::new(VariantIndex { fields, keys });
        let demand = self.put(variant, MemoryValue::Page(Arc::clone(&entry)), now);
        self.put(primary, MemoryValue::Variants(Arc::clone(&index)), now);
        Ok(variant_to_store(variant, entry, primary, index, ttl, demand))
    }

    fn put(&self, key: PageKey, slot: MemoryValue, now: u64) -> RequestFrequency {
        if self.memory.put(key, slot, now) {
            RequestFrequency::Again
        } else {
            RequestFrequency::Once
        }
    }

    /// Remembers to write a page to the store if it is requested again soon.
    pub fn defer(&self, key: PageKey, now: u64) {
        let until = now.saturating_add(DEFERRED_TTL);
        self.deferred.insert(key, until);
        self.deferred_until.fetch_max(until, Ordering::Relaxed);
    }

    /// What the store must hold, now that a page that was not admitted on its first request is found in
    /// memory. Usually nothing.
    #[must_use]
    pub fn due<'h>(
        &self,
        primary: &PageKey,
        sent: impl FnOnce() -> &'h HeaderMap,
        now: u64,
    ) -> Vec<ToStore> {
        if now >= self.deferred_until.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let (key, index) = match self.memory.get(primary) {
            Some(MemoryValue::Page(_)) => (*primary, None),
            Some(MemoryValue::Variants(index)) => match named(&index, primary, sent()) {
                Ok(variant) => (variant, Some(index)),
                Err(_) => return Vec::new(),
            },
            None => return Vec::new(),
        };
        let Some((_, until)) = self.deferred.remove(&key) else { return Vec::new() };
        if now >= until {
            self.defer(key, now);
            return Vec::new();
        }
        let Some(MemoryValue::Page(entry)) = self.memory.get(&key) else { return Vec::new() };
        let (ttl, demand) = (Duration::from_secs(entry.worth(now).max(1)), RequestFrequency::Again);
        match index {
            Some(index) => variant_to_store(key, entry, *primary, index, ttl, demand),
            None => vec![ToStore { key, what: MemoryValue::Page(entry), ttl, demand }],
        }
    }

    /// Whether memory still holds the very page that was stored. If not, the page may have changed meanwhile.
    #[must_use]
    pub fn still_holds(&self, stored: &ToStore) -> bool {
        match (&stored.what, self.memory.get(&stored.key)) {
            (MemoryValue::Page(stored), Some(MemoryValue::Page(held))) => {
                Arc::ptr_eq(stored, &held)
            }
            (MemoryValue::Variants(_), held) => held.is_some(),
            _ => false,
        }
    }

    fn is_fresh(&self, key: &PageKey, now: u64) -> bool {
        matches!(self.memory.get(key), Some(MemoryValue::Page(entry)) if self.standing(&entry, now) == PurgeStanding::Current)
    }

    /// Removes the page under `key`, changed at `now`, with its variants and any fetch under way. Returns the
    /// keys that the store must remove.
    #[must_use]
    pub fn invalidate(&self, key: &PageKey, now: u64) -> Vec<PageKey> {
        self.changed.insert(*key, now.saturating_add(CHANGED_TTL));
        self.flights.invalidate(key);
        let mut keys = vec![*key];
        if let Some(MemoryValue::Variants(index)) = self.memory.get(key) {
            keys.extend_from_slice(&index.keys);
        }
        for key in &keys {
            self.memory.remove(key);
        }
        keys
    }
}

/// The key of the variant that `sent` selects: `Ok` if the index lists it. An unlisted variant in the store
/// may be from before a change to the page.
fn named(index: &VariantIndex, primary: &PageKey, sent: &HeaderMap) -> Result<PageKey, PageKey> {
    let variant = variant_key(primary, &index.fields, sent);
    if index.keys.contains(&variant) { Ok(variant) } else { Err(variant) }
}

/// The fields of an index after a response that varies by `new`: never fewer than before, so that a request
/// that differs in any of them does not find the page. If there are too many, the old ones are dropped, and
/// the old variants with them; the fields of `new` always stay.
fn all_fields(known: Option<&VariantIndex>, new: &[HeaderName]) -> Vec<HeaderName> {
    let mut fields = known.map_or_else(Vec::new, |index| index.fields.clone());
    fields.extend(new.iter().filter(|name| !fields.contains(name)).cloned().collect::<Vec<_>>());
    if fields.len() > anteroom_http::vary::FIELDS_MAX {
        fields = new.to_vec();
    }
    fields.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    fields
}

/// A value that the store must hold.
#[derive(Clone, Debug)]
pub struct ToStore {
    /// Its key.
    pub key: PageKey,
    /// The value.
    pub what: MemoryValue,
    /// Its time to live.
    pub ttl: Duration,
    /// How often the page was requested recently.
    pub demand: RequestFrequency,
}

/// A variant, and the index by which it is found.
fn variant_to_store(
    variant: PageKey,
    entry: Arc<Entry>,
    primary: PageKey,
    index: Arc<VariantIndex>,
    ttl: Duration,
    demand: RequestFrequency,
) -> Vec<ToStore> {
    vec![
        ToStore { key: variant, what: MemoryValue::Page(entry), ttl, demand },
        ToStore {
            key: primary,
            what: MemoryValue::Variants(index),
            ttl: ttl + INDEX_EXTRA,
            demand,
        },
    ]
}

impl ToStore {
    /// The encoded value.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match &self.what {
            MemoryValue::Page(entry) => StoredValue::Page(Entry::clone(entry)).encode(),
            MemoryValue::Variants(index) => {
                StoredValue::Variants(VariantIndex::clone(index)).encode()
            }
        }
    }
}

/// A page that an app stored in the chapter's layout (Redis in Action, chapter 2): a 200 of text/html. The
/// time to live of its key is not read, so it stays in memory for one second only.
fn plain(body: Bytes, default_ttl: Duration, now: u64) -> Entry {
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, html)]);
    Entry {
        status: 200,
        reason: None,
        fields: PageFields::of(&headers),
        body,
        stored_at: now,
        initial_age: 0,
        lifetime: default_ttl.as_secs().min(1),
        source: LifetimeSource::Default,
        stale: StaleLifetimes::default(),
        static_proof: false,
        has_own_etag: false,
        vary: Vec::new(),
        purge_snapshot: Arc::default(),
        recipe: None,
        hits: HitCount::default(),
    }
}

#[cfg(test)]
mod tests {
    use ::http::header::{ACCEPT, ACCEPT_LANGUAGE};
    use anteroom_store::Generation;

    use super::*;
    use crate::purge::PurgeSnapshot;

    fn pages() -> Pages {
        let purged = Arc::new(PurgeTable::new(false));
        Pages::new(1 << 20, Flights::new(1 << 20, 10), purged, 32)
    }

    fn from<S>(store: &S) -> PageSource<'_, S> {
        PageSource { store, default_ttl: Duration::from_secs(300) }
    }

    fn page(vary: &[HeaderName]) -> Entry {
        Entry {
            status: 200,
            reason: None,
            fields: PageFields::default(),
            body: "page".into(),
            stored_at: 0,
            initial_age: 0,
            lifetime: 300,
            source: LifetimeSource::Default,
            stale: StaleLifetimes::default(),
            static_proof: false,
            has_own_etag: false,
            vary: vary.to_vec(),
            purge_snapshot: Arc::default(),
            recipe: None,
            hits: HitCount::default(),
        }
    }

    fn speaking(language: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static(language))])
    }

    #[test]
    fn a_variant_from_before_a_change_is_not_found_by_a_newer_index() {
        const KEY: PageKey = PageKey([1; 32]);
        let (pages, de, en) = (pages(), speaking("de"), speaking("en"));
        for sent in [&de, &en] {
            pages.keep(KEY, sent, page(&[ACCEPT_LANGUAGE]), 0).unwrap();
        }
        // The index was evicted from memory before the change.
        pages.memory.remove(&KEY);
        let _ = pages.invalidate(&KEY, 0);
        pages.keep(KEY, &de, page(&[ACCEPT_LANGUAGE]), 0).unwrap();
        assert!(pages.in_memory(&KEY, || &de, 0).is_some());
        assert!(pages.in_memory(&KEY, || &en, 0).is_none());
    }

    /// A store that returns this page under every key, as if a write from before a change arrived after the
    /// removal.
    struct LateStore(Bytes);

    impl PageStore for LateStore {
        async fn page(&self, _: &PageKey) -> Result<Option<Bytes>, StoreError> {
            Ok(Some(self.0.clone()))
        }

        async fn put_page(
            &self,
            _: &PageKey,
            _: Bytes,
            _: Duration,
            _: RequestFrequency,
        ) -> Result<(), StoreError> {
            Ok(())
        }

        async fn delete_pages(&self, _: &[PageKey]) -> Result<(), StoreError> {
            Ok(())
        }

        async fn lease(&self, _: &PageKey, _: u64, _: Duration) -> Result<Lease, StoreError> {
            Ok(Lease::Ours)
        }

        async fn end_lease(&self, _: &PageKey, _: u64, _: bool) -> Result<(), StoreError> {
            Ok(())
        }
    }

    /// The output of a future that never waits.
    fn at_once<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(value) => value,
            std::task::Poll::Pending => panic!("this store answers at once"),
        }
    }

    #[test]
    fn a_peek_finds_the_same_and_leaves_all_as_it_was() {
        const KEY: PageKey = PageKey([1; 32]);
        let (pages, none) = (pages(), HeaderMap::new());
        let store = LateStore(StoredValue::Page(page(&[])).encode());
        let peek = |now| at_once(pages.peek(from(&store), &KEY, &none, now)).unwrap();
        let held = |now| at_once(pages.held_in_store(from(&store), &KEY, &none, now)).unwrap().page;
        for _ in 0..2 {
            assert!(matches!(peek(100), Lookup::Fresh(_, CacheTier::Store)));
        }
        assert!(matches!(peek(300), Lookup::Stale(_, CacheTier::Store, KEY)));
        assert!(pages.memory.is_empty());
        assert!(pages.held_in_memory(&KEY, &none).page.is_none() && held(300).is_some());
        let _ = pages.invalidate(&KEY, 100);
        assert!(matches!(peek(100), Lookup::Absent(KEY)), "the store is not believed");

        pages.keep(KEY, &none, page(&[]), 200).unwrap();
        assert!(matches!(peek(200), Lookup::Fresh(_, CacheTier::Memory)));
        // From an era that is over.
        let snapshot = PurgeSnapshot::stored(Generation { era: 9, number: 1 }, vec![1]).unwrap();
        let gone = Entry { purge_snapshot: Arc::new(snapshot), ..page(&[]) };
        pages.memory.put(KEY, MemoryValue::Page(Arc::new(gone)), 200);
        assert!(matches!(peek(100), Lookup::Absent(KEY)));
        assert!(
            pages.held_in_memory(&KEY, &none).page.is_some(),
            "it is still there to be told of"
        );
    }

    #[test]
    fn a_page_that_was_not_let_into_the_store_is_due_when_it_is_asked_for_again() {
        const KEY: PageKey = PageKey([1; 32]);
        let (pages, de, en) = (pages(), speaking("de"), speaking("en"));
        let due = |sent, now| -> Vec<_> {
            pages.due(&KEY, || sent, now).iter().map(|one| (one.key, one.demand)).collect()
        };
        let kept = pages.keep(KEY, &de, page(&[ACCEPT_LANGUAGE]), 1_000).unwrap();
        let [variant, index] = &kept[..] else { panic!("a variant and its index") };
        assert_eq!((variant.demand, due(&de, 1_000)), (RequestFrequency::Once, vec![]));
        pages.defer(variant.key, 1_000);
        assert_eq!(due(&en, 1_010), [], "another variant");
        let both = [(variant.key, RequestFrequency::Again), (index.key, RequestFrequency::Again)];
        assert_eq!(due(&de, 1_010), both);
        assert_eq!(due(&de, 1_010), [], "once");

        pages.defer(variant.key, 1_020);
        pages.defer(PageKey([2; 32]), 1_100);
        assert_eq!(due(&de, 1_080), [], "too late, and so it was asked for once again");
        assert_eq!(due(&de, 1_139), both);
        assert!(pages.still_holds(variant) && pages.still_holds(index));
        let again = pages.keep(KEY, &de, page(&[ACCEPT_LANGUAGE]), 1_040).unwrap();
        assert_eq!(again[0].demand, RequestFrequency::Again);
        assert!(!pages.still_holds(variant), "it is another page now");
        pages.defer(variant.key, 1_040);
        let _ = pages.invalidate(&KEY, 1_041);
        assert_eq!(due(&de, 1_041), [], "it is gone");
    }

    #[test]
    fn right_after_a_change_the_store_is_not_believed() {
        const KEY: PageKey = PageKey([1; 32]);
        let (pages, none) = (pages(), HeaderMap::new());
        let store = LateStore(StoredValue::Page(page(&[])).encode());
        let found = |now| {
            matches!(at_once(pages.look_up(from(&store), &KEY, &none, now)), Ok(Lookup::Fresh(..)))
        };
        assert!(found(100));
        let _ = pages.invalidate(&KEY, 100);
        assert_eq!([100, 104, 105].map(found), [false, false, true]);
    }

    #[test]
    fn a_cut_off_proxy_serves_a_page_for_one_second_only() {
        let flights = Flights::new(1 << 20, 10);
        let purged = Arc::new(PurgeTable::new(true));
        let pages = Pages::new(1 << 20, flights, purged, 32);
        let page = Entry { stored_at: 100, ..page(&[]) };
        // The clock of the other process may be ahead.
        let standing = |now| pages.standing(&page, now);
        assert_eq!(
            [40, 99, 100, 101].map(standing),
            [
                PurgeStanding::Stale,
                PurgeStanding::Stale,
                PurgeStanding::Current,
                PurgeStanding::Stale
            ]
        );
    }

    #[test]
    fn variants_over_the_limit_are_refused_until_others_are_stale() {
        const KEY: PageKey = PageKey([1; 32]);
        let pages = Pages { variants_max: 2, ..pages() };
        let keep = |language, stored_at| {
            let page = Entry { stored_at, ..page(&[ACCEPT_LANGUAGE]) };
            pages.keep(KEY, &speaking(language), page, stored_at).is_ok()
        };
        let is_kept = |language, now| {
            let sent = speaking(language);
            pages.in_memory(&KEY, || &sent, now).is_some()
        };
        assert!(keep("de", 0) && keep("en", 100));
        assert!(!keep("fr", 299));
        assert!(keep("de", 299), "a known one is renewed");
        assert!(keep("fr", 400), "en is stale by then");
        assert_eq!(["de", "en", "fr"].map(|one| is_kept(one, 400)), [true, false, true]);
        assert!(!keep("en", 400));
    }

    #[test]
    fn a_page_is_kept_under_all_the_fields_that_ever_chose_it() {
        const KEY: PageKey = PageKey([1; 32]);
        let (pages, de) = (pages(), speaking("de"));
        let data = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/html"))]);
        pages.keep(KEY, &de, page(&[ACCEPT_LANGUAGE]), 0).unwrap();
        pages.keep(KEY, &data, page(&[ACCEPT]), 0).unwrap();
        assert!(pages.in_memory(&KEY, || &data, 0).is_some());
        let mut both = data;
        both.extend(de);
        assert!(pages.in_memory(&KEY, || &both, 0).is_none(), "a page for another language");
    }

    #[test]
    fn a_field_that_a_response_varies_by_is_never_left_out() {
        let names = |first: char| -> Vec<HeaderName> {
            (0..10).map(|n| format!("{first}-{n}").parse().unwrap()).collect()
        };
        let index = VariantIndex { fields: names('a'), keys: Vec::new() };
        assert_eq!(all_fields(Some(&index), &names('b')), names('b'));
    }
}
