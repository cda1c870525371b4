//! The embedded store: two redb databases in a local folder, one for sessions, one for pages.
//!
//! Reads happen on the calling thread, where a read transaction takes about a microsecond. Each
//! database has one writer thread (`writer`), for redb has one write transaction at a time. The
//! steps are in `sessions` and `pages`; the failure and reopening of a file is in `disk`.

mod answers;
mod bypass;
mod carts;
mod certificates;
mod control;
mod disk;
mod events;
mod expiring;
mod fleet;
mod keys;
mod memory;
mod moving;
mod overload;
mod pages;
mod popularity;
#[cfg(test)]
mod power_cut;
mod purges;
mod record;
mod resynced_storage;
mod revoked;
mod rows;
mod sessions;
mod sessions_file;
mod small_file;
mod tables;
mod ticket_keys;
mod transfer;
mod unsynced_file;
mod visitor_tables;
mod visitors;
mod writer;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Item, PageKey, StoredToken, User};
use bytes::Bytes;
use redb::{DatabaseError, Durability, StorageError};

use self::answers::Answers;
use self::disk::{Disk, Permanence};
use self::keys::bytes_of;
pub use self::memory::StoreMemory;
use self::memory::{HotList, StartingMemory};
use self::pages::{PageLedger, PageTables, QueueRoom};
use self::popularity::NewestRanking;
use self::purges::PurgeLog;
use self::sessions_file::SessionLedger;
use self::tables::Tables;
use self::writer::{FileAccess, Writer};
use super::{
    CounterReading, Cursor, EndedCarts, Eviction, EvictionResult, ExpiryAction, ExpiryStore,
    Generation, HotPageStore, Lease, LeaseStore, LogIn, LogInStore, OpenError, Outbox, PageStore,
    PurgePosition, PurgeStore, RequestFrequency, RescaleResult, Rescaling, Rotation,
    RotationResult, SessionLifetimes, StoreCounters, StoreError, StoreLimits, StoreNews, StorePart,
    StoreState, SuccessorUse, TaskLease, TokenStore, ViewStore, Visit, VisitStore,
};

/// The format of the file of sessions that this version writes. It takes over no other.
pub const STORE_FORMAT: u64 = sessions_file::FORMAT;
/// The file of sessions, carts and views: it persists.
pub const SESSIONS_FILE: &str = "sessions.redb";
/// The file of pages: deleted at each start, unless the store is taken over from a process that goes on.
const PAGES_FILE: &str = "pages.redb";
/// Memory for blocks of the session file, in bytes. Blocks in the system's own cache are read about
/// as fast.
const SESSION_CACHE: usize = 48 << 20;
/// Memory for blocks of the page file, in bytes: pages have a memory tier of their own.
const PAGE_CACHE: usize = 16 << 20;
/// Steps that may wait for the session writer; further steps wait for a slot, within their budget.
const SESSION_QUEUE: usize = 1024;
/// Steps that may wait for the page writer; beyond it pages are refused.
const PAGE_QUEUE: usize = 64;

/// The embedded store. Clones are the same store, on any thread.
#[derive(Clone, Debug)]
pub struct EmbeddedStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: StoreLimits,
    counters: Arc<StoreCounters>,
    sessions: Arc<Disk>,
    session_writer: Writer<SessionLedger>,
    pages: Arc<Disk>,
    page_writer: Writer<PageLedger>,
    page_room: QueueRoom,
    ranks: Arc<NewestRanking>,
    walks: control::WalkPositions,
    purges: Mutex<PurgeLog>,
    answers: Answers,
    hot_pages: HotList,
    proxies: fleet::Proxies,
    moving: moving::MoveFile,
    bypass: bypass::BypassFile,
    known_servers: overload::KnownServerFiles,
    ticket_keys: ticket_keys::TicketKeyFile,
}

impl EmbeddedStore {
    /// Opens or creates the store in `folder`.
    ///
    /// # Errors
    /// As [`super::OpenStore::open`].
    pub(super) async fn open(
        folder: &Path,
        limits: StoreLimits,
        counters: Arc<StoreCounters>,
    ) -> Result<Self, OpenError> {
        let owned = folder.to_owned();
        // After a crash redb checks the whole file, which is slow: not on a runtime thread.
        tokio::task::spawn_blocking(move || Self::open_blocking(&owned, limits, counters))
            .await
            .unwrap_or_else(|panicked| {
                Err(OpenError::Unreadable { folder: folder.to_owned(), source: panicked.into() })
            })
    }

    fn open_blocking(
        folder: &Path,
        limits: StoreLimits,
        counters: Arc<StoreCounters>,
    ) -> Result<Self, OpenError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| OpenError::io(folder, error))?;
        // Until the file of sessions is locked: two first starts at once would create it twice.
        let _starting = small_file::lock(folder);
        sessions_file::provide(folder)?;
        // The lock on this file is the lock on the folder: take it before deleting anything.
        let path = folder.join(SESSIONS_FILE);
        let sessions = open_file(folder, &path, SESSION_CACHE, Permanence::Yes)?;
        sessions_file::prepare(&sessions, folder)?;
        sessions_file::note_created(folder)?;
        let writer = session_writer(&sessions, limits, FileAccess::Full);
        let writer = writer.map_err(|error| OpenError::io(folder, error))?;
        Self::with_sessions(folder, sessions, writer, limits, counters)
    }

    /// Takes over the store in `folder` from a process that has closed it and may take it back: nothing is written before
    /// [`Self::resume`].
    ///
    /// # Errors
    /// As [`super::OpenStore::open_handed`].
    pub(super) async fn open_handed(
        folder: &Path,
        limits: StoreLimits,
        counters: Arc<StoreCounters>,
        memory: StoreMemory,
    ) -> Result<Self, OpenError> {
        let owned = folder.to_owned();
        let opened = move || Self::open_handed_blocking(&owned, limits, counters, memory);
        tokio::task::spawn_blocking(opened).await.unwrap_or_else(|panicked| {
            Err(OpenError::Unreadable { folder: folder.to_owned(), source: panicked.into() })
        })
    }

    fn open_handed_blocking(
        folder: &Path,
        limits: StoreLimits,
        counters: Arc<StoreCounters>,
        memory: StoreMemory,
    ) -> Result<Self, OpenError> {
        let memory = memory.begin(folder)?;
        let path = folder.join(SESSIONS_FILE);
        let sessions = open_file(folder, &path, SESSION_CACHE, Permanence::Yes)?;
        sessions_file::check_handed(&sessions, folder)?;
        let session_writer = session_writer(&sessions, limits, FileAccess::ReadOnly)
            .map_err(|error| OpenError::io(folder, error))?;
        let pages = handed_pages(folder, &counters)?;
        let files = OpenFiles { sessions, session_writer, pages, access: FileAccess::ReadOnly };
        Self::with_files(folder, files, limits, counters, memory)
    }

    /// With the open file of sessions and its writer, and with what else is in the folder.
    fn with_sessions(
        folder: &Path,
        sessions: Arc<Disk>,
        session_writer: Writer<SessionLedger>,
        limits: StoreLimits,
        counters: Arc<StoreCounters>,
    ) -> Result<Self, OpenError> {
        let (pages, access) = (new_pages(folder)?, FileAccess::Full);
        let files = OpenFiles { sessions, session_writer, pages, access };
        Self::with_files(folder, files, limits, counters, StartingMemory::new())
    }

    fn with_files(
        folder: &Path,
        files: OpenFiles,
        limits: StoreLimits,
        counters: Arc<StoreCounters>,
        memory: StartingMemory,
    ) -> Result<Self, OpenError> {
        let failed = |error| OpenError::io(folder, error);
        let OpenFiles { sessions, session_writer, pages, access } = files;
        let StartingMemory { purges, answers, hot_pages } = memory;
        let ledger = PageLedger::new(limits.pages, Arc::clone(&counters));
        let page_writer =
            Writer::start("store-pages", Arc::clone(&pages), ledger, PAGE_QUEUE, access)
                .map_err(failed)?;
        Ok(Self(Arc::new(Inner {
            limits,
            counters,
            sessions,
            session_writer,
            pages,
            page_writer,
            page_room: QueueRoom::default(),
            ranks: Arc::default(),
            walks: control::WalkPositions::default(),
            purges: Mutex::new(purges),
            answers,
            hot_pages,
            proxies: fleet::Proxies::default(),
            moving: moving::MoveFile::open(folder).map_err(failed)?,
            bypass: bypass::BypassFile::open(folder).map_err(failed)?,
            known_servers: overload::KnownServerFiles::new(folder),
            ticket_keys: ticket_keys::TicketKeyFile::new(folder),
        })))
    }

    /// Makes everything durable, ends the writers and releases the folder.
    pub(super) async fn close(&self) {
        self.0.session_writer.close().await;
        self.0.page_writer.close().await;
    }

    /// Makes everything durable and closes both files. After an error both are open as before.
    pub(super) async fn suspend(&self) -> Result<(), StoreError> {
        self.0.session_writer.suspend().await?;
        let closed = self.0.page_writer.suspend().await;
        if closed.is_err() {
            self.resume(SuccessorUse::Read).await?;
        }
        closed
    }

    /// Opens the files again if they are closed, and lets them be written.
    pub(super) async fn resume(&self, used: SuccessorUse) -> Result<(), StoreError> {
        if used == SuccessorUse::Write {
            self.purges().begin_era();
        }
        let sessions = self.0.session_writer.resume(used).await;
        // Where the other process still has the file of sessions, it may have that of the pages, too: another begins.
        let of_pages = if sessions.is_ok() { used } else { SuccessorUse::Write };
        sessions.and(self.0.page_writer.resume(of_pages).await)
    }

    /// What this store keeps in memory only, and the list of the pages that the process has in memory.
    pub(super) fn parts(
        &self,
        hot_pages: Option<Bytes>,
    ) -> impl Iterator<Item = StorePart> + use<> {
        let purges = self.purges().clone();
        memory::parts(purges, &self.0.answers, hot_pages)
    }

    /// Notes what another process has seen, which asks for purges: purges wait for it.
    pub(super) fn note_follower(&self, process_id: u64, seen: Generation) {
        self.purges().note_follower(process_id, seen, Instant::now());
    }

    pub(super) fn state(&self) -> StoreState {
        if self.0.session_writer.is_running() && self.0.sessions.is_open() {
            StoreState::Connected
        } else {
            StoreState::Away
        }
    }

    pub(super) fn counted(&self) -> CounterReading {
        self.0.counters.read()
    }

    /// Every key and member in the session file, one a line, named as in Redis: for administration
    /// and for tests that check what should be gone.
    ///
    /// # Errors
    /// As any read.
    pub fn dump_keys(&self) -> Result<Vec<String>, StoreError> {
        self.0.sessions.read(sessions_file::dump_keys)
    }

    fn purges(&self) -> std::sync::MutexGuard<'_, PurgeLog> {
        // No code that can panic runs under this lock.
        self.0.purges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step that is durable when it returns.
    async fn write_durably<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write(Durability::Immediate, step).await
    }

    /// A step that is durable a moment later.
    async fn write_soon<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write(Durability::None, step).await
    }

    async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        step: impl FnOnce(&mut Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let budget = self.0.limits.write_timeout;
        self.counting(self.0.session_writer.ask(durability, budget, step).await)
    }

    /// A step that a page waits for, and that may be skipped.
    async fn write_in_passing<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let budget = self.0.limits.read_timeout;
        self.counting(self.0.session_writer.ask(Durability::None, budget, step).await)
    }

    fn read<T>(
        &self,
        look: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        self.counting(self.0.sessions.read(look))
    }

    fn counting<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        answer.inspect_err(|error| self.0.counters.count(error))
    }
}

impl TokenStore for EmbeddedStore {
    async fn check_token(&self, token: &StoredToken) -> Result<Option<User>, StoreError> {
        self.read(|txn| sessions::user_of(txn, token))
    }

    async fn live_token(
        &self,
        token: &StoredToken,
        terms: &SessionLifetimes,
    ) -> Result<Option<LogIn>, StoreError> {
        self.read(|txn| control::live(txn, token, terms))
    }
}

impl LogInStore for EmbeddedStore {
    async fn update_token(
        &self,
        token: &StoredToken,
        user: &User,
        item: Option<&Item>,
        now: f64,
    ) -> Result<(), StoreError> {
        let (token, user, item) = (token.clone(), user.clone(), item.cloned());
        self.write_durably(move |tables| tables.update(&token, &user, item, now)).await
    }

    async fn rotate_token(&self, rotation: &Rotation) -> Result<RotationResult, StoreError> {
        let rotation = rotation.clone();
        self.write_durably(move |tables| tables.rotate(&rotation)).await
    }

    async fn revoke_token(&self, token: &StoredToken) -> Result<(), StoreError> {
        let token = token.clone();
        self.write_durably(move |tables| tables.revoke(bytes_of(&token))).await
    }

    async fn dismiss_token(
        &self,
        token: &StoredToken,
        expiry_action: &ExpiryAction,
    ) -> Result<EndedCarts, StoreError> {
        let (token, expiry_action) = (token.clone(), *expiry_action);
        self.write_durably(move |tables| {
            let mut ended_carts = EndedCarts::default();
            tables.dismiss(bytes_of(&token), Some(&expiry_action), &mut ended_carts)?;
            Ok(ended_carts)
        })
        .await
    }

    async fn finish_handovers(&self, _now: f64) -> Result<usize, StoreError> {
        Ok(0)
    }
}

impl VisitStore for EmbeddedStore {
    async fn touch_tokens(&self, visits: &[Visit]) -> Result<Vec<bool>, StoreError> {
        let visits = visits.to_vec();
        self.write_soon(move |tables| tables.touch_all(&visits)).await
    }

    async fn count_views(&self, views: &[(Item, u64)]) -> Result<(), StoreError> {
        let views = views.to_vec();
        self.write_soon(move |tables| {
            views.iter().try_for_each(|(item, count)| tables.count(item, *count))
        })
        .await
    }
}

impl ViewStore for EmbeddedStore {
    async fn viewed(&self, token: &StoredToken) -> Result<Vec<(Item, f64)>, StoreError> {
        self.read(|txn| sessions::viewed(txn, token))
    }

    async fn ranks_under(&self, item: &Item, top: u64) -> Result<bool, StoreError> {
        let ranking = self.counting(self.0.ranks.recent(&self.0.sessions).await)?;
        Ok(ranking.ranks_under(item, top))
    }

    async fn top(&self, most: u32) -> Result<Vec<(Item, f64)>, StoreError> {
        let ranking = self.counting(self.0.ranks.current(&self.0.sessions).await)?;
        Ok(ranking.top(most))
    }

    async fn rescale_views(&self, how: Rescaling) -> Result<RescaleResult, StoreError> {
        let done = self.write_soon(move |tables| tables.rescale(how)).await?;
        Ok(if done { RescaleResult::Done } else { RescaleResult::NotYet })
    }
}

impl ExpiryStore for EmbeddedStore {
    async fn evict_oldest(&self, how: Eviction) -> Result<usize, StoreError> {
        self.write_soon(move |tables| tables.evict(how)).await
    }

    async fn correct_times(&self, now: f64, batch: u32) -> Result<usize, StoreError> {
        if !self.read(move |txn| sessions::has_wrong_times(txn, now))? {
            return Ok(0);
        }
        self.write_soon(move |tables| tables.correct_times(now, batch)).await
    }

    async fn evict_expiring(
        &self,
        how: Eviction,
        from: &Cursor,
        expiry_action: &ExpiryAction,
    ) -> Result<EvictionResult, StoreError> {
        // Before a cart is handed on, its session must be gone durably.
        let durability = match expiry_action {
            ExpiryAction::Keep => Durability::None,
            ExpiryAction::Stream { .. }
            | ExpiryAction::Outbox { .. }
            | ExpiryAction::Queue { .. } => Durability::Immediate,
        };
        let (from, expiry_action) = (from.clone(), *expiry_action);
        self.write(durability, move |tables| tables.evict_expiring(how, from, &expiry_action)).await
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        self.read(expiring::outbox)
    }

    async fn clear_outbox(&self, outbox: &Outbox) -> Result<bool, StoreError> {
        let outbox = outbox.clone();
        self.write_durably(move |tables| tables.clear_outbox(&outbox)).await
    }
}

impl LeaseStore for EmbeddedStore {
    /// The folder belongs to one process.
    async fn take_lease(&self, _: TaskLease, _: u64, _: Duration) -> Result<bool, StoreError> {
        Ok(true)
    }
}

impl PurgeStore for EmbeddedStore {
    async fn purge(
        &self,
        known: PurgePosition,
        marks: &[u32],
    ) -> Result<Option<PurgePosition>, StoreError> {
        self.purges().add(known, marks)
    }

    async fn news_since(&self, _who: u64, known: PurgePosition) -> Result<StoreNews, StoreError> {
        let purges = self.purges().since(known);
        Ok(StoreNews { purges, bypasses: self.0.bypass.list() })
    }

    /// No other process has the folder. One that had it before may ask this one.
    async fn is_seen(&self, purge: Generation) -> Result<bool, StoreError> {
        Ok(self.purges().is_seen(purge, Instant::now()))
    }

    async fn leave(&self, process_id: u64) -> Result<(), StoreError> {
        self.purges().forget_follower(process_id);
        Ok(())
    }
}

impl PageStore for EmbeddedStore {
    async fn page(&self, key: &PageKey) -> Result<Option<Bytes>, StoreError> {
        self.counting(self.0.pages.read(|txn| pages::page(txn, key, unix_now())))
    }

    async fn put_page(
        &self,
        key: &PageKey,
        page: Bytes,
        ttl: Duration,
        demand: RequestFrequency,
    ) -> Result<(), StoreError> {
        let size = page.len() as u64;
        if size > self.0.limits.max_page {
            return Err(StoreError::TooLarge);
        }
        let reservation = self.0.page_room.take(size)?;
        let (key, expires) = (*key, unix_now() + ttl.as_secs_f64());
        let step = move |tables: &mut PageTables<'_>| {
            let _reservation = reservation;
            tables.replace(&key, &page, expires, demand)
        };
        let budget = self.0.limits.write_timeout;
        let put = self.0.page_writer.try_write(Durability::None, budget, step).await;
        self.counting(put.and_then(|put| put))
    }

    async fn delete_pages(&self, keys: &[PageKey]) -> Result<(), StoreError> {
        let keys = keys.to_vec();
        let step = move |tables: &mut PageTables<'_>| tables.remove_all(&keys);
        let budget = self.0.limits.write_timeout;
        self.counting(self.0.page_writer.ask(Durability::None, budget, step).await)
    }

    /// The folder belongs to one process.
    async fn lease(&self, _: &PageKey, _: u64, _: Duration) -> Result<Lease, StoreError> {
        Ok(Lease::Ours)
    }

    async fn end_lease(&self, _: &PageKey, _: u64, _: bool) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The file of pages is deleted at each start, so a list would name nothing: there is one only in a store that was taken
/// over.
impl HotPageStore for EmbeddedStore {
    async fn put_hot_pages(&self, _: Bytes, _: Duration) -> Result<(), StoreError> {
        Ok(())
    }

    async fn hot_pages(&self) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.hot_pages.take())
    }

    async fn pages(&self, keys: &[PageKey]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let mut pages = Vec::with_capacity(keys.len());
        for key in keys {
            pages.push(self.page(key).await?);
        }
        Ok(pages)
    }
}

/// Checks every block of the file of sessions in a folder that no process uses.
///
/// # Errors
/// If the folder is in use, or the file is damaged.
pub fn check_folder(folder: &Path) -> Result<(), OpenError> {
    let disk = open_file(folder, &folder.join(SESSIONS_FILE), SESSION_CACHE, Permanence::Yes)?;
    sessions_file::prepare(&disk, folder)?;
    disk.check().map_err(|error| unreadable(folder, error))
}

/// The open files of a store.
struct OpenFiles {
    sessions: Arc<Disk>,
    session_writer: Writer<SessionLedger>,
    pages: Arc<Disk>,
    access: FileAccess,
}

fn session_writer(
    sessions: &Arc<Disk>,
    limits: StoreLimits,
    access: FileAccess,
) -> io::Result<Writer<SessionLedger>> {
    let ledger = SessionLedger::new(limits.viewed_items);
    Writer::start("store-sessions", Arc::clone(sessions), ledger, SESSION_QUEUE, access)
}

/// A new file of pages.
fn new_pages(folder: &Path) -> Result<Arc<Disk>, OpenError> {
    let path = folder.join(PAGES_FILE);
    disk::delete(&path).map_err(|error| OpenError::io(folder, error))?;
    let pages = open_file(folder, &path, PAGE_CACHE, Permanence::No)?;
    pages::prepare(&pages).map_err(|error| unreadable(folder, error))?;
    Ok(pages)
}

/// The file of pages that another process has closed, or a new one if it cannot be read.
fn handed_pages(folder: &Path, counters: &StoreCounters) -> Result<Arc<Disk>, OpenError> {
    let path = folder.join(PAGES_FILE);
    let opened = disk::caught(|| Ok(Disk::open(path, PAGE_CACHE, Permanence::No)?));
    if let Ok(pages) = opened
        && pages::adopt(&pages, counters).is_ok()
    {
        return Ok(Arc::new(pages));
    }
    tracing::warn!(
        "the pages of the process before cannot be read: the store begins without pages"
    );
    new_pages(folder)
}

fn open_file(
    folder: &Path,
    path: &Path,
    cache_bytes: usize,
    lasting: Permanence,
) -> Result<Arc<Disk>, OpenError> {
    let disk = Disk::open(path.to_owned(), cache_bytes, lasting);
    disk.map(Arc::new).map_err(|error| open_error(folder, error))
}

fn open_error(folder: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse(folder.to_owned()),
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() != io::ErrorKind::InvalidData =>
        {
            OpenError::io(folder, error)
        }
        error => unreadable(folder, error.into()),
    }
}

fn unreadable(folder: &Path, error: redb::Error) -> OpenError {
    OpenError::Unreadable { folder: folder.to_owned(), source: Box::new(error) }
}
