//! Keeps pages in memory and in the store.

use std::rc::Rc;
use std::sync::Arc;

use ::http::HeaderMap;
use anteroom_fault::fault;
use anteroom_http::clock::unix_now;
use anteroom_http::ident::PageKey;
use anteroom_store::{PageStore, StoreError};
use anteroom_telemetry::metrics::{Count, UnstoredReason};
use anteroom_telemetry::reason::Reason;

use super::fetched::Fetch;
use super::filler::Filler;
use crate::entry::Entry;
use crate::flight::Flight;
use crate::{ToStore, TooManyVariants};

/// The most pages that a thread writes to the store at a time after answers from memory.
const DEFERRED_WRITES_MAX: usize = 64;

impl Filler {
    /// Keeps the page in memory, unless an unsafe request or a purge has changed it meanwhile, or the route has
    /// been switched to bypass.
    pub(super) fn keep(&self, fetch: &Fetch, flight: &Flight, mut entry: Entry) -> Vec<ToStore> {
        let purged = &self.pages.purged;
        if fault!("purge") {
            let mut now = purged.now(&[]);
            now.slots.clone_from(&entry.purge_snapshot.slots);
            entry.purge_snapshot = Arc::new(now);
        }
        if flight.is_invalidated() || !purged.is_current(&entry.purge_snapshot) {
            return Vec::new();
        }
        if purged.bypass.covers(&fetch.route.name) {
            self.thread_metrics.refused(Reason::BypassSwitch);
            return Vec::new();
        }
        if let Some(pattern) = fetch.pattern {
            self.pages.url_patterns.saw_shared(pattern);
        }
        let kept = self.pages.keep(fetch.primary, &flight.sent, entry, unix_now() as u64);
        let kept = kept.unwrap_or_else(|TooManyVariants| {
            self.thread_metrics.refused(Reason::Variants);
            Vec::new()
        });
        if !flight.is_invalidated() {
            return kept;
        }
        // A change between the two checks may have come too early to find the page.
        kept.iter().for_each(|one| self.pages.memory().remove(&one.key));
        Vec::new()
    }

    /// Writes a page to the store, and a variant with its index. If `is_changed` reports an unsafe request
    /// during the write, the page is removed again.
    pub(super) async fn put(&self, kept: &[ToStore], is_changed: impl Fn(&ToStore) -> bool) {
        for one in kept {
            match self.store.put_page(&one.key, one.encode(), one.ttl, one.demand).await {
                Ok(()) if is_changed(one) => {
                    if let Err(error) = self.store.delete_pages(&[one.key]).await {
                        tracing::warn!(%error, "a page that was changed stays in the store for its time");
                    }
                }
                Ok(()) => {}
                // An index without its variant is useless, and so is a variant without its index.
                Err(error) => return self.unstored(&kept[0], &error),
            }
        }
    }

    fn unstored(&self, one: &ToStore, error: &StoreError) {
        match error {
            StoreError::NearlyFull => {
                self.thread_metrics.unstored(UnstoredReason::NearlyFull);
                self.pages.defer(one.key, unix_now() as u64);
            }
            StoreError::Full => self.thread_metrics.unstored(UnstoredReason::Full),
            StoreError::TooLarge => self.thread_metrics.unstored(UnstoredReason::TooLarge),
            error => {
                self.thread_metrics.count(Count::StoreWriteErrors);
                tracing::debug!(%error, "a page was not stored");
            }
        }
    }

    /// Handles a hit in memory. If the store did not admit the page on its first request, it is written there
    /// now, after the answer.
    pub fn found<'h>(
        self: &Rc<Self>,
        primary: &PageKey,
        sent: impl FnOnce() -> &'h HeaderMap,
        now: u64,
    ) {
        if self.deferred_writes.get() >= DEFERRED_WRITES_MAX {
            return;
        }
        let due = self.pages.due(primary, sent, now);
        if due.is_empty() {
            return;
        }
        self.deferred_writes.set(self.deferred_writes.get() + 1);
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            this.put(&due, |one| !this.pages.still_holds(one)).await;
            this.deferred_writes.set(this.deferred_writes.get() - 1);
        });
    }
}
