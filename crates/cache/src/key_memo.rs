//! The keys of recent requests, by their parts, so that the same key is not digested again. One thread's own.

use std::cell::RefCell;

use ahash::RandomState;
use anteroom_http::ident::PageKey;

use super::rules::key::{KeyParts, digest, encode};

/// How many keys are remembered; a new one replaces another of the same slot.
const SLOTS: usize = 4_096;
/// Longer parts are not remembered, in bytes. All keys together take at most 2 MiB.
const PARTS_MAX: usize = 448;

/// Remembers keys. A wrong key is never returned: the parts are compared, not their hash.
#[derive(Default)]
pub struct KeyMemo {
    /// Empty until the first request.
    slots: RefCell<Vec<Slot>>,
    /// The encoded parts of the key in question.
    encoded: RefCell<Vec<u8>>,
    hasher: RandomState,
}

/// Encoded parts and their key; no parts in an empty slot.
#[derive(Clone)]
struct Slot {
    encoded: Box<[u8]>,
    key: PageKey,
}

impl KeyMemo {
    /// The same as [`super::rules::key::hash_request`].
    #[must_use]
    pub fn hash_request(&self, parts: &KeyParts<'_>) -> PageKey {
        let mut encoded = self.encoded.borrow_mut();
        encoded.clear();
        encode(parts, &mut encoded);
        if encoded.len() > PARTS_MAX {
            let key = digest(&encoded);
            // A long query must not keep its memory.
            encoded.shrink_to(PARTS_MAX);
            return key;
        }
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            slots.resize(SLOTS, Slot { encoded: Box::default(), key: PageKey([0; 32]) });
        }
        let hash = self.hasher.hash_one(encoded.as_slice());
        let slot = &mut slots[hash as usize % SLOTS];
        if *slot.encoded != **encoded {
            *slot = Slot { key: digest(&encoded), encoded: encoded.as_slice().into() };
        }
        slot.key
    }
}

impl std::fmt::Debug for KeyMemo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyMemo").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderMap;

    use super::*;
    use crate::rules::key::{ShareClass, hash_request};

    #[test]
    fn a_remembered_key_is_the_digest_of_its_parts() {
        let (memo, headers) = (KeyMemo::default(), HeaderMap::new());
        let long = "q".repeat(2 * PARTS_MAX);
        for round in 0..2 {
            for number in 0..3 * SLOTS {
                let path = format!("/{number}");
                let query = if number % 7 == 0 { long.as_str() } else { "" };
                let parts = KeyParts {
                    site: "",
                    scheme: "http",
                    host: "shop.test",
                    path: &path,
                    query,
                    class: ShareClass::Anonymous,
                    group: b"",
                    headers: &headers,
                    key_cookies: &[],
                    key_headers: &[],
                    conditions: &[],
                    by_query: None,
                };
                let key = memo.hash_request(&parts);
                assert_eq!(key, hash_request(&parts), "{path} in round {round}");
                assert_eq!(key, memo.hash_request(&parts));
            }
        }
        assert!(memo.encoded.borrow().capacity() <= 4 * PARTS_MAX);
    }
}
