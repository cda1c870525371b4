//! Rows that change often and are for everyone: read from a source every few seconds, and kept.
//!
//! Where a row comes from is a [`RowSource`]'s business, and when a step is called the task's. What
//! holds the rows is a [`RowStore`].

mod failures;
mod line;
mod memo;
mod names;
mod refresh;
mod source;
mod together;

use std::time::Duration;

use crate::ident::Row;
use crate::store::{RowStore, StoreError};

pub use memo::{KeptRow, Memo, Reader};
pub use names::Names;
pub use refresh::{LEASE, Progress, Refresher};
pub use source::{FetchError, RowSource};
pub use together::together;

/// `schedule_row_cache`: from now on a row is refreshed every `delay`; `None` stops that, and removes
/// the row.
///
/// # Errors
/// When the store does not take it; [`StoreError::RowsFull`] for a row too many.
pub async fn schedule_row_cache<S: RowStore>(
    store: &S,
    row: &Row,
    delay: Option<Duration>,
    now: f64,
) -> Result<(), StoreError> {
    store.schedule_row(row, delay.map_or(0.0, |delay| delay.as_secs_f64()), now).await
}
