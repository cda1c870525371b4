//! Carts of sessions.

use std::future::Future;

use anteroom_http::ident::{Item, StoredToken, User};

use super::{SessionLifetimes, StoreError};

/// The most items in a cart that a visitor changes.
pub const CART_MAX: usize = 500;
/// The same for a visitor without a login. One client can have many of these carts, so they are
/// small.
pub const VISITOR_CART_MAX: usize = 50;
/// The largest count of one item in a cart.
pub const CART_COUNT_MAX: i64 = 1_000_000;

/// The owner of the cart to change.
#[derive(Clone, Debug)]
pub struct CartOwner {
    /// The session.
    pub token: StoredToken,
    /// The user, if recognised: only that user's cart is changed. `None` if the look-up was too
    /// late: any logged-in user.
    pub user: Option<User>,
    /// Unix time in seconds.
    pub now: f64,
    /// When the session is over.
    pub terms: SessionLifetimes,
}

/// A cart's items with their counts, ordered by id.
pub type Cart = Vec<(Item, i64)>;

/// A change to a visitor's own cart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CartChange {
    /// Sets the count of these items; a count of 0 or less removes the item.
    Set(Vec<(Item, i64)>),
    /// Removes all items.
    Empty,
}

/// The result of a change to a cart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CartAnswer {
    /// Done; the cart as it is now.
    Changed(Cart),
    /// The token has no session, or the session of another user: nothing was written.
    NotLoggedIn,
    /// The cart would hold more than [`CART_MAX`] items: nothing was written.
    Full,
}

/// Carts of sessions.
pub trait CartStore {
    /// Sets the count of an item in a session's cart; `count` ≤ 0 removes it. Durable when it returns. As in
    /// the chapter's layout (Redis in Action, chapter 2), it does not check the user: a visitor's own change
    /// goes through [`Self::change_cart`].
    fn add_to_cart(
        &self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Changes the cart of a session, only if `login:` holds that user for the token: check and
    /// change are one atomic step. It counts as a visit: the session is no longer among the oldest,
    /// whenever its visit is written. Durable when it returns.
    fn change_cart(
        &self,
        owner: &CartOwner,
        change: &CartChange,
    ) -> impl Future<Output = Result<CartAnswer, StoreError>>;

    /// The contents of a session's cart. Within the read budget.
    fn cart(&self, token: &StoredToken) -> impl Future<Output = Result<Cart, StoreError>>;
}
