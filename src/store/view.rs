//! What was viewed: by a session, and how often by all.

use std::future::Future;
use std::time::Duration;

use super::StoreError;
use crate::ident::{Item, StoredToken};

/// Items whose popularity is known, at most. At the bound the embedded store counts no new ones, and
/// Redis drops the least viewed.
pub const POPULARITY_MAX: u64 = 250_000;

/// What a step of rescaling did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescaled {
    /// Nothing: it was done lately, or a period has only begun.
    NotYet,
    /// Some of the items that go are gone; call again.
    Begun,
    /// It is done.
    Done,
}

/// How `viewed:` is made smaller now and then.
#[derive(Clone, Copy, Debug)]
pub struct Rescaling {
    /// The items that stay, most viewed first.
    pub keep_top: u64,
    /// What is left of each score, 0 to 1.
    pub factor: f64,
    /// Not more often than this, however many processes ask for it.
    pub every: Duration,
    /// Unix time in seconds.
    pub now: f64,
}

/// What was viewed.
pub trait ViewStore {
    /// The items that a session viewed, each with the Unix time of its last view, the newest first. Within
    /// the read budget.
    fn viewed(
        &self,
        token: &StoredToken,
    ) -> impl Future<Output = Result<Vec<(Item, f64)>, StoreError>>;

    /// Whether an item is among the `top` most viewed. While fewer items are known, every one is. Within the
    /// read budget.
    fn ranks_under(&self, item: &Item, top: u64) -> impl Future<Output = Result<bool, StoreError>>;

    /// The most viewed items with their views, as far as these were not rescaled, the most viewed first; at
    /// most `most`. Within the read budget.
    fn top(&self, most: u32) -> impl Future<Output = Result<Vec<(Item, f64)>, StoreError>>;

    /// `rescale_viewed`: keeps the most viewed items and makes all scores smaller, in one atomic step, unless
    /// that was done within [`Rescaling::every`]; the very first call only begins a period. Where very many
    /// items go, they go in steps before it.
    fn rescale_views(&self, how: Rescaling) -> impl Future<Output = Result<Rescaled, StoreError>>;
}
