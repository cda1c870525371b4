//! `rescale_viewed`: old views count less than new ones.

use anteroom_store::{RescaleResult, Rescaling, StoreError, ViewStore};

/// Keeps the most viewed items and scales all scores down, unless that was done within the period;
/// the very first call only begins one. Call it again while it returns [`RescaleResult::Begun`].
///
/// # Errors
/// When the store fails.
pub async fn rescale_viewed<S: ViewStore>(
    store: &S,
    how: Rescaling,
) -> Result<RescaleResult, StoreError> {
    store.rescale_views(how).await
}
