//! The list of the pages in memory, which the store keeps for the next start; and the start that reads those pages into
//! memory before requests need them.
//!
//! The list is a version byte and then, for each page, a byte of its kind, four bytes of its size (little-endian), the key of
//! the page, and for a variant the variant's key. It holds no part of a page. What is wrong in it ends it: the pages
//! up to there are read, and each is judged as a look-up would judge it.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::PageKey;
use anteroom_store::{HOT_LIST_MAX, HotPageStore, StoreError};
use bytes::{Buf as _, Bytes};
use futures_util::stream::{self, StreamExt as _};

use super::Pages;
use super::memory::MemoryValue;
use super::purge::PurgeStanding;

/// The version of the list's layout.
const VERSION: u8 = 1;
/// A page, or an index of variants.
const PRIMARY: u8 = 0;
/// A page that is a variant.
const VARIANT: u8 = 1;
/// The bytes of an entry of a page; that of a variant has one more key.
const ENTRY: usize = 1 + 4 + size_of::<PageKey>();
/// The most pages from which the list is made. It has room for about 140,000.
const VALUES_MAX: usize = 1 << 18;

/// Bytes of pages that are read in one step.
const STEP_BYTES: u64 = 1 << 20;
/// Pages that are read in one step.
const STEP_PAGES: usize = 128;
/// Steps at a time: as many as a store has connections for background work.
const STEPS_AT_ONCE: usize = 4;

/// How far a start has come.
#[derive(Debug, Default)]
pub struct WarmStart {
    /// The pages in the list, with their indexes.
    pub listed: Cell<usize>,
    /// Those that memory has taken from the store.
    pub taken: Cell<usize>,
}

/// A page in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListedPage {
    /// The key of the page with all its variants.
    primary: PageKey,
    /// Its own key.
    key: PageKey,
    /// Its size in memory, in bytes.
    size: u32,
}

/// The list of the pages that are fresh in memory at `now`, for [`HotPageStore::put_hot_pages`]; `None` if there is none.
#[must_use]
pub fn list(pages: &Pages, now: u64) -> Option<Bytes> {
    let is_current = |entry: &_| pages.standing(entry, now) == PurgeStanding::Current;
    let listed = listed(&mut pages.memory().values(is_current, VALUES_MAX), now);
    (!listed.is_empty()).then(|| encode(&listed))
}

/// What the list says of these values at `now`: the indexes, and then the pages, the most used ones first.
fn listed(values: &mut [(PageKey, MemoryValue)], now: u64) -> Vec<ListedPage> {
    values.sort_by_cached_key(|(_, value)| match value {
        MemoryValue::Variants(_) => Reverse(u64::MAX),
        // A page that was fetched again a moment ago counts as used: its hits begin at zero.
        MemoryValue::Page(page) => {
            Reverse((page.hits.get() + 1).saturating_mul(1_000) / (page.age(now) + 1))
        }
    });

    let mut primaries = HashMap::new();
    for (primary, value) in &*values {
        if let MemoryValue::Variants(index) = value {
            primaries.extend(index.keys.iter().map(|key| (*key, *primary)));
        }
    }
    let one = |(key, value): &(PageKey, MemoryValue)| {
        let size = match value {
            MemoryValue::Page(entry) => entry.weight(),
            MemoryValue::Variants(index) => size_of_val(index.keys.as_slice()),
        };
        let primary = primaries.get(key).copied().unwrap_or(*key);
        ListedPage { primary, key: *key, size: u32::try_from(size).unwrap_or(u32::MAX) }
    };
    values.iter().map(one).collect()
}

/// The list of these pages, as many as it has room for.
fn encode(listed: &[ListedPage]) -> Bytes {
    let mut list = Vec::with_capacity(1 + listed.len() * ENTRY);
    list.push(VERSION);
    for page in listed {
        let is_variant = page.primary != page.key;
        let size = if is_variant { ENTRY + size_of::<PageKey>() } else { ENTRY };
        if list.len() + size > HOT_LIST_MAX {
            break;
        }
        list.push(if is_variant { VARIANT } else { PRIMARY });
        list.extend_from_slice(&page.size.to_le_bytes());
        list.extend_from_slice(&page.primary.0);
        if is_variant {
            list.extend_from_slice(&page.key.0);
        }
    }
    list.into()
}

/// The pages of a list, up to the first wrong byte; none of another version.
fn decode(mut list: Bytes) -> Vec<ListedPage> {
    let mut listed = Vec::new();
    if list.try_get_u8() != Ok(VERSION) {
        return listed;
    }
    while let Some(page) = decode_page(&mut list) {
        listed.push(page);
    }
    listed
}

fn decode_page(list: &mut Bytes) -> Option<ListedPage> {
    let kind = list.try_get_u8().ok()?;
    let size = list.try_get_u32_le().ok()?;
    let primary = decode_key(list)?;
    let key = match kind {
        PRIMARY => primary,
        VARIANT => decode_key(list)?,
        _ => return None,
    };
    Some(ListedPage { primary, key, size })
}

fn decode_key(list: &mut Bytes) -> Option<PageKey> {
    let mut key = [0; size_of::<PageKey>()];
    list.try_copy_to_slice(&mut key).ok()?;
    Some(PageKey(key))
}

/// The first pages that have room in `room` bytes of memory, in steps.
fn steps(listed: &[ListedPage], room: u64) -> Vec<&[ListedPage]> {
    let (mut steps, mut begin, mut bytes, mut all) = (Vec::new(), 0, 0, 0);
    for (place, page) in listed.iter().enumerate() {
        let size = u64::from(page.size);
        if all + size > room {
            steps.push(&listed[begin..place]);
            return steps;
        }
        if place > begin && (bytes + size > STEP_BYTES || place - begin == STEP_PAGES) {
            steps.push(&listed[begin..place]);
            (begin, bytes) = (place, 0);
        }
        bytes += size;
        all += size;
    }
    steps.push(&listed[begin..]);
    steps
}

/// Reads the pages of the store's list into memory, as many as have room beside what memory holds. It may be dropped at any time; `progress`
/// tells how far it has come. Pages that a store does not return are left out: the first request finds or fetches them.
///
/// # Errors
/// If the store does not return the list.
pub async fn run<S: HotPageStore>(
    pages: &Pages,
    store: &S,
    progress: &WarmStart,
) -> Result<(), StoreError> {
    let Some(list) = store.hot_pages().await? else { return Ok(()) };
    let listed = decode(list);
    progress.listed.set(listed.len());
    let memory = pages.memory();
    let room = memory.capacity().saturating_sub(memory.bytes());
    let steps = stream::iter(steps(&listed, room));
    steps
        .for_each_concurrent(STEPS_AT_ONCE, |step| async move {
            let taken = read_step(pages, store, step).await;
            progress.taken.set(progress.taken.get() + taken);
        })
        .await;
    Ok(())
}

/// Reads some pages, and returns how many memory has taken.
async fn read_step<S: HotPageStore>(pages: &Pages, store: &S, step: &[ListedPage]) -> usize {
    let keys: Vec<_> = step.iter().map(|page| page.key).collect();
    let found = match store.pages(&keys).await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(%error, "some pages were not read at the start");
            return 0;
        }
    };
    let now = unix_now() as u64;
    let take = |(page, stored): (&ListedPage, Option<Bytes>)| {
        stored.is_some_and(|stored| pages.take_ahead(&page.primary, &page.key, stored, now))
    };
    step.iter().zip(found).map(take).filter(|taken| *taken).count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::http::header::{ACCEPT_LANGUAGE, HeaderName};
    use ::http::{HeaderMap, HeaderValue};
    use anteroom_store::Generation;

    use super::*;
    use crate::ToStore;
    use crate::entry::{Entry, LifetimeSource, StaleLifetimes, StoredValue};
    use crate::flight::Flights;
    use crate::page_fields::PageFields;
    use crate::purge::{PurgeSnapshot, PurgeTable};

    /// The time by which pages of these tests are fresh.
    fn now() -> u64 {
        unix_now() as u64
    }

    fn key(n: u8) -> PageKey {
        PageKey([n; 32])
    }

    fn page(vary: &[HeaderName], stored_at: u64) -> Entry {
        Entry {
            status: 200,
            reason: None,
            fields: PageFields::default(),
            body: "page".into(),
            stored_at,
            initial_age: 0,
            lifetime: 300,
            source: LifetimeSource::Default,
            stale: StaleLifetimes { while_revalidate: 300, if_error: 300 },
            static_proof: false,
            has_own_etag: false,
            vary: vary.to_vec(),
            purge_snapshot: Default::default(),
            recipe: None,
            hits: Default::default(),
        }
    }

    fn pages(memory: u64) -> Pages {
        Pages::new(memory, Flights::new(1 << 20, 10), PurgeTable::new(false).into(), 32)
    }

    /// A store that holds a list, and values in memory.
    #[derive(Default)]
    struct MemoryStore {
        list: Option<Bytes>,
        values: HashMap<PageKey, Bytes>,
    }

    impl MemoryStore {
        fn add(&mut self, values: &[ToStore]) {
            self.values.extend(values.iter().map(|value| (value.key, value.encode())));
        }
    }

    impl HotPageStore for MemoryStore {
        async fn put_hot_pages(&self, _: Bytes, _: Duration) -> Result<(), StoreError> {
            Ok(())
        }

        async fn hot_pages(&self) -> Result<Option<Bytes>, StoreError> {
            Ok(self.list.clone())
        }

        async fn pages(&self, keys: &[PageKey]) -> Result<Vec<Option<Bytes>>, StoreError> {
            Ok(keys.iter().map(|key| self.values.get(key).cloned()).collect())
        }
    }

    async fn warmed(pages: &Pages, stored: &MemoryStore) -> (usize, usize) {
        let progress = WarmStart::default();
        run(pages, stored, &progress).await.unwrap();
        (progress.listed.get(), progress.taken.get())
    }

    #[tokio::test]
    async fn pages_and_variants_that_were_in_memory_are_in_it_after_a_start() {
        let (before, after, none) = (pages(1 << 20), pages(1 << 20), HeaderMap::new());
        let german = HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static("de"))]);
        let mut stored = MemoryStore::default();
        stored.add(&before.keep(key(1), &none, page(&[], now()), now()).unwrap());
        stored.add(&before.keep(key(2), &german, page(&[ACCEPT_LANGUAGE], now()), now()).unwrap());
        let stale = before.keep(key(3), &none, page(&[], now() - 400), now()).unwrap();
        stored.add(&stale);
        stored.list = list(&before, now());
        assert_eq!(warmed(&after, &stored).await, (3, 3), "a page, a variant and its index");
        assert!(after.in_memory(&key(1), || &none, now()).is_some());
        assert!(after.in_memory(&key(2), || &german, now()).is_some());
        assert!(after.in_memory(&key(2), || &none, now()).is_none());
        assert!(after.held_in_memory(&key(3), &none).page.is_none(), "it is stale");
    }

    #[test]
    fn the_most_used_pages_come_first() {
        let page = |n, hits, age: u64| {
            let page = page(&[], 1_000 - age);
            for _ in 0..hits {
                page.hits.add();
            }
            (key(n), MemoryValue::Page(page.into()))
        };
        let mut values = [page(1, 0, 200), page(2, 50, 200), page(3, 50, 100), page(4, 0, 0)];
        let order: Vec<_> = listed(&mut values, 1_000).iter().map(|one| one.key.0[0]).collect();
        assert_eq!(order, [4, 3, 2, 1]);
    }

    #[tokio::test]
    async fn what_was_changed_purged_or_over_does_not_come_back() {
        let (before, after, none) = (pages(1 << 20), pages(1 << 20), HeaderMap::new());
        let mut stored = MemoryStore::default();
        for n in 1..=5 {
            stored.add(&before.keep(key(n), &none, page(&[], now()), now()).unwrap());
        }
        stored.list = list(&before, now());
        let encoded = |entry| StoredValue::Page(entry).encode();
        stored.values.insert(key(1), encoded(page(&[], now() - 400)));
        // From an era of purges that is over.
        let snapshot = PurgeSnapshot::stored(Generation { era: 9, number: 1 }, vec![1]).unwrap();
        let gone = Entry { purge_snapshot: snapshot.into(), ..page(&[], now()) };
        stored.values.insert(key(2), encoded(gone));
        stored.values.insert(key(3), StoredValue::Plain("an app's".into()).encode());
        let _ = after.invalidate(&key(4), now());
        let newer = Entry { body: "newer".into(), ..page(&[], now()) };
        let _ = after.keep(key(5), &none, newer, now()).unwrap();
        assert_eq!(warmed(&after, &stored).await, (5, 0));
        for n in 1..=4 {
            assert!(after.held_in_memory(&key(n), &none).page.is_none(), "{n}");
        }
        let held = after.in_memory(&key(5), || &none, now()).unwrap();
        assert_eq!(&held.body[..], b"newer");
    }

    #[tokio::test]
    async fn no_more_is_read_than_memory_has_room_for() {
        let (before, none) = (pages(64 << 20), HeaderMap::new());
        let mut stored = MemoryStore::default();
        for n in 0..40 {
            let large = Entry { body: vec![b'x'; 100_000].into(), ..page(&[], now()) };
            stored.add(&before.keep(key(n), &none, large, now()).unwrap());
        }
        stored.list = list(&before, now());
        let (listed, taken) = warmed(&pages(1 << 20), &stored).await;
        assert_eq!((listed, taken), (40, 10), "ten pages of 100 kB fit into a MiB");
    }

    #[test]
    fn a_list_is_read_as_it_was_written_up_to_the_first_wrong_byte() {
        let variant = ListedPage { primary: key(1), key: key(2), size: 7 };
        let listed = [ListedPage { primary: key(1), key: key(1), size: 300 }, variant];
        let whole = encode(&listed);
        assert_eq!(decode(whole.clone()), listed);
        assert_eq!(decode(whole.slice(..whole.len() - 1)), listed[..1]);
        for wrong in [&b""[..], b"\x01", b"\x02", b"\x01\x09", b"\x01\x00\x00\x00"] {
            assert_eq!(decode(Bytes::from_static(wrong)), [], "{wrong:?}");
        }
        assert_eq!(decode([&[2], &whole[1..]].concat().into()), [], "another version");
    }

    #[test]
    fn a_list_has_a_bound() {
        let variant = ListedPage { primary: key(1), key: key(2), size: 7 };
        let list = encode(&vec![variant; 200_000]);
        assert!(list.len() <= HOT_LIST_MAX && list.len() > HOT_LIST_MAX - 100);
        assert_eq!(decode(list).last(), Some(&variant));
    }

    #[test]
    fn a_step_has_a_bound() {
        let one = |size| ListedPage { primary: key(1), key: key(1), size };
        let lengths = |listed: &[ListedPage], room| -> Vec<_> {
            steps(listed, room).iter().map(|step| step.len()).collect()
        };
        assert_eq!(lengths(&[one(1); 300], 1_000), [STEP_PAGES, STEP_PAGES, 44]);
        assert_eq!(lengths(&[one(600 << 10); 3], 8 << 20), [1, 1, 1]);
        assert_eq!(lengths(&[one(10); 5], 35), [3]);
    }
}
