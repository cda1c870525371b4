//! Purges: numbered in one order for all processes on a store, and kept in a table of fixed size.
//!
//! What a purge hits is told as *marks*, places in that table; what they stand for is not known here.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::time::Duration;

use super::StoreError;

/// Places in the first part of the table of purges.
pub const MARKS: u32 = 262_146;
/// Places in the second part of it, which came later: it stands behind what a store keeps behind the first,
/// so that a process of before, which knows nothing of it, finds all where it was.
pub const LATER_MARKS: Range<u32> = 327_682..458_754;
/// The most marks of one purge.
pub const PURGE_MARKS_MAX: usize = 1_000;
/// How long the store may be silent until a process counts as cut off from it.
pub const CUT_OFF_AFTER: Duration = Duration::from_secs(1);
/// The last purges, which a process that was away for a moment reads one by one; after more of them it
/// reads the table.
pub(super) const PURGES_KEPT: usize = 10_000;
/// The bytes of them, at most: whoever is a little behind reads all of them in one answer.
pub(super) const PURGES_KEPT_BYTES: usize = 1 << 20;
/// Purges in one answer, at most.
pub(super) const NEWS_MAX: usize = 1_000;
/// For how long a process counts as living that has asked for news.
pub(super) const LIVES: Duration = Duration::from_secs(3);

/// Whether a number is a place in the table.
#[must_use]
pub(super) fn is_mark(mark: u32) -> bool {
    mark < MARKS || LATER_MARKS.contains(&mark)
}

/// A moment in the order of purges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation {
    /// Which count: a store that lost it begins another. 0 is none.
    pub era: u64,
    /// How many purges there were.
    pub number: u64,
}

impl Generation {
    /// Whether whoever has seen all up to here has seen `other`.
    #[must_use]
    pub fn includes(self, other: Self) -> bool {
        self.era == other.era && self.number >= other.number
    }
}

/// A moment as somebody knows it, and what tells it from another with the same number: a store that is
/// set back counts the same numbers again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Which.
    pub at: Generation,
    /// What the purge with this number was given by chance; 0 where there is none.
    pub nonce: u64,
}

/// What marks are hashed with: nobody outside can choose two scopes that share one. Each era has its own,
/// so that marks mean something in one era only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MarkKey([u64; 2]);

impl MarkKey {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        // The keys of this hash are from the system's source of random numbers.
        let chance = RandomState::new();
        Self([0, 1].map(|half: u8| chance.hash_one(half)))
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        (u128::from(self.0[0]) << 64 | u128::from(self.0[1])).to_be_bytes()
    }

    /// The key with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self([(both >> 64) as u64, both as u64])
    }
}

impl std::fmt::Debug for MarkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MarkKey(…)")
    }
}

/// What was purged since a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The purges, each with its marks, the oldest first.
    Since {
        /// The marks of each; their numbers follow on the moment that was asked about.
        purges: Vec<Vec<u32>>,
        /// The last of them.
        upto: Moment,
        /// Whether there are further ones.
        more: bool,
    },
    /// There were too many, or it was another era: the whole table. It is read piece by piece; whether
    /// that was all of one history is known when `upto` is asked about.
    All {
        /// The moment of which it tells.
        upto: Moment,
        /// What the marks of this era are made with.
        key: MarkKey,
        /// Each mark with the number of the last purge that has it, which may be a later one.
        marks: Vec<(u32, u64)>,
    },
}

/// What was purged, for all processes on a store.
///
/// Whoever asks says what he knows. Where that is not part of the store's own history, or where this
/// cannot be told any more, the store begins another era, in which no earlier page counts.
pub trait PurgeStore {
    /// Records a purge of at most [`PURGE_MARKS_MAX`] marks, tells the other processes, and returns its
    /// moment. `None`: the store is in another era than `known`, in which these marks mean nothing.
    fn purge(
        &self,
        known: Moment,
        marks: &[u32],
    ) -> impl Future<Output = Result<Option<Moment>, StoreError>>;

    /// What was purged since `known`; tells the others that `who` has seen that much. Within the read
    /// budget, unless the whole table is read.
    fn purged_since(
        &self,
        who: u64,
        known: Moment,
    ) -> impl Future<Output = Result<News, StoreError>>;

    /// Whether every process that asked within the last three seconds has seen the purge. No, too, while
    /// it cannot be told who did. Within the read budget.
    fn is_seen(&self, purge: Generation) -> impl Future<Output = Result<bool, StoreError>>;

    /// Nobody waits for `who` any more to see a purge. For who has ended: he shows no pages.
    fn ask_no_more(&self, who: u64) -> impl Future<Output = Result<(), StoreError>>;
}
