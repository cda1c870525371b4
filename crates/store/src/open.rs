//! Opening a store.

use std::sync::Arc;

use super::open_engine::{OpenEngine, StoreSettings};
use super::switch::Switch;
use super::{AnyStore, OpenError, StoreCounters, StoreError};

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
        Ok(Self { engine: OpenEngine::open(settings).await?, switch: Arc::default() })
    }

    /// Keeps the pages of a store in Redis in another Redis. In a runtime only.
    ///
    /// # Errors
    /// An unusable address.
    pub fn with_pages_in(self, url: &str, settings: &StoreSettings) -> Result<Self, OpenError> {
        Ok(Self { engine: self.engine.with_pages_in(url, settings)?, ..self })
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
        self.switch.next_in_use().unwrap_or(&self.engine).counters()
    }

    /// The store's eviction policy, if it can drop sessions when memory is full; `None` if sessions
    /// are safe, or if the policy is unknown.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn drops_sessions(&self) -> Result<Option<String>, StoreError> {
        self.engine.drops_sessions().await
    }

    /// Makes everything durable and releases the folder, also that of the next store. Later calls find the store away.
    pub async fn close(self) {
        self.engine.close().await;
        if let Some(next) = self.switch.opened_next() {
            next.close().await;
        }
    }
}
