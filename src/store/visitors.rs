//! What is kept for visitors without a login: a cart, and what they viewed, under tokens of their own.

use std::future::Future;

use super::{Cart, CartAnswer, CartChange, StoreError};
use crate::ident::{Item, StoredToken, User, VisitorToken};

/// A visit to record, of somebody who holds a visitor's token.
#[derive(Clone, Debug, PartialEq)]
pub struct VisitorVisit {
    /// Whose.
    pub token: VisitorToken,
    /// Unix time in seconds.
    pub seen: f64,
    /// The items viewed, each with the Unix time of its last view.
    pub items: Vec<(Item, f64)>,
}

/// Whether a token has to be there when its cart is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// It begins with this change: it was made right now.
    Now,
    /// It began before. Where it is gone, nothing is written.
    Before,
}

/// What became of what a token had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The session has it.
    Done,
    /// There was nothing: another was faster, or it was cleaned.
    Nothing,
    /// The session is nobody's, or somebody else's. The token keeps what it has.
    NoSession,
}

/// How many visitors' tokens to keep.
#[derive(Clone, Copy, Debug)]
pub struct VisitorEviction {
    /// Keep this many of those that were seen last.
    pub keep: u64,
    /// Remove at most this many in one step.
    pub batch: u32,
    /// Those that were last seen before this Unix time are over the limit, too.
    pub before: f64,
}

/// What a step of cleaning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VisitorsEvicted {
    /// Tokens removed, with all that they had.
    pub removed: usize,
    /// Tokens left.
    pub kept: u64,
}

/// Visitors' tokens: `visitors:`, and `cart:` and `viewed:` of each. No step here reads or writes a session,
/// but that a log-in takes over what its visitor has, see [`super::Rotation::visitor`].
pub trait VisitorStore {
    /// Begins to keep what a visitor views, with this item. Within the read budget, for a page waits for it:
    /// where that is over it may have been done all the same, under a token that nobody has.
    fn begin_visitor(
        &self,
        token: &VisitorToken,
        item: &Item,
        now: f64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Records visits, each only where its token is there: it renews, and never creates. Does not touch
    /// `viewed:`. Returns for each, in their order, whether it did.
    fn touch_visitors(
        &self,
        visits: &[VisitorVisit],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>>;

    /// Changes the cart of a token, and counts as a visit. Where the token is gone, and does not begin now,
    /// [`CartAnswer::NotLoggedIn`]. Durable when it returns.
    fn change_visitor_cart(
        &self,
        token: &VisitorToken,
        begins: Begins,
        change: &CartChange,
        now: f64,
    ) -> impl Future<Output = Result<CartAnswer, StoreError>>;

    /// What the cart of a token holds. Within the read budget.
    fn visitor_cart(&self, token: &VisitorToken) -> impl Future<Output = Result<Cart, StoreError>>;

    /// The items that a token's visitor viewed, each with the Unix time of its last view, the newest first.
    /// Within the read budget.
    fn visitor_viewed(
        &self,
        token: &VisitorToken,
    ) -> impl Future<Output = Result<Vec<(Item, f64)>, StoreError>>;

    /// Gives what a token has to a session, only where `login:` holds that user for it, and the token is gone
    /// then: of several who ask for it at once, one gets it. It is joined as at a log-in, see
    /// [`super::Rotation::visitor`]. Durable when it returns.
    fn merge_visitor(
        &self,
        token: &VisitorToken,
        session: &StoredToken,
        user: &User,
    ) -> impl Future<Output = Result<Merged, StoreError>>;

    /// Removes a token with all that it has.
    fn forget_visitor(&self, token: &VisitorToken) -> impl Future<Output = Result<(), StoreError>>;

    /// Removes the tokens over the limit that were not seen for the longest, at most a batch, in one atomic
    /// step, with all that they have.
    fn evict_visitors(
        &self,
        how: VisitorEviction,
    ) -> impl Future<Output = Result<VisitorsEvicted, StoreError>>;
}
