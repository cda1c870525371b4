//! What was purged: a table of generations by scope, in this process's memory, and how it applies to a page.
//!
//! A page carries the generation that was known before its origin request was sent, and the slots of its
//! scopes: its URL, the prefixes of its path, its tags. Each purge has a number, which is written to the
//! slots of its scopes. A page is older than a purge if one of its slots has a higher number than the page: a
//! check takes a few table look-ups and no request to the store. Scopes whose hashes collide share a slot,
//! which costs an unnecessary fetch at most.

mod grouped;
mod last_purges;
pub mod scope;
mod unsent_purges;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anteroom_fault::fault;
use anteroom_store::{
    CUT_OFF_AFTER, Generation, MarkKey, PURGE_MARKS_MAX, PurgePosition, PurgeStore, PurgesSince,
    StoreError,
};
use tokio::sync::{Notify, watch};

use self::last_purges::LastPurges;
use self::scope::{EVERYTHING, LEVELS_MAX, PurgeTarget, Scope, ScopeDigest};
use self::unsent_purges::UnsentPurges;
use super::bypass_switch::BypassSwitch;

/// The most slots of a page: its URL, its user and its session, the prefixes, the tags, and as many tags
/// again that a 304 added.
pub const SLOTS_MAX: usize = 2 + 2 * (1 + LEVELS_MAX) + 2 * anteroom_http::tags::TAGS_MAX;
/// The most steps in which unsent purges are sent at shutdown.
const FLUSH_STEPS_MAX: usize = 200;
/// The value of the era while the table is being rebuilt.
const CHANGING: u64 = u64::MAX;

/// The age of a page in the order of purges, and which purges apply to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeSnapshot {
    /// The generation that was known before its origin request was sent.
    pub since: Generation,
    /// The slots of its scopes, at most [`SLOTS_MAX`]; empty if an app stored the page.
    pub slots: Vec<u32>,
    /// How many purges this process had begun by then. Not stored: 0 is before all.
    begun: u64,
}

impl PurgeSnapshot {
    /// Marks that were read from the store; `None` if they are invalid.
    #[must_use]
    pub fn stored(since: Generation, slots: Vec<u32>) -> Option<Self> {
        let are_slots = slots.len() <= SLOTS_MAX && slots.iter().all(|slot| scope::is_slot(*slot));
        are_slots.then_some(Self { since, slots, begun: 0 })
    }

    /// The same marks with further slots.
    #[must_use]
    pub fn with(mut self, slots: &[u32]) -> Self {
        for slot in slots {
            if !self.slots.contains(slot) && self.slots.len() < SLOTS_MAX {
                self.slots.push(*slot);
            }
        }
        self
    }

    /// Whether a purge with these marks, sorted, hits the page.
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

/// The standing of a page after purges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeStanding {
    /// No purge has hit the page.
    Current,
    /// A purge has made the page stale.
    Stale,
    /// The page must not be shown again.
    Gone,
}

/// Up to where the table is complete, and the key of its marks.
#[derive(Clone, Copy, Debug)]
struct KnownPurges {
    moment: PurgePosition,
    key: MarkKey,
}

impl KnownPurges {
    fn era(&self) -> u64 {
        self.moment.at.era
    }

    fn marks(&self, targets: &[PurgeTarget]) -> Vec<u32> {
        targets.iter().map(|target| target.mark(&self.key)).collect()
    }
}

/// All purges, as far as this process knows them. Shared by all threads.
#[derive(Debug)]
pub struct PurgeTable {
    table: LastPurges,
    /// The era of the table; 0 if there is none yet.
    era: AtomicU64,
    known: watch::Sender<KnownPurges>,
    /// Locked before `known` changes its key.
    unsent: Mutex<UnsentPurges>,
    unsent_count: AtomicUsize,
    /// The number of purges that this process has begun.
    begun: AtomicU64,
    /// How many targets were not sent at the first attempt.
    late: AtomicU64,
    /// Whether other processes purge, too.
    has_others: AtomicBool,
    started: Instant,
    /// When the table was last known to be complete, in milliseconds since the start, plus one; 0 means
    /// never.
    complete_at: AtomicU64,
    nudge: Notify,
    /// The bypass switch: the store tells of it with the purges.
    pub bypass: BypassSwitch,
    /// The id of this process, under which it reports to the others.
    pub process_id: u64,
}

impl PurgeTable {
    /// An empty table. `has_others`: purges by other processes must be learnt in time.
    #[must_use]
    pub fn new(has_others: bool) -> Self {
        // Until there is an era, this process uses its own key.
        let known = KnownPurges { moment: PurgePosition::default(), key: MarkKey::random() };
        Self {
            table: LastPurges::new(),
            era: AtomicU64::new(0),
            known: watch::Sender::new(known),
            unsent: Mutex::default(),
            unsent_count: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            late: AtomicU64::new(0),
            has_others: AtomicBool::new(has_others),
            started: Instant::now(),
            complete_at: AtomicU64::new(0),
            nudge: Notify::new(),
            bypass: BypassSwitch::default(),
            process_id: fastrand::u64(..),
        }
    }

    fn unsent(&self) -> MutexGuard<'_, UnsentPurges> {
        // No code that can panic runs under this lock.
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest(&self) -> KnownPurges {
        *self.known.borrow()
    }

    /// The marks of a page with these scopes, just before its origin request is sent.
    #[must_use]
    pub fn now(&self, scopes: &[ScopeDigest]) -> PurgeSnapshot {
        let begun = self.begun.load(Ordering::Acquire);
        let KnownPurges { moment, key } = self.latest();
        let slots = scopes.iter().map(|scope| scope.slot(&key)).collect();
        PurgeSnapshot { since: moment.at, slots, begun }
    }

    /// The snapshot of a page with tags added.
    #[must_use]
    pub fn tagged(&self, snapshot: &PurgeSnapshot, tags: &[&[u8]]) -> PurgeSnapshot {
        let known = self.latest();
        // In another era the page is gone, whatever its tags.
        let is_same = known.era() == snapshot.since.era;
        let tags = tags.iter().filter(|_| is_same);
        let slots: Vec<u32> = tags.map(|tag| Scope::Tag(tag).digest().slot(&known.key)).collect();
        snapshot.clone().with(&slots)
    }

    /// The marks of a purge, sorted, for [`PurgeSnapshot::are_hit_by`].
    #[must_use]
    pub fn marks(&self, targets: &[PurgeTarget]) -> Vec<u32> {
        let mut marks = self.latest().marks(targets);
        marks.sort_unstable();
        marks
    }

    /// The standing of a page after all known purges.
    #[must_use]
    pub fn standing(&self, snapshot: &PurgeSnapshot) -> PurgeStanding {
        // A page that an app stored by itself carries neither time nor scopes.
        if snapshot.slots.is_empty() {
            return PurgeStanding::Current;
        }
        let era = self.era.load(Ordering::Acquire);
        if era != snapshot.since.era {
            return PurgeStanding::Gone;
        }
        // The lock on unsent purges is held while the table is read: a purge that has left that list is
        // already in the table.
        let has_unsent = self.unsent_count.load(Ordering::Acquire) > 0;
        let unsent = has_unsent.then(|| self.unsent());
        let is_hit = |mark: u32| {
            let begun = unsent.as_ref().and_then(|unsent| unsent.last(mark));
            self.table.get(mark) > snapshot.since.number
                || begun.is_some_and(|begun| begun > snapshot.begun)
        };
        let mut standing = PurgeStanding::Current;
        for slot in snapshot.slots.iter().chain([&EVERYTHING]) {
            if is_hit(2 * slot + 1) {
                return PurgeStanding::Gone;
            }
            if is_hit(2 * slot) && !fault!("soft") {
                standing = PurgeStanding::Stale;
            }
        }
        // If the table was rebuilt meanwhile, the values read from it are meaningless.
        if self.era.load(Ordering::Acquire) == era { standing } else { PurgeStanding::Gone }
    }

    /// Whether no purge has hit a page.
    #[must_use]
    pub fn is_current(&self, snapshot: &PurgeSnapshot) -> bool {
        self.standing(snapshot) == PurgeStanding::Current
    }

    /// From now on, other processes may purge, too: the store is to be moved to one that they can share.
    pub fn expect_others(&self) {
        self.has_others.store(true, Ordering::Relaxed);
    }

    /// Whether purges by other processes may have been missing for too long: a page fetched now may be shown
    /// for one second.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.has_others.load(Ordering::Relaxed) && {
            let deadline = self.complete_at.load(Ordering::Acquire) + millis(CUT_OFF_AFTER);
            deadline < millis(CUT_OFF_AFTER) + 1 || millis(self.started.elapsed()) + 1 > deadline
        }
    }

    /// How many targets wait for the store, and how many have had to wait so far.
    #[must_use]
    pub fn waiting(&self) -> (usize, u64) {
        (self.unsent_count.load(Ordering::Acquire), self.late.load(Ordering::Relaxed))
    }

    /// Purges in this process at once, then in the store for all processes. Returns when this process has
    /// seen the purge in its place among the others. A purge that is dropped or fails is sent again by
    /// [`Self::keep_up`]. If the store is in another era, this waits until that era is learnt: set a deadline
    /// around it.
    ///
    /// # Errors
    /// If the store does not have the purge yet.
    pub async fn purge<S: PurgeStore>(
        &self,
        store: &S,
        targets: &[PurgeTarget],
    ) -> Result<Generation, StoreError> {
        let mut last = self.latest().moment.at;
        // The whole purge holds here before its first piece is sent, which may fail.
        let pieces: Vec<_> =
            targets.chunks(PURGE_MARKS_MAX).map(|targets| self.begin(targets.to_vec())).collect();
        for piece in pieces {
            last = piece.send(store).await?;
        }
        self.see(last).await;
        Ok(last)
    }

    /// Purges without waiting: in this process at once, and in the store by [`Self::keep_up`].
    pub fn purge_later(&self, targets: &[PurgeTarget]) {
        drop(self.begin(targets.to_vec()));
    }

    fn begin(&self, targets: Vec<PurgeTarget>) -> PurgeDispatch<'_> {
        let mut unsent = self.unsent();
        let begun = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        unsent.add(&targets, begun, &self.latest().key);
        self.unsent_count.store(unsent.len(), Ordering::Release);
        PurgeDispatch { purged: self, targets, begun }
    }

    /// The purge that the other processes must have seen so that `purge`, which the store took from this
    /// process, is in effect there. This is `purge` itself or, if its era is over, the one that was sent in
    /// the next era. `None`: the latter is not sent yet.
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
        let is_seen =
            |known: &KnownPurges| known.era() != purge.era || known.moment.at.includes(purge);
        self.learnt(is_seen).await;
    }

    /// Returns when `is_so` holds for the known purges. If it does not hold yet, the store is asked for news
    /// soon.
    async fn learnt(&self, is_so: impl Fn(&KnownPurges) -> bool) {
        if !is_so(&self.latest()) {
            self.nudge.notify_one();
        }
        let mut known = self.known.subscribe();
        drop(known.wait_for(|known| is_so(known)).await.expect("the sender is in this table"));
    }

    /// Returns when the store has been read once.
    pub async fn known(&self) {
        self.learnt(|known| known.era() > 0).await;
    }

    /// Returns when the table is complete, so that pages of the store count as fresh.
    pub async fn complete(&self) {
        self.learnt(|known| known.era() > 0 && !self.is_cut_off()).await;
    }

    /// Returns when the store should be asked for news.
    pub async fn nudged(&self) {
        self.nudge.notified().await;
    }

    /// Moves the next request for news forward.
    pub fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// Learns a bounded number of purges by other processes, and sends some of those that the store did not
    /// take at the first attempt. Returns whether there is more, or whether other processes wait for this
    /// one's confirmation.
    ///
    /// # Errors
    /// If the store cannot be asked, or still does not take the purges.
    pub async fn keep_up<S: PurgeStore>(&self, store: &S) -> Result<bool, StoreError> {
        let more = self.learn(store).await?;
        match self.send_left(store).await {
            Ok(sent) => Ok(more || sent),
            Err(_) if more => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Learns purges by other processes. Returns whether there is more, or whether other processes wait for
    /// this one's confirmation.
    async fn learn<S: PurgeStore>(&self, store: &S) -> Result<bool, StoreError> {
        let known = self.latest().moment;
        let asked_at = millis(self.started.elapsed());
        let news = store.news_since(self.process_id, known).await?;
        // Before the purges: the start waits for these.
        let (had_era, era) = (known.at.era, news.purges.upto().at.era);
        self.bypass.hear(&news.bypasses, had_era != 0 && era != had_era);
        match news.purges {
            PurgesSince::Since { purges, upto, more } => {
                for (marks, number) in purges.iter().zip(known.at.number + 1..) {
                    self.mark(marks, number);
                }
                self.known
                    .send_if_modified(|known| known.era() == upto.at.era && grow(known, upto));
                if !more {
                    let was_cut_off = self.is_cut_off();
                    self.complete_at.fetch_max(asked_at + 1, Ordering::AcqRel);
                    if was_cut_off {
                        // Wakes those that wait for a complete table.
                        self.known.send_modify(|_same| {});
                    }
                }
                Ok(more || !purges.is_empty())
            }
            PurgesSince::All { upto, key, marks } => {
                self.take(KnownPurges { moment: upto, key }, &marks);
                // Complete once the next answer shows that it is of the same history.
                Ok(true)
            }
        }
    }

    fn mark(&self, marks: &[u32], number: u64) {
        for mark in marks {
            self.table.raise(*mark, number);
        }
    }

    /// Replaces the table with that of the store.
    fn take(&self, upto: KnownPurges, marks: &[(u32, u64)]) {
        let mut unsent = self.unsent();
        let before = self.era.load(Ordering::Acquire);
        if upto.era() != before {
            self.era.store(CHANGING, Ordering::Release);
            self.table.clear();
            // The previous table was complete; this one is not known to be.
            self.complete_at.store(0, Ordering::Release);
            if unsent.taken.era == before && before > 0 {
                self.carry_over(&mut unsent, &upto.key);
            }
        }
        for (mark, number) in marks {
            self.mark(&[*mark], *number);
        }
        unsent.rekey(&upto.key);
        // Set first, so that a task that waits for the era finds the table in it.
        self.era.store(upto.era(), Ordering::Release);
        self.known.send_if_modified(|known| {
            known.key = upto.key;
            grow(known, upto.moment)
        });
    }

    /// Purges everything once in a new era. Purges that the store took from this process in the previous era
    /// are unknown in the new one, which may have begun elsewhere and earlier: its pages may be older than
    /// those purges.
    fn carry_over(&self, unsent: &mut UnsentPurges, key: &MarkKey) {
        let everything = [Scope::Everything.purge_target(true)];
        let begun = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        unsent.add(&everything, begun, key);
        unsent.leave(&everything, begun);
        self.unsent_count.store(unsent.len(), Ordering::Release);
    }

    /// Sends some of the unsent purges. Returns whether there may be more.
    async fn send_left<S: PurgeStore>(&self, store: &S) -> Result<bool, StoreError> {
        if self.unsent_count.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        let left = self.unsent().left(PURGE_MARKS_MAX);
        if left.is_empty() {
            return Ok(false);
        }
        let from = self.latest();
        let targets: Vec<PurgeTarget> = left.iter().map(|(target, _)| *target).collect();
        match store.purge(from.moment, &from.marks(&targets)).await? {
            Some(purge) => {
                for (target, begun) in left {
                    self.arrived(&[target], begun, &from, purge);
                }
            }
            None => self.nudge(),
        }
        Ok(true)
    }

    /// Sends all purges that the store did not take at the first attempt, at shutdown.
    ///
    /// # Errors
    /// If the store still does not take them.
    pub async fn flush<S: PurgeStore>(&self, store: &S) -> Result<(), StoreError> {
        // Other processes may purge all the time; this loop does not wait for them.
        for _ in 0..FLUSH_STEPS_MAX {
            if self.unsent().left(1).is_empty() {
                return Ok(());
            }
            let learnt = self.learn(store).await;
            let waiting = self.unsent().len();
            // A store that is too slow for reading may still take purges.
            self.send_left(store).await?;
            if self.unsent().len() == waiting {
                learnt?;
            }
        }
        Err(StoreError::TimedOut)
    }

    /// Records that the store has these targets under a number, which replaces this process's own mark.
    /// `from` is what was known when they were sent.
    fn arrived(
        &self,
        targets: &[PurgeTarget],
        begun: u64,
        from: &KnownPurges,
        purge: PurgePosition,
    ) {
        let mut unsent = self.unsent();
        // Another era is read first; until then this process's own mark holds. The same applies to a store
        // that was set back and counts the same numbers again.
        if self.era.load(Ordering::Acquire) != purge.at.era
            || purge.at.number <= from.moment.at.number
        {
            return;
        }
        self.mark(&from.marks(targets), purge.at.number);
        unsent.remove(targets, begun, &from.key);
        unsent.took(purge.at);
        self.unsent_count.store(unsent.len(), Ordering::Release);
        drop(unsent);
        self.known.send_if_modified(|known| {
            // No other purge came in between, in the store or here.
            let is_next =
                known.moment == from.moment && from.moment.at.number + 1 == purge.at.number;
            if is_next {
                known.moment = purge;
            }
            is_next
        });
    }

    /// The caller that began the purge has given up.
    fn leave(&self, targets: &[PurgeTarget], begun: u64) {
        let left = self.unsent().leave(targets, begun);
        if left > 0 {
            self.late.fetch_add(left as u64, Ordering::Relaxed);
            self.nudge();
        }
    }
}

/// Extends what is known up to a moment, unless another purge of this process has come in between.
fn grow(known: &mut KnownPurges, upto: PurgePosition) -> bool {
    let grows = !known.moment.at.includes(upto.at);
    if grows {
        known.moment = upto;
    }
    grows
}

/// A purge on its way to the store.
struct PurgeDispatch<'p> {
    purged: &'p PurgeTable,
    targets: Vec<PurgeTarget>,
    begun: u64,
}

impl PurgeDispatch<'_> {
    async fn send<S: PurgeStore>(self, store: &S) -> Result<Generation, StoreError> {
        loop {
            let from = self.purged.latest();
            if let Some(purge) = store.purge(from.moment, &from.marks(&self.targets)).await? {
                self.purged.arrived(&self.targets, self.begun, &from, purge);
                return Ok(purge.at);
            }
            self.purged.learnt(|known| known.era() != from.era()).await;
        }
    }
}

impl Drop for PurgeDispatch<'_> {
    fn drop(&mut self) {
        self.purged.leave(&self.targets, self.begun);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use anteroom_store::{StoreNews, StoredBypasses};

    use super::scope::url_scopes;
    use super::*;

    /// A store that counts and keeps everything, and may be down or set back.
    struct FakeStore {
        history: Mutex<History>,
        away: AtomicBool,
        /// Takes purges, but reports none.
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

        fn moment(&self, number: usize) -> PurgePosition {
            let nonce = number.checked_sub(1).map_or(0, |last| self.purges[last].0);
            PurgePosition { at: Generation { era: self.era, number: number as u64 }, nonce }
        }

        fn now(&self) -> PurgePosition {
            self.moment(self.purges.len())
        }
    }

    impl FakeStore {
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

        /// The history, of which the caller knows a part.
        fn history(&self, known: PurgePosition) -> Result<MutexGuard<'_, History>, StoreError> {
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

        fn purges(&self, known: PurgePosition) -> Result<PurgesSince, StoreError> {
            if self.mute.load(Ordering::Relaxed) {
                return Err(StoreError::TimedOut);
            }
            let history = self.history(known)?;
            let (upto, key) = (history.now(), history.key);
            if known.at.era != history.era {
                let marks = history.purges.iter().zip(1..);
                let marks = marks.flat_map(|((_, marks), n)| marks.iter().map(move |m| (*m, n)));
                return Ok(PurgesSince::All { upto, key, marks: marks.collect() });
            }
            let purges = history.purges.iter().skip(number(known));
            let purges = purges.map(|(_, marks)| marks.clone()).collect();
            Ok(PurgesSince::Since { purges, upto, more: false })
        }
    }

    fn number(known: PurgePosition) -> usize {
        usize::try_from(known.at.number).unwrap()
    }

    impl PurgeStore for FakeStore {
        async fn purge(
            &self,
            known: PurgePosition,
            marks: &[u32],
        ) -> Result<Option<PurgePosition>, StoreError> {
            let mut history = self.history(known)?;
            if known.at.era != history.era {
                return Ok(None);
            }
            history.purges.push((fastrand::u64(1..), marks.to_vec()));
            Ok(Some(history.now()))
        }

        async fn news_since(&self, _: u64, known: PurgePosition) -> Result<StoreNews, StoreError> {
            let bypasses = StoredBypasses::default();
            self.purges(known).map(|purges| StoreNews { purges, bypasses })
        }

        async fn is_seen(&self, _: Generation) -> Result<bool, StoreError> {
            Ok(true)
        }

        async fn leave(&self, _: u64) -> Result<(), StoreError> {
            Ok(())
        }
    }

    const PAGE: Scope<'_> = Scope::Url { site: "shop.test", path: "/a/b", query: "c=1" };

    async fn ready(store: &FakeStore) -> PurgeTable {
        let purged = PurgeTable::new(true);
        purged.learn(store).await.unwrap();
        purged
    }

    fn page(purged: &PurgeTable) -> PurgeSnapshot {
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
            for (hard, hit) in [(false, PurgeStanding::Stale), (true, PurgeStanding::Gone)] {
                let store = FakeStore::new();
                let purged = ready(&store).await;
                let before = page(&purged);
                purged.purge(&store, &[scope.purge_target(hard)]).await.unwrap();
                let wanted = if hits { hit } else { PurgeStanding::Current };
                assert_eq!(purged.standing(&before), wanted, "{scope:?}");
                assert_eq!(purged.standing(&page(&purged)), PurgeStanding::Current, "{scope:?}");
            }
        }
    }

    #[tokio::test]
    async fn another_process_learns_of_it_and_pages_tell_by_themselves_how_old_they_are() {
        let store = FakeStore::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        let stored = page(&one);
        let stored = PurgeSnapshot::stored(stored.since, stored.slots).unwrap();
        one.purge(&store, &[PAGE.purge_target(false)]).await.unwrap();
        let newer = PurgeSnapshot::stored(page(&one).since, stored.slots.clone()).unwrap();
        assert_eq!(other.standing(&stored), PurgeStanding::Current);
        assert!(other.learn(&store).await.unwrap(), "others wait for its word");
        assert!(!other.learn(&store).await.unwrap());
        let late = ready(&store).await;
        for purged in [one, other, late] {
            assert_eq!(purged.standing(&stored), PurgeStanding::Stale);
            assert_eq!(purged.standing(&newer), PurgeStanding::Current);
        }
    }

    #[tokio::test]
    async fn a_purge_the_store_rejects_holds_locally_and_is_sent_later() {
        let store = FakeStore::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        let before = page(&one);
        let stored = PurgeSnapshot::stored(before.since, before.slots.clone()).unwrap();
        store.away.store(true, Ordering::Relaxed);
        one.purge(&store, &[PAGE.purge_target(false)]).await.unwrap_err();
        assert_eq!(one.standing(&before), PurgeStanding::Stale);
        assert_eq!(one.standing(&stored), PurgeStanding::Stale);
        assert_eq!(one.standing(&page(&one)), PurgeStanding::Current, "it was fetched since");

        store.away.store(false, Ordering::Relaxed);
        one.send_left(&store).await.unwrap();
        other.learn(&store).await.unwrap();
        assert_eq!(other.standing(&stored), PurgeStanding::Stale);
        assert_eq!(one.standing(&page(&one)), PurgeStanding::Current);
        one.send_left(&store).await.unwrap();
        assert_eq!(store.count(), 1, "once");
    }

    #[tokio::test]
    async fn a_store_that_forgot_its_purges_has_no_page_of_before() {
        let store = FakeStore::new();
        let purged = ready(&store).await;
        let before = page(&purged);
        store.begin_era();
        purged.learn(&store).await.unwrap();
        assert_eq!(purged.standing(&before), PurgeStanding::Gone);
        assert_eq!(purged.standing(&page(&purged)), PurgeStanding::Current);
    }

    /// The following must hold for every combination of the store's numbers and a process's own.
    async fn catch_up(purged: &PurgeTable, store: &FakeStore) {
        while purged.keep_up(store).await.unwrap() {}
    }

    #[tokio::test]
    async fn a_store_that_is_set_back_and_overtaken_hides_no_purge() {
        for (lost, again) in [(1, 1), (2, 1), (2, 2), (2, 3)] {
            let store = FakeStore::new();
            let (one, other) = (ready(&store).await, ready(&store).await);
            for _ in 0..lost {
                one.purge(&store, &[Scope::Tag(b"other").purge_target(true)]).await.unwrap();
            }
            catch_up(&other, &store).await;
            let before = page(&other);
            store.set_back(0);
            // A process that has seen none of the lost purges.
            let late = ready(&store).await;
            for _ in 0..again {
                late.purge(&store, &[PAGE.purge_target(true)]).await.unwrap();
            }
            catch_up(&other, &store).await;
            assert_eq!(other.standing(&before), PurgeStanding::Gone, "{lost} lost, {again} again");
            assert_eq!(other.standing(&page(&other)), PurgeStanding::Current);
        }
    }

    #[tokio::test]
    async fn a_purge_in_a_store_that_was_set_back_holds_on_all_proxies() {
        let store = FakeStore::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        one.purge(&store, &[Scope::Tag(b"other").purge_target(true)]).await.unwrap();
        catch_up(&other, &store).await;
        let lost = [page(&one), page(&other)];
        store.set_back(0);
        let targets = [PAGE.purge_target(true)];
        let purging = one.purge(&store, &targets);
        let (purged, ()) = tokio::join!(purging, async {
            one.nudged().await;
            catch_up(&one, &store).await;
        });
        assert_eq!(purged.unwrap().era, 2);
        catch_up(&other, &store).await;
        assert_eq!(
            (one.standing(&lost[0]), other.standing(&lost[1])),
            (PurgeStanding::Gone, PurgeStanding::Gone)
        );
        assert_eq!(one.waiting().0, 0);
    }

    #[tokio::test]
    async fn a_purge_not_sent_in_one_era_is_sent_in_the_next() {
        let store = FakeStore::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        store.away.store(true, Ordering::Relaxed);
        one.purge(&store, &[PAGE.purge_target(true)]).await.unwrap_err();
        store.away.store(false, Ordering::Relaxed);
        store.begin_era();
        catch_up(&other, &store).await;
        let [fetched, elsewhere] = [page(&other), other.now(&url_scopes("shop.test", "/b", ""))];
        catch_up(&one, &store).await;
        assert_eq!(one.waiting(), (0, 1));
        catch_up(&other, &store).await;
        assert_eq!(other.standing(&fetched), PurgeStanding::Gone);
        assert_eq!(other.standing(&elsewhere), PurgeStanding::Current);
    }

    /// One process follows a failover later than another.
    #[tokio::test]
    async fn a_purge_of_an_era_that_others_left_holds_in_the_next_era() {
        let (old, new) = (FakeStore::new(), FakeStore::new());
        let [one, other, third] = [ready(&old).await, ready(&old).await, ready(&old).await];
        new.begin_era();
        catch_up(&other, &new).await;
        let fetched = page(&other);
        let purge = one.purge(&old, &[PAGE.purge_target(false)]).await.unwrap();
        assert_eq!(one.stands_as(purge), Some(purge));
        assert_eq!(other.standing(&fetched), PurgeStanding::Current);
        // A process without purges has nothing to send.
        catch_up(&third, &new).await;
        assert_eq!(new.count(), 0);
        one.learn(&new).await.unwrap();
        assert_eq!(one.standing(&fetched), PurgeStanding::Gone, "here at once");
        assert_eq!(one.stands_as(purge), None);
        assert!(one.is_cut_off(), "until it is known that this table is complete");
        for _ in 0..3 {
            for purged in [&one, &other, &third] {
                catch_up(purged, &new).await;
                assert_eq!(purged.standing(&fetched), PurgeStanding::Gone);
                assert_eq!(purged.standing(&page(purged)), PurgeStanding::Current);
            }
        }
        assert_eq!((new.count(), one.waiting().0), (1, 0), "once");
        assert_eq!(one.stands_as(purge), Some(new.history.lock().unwrap().now().at));
    }

    #[tokio::test]
    async fn pending_purges_are_sent_even_when_there_is_more_to_learn() {
        let store = FakeStore::new();
        let (one, other) = (ready(&store).await, ready(&store).await);
        store.away.store(true, Ordering::Relaxed);
        one.purge(&store, &[PAGE.purge_target(true)]).await.unwrap_err();
        store.away.store(false, Ordering::Relaxed);
        other.purge(&store, &[Scope::Everything.purge_target(false)]).await.unwrap();
        assert!(one.keep_up(&store).await.unwrap());
        assert_eq!(one.waiting().0, 0);
    }

    #[tokio::test]
    async fn all_that_is_left_is_sent_at_the_end() {
        let store = FakeStore::new();
        let one = ready(&store).await;
        store.away.store(true, Ordering::Relaxed);
        let url = |number: usize| {
            Scope::Url { site: "s", path: "/", query: &number.to_string() }.purge_target(true)
        };
        for number in 0..2 * PURGE_MARKS_MAX + 1 {
            one.purge(&store, &[url(number)]).await.unwrap_err();
        }
        one.flush(&store).await.unwrap_err();
        store.away.store(false, Ordering::Relaxed);
        // News from the store is not waited for.
        store.mute.store(true, Ordering::Relaxed);
        one.flush(&store).await.unwrap();
        assert_eq!((one.waiting().0, store.count()), (0, 3));
    }

    #[tokio::test]
    async fn all_of_a_large_purge_holds_though_its_beginning_is_not_taken() {
        let store = FakeStore::new();
        let one = ready(&store).await;
        let before = page(&one);
        let url = |number: usize| {
            Scope::Url { site: "s", path: "/", query: &number.to_string() }.purge_target(true)
        };
        let mut targets: Vec<_> = (0..PURGE_MARKS_MAX).map(url).collect();
        targets.push(PAGE.purge_target(true));
        store.away.store(true, Ordering::Relaxed);
        one.purge(&store, &targets).await.unwrap_err();
        assert_eq!(one.standing(&before), PurgeStanding::Gone);
        assert_eq!(one.waiting().0, targets.len());
        store.away.store(false, Ordering::Relaxed);
        catch_up(&one, &store).await;
        assert_eq!((one.waiting().0, store.count()), (0, 2));
    }

    #[tokio::test]
    async fn while_the_table_is_rebuilt_no_earlier_page_is_current() {
        let store = FakeStore::new();
        let purged = PurgeTable::new(true);
        let unknown = page(&purged);
        assert_eq!(purged.standing(&unknown), PurgeStanding::Current);
        purged.learn(&store).await.unwrap();
        assert_eq!(purged.standing(&unknown), PurgeStanding::Gone);
        purged.era.store(CHANGING, Ordering::Relaxed);
        assert_eq!(purged.standing(&unknown), PurgeStanding::Gone);
    }

    #[test]
    fn without_a_word_from_the_store_pages_are_cut_off_from_it() {
        assert!(PurgeTable::new(true).is_cut_off());
        assert!(!PurgeTable::new(false).is_cut_off());
    }
}
