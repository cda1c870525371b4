//! What was purged: a table of generations by scope, in this process's memory, and what a page has to
//! do with it.
//!
//! A page carries the generation that was known before its origin request was sent, and the slots of
//! its scopes: its URL, the prefixes of its path, its tags. A purge has a number, and its scopes' slots
//! take that number. A page is from before a purge where one of its slots has a higher number than it
//! has: a few looks into a table, and no question to the store. Scopes share slots where their hashes
//! do, which costs a page that is fetched for nothing.

pub mod scope;
mod unsent;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use self::scope::{Aim, Digest, EVERYTHING, LEVELS_MAX, Scope};
use self::unsent::Unsent;
use crate::store::{
    CUT_OFF_AFTER, Generation, LATER_MARKS, MarkKey, Moment, News, PURGE_MARKS_MAX, PurgeStore,
    StoreError,
};

/// The most slots of a page: its URL, the user and the session whose it is, the prefixes, and the tags, and
/// as many tags again that a 304 added.
pub const SLOTS_MAX: usize = 3 + LEVELS_MAX + 2 * crate::http::tags::TAGS_MAX;
/// Steps in which what is left is sent at the end, at most.
const FLUSH_STEPS_MAX: usize = 200;
/// No era: the table is being made anew.
const CHANGING: u64 = u64::MAX;

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
        let are_slots = slots.len() <= SLOTS_MAX && slots.iter().all(|slot| scope::is_slot(*slot));
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

/// Up to where the table is complete, and what its marks are made with.
#[derive(Clone, Copy, Debug)]
struct Known {
    moment: Moment,
    key: MarkKey,
}

impl Known {
    fn era(&self) -> u64 {
        self.moment.at.era
    }

    fn marks(&self, aims: &[Aim]) -> Vec<u32> {
        aims.iter().map(|aim| aim.mark(&self.key)).collect()
    }
}

/// All purges, as this process knows them. Shared by all threads.
#[derive(Debug)]
pub struct Purged {
    /// By mark: the number of the last purge that has it. Between the two parts of the table is nothing.
    table: Box<[AtomicU64]>,
    /// The era of the table; 0 while there is none.
    era: AtomicU64,
    known: watch::Sender<Known>,
    /// Taken before `known` changes its key.
    unsent: Mutex<Unsent>,
    unsent_count: AtomicUsize,
    /// Purges begun by this process.
    begun: AtomicU64,
    /// How many aims were not sent in the first place.
    late: AtomicU64,
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
        // Until there is an era, this process's own key does.
        let known = Known { moment: Moment::default(), key: MarkKey::random() };
        Self {
            table: (0..LATER_MARKS.end).map(|_| AtomicU64::new(0)).collect(),
            era: AtomicU64::new(0),
            known: watch::Sender::new(known),
            unsent: Mutex::default(),
            unsent_count: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            late: AtomicU64::new(0),
            has_others,
            started: Instant::now(),
            complete_at: AtomicU64::new(0),
            nudge: Notify::new(),
            who: fastrand::u64(..),
        }
    }

    fn unsent(&self) -> MutexGuard<'_, Unsent> {
        // No code that can panic runs under this lock.
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest(&self) -> Known {
        *self.known.borrow()
    }

    /// The marks of a page with these scopes whose origin request is about to be sent.
    #[must_use]
    pub fn now(&self, scopes: &[Digest]) -> Marks {
        let begun = self.begun.load(Ordering::Acquire);
        let Known { moment, key } = self.latest();
        let slots = scopes.iter().map(|scope| scope.slot(&key)).collect();
        Marks { since: moment.at, slots, begun }
    }

    /// The marks of a page with tags, as well.
    #[must_use]
    pub fn tagged(&self, marks: &Marks, tags: &[&[u8]]) -> Marks {
        let known = self.latest();
        // In another era the page is gone, whatever its tags.
        let is_same = known.era() == marks.since.era;
        let tags = tags.iter().filter(|_| is_same);
        let slots: Vec<u32> = tags.map(|tag| Scope::Tag(tag).digest().slot(&known.key)).collect();
        marks.clone().with(&slots)
    }

    /// The marks of a purge, in order, as [`Marks::are_hit_by`] wants them.
    #[must_use]
    pub fn marks(&self, aims: &[Aim]) -> Vec<u32> {
        let mut marks = self.latest().marks(aims);
        marks.sort_unstable();
        marks
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
        let has_unsent = self.unsent_count.load(Ordering::Acquire) > 0;
        let unsent = has_unsent.then(|| self.unsent());
        let is_hit = |mark: u32| {
            let begun = unsent.as_ref().and_then(|unsent| unsent.last(mark));
            let last = self.table.get(mark as usize).map_or(0, |last| last.load(Ordering::Acquire));
            last > marks.since.number || begun.is_some_and(|begun| begun > marks.begun)
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

    /// How many aims wait for the store, and how many had to so far.
    #[must_use]
    pub fn waiting(&self) -> (usize, u64) {
        (self.unsent_count.load(Ordering::Acquire), self.late.load(Ordering::Relaxed))
    }

    /// Purges: here at once, then in the store for all. Returns when this process has seen it in its
    /// place among the others. Dropped or failed, it is sent again by [`Self::keep_up`]. Where the
    /// store is in another era it waits until that is learnt: put a deadline round it.
    ///
    /// # Errors
    /// When the store does not have it yet.
    pub async fn purge<S: PurgeStore>(
        &self,
        store: &S,
        aims: &[Aim],
    ) -> Result<Generation, StoreError> {
        let mut last = self.latest().moment.at;
        // All of it holds here before the first of it is sent, which may fail.
        let pieces: Vec<_> =
            aims.chunks(PURGE_MARKS_MAX).map(|aims| self.begin(aims.to_vec())).collect();
        for piece in pieces {
            last = piece.send(store).await?;
        }
        self.see(last).await;
        Ok(last)
    }

    /// Purges without waiting: here at once, and in the store by [`Self::keep_up`].
    pub fn purge_later(&self, aims: &[Aim]) {
        drop(self.begin(aims.to_vec()));
    }

    fn begin(&self, aims: Vec<Aim>) -> Sending<'_> {
        let mut unsent = self.unsent();
        let begun = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        unsent.add(&aims, begun, &self.latest().key);
        self.unsent_count.store(unsent.len(), Ordering::Release);
        Sending { purged: self, aims, begun }
    }

    /// The purge that others have to see, where they have to see one of this process's that the store took:
    /// the same, or where its era is over, what was sent in the next one. `None`: that is not sent yet.
    #[must_use]
    pub fn stands_as(&self, purge: Generation) -> Option<Generation> {
        let unsent = self.unsent();
        let era = self.era.load(Ordering::Acquire);
        match unsent.taken {
            _ if purge.era == era => Some(purge),
            taken if taken.era == era && unsent.len() == 0 => Some(taken),
            _ => None,
        }
    }

    /// Returns when the table is complete up to a purge, or is of a later era.
    async fn see(&self, purge: Generation) {
        let is_seen = |known: &Known| known.era() != purge.era || known.moment.at.includes(purge);
        self.learnt(is_seen).await;
    }

    /// Returns when what is known is so, and has it asked for sooner.
    async fn learnt(&self, is_so: impl Fn(&Known) -> bool) {
        if !is_so(&self.latest()) {
            self.nudge.notify_one();
        }
        let mut known = self.known.subscribe();
        drop(known.wait_for(|known| is_so(known)).await.expect("the sender is in this table"));
    }

    /// Returns when the store was read once.
    pub async fn known(&self) {
        self.learnt(|known| known.era() > 0).await;
    }

    /// Returns when the store should be asked for news.
    pub async fn nudged(&self) {
        self.nudge.notified().await;
    }

    /// Asks for news sooner.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// Learns what others have purged, a bounded piece of it, and sends some of what the store did not
    /// take in the first place. Returns whether there is more, or whether others wait to hear that this
    /// was seen.
    ///
    /// # Errors
    /// When the store cannot be asked, or still does not take it.
    pub async fn keep_up<S: PurgeStore>(&self, store: &S) -> Result<bool, StoreError> {
        let more = self.learn(store).await?;
        match self.send_left(store).await {
            Ok(sent) => Ok(more || sent),
            Err(_) if more => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Learns what others have purged. Returns whether there is more, or whether others wait to hear that
    /// this was seen.
    async fn learn<S: PurgeStore>(&self, store: &S) -> Result<bool, StoreError> {
        let known = self.latest().moment;
        let asked_at = millis(self.started.elapsed());
        match store.purged_since(self.who, known).await? {
            News::Since { purges, upto, more } => {
                for (marks, number) in purges.iter().zip(known.at.number + 1..) {
                    self.mark(marks, number);
                }
                self.known
                    .send_if_modified(|known| known.era() == upto.at.era && grow(known, upto));
                if !more {
                    self.complete_at.fetch_max(asked_at + 1, Ordering::AcqRel);
                }
                Ok(more || !purges.is_empty())
            }
            News::All { upto, key, marks } => {
                self.take(Known { moment: upto, key }, &marks);
                // Complete when the next answer has said that it is of one history.
                Ok(true)
            }
        }
    }

    fn mark(&self, marks: &[u32], number: u64) {
        for mark in marks {
            if let Some(last) = self.table.get(*mark as usize) {
                last.fetch_max(number, Ordering::AcqRel);
            }
        }
    }

    /// Takes over the whole table of the store.
    fn take(&self, upto: Known, marks: &[(u32, u64)]) {
        let mut unsent = self.unsent();
        let before = self.era.load(Ordering::Acquire);
        if upto.era() != before {
            self.era.store(CHANGING, Ordering::Release);
            self.table.iter().for_each(|last| last.store(0, Ordering::Release));
            // What was complete was another one.
            self.complete_at.store(0, Ordering::Release);
            if unsent.taken.era == before && before > 0 {
                self.carry_over(&mut unsent, &upto.key);
            }
        }
        for (mark, number) in marks {
            self.mark(&[*mark], *number);
        }
        unsent.rekey(&upto.key);
        // First, so that whoever waits for the era finds the table in it.
        self.era.store(upto.era(), Ordering::Release);
        self.known.send_if_modified(|known| {
            known.key = upto.key;
            grow(known, upto.moment)
        });
    }

    /// What the store took of this process in the era before is not known in the next one, which may have
    /// begun elsewhere, and earlier: pages of it may be older. So everything is purged there, once.
    fn carry_over(&self, unsent: &mut Unsent, key: &MarkKey) {
        let everything = [Scope::Everything.aim(true)];
        let begun = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        unsent.add(&everything, begun, key);
        unsent.leave(&everything, begun);
        self.unsent_count.store(unsent.len(), Ordering::Release);
    }

    /// Sends some of what is left. Returns whether there may be more.
    async fn send_left<S: PurgeStore>(&self, store: &S) -> Result<bool, StoreError> {
        if self.unsent_count.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        let left = self.unsent().left(PURGE_MARKS_MAX);
        if left.is_empty() {
            return Ok(false);
        }
        let from = self.latest();
        let aims: Vec<Aim> = left.iter().map(|(aim, _)| *aim).collect();
        match store.purge(from.moment, &from.marks(&aims)).await? {
            Some(purge) => {
                for (aim, begun) in left {
                    self.arrived(&[aim], begun, &from, purge);
                }
            }
            None => self.nudge(),
        }
        Ok(true)
    }

    /// Sends all that the store did not take in the first place, at the end.
    ///
    /// # Errors
    /// When it still does not.
    pub async fn flush<S: PurgeStore>(&self, store: &S) -> Result<(), StoreError> {
        // Others may purge all the time, which is not waited for.
        for _ in 0..FLUSH_STEPS_MAX {
            if self.unsent().left(1).is_empty() {
                return Ok(());
            }
            let learnt = self.learn(store).await;
            let waiting = self.unsent().len();
            // A store that is too slow to be asked may take them all the same.
            self.send_left(store).await?;
            if self.unsent().len() == waiting {
                learnt?;
            }
        }
        Err(StoreError::TimedOut)
    }

    /// The store has these aims under a number: that outweighs the word of this process. `from` is what
    /// was known when they were sent.
    fn arrived(&self, aims: &[Aim], begun: u64, from: &Known, purge: Moment) {
        let mut unsent = self.unsent();
        // Another era is read first; until then our own word holds. So it does where a store that was
        // set back counts the same numbers again.
        if self.era.load(Ordering::Acquire) != purge.at.era
            || purge.at.number <= from.moment.at.number
        {
            return;
        }
        self.mark(&from.marks(aims), purge.at.number);
        unsent.remove(aims, begun, &from.key);
        unsent.took(purge.at);
        self.unsent_count.store(unsent.len(), Ordering::Release);
        drop(unsent);
        self.known.send_if_modified(|known| {
            // Nothing came in between, neither there nor here.
            let is_next =
                known.moment == from.moment && from.moment.at.number + 1 == purge.at.number;
            if is_next {
                known.moment = purge;
            }
            is_next
        });
    }

    /// Whoever began it has given up.
    fn leave(&self, aims: &[Aim], begun: u64) {
        let left = self.unsent().leave(aims, begun);
        if left > 0 {
            self.late.fetch_add(left as u64, Ordering::Relaxed);
            self.nudge();
        }
    }
}

/// What is known grows up to a moment, unless a purge of ours has come in between.
fn grow(known: &mut Known, upto: Moment) -> bool {
    let grows = !known.moment.at.includes(upto.at);
    if grows {
        known.moment = upto;
    }
    grows
}

/// A purge on its way to the store.
struct Sending<'p> {
    purged: &'p Purged,
    aims: Vec<Aim>,
    begun: u64,
}

impl Sending<'_> {
    async fn send<S: PurgeStore>(self, store: &S) -> Result<Generation, StoreError> {
        loop {
            let from = self.purged.latest();
            if let Some(purge) = store.purge(from.moment, &from.marks(&self.aims)).await? {
                self.purged.arrived(&self.aims, self.begun, &from, purge);
                return Ok(purge.at);
            }
            self.purged.learnt(|known| known.era() != from.era()).await;
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.purged.leave(&self.aims, self.begun);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::scope::url_scopes;
    use super::*;

    /// A store that counts, keeps everything, and may be away or set back.
    struct Ledger {
        history: Mutex<History>,
        away: AtomicBool,
        /// Takes purges, and tells of none.
        mute: AtomicBool,
    }

    struct History {
        era: u64,
        key: MarkKey,
        purges: Vec<(u64, Vec<u32>)>,
    }

    impl History {
        fn new(era: u64) -> Self {
            Self { era, key: MarkKey::random(), purges: Vec::new() }
        }

        fn moment(&self, number: usize) -> Moment {
            let nonce = number.checked_sub(1).map_or(0, |last| self.purges[last].0);
            Moment { at: Generation { era: self.era, number: number as u64 }, nonce }
        }

        fn now(&self) -> Moment {
            self.moment(self.purges.len())
        }
    }

    impl Ledger {
        fn new() -> Self {
            Self {
                history: Mutex::new(History::new(1)),
                away: AtomicBool::new(false),
                mute: AtomicBool::new(false),
            }
        }

        fn begin_era(&self) {
            let mut history = self.history.lock().unwrap();
            *history = History::new(history.era + 1);
        }

        fn set_back(&self, number: usize) {
            self.history.lock().unwrap().purges.truncate(number);
        }

        fn count(&self) -> usize {
            self.history.lock().unwrap().purges.len()
        }

        /// The history of which whoever asks knows a part.
        fn history(&self, known: Moment) -> Result<MutexGuard<'_, History>, StoreError> {
            if self.away.load(Ordering::Relaxed) {
                return Err(StoreError::Away);
            }
            let mut history = self.history.lock().unwrap();
            let is_foreign = known.at.era == history.era
                && (known.at.number > history.purges.len() as u64
                    || history.moment(number(known)) != known);
            if is_foreign {
                *history = History::new(history.era + 1);
            }
            Ok(history)
        }
    }

    fn number(known: Moment) -> usize {
        usize::try_from(known.at.number).unwrap()
    }

    impl PurgeStore for Ledger {
        async fn purge(&self, known: Moment, marks: &[u32]) -> Result<Option<Moment>, StoreError> {
            let mut history = self.history(known)?;
            if known.at.era != history.era {
                return Ok(None);
            }
            history.purges.push((fastrand::u64(1..), marks.to_vec()));
            Ok(Some(history.now()))
        }

        async fn purged_since(&self, _: u64, known: Moment) -> Result<News, StoreError> {
            if self.mute.load(Ordering::Relaxed) {
                return Err(StoreError::TimedOut);
            }
            let history = self.history(known)?;
            let (upto, key) = (history.now(), history.key);
            if known.at.era != history.era {
                let marks = history.purges.iter().zip(1..);
                let marks = marks.flat_map(|((_, marks), n)| marks.iter().map(move |m| (*m, n)));
                return Ok(News::All { upto, key, marks: marks.collect() });
            }
            let purges = history.purges.iter().skip(number(known));
            let purges = purges.map(|(_, marks)| marks.clone()).collect();
            Ok(News::Since { purges, upto, more: false })
        }

        async fn is_seen(&self, _: Generation) -> Result<bool, StoreError> {
            Ok(true)
        }

        async fn ask_no_more(&self, _: u64) -> Result<(), StoreError> {
            Ok(())
        }
    }

    const PAGE: Scope<'_> = Scope::Url { site: "shop.test", path: "/a/b", query: "c=1" };

    async fn ready(store: &Ledger) -> Purged {
        let purged = Purged::new(true);
        purged.learn(store).await.unwrap();
        purged
    }

    fn page(purged: &Purged) -> Marks {
        let marks = purged.now(&url_scopes("shop.test", "/a/b", "c=1"));
        purged.tagged(&marks, &[b"red"])
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
                purged.purge(&store, &[scope.aim(hard)]).await.unwrap();
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
        one.purge(&store, &[PAGE.aim(false)]).await.unwrap();
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
        one.purge(&store, &[PAGE.aim(false)]).await.unwrap_err();
        assert_eq!(one.standing(&before), Standing::Stale);
        assert_eq!(one.standing(&stored), Standing::Stale);
        assert_eq!(one.standing(&page(&one)), Standing::Current, "it was fetched since");

        store.away.store(false, Ordering::Relaxed);
        one.send_left(&store).await.unwrap();
        other.learn(&store).await.unwrap();
        assert_eq!(other.standing(&stored), Standing::Stale);
        assert_eq!(one.standing(&page(&one)), Standing::Current);
        one.send_left(&store).await.unwrap();
        assert_eq!(store.count(), 1, "once");
    }

    #[tokio::test]
    async fn a_store_that_forgot_its_purges_has_no_page_of_before() {
        let store = Ledger::new();
        let purged = ready(&store).await;
        let before = page(&purged);
        store.begin_era();
        purged.learn(&store).await.unwrap();
        assert_eq!(purged.standing(&before), Standing::Gone);
        assert_eq!(purged.standing(&page(&purged)), Standing::Current);
    }

    /// What follows has to hold however the store's count and a process's own fall together.
    async fn catch_up(purged: &Purged, store: &Ledger) {
        while purged.keep_up(store).await.unwrap() {}
    }

    #[tokio::test]
    async fn a_store_that_is_set_back_and_overtaken_hides_no_purge() {
        for (lost, again) in [(1, 1), (2, 1), (2, 2), (2, 3)] {
            let store = Ledger::new();
            let (one, other) = (ready(&store).await, ready(&store).await);
            for _ in 0..lost {
                one.purge(&store, &[Scope::Tag(b"other").aim(true)]).await.unwrap();
            }
            catch_up(&other, &store).await;
            let before = page(&other);
            store.set_back(0);
            // Of one that has seen nothing of what was lost.
            let late = ready(&store).await;
            for _ in 0..again {
                late.purge(&store, &[PAGE.aim(true)]).await.unwrap();
            }
            catch_up(&other, &store).await;
            assert_eq!(other.standing(&before), Standing::Gone, "{lost} lost, {again} again");
            assert_eq!(other.standing(&page(&other)), Standing::Current);
        }
    }

    #[tokio::test]
    async fn what_is_purged_in_a_store_that_is_set_back_holds_here_and_there() {
        let store = Ledger::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        one.purge(&store, &[Scope::Tag(b"other").aim(true)]).await.unwrap();
        catch_up(&other, &store).await;
        let lost = [page(&one), page(&other)];
        store.set_back(0);
        let aims = [PAGE.aim(true)];
        let purging = one.purge(&store, &aims);
        let (purged, ()) = tokio::join!(purging, async {
            one.nudged().await;
            catch_up(&one, &store).await;
        });
        assert_eq!(purged.unwrap().era, 2);
        catch_up(&other, &store).await;
        assert_eq!(
            (one.standing(&lost[0]), other.standing(&lost[1])),
            (Standing::Gone, Standing::Gone)
        );
        assert_eq!(one.waiting().0, 0);
    }

    #[tokio::test]
    async fn what_was_not_sent_in_one_era_is_sent_in_the_next() {
        let store = Ledger::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        store.away.store(true, Ordering::Relaxed);
        one.purge(&store, &[PAGE.aim(true)]).await.unwrap_err();
        store.away.store(false, Ordering::Relaxed);
        store.begin_era();
        catch_up(&other, &store).await;
        let [fetched, elsewhere] = [page(&other), other.now(&url_scopes("shop.test", "/b", ""))];
        catch_up(&one, &store).await;
        assert_eq!(one.waiting(), (0, 1));
        catch_up(&other, &store).await;
        assert_eq!(other.standing(&fetched), Standing::Gone);
        assert_eq!(other.standing(&elsewhere), Standing::Current);
    }

    /// As where one process follows a failover later than another.
    #[tokio::test]
    async fn what_the_store_took_in_an_era_that_others_had_left_holds_in_the_next_one() {
        let (old, new) = (Ledger::new(), Ledger::new());
        let [one, other, third] = [ready(&old).await, ready(&old).await, ready(&old).await];
        new.begin_era();
        catch_up(&other, &new).await;
        let fetched = page(&other);
        let purge = one.purge(&old, &[PAGE.aim(false)]).await.unwrap();
        assert_eq!(one.stands_as(purge), Some(purge));
        assert_eq!(other.standing(&fetched), Standing::Current);
        // Whoever has purged nothing has nothing to tell.
        catch_up(&third, &new).await;
        assert_eq!(new.count(), 0);
        one.learn(&new).await.unwrap();
        assert_eq!(one.standing(&fetched), Standing::Gone, "here at once");
        assert_eq!(one.stands_as(purge), None);
        assert!(one.is_cut_off(), "until it is known that this table is complete");
        for _ in 0..3 {
            for purged in [&one, &other, &third] {
                catch_up(purged, &new).await;
                assert_eq!(purged.standing(&fetched), Standing::Gone);
                assert_eq!(purged.standing(&page(purged)), Standing::Current);
            }
        }
        assert_eq!((new.count(), one.waiting().0), (1, 0), "once");
        assert_eq!(one.stands_as(purge), Some(new.history.lock().unwrap().now().at));
    }

    #[tokio::test]
    async fn whoever_always_has_something_to_learn_sends_all_the_same() {
        let store = Ledger::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        store.away.store(true, Ordering::Relaxed);
        one.purge(&store, &[PAGE.aim(true)]).await.unwrap_err();
        store.away.store(false, Ordering::Relaxed);
        other.purge(&store, &[Scope::Everything.aim(false)]).await.unwrap();
        assert!(one.keep_up(&store).await.unwrap());
        assert_eq!(one.waiting().0, 0);
    }

    #[tokio::test]
    async fn all_that_is_left_is_sent_at_the_end() {
        let store = Ledger::new();
        let one = ready(&store).await;
        store.away.store(true, Ordering::Relaxed);
        let url = |number: usize| {
            Scope::Url { site: "s", path: "/", query: &number.to_string() }.aim(true)
        };
        for number in 0..2 * PURGE_MARKS_MAX + 1 {
            one.purge(&store, &[url(number)]).await.unwrap_err();
        }
        one.flush(&store).await.unwrap_err();
        store.away.store(false, Ordering::Relaxed);
        // What it tells is not waited for.
        store.mute.store(true, Ordering::Relaxed);
        one.flush(&store).await.unwrap();
        assert_eq!((one.waiting().0, store.count()), (0, 3));
    }

    #[tokio::test]
    async fn all_of_a_large_purge_holds_though_its_beginning_is_not_taken() {
        let store = Ledger::new();
        let one = ready(&store).await;
        let before = page(&one);
        let url = |number: usize| {
            Scope::Url { site: "s", path: "/", query: &number.to_string() }.aim(true)
        };
        let mut aims: Vec<_> = (0..PURGE_MARKS_MAX).map(url).collect();
        aims.push(PAGE.aim(true));
        store.away.store(true, Ordering::Relaxed);
        one.purge(&store, &aims).await.unwrap_err();
        assert_eq!(one.standing(&before), Standing::Gone);
        assert_eq!(one.waiting().0, aims.len());
        store.away.store(false, Ordering::Relaxed);
        catch_up(&one, &store).await;
        assert_eq!((one.waiting().0, store.count()), (0, 2));
    }

    #[tokio::test]
    async fn while_the_table_is_made_anew_no_page_of_before_counts() {
        let store = Ledger::new();
        let purged = Purged::new(true);
        let unknown = page(&purged);
        assert_eq!(purged.standing(&unknown), Standing::Current);
        purged.learn(&store).await.unwrap();
        assert_eq!(purged.standing(&unknown), Standing::Gone);
        purged.era.store(CHANGING, Ordering::Relaxed);
        assert_eq!(purged.standing(&unknown), Standing::Gone);
    }

    #[test]
    fn without_a_word_from_the_store_pages_are_cut_off_from_it() {
        assert!(Purged::new(true).is_cut_off());
        assert!(!Purged::new(false).is_cut_off());
    }
}
