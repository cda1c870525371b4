//! Data of visitors without a login: a cart, and views, under tokens of their own.

use std::future::Future;

use anteroom_http::ident::{Item, StoredToken, User, VisitorToken};

use super::{Cart, CartAnswer, CartChange, StoreError};

/// A visit to record, by the holder of a visitor token.
#[derive(Clone, Debug, PartialEq)]
pub struct VisitorVisit {
    /// The token.
    pub token: VisitorToken,
    /// Unix time in seconds.
    pub seen: f64,
    /// The items viewed, each with the Unix time of its last view.
    pub items: Vec<(Item, f64)>,
}

/// Whether a token must exist when its cart is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCreation {
    /// It begins with this change: it was just created.
    Now,
    /// It began before. If it is gone, nothing is written.
    Before,
}

/// The result of a merge of a token's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeResult {
    /// The session has the data.
    Done,
    /// There was nothing: another call was faster, or the token was cleaned.
    Nothing,
    /// The session has ended, or is another user's. The token keeps its data.
    NoSession,
}

/// How many visitor tokens to keep.
#[derive(Clone, Copy, Debug)]
pub struct VisitorEviction {
    /// Keep this many, last seen first.
    pub keep: u64,
    /// Remove at most this many in one step.
    pub batch: u32,
    /// Tokens last seen before this Unix time are over the limit, too.
    pub before: f64,
}

/// The result of a step of cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VisitorsEvicted {
    /// Tokens removed, with all their data.
    pub removed: usize,
    /// Tokens left.
    pub kept: u64,
}

/// Visitor tokens: `visitors:`, and `cart:` and `viewed:` of each. These steps do not read or write
/// sessions; the exception is a login that takes over its visitor's data, see
/// [`super::Rotation::visitor`].
pub trait VisitorStore {
    /// Begins to keep a visitor's views, with this item. Within the read budget, because a page
    /// waits for it: after a timeout it may have been done all the same, under a token that no
    /// client has.
    fn begin_visitor(
        &self,
        token: &VisitorToken,
        item: &Item,
        now: f64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Records visits, each only if its token exists: it renews, and never creates. Does not touch
    /// `viewed:`. Returns for each, in their order, whether it was recorded.
    fn touch_visitors(
        &self,
        visits: &[VisitorVisit],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>>;

    /// The same; a part of the store that does not answer costs its own visits only. `None` for those: they may be
    /// sent again.
    ///
    /// # Errors
    /// When no part has answered.
    fn touch_visitors_within_reach(
        &self,
        visits: &[VisitorVisit],
    ) -> impl Future<Output = Result<Vec<Option<bool>>, StoreError>> {
        async { Ok(self.touch_visitors(visits).await?.into_iter().map(Some).collect()) }
    }

    /// Changes the cart of a token, and counts as a visit. If the token is gone, and does not begin
    /// now, [`CartAnswer::NotLoggedIn`]. Durable when it returns.
    fn change_visitor_cart(
        &self,
        token: &VisitorToken,
        begins: TokenCreation,
        change: &CartChange,
        now: f64,
    ) -> impl Future<Output = Result<CartAnswer, StoreError>>;

    /// The contents of a token's cart. Within the read budget.
    fn visitor_cart(&self, token: &VisitorToken) -> impl Future<Output = Result<Cart, StoreError>>;

    /// The items viewed under a token, each with the Unix time of its last view, the newest first.
    /// Within the read budget.
    fn visitor_viewed(
        &self,
        token: &VisitorToken,
    ) -> impl Future<Output = Result<Vec<(Item, f64)>, StoreError>>;

    /// Moves a token's data to a session, only if `login:` holds that user for the session, and
    /// removes the token: of several concurrent calls, one gets the data. It is merged as at a
    /// login, see [`super::Rotation::visitor`]. Durable when it returns.
    fn merge_visitor(
        &self,
        token: &VisitorToken,
        session: &StoredToken,
        user: &User,
    ) -> impl Future<Output = Result<MergeResult, StoreError>>;

    /// Removes a token with all its data.
    fn forget_visitor(&self, token: &VisitorToken) -> impl Future<Output = Result<(), StoreError>>;

    /// Removes the tokens over the limit that were last seen the longest ago, at most a batch, in
    /// one atomic step, with all their data.
    fn evict_visitors(
        &self,
        how: VisitorEviction,
    ) -> impl Future<Output = Result<VisitorsEvicted, StoreError>>;
}
