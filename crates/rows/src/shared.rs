//! What the threads of this process share of rows.

use std::sync::Arc;

use anteroom_http::ident::Row;
use tokio::sync::Notify;

use super::failures::RowFailures;
use super::memo::RowMemory;
use super::requests::RowRequests;

/// What the threads of this process share of rows.
#[derive(Debug, Default)]
pub struct SharedRows {
    /// Rows in memory.
    pub memory: Arc<RowMemory>,
    /// Rows that requests ask for, and that are not scheduled yet.
    pub requests: RowRequests,
    /// Which rows cannot be refreshed here.
    pub failures: Arc<RowFailures>,
    /// Wakes the refresher: rows have become due before their time.
    pub made_due: Notify,
}

impl SharedRows {
    /// A row has changed, and may exist now: it is read again from now on.
    pub fn forget(&self, row: &Row) {
        self.memory.forget(row);
        self.requests.forget_missing_row(row);
    }
}
