//! Keys of tables.

use anteroom_http::ident::StoredToken;

use crate::transfer::SharedRecord;

// Keys are bytes, not text: a damaged file must not yield invalid UTF-8 as `str`.
pub(super) type Bytes = &'static [u8];

/// The name under which something is stored, and the record of it; `None`: it is foreign.
pub(super) type NamedRecord = (Vec<u8>, Option<SharedRecord>);

/// A token as a key.
pub(super) fn bytes_of(token: &StoredToken) -> &[u8] {
    token.as_str().as_bytes()
}
