//! Purges: numbered in one order for all processes on a store, and kept in a table of fixed size.
//!
//! What a purge hits is told as *marks*, places in that table; what they stand for is not known here.

use std::future::Future;
use std::time::Duration;

use super::StoreError;

/// Places in the table of purges.
pub const MARKS: u32 = 262_146;
/// The most marks of one purge.
pub const PURGE_MARKS_MAX: usize = 1_000;
/// The last purges, which a process that was away for a moment reads one by one; after more of them it
/// reads the table.
pub(super) const PURGES_KEPT: usize = 10_000;
/// Purges in one answer, at most.
pub(super) const NEWS_MAX: usize = 1_000;
/// For how long a process counts as living that has asked for news.
pub(super) const LIVES: Duration = Duration::from_secs(3);

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

/// What was purged since a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The purges, each with its marks, the oldest first.
    Since {
        /// The marks of each; their numbers follow on the moment that was asked about.
        purges: Vec<Vec<u32>>,
        /// The last of them.
        upto: Generation,
        /// Whether there are further ones.
        more: bool,
    },
    /// There were too many, or it was another era: the whole table.
    All {
        /// The moment of which it tells.
        upto: Generation,
        /// Each mark with the number of the last purge that has it, which may be a later one.
        marks: Vec<(u32, u64)>,
    },
}

/// What was purged, for all processes on a store.
pub trait PurgeStore {
    /// Records a purge of at most [`PURGE_MARKS_MAX`] marks, tells the other processes, and returns its
    /// number.
    fn purge(&self, marks: &[u32]) -> impl Future<Output = Result<Generation, StoreError>>;

    /// What was purged since `seen`; tells the others that `who` has seen that much. Within the read
    /// budget, unless the whole table is read.
    fn purged_since(
        &self,
        who: u64,
        seen: Generation,
    ) -> impl Future<Output = Result<News, StoreError>>;

    /// Whether every process that asked within the last three seconds has seen the purge. Within the
    /// read budget.
    fn is_seen(&self, purge: Generation) -> impl Future<Output = Result<bool, StoreError>>;
}
