//! Rows that change often and are shared with everyone: read from a source every few seconds, and
//! kept.
//!
//! A [`RowSource`] provides rows, a [`RowStore`] stores them, and the task decides when a step
//! runs. `database` reads rows by SQL; the task makes a source of it.
//!
//! A row is read by one process at a time. Nothing here knows pages or visitors, and no other crate knows SQL.

mod claimed_rows;
pub mod database;
mod failures;
mod memo;
mod names;
mod reader;
mod refresh;
mod requests;
mod shared;
mod source;
mod together;

use std::time::Duration;

use anteroom_http::ident::Row;
use anteroom_policy::row_schedule::SCHEDULED_MAX;

use anteroom_store::{ROWS_MAX, RowStore, StoreError};

pub use failures::RowFailures;
pub use memo::{KeptRow, RowMemory};
pub use names::RowNames;
pub use reader::RowReader;
pub use refresh::{LEASE, RefreshProgress, Refresher};
pub use requests::{RowRequest, RowRequests, RowSoon};
pub use shared::SharedRows;
pub use source::{FetchError, RowSource, checked};
pub use together::together;

const _: () = assert!(ROWS_MAX as u64 == SCHEDULED_MAX, "the configuration has the same bound");

/// `schedule_row_cache`: from now on a row is refreshed every `delay`; `None` stops that, and
/// removes the row.
///
/// # Errors
/// When the store refuses it; [`StoreError::RowsFull`] for a row too many.
pub async fn schedule_row_cache<S: RowStore>(
    store: &S,
    row: &Row,
    delay: Option<Duration>,
    now: f64,
) -> Result<(), StoreError> {
    store.schedule_row(row, delay.map_or(0.0, |delay| delay.as_secs_f64()), now).await
}
