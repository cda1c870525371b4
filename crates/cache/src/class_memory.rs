//! What is remembered of earlier requests to tell the class of the next: networks and tokens of known users, pages that
//! several networks have asked for, and pages that log in. Each is bounded, and forgets what is oldest.

use std::hash::Hash;

use ahash::RandomState;
use anteroom_http::ident::{PageKey, StoredToken};
use quick_cache::sync::Cache;

/// The most networks, tokens, pages and log-in pages.
const NETWORKS_MAX: usize = 16_384;
const TOKENS_MAX: usize = 16_384;
const PAGES_MAX: usize = 65_536;
const LOG_INS_MAX: usize = 64;
/// For how long the network of a known user is that of one, in seconds.
const NETWORK_LASTS: u64 = 24 * 3_600;
/// A network is noted again after so many seconds.
const NOTED_AGAIN: u64 = 600;

/// What is remembered, shared by all threads.
#[derive(Debug)]
pub struct ClassMemory {
    hasher: RandomState,
    /// By network: when a known user was last there, in Unix time.
    networks: Cache<u32, u64>,
    /// Hashes of the tokens of known users.
    tokens: Cache<u64, ()>,
    /// By the hash of a page: the network that first asked for it, and whether another has since.
    pages: Cache<u64, (u32, bool)>,
    /// Hashes of sites with paths of which the answer was a log-in.
    log_ins: Cache<u64, ()>,
}

impl Default for ClassMemory {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            networks: Cache::new(NETWORKS_MAX),
            tokens: Cache::new(TOKENS_MAX),
            pages: Cache::new(PAGES_MAX),
            log_ins: Cache::new(LOG_INS_MAX),
        }
    }
}

impl ClassMemory {
    /// The flow of a user, or of what else stands for a visitor.
    pub fn flow(&self, visitor: &(impl Hash + ?Sized)) -> u64 {
        self.hasher.hash_one(visitor)
    }

    /// A request of a known user came from this network with this token.
    pub fn note_known(&self, network: u32, token: Option<&StoredToken>, now: u64) {
        let is_new = |noted: u64| now.saturating_sub(noted) > NOTED_AGAIN;
        if self.networks.get(&network).is_none_or(is_new) {
            self.networks.insert(network, now);
        }
        let Some(token) = token.map(|token| self.flow(token.as_str())) else { return };
        if self.tokens.get(&token).is_none() {
            self.tokens.insert(token, ());
        }
    }

    #[must_use]
    /// Whether the token was a known user's when that was last found out.
    pub fn was_known(&self, token: &StoredToken) -> bool {
        self.tokens.get(&self.flow(token.as_str())).is_some()
    }

    /// Whether a known user was in this network in the last day.
    pub fn has_known(&self, network: u32, now: u64) -> bool {
        self.networks.get(&network).is_some_and(|at| now.saturating_sub(at) < NETWORK_LASTS)
    }

    /// Notes that a network asks for a page. Returns whether another one has asked for it, too.
    pub fn is_read_by_others(&self, key: &PageKey, network: u32) -> bool {
        let hash = self.flow(&key.0);
        match self.pages.get(&hash) {
            None => {
                self.pages.insert(hash, (network, false));
                false
            }
            Some((_, true)) => true,
            Some((first, false)) if first == network => false,
            Some((first, false)) => {
                self.pages.insert(hash, (first, true));
                true
            }
        }
    }

    /// A request for this path logged a visitor in.
    pub fn note_log_in(&self, site: &str, path: &str) {
        self.log_ins.insert(self.flow(&(site, path)), ());
    }

    /// Whether a request for this path has logged a visitor in.
    pub fn logs_in(&self, site: &str, path: &str) -> bool {
        !self.log_ins.is_empty() && self.log_ins.get(&self.flow(&(site, path))).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_by_others_from_the_second_network_on() {
        let memory = ClassMemory::default();
        let key = PageKey([7; 32]);
        assert!(!memory.is_read_by_others(&key, 1));
        assert!(!memory.is_read_by_others(&key, 1));
        assert!(memory.is_read_by_others(&key, 2));
        assert!(memory.is_read_by_others(&key, 1), "and for the first");
    }

    #[test]
    fn the_network_of_a_known_user_is_remembered_for_a_day() {
        let memory = ClassMemory::default();
        memory.note_known(9, None, 1_000);
        assert!(memory.has_known(9, 1_000 + NETWORK_LASTS - 1));
        assert!(!memory.has_known(9, 1_000 + NETWORK_LASTS));
        assert!(!memory.has_known(8, 1_000));
    }

    #[test]
    fn the_memory_is_bounded() {
        let memory = ClassMemory::default();
        for n in 0..200_000_u32 {
            memory.note_known(n, None, 1);
            let mut key = PageKey([0; 32]);
            key.0[..4].copy_from_slice(&n.to_be_bytes());
            memory.is_read_by_others(&key, n);
        }
        assert!(memory.networks.len() <= NETWORKS_MAX && memory.pages.len() <= PAGES_MAX);
    }
}
