//! Where state lives: sessions, views, carts and pages, in an embedded database or in Redis.
//!
//! Knows nothing of HTTP. The traits are cut by what the proxy does, not by Redis commands, so
//! that one user-visible step is one atomic step in both stores.

mod answers;
mod any;
mod barred;
mod control;
pub mod embedded;
mod events;
mod expiring;
mod purge;
pub mod redis;
mod rows;
#[cfg(test)]
pub(crate) mod scratch;
mod visitors;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

pub use self::answers::{ANSWER_MAX, AnswerStore};
pub use self::any::{AnyStore, Counted, Counters, OpenError, OpenStore, Settings, StoreState, Url};
pub use self::barred::{BARRED_FOR, BARRED_MAX, BarStore};
pub use self::control::{
    Bookmark, ControlStore, LogIn, NoBookmark, PER_USER_MAX, Session, Terms, WALK_MAX, Walked,
    by_log_in,
};
pub use self::events::{EventStore, Failed, Idle, IdleTold, Noted, WaitingEvent};
pub use self::expiring::{
    Cursor, EXPIRING_BATCH, EXPIRING_BYTES, Evicted, Expired, Farewell, OUTBOX_MAX, Outbox, Parted,
    Why,
};
use self::expiring::{NOT_NOW, OUTBOX_FULL};
pub use self::purge::{
    CUT_OFF_AFTER, Generation, LATER_MARKS, MARKS, MarkKey, Moment, News, PURGE_MARKS_MAX,
    PurgeStore,
};
pub use self::rows::{Claim, Claimed, ROW_JSON_MAX, ROWS_MAX, RowStore, ScheduledRow, StoredRow};
pub use self::visitors::{
    Begins, Merged, VisitorEviction, VisitorStore, VisitorVisit, VisitorsEvicted,
};
use crate::ident::{Item, PageKey, StoredToken, User, VisitorToken};

/// A visit to record: this user's session was seen at `seen`, having viewed `items`.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Whose session.
    pub token: StoredToken,
    /// Who it was when the visit was seen: the guard of `touch_tokens`.
    pub user: User,
    /// Unix time in seconds.
    pub seen: f64,
    /// The items viewed, each with the Unix time of its last view.
    pub items: Vec<(Item, f64)>,
}

/// What the store said of a visit.
#[derive(Clone, Debug)]
pub struct Touched {
    /// Whose session.
    pub token: StoredToken,
    /// Who it was when the visit was seen.
    pub user: User,
    /// Whether it was still his.
    pub held: bool,
}

/// What a log-in does with the session that the visitor had before.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The token that the visitor's cookie carried, if any: gone everywhere afterwards.
    pub old: Option<StoredToken>,
    /// The new token.
    pub new: StoredToken,
    /// Who logged in.
    pub user: User,
    /// Unix time in seconds.
    pub now: f64,
    /// How many sessions he may have: of more, those with the oldest log-in go. 0: any number.
    pub most: u32,
    /// What becomes of the carts of sessions that it ends, unless they move to the new token; `None`: they go.
    pub farewell: Option<Farewell>,
    /// What he had before without a login: its cart and views go to the new session, and it is gone
    /// everywhere. Where the session has an item in its cart, too, the larger count holds; what would make
    /// that cart larger than [`CART_MAX`] is left out. Of all views the newest stay.
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

/// Whose cart is changed.
#[derive(Clone, Debug)]
pub struct CartOwner {
    /// The session.
    pub token: StoredToken,
    /// Who it was when the visitor was recognised: nobody else's cart is changed. `None` where that
    /// could not be looked up in time: whoever is logged in.
    pub user: Option<User>,
    /// Unix time in seconds.
    pub now: f64,
    /// When the session would be over.
    pub terms: Terms,
}

/// How many sessions to keep and how to go about it.
#[derive(Clone, Copy, Debug)]
pub struct Eviction {
    /// Keep this many of the newest.
    pub keep: u64,
    /// Remove at most this many in one step.
    pub batch: u32,
    /// Remove `cart:<token>` too (`clean_full_sessions`); without it `clean_sessions`.
    pub carts: bool,
    /// Those that were last seen before this Unix time are over the limit, too. 0: none is for that.
    pub before: f64,
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
    /// The token does not belong to that user, or to anybody: nothing was written.
    NotLoggedIn,
    /// The cart would hold more than [`CART_MAX`] items: nothing was written.
    Full,
}

/// The most items in a cart that a visitor changes.
pub const CART_MAX: usize = 500;

/// The same of a visitor without a login. Anybody can have many of these, so that they are small.
pub const VISITOR_CART_MAX: usize = 50;
/// The largest count of one item in a cart.
pub const CART_COUNT_MAX: i64 = 1_000_000;

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

/// Sessions, what they viewed, and their carts.
pub trait SessionStore {
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

    /// Creates or renews a session at log-in: `login:`, `recent:`, and with an item
    /// `viewed:<token>` (the newest [`Limits::viewed_items`]) and `viewed:` (−1), in one atomic
    /// step. Durable when it returns.
    fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Records visits, each only where `login:` still holds that user: it renews, and never
    /// creates. `recent:` never goes back in time. Does not touch `viewed:`, see
    /// [`ViewStore::count_views`]. Returns for each, in their order, whether it did.
    fn touch_tokens(&self, visits: &[Visit])
    -> impl Future<Output = Result<Vec<bool>, StoreError>>;

    /// A log-in: the new token is written and the old one is gone everywhere, in one atomic step.
    /// The old one's views and cart move to the new one only if it had the same user, and the new one has
    /// none. The user's sessions that are too many go, see [`Rotation::most`], with all that they have. The
    /// carts of sessions that end so are handed on as [`Rotation::farewell`] says, in the same step, so that
    /// each is exactly once. Other processes are told of those who are nobody's any more. Durable when it
    /// returns.
    fn rotate_token(
        &self,
        rotation: &Rotation,
    ) -> impl Future<Output = Result<Rotated, StoreError>>;

    /// A log-out: nothing mentions the token afterwards. Other processes are told. Durable when it
    /// returns.
    fn revoke_token(&self, token: &StoredToken) -> impl Future<Output = Result<(), StoreError>>;

    /// The same for a session that its visitor has not ended: its cart is handed on as `farewell` says, in
    /// the same step. One that cannot be is lost, for the session has to go.
    fn dismiss_token(
        &self,
        token: &StoredToken,
        farewell: &Farewell,
    ) -> impl Future<Output = Result<Parted, StoreError>>;

    /// Removes the oldest sessions over the limit, at most a batch, in one atomic step, and
    /// returns how many entries of `recent:` it removed. Junk members (no tokens by the grammar)
    /// are removed from `recent:` and `login:` and nothing else is touched for them.
    fn evict_oldest(&self, how: Eviction) -> impl Future<Output = Result<usize, StoreError>>;

    /// Like [`Self::evict_oldest`] with the carts, but of the sessions behind `from`; what becomes of
    /// those that have a cart is what `farewell` says. That a cart is handed on and its session is
    /// removed is one atomic step, so that each is handed on exactly once, and nobody who lives on.
    /// Durable when it returns, where carts may have been handed on.
    fn evict_expiring(
        &self,
        how: Eviction,
        from: &Cursor,
        farewell: &Farewell,
    ) -> impl Future<Output = Result<Evicted, StoreError>>;

    /// What has waited longest in the outbox, see [`Farewell::Outbox`]: a batch of it.
    fn outbox(&self) -> impl Future<Output = Result<Outbox, StoreError>>;

    /// Removes from the outbox what was read there, and nothing else; says whether it was there still.
    /// Durable when it returns.
    fn clear_outbox(&self, outbox: &Outbox) -> impl Future<Output = Result<bool, StoreError>>;

    /// Whether `who` may clean for the next `time`, and nobody else. Whoever has the turn keeps it
    /// by asking again.
    fn take_turn(&self, who: u64, time: Duration)
    -> impl Future<Output = Result<bool, StoreError>>;

    /// Puts `count` of an item into a session's cart; `count` ≤ 0 takes it out. Durable when it
    /// returns. As in the book it asks nobody: what a visitor wants goes through
    /// [`Self::change_cart`].
    fn add_to_cart(
        &self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Changes the cart of a session, only where `login:` holds that user for the token: the look
    /// and the change are one atomic step. It is a visit, too: the session is not among the oldest
    /// any more, whenever its visit is written. Durable when it returns.
    fn change_cart(
        &self,
        whose: &CartOwner,
        change: &CartChange,
    ) -> impl Future<Output = Result<CartAnswer, StoreError>>;

    /// What a session's cart holds. Within the read budget.
    fn cart(&self, token: &StoredToken) -> impl Future<Output = Result<Cart, StoreError>>;

    /// The items that a session viewed, each with the Unix time of its last view, the newest
    /// first. Within the read budget.
    fn viewed(
        &self,
        token: &StoredToken,
    ) -> impl Future<Output = Result<Vec<(Item, f64)>, StoreError>>;
}

/// How often each item was viewed, over all visitors.
pub trait ViewStore {
    /// Adds views to the popularity set `viewed:`, where the most viewed has the lowest score:
    /// each item's score goes down by its count.
    fn count_views(&self, views: &[(Item, u64)]) -> impl Future<Output = Result<(), StoreError>>;

    /// Whether an item is among the `top` most viewed. While fewer items are known, every one is.
    /// Within the read budget.
    fn ranks_under(&self, item: &Item, top: u64) -> impl Future<Output = Result<bool, StoreError>>;

    /// The most viewed items with their views, as far as these were not rescaled, the most viewed
    /// first; at most `most`. Within the read budget.
    fn top(&self, most: u32) -> impl Future<Output = Result<Vec<(Item, f64)>, StoreError>>;

    /// `rescale_viewed`: keeps the most viewed items and makes all scores smaller, in one atomic step,
    /// unless somebody did within [`Rescaling::every`]; the very first look only begins a period.
    /// Where very many items go, they go in steps before it.
    fn rescale_views(&self, how: Rescaling) -> impl Future<Output = Result<Rescaled, StoreError>>;
}

/// Pages, as opaque bytes with a time to live.
pub trait PageStore {
    /// The page under a key, unless it has expired. Within the read budget.
    fn page(&self, key: &PageKey) -> impl Future<Output = Result<Option<Bytes>, StoreError>>;

    /// Stores a page for `ttl`, within [`Limits::pages`] bytes in all. Refused are a page over
    /// [`Limits::max_page`] ([`StoreError::TooLarge`]), one for which there is no room
    /// ([`StoreError::Full`]), and where there is not much left, one that is new to the store and was
    /// asked for once ([`StoreError::NearlyFull`]).
    fn put_page(
        &self,
        key: &PageKey,
        page: Bytes,
        ttl: Duration,
        demand: Demand,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Removes pages; those that are not there are no error.
    fn delete_pages(&self, keys: &[PageKey]) -> impl Future<Output = Result<(), StoreError>>;

    /// Asks for the lease on fetching a page, as the process `who`: of a fleet one fetches. It ends
    /// by itself after `time`. Within the read budget.
    fn lease(
        &self,
        key: &PageKey,
        who: u64,
        time: Duration,
    ) -> impl Future<Output = Result<Lease, StoreError>>;

    /// Ends the lease, if it is still `who`'s. Where the page is for nobody else, others are told so
    /// for a moment.
    fn end_lease(
        &self,
        key: &PageKey,
        who: u64,
        is_shareable: bool,
    ) -> impl Future<Output = Result<(), StoreError>>;
}

/// How often a page was asked for in the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Once, as far as is known.
    Once,
    /// More often.
    Again,
}

/// The bytes of a bound on pages from which on a page must have been asked for more than once.
fn nearly(bound: u64) -> u64 {
    bound / 5 * 4
}

/// What every page of ours begins with, and no text: by it our pages are told from what another program
/// stored.
pub const PAGE_MAGIC: [u8; 4] = [0x00, 0xa7, b'A', b'R'];

/// The version of a page's layout, behind that. A newer or older one is refused, which is a miss, and was
/// booked by nobody who books today.
pub const PAGE_VERSION: u8 = 4;

/// What pages of ours begin with.
pub const PAGE_HEAD: [u8; 5] = [0x00, 0xa7, b'A', b'R', PAGE_VERSION];

/// Who fetches a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The process that asked.
    Ours,
    /// Another one.
    Theirs,
    /// Another one did a moment ago, and the page was for nobody else.
    Unshareable,
}

/// The bounds that a store keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The budget of one read (`check_token`, `page`).
    pub read_timeout: Duration,
    /// The budget of one write that somebody waits for (log-in, cart).
    pub write_timeout: Duration,
    /// How many items `viewed:<token>` keeps.
    pub viewed_items: u32,
    /// Bytes of pages that the store holds.
    pub pages: u64,
    /// The largest page that goes into the store, in bytes.
    pub max_page: u64,
}

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no connection, or the breaker is open: known at once.
    #[error("the store is away")]
    Away,
    /// The budget was used up. Of a write nobody knows whether it was done.
    #[error("the store did not answer in time")]
    TimedOut,
    /// The connection broke before the answer to a write. Nobody knows whether it was done.
    #[error("the connection to the store broke before its answer")]
    Unanswered(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No room for this page; it may stay in memory.
    #[error("the store has no room for the page")]
    Full,
    /// Not much room is left, and this page was asked for only once.
    #[error("the store is nearly full, and the page was asked for only once")]
    NearlyFull,
    /// The page is over [`Limits::max_page`].
    #[error("the page is too large for the store")]
    TooLarge,
    /// No further row is scheduled, see [`ROWS_MAX`].
    #[error("there are {ROWS_MAX} scheduled rows, which is the most")]
    RowsFull,
    /// The store answered with an error, or with something that we did not write.
    #[error("the store failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// Whether the store itself refused: it is there, and has changed nothing.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Full | Self::NearlyFull | Self::TooLarge | Self::RowsFull => {
                true
            }
            Self::Away | Self::TimedOut | Self::Unanswered(_) => false,
        }
    }

    /// Whether nobody knows what became of a write.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Unanswered(_))
    }
}
