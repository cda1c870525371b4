//! One type for all stores: it sends each call to the engine in use, which a move of the site replaces.

use std::sync::Arc;
use std::time::Duration;

use anteroom_http::ident::{CookieHash, Item, PageKey, Row, StoredToken, User, VisitorToken};
use anteroom_tls::{TicketKey, TicketKeyOffer};
use bytes::Bytes;

use super::bypass::BypassChange;
use super::engine::Engine;
use super::switch::{StoreHandles, Switch};
use super::transfer::{
    SharedKind, SharedRecord, StoreCounts, TransferCursor, TransferPage, TransferRecord,
    TransferStore,
};
use super::{
    AnswerStore, Bookmark, BypassStore, Cart, CartAnswer, CartChange, CartOwner, CartStore,
    CertificateStore, ClaimResult, CounterReading, Cursor, DeliveryFailure, EndedCarts, EventStore,
    Eviction, EvictionResult, ExpiryAction, ExpiryStore, FleetRegister, FleetStore, Generation,
    HotPageStore, IdleRange, IdleStep, Lease, LeaseStore, LogIn, LogInStore, MergeResult, Outbox,
    OverloadStore, PageStore, PurgePosition, PurgeStore, RequestFrequency, RescaleResult,
    Rescaling, RevocationStore, Rotation, RotationResult, RowClaim, RowStore, RowTerm,
    ScheduledRow, Session, SessionLifetimes, SessionListing, StoreError, StoreNews, StoreState,
    StoredBypasses, StoredRow, TaskLease, TicketKeyStore, TokenCreation, TokenStore, TopBound,
    UncountedViews, ViewStore, Visit, VisitStore, VisitorEviction, VisitorStore, VisitorVisit,
    VisitorsEvicted, WaitingEvent, WalkStep,
};

/// Any store, as one thread uses it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AnyStore(StoreHandles);

impl AnyStore {
    pub(super) fn new(engine: Engine, switch: Arc<Switch>) -> Self {
        Self(StoreHandles::new(engine, switch))
    }

    /// The store that a move goes to, by a handle that no move turns to another.
    ///
    /// # Errors
    /// In words, if it cannot be opened.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn of_next(switch: &Switch) -> Result<Self, String> {
        Ok(Self::new(switch.open_next().await?.engine(), Arc::default()))
    }

    /// The same store by a handle of its own, which no move turns to another.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn fixed(&self) -> Self {
        Self(StoreHandles::new(self.engine().separate(), Arc::default()))
    }

    /// The store of the engine in use: that of this process, also while its successor has it.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.0.engine()
    }

    /// The same store for tasks and administration. In Redis these calls use a connection pool of
    /// their own, so that requests do not wait behind them; each call has the budget of a write.
    #[must_use]
    pub fn background(&self) -> Self {
        Self(self.0.background())
    }

    /// Notes what another process has seen of purges, which had the store before.
    pub(super) fn note_follower(&self, process_id: u64, seen: Generation) {
        match self.engine() {
            Engine::Embedded(store) => store.note_follower(process_id, seen),
            // The store notes it itself.
            Engine::Redis(_) | Engine::Sharded(_) | Engine::Remote(_) => {}
        }
    }

    /// Whether the store answers: for `/readyz` and metrics.
    #[must_use]
    pub fn state(&self) -> StoreState {
        self.0.state()
    }

    /// The error counters, over all handles.
    #[must_use]
    pub fn counted(&self) -> CounterReading {
        self.engine().counted()
    }

    /// Returns when another process may have purged something. It can return without a purge, or
    /// never: poll the store as well.
    pub async fn purge_announced(&self) {
        tokio::select! {
            () = self.engine().purge_announced() => {}
            () = self.0.moved() => {}
        }
    }

    /// Tokens that another process has revoked, as they are reported. Some may be missed, and it
    /// may never return.
    pub async fn ended_sessions(&self) -> Vec<StoredToken> {
        tokio::select! {
            ended = self.engine().ended_sessions() => ended,
            () = self.0.moved() => Vec::new(),
        }
    }

    /// Returns once the store answers. It may never return: use a timeout.
    pub async fn connected(&self) {
        self.engine().connected().await;
    }
}

/// Sends each call to the engine in use: `look` goes on while a move is held, `change` and `purge` wait, and
/// `register_store` is what tells of the move. All wait while the store changes hands. The traits document the calls.
macro_rules! delegate {
    ($($store:ident { $($access:ident $call:ident($($name:ident: $kind:ty),*) -> $answer:ty;)* })*) => {
        $(impl $store for AnyStore {
            $(async fn $call(&self, $($name: $kind),*) -> Result<$answer, StoreError> {
                delegate!(@ $access self, store => store.$call($($name),*).await)
            })*
        })*
    };
    (@ change $any:ident, $store:ident => $call:expr) => {{
        let admitted = $any.0.change().await?;
        delegate!(@ &*admitted.engine, $store => $call)
    }};
    (@ purge $any:ident, $store:ident => $call:expr) => {{
        let admitted = $any.0.purge().await?;
        delegate!(@ &*admitted.engine, $store => $call)
    }};
    (@ $access:ident $any:ident, $store:ident => $call:expr) => {{
        let engine = $any.0.$access().await?;
        delegate!(@ &*engine, $store => $call)
    }};
    (@ $engine:expr, $store:ident => $call:expr) => {
        match $engine {
            Engine::Embedded($store) => $call,
            Engine::Redis($store) => $call,
            Engine::Sharded($store) => $call,
            Engine::Remote($store) => $call,
        }
    };
}

/// Sessions that end are noted for a move that copies.
impl LogInStore for AnyStore {
    async fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> Result<(), StoreError> {
        delegate!(@ change self, store => store.update_token(token, user, item, now).await)
    }

    async fn rotate_token(&self, rotation: &Rotation) -> Result<RotationResult, StoreError> {
        let admitted = self.0.change().await?;
        let rotated = delegate!(@ &*admitted.engine, store => store.rotate_token(rotation).await);
        let gone = rotated.as_ref().map(|rotated| rotated.gone.iter()).into_iter().flatten();
        admitted.note_ended(rotation.old.iter().chain(gone));
        rotated
    }

    async fn revoke_token(&self, token: &StoredToken) -> Result<(), StoreError> {
        let admitted = self.0.change().await?;
        let revoked = delegate!(@ &*admitted.engine, store => store.revoke_token(token).await);
        admitted.note_ended([token]);
        revoked
    }

    async fn dismiss_token(
        &self,
        token: &StoredToken,
        expiry_action: &ExpiryAction,
    ) -> Result<EndedCarts, StoreError> {
        let admitted = self.0.change().await?;
        let ended = delegate!(@ &*admitted.engine, store => store.dismiss_token(token, expiry_action).await);
        admitted.note_ended([token]);
        ended
    }

    async fn finish_handovers(&self, now: f64) -> Result<usize, StoreError> {
        delegate!(@ change self, store => store.finish_handovers(now).await)
    }
}

impl AnswerStore for AnyStore {
    async fn recall(&self, cookies: &CookieHash) -> Result<Option<Bytes>, StoreError> {
        delegate!(@ look self, store => store.recall(cookies).await)
    }

    async fn remember(
        &self,
        cookies: &CookieHash,
        before: Option<&Bytes>,
        answer: Bytes,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        // Answers are not moved. One that was voided in the store that has been left, while the app was asked, must not
        // get into the next.
        if let Some(left) = self.0.old_store_in_grace() {
            let now = delegate!(@ left, store => store.recall(cookies).await);
            if !now.is_ok_and(|now| now.as_ref() == before) {
                return Ok(false);
            }
        }
        delegate!(@ look self, store => store.remember(cookies, before, answer, ttl).await)
    }

    async fn void(
        &self,
        cookies: &[CookieHash],
        mark: Bytes,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        let admitted = self.0.change().await?;
        if let Some(Engine::Embedded(first)) = self.0.given_away() {
            // The app's answers are in memory only: those of this process count again if it takes the store back.
            first.void(cookies, mark.clone(), ttl).await?;
        }
        delegate!(@ &*admitted.engine, store => store.void(cookies, mark, ttl).await)
    }
}

delegate! {
    TokenStore {
        look check_token(token: &StoredToken) -> Option<User>;
        look live_token(token: &StoredToken, terms: &SessionLifetimes) -> Option<LogIn>;
    }

    VisitStore {
        change touch_tokens(visits: &[Visit]) -> Vec<bool>;
        change count_views(views: &[(Item, u64)]) -> ();
        change touch_within_reach(visits: &[Visit]) -> Vec<Option<bool>>;
        change count_within_reach(views: &[(Item, u64)]) -> UncountedViews;
    }

    CartStore {
        change add_to_cart(token: &StoredToken, item: &Item, count: i64) -> ();
        change change_cart(owner: &CartOwner, change: &CartChange) -> CartAnswer;
        look cart(token: &StoredToken) -> Cart;
    }

    ViewStore {
        look viewed(token: &StoredToken) -> Vec<(Item, f64)>;
        look ranks_under(item: &Item, top: u64) -> bool;
        look bound_of_top(top: u64) -> Option<TopBound>;
        look ranks_within(item: &Item, top: u64, bound: TopBound) -> bool;
        look top(most: u32) -> Vec<(Item, f64)>;
        change rescale_views(how: Rescaling) -> RescaleResult;
    }

    ExpiryStore {
        change evict_oldest(how: Eviction) -> usize;
        change evict_expiring(how: Eviction, from: &Cursor, expiry_action: &ExpiryAction) -> EvictionResult;
        change correct_times(now: f64, batch: u32) -> usize;
        look outbox() -> Outbox;
        change clear_outbox(outbox: &Outbox) -> bool;
    }

    LeaseStore {
        change take_lease(task: TaskLease, process_id: u64, time: Duration) -> bool;
    }

    EventStore {
        change report_idle_carts(idle: IdleRange, expiry_action: &ExpiryAction) -> IdleStep;
        look events_waiting() -> u64;
        look first_event() -> Option<WaitingEvent>;
        change remove_event(event: &WaitingEvent) -> ();
        change put_back_event(event: &WaitingEvent, noted: Option<DeliveryFailure>) -> ();
    }

    SessionListing {
        look session(token: &StoredToken) -> Option<Session>;
        look sessions_of(user: &User) -> Vec<Session>;
        look newest(from: Option<Bookmark>, most: usize) -> WalkStep<Session>;
        look walk(from: Option<Bookmark>, prefix: &str) -> WalkStep<(StoredToken, User)>;
        change forget_user(user: &User) -> usize;
    }

    VisitorStore {
        change begin_visitor(token: &VisitorToken, item: &Item, now: f64) -> ();
        change touch_visitors(visits: &[VisitorVisit]) -> Vec<bool>;
        change touch_visitors_within_reach(visits: &[VisitorVisit]) -> Vec<Option<bool>>;
        change change_visitor_cart(token: &VisitorToken, begins: TokenCreation, change: &CartChange, now: f64) -> CartAnswer;
        look visitor_cart(token: &VisitorToken) -> Cart;
        look visitor_viewed(token: &VisitorToken) -> Vec<(Item, f64)>;
        change merge_visitor(token: &VisitorToken, session: &StoredToken, user: &User) -> MergeResult;
        change forget_visitor(token: &VisitorToken) -> ();
        change evict_visitors(how: VisitorEviction) -> VisitorsEvicted;
    }

    RevocationStore {
        change mark_revoked(token: &StoredToken, now: f64) -> ();
        look is_revoked(token: &StoredToken, now: f64) -> bool;
    }

    PageStore {
        look page(key: &PageKey) -> Option<Bytes>;
        look put_page(key: &PageKey, page: Bytes, ttl: Duration, demand: RequestFrequency) -> ();
        look delete_pages(keys: &[PageKey]) -> ();
        look lease(key: &PageKey, holder: u64, time: Duration) -> Lease;
        look end_lease(key: &PageKey, holder: u64, is_shareable: bool) -> ();
    }

    HotPageStore {
        look put_hot_pages(list: Bytes, ttl: Duration) -> ();
        look hot_pages() -> Option<Bytes>;
        look pages(keys: &[PageKey]) -> Vec<Option<Bytes>>;
    }

    CertificateStore {
        look put_sealed(name: &str, sealed: Bytes, ttl: Duration) -> ();
        look sealed(name: &str) -> Option<Bytes>;
    }

    OverloadStore {
        look put_known_servers(version: u32, origin: &str, known: Bytes, ttl: Duration) -> ();
        look known_servers(version: u32, origin: &str) -> Option<Bytes>;
    }

    TicketKeyStore {
        look exchange_ticket_keys(offers: &[TicketKeyOffer]) -> Vec<TicketKey>;
    }

    PurgeStore {
        purge purge(known: PurgePosition, marks: &[u32]) -> Option<PurgePosition>;
        look news_since(process_id: u64, known: PurgePosition) -> StoreNews;
        look is_seen(purge: Generation) -> bool;
        register_store leave(process_id: u64) -> ();
    }

    BypassStore {
        look change_bypass(change: &BypassChange) -> StoredBypasses;
        look bypasses() -> StoredBypasses;
    }

    FleetStore {
        register_store register_proxy(process_id: u64, entry: &str, lives: Duration) -> FleetRegister;
        register_store unregister_proxy(process_id: u64) -> ();
        register_store change_move(before: Option<&str>, after: Option<&str>, lives: Option<Duration>) -> bool;
        register_store move_state() -> Option<String>;
        register_store has_other_layout() -> bool;
        register_store other_prefixes() -> Vec<String>;
    }

    RowStore {
        change schedule_row(row: &Row, delay: f64, now: f64) -> ();
        change schedule_until(rows: &[Row], term: RowTerm) -> usize;
        change drop_rows(now: f64, most: usize) -> usize;
        change make_due(rows: &[Row], now: f64) -> usize;
        change claim_rows(now: f64, most: usize, lease: f64) -> ClaimResult;
        change put_row(claim: &RowClaim, json: Bytes, due_next: f64, now: f64) -> bool;
        change postpone_row(claim: &RowClaim, due_next: f64) -> bool;
        change outdate_row(row: &Row, now: f64) -> ();
        look row(row: &Row) -> Option<StoredRow>;
        look rows(most: usize) -> Vec<ScheduledRow>;
    }

    TransferStore {
        look walk_tokens(from: Option<TransferCursor>) -> TransferPage<StoredToken>;
        look tokens_seen_since(since: f64, from: Option<TransferCursor>) -> TransferPage<StoredToken>;
        look export(tokens: &[StoredToken]) -> Vec<Option<TransferRecord>>;
        change import(records: &[TransferRecord]) -> usize;
        look holds(tokens: &[StoredToken]) -> Vec<bool>;
        change remove(tokens: &[StoredToken], before: f64) -> usize;
        look counts() -> StoreCounts;
        look export_shared(kind: SharedKind, from: Option<TransferCursor>) -> TransferPage<SharedRecord>;
        change clear_shared(kind: SharedKind) -> ();
        change import_shared(records: &[SharedRecord]) -> usize;
        change forget_purges() -> ();
        look make_durable() -> ();
    }
}
