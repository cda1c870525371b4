//! What stands for a visitor's cookies where an app is asked who he is.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::hex::hex;

/// A hash over all session cookies that a visitor carries: SHA-256 of their names and values. What an
/// app says of one visitor is remembered under it, and his token alone need not tell him from another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CookieHash(pub [u8; 32]);

impl CookieHash {
    /// The hash of these names and values, whatever their order.
    #[must_use]
    pub fn of(cookies: &mut [(&[u8], &[u8])]) -> Self {
        cookies.sort_unstable();
        let mut hash = Sha256::new();
        for part in cookies.iter().flat_map(|(name, value)| [name, value]) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The 64 lower-case hex digits behind `answer:`.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Debug for CookieHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieHash(…)")
    }
}
