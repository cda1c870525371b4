//! Views: per session, and in total per item.

use std::future::Future;
use std::time::Duration;

use anteroom_http::ident::{Item, StoredToken};

use super::StoreError;

/// The most items with a known popularity. At the limit the embedded store counts no new ones, and
/// Redis drops the least viewed.
pub const POPULARITY_MAX: u64 = 250_000;

/// The result of a step of rescaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RescaleResult {
    /// Nothing was done: the last rescaling is recent, or a period has just begun.
    NotYet,
    /// Some of the items to drop are removed; call again.
    Begun,
    /// It is done.
    Done,
}

/// How `viewed:` is rescaled.
#[derive(Clone, Copy, Debug)]
pub struct Rescaling {
    /// The items to keep, the most viewed first.
    pub keep_top: u64,
    /// The factor for each score, 0 to 1.
    pub factor: f64,
    /// The least time between two rescalings, over all processes.
    pub every: Duration,
    /// Unix time in seconds.
    pub now: f64,
}

/// Which items are among the most viewed, as it was found for all of them at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TopBound {
    /// Every item: fewer are known.
    Every,
    /// Those with this score, or a lower one.
    Score(f64),
}

/// Views.
pub trait ViewStore {
    /// The items that a session viewed, each with the Unix time of its last view, the newest first.
    /// Within the read budget.
    fn viewed(
        &self,
        token: &StoredToken,
    ) -> impl Future<Output = Result<Vec<(Item, f64)>, StoreError>>;

    /// Whether an item is among the `top` most viewed. While fewer items are known, every item is.
    /// Within the read budget.
    fn ranks_under(&self, item: &Item, top: u64) -> impl Future<Output = Result<bool, StoreError>>;

    /// The bound of the `top` most viewed items, for [`Self::ranks_within`]; `None` where the store finds the rank of
    /// one item as easily. Within the read budget.
    ///
    /// # Errors
    /// Those of a read.
    fn bound_of_top(
        &self,
        _top: u64,
    ) -> impl Future<Output = Result<Option<TopBound>, StoreError>> {
        std::future::ready(Ok(None))
    }

    /// Like [`Self::ranks_under`], by a bound that was found a moment ago.
    ///
    /// # Errors
    /// Those of a read.
    fn ranks_within(
        &self,
        item: &Item,
        top: u64,
        _bound: TopBound,
    ) -> impl Future<Output = Result<bool, StoreError>> {
        self.ranks_under(item, top)
    }

    /// The most viewed items with their (rescaled) views, the most viewed first; at most `most`.
    /// Within the read budget.
    fn top(&self, most: u32) -> impl Future<Output = Result<Vec<(Item, f64)>, StoreError>>;

    /// `rescale_viewed`: keeps the most viewed items and scales all scores down, in one atomic
    /// step, unless that was done within [`Rescaling::every`]; the very first call only begins a
    /// period. A very large number of items is dropped in several steps before it.
    fn rescale_views(
        &self,
        how: Rescaling,
    ) -> impl Future<Output = Result<RescaleResult, StoreError>>;
}
