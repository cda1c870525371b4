//! Pages, as opaque bytes with a time to live, and leases on fetching them.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use super::StoreError;
use crate::ident::PageKey;

/// Pages, as opaque bytes with a time to live.
pub trait PageStore {
    /// The page under a key, unless it has expired. Within the read budget.
    fn page(&self, key: &PageKey) -> impl Future<Output = Result<Option<Bytes>, StoreError>>;

    /// Stores a page for `ttl`, within [`super::Limits::pages`] bytes in all. Refused are a page over
    /// [`super::Limits::max_page`] ([`StoreError::TooLarge`]), one for which there is no room
    /// ([`StoreError::Full`]), and where there is not much left, one that is new to the store and was
    /// asked for once ([`StoreError::NearlyFull`]).
    fn put_page(
        &self,
        key: &PageKey,
        page: Bytes,
        ttl: Duration,
        demand: Demand,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Removes pages; those that are not there are no error.
    fn delete_pages(&self, keys: &[PageKey]) -> impl Future<Output = Result<(), StoreError>>;

    /// Asks for the lease on fetching a page, as the process `who`: of a fleet one fetches. It ends
    /// by itself after `time`. Within the read budget.
    fn lease(
        &self,
        key: &PageKey,
        who: u64,
        time: Duration,
    ) -> impl Future<Output = Result<Lease, StoreError>>;

    /// Ends the lease, if it is still `who`'s. Where the page may not be shared, others are told so for a
    /// moment.
    fn end_lease(
        &self,
        key: &PageKey,
        who: u64,
        is_shareable: bool,
    ) -> impl Future<Output = Result<(), StoreError>>;
}

/// How often a page was asked for in the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Once, as far as is known.
    Once,
    /// More often.
    Again,
}

/// The bytes of a bound on pages from which on a page must have been asked for more than once.
pub(super) fn nearly(bound: u64) -> u64 {
    bound / 5 * 4
}

/// The first bytes of every page of ours, and of no text: they distinguish our pages from what another
/// program stored.
pub const PAGE_MAGIC: [u8; 4] = [0x00, 0xa7, b'A', b'R'];

/// The version of a page's layout, behind that. A newer or older one is a miss, and is not booked.
pub const PAGE_VERSION: u8 = 4;

/// Both.
pub const PAGE_HEAD: [u8; 5] = [0x00, 0xa7, b'A', b'R', PAGE_VERSION];

/// Who fetches a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The process that asked.
    Ours,
    /// Another one.
    Theirs,
    /// Another one did a moment ago, and the page may not be shared.
    Unshareable,
}
