//! Remembers which pages were requested recently, so that pages that are requested only once do not evict
//! others.
//!
//! A page is noted when it enters memory, and not on a hit. Two bit tables of fixed size alternate: a page is
//! known for one to two minutes. False positives occur: a few in a thousand when very many pages are noted.

use std::sync::{Mutex, PoisonError};

use ahash::RandomState;

use anteroom_http::ident::PageKey;

/// The least time for which a page is known, in seconds.
const WINDOW: u64 = 60;
/// Bits per table: 1 MiB. A power of two.
const BITS: usize = 1 << 23;
/// Bits set per page.
const BITS_OF_PAGE: u64 = 4;
/// The most pages noted in a table: in a fuller one every page would appear known. If more pages arrive in a
/// minute, each is known for a shorter time.
const NOTED_MAX: usize = 1 << 19;

/// The pages that were requested recently.
#[derive(Debug)]
pub(crate) struct AdmissionFilter {
    hasher: RandomState,
    tables: Mutex<Tables>,
}

/// The table in which pages are noted, and the previous one.
#[derive(Debug)]
struct Tables {
    now: Vec<u64>,
    before: Vec<u64>,
    /// When the current table was begun, in Unix time.
    since: u64,
    noted: usize,
}

impl Default for AdmissionFilter {
    fn default() -> Self {
        let [now, before] = [vec![0; BITS / 64], vec![0; BITS / 64]];
        let tables = Mutex::new(Tables { now, before, since: 0, noted: 0 });
        Self { hasher: RandomState::new(), tables }
    }
}

impl AdmissionFilter {
    /// Notes that a page is requested, and returns whether it was known.
    pub(crate) fn note(&self, key: &PageKey, now: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        // Each half of the hash is an independent hash; combined they yield as many as are needed.
        let (first, step) = (hash & 0xffff_ffff, hash >> 32 | 1);
        let bits = (0..BITS_OF_PAGE)
            .map(|n| first.wrapping_add(step.wrapping_mul(n)) as usize & (BITS - 1))
            .map(|bit| (bit / 64, 1 << (bit % 64)));
        // No code that can panic runs under this lock.
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.turn(now);
        let is_in = |table: &[u64]| bits.clone().all(|(word, bit)| table[word] & bit != 0);
        if is_in(&tables.now) {
            return true;
        }
        let was_known = is_in(&tables.before);
        bits.for_each(|(word, bit)| tables.now[word] |= bit);
        tables.noted += 1;
        was_known
    }
}

impl Tables {
    /// Starts a new table if the current one has expired or is full.
    fn turn(&mut self, now: u64) {
        let age = now.saturating_sub(self.since);
        if age < WINDOW && self.noted < NOTED_MAX {
            return;
        }
        std::mem::swap(&mut self.now, &mut self.before);
        self.now.fill(0);
        if age >= 2 * WINDOW {
            self.before.fill(0);
        }
        (self.since, self.noted) = (now, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> PageKey {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        PageKey(bytes)
    }

    #[test]
    fn a_page_is_known_for_a_minute_and_forgotten_after_two() {
        for (second, known) in [(1_000, true), (1_060, true), (1_120, false), (5_000, false)] {
            let asked = AdmissionFilter::default();
            assert!(!asked.note(&key(1), 1_000));
            assert!(!asked.note(&key(2), 1_030));
            assert_eq!(asked.note(&key(1), second), known, "{second}");
        }
    }

    #[test]
    fn a_repeatedly_requested_key_stays_known() {
        let asked = AdmissionFilter::default();
        assert!(!asked.note(&key(1), 1_000));
        assert!((1..100).all(|n| asked.note(&key(1), 1_000 + 50 * n)));
    }

    #[test]
    fn in_a_flood_few_strangers_pass_for_known() {
        let asked = AdmissionFilter::default();
        let pages = 3 * NOTED_MAX as u32;
        let known = (0..pages).filter(|n| asked.note(&key(*n), 1_000)).count();
        assert!(known < pages as usize / 50, "{known} of {pages}");
        assert!(asked.note(&key(pages - 1), 1_000), "the last one is known");
    }
}
