//! The filler: fetches pages for the cache.

use std::cell::Cell;
use std::sync::Arc;

use anteroom_origin::Upstreams;
use anteroom_store::AnyStore;
use anteroom_telemetry::metrics::ThreadMetrics;

use crate::memory::MarkTime;
use crate::rules::verdict::CacheSettings;
use crate::{PageSource, Pages};

/// Fetches pages for the cache. There is one per thread.
#[derive(Debug)]
pub struct Filler {
    /// The pages to fill.
    pub pages: Arc<Pages>,
    /// The origins.
    pub upstreams: Upstreams,
    /// The store behind the pages.
    pub store: AnyStore,
    /// The cache's settings.
    pub policy: CacheSettings,
    /// The number of the configuration in force, by which marks are told apart.
    pub config: u64,
    /// The metrics of this thread.
    pub thread_metrics: Arc<ThreadMetrics>,
    /// The number of pages now being written to the store after their second request.
    pub deferred_writes: Cell<usize>,
    /// When it was last logged that a page contained personal data, in Unix time.
    pub leak_logged_at: Cell<u64>,
}

impl Filler {
    /// The time of a mark that is set or looked up at `now`, in Unix seconds.
    #[must_use]
    pub fn mark_time(&self, now: u64) -> MarkTime {
        MarkTime { now, config: self.config }
    }

    /// The store, for reading pages.
    #[must_use]
    pub fn page_source(&self) -> PageSource<'_, AnyStore> {
        PageSource { store: &self.store, default_ttl: self.policy.default_ttl }
    }
}
