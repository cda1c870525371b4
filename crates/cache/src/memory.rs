//! The memory tier: pages in this process, limited by bytes, and the keys that are known to be uncacheable.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ahash::RandomState;
use anteroom_http::coding::Coding;
use anteroom_http::ident::PageKey;
use anteroom_telemetry::reason::Reason;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::admission_filter::AdmissionFilter;
use super::entry::{Entry, VariantIndex};
use super::purge::{PurgeSnapshot, PurgeTable};
use super::recoded;
use super::rules::further_reasons::RefusalReasons;

/// An estimated page size, to size the tables.
const USUAL_PAGE: u64 = 16 * 1024;
/// The overhead of a table entry in addition to the page, in bytes.
const SLOT: u64 = 64;
/// The most keys remembered as uncacheable; the least recently used are evicted first.
const UNCACHEABLE_MAX: usize = 65_536;
/// The most keys remembered for a page that was refused for its own sake.
const REFUSALS_MAX: usize = 4_096;
/// How long a key is remembered as uncacheable, in seconds.
const UNCACHEABLE_TTL: u64 = 120;
/// The same if the cause may pass, such as a failure of the origin.
const BRIEF_TTL: u64 = 1;
/// The number of shards; a page larger than the proven part of a shard is refused.
const SHARDS: usize = 4;
/// The fraction of memory for pages that were requested more than once; new pages start in the rest. A page
/// larger than that rest takes room from the proven ones at once.
const PROVEN: f64 = 0.9;

/// A value that memory holds under a key.
#[derive(Clone, Debug)]
pub enum MemoryValue {
    /// A page, which has its own lifetime.
    Page(Arc<Entry>),
    /// The keys of the variants; each variant has its own slot.
    Variants(Arc<VariantIndex>),
}

/// A page in a coding other than the stored one.
#[derive(Clone, Debug)]
pub enum RecodedPage {
    /// The recoded page.
    Made(Arc<Entry>),
    /// The page cannot be recoded, or would not become smaller.
    Useless,
}

/// The key of an entry in the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TableKey {
    Slot(PageKey),
    /// A form of the page at this address. The address stays unique while the form is held.
    Form(usize, Coding),
}

impl TableKey {
    fn form(page: &Arc<Entry>, coding: Coding) -> Self {
        Self::Form(Arc::as_ptr(page).addr(), coding)
    }
}

/// An entry in the table.
#[derive(Clone, Debug)]
enum CachedValue {
    Slot(MemoryValue),
    Form {
        /// Keeps the page's address reserved, but not the page.
        _of: Weak<Entry>,
        form: RecodedPage,
    },
}

impl CachedValue {
    fn slot(self) -> Option<MemoryValue> {
        match self {
            Self::Slot(slot) => Some(slot),
            Self::Form { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<TableKey, CachedValue> for ByBytes {
    fn weight(&self, _: &TableKey, held: &CachedValue) -> u64 {
        SLOT + match held {
            CachedValue::Slot(MemoryValue::Page(entry)) => entry.weight() as u64,
            CachedValue::Slot(MemoryValue::Variants(index)) => {
                (index.keys.len() * size_of::<PageKey>() + index.fields.len() * 32) as u64
            }
            CachedValue::Form { form: RecodedPage::Made(entry), .. } => entry.weight() as u64,
            CachedValue::Form { form: RecodedPage::Useless, .. } => size_of::<Entry>() as u64,
        }
    }
}

/// When a key is marked or looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkTime {
    /// Unix time in seconds.
    pub now: u64,
    /// The number of the configuration in force. A mark holds for the one under which its page was requested:
    /// under another, the page may be cacheable.
    pub config: u64,
}

/// What is remembered of a key whose page was found uncacheable.
#[derive(Clone, Debug)]
struct UncacheableMark {
    until: u64,
    config: u64,
    reasons: RefusalReasons,
    /// The state of purges before the fetch; `None` in a brief mark.
    before: Option<Arc<PurgeSnapshot>>,
    /// Whether the response had no variants: the mark then holds for the whole key.
    is_of_all: bool,
}

impl UncacheableMark {
    /// Whether the page was purged since.
    fn is_purged(&self, purged: &PurgeTable) -> bool {
        self.before.as_ref().is_some_and(|before| !purged.is_current(before))
    }
}

/// Pages in memory, shared by all threads.
#[derive(Debug)]
pub struct Memory {
    /// Pages, their variant indexes, and their forms share one budget.
    pages: Cache<TableKey, CachedValue, ByBytes, RandomState>,
    /// Marks a page as proven if it is requested again soon after its eviction. The ghost entries of the
    /// table above are too few for this when most requests are for pages that are requested only once.
    admission_filter: AdmissionFilter,
    /// The largest page that is held, in bytes. It follows the room for pages.
    page_max: AtomicU64,
    uncacheable: Cache<PageKey, UncacheableMark>,
    /// Why the latest page was refused, where that says nothing of the next; for `explain`.
    refusals: Cache<PageKey, (u64, Reason)>,
    /// Until when the origin is not asked for a page, because it failed and the page may be served stale.
    failing: Cache<PageKey, u64>,
}

impl Memory {
    /// Creates a memory tier for `bytes` of pages.
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
            .hot_allocation(PROVEN)
            .build()
            .expect("capacity and item count are set above");
        let pages =
            Cache::with_options(options, ByBytes, RandomState::new(), DefaultLifecycle::default());
        let (uncacheable, failing) = (Cache::new(UNCACHEABLE_MAX), Cache::new(UNCACHEABLE_MAX));
        let refusals = Cache::new(REFUSALS_MAX);
        let page_max = AtomicU64::new(page_max(bytes));
        Self {
            pages,
            admission_filter: AdmissionFilter::default(),
            page_max,
            uncacheable,
            refusals,
            failing,
        }
    }

    /// The value held under `key`.
    #[must_use]
    pub fn get(&self, key: &PageKey) -> Option<MemoryValue> {
        self.pages.get(&TableKey::Slot(*key))?.slot()
    }

    /// The same, which does not count as a use.
    #[must_use]
    pub fn peek(&self, key: &PageKey) -> Option<MemoryValue> {
        self.pages.peek(&TableKey::Slot(*key))?.slot()
    }

    /// Puts a page or an index that is requested at `now`. The forms of the previous page are dropped, unless
    /// the new page has the same body: a 304 changes fields only, so the forms are then carried over. Returns
    /// whether the page was also requested within the last minute: it is then kept longer.
    pub fn put(&self, key: PageKey, slot: MemoryValue, now: u64) -> bool {
        let name = TableKey::Slot(key);
        // A peek, because a page that is about to be replaced is not used.
        let before = self.pages.peek(&name);
        let page = match &slot {
            MemoryValue::Page(page) => Some(Arc::clone(page)),
            MemoryValue::Variants(_) => None,
        };
        let was_requested = self.admission_filter.note(&key, now);
        self.pages.insert(name.clone(), CachedValue::Slot(slot));
        if was_requested && before.is_none() {
            // This counts as a use, so the page stays when other new pages are evicted.
            drop(self.pages.get(&name));
        }
        if let (Some(CachedValue::Slot(MemoryValue::Page(before))), Some(page)) = (&before, &page) {
            if Arc::ptr_eq(before, page) {
                return was_requested;
            }
            self.hand_on_forms(before, page);
        }
        self.forget_forms(before);
        was_requested
    }

    /// Removes a key, and the forms of its page.
    pub fn remove(&self, key: &PageKey) {
        let before = self.pages.remove(&TableKey::Slot(*key));
        self.forget_forms(before.map(|(_, held)| held));
    }

    /// The form of a page in `coding`, if it has been made. Forms are keyed by the page itself, so a form
    /// never outlives a change to its page.
    #[must_use]
    pub fn form(&self, page: &Arc<Entry>, coding: Coding) -> Option<RecodedPage> {
        match self.pages.get(&TableKey::form(page, coding))? {
            CachedValue::Form { form, .. } => Some(form),
            CachedValue::Slot(_) => None,
        }
    }

    /// Keeps a form of a page.
    pub fn put_form(&self, page: &Arc<Entry>, coding: Coding, form: RecodedPage) {
        if self.has_room_for(page) {
            let held = CachedValue::Form { _of: Arc::downgrade(page), form };
            self.pages.insert(TableKey::form(page, coding), held);
        }
    }

    /// Whether a page is small enough to be held. Forms of larger pages could not be found again.
    #[must_use]
    pub fn has_room_for(&self, page: &Entry) -> bool {
        SLOT + page.weight() as u64 <= self.page_max.load(Ordering::Relaxed)
    }

    fn hand_on_forms(&self, before: &Arc<Entry>, page: &Arc<Entry>) {
        let is_same = before.body.as_ptr() == page.body.as_ptr()
            && before.body.len() == page.body.len()
            && before.fields.coding == page.fields.coding;
        if !is_same {
            return;
        }
        for coding in Coding::ALL {
            // A peek, because this is not a request for the form.
            let Some(CachedValue::Form { form, .. }) =
                self.pages.peek(&TableKey::form(before, coding))
            else {
                continue;
            };
            let form = match form {
                RecodedPage::Made(made) => {
                    RecodedPage::Made(Arc::new(recoded::with_body(page, coding, made.body.clone())))
                }
                RecodedPage::Useless => RecodedPage::Useless,
            };
            self.put_form(page, coding, form);
        }
    }

    fn forget_forms(&self, of: Option<CachedValue>) {
        let Some(CachedValue::Slot(MemoryValue::Page(page))) = of else { return };
        for coding in Coding::ALL {
            self.pages.remove(&TableKey::form(&page, coding));
        }
    }

    /// Remembers that the page under `key` was found uncacheable, and why, until it is purged. `before` is the
    /// state of purges before the fetch; `is_of_all`: the response has no variants, so the mark holds for the
    /// whole key.
    pub fn mark_uncacheable(
        &self,
        key: PageKey,
        reasons: impl Into<RefusalReasons>,
        MarkTime { now, config }: MarkTime,
        before: Arc<PurgeSnapshot>,
        is_of_all: bool,
    ) {
        let (until, before) = (now.saturating_add(UNCACHEABLE_TTL), Some(before));
        let reasons = reasons.into();
        let mark = UncacheableMark { until, config, reasons, before, is_of_all };
        self.uncacheable.insert(key, mark);
    }

    /// The same for a second, because the cause may pass.
    pub fn mark_briefly(
        &self,
        key: PageKey,
        reasons: impl Into<RefusalReasons>,
        MarkTime { now, config }: MarkTime,
    ) {
        let (until, reasons) = (now.saturating_add(BRIEF_TTL), reasons.into());
        let mark = UncacheableMark { until, config, reasons, before: None, is_of_all: false };
        self.uncacheable.insert(key, mark);
    }

    /// Why the page under `key` was recently found uncacheable, if it was, and was not purged since.
    #[must_use]
    pub fn uncacheable(&self, key: &PageKey, at: MarkTime, purged: &PurgeTable) -> Option<Reason> {
        self.mark(key, at, purged).map(|mark| mark.reasons.first)
    }

    /// The same if the store need not be asked for the page either: the response had no variants.
    #[must_use]
    pub fn uncacheable_in_all(
        &self,
        key: &PageKey,
        at: MarkTime,
        purged: &PurgeTable,
    ) -> Option<Reason> {
        let mark = self.mark(key, at, purged)?;
        mark.is_of_all.then_some(mark.reasons.first)
    }

    fn mark(&self, key: &PageKey, at: MarkTime, purged: &PurgeTable) -> Option<UncacheableMark> {
        // PERF: the table is usually empty, and checking its count is cheaper than a look-up.
        if self.uncacheable.is_empty() {
            return None;
        }
        self.uncacheable
            .get(key)
            .filter(|mark| at.now < mark.until && at.config == mark.config)
            .filter(|mark| !mark.is_purged(purged))
    }

    /// All reasons, with the seconds for which they stay remembered.
    #[must_use]
    pub fn uncacheable_for(
        &self,
        key: &PageKey,
        at: MarkTime,
        purged: &PurgeTable,
    ) -> Option<(RefusalReasons, u64)> {
        let mark = self.mark(key, at, purged)?;
        Some((mark.reasons, mark.until - at.now))
    }

    /// Remembers why the last page under `key` was refused at `now`, where that says nothing of the next: it contained
    /// its visitor's personal data, or was old when it came. This is informational only.
    pub fn note_refusal(&self, key: PageKey, reason: Reason, now: u64) {
        self.refusals.insert(key, (now, reason));
    }

    /// Why a page under `key` was refused in the last two minutes, and how many seconds ago.
    #[must_use]
    pub fn noted_refusal(&self, key: &PageKey, now: u64) -> Option<(Reason, u64)> {
        let (found, reason) = self.refusals.peek(key)?;
        let ago = now.saturating_sub(found);
        (ago < UNCACHEABLE_TTL).then_some((reason, ago))
    }

    /// Remembers until `until` that the origin fails for the page under `key`.
    pub fn mark_failing(&self, key: PageKey, until: u64) {
        self.failing.insert(key, until);
    }

    /// Whether the origin recently failed for the page under `key`.
    #[must_use]
    pub fn is_failing(&self, key: &PageKey, now: u64) -> bool {
        if self.failing.is_empty() {
            return false;
        }
        self.failing.get(key).is_some_and(|until| now < until)
    }

    /// The pages with the most hits, at most `most`, for which `is_such` is true.
    #[must_use]
    pub fn hottest(&self, most: usize, is_such: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        let mut hottest = Vec::new();
        let cut = |hottest: &mut Vec<(u64, Arc<Entry>)>| {
            hottest.sort_by_key(|(hits, _)| Reverse(*hits));
            hottest.truncate(most);
        };
        for (_, held) in self.pages.iter() {
            let CachedValue::Slot(MemoryValue::Page(entry)) = held else { continue };
            let hits = entry.hits.get();
            if hits > 0 && is_such(&entry) {
                hottest.push((hits, entry));
            }
            // Not all that match are held at a time.
            if hottest.len() > most.saturating_mul(2).max(64) {
                cut(&mut hottest);
            }
        }
        cut(&mut hottest);
        hottest.into_iter().map(|(_, entry)| entry).collect()
    }

    /// The number of held pages for which `is_such` is true.
    #[must_use]
    pub fn count(&self, is_such: impl Fn(&Entry) -> bool) -> usize {
        let mut count = 0;
        self.each(|entry| count += usize::from(is_such(entry)));
        count
    }

    /// Looks at each held page.
    pub fn each(&self, mut look: impl FnMut(&Entry)) {
        for (_, held) in self.pages.iter() {
            if let CachedValue::Slot(MemoryValue::Page(entry)) = held {
                look(&entry);
            }
        }
    }

    /// The held values for which `is_such` is true of a page, at most `most`, in no order. An index is always among
    /// them.
    #[must_use]
    pub fn values(
        &self,
        is_such: impl Fn(&Entry) -> bool,
        most: usize,
    ) -> Vec<(PageKey, MemoryValue)> {
        let held = self.pages.iter().filter_map(|held| match held {
            (TableKey::Slot(key), CachedValue::Slot(value)) => Some((key, value)),
            _ => None,
        });
        let wanted = held.filter(|(_, value)| match value {
            MemoryValue::Page(entry) => is_such(entry),
            MemoryValue::Variants(_) => true,
        });
        wanted.take(most).collect()
    }

    /// Room for pages, in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.pages.capacity()
    }

    /// Changes the room for pages. Where they hold more, some are evicted before this returns, in the order in which
    /// new pages would evict them.
    pub fn set_capacity(&self, bytes: u64) {
        self.page_max.store(page_max(bytes), Ordering::Relaxed);
        self.pages.set_capacity(bytes);
    }

    /// Forgets all pages, and what is known of others.
    pub fn clear(&self) {
        self.pages.clear();
        self.uncacheable.clear();
        self.refusals.clear();
        self.failing.clear();
    }

    /// Bytes of pages held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// The number of pages, indexes and forms held.
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

/// The largest page that a memory of `bytes` holds: it must fit into the proven part of a shard.
fn page_max(bytes: u64) -> u64 {
    bytes / SHARDS as u64 / 10 * 9
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::entry::{LifetimeSource, StaleLifetimes};
    use crate::page_fields::PageFields;
    use crate::purge::scope::Scope;

    fn page(size: usize) -> MemoryValue {
        MemoryValue::Page(Arc::new(Entry {
            status: 200,
            reason: None,
            fields: PageFields::default(),
            body: Bytes::from(vec![b'x'; size]),
            stored_at: 0,
            initial_age: 0,
            lifetime: 300,
            source: LifetimeSource::Default,
            stale: StaleLifetimes::default(),
            static_proof: false,
            has_own_etag: false,
            vary: Vec::new(),
            purge_snapshot: Default::default(),
            recipe: None,
            hits: crate::hit_count::HitCount::default(),
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
            memory.put(key(n), page(10_000), 1_000);
        }
        assert!(memory.bytes() <= 1 << 20, "{} bytes", memory.bytes());
        assert!(memory.len() > 50);
    }

    #[test]
    fn memory_that_shrinks_evicts_and_keeps_the_proven_pages() {
        let memory = Memory::new(1 << 20);
        for n in 0..40 {
            memory.put(key(n), page(10_000), 1_000);
            assert!(memory.get(&key(n)).is_some());
        }
        for n in 100..200 {
            memory.put(key(n), page(10_000), 1_000);
        }
        memory.set_capacity(1 << 19);
        assert!(memory.bytes() <= 1 << 19, "{} bytes", memory.bytes());
        let proven = (0..40).filter(|n| memory.peek(&key(*n)).is_some()).count();
        assert!(proven >= 35, "{proven} of 40");
        let MemoryValue::Page(large) = page(150_000) else { panic!("a page") };
        assert!(!memory.has_room_for(&large), "no request would find it again");

        memory.set_capacity(1 << 20);
        assert!(memory.has_room_for(&large));
        for n in 300..400 {
            memory.put(key(n), page(10_000), 1_000);
        }
        assert!(memory.bytes() > 900_000, "{} bytes", memory.bytes());
    }

    #[test]
    fn forms_take_their_part_of_the_memory_and_go_with_their_page() {
        let memory = Memory::new(1 << 20);
        let entry = |size| match page(size) {
            MemoryValue::Page(entry) => entry,
            MemoryValue::Variants(_) => panic!("a page"),
        };
        let (first, other) = (entry(10_000), entry(10_000));
        memory.put(key(1), MemoryValue::Page(Arc::clone(&first)), 1_000);
        let before = memory.bytes();
        memory.put_form(&first, Coding::Gzip, RecodedPage::Made(entry(5_000)));
        memory.put_form(&first, Coding::Zstd, RecodedPage::Useless);
        assert!(memory.bytes() > before + 5_000);
        assert!(matches!(memory.form(&first, Coding::Gzip), Some(RecodedPage::Made(_))));
        assert!(matches!(memory.form(&first, Coding::Zstd), Some(RecodedPage::Useless)));
        assert!(memory.form(&first, Coding::Brotli).is_none());
        assert!(memory.form(&other, Coding::Gzip).is_none(), "the like is not the same");
        memory.put(key(1), MemoryValue::Page(other), 1_000);
        assert!(memory.form(&first, Coding::Gzip).is_none());
        assert_eq!(memory.bytes(), before);

        for n in 0..1_000 {
            let page = entry(1_000);
            memory.put(key(n), MemoryValue::Page(Arc::clone(&page)), 1_000);
            memory.put_form(&page, Coding::Gzip, RecodedPage::Made(entry(10_000)));
        }
        assert!(memory.bytes() <= 1 << 20, "{} bytes", memory.bytes());
        let heavy = entry(1 << 19);
        memory.put_form(&heavy, Coding::Gzip, RecodedPage::Made(entry(10)));
        assert!(memory.form(&heavy, Coding::Gzip).is_none(), "no request would find it again");
    }

    #[test]
    fn forms_outlive_a_304() {
        let memory = Memory::new(1 << 20);
        let MemoryValue::Page(stale) = page(10_000) else { panic!("a page") };
        let fresh = Arc::new(Entry { stored_at: 7, ..Entry::clone(&stale) });
        memory.put(key(1), MemoryValue::Page(Arc::clone(&stale)), 1_000);
        let form = Entry { body: Bytes::from_static(b"small"), ..Entry::clone(&stale) };
        memory.put_form(&stale, Coding::Gzip, RecodedPage::Made(Arc::new(form)));
        memory.put_form(&stale, Coding::Zstd, RecodedPage::Useless);

        memory.put(key(1), MemoryValue::Page(Arc::clone(&fresh)), 1_000);

        let Some(RecodedPage::Made(form)) = memory.form(&fresh, Coding::Gzip) else {
            panic!("the form")
        };
        assert_eq!((form.body.as_ref(), form.stored_at), (&b"small"[..], 7));
        assert_eq!(form.fields.get(&::http::header::CONTENT_ENCODING), Some(&b"gzip"[..]));
        assert!(matches!(memory.form(&fresh, Coding::Zstd), Some(RecodedPage::Useless)));
        assert!(memory.form(&stale, Coding::Gzip).is_none());
        let bytes = memory.bytes();
        memory.put(key(1), MemoryValue::Page(Arc::clone(&fresh)), 1_000);
        assert_eq!(memory.bytes(), bytes, "put again, it keeps them");
        assert!(matches!(memory.form(&fresh, Coding::Gzip), Some(RecodedPage::Made(_))));
    }

    fn at(now: u64) -> MarkTime {
        MarkTime { now, config: 1 }
    }

    #[test]
    fn a_mark_ends_with_the_configuration() {
        let (memory, purged) = (Memory::new(1 << 20), PurgeTable::new(false));
        memory.mark_uncacheable(key(1), Reason::SetCookie, at(1_000), Arc::default(), false);
        let other = MarkTime { config: 2, ..at(1_000) };
        assert_eq!(memory.uncacheable(&key(1), other, &purged), None);
        assert_eq!(memory.uncacheable_for(&key(1), other, &purged), None);
        assert!(memory.uncacheable_for(&key(1), at(1_000), &purged).is_some());
    }

    #[test]
    fn a_mark_holds_until_the_page_is_purged() {
        let (memory, purged) = (Memory::new(1 << 20), PurgeTable::new(false));
        let tag = Scope::Tag(b"a");
        let before = || Arc::new(purged.now(&[tag.digest()]));
        memory.mark_uncacheable(key(1), Reason::SetCookie, at(1_000), before(), true);
        memory.mark_uncacheable(key(2), Reason::SetCookie, at(1_000), before(), false);
        memory.mark_briefly(key(3), Reason::SetCookie, at(1_000));
        let in_all = |number, now| memory.uncacheable_in_all(&key(number), at(now), &purged);
        let at_all = |number, now| memory.uncacheable(&key(number), at(now), &purged);
        assert_eq!(in_all(1, 1_119), Some(Reason::SetCookie));
        assert_eq!(in_all(1, 1_120), None, "it has lapsed");
        assert_eq!([in_all(2, 1_000), in_all(3, 1_000), in_all(4, 1_000)], [None; 3]);
        assert_eq!([1, 2, 3].map(|number| at_all(number, 1_000)), [Some(Reason::SetCookie); 3]);
        purged.purge_later(&[tag.purge_target(false)]);
        assert_eq!(in_all(1, 1_000), None, "the store may have a page from after the purge");
        assert_eq!([at_all(1, 1_000), at_all(2, 1_000)], [None; 2], "it may be cacheable now");
        assert_eq!(at_all(3, 1_000), Some(Reason::SetCookie), "it lapses in a moment");
    }

    #[test]
    fn uncacheable_is_remembered_for_two_minutes() {
        let (memory, purged) = (Memory::new(1 << 20), PurgeTable::new(false));
        let look = |now| memory.uncacheable(&key(1), at(now), &purged);
        assert_eq!(look(1_000), None);
        memory.mark_uncacheable(key(1), Reason::SetCookie, at(1_000), Arc::default(), false);
        assert_eq!(look(1_119), Some(Reason::SetCookie));
        assert_eq!(look(1_120), None);
    }

    /// The hit ratio of a hot set in the last half of 10 seconds. The hot set fills half the memory and gets
    /// one request per page and second, together with a flood of pages that are requested once each.
    fn share_of_hits(size: u32, flood: u32, is_late: bool) -> f64 {
        let memory = Memory::new(1 << 20);
        let hot = (1 << 19) / (size + 600);
        let mut stranger = 1_000_000;
        let mut ask = |n: Option<u32>, now| {
            stranger += 1;
            let key = key(n.unwrap_or(stranger));
            let is_hit = memory.get(&key).is_some();
            if !is_hit {
                memory.put(key, page(size as usize), now);
            }
            is_hit
        };
        if is_late {
            for _ in 0..5_000 {
                ask(None, 999);
            }
        }
        let mut hits = 0;
        for second in 0..10 {
            for n in 0..hot {
                hits += u32::from(ask(Some(n), 1_000 + second) && second >= 5);
                for _ in 0..flood {
                    ask(None, 1_000 + second);
                }
            }
        }
        assert!(memory.bytes() <= 1 << 20, "{} bytes", memory.bytes());
        f64::from(hits) / f64::from(5 * hot)
    }

    #[test]
    fn pages_requested_once_do_not_evict_the_hot_set() {
        for size in [500, 5_000, 20_000] {
            for flood in [1, 30] {
                for is_late in [false, true] {
                    let share = share_of_hits(size, flood, is_late);
                    assert!(share > 0.9, "{size} bytes, {flood} to 1, late: {is_late}: {share}");
                }
            }
        }
    }
}
