//! Revoked tokens of an app's own: logged out here, and invalid whatever the app says.

use std::future::Future;
use std::time::Duration;

use anteroom_http::ident::StoredToken;

use super::StoreError;

/// How long a token stays revoked. After that, a request with it asks the app again.
pub const REVOKED_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The most revoked tokens in the embedded store; the oldest are dropped first. In Redis each has
/// its time to live.
pub const REVOKED_MAX: u64 = 1_000_000;

/// Tokens that are revoked.
pub trait RevocationStore {
    /// Marks a token as revoked for [`REVOKED_FOR`]. Durable when it returns; `now` is Unix time in seconds.
    fn mark_revoked(
        &self,
        token: &StoredToken,
        now: f64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Whether a token is revoked. Within the read budget.
    fn is_revoked(
        &self,
        token: &StoredToken,
        now: f64,
    ) -> impl Future<Output = Result<bool, StoreError>>;
}
