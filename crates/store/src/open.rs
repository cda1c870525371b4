//! Opening a store.

use std::sync::Arc;

use bytes::Bytes;

use super::open_engine::{OpenEngine, StoreSettings};
use super::switch::{NextStore, Switch};
use super::{AnyStore, OpenError, StoreCounters, StoreError, StoreMemory, StorePart, SuccessorUse};

/// An open store. Clones are the same store.
#[derive(Clone, Debug)]
pub struct OpenStore {
    engine: OpenEngine,
    switch: Arc<Switch>,
}

impl OpenStore {
    /// Opens the store. It does not wait for Redis, and succeeds while Redis is down: each handle
    /// keeps trying to connect.
    ///
    /// # Errors
    /// An unusable address; a folder that cannot be written, is in use by another process, or
    /// contains something else.
    pub async fn open(settings: &StoreSettings) -> Result<Self, OpenError> {
        Ok(Self::of(OpenEngine::open(settings).await?, settings, None))
    }

    fn of(engine: OpenEngine, settings: &StoreSettings, pages_url: Option<&str>) -> Self {
        let pages_url = pages_url.map(str::to_owned);
        let place = NextStore { settings: settings.clone(), pages_url };
        Self { switch: Arc::new(Switch::of(place, &engine)), engine }
    }

    /// Takes the store over from a process that has suspended it and may take it back: nothing is written before
    /// [`Self::allow_writes`], and changes find the store away until then. A store in Redis is opened as by [`Self::open`].
    ///
    /// # Errors
    /// As [`Self::open`]; if the file has another format or lacks a table; if `memory` lacks the purges.
    pub async fn open_handed(
        settings: &StoreSettings,
        memory: StoreMemory,
    ) -> Result<Self, OpenError> {
        Ok(Self::of(OpenEngine::open_handed(settings, memory).await?, settings, None))
    }

    /// The process before does not take the store back any more: it may be written.
    ///
    /// # Errors
    /// If the store is closed.
    pub async fn allow_writes(&self) -> Result<(), StoreError> {
        self.engine.resume(SuccessorUse::Read).await
    }

    /// Makes everything durable and closes the files of an embedded store, so that a successor can open them. Hold all
    /// calls before, see [`Switch::hold_for_successor`]: they would find the store away. If this is dropped before it
    /// returns, the files may be closed all the same: then call [`Self::resume`].
    ///
    /// # Errors
    /// If something cannot be made durable. The store is then in use as before.
    pub async fn suspend(&self) -> Result<(), StoreError> {
        self.engine.suspend().await
    }

    /// What a suspended store keeps in memory only, for [`StoreMemory`], with the list of the pages that the process has
    /// in memory, as in [`super::HotPageStore`]. Each part has about half a mebibyte.
    pub fn parts(&self, hot_pages: Option<Bytes>) -> impl Iterator<Item = StorePart> + use<> {
        self.engine.parts(hot_pages)
    }

    /// Takes a suspended store back from a successor that has ended, which has `used` it like that. Does nothing to a store
    /// that is in use. Let calls go on afterwards, see [`Switch::take_back`].
    ///
    /// # Errors
    /// If the files cannot be opened. That of sessions is tried again each second.
    pub async fn resume(&self, used: SuccessorUse) -> Result<(), StoreError> {
        self.engine.resume(used).await
    }

    /// Keeps the pages of a store in Redis in another Redis. In a runtime only, and before anything uses the store.
    ///
    /// # Errors
    /// An unusable address.
    pub fn with_pages_in(self, url: &str, settings: &StoreSettings) -> Result<Self, OpenError> {
        Ok(Self::of(self.engine.with_pages_in(url, settings)?, settings, Some(url)))
    }

    /// The store for the calling thread: call it once on each runtime thread, in the runtime. A move of the site turns
    /// it to the next store.
    ///
    /// # Panics
    /// Outside a tokio runtime: a Redis handle spawns a task that keeps its connection.
    #[must_use]
    pub fn thread_handle(&self) -> AnyStore {
        AnyStore::new(self.engine.engine(), Arc::clone(&self.switch))
    }

    /// The same, which no move turns to another store.
    ///
    /// # Panics
    /// As [`Self::thread_handle`].
    #[must_use]
    pub fn fixed_handle(&self) -> AnyStore {
        AnyStore::new(self.engine.engine(), Arc::default())
    }

    /// The part of this process in a move to another store.
    #[must_use]
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// The error counters, over all handles, of the store in use.
    #[must_use]
    pub fn counters(&self) -> Arc<StoreCounters> {
        self.switch.in_use().unwrap_or(&self.engine).counters()
    }

    /// The store's eviction policy, if it can drop sessions when memory is full; `None` if sessions
    /// are safe, or if the policy is unknown.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn drops_sessions(&self) -> Result<Option<String>, StoreError> {
        self.engine.drops_sessions().await
    }

    /// Makes everything durable and releases the folder, also those of further stores. Later calls find the store away.
    pub async fn close(self) {
        self.engine.close().await;
        for other in self.switch.others() {
            other.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use anteroom_http::ident::{CookieHash, PageKey, StoredToken, User};
    use tempfile::TempDir;

    use super::*;
    use crate::scratch::embedded_in;
    use crate::traits::*;
    use crate::{Generation, PurgePosition, PurgesSince, RequestFrequency};

    const HOUR: Duration = Duration::from_secs(3_600);
    const PAGE: PageKey = PageKey([1; 32]);
    const COOKIES: CookieHash = CookieHash([2; 32]);

    /// A store in which there is something of everything.
    struct Bench {
        folder: TempDir,
        open: OpenStore,
        store: AnyStore,
    }

    impl Bench {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let open = OpenStore::open(&embedded_in(folder.path())).await.unwrap();
            let store = open.thread_handle();
            log_in(&store, 1).await.unwrap();
            store.put_page(&PAGE, "page".into(), HOUR, RequestFrequency::Again).await.unwrap();
            assert!(store.remember(&COOKIES, None, "ann".into(), HOUR).await.unwrap());
            assert!(store.purge(at(1, 0), &[7]).await.unwrap().is_some());
            Self { folder, open, store }
        }

        fn memory(&self) -> StoreMemory {
            let mut memory = StoreMemory::default();
            for part in self.open.parts(Some("list".into())) {
                memory.add(part.name, part.layout, &part.text);
            }
            memory
        }

        async fn successor(&self) -> Result<OpenStore, OpenError> {
            OpenStore::open_handed(&embedded_in(self.folder.path()), self.memory()).await
        }

        /// Ends a successor as if it were killed: nothing is closed, and the files stay as they are.
        async fn kill(&self, successor: OpenStore) {
            let left = [&self.sessions(), &self.pages()].map(|path| fs::read(path).unwrap());
            successor.close().await;
            let [sessions, pages] = left;
            fs::write(self.sessions(), sessions).unwrap();
            fs::write(self.pages(), pages).unwrap();
        }

        fn path(&self) -> &Path {
            self.folder.path()
        }

        fn sessions(&self) -> PathBuf {
            self.path().join("sessions.redb")
        }

        fn pages(&self) -> PathBuf {
            self.path().join("pages.redb")
        }
    }

    fn at(era: u64, number: u64) -> PurgePosition {
        PurgePosition { at: Generation { era, number }, nonce: 0 }
    }

    fn token(number: usize) -> StoredToken {
        StoredToken::from_store(format!("token-{number:04}").as_bytes()).unwrap()
    }

    async fn log_in(store: &AnyStore, number: usize) -> Result<(), StoreError> {
        store.update_token(&token(number), &User::new(b"ann").unwrap(), None, 1.0).await
    }

    async fn is_logged_in(store: &AnyStore, number: usize) -> bool {
        store.check_token(&token(number)).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn a_store_passes_to_a_successor_with_all_that_it_knows() {
        let bench = Bench::new().await;
        assert!(matches!(bench.successor().await, Err(OpenError::InUse(_))), "one owner");
        bench.open.suspend().await.unwrap();
        assert!(matches!(log_in(&bench.store, 2).await, Err(StoreError::Away)));
        assert!(matches!(bench.store.check_token(&token(1)).await, Err(StoreError::Away)));

        let next = bench.successor().await.unwrap();
        let store = next.thread_handle();
        assert!(is_logged_in(&store, 1).await);
        assert_eq!(store.page(&PAGE).await.unwrap().unwrap(), "page");
        assert_eq!(store.recall(&COOKIES).await.unwrap().unwrap(), "ann");
        assert_eq!(store.hot_pages().await.unwrap().unwrap(), "list");
        assert_eq!(store.hot_pages().await.unwrap(), None);
        let news = store.purged_since(1, at(1, 0)).await.unwrap();
        let purges = vec![vec![7]];
        assert_eq!(news, PurgesSince::Since { purges, upto: at(1, 1), more: false });
        assert!(next.counters().page_bytes() > 0);

        assert!(matches!(log_in(&store, 2).await, Err(StoreError::Away)), "it may be taken back");
        next.allow_writes().await.unwrap();
        log_in(&store, 2).await.unwrap();
        assert!(is_logged_in(&store, 2).await);
    }

    #[tokio::test]
    async fn a_successor_that_is_killed_before_it_may_write_has_changed_nothing() {
        let bench = Bench::new().await;
        bench.open.suspend().await.unwrap();
        let next = bench.successor().await.unwrap();
        bench.kill(next).await;
        bench.open.resume(SuccessorUse::Read).await.unwrap();
        let store = &bench.store;
        assert!(is_logged_in(store, 1).await);
        assert_eq!(store.page(&PAGE).await.unwrap().unwrap(), "page");
        assert_eq!(store.purge(at(1, 1), &[7]).await.unwrap(), Some(at(1, 2)));
        log_in(store, 2).await.unwrap();
        // The store can be given away again.
        bench.open.suspend().await.unwrap();
        assert!(is_logged_in(&bench.successor().await.unwrap().thread_handle(), 2).await);
    }

    #[tokio::test]
    async fn what_a_successor_acknowledged_is_there_when_the_store_is_taken_back() {
        let bench = Bench::new().await;
        bench.open.suspend().await.unwrap();
        let next = bench.successor().await.unwrap();
        next.allow_writes().await.unwrap();
        let store = next.thread_handle();
        log_in(&store, 2).await.unwrap();
        assert_eq!(store.purge(at(1, 1), &[8]).await.unwrap(), Some(at(1, 2)));
        bench.kill(next).await;
        bench.open.resume(SuccessorUse::Write).await.unwrap();
        let store = &bench.store;
        assert!(is_logged_in(store, 1).await && is_logged_in(store, 2).await);
        assert_eq!(store.page(&PAGE).await.unwrap(), None, "it may have been purged");
        assert_eq!(store.purge(at(1, 2), &[9]).await.unwrap(), None, "that era is over");
        let news = store.purged_since(1, at(1, 2)).await.unwrap();
        assert_eq!(news.upto(), at(2, 0));
        store.put_page(&PAGE, "other".into(), HOUR, RequestFrequency::Again).await.unwrap();
        assert_eq!(store.page(&PAGE).await.unwrap().unwrap(), "other");
    }

    #[tokio::test]
    async fn a_store_that_is_in_use_is_resumed_without_harm() {
        let bench = Bench::new().await;
        bench.open.resume(SuccessorUse::Read).await.unwrap();
        log_in(&bench.store, 2).await.unwrap();
        assert!(is_logged_in(&bench.store, 1).await && is_logged_in(&bench.store, 2).await);
        bench.open.suspend().await.unwrap();
        bench.open.suspend().await.unwrap();
        bench.open.close().await;
    }

    #[tokio::test]
    async fn a_file_of_pages_that_cannot_be_read_is_begun_anew() {
        let bench = Bench::new().await;
        bench.open.suspend().await.unwrap();
        fs::write(bench.pages(), "no database").unwrap();
        let next = bench.successor().await.unwrap();
        let store = next.thread_handle();
        assert!(is_logged_in(&store, 1).await);
        assert_eq!(store.page(&PAGE).await.unwrap(), None);
        // The process before finds the new file, or makes another.
        next.close().await;
        bench.open.resume(SuccessorUse::Read).await.unwrap();
        assert_eq!(bench.store.page(&PAGE).await.unwrap(), None);
        assert!(is_logged_in(&bench.store, 1).await);
    }
}
