//! What is known of the servers of origins, from which the next process begins.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use super::StoreError;

/// The longest value that is written or read, in bytes.
pub const KNOWN_SERVERS_MAX: usize = 16 << 10;

/// What is known of the servers of each origin: one value for an origin, by its name. Values of another `version` are other
/// values. Proxies of a fleet write the same value, and the last one stays: all of them see the same app. A call has the
/// budget of its handle: use that of [`super::AnyStore::background`].
pub trait OverloadStore {
    /// Replaces the value of an origin. It ends by itself after `ttl`.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if it is over [`KNOWN_SERVERS_MAX`].
    fn put_known_servers(
        &self,
        version: u32,
        origin: &str,
        known: Bytes,
        ttl: Duration,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// The value of an origin, at most [`KNOWN_SERVERS_MAX`] bytes of it.
    fn known_servers(
        &self,
        version: u32,
        origin: &str,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>>;
}
