//! Keeping a page in memory and in the store.

use super::Filler;
use super::fetched::Fetch;
use crate::clock::unix_now;
use crate::metrics::Count;
use crate::page::entry::Entry;
use crate::page::flight::Flight;
use crate::page::{ToStore, TooManyVariants};
use crate::reason::Reason;
use crate::store::{PageStore, StoreError};

impl Filler {
    /// Keeps the page in memory, unless an unsafe request or a purge has changed it meanwhile.
    pub(super) fn keep(&self, fetch: &Fetch, flight: &Flight, entry: Entry) -> Vec<ToStore> {
        if flight.is_invalidated() || !self.pages.purged.is_current(&entry.marks) {
            return Vec::new();
        }
        let kept = self.pages.keep(fetch.primary, &flight.sent, entry, unix_now() as u64);
        let kept = kept.unwrap_or_else(|TooManyVariants| {
            self.sheet.refused(Reason::Variants);
            Vec::new()
        });
        if !flight.is_invalidated() {
            return kept;
        }
        // A change between the two looks may have come too soon to find the page.
        kept.iter().for_each(|one| self.pages.memory().remove(&one.key));
        Vec::new()
    }

    pub(super) async fn put(&self, one: &ToStore, flight: &Flight) {
        match self.store.put_page(&one.key, one.encode(), one.ttl).await {
            // It may have been changed by an unsafe request while it was on its way.
            Ok(()) if flight.is_invalidated() => {
                if let Err(error) = self.store.delete_pages(&[one.key]).await {
                    tracing::warn!(%error, "a page that was changed stays in the store for its time");
                }
            }
            Ok(()) | Err(StoreError::Full) => {}
            Err(error) => {
                self.sheet.count(Count::StoreWriteErrors);
                tracing::debug!(%error, "a page was not stored");
            }
        }
    }
}
