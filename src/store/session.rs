//! Sessions: whose a token is, log-ins and log-outs, and visits.

use std::future::Future;

use super::{Farewell, LogIn, Parted, StoreError, Terms};
use crate::ident::{Item, StoredToken, User, VisitorToken};

/// A visit to record: this user's session was seen at `seen`, having viewed `items`.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The session.
    pub token: StoredToken,
    /// Its user when the visit was seen: the guard of `touch_tokens`.
    pub user: User,
    /// Unix time in seconds.
    pub seen: f64,
    /// The items viewed, each with the Unix time of its last view.
    pub items: Vec<(Item, f64)>,
}

/// What the store said of a visit.
#[derive(Clone, Debug)]
pub struct Touched {
    /// The session.
    pub token: StoredToken,
    /// Its user when the visit was seen.
    pub user: User,
    /// Whether it was still that user's.
    pub held: bool,
}

/// What a log-in does with the session that the visitor had before.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The token in the visitor's cookie, if any: gone everywhere afterwards.
    pub old: Option<StoredToken>,
    /// The new token.
    pub new: StoredToken,
    /// Who logged in.
    pub user: User,
    /// Unix time in seconds.
    pub now: f64,
    /// The most sessions of the user: of more, those with the oldest log-in go. 0: any number.
    pub most: u32,
    /// What becomes of the carts of sessions that it ends, unless they move to the new token; `None`: they go.
    pub farewell: Option<Farewell>,
    /// The visitor's token before the log-in: its cart and views go to the new session, and it is gone
    /// everywhere. Where the session has an item in its cart, too, the larger count holds; what would make
    /// that cart larger than [`super::CART_MAX`] is left out. Of all views the newest stay.
    pub visitor: Option<VisitorToken>,
}

/// What a log-in did with other sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotated {
    /// The user's sessions that had to go, see [`Rotation::most`].
    pub gone: Vec<StoredToken>,
    /// What became of the carts of all that it ended.
    pub parted: Parted,
}

/// Whose a token is.
pub trait TokenStore {
    /// The user of a token, if it is logged in. Within the read budget.
    fn check_token(
        &self,
        token: &StoredToken,
    ) -> impl Future<Output = Result<Option<User>, StoreError>>;

    /// The same, where the session is not over by these terms. A session whose log-in is not known is
    /// counted from when this, or a visit, saw it first. Within the read budget.
    fn live_token(
        &self,
        token: &StoredToken,
        terms: &Terms,
    ) -> impl Future<Output = Result<Option<LogIn>, StoreError>>;
}

/// Log-ins and log-outs. Each is durable when it returns.
pub trait LogInStore {
    /// Creates or renews a session at log-in: `login:`, `recent:`, and with an item `viewed:<token>` (the
    /// newest [`super::Limits::viewed_items`]) and `viewed:` (−1), in one atomic step.
    fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// A log-in: the new token is written and the old one is gone everywhere, in one atomic step. The old
    /// one's views and cart move to the new one only if it had the same user, and the new one has none. The
    /// user's sessions over [`Rotation::most`] go, with all that they have. The carts of sessions that end so
    /// are handed on as [`Rotation::farewell`] says, in the same step, so that each is exactly once. Other
    /// processes are told which tokens are gone.
    fn rotate_token(
        &self,
        rotation: &Rotation,
    ) -> impl Future<Output = Result<Rotated, StoreError>>;

    /// A log-out: nothing mentions the token afterwards. Other processes are told.
    fn revoke_token(&self, token: &StoredToken) -> impl Future<Output = Result<(), StoreError>>;

    /// The same for a session that its visitor has not ended: its cart is handed on as `farewell` says, in
    /// the same step. One that cannot be is lost, for the session has to go.
    fn dismiss_token(
        &self,
        token: &StoredToken,
        farewell: &Farewell,
    ) -> impl Future<Output = Result<Parted, StoreError>>;
}

/// What is written down behind the responses.
pub trait VisitStore {
    /// Records visits, each only where `login:` still holds that user: it renews, and never creates.
    /// `recent:` never goes back in time. Returns for each, in their order, whether it did.
    fn touch_tokens(&self, visits: &[Visit])
    -> impl Future<Output = Result<Vec<bool>, StoreError>>;

    /// Adds views to the popularity set `viewed:`, where the most viewed has the lowest score: each item's
    /// score goes down by its count.
    fn count_views(&self, views: &[(Item, u64)]) -> impl Future<Output = Result<(), StoreError>>;
}
