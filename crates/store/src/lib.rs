//! Where state lives: sessions, views, carts and pages, in an embedded database, in Redis, or in a Redis Cluster.
//!
//! What a call has acknowledged is kept, whatever fails. Nothing here knows HTTP, policy, or what a caller does with an
//! answer. The traits follow what the proxy does, not the Redis
//! commands, so that one user-visible step is one atomic step in both stores; and they are split by
//! caller, so that a test's own store implements only what that caller needs. [`traits`] has all of
//! them.

mod answers;
mod any;
pub mod backup;
pub mod bypass;
mod cart;
mod certificates;
mod control;
mod counters;
pub mod embedded;
mod engine;
mod events;
mod expiring;
pub mod fleet;
mod hot_pages;
mod layout;
mod open;
mod open_engine;
mod open_error;
mod overload;
mod page;
mod purge;
pub mod redis;
pub mod remote;
mod revoked;
mod rows;
#[cfg(any(test, feature = "scratch"))]
pub mod scratch;
mod session;
mod sharded;
mod succession;
mod switch;
mod ticket_keys;
pub mod transfer;
mod view;
mod visitors;

use std::time::Duration;

pub use self::answers::{ANSWER_MAX, AnswerStore};
pub use self::any::AnyStore;
use self::bypass::BYPASSES_MAX;
pub use self::bypass::{BypassScope, BypassStore, StoppedPages, StoredBypass, StoredBypasses};
pub use self::cart::{
    CART_COUNT_MAX, CART_MAX, Cart, CartAnswer, CartChange, CartOwner, CartStore, VISITOR_CART_MAX,
};
pub use self::certificates::{CertificateStore, SEALED_MAX};
pub use self::control::{
    Bookmark, LogIn, NoBookmark, PER_USER_MAX, Session, SessionLifetimes, SessionListing, WALK_MAX,
    WalkStep, by_log_in,
};
pub use self::counters::{CALL_BOUNDS, CallTimes, CounterReading, StoreCounters, StoreState};
pub use self::embedded::{STORE_FORMAT, StoreMemory};
pub use self::engine::Engine;
pub use self::events::{
    DeliveryFailure, EventStore, IdleRange, IdleStep, ReceiverFailures, WaitingEvent,
};
pub use self::expiring::{
    Cursor, EXPIRING_BATCH, EXPIRING_BYTES, EndedCarts, Eviction, EvictionResult, ExpiredSession,
    ExpiryAction, ExpiryStore, HandoverReason, LeaseStore, OUTBOX_MAX, Outbox, TaskLease,
};
use self::expiring::{NOT_NOW, OUTBOX_FULL};
pub use self::fleet::{FLEET_MAX, FleetRegister, FleetStore, RegisteredProxy};
pub use self::hot_pages::{HOT_LIST_MAX, HotPageStore};
pub use self::layout::Layout;
pub use self::open::OpenStore;
pub use self::open_engine::{OpenEngine, StoreSettings, Url, may_drop_sessions};
pub use self::open_error::OpenError;
pub use self::overload::{KNOWN_SERVERS_MAX, OverloadStore};
pub use self::page::{Lease, PAGE_HEAD, PAGE_MAGIC, PAGE_VERSION, PageStore, RequestFrequency};
pub use self::purge::{
    CUT_OFF_AFTER, Generation, LATER_MARKS, MARKS, MarkKey, PURGE_MARKS_MAX, PurgePosition,
    PurgeStore, PurgesSince, StoreNews,
};
pub use self::redis::shard_of;
pub use self::revoked::{REVOKED_FOR, REVOKED_MAX, RevocationStore};
pub use self::rows::{
    ClaimResult, ROW_JSON_MAX, ROWS_MAX, RowClaim, RowStore, RowTerm, ScheduledRow, StoredRow,
};
pub use self::session::{
    LogInStore, Rotation, RotationResult, TokenStore, UncountedViews, Visit, VisitResult,
    VisitStore,
};
pub use self::succession::{StorePart, SuccessorUse};
pub use self::switch::{
    HoldError, MigrationAnswer, MigrationOrder, MigrationState, NextStore, Switch,
};
pub use self::ticket_keys::TicketKeyStore;
pub use self::view::{POPULARITY_MAX, RescaleResult, Rescaling, TopBound, ViewStore};
pub use self::visitors::{
    MergeResult, TokenCreation, VisitorEviction, VisitorStore, VisitorVisit, VisitorsEvicted,
};

/// All traits of a store, for `use anteroom_store::traits::*`.
pub mod traits {
    pub use super::transfer::TransferStore as _;
    pub use super::{
        AnswerStore as _, BypassStore as _, CartStore as _, CertificateStore as _, EventStore as _,
        ExpiryStore as _, FleetStore as _, HotPageStore as _, LeaseStore as _, LogInStore as _,
        OverloadStore as _, PageStore as _, PurgeStore as _, RevocationStore as _, RowStore as _,
        SessionListing as _, TicketKeyStore as _, TokenStore as _, ViewStore as _, VisitStore as _,
        VisitorStore as _,
    };
}

/// The limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// The budget of one read (`check_token`, `page`).
    pub read_timeout: Duration,
    /// The budget of one write that a request waits for (login, cart).
    pub write_timeout: Duration,
    /// How many items `viewed:<token>` keeps.
    pub viewed_items: u32,
    /// Bytes of pages that the store holds.
    pub pages: u64,
    /// The largest page that goes into the store, in bytes.
    pub max_page: u64,
}

/// Why a store call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no connection, or the breaker is open: known at once.
    #[error("the store is away")]
    Away,
    /// The budget was used up. A write may or may not have been done.
    #[error("the store did not answer in time")]
    TimedOut,
    /// The connection broke before the answer to a write. It may or may not have been done.
    #[error("the connection to the store broke before its answer")]
    Unanswered(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No room for this page; it may stay in memory.
    #[error("the store has no room for the page")]
    Full,
    /// Little room is left, and this page was requested only once.
    #[error("the store is nearly full, and the page was requested only once")]
    NearlyFull,
    /// The page is over [`StoreLimits::max_page`].
    #[error("the page is too large for the store")]
    TooLarge,
    /// The schedule is full, see [`ROWS_MAX`].
    #[error("{ROWS_MAX} rows are scheduled already, which is the limit")]
    RowsFull,
    /// Too many bypass switches are on, see [`BYPASSES_MAX`].
    #[error("{BYPASSES_MAX} routes are switched already, which is the limit: switch all routes")]
    BypassesFull,
    /// The store answered with an error, or with a value that Anteroom did not write.
    #[error("the store failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// Whether the store itself refused: it is reachable, and has changed nothing.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Failed(_)
            | Self::Full
            | Self::NearlyFull
            | Self::TooLarge
            | Self::RowsFull
            | Self::BypassesFull => true,
            Self::Away | Self::TimedOut | Self::Unanswered(_) => false,
        }
    }

    /// Whether the result of a write is unknown.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Unanswered(_))
    }
}
