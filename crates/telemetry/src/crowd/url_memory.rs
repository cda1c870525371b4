//! Which URLs the origins were asked for lately, in bounded memory.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ahash::RandomState;

/// The bits of a generation, as words: 64 KiB.
const WORDS: usize = 8_192;
/// How many URLs a generation takes. Of new URLs, one in forty is then mistaken for an old one.
const URLS_MAX: usize = 32_768;

/// The last 32,768 URLs, and up to as many before: two Bloom filters that take turns. Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct UrlMemory {
    hasher: RandomState,
    /// They take no memory until the first URL.
    generations: OnceLock<[Box<[AtomicU64]>; 2]>,
    /// The generation that takes URLs.
    current: AtomicUsize,
    /// How many it has taken.
    taken: AtomicUsize,
}

impl UrlMemory {
    /// Notes a URL. Returns whether it is new.
    pub(crate) fn is_new(&self, path: &str, query: Option<&str>) -> bool {
        let mut url = self.hasher.build_hasher();
        url.write(path.as_bytes());
        // An empty query is as none.
        if let Some(query) = query.filter(|query| !query.is_empty()) {
            url.write(query.as_bytes());
        }
        self.note(url.finish())
    }

    fn note(&self, url: u64) -> bool {
        let empty = || (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let generations = self.generations.get_or_init(|| [empty(), empty()]);
        if generations.iter().any(|words| has(words, url)) {
            return false;
        }
        let current = self.current.load(Ordering::Relaxed) % 2;
        for (word, bit) in places(url) {
            generations[current][word].fetch_or(bit, Ordering::Relaxed);
        }
        // Of several threads one reaches the bound; what others note meanwhile may be lost, and is new once more.
        if self.taken.fetch_add(1, Ordering::Relaxed) + 1 == URLS_MAX {
            let next = 1 - current;
            generations[next].iter().for_each(|word| word.store(0, Ordering::Relaxed));
            self.current.store(next, Ordering::Relaxed);
            self.taken.store(0, Ordering::Relaxed);
        }
        true
    }
}

fn has(words: &[AtomicU64], url: u64) -> bool {
    places(url).iter().all(|(word, bit)| words[*word].load(Ordering::Relaxed) & bit != 0)
}

/// The bits of a URL: the word of each, and the bit in it.
fn places(url: u64) -> [(usize, u64); 2] {
    [url, url >> 32].map(|half| ((half >> 6) as usize % WORDS, 1_u64 << (half % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_new_once_and_those_that_are_long_ago_are_forgotten() {
        let (memory, hasher) = (UrlMemory::default(), RandomState::with_seeds(1, 2, 3, 4));
        let url = |number: u64| hasher.hash_one(number);
        assert!(memory.is_new("/a", None) && memory.is_new("/a", Some("b=1")));
        assert!(!memory.is_new("/a", None));
        let new = (0..20_000).filter(|number| memory.note(url(*number))).count();
        assert!(new > 19_000, "{new}");
        assert!((0..20_000).all(|number| !memory.note(url(number))));
        let new = (20_000..200_000).filter(|number| memory.note(url(*number))).count();
        assert!(new > 160_000, "{new} of 180,000");
        let again = (0..1_000).filter(|number| memory.note(url(*number))).count();
        assert!(again > 800, "{again}");
    }
}
