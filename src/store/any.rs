//! The one type that stands for either store: it only chooses.

use std::time::Duration;

use bytes::Bytes;

use super::embedded::EmbeddedStore;
use super::redis::RedisStore;
use super::{
    AnswerStore, BarStore, Begins, Bookmark, Cart, CartAnswer, CartChange, CartOwner, CartStore,
    Claim, Claimed, Counted, Cursor, Demand, EventStore, Evicted, Eviction, ExpiryStore, Farewell,
    Generation, Idle, IdleTold, Lease, LeaseStore, LogIn, LogInStore, Merged, Moment, News, Noted,
    Outbox, PageStore, Parted, PurgeStore, Rescaled, Rescaling, Rotated, Rotation, RowStore,
    ScheduledRow, Session, SessionListing, StoreError, StoreState, StoredRow, TaskLease, Terms,
    TokenStore, ViewStore, Visit, VisitStore, VisitorEviction, VisitorStore, VisitorVisit,
    VisitorsEvicted, WaitingEvent, Walked,
};
use crate::ident::{CookieHash, Item, PageKey, Row, StoredToken, User, VisitorToken};

/// Either store, as one thread uses it. Cheap to clone.
#[derive(Clone, Debug)]
pub enum AnyStore {
    /// In a folder of our own.
    Embedded(EmbeddedStore),
    /// In Redis.
    Redis(RedisStore),
}

impl AnyStore {
    /// The same store for tasks and administration. In Redis their calls go over a pool of connections of
    /// their own, so that no request waits behind them, and each has the budget of a write.
    #[must_use]
    pub fn background(&self) -> Self {
        match self {
            Self::Embedded(_) => self.clone(),
            Self::Redis(store) => Self::Redis(store.background()),
        }
    }

    /// Whether the store answers: for `/readyz` and metrics.
    #[must_use]
    pub fn state(&self) -> StoreState {
        match self {
            Self::Embedded(store) => store.state(),
            Self::Redis(store) => store.state(),
        }
    }

    /// What went wrong so far, over all lanes.
    #[must_use]
    pub fn counted(&self) -> Counted {
        match self {
            Self::Embedded(store) => store.counted(),
            Self::Redis(store) => store.counted(),
        }
    }

    /// Returns when another process may have purged something. It may also come unasked, or never: ask
    /// the store now and then.
    pub async fn purge_told(&self) {
        match self {
            Self::Embedded(_) => std::future::pending().await,
            Self::Redis(store) => store.purge_told().await,
        }
    }

    /// Tokens that another process has made nobody's, as they are told. Some may be missed, and it may
    /// never return.
    pub async fn gone_told(&self) -> Vec<StoredToken> {
        match self {
            Self::Embedded(_) => std::future::pending().await,
            Self::Redis(store) => store.gone_told().await,
        }
    }

    /// Returns once the store answers. It may never: put a deadline round it.
    pub async fn connected(&self) {
        if let Self::Redis(store) = self {
            store.connected().await;
        }
    }
}

/// Gives each call to the store that is there. What a call is for stands at its trait.
macro_rules! delegate {
    ($($store:ident { $($call:ident($($name:ident: $kind:ty),*) -> $answer:ty;)* })*) => {
        $(impl $store for AnyStore {
            $(async fn $call(&self, $($name: $kind),*) -> Result<$answer, StoreError> {
                match self {
                    Self::Embedded(store) => store.$call($($name),*).await,
                    Self::Redis(store) => store.$call($($name),*).await,
                }
            })*
        })*
    };
}

delegate! {
    TokenStore {
        check_token(token: &StoredToken) -> Option<User>;
        live_token(token: &StoredToken, terms: &Terms) -> Option<LogIn>;
    }

    LogInStore {
        update_token(token: &StoredToken, user: &User, item: Option<&Item>, now: f64) -> ();
        rotate_token(rotation: &Rotation) -> Rotated;
        revoke_token(token: &StoredToken) -> ();
        dismiss_token(token: &StoredToken, farewell: &Farewell) -> Parted;
    }

    VisitStore {
        touch_tokens(visits: &[Visit]) -> Vec<bool>;
        count_views(views: &[(Item, u64)]) -> ();
    }

    CartStore {
        add_to_cart(token: &StoredToken, item: &Item, count: i64) -> ();
        change_cart(whose: &CartOwner, change: &CartChange) -> CartAnswer;
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
        evict_expiring(how: Eviction, from: &Cursor, farewell: &Farewell) -> Evicted;
        outbox() -> Outbox;
        clear_outbox(outbox: &Outbox) -> bool;
    }

    LeaseStore {
        take_lease(task: TaskLease, who: u64, time: Duration) -> bool;
    }

    EventStore {
        tell_idle(idle: Idle, farewell: &Farewell) -> IdleTold;
        events_waiting() -> u64;
        first_event() -> Option<WaitingEvent>;
        remove_event(event: &WaitingEvent) -> ();
        put_back_event(event: &WaitingEvent, noted: Option<Noted>) -> ();
    }

    SessionListing {
        session(token: &StoredToken) -> Option<Session>;
        sessions_of(user: &User) -> Vec<Session>;
        newest(from: Option<Bookmark>, most: usize) -> Walked<Session>;
        walk(from: Option<Bookmark>, prefix: &str) -> Walked<(StoredToken, User)>;
        forget_user(user: &User) -> usize;
    }

    VisitorStore {
        begin_visitor(token: &VisitorToken, item: &Item, now: f64) -> ();
        touch_visitors(visits: &[VisitorVisit]) -> Vec<bool>;
        change_visitor_cart(token: &VisitorToken, begins: Begins, change: &CartChange, now: f64) -> CartAnswer;
        visitor_cart(token: &VisitorToken) -> Cart;
        visitor_viewed(token: &VisitorToken) -> Vec<(Item, f64)>;
        merge_visitor(token: &VisitorToken, session: &StoredToken, user: &User) -> Merged;
        forget_visitor(token: &VisitorToken) -> ();
        evict_visitors(how: VisitorEviction) -> VisitorsEvicted;
    }

    BarStore {
        bar(token: &StoredToken, now: f64) -> ();
        is_barred(token: &StoredToken, now: f64) -> bool;
    }

    AnswerStore {
        recall(cookies: &CookieHash) -> Option<Bytes>;
        remember(cookies: &CookieHash, before: Option<&Bytes>, answer: Bytes, ttl: Duration) -> bool;
        void(cookies: &[CookieHash], mark: Bytes, ttl: Duration) -> ();
    }

    PageStore {
        page(key: &PageKey) -> Option<Bytes>;
        put_page(key: &PageKey, page: Bytes, ttl: Duration, demand: Demand) -> ();
        delete_pages(keys: &[PageKey]) -> ();
        lease(key: &PageKey, who: u64, time: Duration) -> Lease;
        end_lease(key: &PageKey, who: u64, is_shareable: bool) -> ();
    }

    PurgeStore {
        purge(known: Moment, marks: &[u32]) -> Option<Moment>;
        purged_since(who: u64, known: Moment) -> News;
        is_seen(purge: Generation) -> bool;
        ask_no_more(who: u64) -> ();
    }

    RowStore {
        schedule_row(row: &Row, delay: f64, now: f64) -> ();
        claim_rows(now: f64, most: usize, lease: f64) -> Claimed;
        put_row(claim: &Claim, json: Bytes, due_next: f64, now: f64) -> bool;
        postpone_row(claim: &Claim, due_next: f64) -> bool;
        outdate_row(row: &Row, now: f64) -> ();
        row(row: &Row) -> Option<StoredRow>;
        rows(most: usize) -> Vec<ScheduledRow>;
    }
}
