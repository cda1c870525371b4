//! Counts cookies by name: how many requests each came with, how many pages set it, and how many requests it
//! kept from the cache.
//!
//! A client may make up any number of names. So 64 have an entry of their own, and a new name replaces the
//! one with the least weight, whose counts go to the others. The new name inherits that weight, so that the
//! names of a flood displace each other, and the names in real use stay (the space-saving algorithm).

use std::collections::HashMap;

/// The most names that are counted separately.
pub const NAMES_MAX: usize = 64;
/// The most names of one message that are examined.
const EACH_MAX: usize = 32;
/// The longest name that is reported in full, in bytes.
const NAME_BYTES_MAX: usize = 48;
/// A run of at least this many hexadecimal digits at a name's end is an id, and no part of the name.
const ID_MIN: usize = 8;

/// What is counted of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CookieEvent {
    /// It came with a request.
    Came,
    /// A page of the app set it.
    Set,
    /// It kept a request from the cache.
    Blocked,
}

/// How often each happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CookieEventCounts {
    /// Requests with which it came.
    pub seen: u64,
    /// Pages that set it.
    pub set: u64,
    /// Requests that it kept from the cache.
    pub blocked: u64,
}

impl CookieEventCounts {
    fn of(&mut self, what: CookieEvent) -> &mut u64 {
        match what {
            CookieEvent::Came => &mut self.seen,
            CookieEvent::Set => &mut self.set,
            CookieEvent::Blocked => &mut self.blocked,
        }
    }

    fn add(&mut self, other: Self) {
        self.seen += other.seen;
        self.set += other.set;
        self.blocked += other.blocked;
    }
}

/// A name with the number of its entry.
#[derive(Debug)]
struct NumberedCookie {
    tally: CookieEventCounts,
    weight: u64,
    /// The message that last counted it: a message that has the name twice counts once.
    by: u64,
}

/// The names of one thread.
#[derive(Debug, Default)]
pub(super) struct CookieCounts {
    names: HashMap<Box<str>, NumberedCookie, ahash::RandomState>,
    others: CookieEventCounts,
    messages: u64,
}

impl CookieCounts {
    /// Counts the names of one message.
    pub(super) fn count<'n>(&mut self, what: CookieEvent, names: impl Iterator<Item = &'n [u8]>) {
        self.messages += 1;
        let by = self.messages;
        let mut buffer = [0; NAME_BYTES_MAX];
        for name in names.take(EACH_MAX) {
            let name = cleaned(name, &mut buffer);
            if let Some(counted) = self.names.get_mut(name) {
                if counted.by != by {
                    counted.by = by;
                    counted.weight += 1;
                    *counted.tally.of(what) += 1;
                }
                continue;
            }
            let weight = if self.names.len() < NAMES_MAX { 0 } else { self.push_out() };
            let mut tally = CookieEventCounts::default();
            *tally.of(what) += 1;
            self.names.insert(name.into(), NumberedCookie { tally, weight: weight + 1, by });
        }
    }

    /// Frees the entry of the name with the least weight, and returns that weight.
    fn push_out(&mut self) -> u64 {
        let least = self.names.iter().min_by_key(|(_, counted)| counted.weight);
        let Some(name) = least.map(|(name, _)| name.clone()) else { return 0 };
        let Some(gone) = self.names.remove(&name) else { return 0 };
        self.others.add(gone.tally);
        gone.weight
    }
}

/// All that was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieTotals {
    /// Requests.
    pub requests: u64,
    /// Requests that were answered from the cache.
    pub hits: u64,
    /// Pages in the app's responses.
    pub pages: u64,
    /// The names, the most frequent first.
    pub names: Vec<(String, CookieEventCounts)>,
    /// All others.
    pub others: CookieEventCounts,
}

/// Adds up the names of all threads.
pub(super) fn sum<'j>(
    jars: impl Iterator<Item = &'j CookieCounts>,
) -> (Vec<(String, CookieEventCounts)>, CookieEventCounts) {
    let (mut all, mut others) =
        (HashMap::<&str, CookieEventCounts>::new(), CookieEventCounts::default());
    for cookie_counts in jars {
        others.add(cookie_counts.others);
        for (name, counted) in &cookie_counts.names {
            all.entry(name).or_default().add(counted.tally);
        }
    }
    let mut names: Vec<_> = all.into_iter().map(|(name, tally)| (name.to_owned(), tally)).collect();
    names.sort_unstable_by(|(one, a), (other, b)| {
        let by_count = (b.seen, b.set, b.blocked).cmp(&(a.seen, a.set, a.blocked));
        by_count.then_with(|| one.cmp(other))
    });
    names.drain(NAMES_MAX.min(names.len())..).for_each(|(_, tally)| others.add(tally));
    (names, others)
}

/// The name of a cookie in the form for reports.
#[must_use]
pub fn cookie_label(name: &[u8]) -> String {
    cleaned(name, &mut [0; NAME_BYTES_MAX]).to_owned()
}

/// A name in the form for reports: shortened, without characters that control a terminal, and with `*` for an
/// id at its end (`wordpress_logged_in_5d41402a…`).
fn cleaned<'b>(name: &[u8], buffer: &'b mut [u8; NAME_BYTES_MAX]) -> &'b str {
    let id = name.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let stem = &name[..name.len() - id];
    let has_id = id >= ID_MIN && matches!(stem.last(), Some(b'_' | b'-' | b'.'));
    let shown = if has_id { stem } else { name };
    let room = NAME_BYTES_MAX - 1;
    let length = shown.len().min(room);
    for (to, byte) in buffer.iter_mut().zip(&shown[..length]) {
        // The bytes allowed in a token (RFC 9110 §5.6.2).
        let is_plain = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        *to = if is_plain { *byte } else { b'?' };
    }
    let end = if has_id || shown.len() > room { length + 1 } else { length };
    buffer[length..end].fill(b'*');
    std::str::from_utf8(&buffer[..end]).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(cookie_counts: &CookieCounts) -> Vec<(String, CookieEventCounts)> {
        sum(std::iter::once(cookie_counts)).0
    }

    fn count(cookie_counts: &mut CookieCounts, what: CookieEvent, names: &[&str]) {
        cookie_counts.count(what, names.iter().map(|name| name.as_bytes()));
    }

    #[test]
    fn a_message_counts_a_name_once() {
        let mut cookie_counts = CookieCounts::default();
        count(&mut cookie_counts, CookieEvent::Came, &["a", "b", "a"]);
        count(&mut cookie_counts, CookieEvent::Came, &["a"]);
        count(&mut cookie_counts, CookieEvent::Set, &["b"]);
        count(&mut cookie_counts, CookieEvent::Blocked, &["a"]);
        let a = CookieEventCounts { seen: 2, set: 0, blocked: 1 };
        let b = CookieEventCounts { seen: 1, set: 1, blocked: 0 };
        assert_eq!(names(&cookie_counts), [("a".to_owned(), a), ("b".to_owned(), b)]);
    }

    #[test]
    fn a_flood_of_names_pushes_out_no_name_in_use() {
        let mut cookie_counts = CookieCounts::default();
        for n in 0..20_000 {
            let made_up = format!("x{n:x}y");
            count(&mut cookie_counts, CookieEvent::Came, &["PHPSESSID", &made_up]);
        }
        let (all, others) = sum(std::iter::once(&cookie_counts));
        assert_eq!(
            all[0],
            (
                "PHPSESSID".to_owned(),
                CookieEventCounts { seen: 20_000, ..CookieEventCounts::default() }
            )
        );
        assert_eq!(all.len(), NAMES_MAX);
        assert_eq!(others.seen, 20_000 - (NAMES_MAX as u64 - 1));
        assert_eq!(
            sum([&cookie_counts, &cookie_counts].into_iter()).0[0].1.seen,
            40_000,
            "threads are added up"
        );
    }

    #[test]
    fn names_are_told_without_ids_and_control_characters() {
        for (name, told) in [
            (&b"PHPSESSID"[..], "PHPSESSID"),
            (b"wordpress_logged_in_5d41402abc4b2a76b9719d911017c592", "wordpress_logged_in_*"),
            (b"_hjSession_1234567", "_hjSession_1234567"),
            (b"_hjSession_12345678", "_hjSession_*"),
            (b"5d41402abc4b2a76", "5d41402abc4b2a76"),
            (b"a\x1b[2J\"\xff", "a??2J??"),
            (b"(other)", "?other?"),
            (b"", ""),
        ] {
            assert_eq!(cleaned(name, &mut [0; NAME_BYTES_MAX]), told);
        }
        let long = "n".repeat(500);
        let told = format!("{}*", "n".repeat(NAME_BYTES_MAX - 1));
        assert_eq!(cleaned(long.as_bytes(), &mut [0; NAME_BYTES_MAX]), told);
    }
}
