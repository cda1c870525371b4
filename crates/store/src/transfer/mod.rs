//! Moving what a store holds to another store, and into a backup.
//!
//! [`TransferStore`] reads and writes records that belong to no engine; each store implements it in a file `transfer.rs`
//! of its own. [`Transfer`] copies from one store to another. Pages, leases, purges, answers of apps and the register
//! of proxies are not moved: pages are fetched again, and apps are asked again.

mod engine;
mod record;

use std::future::Future;

use anteroom_http::ident::StoredToken;

pub use self::engine::{CaughtUp, CopyCounts, Transfer, TransferProgress};
pub use self::record::{
    IdleMark, LogInTime, SharedKind, SharedRecord, StoreCounts, TransferRecord, is_visitor,
};
use super::StoreError;

/// The most tokens in one call of [`TransferStore::export`], [`TransferStore::import`] and [`TransferStore::remove`].
pub const TRANSFER_BATCH: usize = 500;
/// The most tokens on a page; a Redis that stores few of them in one block may return some more.
pub const TRANSFER_PAGE: usize = 1_000;
/// The most entries of a cart that are moved. Anteroom itself keeps fewer,
/// see [`super::CART_MAX`].
pub const TRANSFER_CART_MAX: usize = 2_000;
/// The most views of a session that are moved; `[session] viewed_items` is 1,000 at most.
pub const TRANSFER_VIEWS_MAX: usize = 1_000;

/// A position in a walk. It may hold a token, so it never prints.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TransferCursor {
    /// Which part of the data the walk is in.
    pub(super) part: u8,
    /// The shard, if there are several.
    pub(super) shard: usize,
    /// The store's own position.
    pub(super) at: u64,
    /// The last entry of the previous page, if the store uses that as its position.
    pub(super) last: Vec<u8>,
    /// Entries that have been listed and not been read.
    pub(super) pending: Vec<Vec<u8>>,
}

impl std::fmt::Debug for TransferCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TransferCursor(…)")
    }
}

/// A page of a walk.
#[derive(Clone, Debug)]
pub struct TransferPage<T> {
    /// What was found. It may be empty although more follows.
    pub found: Vec<T>,
    /// Where the next page begins; `None`: this is the last.
    pub next: Option<TransferCursor>,
}

impl<T> TransferPage<T> {
    /// A page after which nothing follows.
    pub(super) fn last(found: Vec<T>) -> Self {
        Self { found, next: None }
    }
}

/// The data of a store, in records that belong to no engine.
///
/// Tokens are those of sessions and of visitors; see [`is_visitor`].
pub trait TransferStore {
    /// A page of all tokens. A token that is there during the whole walk is found at least once; some are found
    /// repeatedly.
    fn walk_tokens(
        &self,
        from: Option<TransferCursor>,
    ) -> impl Future<Output = Result<TransferPage<StoredToken>, StoreError>>;

    /// A page of the tokens last seen at this Unix time or later. A token that is seen again during the walk moves to
    /// its end.
    fn tokens_seen_since(
        &self,
        since: f64,
        from: Option<TransferCursor>,
    ) -> impl Future<Output = Result<TransferPage<StoredToken>, StoreError>>;

    /// What is stored of these tokens, at most [`TRANSFER_BATCH`], in their order; each is read in one atomic step.
    /// `None`: nothing.
    fn export(
        &self,
        tokens: &[StoredToken],
    ) -> impl Future<Output = Result<Vec<Option<TransferRecord>>, StoreError>>;

    /// Replaces what is stored of the tokens of these records, at most [`TRANSFER_BATCH`], each in one atomic step. A
    /// record that is there already is left alone. Returns how many were not. No other process is informed.
    fn import(&self, records: &[TransferRecord])
    -> impl Future<Output = Result<usize, StoreError>>;

    /// Whether anything is stored of these tokens, at most [`TRANSFER_BATCH`], in their order.
    fn holds(&self, tokens: &[StoredToken]) -> impl Future<Output = Result<Vec<bool>, StoreError>>;

    /// Removes these tokens, at most [`TRANSFER_BATCH`], with all their data, each in one atomic step; but not those
    /// whose login, or if that is unknown whose last visit, was at the Unix time `before` or later. Returns how many
    /// were removed. Carts are not handed on, and no other process is informed.
    fn remove(
        &self,
        tokens: &[StoredToken],
        before: f64,
    ) -> impl Future<Output = Result<usize, StoreError>>;

    /// How much there is of each kind. Revoked marks are not counted.
    fn counts(&self) -> impl Future<Output = Result<StoreCounts, StoreError>>;

    /// A page of the records of a kind, of a few megabytes at most. Lists and streams keep their order.
    fn export_shared(
        &self,
        kind: SharedKind,
        from: Option<TransferCursor>,
    ) -> impl Future<Output = Result<TransferPage<SharedRecord>, StoreError>>;

    /// Removes all records of a kind; revoked marks stay, because they only expire.
    fn clear_shared(&self, kind: SharedKind) -> impl Future<Output = Result<(), StoreError>>;

    /// Adds a page of records, and returns how many were left out because this store cannot hold them.
    fn import_shared(
        &self,
        records: &[SharedRecord],
    ) -> impl Future<Output = Result<usize, StoreError>>;

    /// Forgets all purges, so that no page that the store has from before is served. No proxy may use the store.
    fn forget_purges(&self) -> impl Future<Output = Result<(), StoreError>>;

    /// Returns once all that was imported is durable, as far as the store itself makes it so.
    fn make_durable(&self) -> impl Future<Output = Result<(), StoreError>>;
}
