//! The present time, in the unit of certificates and of what is saved.

use anteroom_http::clock::unix_now;

/// The Unix time in whole seconds.
pub(crate) fn now() -> i64 {
    unix_now() as i64
}
