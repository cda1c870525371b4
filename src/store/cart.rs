//! Carts of sessions.

use std::future::Future;

use super::{StoreError, Terms};
use crate::ident::{Item, StoredToken, User};

/// The most items in a cart that a visitor changes.
pub const CART_MAX: usize = 500;
/// The same of a visitor without a login. One client can have many of these, so they are small.
pub const VISITOR_CART_MAX: usize = 50;
/// The largest count of one item in a cart.
pub const CART_COUNT_MAX: i64 = 1_000_000;

/// Whose cart is changed.
#[derive(Clone, Debug)]
pub struct CartOwner {
    /// The session.
    pub token: StoredToken,
    /// Its user when the visitor was recognised: only that user's cart is changed. `None` where that could
    /// not be looked up in time: whoever is logged in.
    pub user: Option<User>,
    /// Unix time in seconds.
    pub now: f64,
    /// When the session would be over.
    pub terms: Terms,
}

/// What a visitor's cart holds: each item with its count, in the order of the ids.
pub type Cart = Vec<(Item, i64)>;

/// A change to a visitor's own cart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CartChange {
    /// Sets the count of these items; a count of 0 or less takes the item out.
    Set(Vec<(Item, i64)>),
    /// Takes everything out.
    Empty,
}

/// What became of a change to a cart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CartAnswer {
    /// It is done, and this is the cart now.
    Changed(Cart),
    /// The token has no session, or another user's: nothing was written.
    NotLoggedIn,
    /// The cart would hold more than [`CART_MAX`] items: nothing was written.
    Full,
}

/// Carts of sessions.
pub trait CartStore {
    /// Puts `count` of an item into a session's cart; `count` ≤ 0 takes it out. Durable when it returns. As
    /// in the book it checks no user: what a visitor wants goes through [`Self::change_cart`].
    fn add_to_cart(
        &self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Changes the cart of a session, only where `login:` holds that user for the token: the look and the
    /// change are one atomic step. It counts as a visit: the session is not among the oldest any more,
    /// whenever its visit is written. Durable when it returns.
    fn change_cart(
        &self,
        whose: &CartOwner,
        change: &CartChange,
    ) -> impl Future<Output = Result<CartAnswer, StoreError>>;

    /// What a session's cart holds. Within the read budget.
    fn cart(&self, token: &StoredToken) -> impl Future<Output = Result<Cart, StoreError>>;
}
