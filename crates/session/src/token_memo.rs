//! The stored form of recent tokens, so that the same token is not digested for each request. One thread's own.

use std::cell::RefCell;

use ahash::RandomState;

use anteroom_http::ident::{StoredToken, Token, TokenStorage};

/// How many tokens are remembered; a new one replaces another of the same slot. At most some 400 KiB.
const SLOTS: usize = 1_024;

/// Remembers the stored form of tokens.
#[derive(Default)]
pub struct TokenMemo {
    /// Empty until the first token.
    slots: RefCell<Vec<Option<Slot>>>,
    hasher: RandomState,
}

struct Slot {
    hash: u64,
    storage: TokenStorage,
    token: Token,
    stored: StoredToken,
}

impl TokenMemo {
    /// The same as [`Token::stored`].
    #[must_use]
    pub fn stored(&self, token: &Token, storage: TokenStorage) -> StoredToken {
        if storage == TokenStorage::Plain {
            return token.stored(storage);
        }
        let hash = self.hasher.hash_one(token.as_str());
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            slots.resize_with(SLOTS, || None);
        }
        let slot = &mut slots[hash as usize % SLOTS];
        // SECURITY: how long a comparison with another visitor's token takes would tell how much of it is right. So
        // the keyed hashes are compared first.
        match slot {
            Some(known)
                if known.hash == hash && known.storage == storage && known.token == *token =>
            {
                known.stored.clone()
            }
            _ => {
                let stored = token.stored(storage);
                *slot = Some(Slot { hash, storage, token: token.clone(), stored: stored.clone() });
                stored
            }
        }
    }
}

impl std::fmt::Debug for TokenMemo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenMemo").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_form_is_the_tokens_own() {
        let memo = TokenMemo::default();
        for _ in 0..2 {
            for number in 0..3 * SLOTS {
                let token = Token::parse(format!("token-{number:08}").as_bytes()).unwrap();
                for storage in [TokenStorage::Sha256, TokenStorage::Plain, TokenStorage::Sha256] {
                    assert!(memo.stored(&token, storage) == token.stored(storage), "{number}");
                }
            }
        }
    }
}
