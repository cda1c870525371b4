//! Keys of tables.

use crate::ident::StoredToken;

// Keys are bytes, not text: a damaged file must not yield invalid UTF-8 as `str`.
pub(super) type Bytes = &'static [u8];

/// A token as a key.
pub(super) fn bytes_of(token: &StoredToken) -> &[u8] {
    token.as_str().as_bytes()
}
