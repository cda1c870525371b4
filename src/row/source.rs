//! Where rows are read, and what is taken from there.

use std::future::Future;

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::ident::Row;
use crate::store::{ROW_JSON_MAX, StoreError};

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

/// The content as it came, where it is JSON and no larger than may be kept.
pub(super) fn checked(json: Bytes) -> Result<Bytes, FetchError> {
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
