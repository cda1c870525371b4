//! `clean_sessions` and `clean_full_sessions`: one batch per call.

use anteroom_store::{Eviction, ExpiryStore, StoreError};

/// Removes the oldest sessions over `keep`, and those last seen before the Unix time `before`, at
/// most `batch`, with their views, but without their carts. Returns how many were removed; fewer
/// than `batch`: the limit is kept.
///
/// # Errors
/// When the store fails.
pub async fn clean_sessions<S: ExpiryStore>(
    store: &S,
    keep: u64,
    batch: u32,
    before: f64,
) -> Result<usize, StoreError> {
    store.evict_oldest(Eviction { keep, batch, carts: false, before }).await
}

/// The same, with their carts.
///
/// # Errors
/// When the store fails.
pub async fn clean_full_sessions<S: ExpiryStore>(
    store: &S,
    keep: u64,
    batch: u32,
    before: f64,
) -> Result<usize, StoreError> {
    store.evict_oldest(Eviction { keep, batch, carts: true, before }).await
}
