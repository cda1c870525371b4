//! The hash of a visitor's session cookies, under which an app's answer about the visitor is remembered.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::hex::hex;

/// SHA-256 over the names and values of all session cookies of a visitor. An app's answer about a visitor is
/// remembered under it, because the token alone may not distinguish two visitors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CookieHash(pub [u8; 32]);

impl CookieHash {
    /// Hashes these names and values; their order does not matter.
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

    /// The 64 lower-case hex digits, as they stand in the store key after `answer:`.
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
