//! The list of the pages in use, from which page memory is filled at a start.

use std::future::Future;
use std::time::Duration;

use anteroom_http::ident::PageKey;
use bytes::Bytes;

use super::StoreError;

/// The longest list that is written or read, in bytes.
pub const HOT_LIST_MAX: usize = 5 << 20;

/// The list of the pages in use, and the pages of a part of it. A call has the budget of its handle: use that of
/// [`super::AnyStore::background`].
pub trait HotPageStore {
    /// Replaces the list. It ends by itself after `ttl`. A store that keeps no page over a restart keeps no list.
    fn put_hot_pages(
        &self,
        list: Bytes,
        ttl: Duration,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// The list, at most [`HOT_LIST_MAX`] bytes of it.
    fn hot_pages(&self) -> impl Future<Output = Result<Option<Bytes>, StoreError>>;

    /// The pages under these keys, in their order, as [`super::PageStore::page`] has them.
    fn pages(
        &self,
        keys: &[PageKey],
    ) -> impl Future<Output = Result<Vec<Option<Bytes>>, StoreError>>;
}
