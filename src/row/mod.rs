//! Rows that change often and are for everyone: read from a source every few seconds, and kept.
//!
//! Where a row comes from is a [`RowSource`]'s business, and when a step is called the task's. What
//! holds the rows is a [`RowStore`].

mod failures;
mod line;
mod memo;
mod names;
mod refresh;
mod together;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::ident::Row;
use crate::store::{ROW_JSON_MAX, RowStore, StoreError};

pub use memo::{KeptRow, Memo, Reader};
pub use names::Names;
pub use refresh::{Progress, Refresher};
pub use together::together;

/// For how long a worker has a row to itself.
pub const LEASE: Duration = Duration::from_secs(10);
/// The longest that a fetch may take: it ends before the lease does, so that what it brought can
/// still be kept.
const FETCH_TIME: Duration = Duration::from_secs(9);

/// Where rows are read.
pub trait RowSource {
    /// Reads a row. It is dropped when it takes longer than `FETCH_TIME`, and sooner while many do.
    fn fetch(&self, row: &Row) -> impl Future<Output = Result<Bytes, FetchError>>;

    /// What people call the source that a row is read from.
    fn name(&self, row: &Row) -> &str;
}

/// Why there is no new content of a row. The last good one stays.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The source cannot have a row of that name.
    #[error("the source has no place for a row of that name")]
    NoPlace,
    /// The source answered with another status than 200.
    #[error("the source answered {0}")]
    Status(u16),
    /// What came is no JSON.
    #[error("the source's answer is no JSON")]
    NotJson,
    /// What came is over [`ROW_JSON_MAX`].
    #[error("the source's answer is over {ROW_JSON_MAX} bytes")]
    TooLarge,
    /// What came is encoded, though it was asked for as it is.
    #[error("the source's answer has Content-Encoding {0:?}, and is read as it is only")]
    Encoded(String),
    /// What came is for one visitor: rows are for everyone.
    #[error("the source's answer is private")]
    Private,
    /// What came depends on what no two requests have in common.
    #[error("the source's answer has Vary: *")]
    Varies,
    /// The answer has no length and no chunks: an end cannot be told from a cut.
    #[error("the end of the source's answer cannot be told from a cut")]
    Unframed,
    /// Nothing came in time.
    #[error("the source took too long")]
    TimedOut,
    /// The source could not be read.
    #[error("the source failed: {0}")]
    Source(#[source] Box<dyn std::error::Error>),
    /// It was read, or not, and the store could not be told.
    #[error("the store could not be told of it: {0}")]
    Store(#[source] StoreError),
}

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

/// The content as it came, where it is JSON and no larger than may be kept.
fn checked(json: Bytes) -> Result<Bytes, FetchError> {
    if json.len() > ROW_JSON_MAX {
        return Err(FetchError::TooLarge);
    }
    // As text first: what is skipped is not looked at for UTF-8.
    let text = std::str::from_utf8(&json).map_err(|_| FetchError::NotJson)?;
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(json),
        Err(_) => Err(FetchError::NotJson),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_is_kept() {
        for good in [&b"{}"[..], b"[1, 2]", b"\"\xc3\xa4\"", b" null\n"] {
            assert!(checked(Bytes::from_static(good)).is_ok(), "{good:?}");
        }
        for bad in [&b""[..], b"{", b"{} {}", b"<html>", b"\"\xff\"", b"NaN"] {
            assert!(checked(Bytes::from_static(bad)).is_err(), "{bad:?}");
        }
        assert!(checked(vec![b'1'; ROW_JSON_MAX + 1].into()).is_err());
    }
}
