//! Writes the list of the pages in memory to the store, from which the next start fills its memory.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anteroom_cache::{Pages, warm_start};
use anteroom_http::clock::unix_now;
use anteroom_store::{AnyStore, HotPageStore as _, StoreError};

use super::{NextStep, Task};

/// The time between two lists: a killed process loses no more than the pages that came into use since the last.
const EVERY: Duration = Duration::from_secs(60);
/// How long the list stays in the store. Most pages are over after that time.
const TTL: Duration = Duration::from_secs(86_400);

/// Writes the list.
#[derive(Debug)]
pub struct HotPages {
    /// The store; use that of [`AnyStore::background`].
    pub store: AnyStore,
    /// The pages.
    pub pages: Arc<Pages>,
    /// Whether the task has rested once: memory holds too little right after a start.
    pub has_rested: Cell<bool>,
}

impl HotPages {
    /// Writes the list now. If memory has no fresh page, the list in the store stays.
    ///
    /// # Errors
    /// If the store does not take it.
    pub async fn write(&self) -> Result<(), StoreError> {
        match warm_start::list(&self.pages, unix_now() as u64) {
            Some(list) => self.store.put_hot_pages(list, TTL).await,
            None => Ok(()),
        }
    }
}

impl Task for HotPages {
    const NAME: &'static str = "list_hot_pages";
    /// The end writes a list of its own.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        if self.has_rested.get() {
            self.write().await?;
        }
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
        self.has_rested.set(true);
    }
}
