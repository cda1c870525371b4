//! The filler: fetches pages for the cache.

use std::cell::Cell;
use std::sync::Arc;

use crate::cache::Pages;
use crate::cache::rules::verdict::Policy;
use crate::origin::Upstreams;
use crate::store::AnyStore;
use crate::telemetry::metrics::Sheet;

/// After the origin failed, or there was no room for a page, how long each request fetches it on its own, in
/// seconds.
pub(super) const ERROR_TTL: u64 = 1;

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
    pub policy: Policy,
    /// The metrics of this thread.
    pub sheet: Arc<Sheet>,
    /// The number of pages now being written to the store after their second request.
    pub coming_late: Cell<usize>,
    /// When it was last logged that a page contained personal data, in Unix time.
    pub leak_said_at: Cell<u64>,
}
