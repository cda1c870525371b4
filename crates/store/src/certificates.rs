//! What the proxies of a fleet share of the certificates that they order: sealed values, by name.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use super::StoreError;

/// The longest value that is written or read, in bytes: a chain and its key have some thousands.
pub const SEALED_MAX: usize = 64 << 10;

/// Values that only the proxies can read: the store sees them sealed. The embedded store keeps none, because its one
/// process has them in files. A call has the budget of its handle.
pub trait CertificateStore {
    /// Replaces the value of a name, which has no spaces. It ends by itself after `ttl`.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if it is over [`SEALED_MAX`].
    fn put_sealed(
        &self,
        name: &str,
        sealed: Bytes,
        ttl: Duration,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// The value of a name, at most [`SEALED_MAX`] bytes of it.
    fn sealed(&self, name: &str) -> impl Future<Output = Result<Option<Bytes>, StoreError>>;
}
