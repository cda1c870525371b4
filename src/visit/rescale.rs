//! `rescale_viewed`: old views count less than new ones.

use crate::store::{Rescaling, StoreError, ViewStore};

/// Keeps the most viewed items and makes all scores smaller, unless somebody did within the period;
/// the very first look only begins one. Returns whether it was done.
///
/// # Errors
/// When the store fails.
pub async fn rescale_viewed<S: ViewStore>(store: &S, how: Rescaling) -> Result<bool, StoreError> {
    store.rescale_views(how).await
}
