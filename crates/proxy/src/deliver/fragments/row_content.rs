//! The rows that fill fragments of one page.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use anteroom_http::ident::Row;
use anteroom_rows::{KeptRow, RowSoon};
use anteroom_telemetry::metrics::Count;

use super::content::FragmentError;
use crate::context::WorkerContext;

/// Reads the rows of one page.
pub(super) struct RowContents {
    worker: Rc<WorkerContext>,
    /// Whether the store failed, or a row had to be waited for in vain. The page does not wait again.
    has_waited: Cell<bool>,
}

impl RowContents {
    pub(super) fn new(worker: &Rc<WorkerContext>) -> Self {
        Self { worker: Rc::clone(worker), has_waited: Cell::new(false) }
    }

    /// The row `id` of a source; `None`: the source has no row of that name.
    pub(super) fn named(&self, rows: &str, id: &str) -> Option<Row> {
        self.worker.settings.rows.row(rows, id)
    }

    /// A row that is in memory.
    pub(super) fn remembered(&self, row: &Row) -> Option<Arc<KeptRow>> {
        self.worker.rows.remembered(row, self.worker.is_on_demand(row))
    }

    /// Reads a row, within the read budget of the store. A row that is scheduled on demand, and is not there
    /// yet, is waited for as shortly.
    pub(super) async fn read(&self, row: &Row) -> Result<Arc<KeptRow>, FragmentError> {
        if self.has_waited.get() {
            return Err(FragmentError::Late);
        }
        let (worker, rows) = (&self.worker, &self.worker.rows);
        let found = match worker.is_on_demand(row) {
            true => rows.row_soon(&worker.store, row).await,
            false => rows.row(&worker.store, row).await.map(RowSoon::from),
        };
        match found {
            Ok(RowSoon::Found(kept)) => Ok(kept),
            Ok(RowSoon::Missing) => Err(FragmentError::NoRow),
            Ok(RowSoon::Later) => {
                self.has_waited.set(true);
                Err(FragmentError::Late)
            }
            Err(error) => {
                tracing::debug!(%error, "reading a row for a fragment failed");
                worker.thread_metrics.count(Count::StoreReadErrors);
                self.has_waited.set(true);
                Err(FragmentError::Store)
            }
        }
    }
}
