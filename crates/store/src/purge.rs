//! Purges: numbered in one order for all processes on a store, and kept in a table of fixed size.
//!
//! A purge's targets are given as *marks*, slots in that table; the store does not know what they
//! stand for.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::time::Duration;

use super::{StoreError, StoredBypasses};

/// Slots in the first part of the table of purges.
pub const MARKS: u32 = 262_146;
/// Slots in the second part, which was added later: it lies after the data that follow the first
/// part, so that an older process, which does not know it, finds everything in its place.
pub const LATER_MARKS: Range<u32> = 327_682..458_754;
/// The most marks of one purge.
pub const PURGE_MARKS_MAX: usize = 1_000;
/// How long the store may be silent before a process counts as cut off from it.
pub const CUT_OFF_AFTER: Duration = Duration::from_secs(1);
/// The latest purges, which a process that was away for a moment reads one by one; after more of
/// them it reads the table.
pub(super) const PURGES_KEPT: usize = 10_000;
/// The most bytes of these: a process that is slightly behind reads all of them in one answer.
pub(super) const PURGES_KEPT_BYTES: usize = 1 << 20;
/// The most purges in one answer.
pub(super) const NEWS_MAX: usize = 1_000;
/// How long a process counts as alive after it asked for purges.
pub(super) const LIVES: Duration = Duration::from_secs(3);

/// Whether a number is a slot in the table.
#[must_use]
pub(super) fn is_mark(mark: u32) -> bool {
    mark < MARKS || LATER_MARKS.contains(&mark)
}

/// A position in the order of purges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation {
    /// Which count: a store that lost its count begins another era. 0 is none.
    pub era: u64,
    /// How many purges there were.
    pub number: u64,
}

impl Generation {
    /// Whether everything up to here includes `other`.
    #[must_use]
    pub fn includes(self, other: Self) -> bool {
        self.era == other.era && self.number >= other.number
    }
}

/// A position as a process knows it, with a nonce that distinguishes it from another of the same
/// number: a store that is set back counts the same numbers again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgePosition {
    /// The position.
    pub at: Generation,
    /// The random value of the purge with this number; 0 if there is none.
    pub nonce: u64,
}

/// The key with which marks are hashed: a client cannot choose two scopes that share a mark. Each
/// era has its own key, so that marks are valid in one era only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MarkKey([u64; 2]);

impl MarkKey {
    /// A new random key.
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

/// What was purged since a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgesSince {
    /// The purges, each with its marks, the oldest first.
    Since {
        /// The marks of each; their numbers follow the position that was given.
        purges: Vec<Vec<u32>>,
        /// The last of them.
        upto: PurgePosition,
        /// Whether there are more.
        more: bool,
    },
    /// Too many, or another era: the whole table. It is read in pieces; whether all of it was of
    /// one history is known when `upto` is next passed in.
    All {
        /// The position of this table.
        upto: PurgePosition,
        /// The key of this era's marks.
        key: MarkKey,
        /// Each mark with the number of its last purge, which may be after `upto`.
        marks: Vec<(u32, u64)>,
    },
}

impl PurgesSince {
    /// Up to where they go.
    #[must_use]
    pub fn upto(&self) -> PurgePosition {
        match self {
            Self::Since { upto, .. } | Self::All { upto, .. } => *upto,
        }
    }
}

/// What a process learns from the store at regular intervals, in one trip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreNews {
    /// What was purged.
    pub purges: PurgesSince,
    /// The bypass switches.
    pub bypasses: StoredBypasses,
}

/// The purges of all processes on a store.
///
/// The caller passes the last position that it knows. If that is not part of the store's own
/// history, or if this cannot be decided, the store begins another era, in which no earlier page
/// counts.
pub trait PurgeStore {
    /// Records a purge of at most [`PURGE_MARKS_MAX`] marks, informs the other processes, and
    /// returns its position. `None`: the store is in another era than `known`, and these marks are
    /// void.
    fn purge(
        &self,
        known: PurgePosition,
        marks: &[u32],
    ) -> impl Future<Output = Result<Option<PurgePosition>, StoreError>>;

    /// What was purged since `known`, and the bypass switches; records that the process with this id has seen
    /// that much. Within the read budget, unless the whole table is read.
    fn news_since(
        &self,
        process_id: u64,
        known: PurgePosition,
    ) -> impl Future<Output = Result<StoreNews, StoreError>>;

    /// The purges alone.
    fn purged_since(
        &self,
        process_id: u64,
        known: PurgePosition,
    ) -> impl Future<Output = Result<PurgesSince, StoreError>> {
        async move { self.news_since(process_id, known).await.map(|news| news.purges) }
    }

    /// Whether every process that asked within the last three seconds has seen the purge. False,
    /// too, while this is unknown. Within the read budget.
    fn is_seen(&self, purge: Generation) -> impl Future<Output = Result<bool, StoreError>>;

    /// Purges no longer wait until the process with this id has seen them. For a process that ends: it
    /// serves no more pages.
    fn leave(&self, process_id: u64) -> impl Future<Output = Result<(), StoreError>>;
}
