//! Opening a store, and the one type that stands for either of them.
//!
//! How each keeps its data is in `embedded` and `redis`; this file only chooses and delegates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::embedded::EmbeddedStore;
use super::redis::{RedisAddress, RedisStore};
use super::{
    AnswerStore, BarStore, Begins, Bookmark, Cart, CartAnswer, CartChange, CartOwner, ControlStore,
    Cursor, Demand, EventStore, Evicted, Eviction, Farewell, Generation, Idle, IdleTold, Lease,
    Limits, LogIn, Merged, Moment, News, Noted, Outbox, PageStore, Parted, PurgeStore, Rescaled,
    Rescaling, Rotated, Rotation, Session, SessionStore, StoreError, Terms, ViewStore, Visit,
    VisitorEviction, VisitorStore, VisitorVisit, VisitorsEvicted, WaitingEvent, Walked,
};
use crate::ident::{CookieHash, Item, PageKey, StoredToken, User, VisitorToken};

/// What `[store]` says, as far as the store needs it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which store.
    pub url: Url,
    /// Goes before every key in Redis, so that sites can share one. The embedded store belongs
    /// to one proxy and needs none.
    pub prefix: String,
    /// The bounds to keep.
    pub limits: Limits,
}

/// Where the store is.
#[derive(Clone)]
pub enum Url {
    /// A folder of our own.
    Embedded(PathBuf),
    /// `redis://`, `rediss://` or `redis+unix:`; it may hold a password.
    Redis(String),
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded(folder) => f.debug_tuple("Embedded").field(folder).finish(),
            // SECURITY: the address may hold a password.
            Self::Redis(_) => f.write_str("Redis(…)"),
        }
    }
}

/// Why a store cannot be opened: for the operator, with what mends it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address of the Redis server cannot be used.
    #[error(
        "the store's address cannot be used; write redis://host:port, rediss://host:port or redis+unix:/path"
    )]
    BadUrl(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Another process has the folder.
    #[error("the store's folder {} is in use by another process: stop that one, or give this one a folder of its own with [store] url", .0.display())]
    InUse(PathBuf),
    /// The folder cannot be made or written.
    #[error("the store's folder {} cannot be written: create it for this user, or name another with [store] url", .folder.display())]
    NotWritable {
        /// Which folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What is in the folder is not a store of ours, or is damaged.
    #[error("the store in {} cannot be read: move the folder away, or name another with [store] url", .folder.display())]
    Unreadable {
        /// Which folder.
        folder: PathBuf,
        /// What was wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Its data was written by another version of this program.
    #[error("the store in {} has format {found}, this program reads format {known}: use the version that wrote it, or another folder", .folder.display())]
    Format {
        /// Which folder.
        folder: PathBuf,
        /// The format found there.
        found: u64,
        /// The format that we read and write.
        known: u64,
    },
}

impl OpenError {
    pub(super) fn io(folder: &Path, source: std::io::Error) -> Self {
        Self::NotWritable { folder: folder.to_owned(), source }
    }
}

/// Whether the store answers, as far as is known without asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// It answers.
    Connected,
    /// There is no connection, or the breaker is open: calls fail at once.
    Away,
}

/// What went wrong so far, over all lanes: counters for `/metrics`.
#[derive(Debug, Default)]
pub struct Counters {
    timeouts: AtomicU64,
    failures: AtomicU64,
    breaker_openings: AtomicU64,
    page_bytes: AtomicU64,
}

/// One reading of the [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Calls that used up their budget.
    pub timeouts: u64,
    /// Calls that the store answered with an error, or whose connection broke.
    pub failures: u64,
    /// How often the breaker opened.
    pub breaker_openings: u64,
}

impl Counters {
    pub(super) fn opened(&self) {
        self.breaker_openings.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the error that a call is about to return. `Away` and `Full` are answers.
    pub(super) fn count(&self, error: &StoreError) {
        match error {
            StoreError::TimedOut => self.timeouts.fetch_add(1, Ordering::Relaxed),
            StoreError::Failed(_) | StoreError::Unanswered(_) => {
                self.failures.fetch_add(1, Ordering::Relaxed)
            }
            StoreError::Away
            | StoreError::Full
            | StoreError::NearlyFull
            | StoreError::TooLarge
            | StoreError::RowsFull => 0,
        };
    }

    /// Bytes of pages in the store, as it was last told.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn holds(&self, page_bytes: u64) {
        self.page_bytes.store(page_bytes, Ordering::Relaxed);
    }

    /// The counters now.
    #[must_use]
    pub fn read(&self) -> Counted {
        Counted {
            timeouts: self.timeouts.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            breaker_openings: self.breaker_openings.load(Ordering::Relaxed),
        }
    }
}

/// An open store. Clones are the same store.
#[derive(Clone, Debug)]
pub struct OpenStore {
    kind: Kind,
    /// Where pages are, if that is another Redis.
    pages: Option<Arc<RedisAddress>>,
    counters: Arc<Counters>,
}

#[derive(Clone, Debug)]
enum Kind {
    Embedded(EmbeddedStore),
    Redis(Arc<RedisAddress>),
}

impl OpenStore {
    /// Opens the store. Does not wait for Redis, nor fail because it is down: each lane keeps
    /// trying to reach it.
    ///
    /// # Errors
    /// An address that cannot be used; a folder that cannot be written, is in use by another
    /// process, or holds something else.
    pub async fn open(settings: &Settings) -> Result<Self, OpenError> {
        let counters = Arc::new(Counters::default());
        let kind = match &settings.url {
            Url::Embedded(folder) => {
                let store =
                    EmbeddedStore::open(folder, settings.limits, Arc::clone(&counters)).await?;
                Kind::Embedded(store)
            }
            Url::Redis(url) => {
                let Settings { prefix, limits, .. } = settings;
                Kind::Redis(Arc::new(RedisAddress::parse(url, prefix, *limits, &counters)?))
            }
        };
        Ok(Self { kind, pages: None, counters })
    }

    /// Keeps the pages of a store in Redis in another one. In a runtime only.
    ///
    /// # Errors
    /// An address that cannot be used.
    pub fn with_pages_in(self, url: &str, settings: &Settings) -> Result<Self, OpenError> {
        let Settings { prefix, limits, .. } = settings;
        let address = RedisAddress::parse(url, prefix, *limits, &self.counters)?;
        Ok(Self { pages: Some(Arc::new(address)), ..self })
    }

    /// The store for the calling thread: call it once on each runtime thread, in the runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime, for a Redis lane keeps its connection with a task.
    #[must_use]
    pub fn lane(&self) -> AnyStore {
        match &self.kind {
            Kind::Embedded(store) => AnyStore::Embedded(store.clone()),
            Kind::Redis(address) => {
                let store = RedisStore::start(address);
                AnyStore::Redis(match &self.pages {
                    Some(pages) => store.with_pages_in(RedisStore::start(pages)),
                    None => store,
                })
            }
        }
    }

    /// What went wrong so far, over all lanes.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// What the store does with sessions when its memory is full: the name of a policy that drops
    /// any key it likes; `None` where sessions are safe, or where it does not tell.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn drops_sessions(&self) -> Result<Option<String>, StoreError> {
        match &self.kind {
            Kind::Embedded(_) => Ok(None),
            Kind::Redis(address) => {
                let policy = address.eviction_policy().await?;
                Ok(policy.filter(|policy| policy.starts_with("allkeys-")))
            }
        }
    }

    /// Makes everything durable and lets the folder go. Calls that come later find it away.
    pub async fn close(self) {
        if let Kind::Embedded(store) = self.kind {
            store.close().await;
        }
    }
}

/// Either store, as one thread uses it. Cheap to clone.
#[derive(Clone, Debug)]
pub enum AnyStore {
    /// In a folder of our own.
    Embedded(EmbeddedStore),
    /// In Redis.
    Redis(RedisStore),
}

macro_rules! delegate {
    ($self:ident, $call:ident($($argument:expr),*)) => {
        match $self {
            Self::Embedded(store) => store.$call($($argument),*).await,
            Self::Redis(store) => store.$call($($argument),*).await,
        }
    };
}

/// The same for pages, which may be in another Redis.
macro_rules! delegate_page {
    ($self:ident, $call:ident($($argument:expr),*)) => {
        match $self {
            Self::Embedded(store) => store.$call($($argument),*).await,
            Self::Redis(store) => store.of_pages().$call($($argument),*).await,
        }
    };
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

impl SessionStore for AnyStore {
    async fn check_token(&self, token: &StoredToken) -> Result<Option<User>, StoreError> {
        delegate!(self, check_token(token))
    }

    async fn live_token(
        &self,
        token: &StoredToken,
        terms: &Terms,
    ) -> Result<Option<LogIn>, StoreError> {
        delegate!(self, live_token(token, terms))
    }

    async fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> Result<(), StoreError> {
        delegate!(self, update_token(token, user, item, now))
    }

    async fn touch_tokens(&self, visits: &[Visit]) -> Result<Vec<bool>, StoreError> {
        delegate!(self, touch_tokens(visits))
    }

    async fn rotate_token(&self, rotation: &Rotation) -> Result<Rotated, StoreError> {
        delegate!(self, rotate_token(rotation))
    }

    async fn revoke_token(&self, token: &StoredToken) -> Result<(), StoreError> {
        delegate!(self, revoke_token(token))
    }

    async fn dismiss_token(
        &self,
        token: &StoredToken,
        farewell: &Farewell,
    ) -> Result<Parted, StoreError> {
        delegate!(self, dismiss_token(token, farewell))
    }

    async fn evict_oldest(&self, how: Eviction) -> Result<usize, StoreError> {
        delegate!(self, evict_oldest(how))
    }

    async fn add_to_cart(
        &self,
        token: &StoredToken,
        item: &Item,
        count: i64,
    ) -> Result<(), StoreError> {
        delegate!(self, add_to_cart(token, item, count))
    }

    async fn evict_expiring(
        &self,
        how: Eviction,
        from: &Cursor,
        farewell: &Farewell,
    ) -> Result<Evicted, StoreError> {
        delegate!(self, evict_expiring(how, from, farewell))
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        delegate!(self, outbox())
    }

    async fn clear_outbox(&self, outbox: &Outbox) -> Result<bool, StoreError> {
        delegate!(self, clear_outbox(outbox))
    }

    async fn take_turn(&self, who: u64, time: Duration) -> Result<bool, StoreError> {
        delegate!(self, take_turn(who, time))
    }

    async fn change_cart(
        &self,
        whose: &CartOwner,
        change: &CartChange,
    ) -> Result<CartAnswer, StoreError> {
        delegate!(self, change_cart(whose, change))
    }

    async fn cart(&self, token: &StoredToken) -> Result<Cart, StoreError> {
        delegate!(self, cart(token))
    }

    async fn viewed(&self, token: &StoredToken) -> Result<Vec<(Item, f64)>, StoreError> {
        delegate!(self, viewed(token))
    }
}

impl ControlStore for AnyStore {
    async fn session(&self, token: &StoredToken) -> Result<Option<Session>, StoreError> {
        delegate!(self, session(token))
    }

    async fn sessions_of(&self, user: &User) -> Result<Vec<Session>, StoreError> {
        delegate!(self, sessions_of(user))
    }

    async fn newest(
        &self,
        from: Option<Bookmark>,
        most: usize,
    ) -> Result<Walked<Session>, StoreError> {
        delegate!(self, newest(from, most))
    }

    async fn walk(
        &self,
        from: Option<Bookmark>,
        prefix: &str,
    ) -> Result<Walked<(StoredToken, User)>, StoreError> {
        delegate!(self, walk(from, prefix))
    }

    async fn forget_user(&self, user: &User) -> Result<usize, StoreError> {
        delegate!(self, forget_user(user))
    }
}

impl EventStore for AnyStore {
    async fn tell_idle(&self, idle: Idle, farewell: &Farewell) -> Result<IdleTold, StoreError> {
        delegate!(self, tell_idle(idle, farewell))
    }

    async fn events_waiting(&self) -> Result<u64, StoreError> {
        delegate!(self, events_waiting())
    }

    async fn first_event(&self) -> Result<Option<WaitingEvent>, StoreError> {
        delegate!(self, first_event())
    }

    async fn remove_event(&self, event: &WaitingEvent) -> Result<(), StoreError> {
        delegate!(self, remove_event(event))
    }

    async fn put_back_event(
        &self,
        event: &WaitingEvent,
        noted: Option<Noted>,
    ) -> Result<(), StoreError> {
        delegate!(self, put_back_event(event, noted))
    }

    async fn take_delivery(&self, who: u64, time: Duration) -> Result<bool, StoreError> {
        delegate!(self, take_delivery(who, time))
    }
}

impl VisitorStore for AnyStore {
    async fn begin_visitor(
        &self,
        token: &VisitorToken,
        item: &Item,
        now: f64,
    ) -> Result<(), StoreError> {
        delegate!(self, begin_visitor(token, item, now))
    }

    async fn touch_visitors(&self, visits: &[VisitorVisit]) -> Result<Vec<bool>, StoreError> {
        delegate!(self, touch_visitors(visits))
    }

    async fn change_visitor_cart(
        &self,
        token: &VisitorToken,
        begins: Begins,
        change: &CartChange,
        now: f64,
    ) -> Result<CartAnswer, StoreError> {
        delegate!(self, change_visitor_cart(token, begins, change, now))
    }

    async fn visitor_cart(&self, token: &VisitorToken) -> Result<Cart, StoreError> {
        delegate!(self, visitor_cart(token))
    }

    async fn visitor_viewed(&self, token: &VisitorToken) -> Result<Vec<(Item, f64)>, StoreError> {
        delegate!(self, visitor_viewed(token))
    }

    async fn merge_visitor(
        &self,
        token: &VisitorToken,
        session: &StoredToken,
        user: &User,
    ) -> Result<Merged, StoreError> {
        delegate!(self, merge_visitor(token, session, user))
    }

    async fn forget_visitor(&self, token: &VisitorToken) -> Result<(), StoreError> {
        delegate!(self, forget_visitor(token))
    }

    async fn evict_visitors(&self, how: VisitorEviction) -> Result<VisitorsEvicted, StoreError> {
        delegate!(self, evict_visitors(how))
    }
}

impl ViewStore for AnyStore {
    async fn count_views(&self, views: &[(Item, u64)]) -> Result<(), StoreError> {
        delegate!(self, count_views(views))
    }

    async fn ranks_under(&self, item: &Item, top: u64) -> Result<bool, StoreError> {
        delegate!(self, ranks_under(item, top))
    }

    async fn top(&self, most: u32) -> Result<Vec<(Item, f64)>, StoreError> {
        delegate!(self, top(most))
    }

    async fn rescale_views(&self, how: Rescaling) -> Result<Rescaled, StoreError> {
        delegate!(self, rescale_views(how))
    }
}

impl PurgeStore for AnyStore {
    async fn purge(&self, known: Moment, marks: &[u32]) -> Result<Option<Moment>, StoreError> {
        delegate!(self, purge(known, marks))
    }

    async fn purged_since(&self, who: u64, known: Moment) -> Result<News, StoreError> {
        delegate!(self, purged_since(who, known))
    }

    async fn is_seen(&self, purge: Generation) -> Result<bool, StoreError> {
        delegate!(self, is_seen(purge))
    }

    async fn ask_no_more(&self, who: u64) -> Result<(), StoreError> {
        delegate!(self, ask_no_more(who))
    }
}

impl BarStore for AnyStore {
    async fn bar(&self, token: &StoredToken, now: f64) -> Result<(), StoreError> {
        delegate!(self, bar(token, now))
    }

    async fn is_barred(&self, token: &StoredToken, now: f64) -> Result<bool, StoreError> {
        delegate!(self, is_barred(token, now))
    }
}

impl AnswerStore for AnyStore {
    async fn recall(&self, cookies: &CookieHash) -> Result<Option<Bytes>, StoreError> {
        delegate!(self, recall(cookies))
    }

    async fn remember(
        &self,
        cookies: &CookieHash,
        before: Option<&Bytes>,
        answer: Bytes,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        delegate!(self, remember(cookies, before, answer, ttl))
    }

    async fn void(
        &self,
        cookies: &[CookieHash],
        mark: Bytes,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        delegate!(self, void(cookies, mark, ttl))
    }
}

impl PageStore for AnyStore {
    async fn page(&self, key: &PageKey) -> Result<Option<Bytes>, StoreError> {
        delegate_page!(self, page(key))
    }

    async fn put_page(
        &self,
        key: &PageKey,
        page: Bytes,
        ttl: Duration,
        demand: Demand,
    ) -> Result<(), StoreError> {
        delegate_page!(self, put_page(key, page, ttl, demand))
    }

    async fn delete_pages(&self, keys: &[PageKey]) -> Result<(), StoreError> {
        delegate_page!(self, delete_pages(keys))
    }

    async fn lease(&self, key: &PageKey, who: u64, time: Duration) -> Result<Lease, StoreError> {
        delegate_page!(self, lease(key, who, time))
    }

    async fn end_lease(
        &self,
        key: &PageKey,
        who: u64,
        is_shareable: bool,
    ) -> Result<(), StoreError> {
        delegate_page!(self, end_lease(key, who, is_shareable))
    }
}
