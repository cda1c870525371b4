//! Sessions: the user of a token, logins and logouts, and visits.

use std::future::Future;

use anteroom_http::ident::{Item, StoredToken, User, VisitorToken};

use super::{EndedCarts, ExpiryAction, LogIn, SessionLifetimes, StoreError};

/// A visit to record: this user's session was seen at `seen`, having viewed `items`.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The session.
    pub token: StoredToken,
    /// Its user at the time of the visit: the guard of `touch_tokens`.
    pub user: User,
    /// Unix time in seconds.
    pub seen: f64,
    /// The items viewed, each with the Unix time of its last view.
    pub items: Vec<(Item, f64)>,
}

/// The store's answer about a visit.
#[derive(Clone, Debug)]
pub struct VisitResult {
    /// The session.
    pub token: StoredToken,
    /// Its user at the time of the visit.
    pub user: User,
    /// Whether the session was still that user's.
    pub held: bool,
}

/// What a login does with the visitor's previous session.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The token in the visitor's cookie, if any: removed everywhere by the login.
    pub old: Option<StoredToken>,
    /// The new token.
    pub new: StoredToken,
    /// The user who logs in.
    pub user: User,
    /// Unix time in seconds.
    pub now: f64,
    /// The most sessions of the user; beyond it, those with the oldest login are removed. 0: no
    /// limit.
    pub most: u32,
    /// What happens to the carts of sessions that the login ends, unless they move to the new
    /// token; `None`: they are removed.
    pub expiry_action: Option<ExpiryAction>,
    /// The visitor's token before the login: its cart and views move to the new session, and the
    /// token is removed everywhere. If the session's cart has the same item, the larger count is
    /// kept; items beyond [`super::CART_MAX`] are left out. Of all views the newest are kept.
    pub visitor: Option<VisitorToken>,
}

/// What a login did with other sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotationResult {
    /// The user's sessions that were removed, see [`Rotation::most`].
    pub gone: Vec<StoredToken>,
    /// The carts of all sessions that it ended.
    pub ended_carts: EndedCarts,
}

/// The user of a token.
pub trait TokenStore {
    /// The user of a token, if it is logged in. Within the read budget.
    fn check_token(
        &self,
        token: &StoredToken,
    ) -> impl Future<Output = Result<Option<User>, StoreError>>;

    /// The same, if the session is not over by these terms. A session with an unknown login time
    /// counts from the first call of this, or the first visit, that saw it. Within the read budget.
    fn live_token(
        &self,
        token: &StoredToken,
        terms: &SessionLifetimes,
    ) -> impl Future<Output = Result<Option<LogIn>, StoreError>>;
}

/// Logins and logouts. Each is durable when it returns.
pub trait LogInStore {
    /// Creates or renews a session at login: `login:`, `recent:`, and with an item
    /// `viewed:<token>` (the newest [`super::StoreLimits::viewed_items`]) and `viewed:` (−1), in one
    /// atomic step.
    fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// A login: the new token is written and the old one removed everywhere, in one atomic step.
    /// The old token's views and cart move to the new one only if it had the same user and the new
    /// one has none. The user's sessions over [`Rotation::most`] are removed with all their data.
    /// The carts of sessions that end this way are handed on as [`Rotation::expiry_action`] says,
    /// in the same step, so exactly once each. Other processes are informed which tokens are gone.
    fn rotate_token(
        &self,
        rotation: &Rotation,
    ) -> impl Future<Output = Result<RotationResult, StoreError>>;

    /// A logout: afterwards no key mentions the token. Other processes are informed.
    fn revoke_token(&self, token: &StoredToken) -> impl Future<Output = Result<(), StoreError>>;

    /// The same for a session that is not ended by its visitor: its cart is handed on as
    /// `expiry_action` says, in the same step. A cart that cannot be handed on is lost, for the
    /// session must end.
    fn dismiss_token(
        &self,
        token: &StoredToken,
        expiry_action: &ExpiryAction,
    ) -> impl Future<Output = Result<EndedCarts, StoreError>>;

    /// Finishes what logins have begun in processes that stopped meanwhile, where a login takes more than one step.
    /// Returns how many there were.
    fn finish_handovers(&self, now: f64) -> impl Future<Output = Result<usize, StoreError>>;
}

/// What is written after the response.
pub trait VisitStore {
    /// Records visits, each only if `login:` still holds that user: it renews, and never creates. A
    /// time in `recent:` never goes back. Returns for each, in their order, whether it was
    /// recorded.
    fn touch_tokens(&self, visits: &[Visit])
    -> impl Future<Output = Result<Vec<bool>, StoreError>>;

    /// Adds views to the popularity set `viewed:`, where the most viewed item has the lowest score:
    /// each item's score goes down by its count.
    fn count_views(&self, views: &[(Item, u64)]) -> impl Future<Output = Result<(), StoreError>>;

    /// Like [`Self::touch_tokens`]; a part of the store that does not answer costs its own visits only. `None` for
    /// those: they may be sent again.
    ///
    /// # Errors
    /// When no part has answered.
    fn touch_within_reach(
        &self,
        visits: &[Visit],
    ) -> impl Future<Output = Result<Vec<Option<bool>>, StoreError>> {
        async { Ok(self.touch_tokens(visits).await?.into_iter().map(Some).collect()) }
    }

    /// Like [`Self::count_views`]; a part of the store that does not answer costs its own views only.
    ///
    /// # Errors
    /// When no part has answered.
    fn count_within_reach(
        &self,
        views: &[(Item, u64)],
    ) -> impl Future<Output = Result<UncountedViews, StoreError>> {
        async { self.count_views(views).await.map(|()| UncountedViews::default()) }
    }
}

/// Views that a part of the store has not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UncountedViews {
    /// Certainly not counted: they may be sent again.
    pub not_sent: Vec<(Item, u64)>,
    /// Items whose views may have been counted, with these.
    pub unknown: Vec<(Item, u64)>,
}
