//! `rescale_viewed`: old views count less than new ones.

use crate::store::{Rescaled, Rescaling, StoreError, ViewStore};

/// Keeps the most viewed items and makes all scores smaller, unless somebody did within the period;
/// the very first look only begins one. To be called again while it says [`Rescaled::Begun`].
///
/// # Errors
/// When the store fails.
pub async fn rescale_viewed<S: ViewStore>(
    store: &S,
    how: Rescaling,
) -> Result<Rescaled, StoreError> {
    store.rescale_views(how).await
}
