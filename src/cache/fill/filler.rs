//! What fetches for the cache, and what it needs for that.

use std::cell::Cell;
use std::sync::Arc;

use crate::cache::Pages;
use crate::cache::rules::verdict::Policy;
use crate::origin::Upstreams;
use crate::store::AnyStore;
use crate::telemetry::metrics::Sheet;

/// For how long a page is fetched by everyone alone whose origin failed, or for which there was no
/// room, in seconds.
pub(super) const ERROR_TTL: u64 = 1;

/// Fetches for the cache. One a thread.
#[derive(Debug)]
pub struct Filler {
    /// The pages to fill.
    pub pages: Arc<Pages>,
    /// Where from.
    pub upstreams: Upstreams,
    /// The store behind the pages.
    pub store: AnyStore,
    /// The cache's settings.
    pub policy: Policy,
    /// Counters of this thread.
    pub sheet: Arc<Sheet>,
    /// How many pages are on their way into the store that were asked for again.
    pub coming_late: Cell<usize>,
    /// When it was last said that a page held something of its visitor's, in Unix time.
    pub leak_said_at: Cell<u64>,
}
