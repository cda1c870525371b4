//! What was purged: a table of generations by scope, in this process's memory, and what a page has to
//! do with it.
//!
//! A page carries the generation that was known before its origin request was sent, and the slots of
//! its scopes: its URL, the prefixes of its path, its tags. A purge has a number, and its scopes' slots
//! take that number. A page is from before a purge where one of its slots has a higher number than it
//! has: a few looks into a table, and no question to the store. Scopes share slots where their hashes
//! do, which costs a page that is fetched for nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};

use crate::store::{Generation, MARKS, News, PURGE_MARKS_MAX, PurgeStore, StoreError};

/// Slots for URLs: changes by visitors purge these, and hit nothing else.
const URL_SLOTS: u32 = 65_536;
/// Slots for prefixes and tags.
const GROUP_SLOTS: u32 = 65_536;
/// The slot of everything.
const EVERYTHING: u32 = URL_SLOTS + GROUP_SLOTS;
/// The levels of a path by which it is purged; deeper ones count to the last of them.
const LEVELS_MAX: usize = 16;
/// The most slots of a page: its URL, the prefixes, and the tags, and as many tags again that a 304
/// added.
pub const SLOTS_MAX: usize = 1 + LEVELS_MAX + 2 * crate::http::tags::TAGS_MAX;
/// How long the store may be silent until pages count as cut off from it.
const CUT_OFF_AFTER: Duration = Duration::from_secs(1);

// Each slot has a mark for soft purges and one for hard ones.
const _: () = assert!(MARKS == 2 * (EVERYTHING + 1));

/// What a purge is for. Paths are percent-decoded, so that every spelling of one is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// One URL with all its forms: share classes, keyed values, variants.
    Url {
        /// Lower-case `host` or `host:port`.
        site: &'a str,
        /// The path.
        path: &'a str,
        /// The query after removal of the ignored parameters.
        query: &'a str,
    },
    /// A path, all paths below it, and all their queries.
    Prefix {
        /// Lower-case `host` or `host:port`.
        site: &'a str,
        /// The path, with a slash at the end or not.
        path: &'a str,
    },
    /// The pages that the origin gave this tag.
    Tag(&'a [u8]),
    /// All pages.
    Everything,
}

impl Scope<'_> {
    fn slot(&self) -> u32 {
        match *self {
            Self::Url { site, path, query } => {
                hashed(b'u', &[site.as_bytes(), path.as_bytes(), query.as_bytes()]) % URL_SLOTS
            }
            Self::Prefix { site, path } => {
                prefix_slot(site, levels(path).last().unwrap_or_default())
            }
            Self::Tag(tag) => URL_SLOTS + hashed(b't', &[tag]) % GROUP_SLOTS,
            Self::Everything => EVERYTHING,
        }
    }

    /// The place in the table of purges; `hard`: nothing of it may be shown again, else it is stale.
    #[must_use]
    pub fn mark(&self, hard: bool) -> u32 {
        2 * self.slot() + u32::from(hard)
    }
}

fn prefix_slot(site: &str, path: &str) -> u32 {
    URL_SLOTS + hashed(b'p', &[site.as_bytes(), path.as_bytes()]) % GROUP_SLOTS
}

/// `/a/b/c` has the levels `/`, `/a/`, `/a/b/` and `/a/b/c/`, written without the last slash.
fn levels(path: &str) -> impl Iterator<Item = &str> {
    let whole = path.strip_suffix('/').unwrap_or(path);
    let ends = whole.bytes().enumerate().filter(|(_, byte)| *byte == b'/').map(|(at, _)| at);
    ends.chain([whole.len()]).map(|end| &whole[..end]).take(LEVELS_MAX)
}

/// The same in every process and version.
fn hashed(kind: u8, parts: &[&[u8]]) -> u32 {
    let mut hash = Sha256::new();
    hash.update([kind]);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let [a, b, c, d, ..] = <[u8; 32]>::from(hash.finalize());
    u32::from_be_bytes([a, b, c, d])
}

/// The slots of the page at a URL, as far as that is known before the origin has answered.
#[must_use]
pub fn url_slots(site: &str, path: &str, query: &str) -> Vec<u32> {
    let mut slots = vec![Scope::Url { site, path, query }.slot()];
    slots.extend(levels(path).map(|level| prefix_slot(site, level)));
    slots
}

/// The slots of tags.
#[must_use]
pub fn tag_slots(tags: &[&[u8]]) -> Vec<u32> {
    tags.iter().map(|tag| Scope::Tag(tag).slot()).collect()
}

/// From when a page is, and which purges hit it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// What was known before its origin request was sent.
    pub since: Generation,
    /// The slots of its scopes, at most [`SLOTS_MAX`]; none where it was not fetched by us.
    pub slots: Vec<u32>,
    /// How many purges this process had begun by then. Not stored: 0 is before all.
    begun: u64,
}

impl Marks {
    /// Marks that were stored; `None` where they are none.
    #[must_use]
    pub fn stored(since: Generation, slots: Vec<u32>) -> Option<Self> {
        let are_slots = slots.len() <= SLOTS_MAX && slots.iter().all(|slot| *slot <= EVERYTHING);
        are_slots.then_some(Self { since, slots, begun: 0 })
    }

    /// With further slots.
    #[must_use]
    pub fn with(mut self, slots: &[u32]) -> Self {
        for slot in slots {
            if !self.slots.contains(slot) && self.slots.len() < SLOTS_MAX {
                self.slots.push(*slot);
            }
        }
        self
    }

    /// Whether a purge with these marks, in order, hits the page.
    #[must_use]
    pub fn are_hit_by(&self, marks: &[u32]) -> bool {
        let hit = |slot: &u32| {
            [2 * slot, 2 * slot + 1].iter().any(|mark| marks.binary_search(mark).is_ok())
        };
        !self.slots.is_empty() && self.slots.iter().chain([&EVERYTHING]).any(hit)
    }

    /// Whether both are from the same moment in the order of purges.
    #[must_use]
    pub fn is_as_old_as(&self, other: &Self) -> bool {
        self.since == other.since && self.begun == other.begun
    }
}

/// What purges make of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// None has hit it.
    Current,
    /// It is stale since one.
    Stale,
    /// It must not be shown again.
    Gone,
}

/// A purge of this process that the store does not have yet.
#[derive(Clone, Copy, Debug)]
struct Unsent {
    begun: u64,
    /// Whether whoever began it has given up.
    is_left: bool,
}

/// All purges, as this process knows them. Shared by all threads.
#[derive(Debug)]
pub struct Purged {
    /// By mark: the number of the last purge that has it.
    table: Box<[AtomicU64]>,
    /// The era of the table; 0 while there is none.
    era: AtomicU64,
    /// Up to where the table is complete.
    seen: watch::Sender<Generation>,
    /// Purges on their way to the store, or waiting for it, by mark. They count already.
    unsent: Mutex<HashMap<u32, Unsent>>,
    unsent_marks: AtomicUsize,
    /// Purges begun by this process.
    begun: AtomicU64,
    /// Whether other processes purge, too.
    has_others: bool,
    started: Instant,
    /// When the table was last known to be complete, in milliseconds since the start, and one more; 0:
    /// never.
    complete_at: AtomicU64,
    nudge: Notify,
    /// Whose news these are.
    pub who: u64,
}

impl Purged {
    /// Nothing is known yet. `has_others`: what other processes purge has to be learnt in time.
    #[must_use]
    pub fn new(has_others: bool) -> Self {
        Self {
            table: (0..MARKS).map(|_| AtomicU64::new(0)).collect(),
            era: AtomicU64::new(0),
            seen: watch::Sender::new(Generation::default()),
            unsent: Mutex::default(),
            unsent_marks: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            has_others,
            started: Instant::now(),
            complete_at: AtomicU64::new(0),
            nudge: Notify::new(),
            who: fastrand::u64(..),
        }
    }

    fn unsent(&self) -> MutexGuard<'_, HashMap<u32, Unsent>> {
        // No code that can panic runs under this lock.
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The marks of a page whose origin request is about to be sent.
    #[must_use]
    pub fn now(&self, slots: Vec<u32>) -> Marks {
        let begun = self.begun.load(Ordering::Acquire);
        Marks { since: *self.seen.borrow(), slots, begun }
    }

    /// What purges make of a page.
    #[must_use]
    pub fn standing(&self, marks: &Marks) -> Standing {
        // What an app stored by itself says nothing of when or for what.
        if marks.slots.is_empty() {
            return Standing::Current;
        }
        let era = self.era.load(Ordering::Acquire);
        if era != marks.since.era {
            return Standing::Gone;
        }
        // What is on its way is held while the table is read: what is gone from there, the table has.
        let has_unsent = self.unsent_marks.load(Ordering::Acquire) > 0;
        let unsent = has_unsent.then(|| self.unsent());
        let is_hit = |mark: u32| {
            let begun = unsent.as_ref().and_then(|unsent| unsent.get(&mark));
            let last = self.table.get(mark as usize).map_or(0, |last| last.load(Ordering::Acquire));
            last > marks.since.number || begun.is_some_and(|unsent| unsent.begun > marks.begun)
        };
        let mut standing = Standing::Current;
        for slot in marks.slots.iter().chain([&EVERYTHING]) {
            if is_hit(2 * slot + 1) {
                return Standing::Gone;
            }
            if is_hit(2 * slot) {
                standing = Standing::Stale;
            }
        }
        // The table was made anew meanwhile: what was read of it says nothing.
        if self.era.load(Ordering::Acquire) == era { standing } else { Standing::Gone }
    }

    /// Whether no purge has hit a page.
    #[must_use]
    pub fn is_current(&self, marks: &Marks) -> bool {
        self.standing(marks) == Standing::Current
    }

    /// Whether purges by others may be missing for too long already: what is fetched now may be shown
    /// for a second.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.has_others && {
            let patience = self.complete_at.load(Ordering::Acquire) + millis(CUT_OFF_AFTER);
            patience < millis(CUT_OFF_AFTER) + 1 || millis(self.started.elapsed()) + 1 > patience
        }
    }

    /// Purges: here at once, then in the store for all. Returns when this process has seen it in its
    /// place among the others. Dropped or failed, it is sent again by [`Self::send_left`].
    ///
    /// # Errors
    /// When the store does not have it yet.
    pub async fn purge<S: PurgeStore>(
        &self,
        store: &S,
        marks: &[u32],
    ) -> Result<Generation, StoreError> {
        let mut last = *self.seen.borrow();
        for marks in marks.chunks(PURGE_MARKS_MAX) {
            let sending = self.begin(marks.to_vec());
            last = store.purge(marks).await?;
            sending.arrived(last);
        }
        self.see(last).await;
        Ok(last)
    }

    fn begin(&self, marks: Vec<u32>) -> Sending<'_> {
        let mut unsent = self.unsent();
        let begun = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        unsent.extend(marks.iter().map(|mark| (*mark, Unsent { begun, is_left: false })));
        self.unsent_marks.store(unsent.len(), Ordering::Release);
        Sending { purged: self, marks, begun }
    }

    /// Returns when the table is complete up to a purge.
    async fn see(&self, purge: Generation) {
        if !self.seen.borrow().includes(purge) {
            self.nudge.notify_one();
        }
        let mut seen = self.seen.subscribe();
        drop(
            seen.wait_for(|seen| seen.includes(purge)).await.expect("the sender is in this table"),
        );
    }

    /// Returns when the store was read once.
    pub async fn known(&self) {
        let mut seen = self.seen.subscribe();
        drop(seen.wait_for(|seen| seen.era > 0).await.expect("the sender is in this table"));
    }

    /// Returns when the store should be asked for news.
    pub async fn nudged(&self) {
        self.nudge.notified().await;
    }

    /// Asks for news sooner.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// Learns what others have purged, a bounded piece of it. Returns whether there is more, or whether
    /// others wait to hear that this was seen.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn learn<S: PurgeStore>(&self, store: &S) -> Result<bool, StoreError> {
        let seen = *self.seen.borrow();
        let asked_at = millis(self.started.elapsed());
        match store.purged_since(self.who, seen).await? {
            News::Since { purges, upto, more } => {
                for (marks, number) in purges.iter().zip(seen.number + 1..) {
                    self.mark(marks.iter().map(|mark| (*mark, number)));
                }
                self.is_complete(upto, more, asked_at);
                Ok(more || !purges.is_empty())
            }
            News::All { upto, marks } => {
                if upto.era != seen.era {
                    self.era.store(0, Ordering::Release);
                    self.table.iter().for_each(|last| last.store(0, Ordering::Release));
                }
                self.mark(marks.into_iter());
                self.era.store(upto.era, Ordering::Release);
                self.is_complete(upto, false, asked_at);
                Ok(true)
            }
        }
    }

    fn mark(&self, marks: impl Iterator<Item = (u32, u64)>) {
        for (mark, number) in marks {
            if let Some(last) = self.table.get(mark as usize) {
                last.fetch_max(number, Ordering::AcqRel);
            }
        }
    }

    fn is_complete(&self, upto: Generation, more: bool, asked_at: u64) {
        self.seen.send_if_modified(|seen| {
            // A purge of ours may have come in between.
            let grows = !seen.includes(upto);
            if grows {
                *seen = upto;
            }
            grows
        });
        if !more {
            self.complete_at.fetch_max(asked_at + 1, Ordering::AcqRel);
        }
    }

    /// Sends what the store did not take in the first place.
    ///
    /// # Errors
    /// When it still does not.
    pub async fn send_left<S: PurgeStore>(&self, store: &S) -> Result<(), StoreError> {
        if self.unsent_marks.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let left: Vec<(u32, u64)> = {
            let unsent = self.unsent();
            let left = unsent.iter().filter(|(_, unsent)| unsent.is_left);
            left.map(|(mark, unsent)| (*mark, unsent.begun)).take(PURGE_MARKS_MAX).collect()
        };
        if left.is_empty() {
            return Ok(());
        }
        let marks: Vec<u32> = left.iter().map(|(mark, _)| *mark).collect();
        let number = store.purge(&marks).await?;
        for (mark, begun) in left {
            self.arrived(&[mark], begun, number);
        }
        Ok(())
    }

    /// The store has these marks under a number: that outweighs the word of this process.
    fn arrived(&self, marks: &[u32], begun: u64, purge: Generation) {
        // Another era is read first; until then our own word holds.
        if self.era.load(Ordering::Acquire) != purge.era {
            return;
        }
        self.mark(marks.iter().map(|mark| (*mark, purge.number)));
        let mut unsent = self.unsent();
        for mark in marks {
            if unsent.get(mark).is_some_and(|unsent| unsent.begun <= begun) {
                unsent.remove(mark);
            }
        }
        self.unsent_marks.store(unsent.len(), Ordering::Release);
        drop(unsent);
        self.seen.send_if_modified(|seen| {
            let is_next = seen.era == purge.era && seen.number + 1 == purge.number;
            if is_next {
                seen.number += 1;
            }
            is_next
        });
    }

    /// Whoever began it has given up.
    fn leave(&self, marks: &[u32], begun: u64) {
        let mut unsent = self.unsent();
        let mut is_left = false;
        for mark in marks {
            if let Some(unsent) = unsent.get_mut(mark).filter(|unsent| unsent.begun == begun) {
                (unsent.is_left, is_left) = (true, true);
            }
        }
        drop(unsent);
        if is_left {
            self.nudge.notify_one();
        }
    }
}

/// A purge on its way to the store.
struct Sending<'p> {
    purged: &'p Purged,
    marks: Vec<u32>,
    begun: u64,
}

impl Sending<'_> {
    fn arrived(self, purge: Generation) {
        self.purged.arrived(&self.marks, self.begun, purge);
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.purged.leave(&self.marks, self.begun);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A store that counts, keeps everything, and may be away.
    #[derive(Default)]
    struct Ledger {
        era: AtomicU64,
        purges: Mutex<Vec<Vec<u32>>>,
        away: AtomicBool,
    }

    impl Ledger {
        fn new() -> Self {
            Self { era: AtomicU64::new(1), ..Self::default() }
        }

        fn now(&self) -> Result<Generation, StoreError> {
            let number = self.purges.lock().unwrap().len() as u64;
            let now = Generation { era: self.era.load(Ordering::Relaxed), number };
            if self.away.load(Ordering::Relaxed) { Err(StoreError::Away) } else { Ok(now) }
        }
    }

    impl PurgeStore for Ledger {
        async fn purge(&self, marks: &[u32]) -> Result<Generation, StoreError> {
            self.now()?;
            self.purges.lock().unwrap().push(marks.to_vec());
            self.now()
        }

        async fn purged_since(&self, _: u64, seen: Generation) -> Result<News, StoreError> {
            let upto = self.now()?;
            let purges = self.purges.lock().unwrap();
            if seen.era != upto.era {
                let marks = purges.iter().zip(1..);
                let marks =
                    marks.flat_map(|(marks, number)| marks.iter().map(move |m| (*m, number)));
                return Ok(News::All { upto, marks: marks.collect() });
            }
            let new = purges.iter().skip(usize::try_from(seen.number).unwrap()).cloned();
            Ok(News::Since { purges: new.collect(), upto, more: false })
        }

        async fn is_seen(&self, _: Generation) -> Result<bool, StoreError> {
            Ok(true)
        }
    }

    const PAGE: Scope<'_> = Scope::Url { site: "shop.test", path: "/a/b", query: "c=1" };

    async fn ready(store: &Ledger) -> Purged {
        let purged = Purged::new(true);
        purged.learn(store).await.unwrap();
        purged
    }

    fn page(purged: &Purged) -> Marks {
        let marks = purged.now(url_slots("shop.test", "/a/b", "c=1"));
        marks.with(&tag_slots(&[b"red"]))
    }

    #[tokio::test]
    async fn a_page_is_hit_by_its_own_scopes() {
        let site = "shop.test";
        for (scope, hits) in [
            (PAGE, true),
            (Scope::Url { site, path: "/a/b", query: "" }, false),
            (Scope::Url { site: "other.test", path: "/a/b", query: "c=1" }, false),
            (Scope::Prefix { site, path: "/" }, true),
            (Scope::Prefix { site, path: "/a" }, true),
            (Scope::Prefix { site, path: "/a/" }, true),
            (Scope::Prefix { site, path: "/a/b" }, true),
            (Scope::Prefix { site, path: "/a/b/c" }, false),
            (Scope::Prefix { site, path: "/b" }, false),
            (Scope::Prefix { site: "other.test", path: "/" }, false),
            (Scope::Tag(b"red"), true),
            (Scope::Tag(b"blue"), false),
            (Scope::Everything, true),
        ] {
            for (hard, hit) in [(false, Standing::Stale), (true, Standing::Gone)] {
                let store = Ledger::new();
                let purged = ready(&store).await;
                let before = page(&purged);
                purged.purge(&store, &[scope.mark(hard)]).await.unwrap();
                let wanted = if hits { hit } else { Standing::Current };
                assert_eq!(purged.standing(&before), wanted, "{scope:?}");
                assert_eq!(purged.standing(&page(&purged)), Standing::Current, "{scope:?}");
            }
        }
    }

    #[tokio::test]
    async fn another_process_learns_of_it_and_pages_tell_by_themselves_how_old_they_are() {
        let store = Ledger::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        let stored = page(&one);
        let stored = Marks::stored(stored.since, stored.slots).unwrap();
        one.purge(&store, &[PAGE.mark(false)]).await.unwrap();
        let newer = Marks::stored(page(&one).since, stored.slots.clone()).unwrap();
        assert_eq!(other.standing(&stored), Standing::Current);
        assert!(other.learn(&store).await.unwrap(), "others wait for its word");
        assert!(!other.learn(&store).await.unwrap());
        let late = ready(&store).await;
        for purged in [one, other, late] {
            assert_eq!(purged.standing(&stored), Standing::Stale);
            assert_eq!(purged.standing(&newer), Standing::Current);
        }
    }

    #[tokio::test]
    async fn what_the_store_does_not_take_holds_here_and_is_sent_later() {
        let store = Ledger::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        let before = page(&one);
        let stored = Marks::stored(before.since, before.slots.clone()).unwrap();
        store.away.store(true, Ordering::Relaxed);
        one.purge(&store, &[PAGE.mark(false)]).await.unwrap_err();
        assert_eq!(one.standing(&before), Standing::Stale);
        assert_eq!(one.standing(&stored), Standing::Stale);
        assert_eq!(one.standing(&page(&one)), Standing::Current, "it was fetched since");

        store.away.store(false, Ordering::Relaxed);
        one.send_left(&store).await.unwrap();
        other.learn(&store).await.unwrap();
        assert_eq!(other.standing(&stored), Standing::Stale);
        assert_eq!(one.standing(&page(&one)), Standing::Current);
        one.send_left(&store).await.unwrap();
        assert_eq!(store.purges.lock().unwrap().len(), 1, "once");
    }

    #[tokio::test]
    async fn a_store_that_forgot_its_purges_has_no_page_of_before() {
        let store = Ledger::new();
        let purged = ready(&store).await;
        let before = page(&purged);
        store.era.store(2, Ordering::Relaxed);
        purged.learn(&store).await.unwrap();
        assert_eq!(purged.standing(&before), Standing::Gone);
        assert_eq!(purged.standing(&page(&purged)), Standing::Current);
    }

    #[test]
    fn deep_paths_count_to_a_level_of_which_all_below_are_hit() {
        let deep = "/x".repeat(40);
        assert_eq!(url_slots("s", &deep, "").len(), 1 + LEVELS_MAX);
        let prefix = Scope::Prefix { site: "s", path: &"/x".repeat(30) };
        assert!(url_slots("s", &deep, "").contains(&prefix.slot()));
        assert_eq!(levels("/").collect::<Vec<_>>(), [""]);
        assert_eq!(levels("/a/").collect::<Vec<_>>(), ["", "/a"]);
    }

    #[test]
    fn without_a_word_from_the_store_pages_are_cut_off_from_it() {
        assert!(Purged::new(true).is_cut_off());
        assert!(!Purged::new(false).is_cut_off());
    }
}
