//! Where state lives: sessions, views, carts and pages, in an embedded database or in Redis.
//!
//! Knows nothing of HTTP. The traits are cut by what the proxy does, not by Redis commands, so that one
//! user-visible step is one atomic step in both stores; and by who calls them, so that a test's own store
//! has what that caller needs. [`traits`] has all of them.

mod answers;
mod any;
mod barred;
mod cart;
mod control;
mod counters;
pub mod embedded;
mod events;
mod expiring;
mod open;
mod page;
mod purge;
pub mod redis;
mod rows;
#[cfg(test)]
pub(crate) mod scratch;
mod session;
mod view;
mod visitors;

use std::time::Duration;

pub use self::answers::{ANSWER_MAX, AnswerStore};
pub use self::any::AnyStore;
pub use self::barred::{BARRED_FOR, BARRED_MAX, BarStore};
pub use self::cart::{
    CART_COUNT_MAX, CART_MAX, Cart, CartAnswer, CartChange, CartOwner, CartStore, VISITOR_CART_MAX,
};
pub use self::control::{
    Bookmark, LogIn, NoBookmark, PER_USER_MAX, Session, SessionListing, Terms, WALK_MAX, Walked,
    by_log_in,
};
pub use self::counters::{Counted, Counters, StoreState};
pub use self::events::{EventStore, Failed, Idle, IdleTold, Noted, WaitingEvent};
pub use self::expiring::{
    Cursor, EXPIRING_BATCH, EXPIRING_BYTES, Evicted, Eviction, Expired, ExpiryStore, Farewell,
    LeaseStore, OUTBOX_MAX, Outbox, Parted, TaskLease, Why,
};
use self::expiring::{NOT_NOW, OUTBOX_FULL};
pub use self::open::{OpenError, OpenStore, Settings, Url};
pub use self::page::{Demand, Lease, PAGE_HEAD, PAGE_MAGIC, PAGE_VERSION, PageStore};
pub use self::purge::{
    CUT_OFF_AFTER, Generation, LATER_MARKS, MARKS, MarkKey, Moment, News, PURGE_MARKS_MAX,
    PurgeStore,
};
pub use self::rows::{Claim, Claimed, ROW_JSON_MAX, ROWS_MAX, RowStore, ScheduledRow, StoredRow};
pub use self::session::{LogInStore, Rotated, Rotation, TokenStore, Touched, Visit, VisitStore};
pub use self::view::{POPULARITY_MAX, Rescaled, Rescaling, ViewStore};
pub use self::visitors::{
    Begins, Merged, VisitorEviction, VisitorStore, VisitorVisit, VisitorsEvicted,
};

/// All that a store does, for `use anteroom::store::traits::*`.
pub mod traits {
    pub use super::{
        AnswerStore as _, BarStore as _, CartStore as _, EventStore as _, ExpiryStore as _,
        LeaseStore as _, LogInStore as _, PageStore as _, PurgeStore as _, RowStore as _,
        SessionListing as _, TokenStore as _, ViewStore as _, VisitStore as _, VisitorStore as _,
    };
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
