//! Pages and rows are forgotten: here at once, and in the store while the client waits a little.

use std::time::Duration;

use crate::cache::purge::scope::Aim;
use crate::clock::unix_now;
use crate::ident::{PageKey, Row};
use crate::proxy::context::WorkerContext;
use crate::store::{PageStore, RowStore, StoreError};

/// How long an answer waits until the pages that its request changed are gone from the store.
const DELETE_PATIENCE: Duration = Duration::from_millis(250);

/// Has pages and rows forgotten, here at once, and in the store while the visitor waits a little.
pub(in crate::proxy) async fn forget(
    worker: &WorkerContext,
    gone: &[PageKey],
    aims: &[Aim],
    rows: &[Row],
) {
    let purged = &worker.pages.purged;
    let forgetting = async {
        let deleting = worker.store.delete_pages(gone);
        let purging = purged.purge(&worker.store, aims);
        let outdating = outdate(worker, rows);
        let (purged, deleted, outdated) = tokio::join!(purging, deleting, outdating);
        purged.map(drop).and(deleted).and(outdated)
    };
    match tokio::time::timeout(DELETE_PATIENCE, forgetting).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "what was changed stays in the store for its time")
        }
        Err(_) => {
            tracing::debug!("the store is slow: what was changed may stay there for its time")
        }
    }
}

/// Forgets rows whose source has changed; they are read again soon.
async fn outdate(worker: &WorkerContext, rows: &[Row]) -> Result<(), StoreError> {
    for row in rows {
        // Behind the store, and also where it is given up: this is the end of what we remember.
        let _forgetting = Forgetting(worker, row);
        worker.store.outdate_row(row, unix_now()).await?;
    }
    Ok(())
}

/// Forgets a row in memory when it is dropped.
struct Forgetting<'r>(&'r WorkerContext, &'r Row);

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        self.0.rows.forget(self.1);
    }
}
