//! Removes changed pages and rows: here at once, and in the store while the client waits briefly.

use std::time::Duration;

use anteroom_cache::purge::scope::PurgeTarget;
use anteroom_http::clock::unix_now;
use anteroom_http::ident::{PageKey, Row};
use anteroom_store::{PageStore, RowStore, StoreError};

use crate::context::WorkerContext;

/// How long a response waits for the store to delete the pages that its request changed.
const DELETE_TIMEOUT: Duration = Duration::from_millis(250);

/// Removes pages and rows, here at once, and in the store while the client waits briefly.
pub(crate) async fn forget(
    worker: &WorkerContext,
    gone: &[PageKey],
    targets: &[PurgeTarget],
    rows: &[Row],
) {
    let purged = &worker.pages.purged;
    let forgetting = async {
        let deleting = worker.store.delete_pages(gone);
        let purging = purged.purge(&worker.store, targets);
        let outdating = outdate(worker, rows);
        let (purged, deleted, outdated) = tokio::join!(purging, deleting, outdating);
        purged.map(drop).and(deleted).and(outdated)
    };
    // PERF: boxed, so that the state of a request that changes nothing stays small.
    match tokio::time::timeout(DELETE_TIMEOUT, Box::pin(forgetting)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "deleting changed pages from the store failed")
        }
        Err(_) => {
            tracing::debug!("the store is slow: changed pages may stay there until they expire")
        }
    }
}

/// Removes rows after a change of their source. They are read again soon.
async fn outdate(worker: &WorkerContext, rows: &[Row]) -> Result<(), StoreError> {
    for row in rows {
        // The memory follows the store, also if the call is cancelled: the row must not stay in memory.
        let _forgetting = ForgetOnDrop(worker, row);
        worker.store.outdate_row(row, unix_now()).await?;
    }
    Ok(())
}

/// Removes a row from memory when dropped.
struct ForgetOnDrop<'r>(&'r WorkerContext, &'r Row);

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.rows.forget(self.1);
    }
}
