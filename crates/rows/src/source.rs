//! The source of rows, and which answers are accepted.

use std::future::Future;
use std::rc::Rc;

use anteroom_http::ident::Row;
use bytes::Bytes;
use serde::de::IgnoredAny;

use anteroom_store::{ROW_JSON_MAX, StoreError};

/// The source of rows.
pub trait RowSource {
    /// Reads rows of one source, at most as many as it reads together; returns the content of each,
    /// in order. `None`: there is no such row. The future is dropped after `FETCH_TIME`, and earlier
    /// while many are slow.
    fn fetch(&self, rows: &[&Row]) -> impl Future<Output = Vec<Result<Option<Bytes>, FetchError>>>;

    /// How many rows are read together with this one, itself included.
    fn together(&self, row: &Row) -> usize;

    /// The configured name of a row's source.
    fn name(&self, row: &Row) -> &str;
}

impl<R: RowSource> RowSource for Rc<R> {
    async fn fetch(&self, rows: &[&Row]) -> Vec<Result<Option<Bytes>, FetchError>> {
        (**self).fetch(rows).await
    }

    fn together(&self, row: &Row) -> usize {
        (**self).together(row)
    }

    fn name(&self, row: &Row) -> &str {
        (**self).name(row)
    }
}

/// Why a row has no new content. The last good one stays.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The source cannot have a row of that name.
    #[error("the source cannot have a row of that name")]
    NoPlace,
    /// The source answered with another status than 200.
    #[error("the source answered {0}")]
    Status(u16),
    /// The answer is not JSON.
    #[error("the source's answer is not JSON")]
    NotJson,
    /// The answer is over [`ROW_JSON_MAX`].
    #[error("the source's answer is over {ROW_JSON_MAX} bytes")]
    TooLarge,
    /// The answer is encoded, although identity was requested.
    #[error(
        "the source's answer has Content-Encoding {0:?}; only an answer without one is accepted"
    )]
    Encoded(String),
    /// The answer is for one visitor: rows are for everyone.
    #[error("the source's answer is private")]
    Private,
    /// The answer has `Vary: *`: no other request may share it.
    #[error("the source's answer has Vary: *")]
    Varies,
    /// The answer has no length and no chunks: its end cannot be told from a broken connection.
    #[error("the source's answer has neither a Content-Length nor chunks")]
    Unframed,
    /// No complete answer in time.
    #[error("the source took too long")]
    TimedOut,
    /// The source cannot be reached. It is tried again soon, because nothing is wrong with the row.
    #[error("the source failed: {0}")]
    Away(#[source] Box<dyn std::error::Error>),
    /// The source could not be read.
    #[error("the source failed: {0}")]
    Source(#[source] Box<dyn std::error::Error>),
    /// The store failed, whether the row was read or not.
    #[error("the store failed: {0}")]
    Store(#[source] StoreError),
}

/// The content, if it is JSON and within the size limit.
///
/// # Errors
/// If it is not.
pub fn checked(json: Bytes) -> Result<Bytes, FetchError> {
    if json.len() > ROW_JSON_MAX {
        return Err(FetchError::TooLarge);
    }
    // As text first: skipped parts of the JSON are not checked for UTF-8.
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
