//! Tokens of an app's own that were logged out: whatever the app says of them, they are nobody's.

use std::future::Future;
use std::time::Duration;

use super::StoreError;
use crate::ident::StoredToken;

/// How long a token is barred. Who comes with it later is asked about anew.
pub const BARRED_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The most tokens that are barred in the embedded store; the oldest are let go first. In Redis each has
/// its time to live.
pub const BARRED_MAX: u64 = 1_000_000;

/// Tokens that are barred.
pub trait BarStore {
    /// Bars a token for [`BARRED_FOR`]. Durable when it returns; `now` is Unix time in seconds.
    fn bar(&self, token: &StoredToken, now: f64) -> impl Future<Output = Result<(), StoreError>>;

    /// Whether a token is barred. Within the read budget.
    fn is_barred(
        &self,
        token: &StoredToken,
        now: f64,
    ) -> impl Future<Output = Result<bool, StoreError>>;
}
