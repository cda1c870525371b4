//! Pages, as opaque bytes with a time to live, and leases on fetching them.

use std::future::Future;
use std::time::Duration;

use anteroom_http::ident::PageKey;
use bytes::Bytes;

use super::StoreError;

/// Pages, as opaque bytes with a time to live.
pub trait PageStore {
    /// The page under a key, unless it has expired. Within the read budget.
    fn page(&self, key: &PageKey) -> impl Future<Output = Result<Option<Bytes>, StoreError>>;

    /// Stores a page for `ttl`, within [`super::StoreLimits::pages`] bytes in all. Refused are: a page
    /// over [`super::StoreLimits::max_page`] ([`StoreError::TooLarge`]); a page for which there is no
    /// room ([`StoreError::Full`]); and, when little room is left, a page that is new to the store
    /// and was requested once ([`StoreError::NearlyFull`]).
    fn put_page(
        &self,
        key: &PageKey,
        page: Bytes,
        ttl: Duration,
        demand: RequestFrequency,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Removes pages; a missing page is no error.
    fn delete_pages(&self, keys: &[PageKey]) -> impl Future<Output = Result<(), StoreError>>;

    /// Asks for the lease on fetching a page, as this holder: one process of a fleet fetches.
    /// The lease ends by itself after `time`. Within the read budget.
    fn lease(
        &self,
        key: &PageKey,
        holder: u64,
        time: Duration,
    ) -> impl Future<Output = Result<Lease, StoreError>>;

    /// Ends the lease, if `holder` still holds it. If the page may not be shared, other processes see
    /// that for a moment.
    fn end_lease(
        &self,
        key: &PageKey,
        holder: u64,
        is_shareable: bool,
    ) -> impl Future<Output = Result<(), StoreError>>;
}

/// How often a page was requested in the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFrequency {
    /// Once, as far as is known.
    Once,
    /// More often.
    Again,
}

/// The number of bytes at which a page must have been requested more than once.
pub(super) fn nearly(bound: u64) -> u64 {
    bound / 5 * 4
}

/// The first bytes of every stored page; no text begins with them. They distinguish these pages
/// from other programs' values.
pub const PAGE_MAGIC: [u8; 4] = [0x00, 0xa7, b'A', b'R'];

/// The version of a page's layout, after the magic. Another version is a miss, and is not counted.
pub const PAGE_VERSION: u8 = 4;

/// Both.
pub const PAGE_HEAD: [u8; 5] = [0x00, 0xa7, b'A', b'R', PAGE_VERSION];

/// The process that fetches a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The caller.
    Ours,
    /// Another process.
    Theirs,
    /// Another process did a moment ago, and the page may not be shared.
    Unshareable,
}
