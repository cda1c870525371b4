//! What stands for a session in the counters: a hash of its token.

use std::fmt;
use std::hash::BuildHasher as _;

use ahash::RandomState;
use anteroom_http::ident::{StoredToken, hex, unhex};

/// Seeds of both hashes.
const SEEDS: usize = 8;

/// Two hashes that clients cannot foresee, which stand for a token together.
pub(super) struct TokenHasher {
    seeds: [u64; SEEDS],
    hashers: [RandomState; 2],
}

/// What the hashes are made from is known to no client, and stands in no log.
impl fmt::Debug for TokenHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHasher(..)")
    }
}

impl TokenHasher {
    /// One of its own.
    pub(super) fn random() -> Self {
        // Its keys are random, and its hashes do not show them.
        let random = std::hash::RandomState::new();
        Self::new(std::array::from_fn(|place| random.hash_one(place)))
    }

    fn new(seeds: [u64; SEEDS]) -> Self {
        let [a, b, c, d, rest @ ..] = seeds;
        let first = RandomState::with_seeds(a, b, c, d);
        let [a, b, c, d] = rest;
        Self { seeds, hashers: [first, RandomState::with_seeds(a, b, c, d)] }
    }

    /// The hasher of another process, by its [`Self::digits`].
    pub(super) fn of(digits: &str) -> Option<Self> {
        let bytes = unhex(digits)?;
        let (seeds, []) = bytes.as_chunks::<{ size_of::<u64>() }>() else { return None };
        let seeds: &[_; SEEDS] = seeds.try_into().ok()?;
        Some(Self::new(seeds.map(u64::from_be_bytes)))
    }

    /// What it is made from, in hex digits.
    pub(super) fn digits(&self) -> String {
        hex(self.seeds.map(u64::to_be_bytes).as_flattened())
    }

    pub(super) fn hash(&self, token: &StoredToken) -> u128 {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one(token));
        u128::from(high) << 64 | u128::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_hashes_alike_if_it_knows_the_seeds() {
        let token = StoredToken::from_store(b"0123456789abcdef").unwrap();
        let (own, other) = (TokenHasher::random(), TokenHasher::random());
        let same = TokenHasher::of(&own.digits()).unwrap();
        assert_eq!(same.hash(&token), own.hash(&token));
        assert_ne!(other.hash(&token), own.hash(&token));
        assert_eq!(own.digits().len(), 128);
        for wrong in ["", "00", &own.digits()[16..], &format!("{}00", own.digits())] {
            assert!(TokenHasher::of(wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{own:?}").contains(&own.digits()[..16]));
    }
}
