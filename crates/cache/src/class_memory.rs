//! What is remembered of earlier requests to tell the class of the next: networks and tokens of known users, pages that
//! several networks have asked for, pages that log in, and clients that the app has served. Each is bounded, and forgets what is oldest.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ahash::RandomState;
use anteroom_http::ident::{PageKey, StoredToken};
use quick_cache::sync::Cache;

/// The most networks, tokens, pages and login pages.
const NETWORKS_MAX: usize = 16_384;
const TOKENS_MAX: usize = 16_384;
const PAGES_MAX: usize = 65_536;
const LOG_INS_MAX: usize = 64;
/// For how long the network of a known user is that of one, in seconds.
const NETWORK_LASTS: u64 = 24 * 3_600;
/// A network is noted again after so many seconds.
const NOTED_AGAIN: u64 = 600;
/// For how long a client that the app has served is one of those, in seconds.
const SERVED_LASTS: u64 = 600;

/// What is remembered, shared by all threads.
#[derive(Debug)]
pub struct ClassMemory {
    hasher: RandomState,
    /// By network: when a known user was last there, in Unix time.
    networks: Cache<u32, u64>,
    /// Whether there are some.
    has_networks: AtomicBool,
    /// Hashes of the tokens of known users.
    tokens: Cache<u64, ()>,
    /// By the hash of a page: the network that first asked for it, and whether another has since.
    pages: Cache<u64, (u32, bool)>,
    /// Hashes of sites with paths of which the answer was a login.
    log_ins: Cache<u64, ()>,
    /// How long those paths are, modulo 64: a bit for each length. Most other paths are told from them by that.
    log_in_lengths: AtomicU64,
    /// By the hash of a site: the path that logged a visitor in last.
    log_in_paths: Cache<u64, Arc<str>>,
    /// By the hash of a token or of credentials: when the app last did what they asked for, in Unix time.
    served: Cache<u64, u64>,
}

impl Default for ClassMemory {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            networks: Cache::new(NETWORKS_MAX),
            has_networks: AtomicBool::new(false),
            tokens: Cache::new(TOKENS_MAX),
            pages: Cache::new(PAGES_MAX),
            log_ins: Cache::new(LOG_INS_MAX),
            log_in_lengths: AtomicU64::new(0),
            log_in_paths: Cache::new(LOG_INS_MAX),
            served: Cache::new(TOKENS_MAX),
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
            self.has_networks.store(true, Ordering::Relaxed);
        }
        let Some(token) = token.map(|token| self.flow(token.as_str())) else { return };
        if self.tokens.get(&token).is_none() {
            self.tokens.insert(token, ());
        }
    }

    /// Whether the token was a known user's when that was last found out.
    #[must_use]
    pub fn was_known(&self, token: &StoredToken) -> bool {
        self.tokens.get(&self.flow(token.as_str())).is_some()
    }

    /// Whether a known user was in this network in the last day.
    pub fn has_known(&self, network: u32, now: u64) -> bool {
        // PERF: a site without users has none.
        self.has_networks.load(Ordering::Relaxed)
            && self.networks.get(&network).is_some_and(|at| now.saturating_sub(at) < NETWORK_LASTS)
    }

    /// Whether another network than this has asked for the page.
    #[must_use]
    pub fn is_read_by_others(&self, key: &PageKey, network: u32) -> bool {
        let asked = self.pages.get(&self.flow(&key.0));
        asked.is_some_and(|(first, by_others)| by_others || first != network)
    }

    /// A network asks for a page.
    pub fn note_read(&self, key: &PageKey, network: u32) {
        let hash = self.flow(&key.0);
        match self.pages.get(&hash) {
            None => self.pages.insert(hash, (network, false)),
            Some((first, false)) if first != network => self.pages.insert(hash, (first, true)),
            Some(_) => {}
        }
    }

    /// The app has done what was asked with this token, or with these credentials.
    pub fn note_served(&self, bearer: &[u8], now: u64) {
        self.served.insert(self.flow(bearer), now);
    }

    /// Whether it has in the last ten minutes.
    #[must_use]
    pub fn was_served(&self, bearer: &[u8], now: u64) -> bool {
        let served = self.served.get(&self.flow(bearer));
        served.is_some_and(|at| now.saturating_sub(at) < SERVED_LASTS)
    }

    /// A request for this path logged a visitor in.
    pub fn note_log_in(&self, site: &str, path: &str) {
        self.log_ins.insert(self.flow(&(site, path)), ());
        self.log_in_lengths.fetch_or(length_bit(path), Ordering::Relaxed);
        self.log_in_paths.insert(self.flow(site), path.into());
    }

    /// The path that logged a visitor of the site in last.
    #[must_use]
    pub fn log_in_path(&self, site: &str) -> Option<Arc<str>> {
        self.log_in_paths.get(&self.flow(site))
    }

    /// Whether a request for this path has logged a visitor in.
    pub fn logs_in(&self, site: &str, path: &str) -> bool {
        // PERF: the lengths first; a look at the table takes a hash and a lock.
        self.log_in_lengths.load(Ordering::Relaxed) & length_bit(path) != 0
            && self.log_ins.get(&self.flow(&(site, path))).is_some()
    }
}

fn length_bit(path: &str) -> u64 {
    1 << (path.len() % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_by_others_from_the_second_network_on() {
        let memory = ClassMemory::default();
        let key = PageKey([7; 32]);
        let is_read_by_others = |network| {
            let is_read = memory.is_read_by_others(&key, network);
            memory.note_read(&key, network);
            is_read
        };
        assert!(!is_read_by_others(1));
        assert!(!is_read_by_others(1));
        assert!(is_read_by_others(2));
        assert!(is_read_by_others(1), "and for the first");
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
    fn only_the_paths_of_log_ins_log_in() {
        let memory = ClassMemory::default();
        assert!(!memory.logs_in("shop", "/login"));
        memory.note_log_in("shop", "/login");
        memory.note_log_in("shop", "/a/longer/path");
        assert!(memory.logs_in("shop", "/login") && memory.logs_in("shop", "/a/longer/path"));
        assert!(!memory.logs_in("shop", "/logon") && !memory.logs_in("blog", "/login"));
        assert!(!memory.logs_in("shop", "/"));
    }

    #[test]
    fn the_memory_is_bounded() {
        let memory = ClassMemory::default();
        for n in 0..200_000_u32 {
            memory.note_known(n, None, 1);
            let mut key = PageKey([0; 32]);
            key.0[..4].copy_from_slice(&n.to_be_bytes());
            memory.note_read(&key, n);
            memory.note_served(&n.to_be_bytes(), 1);
        }
        assert!(memory.networks.len() <= NETWORKS_MAX && memory.pages.len() <= PAGES_MAX);
        assert!(memory.served.len() <= TOKENS_MAX);
    }
}
