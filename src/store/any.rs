//! One type for all stores: it only dispatches.

use std::time::Duration;

use bytes::Bytes;

use super::embedded::EmbeddedStore;
use super::redis::RedisStore;
use super::sharded::ShardedStore;
use super::transfer::{
    SharedKind, SharedRecord, StoreCounts, TransferCursor, TransferPage, TransferRecord,
    TransferStore,
};
use super::{
    AnswerStore, Bookmark, Cart, CartAnswer, CartChange, CartOwner, CartStore, ClaimResult,
    Counted, Cursor, EndedCarts, EventStore, Evicted, Eviction, ExpiryAction, ExpiryStore,
    FleetRegister, FleetStore, Generation, Idle, IdleStep, Lease, LeaseStore, LogIn, LogInStore,
    MergeResult, Noted, Outbox, PageStore, PurgePosition, PurgeStore, PurgesSince,
    RequestFrequency, Rescaled, Rescaling, RevocationStore, Rotated, Rotation, RowClaim, RowStore,
    ScheduledRow, Session, SessionLifetimes, SessionListing, StoreError, StoreState, StoredRow,
    TaskLease, TokenCreation, TokenStore, ViewStore, Visit, VisitStore, VisitorEviction,
    VisitorStore, VisitorVisit, VisitorsEvicted, WaitingEvent, WalkStep,
};
use crate::ident::{CookieHash, Item, PageKey, Row, StoredToken, User, VisitorToken};

/// Any store, as one thread uses it. Cheap to clone.
#[derive(Clone, Debug)]
pub enum AnyStore {
    /// In a local folder.
    Embedded(EmbeddedStore),
    /// In Redis, in the chapter's layout.
    Redis(RedisStore),
    /// In Redis, in 64 shards.
    Sharded(ShardedStore),
}

impl AnyStore {
    /// The same store for tasks and administration. In Redis these calls use a connection pool of
    /// their own, so that requests do not wait behind them; each call has the budget of a write.
    #[must_use]
    pub fn background(&self) -> Self {
        match self {
            Self::Embedded(_) => self.clone(),
            Self::Redis(store) => Self::Redis(store.background()),
            Self::Sharded(store) => Self::Sharded(store.background()),
        }
    }

    /// Whether the store answers: for `/readyz` and metrics.
    #[must_use]
    pub fn state(&self) -> StoreState {
        match self {
            Self::Embedded(store) => store.state(),
            Self::Redis(store) => store.state(),
            Self::Sharded(store) => store.state(),
        }
    }

    /// The error counters, over all handles.
    #[must_use]
    pub fn counted(&self) -> Counted {
        match self {
            Self::Embedded(store) => store.counted(),
            Self::Redis(store) => store.counted(),
            Self::Sharded(store) => store.counted(),
        }
    }

    /// Returns when another process may have purged something. It can return without a purge, or
    /// never: poll the store as well.
    pub async fn purge_announced(&self) {
        match self {
            Self::Embedded(_) => std::future::pending().await,
            Self::Redis(store) => store.purge_announced().await,
            Self::Sharded(store) => store.purge_announced().await,
        }
    }

    /// Tokens that another process has revoked, as they are reported. Some may be missed, and it
    /// may never return.
    pub async fn ended_sessions(&self) -> Vec<StoredToken> {
        match self {
            Self::Embedded(_) => std::future::pending().await,
            Self::Redis(store) => store.ended_sessions().await,
            Self::Sharded(store) => store.ended_sessions().await,
        }
    }

    /// Returns once the store answers. It may never return: use a timeout.
    pub async fn connected(&self) {
        match self {
            Self::Embedded(_) => {}
            Self::Redis(store) => store.connected().await,
            Self::Sharded(store) => store.connected().await,
        }
    }
}

/// Forwards each call to the store in use. The traits document the calls.
macro_rules! delegate {
    ($($store:ident { $($call:ident($($name:ident: $kind:ty),*) -> $answer:ty;)* })*) => {
        $(impl $store for AnyStore {
            $(async fn $call(&self, $($name: $kind),*) -> Result<$answer, StoreError> {
                match self {
                    Self::Embedded(store) => store.$call($($name),*).await,
                    Self::Redis(store) => store.$call($($name),*).await,
                    Self::Sharded(store) => store.$call($($name),*).await,
                }
            })*
        })*
    };
}

delegate! {
    TokenStore {
        check_token(token: &StoredToken) -> Option<User>;
        live_token(token: &StoredToken, terms: &SessionLifetimes) -> Option<LogIn>;
    }

    LogInStore {
        update_token(token: &StoredToken, user: &User, item: Option<&Item>, now: f64) -> ();
        rotate_token(rotation: &Rotation) -> Rotated;
        revoke_token(token: &StoredToken) -> ();
        dismiss_token(token: &StoredToken, expiry_action: &ExpiryAction) -> EndedCarts;
        finish_handovers(now: f64) -> usize;
    }

    VisitStore {
        touch_tokens(visits: &[Visit]) -> Vec<bool>;
        count_views(views: &[(Item, u64)]) -> ();
    }

    CartStore {
        add_to_cart(token: &StoredToken, item: &Item, count: i64) -> ();
        change_cart(owner: &CartOwner, change: &CartChange) -> CartAnswer;
        cart(token: &StoredToken) -> Cart;
    }

    ViewStore {
        viewed(token: &StoredToken) -> Vec<(Item, f64)>;
        ranks_under(item: &Item, top: u64) -> bool;
        top(most: u32) -> Vec<(Item, f64)>;
        rescale_views(how: Rescaling) -> Rescaled;
    }

    ExpiryStore {
        evict_oldest(how: Eviction) -> usize;
        evict_expiring(how: Eviction, from: &Cursor, expiry_action: &ExpiryAction) -> Evicted;
        outbox() -> Outbox;
        clear_outbox(outbox: &Outbox) -> bool;
    }

    LeaseStore {
        take_lease(task: TaskLease, who: u64, time: Duration) -> bool;
    }

    EventStore {
        report_idle_carts(idle: Idle, expiry_action: &ExpiryAction) -> IdleStep;
        events_waiting() -> u64;
        first_event() -> Option<WaitingEvent>;
        remove_event(event: &WaitingEvent) -> ();
        put_back_event(event: &WaitingEvent, noted: Option<Noted>) -> ();
    }

    SessionListing {
        session(token: &StoredToken) -> Option<Session>;
        sessions_of(user: &User) -> Vec<Session>;
        newest(from: Option<Bookmark>, most: usize) -> WalkStep<Session>;
        walk(from: Option<Bookmark>, prefix: &str) -> WalkStep<(StoredToken, User)>;
        forget_user(user: &User) -> usize;
    }

    VisitorStore {
        begin_visitor(token: &VisitorToken, item: &Item, now: f64) -> ();
        touch_visitors(visits: &[VisitorVisit]) -> Vec<bool>;
        change_visitor_cart(token: &VisitorToken, begins: TokenCreation, change: &CartChange, now: f64) -> CartAnswer;
        visitor_cart(token: &VisitorToken) -> Cart;
        visitor_viewed(token: &VisitorToken) -> Vec<(Item, f64)>;
        merge_visitor(token: &VisitorToken, session: &StoredToken, user: &User) -> MergeResult;
        forget_visitor(token: &VisitorToken) -> ();
        evict_visitors(how: VisitorEviction) -> VisitorsEvicted;
    }

    RevocationStore {
        mark_revoked(token: &StoredToken, now: f64) -> ();
        is_revoked(token: &StoredToken, now: f64) -> bool;
    }

    AnswerStore {
        recall(cookies: &CookieHash) -> Option<Bytes>;
        remember(cookies: &CookieHash, before: Option<&Bytes>, answer: Bytes, ttl: Duration) -> bool;
        void(cookies: &[CookieHash], mark: Bytes, ttl: Duration) -> ();
    }

    PageStore {
        page(key: &PageKey) -> Option<Bytes>;
        put_page(key: &PageKey, page: Bytes, ttl: Duration, demand: RequestFrequency) -> ();
        delete_pages(keys: &[PageKey]) -> ();
        lease(key: &PageKey, who: u64, time: Duration) -> Lease;
        end_lease(key: &PageKey, who: u64, is_shareable: bool) -> ();
    }

    PurgeStore {
        purge(known: PurgePosition, marks: &[u32]) -> Option<PurgePosition>;
        purged_since(who: u64, known: PurgePosition) -> PurgesSince;
        is_seen(purge: Generation) -> bool;
        leave(who: u64) -> ();
    }

    FleetStore {
        register_proxy(who: u64, entry: &str, lives: Duration) -> FleetRegister;
        unregister_proxy(who: u64) -> ();
        has_other_layout() -> bool;
    }

    RowStore {
        schedule_row(row: &Row, delay: f64, now: f64) -> ();
        claim_rows(now: f64, most: usize, lease: f64) -> ClaimResult;
        put_row(claim: &RowClaim, json: Bytes, due_next: f64, now: f64) -> bool;
        postpone_row(claim: &RowClaim, due_next: f64) -> bool;
        outdate_row(row: &Row, now: f64) -> ();
        row(row: &Row) -> Option<StoredRow>;
        rows(most: usize) -> Vec<ScheduledRow>;
    }

    TransferStore {
        walk_tokens(from: Option<TransferCursor>) -> TransferPage<StoredToken>;
        tokens_seen_since(since: f64, from: Option<TransferCursor>) -> TransferPage<StoredToken>;
        export(tokens: &[StoredToken]) -> Vec<Option<TransferRecord>>;
        import(records: &[TransferRecord]) -> usize;
        holds(tokens: &[StoredToken]) -> Vec<bool>;
        remove(tokens: &[StoredToken], before: f64) -> usize;
        counts() -> StoreCounts;
        export_shared(kind: SharedKind, from: Option<TransferCursor>) -> TransferPage<SharedRecord>;
        clear_shared(kind: SharedKind) -> ();
        import_shared(records: &[SharedRecord]) -> usize;
        make_durable() -> ();
    }
}
